"""What came of a run, as the log of its session says it."""

from agentloop.durable.backwards import answer_in, began_at, partial_in
from agentloop.durable.database import not_lost
from agentloop.durable.orders import QueuedRun
from agentloop.errors import StoreError
from agentloop.stores.base import SessionStore


class AnswerLostError(StoreError):
    """The run was answered, and the store has nothing of it."""


async def answer_of(run: QueuedRun, store: SessionStore) -> str:
    """What the model answered, at a limit what there is of that; empty where it has not.

    Raises:
        AnswerLostError: the store has nothing of the run, though it was answered.
        StoreError: the log cannot be read.
    """
    place = store, run.session_id, run.id
    with not_lost(run.id):
        text = await (partial_in if run.state == "limit" else answer_in)(*place)
        if text or run.state != "answered" or await began_at(*place, submitted=run.submitted):
            return text
    raise AnswerLostError(
        f"run {run.id} was answered, but this store has nothing of it in the session {run.session_id!r}: "
        "that was deleted or swept, or the run's worker has another store"
    )
