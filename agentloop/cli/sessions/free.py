"""Sessions that no run works on: which expired ones are so, and one kept so while it is deleted."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from agentloop.cli.sessions.work import Opened
from agentloop.errors import SessionBusyError
from agentloop.sessions import Leases
from agentloop.stores import SessionInfo
from agentloop.stores.base import TellsLeases


async def expired(opened: Opened, now: float) -> Sequence[SessionInfo]:
    """What a sweep at that time would take: what has expired and no run works on. Nothing is written.

    Of a store that does not tell who holds a session, it is all that has expired.
    """
    stored = await opened.store.list(owner=opened.settings.owner)
    due = [info for info in stored if info.expires is not None and info.expires <= now]
    if not isinstance(opened.store, TellsLeases):
        return due
    return [info for info in due if await opened.store.lease(info.id) is None]


@asynccontextmanager
async def kept_free(opened: Opened, session_id: str) -> AsyncIterator[None]:
    """No run works on the session within the block.

    Raises:
        SessionBusyError: one does now.
    """
    try:
        async with Leases().held(session_id, opened.store):
            yield
    except SessionBusyError as error:
        who = str(error).partition("; ")[0]  # what follows is advice for runs
        raise SessionBusyError(f"{who}: wait for its end, or delete it all the same with --force") from error
