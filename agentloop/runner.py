"""The runner: what users call. It checks what it is given, and hands runs and looks to what does them.

Here alone it is said of which store, redaction and compaction the runs are; `run` knows what they do.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, Self

import agentloop.compaction as compaction
import agentloop.sessions as sessions_face
from agentloop._plumbing.aio import to_its_end
from agentloop._plumbing.checks import above_zero, instance_or_none, shown, text_or_none, whole
from agentloop.approvals import Answers, Approver, Pending, checked_answers
from agentloop.callbacks import Callbacks, checked_callbacks
from agentloop.emitter import CALLBACK_SECONDS, Sink, drop_event
from agentloop.errors import SessionNotFoundError, UsageError
from agentloop.events import EventFilter, Record, select
from agentloop.messages import Message
from agentloop.redaction import Redact, Redaction, checked_redaction
from agentloop.results import CompactionPreview, Output_co, RunResult
from agentloop.rules import Rules
from agentloop.run import (
    Agent,
    Limits,
    Prompt,
    RunConfig,
    RunInput,
    as_user_message,
    execute_run,
    run_sub_agent,
    transcripts_folder,
    waiting_in,
)
from agentloop.sessions import (
    Conversation,
    Leases,
    Session,
    Sessions,
    WhenBusy,
    new_session_id,
    rebase_any,
    rewind_turns,
    undo_newest,
)
from agentloop.stores import open_store
from agentloop.stores.base import (
    SessionInfo,
    SessionStore,
    check_trunk,
    checked_owner,
    checked_session_id,
    checked_ttl,
)
from agentloop.strategies import Strategy
from agentloop.stream import AnyStreamEvent, CompactionResult, ContextStatus
from agentloop.triggers import Trigger


class Runner(Generic[Output_co]):
    """Runs an agent on sessions.

    `store` is a store or a URL (`memory:`, `sqlite:///sessions.db`); `transcripts` is the folder of the
    transcripts and of results too long to show, None for none; `folder` marks new sessions as belonging to
    a folder. A callback may take `callback_seconds`.

    One run at a time works on a session, by a lease that it renews. `when_busy` says whether another run is
    refused (`refuse`), waits until the session is free (`wait`), or puts the first one out, which then stops
    and stores nothing more (`take_over`). A lease that nobody renews runs out after 30 seconds, or what a
    `Leases(…)` in place of the word says; at once where its process has died on this machine. A store that
    grants no leases lets everybody in: then who meets another run in the log stops. Compacting, undoing and
    looking need no lease.

    `approver` is asked at once for a yes to each call of a tool with `needs_approval`: a function of a
    `Pending` that gives `Approve()`, `Reject(why)`, `Respond(text)`, or None where nobody can say. It may
    take as long as it takes. `rules` say which calls run unasked, which are asked about, and which never run.

    With `owner`, new sessions belong to that owner and no others are seen. New sessions may be swept
    `ttl_seconds` after their newest record, None for never.

    `redact`, such as `Secrets()`, takes secrets out of every text before it is stored, counted, shown or
    logged: what users, models and tools say, transcripts, files of long results, summaries, titles, errors.
    Roles, statuses, names of tools and models, and ids are never rewritten. As the context is made from the
    log, the model sees the redacted text too, and a tool is called with the redacted arguments. Text of an
    answer is held back for as long as it may become a secret. What was stored before without it stays in the
    log as it is. One that raises or gives no text ends the run with a `UsageError`, nothing stored as it was.

    Raises:
        UsageError: the store is none, a callback is a class or would never be called, `redact` is no function
            or gives no text, `approver` is no function, `rules` are none, `transcripts` or `folder` is
            no path, `callback_seconds` or `ttl_seconds` no number above 0, `when_busy` none of its words, or
            `owner` no name.
    """

    def __init__(
        self,
        agent: Agent[Output_co],
        *,
        store: str | SessionStore = "memory:",
        callbacks: Iterable[Callbacks] = (),
        transcripts: Path | str | None = Path(".transcripts"),
        folder: str | None = None,
        callback_seconds: float = CALLBACK_SECONDS,
        redact: Redact | None = None,
        when_busy: WhenBusy | Leases = "refuse",
        owner: str | None = None,
        ttl_seconds: float | None = None,
        approver: Approver | None = None,
        rules: Rules | None = None,
    ) -> None:
        self._redact = None if redact is None else checked_redaction(redact)
        kept_in = open_store(store)
        above_zero("callback_seconds", callback_seconds)
        if not isinstance(agent, Agent):
            raise UsageError(f"agent must be an Agent(model, …), not {shown(agent)}")
        text_or_none("folder", folder)
        instance_or_none("rules", rules, Rules)
        if approver is not None and not callable(approver):
            raise UsageError(f"approver must be a function of a Pending, or None, not {shown(approver)}")
        self._config = RunConfig(
            agent=agent,
            sessions=Sessions(
                store=kept_in,
                leases=when_busy if isinstance(when_busy, Leases) else Leases(when_busy=when_busy),
                owner=checked_owner(owner),
                folder=folder,
                ttl_seconds=checked_ttl(ttl_seconds),
            ),
            run_sub_agent=run_sub_agent,
            redaction=Redaction(self._redact),
            callbacks=checked_callbacks(callbacks),
            callback_seconds=callback_seconds,
            transcripts=transcripts_folder(transcripts),
            approver=approver,
            rules=rules,
        )

    def __repr__(self) -> str:
        return f"Runner(model={shown(self.agent.model.name)}, store={type(self.store).__name__})"

    @property
    def agent(self) -> Agent[Output_co]:
        """What it runs."""
        return self._config.agent

    @property
    def store(self) -> SessionStore:
        """Where its sessions live."""
        return self._config.sessions.store

    @property
    def sessions(self) -> "sessions_face.StoredSessions":
        """Its stored sessions: listed, read, imported, exported, renamed, forked, searched and deleted."""
        return sessions_face.StoredSessions(
            sessions=self._config.sessions,
            redact=self._redact,
            transcripts=self._config.transcripts,
            model=self.agent.model.name,
        )

    async def run(
        self,
        prompt: Prompt,
        *,
        session_id: str | None = None,
        history: Conversation = (),
        deps: Any = None,
        limits: Limits | None = None,
        on_event: Sink = drop_event,
    ) -> RunResult[Output_co]:
        """Say `prompt` in the session, a new one where no id is given, and run to the answer or to a limit.

        With a `history` the session begins with it: `Message`s or chat-completions dicts, such as
        `sessions.messages` gives, or the text of an export. `on_event` is called with each event as it comes,
        up to the `RunEnded` of a run that is cancelled too.

        Raises:
            UsageError: the prompt is empty, the id not allowed or taken by another owner, a limit cannot be
                held, or the history is none or its session exists; nothing is stored.
            SessionBusyError: another run works on the session and `when_busy` is `refuse`; nothing is stored.
            ContextOverflowError: the context cannot be made to fit.
            ModelError: the model gave no answer.
            TakenOverError: another run took the session over; this one stored nothing more.
            StoreError: the session could not be read or written.
        """
        given = self._input(session_id, as_user_message(prompt), history)
        return await execute_run(self._config, replace(given, deps=deps, limits=limits, sink=on_event))

    async def resume(
        self,
        session_id: str,
        *,
        answers: Answers | None = None,
        deps: Any = None,
        limits: Limits | None = None,
        on_event: Sink = drop_event,
    ) -> RunResult[Output_co]:
        """Go on with a run that was interrupted, or that waits for a yes; no finished tool runs again.

        `answers` are replies to calls in its `pending`, by their ids, given in any process, however much
        later. What has none waits on. A session whose last run was answered gives that answer again.
        `on_event` is as in `run`.

        Raises:
            SessionNotFoundError: there is no such session.
            SessionBusyError: another run works on it.
            UsageError: an answer is to a call that does not wait, or has its answer; the arguments of a yes
                do not fit, or the agent does not have the tool. Nothing is stored.
        """
        given = replace(self._input(check_trunk(session_id)), answers=checked_answers(answers or {}))
        return await execute_run(self._config, replace(given, deps=deps, limits=limits, sink=on_event))

    async def stream(
        self,
        prompt: Prompt | None,
        *,
        session_id: str | None = None,
        history: Conversation = (),
        answers: Answers | None = None,
        deps: Any = None,
        limits: Limits | None = None,
    ) -> AsyncGenerator[AnyStreamEvent, None]:
        """The same as `run`, or as `resume` for None, event by event; closing it cancels the run.

        The last event is `RunEnded`; where the run failed, the error is raised after it. Who leaves the
        iteration can go on with the session at once, unless they keep the generator and do not `aclose` it.
        Who is to hear how a run ends that they cancel themselves takes `run(…, on_event=…)`.
        """
        events: asyncio.Queue[AnyStreamEvent | None] = asyncio.Queue()
        given = self._input(session_id, None if prompt is None else as_user_message(prompt), history)
        given = replace(given, answers=checked_answers(answers or {}))
        given = replace(given, deps=deps, limits=limits, sink=events.put_nowait)
        task = asyncio.create_task(execute_run(self._config, given))
        task.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            await task
        finally:
            task.cancel()
            await to_its_end(asyncio.wait({task}))

    async def pending(self, session_id: str) -> tuple[Pending, ...]:
        """The calls of the session, and of its sub-agents, that wait for a yes, oldest first.

        Raises:
            SessionNotFoundError: there is no such session.
        """
        waiting = await waiting_in(self._config.sessions, await self._existing(session_id))
        return tuple(waiting.values())

    async def compact(
        self,
        session_id: str,
        *,
        focus: str | None = None,
        trigger: Trigger | None = None,
        strategy: Strategy | None = None,
    ) -> CompactionResult:
        """Compact the session, outside of a run: now, or where this trigger fires now.

        `focus` is what the summary must keep above all; `strategy` is another than the policy's. Where the
        trigger is still, or there is nothing to compact, the status is `not_due` and nothing was written.
        With `Idle` or `Every` as the trigger a host looks after sessions while nobody waits for them. Such a
        compaction has the trigger's reason, and is `skipped` as long as the last ones did not help.

        Raises:
            SessionNotFoundError: there is no such session.
            UsageError: the trigger or the strategy is no function of a context and a budget.
        """
        compaction.check_parts(trigger, strategy)
        session = await self._existing(session_id)
        async with self._beside(session_id) as keeper:
            focus = self._config.redaction.hide(focus)
            _, result = await keeper.compact_for_user(session, focus, trigger=trigger, strategy=strategy)
            failures = tuple(keeper.compactor.emitter.failures)
        return replace(result, callback_failures=failures)

    async def preview(self, session_id: str, *, strategy: Strategy | None = None) -> CompactionPreview | None:
        """What `compact` would do first; None where there is nothing to compact. Nothing is done.

        Raises:
            SessionNotFoundError: there is no such session.
            UsageError: the strategy is no function of a context and a budget.
        """
        compaction.check_parts(None, strategy)
        session = await (await self._existing(session_id)).whole()
        async with self._beside(session_id) as keeper:
            return await keeper.preview(session.context, strategy)

    async def undo(self, session_id: str) -> int | None:
        """Take the newest compaction back, with all its steps hid or shortened; None where there is none.

        A `rewind` is taken back like one.

        Returns the position of its newest record.

        Raises:
            SessionNotFoundError: there is no such session.
        """
        return await undo_newest(await self._existing(session_id))

    async def rewind(self, session_id: str, *, turns: int = 1) -> int:
        """Take the newest turns back: what a user said, and all that came of it, is shown to no model again.

        So a session goes on whose newest message a server will never take. Nothing is erased, and what tools
        did stays done. `undo` gives the turns back. Returns how many went; where there are fewer, all go.

        Raises:
            UsageError: `turns` is no whole number of at least 1, or a compaction covers a part of them: its
                summary would still tell of it, so it is to be undone first.
            SessionNotFoundError: there is no such session.
            SessionBusyError: a run works on it and `when_busy` is `refuse`.
        """
        whole("turns", turns, 1)
        await self._existing(session_id)
        async with self._config.sessions.held(session_id):
            return await rewind_turns(await self._existing(session_id), turns)

    async def events(self, session_id: str, *, only: EventFilter | None = None) -> list[Record]:
        """The session's records, oldest first, or those of them that the filter takes.

        Raises:
            SessionNotFoundError: there is no such session.
        """
        await self._config.sessions.check_seen(session_id)
        records = await self.store.read(checked_session_id(session_id))
        if not records:
            raise SessionNotFoundError(f"there is no session {session_id!r}")
        return select(records, only)

    async def branches(self, session_id: str) -> Sequence[SessionInfo]:
        """The logs of the session's sub-agents, oldest first; `events` of their ids says what is in them.

        Raises:
            SessionNotFoundError: there is no such session.
        """
        await self._existing(session_id)
        return sorted(await self.store.list(branches_of=session_id), key=lambda line: line.created)

    async def status(self, session_id: str) -> ContextStatus:
        """How full the window is with this session.

        Raises:
            SessionNotFoundError: there is no such session.
        """
        session = await self._existing(session_id)
        async with self._beside(session_id) as keeper:
            return keeper.status(session.context)

    async def close(self) -> None:
        """Close the store."""
        await self.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _input(
        self, session_id: str | None, message: Message | None = None, history: Conversation = ()
    ) -> RunInput:
        session_id = new_session_id() if session_id is None else check_trunk(session_id)
        earlier = self.sessions.events_of(history) if history != () else ()
        if earlier and message is None:
            raise UsageError("a history begins a new session, and there is no prompt: give one")
        return RunInput(session_id=session_id, message=message, earlier=earlier)

    async def _existing(self, session_id: str) -> Session:
        await self._config.sessions.check_seen(session_id)
        session = await self._config.sessions.open(session_id)
        if not session.context.length:
            raise SessionNotFoundError(f"there is no session {session_id!r}")
        return session

    @contextlib.asynccontextmanager
    async def _beside(self, session_id: str) -> AsyncIterator["compaction.ContextKeeper"]:
        """What looks at a session or compacts it, whoever runs on it."""
        emitter = self._config.emitter(session_id, drop_event)
        with contextlib.closing(emitter.callback_list):
            yield await self._config.keeper(emitter, rebase_any)


def config_of(runner: Runner[Any]) -> RunConfig:
    """What its runs share, for who does the runs in another way."""
    return runner._config
