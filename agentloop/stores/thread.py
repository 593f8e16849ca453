"""One thread that does blocking work in order, for callers on any event loop."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeAlias, TypeVar

T = TypeVar("T")
_Jobs: TypeAlias = "SimpleQueue[Callable[[], None] | None]"


class WorkThread:
    """Runs what it is handed, one after the other, on a daemon thread of its own.

    Work that was handed in is done, whether or not somebody still waits for it. A daemon, so the end of
    the interpreter never waits for it.
    """

    def __init__(self, name: str) -> None:
        self._jobs: _Jobs = SimpleQueue()
        threading.Thread(target=_serve, args=(self._jobs,), name=name, daemon=True).start()

    def hand_in(self, work: Callable[[], T]) -> "Future[T]":
        """Queue the work and return its future, which cannot be cancelled any more."""
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()
        self._jobs.put(lambda: _settle(future, work))
        return future

    def stop(self) -> None:
        """End the thread once the work handed in so far is done; returns at once."""
        self._jobs.put(None)


def _serve(jobs: _Jobs) -> None:
    while job := jobs.get():
        job()
        del job


def _settle(future: "Future[T]", work: Callable[[], T]) -> None:
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 — whatever it is, it belongs to the one who waits
        future.set_exception(error)
    else:
        future.set_result(result)
