"""Who holds a session: a lease names its process, and the work within it."""

import asyncio
import contextlib
import uuid
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from time import time
from typing import Any

from agentloop._plumbing.aio import CANCEL_GRACE_SECONDS
from agentloop._plumbing.processes import Process, this_process
from agentloop.errors import SessionBusyError
from agentloop.stores.base import Lease

_MINE: ContextVar[frozenset[str]] = ContextVar("agentloop_leases", default=frozenset())
"""The leases of the runs that this code is a part of."""

TURNS = 10
"""So many turns of the event loop it takes, at most, until a stream that its reader has left is being closed:
two, and two more for each generator around it. Our own figure."""

ENDING_SECONDS = 2 * CANCEL_GRACE_SECONDS
"""How long a run that was cancelled may take to let go: its tools alone may take half of it."""


@dataclass(frozen=True, slots=True)
class _Work:
    """What a holder of this process does: in which task, and `over` once it has let go.

    `cancelled` counts how often the task had been cancelled when the work began.
    """

    loop: asyncio.AbstractEventLoop
    task: asyncio.Task[Any] | None
    cancelled: int
    over: asyncio.Event

    @classmethod
    def of_this_task(cls) -> "_Work":
        task = asyncio.current_task()
        return cls(asyncio.get_running_loop(), task, task.cancelling() if task else 0, asyncio.Event())

    @property
    def is_ending(self) -> bool:
        """Whether it was cancelled and puts things in order, or has let go."""
        is_cancelled = bool(self.task and not self.task.done() and self.task.cancelling() > self.cancelled)
        return is_cancelled or self.over.is_set()


_WORK: dict[str, _Work] = {}
"""What the holders of this process's leases do."""


def new_lease() -> Lease:
    """A lease for what this process begins now."""
    process = this_process()
    return Lease(
        holder=uuid.uuid4().hex,
        place=process.place,
        pid=process.pid,
        started=process.started,
        since=time(),
    )


@contextlib.contextmanager
def working_for(lease: Lease) -> Iterator[None]:
    """What is done in the block is known as the work of that lease's holder, on this event loop."""
    work = _WORK[lease.holder] = _Work.of_this_task()
    try:
        with part_of(lease):
            yield
    finally:
        del _WORK[lease.holder]
        work.over.set()


@contextlib.contextmanager
def part_of(lease: Lease) -> Iterator[None]:
    """What is done in the block is a part of that lease's work, in whatever task."""
    token = _MINE.set(_MINE.get() | {lease.holder})
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # it is thrown away, in whatever context that happens
            _MINE.reset(token)


def is_of_this_work(lease: Lease) -> bool:
    """Whether the code that asks is a part of its holder's work."""
    return lease.holder in _MINE.get()


def is_dead(lease: Lease) -> bool:
    """Whether it is known that its holder works no more: the process, or the event loop, is gone."""
    process = _process_of(lease)
    if process != this_process():
        return process.is_gone()
    work = _WORK.get(lease.holder)
    return work is None or work.loop.is_closed()


async def lets_go(lease: Lease) -> bool:
    """Whether its holder, which is being cancelled on this event loop, has let go; waits for that.

    A stream that its reader has left is one: the loop closes it in its next turns. One that is at work still
    after these, or that runs elsewhere, is not waited for.
    """
    work = _WORK.get(lease.holder)
    if work is None or work.loop is not asyncio.get_running_loop():
        return False
    for _ in range(TURNS):
        if work.is_ending:
            break
        await asyncio.sleep(0)
    if work.is_ending:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(work.over.wait(), ENDING_SECONDS)
    return work.over.is_set()


def told(lease: Lease) -> str:
    """Who holds it, in words."""
    since = datetime.fromtimestamp(lease.since, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f"process {lease.pid} on {_process_of(lease).host} works on it since {since}"


def busy(session_id: str, lease: Lease) -> SessionBusyError:
    """The refusal of a session that somebody else holds."""
    return SessionBusyError(
        f"session {session_id!r} is busy: {told(lease)}; try later, or let it wait or take over "
        "(when_busy=, --when-busy)"
    )


def busy_with_itself(session_id: str) -> SessionBusyError:
    """The refusal of a session to a part of the run that holds it."""
    return SessionBusyError(
        f"session {session_id!r} is held by the very run that asks for it: give the other another session"
    )


def _process_of(lease: Lease) -> Process:
    return Process(place=lease.place, pid=lease.pid, started=lease.started)
