"""A way to run coroutines from threads without a loop: an event loop in the background.

No thread crosses a fork: a child begins a loop of its own when it first uses a portal, and never touches the
one it inherited, whose file descriptors it shares with its parent.

What is dropped may be collected wherever Python allocates, also on the loop's own thread, in the midst of a
call of the same portal, or under a lock that the loop waits for: closing it there waits for nothing.
"""

import asyncio
import gc
import os
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator
from contextlib import nullcontext
from typing import Any, Generic, TypeVar

from agentloop._plumbing.aio import CANCEL_GRACE_SECONDS
from agentloop.errors import AgentLoopError, UsageError

T = TypeVar("T")


class Portal:
    """An event loop in a daemon thread, and a way to run coroutines on it and wait for them."""

    def __init__(self) -> None:
        self.closed = False
        self._lock = threading.RLock()
        self._begun: _Begun | None = None
        _ALL.add(self)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What the coroutine returns; interrupting the waiting thread cancels it and waits for its end.

        Raises:
            UsageError: the portal is closed, or this is its own thread, which would wait for itself.
            AgentLoopError: the portal was closed meanwhile.
        """
        return self._hand_in(work).wait()

    def each(self, events: AsyncGenerator[T, None]) -> Iterator[T]:
        """What the generator yields, None being its end; leaving the iteration closes it and waits for that.

        Where the iteration is left on the portal's own thread, or collected as garbage, it is closed but not
        waited for. In a child of a fork it does nothing: the generator is the parent's.

        Raises:
            UsageError: as for `run`, or the process was forked since the first of them.
            AgentLoopError: the portal was closed meanwhile.
        """
        self._refuse_own_thread()
        if _note_collector not in gc.callbacks:
            gc.callbacks.append(_note_collector)
        with self._lock:
            begun = self._ready()
            begun.open.add(events)
        try:
            while (event := self._hand_in(_next(events), begun).wait()) is not None:
                yield event
        finally:
            self._leave(events, begun)

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
        self._lock = threading.RLock()
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

    def _hand_in(self, work: Coroutine[Any, Any, T], begun: "_Begun | None" = None) -> "_Outcome[T]":
        try:
            self._refuse_own_thread()
            with self._lock:
                return self._ready(begun).hand_in(work)
        except UsageError:
            work.close()
            raise

    def _ready(self, begun: "_Begun | None" = None) -> "_Begun":
        """What work is handed to in this process; it must be `begun` where that is given."""
        if self.closed:
            raise UsageError("this SyncRunner is closed: make a new one")
        if begun not in (None, self._begun):
            raise UsageError("this stream was begun before the process forked: go on with it in the parent")
        self._begun = self._begun or _Begun()
        return self._begun

    def _leave(self, events: AsyncGenerator[Any, None], begun: "_Begun") -> None:
        if begun is not self._begun:
            return
        is_own_thread = self._is_own_thread()
        with nullcontext() if is_own_thread else self._lock:
            if self.closed:  # which winds up all
                return
            outcome = begun.hand_in(begun.leave(events))
        if not is_own_thread and threading.get_ident() != _collector:
            outcome.wait()


class _Begun:
    """The loop, the thread that serves it, and what runs there.

    `open` are the generators under way: kept, so that none is collected together with who reads it, and then
    closed twice, by the loop and by the reader.
    """

    def __init__(self) -> None:
        self.open: set[AsyncGenerator[Any, None]] = set()
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

    async def leave(self, events: AsyncGenerator[Any, None]) -> None:
        """Close a generator under way."""
        try:
            await events.aclose()
        finally:
            self.open.discard(events)

    def end(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            asyncio.run_coroutine_threadsafe(self._wind_up(last), self._loop).result()
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

    async def _wind_up(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await _cancel_all(self._running)
        await self._loop.shutdown_asyncgens()
        self.open.clear()
        try:
            await last()
        finally:
            await _cancel_all(asyncio.all_tasks() - {asyncio.current_task()}, seconds=CANCEL_GRACE_SECONDS)


class _Outcome(Generic[T]):
    """What came of one task, for the one thread that waits for it.

    It waits on a bare lock: a future holds one of its own while Python code runs, in which a collection may
    wait for the very loop that needs it to say that the task has ended.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.task: asyncio.Task[T] | None = None
        self._loop = loop
        self._unsettled = threading.Lock()
        self._unsettled.acquire()
        self._is_settled = False

    def wait(self) -> T:
        try:
            self._unsettled.acquire()
        except BaseException:  # it was the waiting that was interrupted
            if not self._is_settled:
                self._loop.call_soon_threadsafe(self._cancel)
                self._unsettled.acquire()
            raise
        return self._result()

    def settle(self, task: asyncio.Task[T]) -> None:
        if not task.cancelled():
            task.exception()  # else asyncio reports one that nobody waits for any longer
        self._is_settled = True
        self._unsettled.release()

    def _result(self) -> T:
        assert self.task
        if self.task.cancelled():
            raise AgentLoopError("cancelled, as by closing its SyncRunner: resume it")
        return self.task.result()

    def _cancel(self) -> None:
        if self.task:
            self.task.cancel()


async def _next(events: AsyncGenerator[T, None]) -> T | None:
    return await anext(events, None)


async def _cancel_all(tasks: Iterable[asyncio.Task[Any] | None], *, seconds: float | None = None) -> None:
    """Cancel the tasks and wait for their end."""
    unwanted = {task for task in tasks if task}
    for task in unwanted:
        task.cancel()
    if unwanted:
        await asyncio.wait(unwanted, timeout=seconds)


_collector = 0
"""The thread that collects garbage now, whatever locks it holds; 0 for none."""


def _note_collector(phase: str, _: object) -> None:
    global _collector
    _collector = threading.get_ident() if phase == "start" else 0


_ALL: "weakref.WeakSet[Portal]" = weakref.WeakSet()
_INHERITED: list[_Begun] = []
"""Kept for good: a loop that is collected lets go of descriptors that its parent still waits on."""


def _forget() -> None:
    for portal in _ALL:
        portal.forget()


if hasattr(os, "register_at_fork"):  # where there are forks
    os.register_at_fork(after_in_child=_forget)
