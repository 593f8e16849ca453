"""Who holds a session: a lease names its process, and the work within it."""

import asyncio
import contextlib
import uuid
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import UTC, datetime
from time import time

from agentloop.errors import SessionBusyError
from agentloop.processes import Process, this_process
from agentloop.stores.base import Lease

_MINE: ContextVar[frozenset[str]] = ContextVar("agentloop_leases", default=frozenset())
"""The leases of the runs that this code is a part of."""

_LOOPS: dict[str, asyncio.AbstractEventLoop] = {}
"""Where the holders of this process's leases run."""


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
    _LOOPS[lease.holder] = asyncio.get_running_loop()
    try:
        with part_of(lease):
            yield
    finally:
        del _LOOPS[lease.holder]


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
    loop = _LOOPS.get(lease.holder)
    return loop is None or loop.is_closed()


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
