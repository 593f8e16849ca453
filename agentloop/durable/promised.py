"""Whose a session will be that nobody has begun yet: that of the owner whose run is first in the queue."""

from agentloop.durable.orders import WORKFLOW
from agentloop.durable.queue_client import QueueClient
from agentloop.durable.seen import OPEN
from agentloop.errors import UsageError
from agentloop.sessions import check_free
from agentloop.stores.base import SessionStore


async def check_free_for(owner: str, session_id: str, store: SessionStore, client: QueueClient) -> None:
    """Refuse a session that is somebody else's, or will be once its first run begins.

    Raises:
        UsageError: it is, or the id is not allowed.
        StoreError: the database could not be reached.
    """
    await check_free(session_id, store, owner)
    first = await client.asked(
        lambda dbos: dbos.list_workflows(
            name=WORKFLOW, attributes={"session": session_id}, status=list(OPEN), limit=1, load_input=False
        )
    )
    is_theirs = any((run.attributes or {}).get("owner") != owner for run in first)
    if is_theirs and await store.info(session_id) is None:
        raise UsageError(f"session id {session_id!r} is taken by a run in the queue: choose another")
