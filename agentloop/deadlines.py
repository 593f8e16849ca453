"""Work that must not last for ever, and work that must not be torn in two.

Cancelled work is awaited, so that it can put things in order, but only for so long.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

CANCEL_GRACE_SECONDS = 5.0
"""How long cancelled work may take to end before it is left behind: enough to close connections and files
in good order, and as long as a person waits who has pressed Ctrl-C. Our own figure."""


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
        await _stopped(task, grace_seconds)
        raise
    if not task.done():
        await _stopped(task, grace_seconds)
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
            await _waited(task, grace_seconds)
        raise


def is_leaked(error: BaseException) -> bool:
    """Whether it is a cancellation that nobody asked for: what was awaited raised it by itself."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and not task.cancelling()


async def _stopped(task: asyncio.Task[Any], grace_seconds: float) -> None:
    task.add_done_callback(_drop)
    task.cancel()
    if cancelled := await _waited(task, grace_seconds):
        raise cancelled


async def _waited(task: asyncio.Task[Any], seconds: float) -> asyncio.CancelledError | None:
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
