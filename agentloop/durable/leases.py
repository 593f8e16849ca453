"""How the executions of a run hold its session: by leases that say which run they are of.

Such a lease stands at a place that no process is at. So to others it does not end with its process, but by
its time alone: another execution of the run is to find the session as the last one left it.
"""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace

from agentloop._plumbing.aio import to_its_end
from agentloop.durable.orders import QueuedRun
from agentloop.errors import SessionBusyError
from agentloop.sessions import LEASE_SECONDS, Claim, Leases, is_dead, new_lease, working_for
from agentloop.stores.base import GrantsLeases, Lease, SessionStore

_PLACE = "durable"
"""What stands in a place behind the host's name where a run has it, not a process."""


class ElsewhereError(asyncio.CancelledError):
    """Another worker goes on with the run: this one has nothing more to say of it."""


def leases_of(run_id: str) -> Leases:
    """How an execution of the run comes by its session: it puts those before it out, and waits for others."""

    def new() -> Lease:
        return _outlasting(replace(new_lease(), holder=f"{run_id}.{uuid.uuid4().hex}"))

    def is_over(lease: Lease) -> bool:
        return is_of_run(lease, run_id) or is_dead(lease)

    return Leases(when_busy="wait", seconds=LEASE_SECONDS, new=new, is_over=is_over)


def is_of_run(lease: Lease, run_id: str) -> bool:
    """Whether an execution of the run has that lease."""
    return lease.holder.startswith(f"{run_id}.")


@contextlib.asynccontextmanager
async def exclude_workers(store: SessionStore, run: QueuedRun) -> AsyncIterator[None]:
    """No worker has the run within the block: a deleted run is no longer told that it was cancelled.

    Raises:
        SessionBusyError: one has it.
    """
    if not isinstance(store, GrantsLeases):
        yield
        return
    claim = Claim(session_id=run.session_id, store=store, lease=new_lease())
    with working_for(claim.lease):
        try:
            over = None
            while (held := await claim.taken(over)) is not None and is_of_run(held, run.id):
                if not is_dead(_of_its_process(held)):
                    text = f"run {run.id!r} is {run.state}, its worker still stops it: try again"
                    raise SessionBusyError(text)
                over = held.holder
            yield
        finally:
            await to_its_end(claim.free())


def _outlasting(lease: Lease) -> Lease:
    """The lease at a place of no process; the host's name, which people are told, stays."""
    host, _, rest = lease.place.partition(" ")
    return replace(lease, place=f"{host} {_PLACE} {rest}")


def _of_its_process(lease: Lease) -> Lease:
    """The lease at the place of the process that has it."""
    return replace(lease, place=lease.place.replace(f" {_PLACE} ", " ", 1))
