"""RunQueue: durable runs put in a queue, looked at, cancelled and waited for."""

import asyncio
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any, Self

from dbos import EnqueueOptions, WorkflowStatus

from agentloop._plumbing.checks import MOST_COUNT, checked_name, shown, texts_or_none, whole_or_none
from agentloop.approvals import Answers, checked_answers
from agentloop.durable.engine import QueueClient, not_lost, retry_while_away, with_missing
from agentloop.durable.leases import exclude_workers
from agentloop.durable.orders import (
    CAN_GO_ON,
    OPEN,
    QUEUE,
    WORKFLOW,
    Order,
    QueuedRun,
    as_queued_run,
    checked_url,
    with_steps,
)
from agentloop.durable.run_log import answer_in, partial_in, records_of_run
from agentloop.errors import AgentLoopError, StoreError, UsageError
from agentloop.messages import Usage
from agentloop.redaction import Redact, Redaction, checked_redaction
from agentloop.results import RunResult
from agentloop.run import Prompt, as_user_message, check_known, waiting_in
from agentloop.sessions import Sessions, new_session_id, title_of
from agentloop.stores import open_store
from agentloop.stores.base import SessionStore, check_trunk, checked_owner, checked_session_id, checked_ttl


class AnswerLostError(StoreError):
    """The run was answered, and the store has nothing of it."""


async def answer_of(run: QueuedRun, store: SessionStore) -> str:
    """What the model answered, at a limit what there is of that; empty where it has not.

    Raises:
        AnswerLostError: the store has nothing of the run, though it was answered.
        StoreError: the log cannot be read.
    """
    with not_lost(run.id):
        records = await records_of_run(store, run.session_id, run.id, submitted=run.submitted)
    if records or run.state != "answered":
        return (partial_in if run.state == "limit" else answer_in)(records, run.id)
    raise AnswerLostError(
        f"run {run.id} was answered, but this store has nothing of it in the session {run.session_id!r}: "
        "that was deleted or swept, or the run's worker has another store"
    )


def _is_printable(value: object) -> bool:
    """Whether it can be looked for: a database takes neither NUL nor half a character."""
    return isinstance(value, str) and value.isprintable()


_POLL_SECONDS = 0.5


class RunQueue:
    """The durable runs of the PostgreSQL database at that URL; needs no agent and no worker.

    With an `owner` it sees that owner's runs alone, and new sessions are theirs. Who is parted from others by
    the first schema of the search_path has queues and runs of their own. Prompts are redacted before they are
    put in the queue.

    Raises:
        UsageError: the store is no PostgreSQL database, or the owner is none.
    """

    def __init__(self, store: str, *, owner: str | None = None, redact: Redact | None = None) -> None:
        self._url = checked_url(store)
        self._owner = checked_owner(owner)
        self._redaction = Redaction(None if redact is None else checked_redaction(redact))
        self._store = open_store(self._url)
        self._client = QueueClient(self._url)

    async def submit(
        self,
        prompt: Prompt,
        *,
        session_id: str | None = None,
        queue: str = QUEUE,
        ttl_seconds: float | None = None,
        carrier: Mapping[str, str] | None = None,
    ) -> str:
        """Put a run in the queue; its id. A session that is not named is a new one.

        Runs of one session in one queue are done one after the other, in the order submitted. A session that
        begins with this run may be swept `ttl_seconds` after its newest record, None for never. `carrier` are
        texts that go with the run to the callbacks `around` it, such as those of a trace that it belongs to.

        Raises:
            UsageError: the prompt is empty, a name is not allowed, the session is somebody else's, or begins
                with somebody else's run, `ttl_seconds` is no number above 0, or the carrier no dict of texts.
            StoreError: the database could not be reached.
        """
        message = self._redaction.hide(as_user_message(prompt))
        session = new_session_id() if session_id is None else check_trunk(session_id)
        if session_id is not None:
            await self._check_owner(session)
        order = Order(
            session_id=session,
            prompt=message,
            submitted=time.time(),
            owner=self._owner,
            ttl_seconds=checked_ttl(ttl_seconds),
            carrier=texts_or_none("carrier", carrier) or {},
        )
        return await self._put(order, queue, title_of(message))

    async def approve(self, run_id: str, answers: Answers, *, queue: str | None = None) -> str:
        """Answer calls that a run left waiting for a yes; the id of the run that goes on with its session.

        That run stands in the same queue where none is named. No worker waits meanwhile.

        Raises:
            UsageError: there is no run of that id, or an answer is to a call that does not wait.
            StoreError: the database could not be reached.
        """
        found = await self._one(run_id)
        given = self._redaction.hide(checked_answers(answers))
        sessions = Sessions(store=self._store, owner=self._owner)
        waiting = await waiting_in(sessions, await sessions.open(found.session_id))
        check_known(given, waiting, found.session_id)
        order = Order(
            session_id=found.session_id,
            prompt=None,
            submitted=time.time(),
            owner=self._owner,
            answers={key: replace(each, fingerprint=waiting[key].fingerprint) for key, each in given.items()},
        )
        return await self._put(order, queue or found.queue or QUEUE, found.prompt)

    async def turn(
        self, prompt: str, *, session_id: str, length: int, queue: str = QUEUE
    ) -> RunResult | None:
        """Have that said behind the first `length` records of a session, and wait for what it comes to.

        It is one run, however many ask for it, in whatever processes. None where the session says more by
        then; another run of it that is open in that queue is waited for first. Cancelled, the run goes on.
        The result has no messages; its output is text.

        Raises:
            UsageError: the prompt is empty, a name is not allowed, or the session is somebody else's.
            AgentLoopError: the run came to no answer and no limit.
            StoreError: see `wait`.
        """
        await self._check_owner(session_id)
        is_open = await self.runs(session_id=session_id, only_open=True, most=None)
        run_id = next((each.id for each in reversed(is_open) if each.queue == queue), None)
        stem = sha256(f"{session_id} {length}".encode()).hexdigest()[:24]
        if run_id is not None and not run_id.startswith(stem):
            await self.wait(run_id)
            return None
        if run_id is None:
            line = await self._store.info(session_id)
            if (line.length if line else 0) != length:
                return None
            tried = await self.runs(session_id=session_id, id_prefix=stem, most=None)
            message = self._redaction.hide(as_user_message(prompt))
            order = Order(
                session_id=check_trunk(session_id),
                prompt=message,
                submitted=time.time(),
                owner=self._owner,
            )
            run_id = f"{stem}{sum(each.is_over for each in tried):08x}"
            await self._put(order, queue, title_of(message), run_id)
        done = await self.wait(run_id)
        if done.state != "answered" and done.state != "limit":
            raise AgentLoopError(f"run {run_id} of the session {session_id!r} is {done.state}: {done.error}")
        return RunResult(
            output=await self.answer(run_id),
            status=done.state,
            session_id=session_id,
            run_id=run_id,
            usage=done.usage or Usage(),
            cost=done.cost,
            messages=(),
            compactions=(),
            reason=done.error,
        )

    async def _put(self, order: Order, queue: str, title: str, run_id: str | None = None) -> str:
        """Put the run in the queue, unless there is one of that id; its id, a new one for None."""
        run_id = run_id or uuid.uuid4().hex
        options: EnqueueOptions = {
            "workflow_name": WORKFLOW,
            "queue_name": checked_name("queue", queue),
            "workflow_id": run_id,
            "queue_partition_key": order.session_id,
            "attributes": {
                "session": order.session_id,
                "queue": queue,
                "owner": self._owner,
                "prompt": title.replace("\0", "\ufffd"),  # its column takes no NUL
            },
        }
        await self._client.ask(lambda client: client.enqueue(options, order.to_text()))
        return run_id

    async def runs(
        self,
        *,
        session_id: str | None = None,
        most: int | None = 50,
        only_open: bool = False,
        id_prefix: str | None = None,
    ) -> Sequence[QueuedRun]:
        """The runs, newest first, of one session where it is given; `most` of them, None for all.

        With `id_prefix` those whose ids begin so.

        Raises:
            UsageError: `most` is no whole number from 1 to 2,147,483,647, the session's id is none, or
                `id_prefix` no printable text.
        """
        whole_or_none("most", most, 1, most=MOST_COUNT)
        if id_prefix is not None and not _is_printable(id_prefix):
            raise UsageError(f"id_prefix must be a printable text, not {shown(id_prefix)}")
        if session_id is not None:
            checked_session_id(session_id)
        found = await self._listed(
            sort_desc=True,
            limit=most,
            session_id=session_id,
            status=list(OPEN) if only_open else None,
            workflow_id_prefix=id_prefix or None,
        )
        return await with_missing(self._url, [self._shown(each) for each in found])

    async def run(self, run_id: str) -> QueuedRun:
        """One run, with what it is doing.

        Raises:
            UsageError: there is none of that id.
        """
        [found] = await with_missing(self._url, [await self._one(run_id)])
        steps = await self._client.ask(lambda client: client.list_workflow_steps(run_id))
        return with_steps(found, steps)

    async def answer(self, run_id: str) -> str:
        """What the model answered in that run, at a limit what there is of that; empty where it has not.

        Raises:
            UsageError: there is no run of that id.
            StoreError: the database could not be reached, or has not what a run that was answered said.
        """
        with not_lost(run_id):
            found = await retry_while_away(lambda: self._one(run_id))
        return self._redaction.hide(await answer_of(found, self._store))

    async def wait(self, run_id: str, *, poll_seconds: float = _POLL_SECONDS) -> QueuedRun:
        """The run once it is over.

        A database that goes away is asked again after 2 s, then after twice as long, five times in all.

        Raises:
            UsageError: there is none of that id.
            StoreError: the database could not be reached, by which the run does not end, or has not what a
                run that was answered said.
        """
        with not_lost(run_id):
            while True:
                found = await retry_while_away(lambda: self._one(run_id))
                if found.is_over:
                    break
                await asyncio.sleep(poll_seconds)
        await answer_of(found, self._store)
        return found

    async def cancel(self, run_id: str) -> QueuedRun:
        """Take the run out of the queue, or have its worker stop it within seconds; one that is over stays.

        Raises:
            UsageError: there is none of that id.
        """
        await self._one(run_id)
        await self._client.ask(lambda client: client.cancel_workflow(run_id))
        return await self._one(run_id)

    async def resume(self, run_id: str) -> QueuedRun:
        """Put a run that was cancelled or given up back in its queue; it goes on where it was.

        Raises:
            UsageError: there is none of that id, or it ended by itself.
        """
        status = await self._status(run_id)
        if status.status not in CAN_GO_ON:
            found = as_queued_run(status)
            raise UsageError(
                f"run {run_id!r} is {found.state}: what was cancelled or given up can be resumed; to go on "
                f"in its session, submit another prompt: `agentloop submit --session {found.session_id} …`"
            )
        queue = as_queued_run(status).queue
        await self._client.ask(lambda client: client.resume_workflow(run_id, queue_name=queue))
        return await self._one(run_id)

    async def delete(self, run_id: str) -> None:
        """Forget a run that is over, its prompt too; what was said stays in the session's log.

        Raises:
            UsageError: there is none of that id, or it is not over.
            SessionBusyError: it was cancelled, and its worker has not let go of it yet.
        """
        found = await self._one(run_id)
        if not found.is_over:
            raise UsageError(f"run {run_id!r} is {found.state}: cancel it first")
        async with exclude_workers(self._store, found):
            await self._client.ask(lambda client: client.delete_workflow(run_id))

    async def close(self) -> None:
        """Let go of the database; harmless when called again."""
        await self._client.close()
        await self._store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _check_owner(self, session_id: str) -> None:
        """Refuse a session that is somebody else's, or will be once its first run begins."""
        if self._owner is None:
            return
        await Sessions(store=self._store, owner=self._owner).check_free(session_id)
        first = await self._client.ask(
            lambda dbos: dbos.list_workflows(
                name=WORKFLOW,
                attributes={"session": session_id},
                status=list(OPEN),
                limit=1,
                load_input=False,
            )
        )
        is_theirs = any((run.attributes or {}).get("owner") != self._owner for run in first)
        if is_theirs and await self._store.info(session_id) is None:
            raise UsageError(f"session id {session_id!r} is taken by a run in the queue: choose another")

    async def _one(self, run_id: str) -> QueuedRun:
        return self._shown(await self._status(run_id))

    def _shown(self, status: WorkflowStatus) -> QueuedRun:
        found = as_queued_run(status)
        error, prompt = self._redaction.hide((found.error, found.prompt))
        return replace(found, error=error, prompt=prompt)

    async def _status(self, run_id: str) -> WorkflowStatus:
        found = await self._listed(workflow_ids=[run_id]) if _is_printable(run_id) else ()
        if not found:
            raise UsageError(f"there is no run {shown(run_id)}: `agentloop runs` lists them")
        return found[0]

    async def _listed(self, *, session_id: str | None = None, **only: Any) -> list[WorkflowStatus]:
        wanted = {"session": session_id, "owner": self._owner}
        attributes = {name: value for name, value in wanted.items() if value is not None}
        return await self._client.ask(
            lambda client: client.list_workflows(
                name=WORKFLOW, load_input=False, attributes=attributes or None, **only
            )
        )
