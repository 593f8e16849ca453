"""Work that must not stop the event loop.

`asyncio.to_thread` keeps a pool that is joined when the interpreter exits, so one stuck function hangs
the program. Here each call has a daemon thread of its own, or its turn on one, and who stops waiting leaves
it behind.
"""

import asyncio
import concurrent.futures
import contextvars
import functools
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function in a daemon thread of its own, with this task's context variables.

    Cancelling abandons the thread: it goes on, what it returns or raises is dropped, and neither the loop's
    end nor the interpreter's waits for it.
    """
    call = functools.partial(function, *args, **kwargs)
    return await _elsewhere(
        lambda work: threading.Thread(target=work, daemon=True, name="agentloop-call").start(), call
    )


async def in_turn(thread: "WorkThread", function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function in that thread once it is through with what it was handed before; else as `in_thread`.

    Cancelling does not take the call back.
    """
    return await _elsewhere(thread.put, functools.partial(function, *args, **kwargs))


class WorkThread:
    """Runs what it is handed, one after the other, on a daemon thread of its own.

    Work that was handed in is done, whether or not somebody still waits for it. A daemon, so the end of
    the interpreter never waits for it.
    """

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=_serve, args=(self._jobs,), name=name, daemon=True).start()

    def put(self, work: Callable[[], None]) -> None:
        """Queue work that raises nothing."""
        self._jobs.put(work)

    def hand_in(self, work: Callable[[], R]) -> "concurrent.futures.Future[R]":
        """Queue the work and return its future, which cannot be cancelled any more."""
        future: concurrent.futures.Future[R] = concurrent.futures.Future()
        future.set_running_or_notify_cancel()
        self.put(lambda: _settle(future, work))
        return future

    def begin(self, work: Callable[[], R]) -> "asyncio.Future[Callable[[], R]]":
        """Queue the work; the running loop's future gets a call that returns or raises what the work did."""
        return _begun(self.put, work)

    def stop(self) -> None:
        """End the thread once the work handed in so far is done; returns at once."""
        self._jobs.put(None)


async def _elsewhere(start: Callable[[Callable[[], None]], object], call: Callable[[], T]) -> T:
    """What the call gives, once what `start` was handed has run in a thread."""
    return (await _begun(start, call))()


def _begun(
    start: Callable[[Callable[[], None]], object], call: Callable[[], T]
) -> "asyncio.Future[Callable[[], T]]":
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Callable[[], T]] = loop.create_future()
    start(functools.partial(_do, loop, future, contextvars.copy_context(), call))
    return future


def _do(
    loop: asyncio.AbstractEventLoop,
    future: "asyncio.Future[Callable[[], T]]",
    context: contextvars.Context,
    call: Callable[[], T],
) -> None:
    """Call it in this thread, and deliver what it gave on the loop."""
    try:
        outcome = _returned(context.run(call))
    except BaseException as error:  # noqa: BLE001 — whatever it is belongs to the caller, not to the thread
        outcome = _raised(error)
    try:
        loop.call_soon_threadsafe(_deliver, future, outcome)
    except RuntimeError:  # the loop is closed: nobody waits any more
        return


def _deliver(future: "asyncio.Future[Callable[[], T]]", outcome: Callable[[], T]) -> None:
    if not future.done():
        future.set_result(outcome)


def _serve(jobs: "SimpleQueue[Callable[[], None] | None]") -> None:
    while job := jobs.get():
        job()
        del job


def _settle(future: "concurrent.futures.Future[R]", work: Callable[[], R]) -> None:
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 — whatever it is, it belongs to the one who waits
        future.set_exception(error)
    else:
        future.set_result(result)


def _returned(value: T) -> Callable[[], T]:
    return lambda: value


def _raised(error: BaseException) -> Callable[[], Any]:
    def again() -> Any:
        raise error

    return again
