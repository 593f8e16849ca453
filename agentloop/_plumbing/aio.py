"""Work that must not last for ever, must not be torn in two, or must not stop the event loop.

Cancelled work is awaited, so that it can put things in order, but only for so long.

`asyncio.to_thread` keeps a pool that is joined when the interpreter exits, so one stuck function hangs
the program. Here each call has a daemon thread of its own, or its turn on one, and who stops waiting leaves
it behind.
"""

import asyncio
import contextvars
import functools
import inspect
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

from agentloop._plumbing.callables import is_async

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

CANCEL_GRACE_SECONDS = 5.0
"""How long cancelled work may take to end before it is left behind: enough to close connections and files
in good order, and as long as a person waits who has pressed Ctrl-C. Our own figure."""

ENDING_SECONDS = 2 * CANCEL_GRACE_SECONDS
"""How long a run that was cancelled may take to let go: its tools alone may take half of it."""


class DeadlineError(Exception):
    """The work took longer than it may."""


class SelfCancelledError(Exception):
    """The work ended as cancelled though nobody here cancelled it."""


async def within(
    work: Coroutine[Any, Any, T], *, seconds: float, grace_seconds: float = CANCEL_GRACE_SECONDS
) -> T:
    """The result of `work`, if it comes within `seconds` (`inf` waits for ever).

    When time is up or the caller is cancelled, the work is cancelled and awaited, however often the caller
    is cancelled meanwhile; work that will not end is left behind after `grace_seconds`.

    Raises:
        DeadlineError: time was up.
        SelfCancelledError: the work was cancelled by itself or by something it waited for, or raised
            `GeneratorExit`, which in who waits for it would look like being closed.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=None if seconds == float("inf") else seconds)
    except asyncio.CancelledError:
        await _stop(task, grace_seconds)
        raise
    if not task.done():
        await _stop(task, grace_seconds)
        raise DeadlineError(f"timed out after {seconds:g} s")
    if task.cancelled():
        raise SelfCancelledError("cancelled by itself")
    if isinstance(error := task.exception(), GeneratorExit):
        raise SelfCancelledError("ended by GeneratorExit") from error
    return task.result()


async def to_its_end(work: Coroutine[Any, Any, T], *, grace_seconds: float = CANCEL_GRACE_SECONDS) -> T:
    """Run the work to its end even when cancelled meanwhile; the cancellation goes on after it.

    What the work raises after a cancellation is dropped. A second cancellation gives it `grace_seconds`
    more, however many others follow, then leaves it to itself.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(_drop)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            await _wait_for_end(task, grace_seconds)
        raise


async def call_sync_or_async(
    function: Callable[..., Any], *arguments: Any, call: Callable[..., Awaitable[Any]] | None = None
) -> Any:
    """What a user's function says; a plain one is asked by `call`, where None in a thread of its own.

    Raises:
        RuntimeError: it raised what would end the program, or its own task.
        Exception: what else it raised.
    """
    call = call or in_thread
    try:
        said = function(*arguments) if is_async(function) else await call(function, *arguments)
        return await said if inspect.isawaitable(said) else said
    except (Exception, GeneratorExit):
        raise
    except BaseException as error:
        if is_ctrl_c(error) or (isinstance(error, asyncio.CancelledError) and not is_leaked(error)):
            raise
        raise RuntimeError(f"{type(error).__name__} {error}".strip()) from error


def is_leaked(error: BaseException) -> bool:
    """Whether it is a cancellation that nobody asked for: what was awaited raised it by itself."""
    is_ours = isinstance(error, asyncio.CancelledError) and asyncio.current_task() is not None
    return is_ours and not is_cancelled()


def is_cancelled() -> bool:
    """Whether this task was cancelled: what fails at that moment may raise its own fault in place of it."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _stop(task: asyncio.Task[Any], grace_seconds: float) -> None:
    task.add_done_callback(_drop)
    task.cancel()
    if cancelled := await _wait_for_end(task, grace_seconds):
        raise cancelled


async def _wait_for_end(task: asyncio.Task[Any], seconds: float) -> asyncio.CancelledError | None:
    """Wait for the task's end, whatever cancels the waiting; that cancellation."""
    loop, cancelled = asyncio.get_running_loop(), None
    end = loop.time() + seconds
    while not task.done() and (left := end - loop.time()) > 0:
        try:
            await asyncio.wait({task}, timeout=left)
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled


def _drop(task: asyncio.Task[Any]) -> None:
    """Look at what an unwanted task raised, so that asyncio does not complain that nobody did."""
    if not task.cancelled():
        task.exception()


def is_ctrl_c(error: BaseException) -> bool:
    """Whether it is taken for the user's: only the main thread is given the KeyboardInterrupt of a signal."""
    return isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


def in_own_loop(work: Coroutine[Any, Any, T]) -> T:
    """What the work gives, also where an event loop runs already: it has one of its own, in a thread."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(asyncio.run, work).result()


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


_MOST_LOOKS, _LOOK_SECONDS = 200, 0.0005


class WorkThread:
    """Runs what it is handed, one after the other, on a daemon thread of its own.

    Work that was handed in is done, whether or not somebody still waits for it. A daemon, so the end of
    the interpreter never waits for it.
    """

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=_serve, args=(self._jobs,), name=name, daemon=True)
        self._thread.start()

    def put(self, work: Callable[[], None]) -> None:
        """Queue work that raises nothing."""
        self._jobs.put(work)

    def begin(self, work: Callable[[], R]) -> "asyncio.Future[Callable[[], R]]":
        """Queue the work; the running loop's future gets a call that returns or raises what the work did."""
        return _begin(self.put, work)

    def stop(self) -> None:
        """End the thread once the work handed in so far is done; returns at once."""
        self._jobs.put(None)

    def join(self) -> None:
        """Wait until the thread, which was told to stop, has ended, for the system too.

        Up to Python 3.12 a thread is joined a moment before it is gone from the process, and a fork in that
        moment is warned of.
        """
        self._thread.join()
        place = Path(f"/proc/self/task/{self._thread.native_id}")
        for _ in range(_MOST_LOOKS):
            if not place.exists():
                return
            time.sleep(_LOOK_SECONDS)


async def _elsewhere(start: Callable[[Callable[[], None]], object], call: Callable[[], T]) -> T:
    """What the call gives, once what `start` was handed has run in a thread."""
    return (await _begin(start, call))()


def _begin(
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


def _returned(value: T) -> Callable[[], T]:
    return lambda: value


def _raised(error: BaseException) -> Callable[[], Any]:
    def again() -> Any:
        raise error

    return again
