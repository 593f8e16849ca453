"""The runner: opens a session, adds the prompt, runs the loop, and shows what happens."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator, Iterable
from pathlib import Path
from typing import Any, Self

from agentloop.agent import Agent
from agentloop.answering import settle
from agentloop.budget import Budget
from agentloop.callbacks import Callbacks
from agentloop.checks import above_zero, shown
from agentloop.compactions import CompactionResult
from agentloop.compactor import Compactor
from agentloop.deadlines import to_its_end
from agentloop.errors import AgentLoopError, SessionNotFoundError, StoreError, UsageError
from agentloop.events import Record, Restored, RunEnded, RunStarted
from agentloop.filters import EventFilter, select
from agentloop.ladder import Ladder
from agentloop.limits import Limits, check_priced, limited
from agentloop.loop import loop
from agentloop.messages import Message
from agentloop.models import AsksWindow, ChatModel
from agentloop.openings import (
    check_prompt,
    described,
    folder_of,
    instances,
    spoken,
    transcripts_folder,
)
from agentloop.policy import Compaction
from agentloop.redaction import Redact, checked_redaction, redact_error, redacted
from agentloop.results import CompactionPreview, RunResult, status_of
from agentloop.room import Room
from agentloop.run import Run
from agentloop.sessions import Session
from agentloop.steps import RunTools, next_step
from agentloop.stores import open_store
from agentloop.stores.base import SessionStore, checked_session_id
from agentloop.stream import AnyStreamEvent, ContextStatus, RunStatus
from agentloop.stream import RunEnded as RunEndedShown
from agentloop.stream import RunStarted as RunStartedShown
from agentloop.tokens import counter_for
from agentloop.watch import CALLBACK_SECONDS, Sink, Watch
from agentloop.wire import arranged


class Runner:
    """Runs an agent on sessions.

    `store` is a store or a URL (`memory:`, `sqlite:///sessions.db`); `transcripts` is the folder of the
    transcripts and of results too long to show, None for none; `folder` marks new sessions as belonging to
    a folder. A callback may take `callback_seconds`.

    `redact`, such as `Secrets()`, takes secrets out of every text before it is stored, counted, shown or
    logged: what users, models and tools say, transcripts, files of long results, summaries, titles, errors.
    Roles, statuses, names of tools and models, and ids are never rewritten. As the context is made from the
    log, the model sees the redacted text too, and a tool is called with the redacted arguments. Text of an
    answer is held back for as long as it may become a secret. What was stored before without it stays in the
    log as it is. One that raises or gives no text ends the run with a `UsageError`, nothing stored as it was.

    Raises:
        UsageError: the store is none, a callback is a class, `redact` is no function or gives no text,
            `transcripts` or `folder` is no path, or `callback_seconds` no number above 0.
    """

    def __init__(
        self,
        agent: Agent,
        *,
        store: str | SessionStore = "memory:",
        callbacks: Iterable[Callbacks] = (),
        transcripts: Path | str | None = Path(".transcripts"),
        folder: str | None = None,
        callback_seconds: float = CALLBACK_SECONDS,
        redact: Redact | None = None,
    ) -> None:
        above_zero("callback_seconds", callback_seconds)
        if not isinstance(agent, Agent):
            raise UsageError(f"agent must be an Agent(model, …), not {shown(agent)}")
        self.agent = agent
        self.store = open_store(store)
        self._callbacks = instances(callbacks)
        self._transcripts = transcripts_folder(transcripts)
        self._folder = folder_of(folder)
        self._callback_seconds = callback_seconds
        self._redact = None if redact is None else checked_redaction(redact)
        self._counter = counter_for(agent.model.name)
        self._budget: Budget | None = None

    async def run(
        self,
        prompt: str | Message,
        *,
        session_id: str | None = None,
        deps: Any = None,
        limits: Limits | None = None,
    ) -> RunResult:
        """Say `prompt` in the session, a new one where no id is given, and run to the answer or to a limit.

        Raises:
            UsageError: the prompt is empty, the id not allowed or a limit cannot be held; nothing is stored.
            ContextOverflowError: the context cannot be made to fit.
            ModelError: the model gave no answer.
            StoreError: the session could not be read or written.
        """
        return await self._run(
            spoken(prompt), _new_session_id() if session_id is None else session_id, deps, limits, _unseen
        )

    async def resume(self, session_id: str, *, deps: Any = None, limits: Limits | None = None) -> RunResult:
        """Go on with a run that was interrupted; no finished tool runs again.

        A session whose last run was answered gives that answer again.

        Raises:
            SessionNotFoundError: there is no such session.
        """
        return await self._run(None, session_id, deps, limits, _unseen)

    async def stream(
        self,
        prompt: str | Message | None,
        *,
        session_id: str | None = None,
        deps: Any = None,
        limits: Limits | None = None,
    ) -> AsyncGenerator[AnyStreamEvent, None]:
        """The same as `run`, or as `resume` for None, event by event; closing it cancels the run.

        The last event is `RunEnded`; where the run failed, the error is raised after it.
        """
        events: asyncio.Queue[AnyStreamEvent | None] = asyncio.Queue()
        work = self._run(
            prompt, _new_session_id() if session_id is None else session_id, deps, limits, events.put_nowait
        )
        task = asyncio.create_task(work)
        task.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            await task
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def compact(self, session_id: str, *, focus: str | None = None) -> CompactionResult | None:
        """Compact the session now; None where there is nothing to compact.

        Raises:
            SessionNotFoundError: there is no such session.
        """
        session = await self._existing(session_id)
        run = await self._new_run(session_id, None, None, _unseen)
        with contextlib.closing(run.watch.callback_list):
            _, result = await run.room.asked(session, redacted(focus, self._redact))
        return result

    async def compact_if_due(self, session_id: str) -> CompactionResult | None:
        """Compact the session where its trigger fires now, outside of a run; None where it does not.

        For a host that looks after idle sessions: with `Idle` or `Every` as the trigger, a session is
        compacted while nobody waits for it.

        Raises:
            SessionNotFoundError: there is no such session.
        """
        session = await self._existing(session_id)
        run = await self._new_run(session_id, None, None, _unseen)
        with contextlib.closing(run.watch.callback_list):
            _, result = await run.room.if_due(session)
        return result

    async def preview(self, session_id: str) -> CompactionPreview | None:
        """What `compact` would do first; None where there is nothing to compact. Nothing is done.

        Raises:
            SessionNotFoundError: there is no such session.
        """
        session = await self._existing(session_id)
        room = (await self._new_run(session_id, None, None, _unseen)).room
        return room.preview(session.context)

    async def undo(self, session_id: str) -> int | None:
        """Take the newest compaction back, with all its steps hid or shortened; None where there is none.

        Returns the position of its newest record.

        Raises:
            SessionNotFoundError: there is no such session.
        """
        session = await self._existing(session_id)
        if not session.context.compactions:
            return None
        seq, newest = session.context.compactions[-1]
        all_steps = ((at, event.group) for at, event in session.context.compactions)
        steps = [at for at, group in all_steps if group and group == newest.group] or [seq]
        await session.append(*(Restored(seq=at) for at in reversed(steps)))
        return seq

    async def events(self, session_id: str, *, only: EventFilter | None = None) -> list[Record]:
        """The session's records, oldest first, or those of them that the filter takes.

        Raises:
            SessionNotFoundError: there is no such session.
        """
        records = await self.store.read(checked_session_id(session_id))
        if not records:
            raise SessionNotFoundError(f"there is no session {session_id!r}")
        return select(records, only)

    async def status(self, session_id: str) -> ContextStatus:
        """How full the window is with this session."""
        session = await Session.open(session_id, self.store)
        return (await self._new_run(session_id, None, None, _unseen)).room.status(session.context)

    async def close(self) -> None:
        """Close the store."""
        await self.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _run(
        self,
        prompt: str | Message | None,
        session_id: str,
        deps: Any,
        limits: Limits | None,
        sink: Sink,
    ) -> RunResult:
        message = None if prompt is None else spoken(prompt)
        limits = limited(limits, self.agent.max_steps)
        check_priced(limits, *self._models())
        session = await (Session.open(session_id, self.store) if message else self._begun(session_id))
        run = await self._new_run(session_id, deps, limits, sink)
        try:
            ended = await loop(run, await self._begin(run, session, message))
            session = await to_its_end(ended.session.append(_ended(run, ended.status, ended.reason)))
        except BaseException as error:  # a cancellation, too, is an end that the log tells; raised again
            await to_its_end(self._fail(run, error))
            raise
        finally:
            self._budget = self._first_budget().keeping(run.room.budget)
        output = redacted(ended.output, self._redact)
        await self._show_end(run, ended.status, output=output, error=ended.reason)
        return RunResult(
            output=output,
            status=ended.status,
            session_id=session_id,
            run_id=run.id,
            usage=run.usage,
            cost=run.cost,
            messages=tuple(arranged(session.context.messages)),
            compactions=tuple(run.room.ladder.outcomes),
            reason=ended.reason,
        )

    async def _begin(self, run: Run, session: Session, message: Message | None) -> Session:
        """Store that the run began, with its prompt, before anybody is told; settle what was in flight."""
        began = RunStarted(run_id=run.id, model=self.agent.model.name)
        said = run.added(message) if message else None
        step = next_step(session.context.messages)
        pending = step.calls if isinstance(step, RunTools) else ()
        try:
            check_prompt(run.room.budget, said)
            records = [
                began,
                *described(session, said.message if said else None, self._folder),
                *([said] if said and not pending else ()),
            ]
            session, show = await run.stored(session, *records)
            run.begun = True
        finally:
            await run.watch.say(RunStartedShown(model=self.agent.model.name))
        await show()
        if pending:
            session = await settle(run, session, pending)
        return await run.record(session, said) if said and pending else session

    async def _fail(self, run: Run, error: BaseException) -> None:
        """Note in the log how the run ended, where it began there and the log still takes it; show it."""
        status = status_of(error)
        redact_error(error, self._redact)
        if run.begun and not isinstance(error, StoreError):
            with contextlib.suppress(AgentLoopError):
                session = await Session.open(run.watch.session_id, self.store)
                await session.append(_ended(run, status))
        text = "cancelled" if status == "interrupted" else str(error) or type(error).__name__
        await self._show_end(run, status, output="", error=text)

    async def _show_end(self, run: Run, status: RunStatus, *, output: str, error: str | None) -> None:
        ended = RunEndedShown(status=status, output=output, usage=run.usage, cost=run.cost, error=error)
        await run.watch.say(ended)

    async def _existing(self, session_id: str) -> Session:
        session = await Session.open(session_id, self.store)
        if not session.context.length:
            raise SessionNotFoundError(f"there is no session {session_id!r}")
        return session

    async def _begun(self, session_id: str) -> Session:
        session = await self._existing(session_id)
        if not session.context.said:
            raise UsageError(f"nobody has said anything in session {session_id!r} yet: give a prompt")
        return session

    async def _new_run(self, session_id: str, deps: Any, limits: Limits | None, sink: Sink) -> Run:
        await self._ask_windows()
        watch = Watch(
            session_id, uuid.uuid4().hex, sink, self._callbacks, self._callback_seconds, self._redact
        )
        compactor = Compactor(counter=self._counter, transcripts=self._transcripts, watch=watch)
        policy = self.agent.compaction
        ladder = Ladder(policy=policy or Compaction(), model=self.agent.model, compactor=compactor)
        return Run(
            agent=self.agent,
            room=Room(policy=policy, budget=self._first_budget(), ladder=ladder),
            watch=watch,
            counter=self._counter,
            spills=self._transcripts,
            limits=limits or Limits(),
            deps=deps,
        )

    def _models(self) -> tuple[ChatModel, ...]:
        """Who answers, and who writes summaries where that is another."""
        writer = self.agent.compaction.model if self.agent.compaction else None
        return (self.agent.model, writer) if writer else (self.agent.model,)

    async def _ask_windows(self) -> None:
        """Let models whose window nobody knows ask their servers, before it is first reckoned with."""
        if self._budget is None:
            for model in self._models():
                if model.window is None and isinstance(model, AsksWindow):
                    await model.ask_window()

    def _first_budget(self) -> Budget:
        """What the next run begins with; made when first asked for, since counting loads a vocabulary."""
        if self._budget is None:
            agent = self.agent
            self._budget = Budget.of(agent.model, agent.instructions, agent.schemas, self._counter)
        return self._budget


def _ended(run: Run, status: RunStatus, reason: str | None = None) -> RunEnded:
    return RunEnded(run_id=run.id, status=status, usage=run.usage, reason=redacted(reason, run.watch.redact))


def _new_session_id() -> str:
    return uuid.uuid4().hex[:12]


def _unseen(event: AnyStreamEvent) -> None:
    """Nobody watches."""
