"""A SQLite file and the thread that works on it: opened when first used, closed before the process forks.

Nothing of SQLite may cross a fork: what a child inherits of an open file tells it of locks that only its
parent has, so that either could delete the log that the other still writes to
(https://sqlite.org/howtocorrupt.html, 2.6). Both open the file again when they next use it.

A signal's exception may come anywhere: locks are taken by `with` alone, behind whose beginning none can come,
and what is done around a fork can be done again.
"""

import os
import threading
import weakref
from asyncio import Future as LoopFuture
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from agentloop._plumbing.aio import WorkThread
from agentloop.stores.sqlite.file import SQLiteFile

T = TypeVar("T")


class OpenedFile:
    """Work on one file, on a thread of its own; usable from any thread."""

    def __init__(self, path: Path, *, busy_seconds: float) -> None:
        self._path = path
        self._busy_seconds = busy_seconds
        self._open: _Open | None = None
        self._forgotten: weakref.finalize[[], OpenedFile] | None = None

    def begin(self, work: Callable[[SQLiteFile], T]) -> "LoopFuture[Callable[[], T]]":
        """Queue the work; the running loop's future gets a call that returns or raises what the work did."""
        if begun := self._begun(work):
            return begun
        with _FORKING:
            while not (begun := self._begun(work)):
                self._open_it()
        return begun

    def let_go(self) -> "Future[None] | None":
        """Close the file once all work is done, and end the thread; None where it was never open."""
        return self._open.let_go() if self._open else None

    def _begun(self, work: Callable[[SQLiteFile], T]) -> "LoopFuture[Callable[[], T]] | None":
        return self._open.begin(work) if self._open else None

    def _open_it(self) -> None:
        if self._forgotten:
            self._forgotten.detach()
        self._open = _Open(SQLiteFile(self._path, busy_seconds=self._busy_seconds))
        self._forgotten = weakref.finalize(self, self._open.let_go)
        self._forgotten.atexit = False


class _Open:
    """A file and the thread that works on it."""

    def __init__(self, file: SQLiteFile) -> None:
        self._file = file
        self._lock = threading.RLock()  # the file may be forgotten in the midst of being let go of
        self._gone = False
        self._thread = WorkThread(f"sqlite {file.path.name}")
        self._stands = threading.Lock()
        self._stands.acquire()
        self._closed = _running()
        _STANDING.add(self)

    def begin(self, work: Callable[[SQLiteFile], T]) -> "LoopFuture[Callable[[], T]] | None":
        """Queue the work; None where the file was let go of."""
        with self._lock:
            if self._gone:
                return None
            turn = _Turn()
            turn.future = self._thread.begin(partial(self._done, turn, work))
            return turn.future

    def let_go(self) -> "Future[None]":
        """Close the file once the work on it is done; harmless when called again."""
        with self._lock:
            self._gone = True
            self._thread.put(self._close)
            self._thread.stop()
        return self._closed

    def wait(self) -> None:
        """Until the file is closed and its thread gone: Python 3.12 and later warn of a fork beside one."""
        with self._stands:
            self._thread.join()

    def leave(self) -> None:
        """In a child that inherits it open: it is the parent's, and who would use it here opens another."""
        self._lock, self._gone, self._closed = threading.RLock(), True, _running()
        self._closed.set_result(None)

    def _done(self, turn: "_Turn", work: Callable[[SQLiteFile], T]) -> T:
        self._file.is_given_up = turn.is_given_up
        try:
            return work(self._file)
        finally:
            self._file.is_given_up = lambda: False

    def _close(self) -> None:
        if self not in _STANDING:
            return
        self._file.close()
        _STANDING.discard(self)
        self._stands.release()
        self._closed.set_result(None)


class _Turn:
    """Work that is queued, and the future of who waits for it."""

    future: "LoopFuture[Callable[[], Any]] | None" = None

    def is_given_up(self) -> bool:
        """Whether nobody waits for it any more; asked in the thread that does it."""
        return self.future is not None and self.future.cancelled()


def _running() -> "Future[None]":
    """A future that who waits for it cannot cancel."""
    future: Future[None] = Future()
    future.set_running_or_notify_cancel()
    return future


_STANDING: set[_Open] = set()
"""All that are not closed yet, whether or not somebody still has them."""
_LEFT: list[_Open] = []
"""Those of the parent: let go of, they would be closed."""
_FORKING = threading.Lock()
"""Held by who opens a file, and by the thread that forks, from before to after."""


def _before_fork() -> None:
    """Close every file once the work on it that has begun is done, whatever signal comes meanwhile."""
    interruption: BaseException | None = None
    while _STANDING:
        try:
            _close_all()
        except BaseException as error:  # noqa: BLE001 — a signal's: the fork goes on whatever is raised here
            interruption = error
    if interruption:
        raise interruption


def _close_all() -> None:
    closing = list(_STANDING)
    for each in closing:
        each.let_go()
    for each in closing:
        each.wait()


def _in_child() -> None:
    """What crossed the fork open all the same, as two signals can bring about, is never touched here."""
    while _STANDING:
        each = _STANDING.pop()
        _LEFT.append(each)
        each.leave()


if hasattr(os, "register_at_fork"):  # where there are forks
    # What is registered later comes earlier before the fork. Twice: a signal's exception may end the first.
    os.register_at_fork(before=_before_fork, after_in_child=_in_child)
    os.register_at_fork(before=_before_fork)
    # Calls of their own, as no signal's exception can come within them.
    os.register_at_fork(
        before=_FORKING.acquire, after_in_parent=_FORKING.release, after_in_child=_FORKING.release
    )
