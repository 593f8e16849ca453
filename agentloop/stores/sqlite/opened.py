"""A SQLite file and the thread that works on it: opened when first used, closed before the process forks.

Nothing of SQLite may cross a fork: what a child inherits of an open file tells it of locks that only its
parent has, so that either could delete the log that the other still writes to
(https://sqlite.org/howtocorrupt.html, 2.6). Both open the file again when they next use it.
"""

import os
import threading
import weakref
from asyncio import Future as LoopFuture
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TypeVar

from agentloop.stores.sqlite.file import SQLiteFile
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
    """A file and the one thread that works on it."""

    def __init__(self, file: SQLiteFile) -> None:
        self._file = file
        self._thread = WorkThread(f"sqlite {file.path.name}")

    def begin(self, work: Callable[[SQLiteFile], T]) -> "LoopFuture[Callable[[], T]]":
        return self._thread.begin(partial(work, self._file))

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
