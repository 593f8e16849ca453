"""A SQLite file and the thread that works on it: opened when first used, closed before the process forks.

Nothing of SQLite may cross a fork: what a child inherits of an open file tells it of locks that only its
parent has, so that either could delete the log that the other still writes to
(https://sqlite.org/howtocorrupt.html, 2.6). Both open the file again when they next use it.
"""

import os
import threading
import weakref
from asyncio import Future as LoopFuture
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TypeVar

from agentloop.stores.sqlite.file import BusyError, SQLiteFile
from agentloop.threads import WorkThread

T = TypeVar("T")


class OpenedFile:
    """Work on one file, on a thread of its own; usable from any thread."""

    def __init__(self, path: Path, *, busy_seconds: float) -> None:
        self._path = path
        self._busy_seconds = busy_seconds
        self._lock = threading.Lock()
        self._open: _Open | None = None
        _ALL.add(self)

    def begin(self, work: Callable[[SQLiteFile], T]) -> "LoopFuture[Callable[[], T]]":
        """Queue the work; the running loop's future gets a call that returns or raises what the work did."""
        with self._lock:
            if self._open is None:
                self._open = _Open(SQLiteFile(self._path, busy_seconds=self._busy_seconds))
                weakref.finalize(self, self._open.let_go).atexit = False
            return self._open.begin(work)

    def at_once(self, work: Callable[[SQLiteFile], T]) -> T:
        """What the work returns, done in this thread, where nothing has to be waited for.

        Raises:
            BusyError: the file is not open, somebody works on it, here or in another process, or it is slow.
            StoreError: what the work raises.
        """
        if not self._lock.acquire(blocking=False):
            raise BusyError
        try:
            if self._open is None:
                raise BusyError
            return self._open.at_once(work)
        finally:
            self._lock.release()

    def let_go(self) -> "Future[None] | None":
        """Close the file once all work is done, and end the thread; None where it is not open."""
        with self._lock:
            return self._let_go()

    def hold_back(self) -> "Future[None] | None":
        """The same; and whatever comes then waits for `go_on`."""
        self._lock.acquire()
        return self._let_go()

    def go_on(self) -> None:
        """Work may begin again."""
        self._lock.release()

    def _let_go(self) -> "Future[None] | None":
        was_open, self._open = self._open, None
        return was_open.let_go() if was_open else None


class _Open:
    """A file and the thread that works on it; another may while that one has nothing to do."""

    def __init__(self, file: SQLiteFile) -> None:
        self._file = file
        self._thread = WorkThread(f"sqlite {file.path.name}")
        self._waiting: deque[object] = deque()

    def begin(self, work: Callable[[SQLiteFile], T]) -> "LoopFuture[Callable[[], T]]":
        self._waiting.append(work)
        return self._thread.begin(partial(self._done, work))

    def at_once(self, work: Callable[[SQLiteFile], T]) -> T:
        if self._waiting or not self._file.is_quick:
            raise BusyError
        return self._file.at_once(work)

    def _done(self, work: Callable[[SQLiteFile], T]) -> T:
        try:
            return work(self._file)
        finally:
            self._waiting.popleft()

    def let_go(self) -> "Future[None]":
        closed = self._thread.hand_in(self._file.close)
        self._thread.stop()
        return closed


_ALL: weakref.WeakSet[OpenedFile] = weakref.WeakSet()
_FORKING = threading.Lock()
_HELD_BACK: list[OpenedFile] = []


def _before_fork() -> None:
    """Close every file, and wait for the work on it that has begun."""
    _FORKING.acquire()
    _HELD_BACK.extend(_ALL)
    for closing in [opened.hold_back() for opened in _HELD_BACK]:
        if closing:
            closing.result()


def _after_fork() -> None:
    """In the parent and in the child: the locks that were taken are let go of."""
    while _HELD_BACK:
        _HELD_BACK.pop().go_on()
    _FORKING.release()


if hasattr(os, "register_at_fork"):  # where there are forks
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
