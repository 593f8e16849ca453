"""A way to run coroutines from threads without a loop: an event loop in the background.

No thread crosses a fork: a child begins a loop of its own when it first uses a portal, and never touches the
one it inherited, whose file descriptors it shares with its parent.
"""

import asyncio
import concurrent.futures
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Generic, TypeVar

from agentloop.deadlines import CANCEL_GRACE_SECONDS
from agentloop.errors import AgentLoopError, UsageError

T = TypeVar("T")


class Portal:
    """An event loop in a daemon thread, and a way to run coroutines on it and wait for them."""

    def __init__(self) -> None:
        self.closed = False
        self._lock = threading.Lock()
        self._begun: _Begun | None = None
        _ALL.add(self)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What the coroutine returns; interrupting the waiting thread cancels it and waits for its end.

        Raises:
            UsageError: the portal is closed, or this is its own thread, which would wait for itself.
            AgentLoopError: the portal was closed meanwhile.
        """
        try:
            self._refuse_own_thread()
            outcome = self._handed_in(work)
        except UsageError:
            work.close()
            raise
        return outcome.waited_for()

    def leave(self, work: Coroutine[Any, Any, None]) -> None:
        """The same for what winds up; on the portal's own thread, as in a garbage collection, not waited for.

        Does nothing once the portal is closed, which wound up all, nor where nothing began in this process.
        """
        with self._lock:
            if self.closed or not self._begun:
                work.close()
                return
            outcome = self._begun.hand_in(work)
        if not self._is_own_thread():
            outcome.waited_for()

    def close(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Cancel what runs, wait for its end, run `last` and stop; harmless when called again.

        Raises:
            UsageError: this is the portal's own thread.
        """
        self._refuse_own_thread()
        with self._lock:
            if self.closed:
                return
            self.closed = True
            begun = self._begun or _Begun()
        begun.end(last)

    def forget(self) -> None:
        """In a child of a fork: what runs, and who holds the lock, is the parent's."""
        self._lock = threading.Lock()
        if self._begun:
            _INHERITED.append(self._begun)
            self._begun = None

    def _is_own_thread(self) -> bool:
        return bool(self._begun and self._begun.thread is threading.current_thread())

    def _refuse_own_thread(self) -> None:
        if self._is_own_thread():
            raise UsageError(
                "a SyncRunner was called on its own event loop and would wait for itself for ever: "
                "call it from a plain tool or another thread, or use Runner there"
            )

    def _handed_in(self, work: Coroutine[Any, Any, T]) -> "_Outcome[T]":
        with self._lock:
            if self.closed:
                raise UsageError("this SyncRunner is closed: make a new one")
            self._begun = self._begun or _Begun()
            return self._begun.hand_in(work)


class _Begun:
    """The loop, the thread that serves it, and what runs there."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._running: set[asyncio.Task[Any]] = set()
        self.thread = threading.Thread(target=self._serve, daemon=True, name="agentloop-portal")
        self.thread.start()

    def hand_in(self, work: Coroutine[Any, Any, T]) -> "_Outcome[T]":
        outcome = _Outcome[T](self._loop)

        def start() -> None:
            task = self._loop.create_task(work)
            self._running.add(task)
            outcome.task = task
            task.add_done_callback(outcome.settle)
            task.add_done_callback(self._running.discard)

        self._loop.call_soon_threadsafe(start)
        return outcome

    def end(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            asyncio.run_coroutine_threadsafe(self._wound_up(last), self._loop).result()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self.thread.join()
            self._loop.close()

    def _serve(self) -> None:
        while True:
            try:
                return self._loop.run_forever()
            except (KeyboardInterrupt, SystemExit):  # its task holds it too, for who waits for that task
                continue

    async def _wound_up(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await _cancelled(self._running)
        await self._loop.shutdown_asyncgens()
        try:
            await last()
        finally:
            await _cancelled(asyncio.all_tasks() - {asyncio.current_task()}, seconds=CANCEL_GRACE_SECONDS)


class _Outcome(Generic[T]):
    """What came of one task, for the thread that waits for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.task: asyncio.Task[T] | None = None
        self._loop = loop
        self._future: concurrent.futures.Future[T] = concurrent.futures.Future()

    def waited_for(self) -> T:
        try:
            return self._future.result()
        except BaseException:
            if not self._future.done():  # it was the waiting that was interrupted
                self._loop.call_soon_threadsafe(self._cancel)
                concurrent.futures.wait([self._future])
            raise

    def settle(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self._future.set_exception(AgentLoopError("cancelled, as by closing its SyncRunner: resume it"))
        elif error := task.exception():
            self._future.set_exception(error)
        else:
            self._future.set_result(task.result())

    def _cancel(self) -> None:
        if self.task:
            self.task.cancel()


async def _cancelled(tasks: Iterable[asyncio.Task[Any] | None], *, seconds: float | None = None) -> None:
    """Cancel the tasks and wait for their end."""
    unwanted = {task for task in tasks if task}
    for task in unwanted:
        task.cancel()
    if unwanted:
        await asyncio.wait(unwanted, timeout=seconds)


_ALL: "weakref.WeakSet[Portal]" = weakref.WeakSet()
_INHERITED: list[_Begun] = []
"""Kept for good: a loop that is collected lets go of descriptors that its parent still waits on."""


def _forget() -> None:
    for portal in _ALL:
        portal.forget()


if hasattr(os, "register_at_fork"):  # where there are forks
    os.register_at_fork(after_in_child=_forget)
