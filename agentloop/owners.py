"""Whose sessions are seen: who works for an owner sees those of that owner alone."""

from agentloop.errors import SessionNotFoundError, UsageError
from agentloop.stores.base import SessionStore, checked_session_id


async def check_seen(session_id: str, store: SessionStore, owner: str | None) -> None:
    """Refuse a session that is not this owner's, as if it were not there; None sees all.

    Raises:
        SessionNotFoundError: it is somebody else's, or nobody's.
        UsageError: the id is not allowed.
    """
    if await _is_hidden(session_id, store, owner):
        raise SessionNotFoundError(f"there is no session {session_id!r}")


async def check_free(session_id: str, store: SessionStore, owner: str | None) -> None:
    """Refuse to begin or go on with a session that is not this owner's; None may with all.

    Raises:
        UsageError: it is somebody else's, or nobody's, or the id is not allowed.
    """
    if await _is_hidden(session_id, store, owner):
        raise UsageError(f"session id {session_id!r} is taken: choose another")


async def _is_hidden(session_id: str, store: SessionStore, owner: str | None) -> bool:
    if owner is None:
        return False
    info = await store.info(checked_session_id(session_id))
    return info is not None and info.owner != owner
