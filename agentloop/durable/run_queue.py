"""The queue from outside: put runs in, see how they stand, wait for them, cancel them."""

import asyncio
import json
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Self, TypeVar

from dbos import DBOS, DBOSClient, DBOSPortableJSONSerializer, EnqueueOptions, WorkflowStatus
from sqlalchemy.exc import DBAPIError

from agentloop.durable import engine
from agentloop.durable.answers import answer_in
from agentloop.durable.orders import QUEUE, Order, QueuedRun, RunState, checked_queue, checked_url
from agentloop.errors import StoreError, UsageError
from agentloop.messages import Message, Usage
from agentloop.openings import spoken
from agentloop.owners import check_free
from agentloop.redaction import Redact, checked_redaction, redacted
from agentloop.sessions import new_session_id
from agentloop.stores import open_store
from agentloop.stores.base import checked_owner, checked_session_id

T = TypeVar("T")

_STATES: dict[str, RunState] = {
    "ENQUEUED": "queued",
    "DELAYED": "queued",
    "PENDING": "running",
    "CANCELLED": "cancelled",
}
_CAN_GO_ON = ("CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED")
_POLL_SECONDS = 0.5


class RunQueue:
    """The durable runs of the PostgreSQL database at that URL; needs no agent and no worker.

    With an `owner` it sees that owner's runs alone, and new sessions are theirs. Prompts are redacted before
    they are put in the queue.

    Raises:
        UsageError: the store is no PostgreSQL database, or the owner is none.
    """

    def __init__(self, store: str, *, owner: str | None = None, redact: Redact | None = None) -> None:
        self._url = checked_url(store)
        self._owner = checked_owner(owner)
        self._redact = None if redact is None else checked_redaction(redact)
        self._store = open_store(self._url)
        self._client: DBOSClient | None = None
        self._opening = threading.Lock()

    async def submit(
        self,
        prompt: str | Message,
        *,
        session_id: str | None = None,
        queue: str = QUEUE,
    ) -> str:
        """Put a run in the queue; its id. A session that is not named is a new one.

        Runs of one session in one queue are done one after the other, in the order submitted.

        Raises:
            UsageError: the prompt is empty, a name is not allowed, or the session is somebody else's.
            StoreError: the database could not be reached.
        """
        message = redacted(spoken(prompt), self._redact)
        session = new_session_id() if session_id is None else checked_session_id(session_id)
        await check_free(session, self._store, self._owner)
        order = Order(session_id=session, prompt=message, owner=self._owner)
        run_id = uuid.uuid4().hex
        options: EnqueueOptions = {
            "workflow_name": engine.WORKFLOW,
            "queue_name": checked_queue(queue),
            "workflow_id": run_id,
            "queue_partition_key": session,
            "attributes": {"session": session, "queue": queue, "owner": self._owner},
        }
        text = json.dumps({**order.to_json(), "submitted": time.time()})
        await self._asked(lambda client: client.enqueue(options, text))
        return run_id

    async def runs(
        self, *, session_id: str | None = None, most: int | None = 50, only_open: bool = False
    ) -> Sequence[QueuedRun]:
        """The runs, newest first, of one session where it is given."""
        found = await self._listed(
            sort_desc=True,
            limit=most,
            session_id=session_id,
            status=["ENQUEUED", "DELAYED", "PENDING"] if only_open else None,
        )
        return [_seen(each) for each in found]

    async def run(self, run_id: str) -> QueuedRun:
        """One run, with what it is doing.

        Raises:
            UsageError: there is none of that id.
        """
        seen = await self._one(run_id)
        steps = await self._asked(lambda client: client.list_workflow_steps(run_id))
        return replace(seen, doing=steps[-1]["function_name"] if steps else None)

    async def answer(self, run_id: str) -> str:
        """What the model answered in that run; empty where it has not, or said nothing.

        Raises:
            UsageError: there is no run of that id.
        """
        seen = await self._one(run_id)
        return redacted(await answer_in(self._store, seen.session_id, run_id), self._redact)

    async def wait(self, run_id: str, *, poll_seconds: float = _POLL_SECONDS) -> QueuedRun:
        """The run once it is over.

        Raises:
            UsageError: there is none of that id.
        """
        while True:
            seen = await self._one(run_id)
            if seen.is_over:
                return seen
            await asyncio.sleep(poll_seconds)

    async def cancel(self, run_id: str) -> QueuedRun:
        """Take the run out of the queue, or have its worker stop it within seconds; one that is over stays.

        Raises:
            UsageError: there is none of that id.
        """
        await self._one(run_id)
        await self._asked(lambda client: client.cancel_workflow(run_id))
        return await self._one(run_id)

    async def resume(self, run_id: str) -> QueuedRun:
        """Put a run that was cancelled or given up back in its queue; it goes on where it was.

        Raises:
            UsageError: there is none of that id, or it ended by itself.
        """
        status = await self._status(run_id)
        if status.status not in _CAN_GO_ON:
            state = _seen(status).state
            raise UsageError(f"run {run_id!r} is {state}: what was cancelled or given up can be resumed")
        queue = _seen(status).queue
        await self._asked(lambda client: client.resume_workflow(run_id, queue_name=queue))
        return await self._one(run_id)

    async def delete(self, run_id: str) -> None:
        """Forget a run that is over, its prompt too; what was said stays in the session's log.

        Raises:
            UsageError: there is none of that id, or it is not over.
        """
        seen = await self._one(run_id)
        if not seen.is_over:
            raise UsageError(f"run {run_id!r} is {seen.state}: cancel it first")
        await self._asked(lambda client: client.delete_workflow(run_id))

    async def close(self) -> None:
        """Let go of the database; harmless when called again."""
        client, self._client = self._client, None
        if client is not None:
            await asyncio.to_thread(client.destroy)
        await self._store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _one(self, run_id: str) -> QueuedRun:
        return _seen(await self._status(run_id))

    async def _status(self, run_id: str) -> WorkflowStatus:
        found = await self._listed(workflow_ids=[run_id])
        if not found:
            raise UsageError(f"there is no run {run_id!r}: `agentloop runs` lists them")
        return found[0]

    async def _listed(self, *, session_id: str | None = None, **only: Any) -> list[WorkflowStatus]:
        wanted = {"session": session_id, "owner": self._owner}
        attributes = {name: value for name, value in wanted.items() if value is not None}
        return await self._asked(
            lambda client: client.list_workflows(
                name=engine.WORKFLOW, load_input=False, attributes=attributes or None, **only
            )
        )

    async def _asked(self, question: Callable[[DBOSClient], T]) -> T:
        """What the database says to that.

        Raises:
            StoreError: it could not be reached.
        """
        try:
            return await asyncio.to_thread(lambda: question(self._opened()))
        except Exception as error:  # DBOS has no tree of errors for a database that it cannot use
            behind = error.orig if isinstance(error, DBAPIError) and error.orig else error
            raise StoreError(f"the queue cannot be used: {_first_line(behind)}") from error

    def _opened(self) -> DBOSClient:
        with self._opening:
            if self._client is None:
                self._client = _client(self._url)
            return self._client


def _client(url: str) -> DBOSClient:
    """DBOS's own client; its tables are made where they are not there, since no worker may have started."""
    engine.quiet()
    client = DBOSClient(
        system_database_url=url,
        serializer=DBOSPortableJSONSerializer(),
        application_name=engine.APPLICATION,
        system_database_pool_size=1,
        retry_connection_errors=False,
    )
    DBOS.migrate(url)
    return client


def _seen(status: WorkflowStatus) -> QueuedRun:
    attributes = status.attributes or {}
    outcome = status.output if isinstance(status.output, dict) else {}
    used = outcome.get("usage")
    return QueuedRun(
        id=status.workflow_id,
        session_id=attributes.get("session", ""),
        queue=status.queue_name or attributes.get("queue"),
        state=_STATES.get(status.status) or outcome.get("status", "failed"),
        tries=status.recovery_attempts or 0,
        submitted=(status.created_at or 0) / 1000,
        started=_seconds(status.dequeued_at),
        ended=_seconds(status.completed_at),
        worker=status.executor_id,
        usage=Usage(input_tokens=used["input"], output_tokens=used["output"]) if used else None,
        cost=outcome.get("cost"),
        error=outcome.get("error") or _error_of(status),
    )


def _error_of(status: WorkflowStatus) -> str | None:
    if status.status == "MAX_RECOVERY_ATTEMPTS_EXCEEDED":
        return f"given up: {status.recovery_attempts} workers began it and died or stopped"
    return _first_line(status.error) if status.error else None


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
