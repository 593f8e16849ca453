"""What all runs of one runner have in common, and how each of them begins."""

import contextlib
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentloop.agent import Agent
from agentloop.answering import settle
from agentloop.budget import Budget
from agentloop.callbacks import Callbacks
from agentloop.compactor import Compactor
from agentloop.errors import ConflictError, TakenOverError
from agentloop.events import Event, MessageAdded, RunStarted
from agentloop.holds import Hold
from agentloop.ladder import Ladder
from agentloop.leases import Leases
from agentloop.limits import Limits
from agentloop.messages import Message, ToolCall
from agentloop.models import AsksWindow, ChatModel
from agentloop.openings import check_prompt, first_description
from agentloop.policy import Compaction
from agentloop.races import CatchUp, reloaded, written_beside
from agentloop.redaction import Redact
from agentloop.room import Room
from agentloop.run import Run, Stored
from agentloop.sessions import Session
from agentloop.steps import RunTools, next_step
from agentloop.stores.base import SessionStore
from agentloop.stream import RunStarted as RunStartedShown
from agentloop.tokens import TokenCounter, counter_for
from agentloop.watch import CALLBACK_SECONDS, Sink, Watch, unseen


@dataclass(slots=True)
class Learnt:
    """What the runs so far learnt of the server; None before the first of them."""

    budget: Budget | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Who runs, where sessions live and how runs come by them, where files go, who watches.

    What one run learns of the server, the next begins with.
    """

    agent: Agent
    store: SessionStore
    leases: Leases = field(default_factory=Leases)
    callbacks: tuple[Callbacks, ...] = ()
    transcripts: Path | None = None
    folder: str | None = None
    owner: str | None = None
    ttl_seconds: float | None = None
    callback_seconds: float = CALLBACK_SECONDS
    redact: Redact | None = None
    learnt: Learnt = field(default_factory=Learnt)

    @property
    def models(self) -> tuple[ChatModel, ...]:
        """Who answers, and who writes summaries where that is another."""
        writer = self.agent.compaction.model if self.agent.compaction else None
        return (self.agent.model, writer) if writer else (self.agent.model,)

    @property
    def counter(self) -> TokenCounter:
        """What counts the agent's tokens."""
        return counter_for(self.agent.model.name)

    async def new_run(
        self,
        session_id: str,
        sink: Sink,
        *,
        run_id: str | None = None,
        catch_up: CatchUp | None = None,
        hold: Hold | None = None,
        deps: Any = None,
        limits: Limits | None = None,
    ) -> Run:
        """A run that has not begun; `sink` takes its events.

        `catch_up` says when what it writes still holds though others wrote: by default as `written_beside`.
        """
        watch = self._watch(session_id, uuid.uuid4().hex if run_id is None else run_id, sink)
        catch_up = catch_up or written_beside(watch.run_id)
        room = await self._room(watch, catch_up)
        return Run(
            agent=self.agent,
            room=room,
            watch=watch,
            counter=self.counter,
            catch_up=catch_up,
            spills=self.transcripts,
            limits=limits or Limits(),
            hold=hold,
            deps=deps,
        )

    @contextlib.asynccontextmanager
    async def beside(self, session_id: str) -> AsyncIterator[Room]:
        """Room for looking at a session or compacting it, whoever runs on it."""
        watch = self._watch(session_id, uuid.uuid4().hex, unseen)
        with contextlib.closing(watch.callback_list):
            yield await self._room(watch, reloaded)

    def _watch(self, session_id: str, run_id: str, sink: Sink) -> Watch:
        return Watch(session_id, run_id, sink, self.callbacks, self.callback_seconds, self.redact)

    async def _room(self, watch: Watch, catch_up: CatchUp) -> Room:
        await self._ask_windows()
        policy = self.agent.compaction
        carried_out = policy or Compaction()
        compactor = Compactor(
            counter=self.counter,
            transcripts=self.transcripts,
            watch=watch,
            transcript_failure=carried_out.transcript_failure,
            catch_up=catch_up,
        )
        ladder = Ladder(policy=carried_out, model=self.agent.model, compactor=compactor)
        return Room(policy=policy, budget=self._first_budget(), ladder=ladder)

    async def begin(self, run: Run, session: Session, message: Message | None) -> Session:
        """Store that the run began, with its prompt, before anybody is told; settle what was in flight."""
        said = run.added(message) if message else None
        try:
            check_prompt(run.room.budget, said)
            begun, pending = await self._begun(run, session, said)
        finally:
            await run.watch.say(RunStartedShown(model=self.agent.model.name))
        await run.show(begun)
        session = await settle(run, begun.session, pending) if pending else begun.session
        return await run.record(session, said) if said and pending else session

    async def _begun(
        self, run: Run, session: Session, said: MessageAdded | None
    ) -> tuple[Stored, Sequence[ToolCall]]:
        """The run's first records stored, and the calls in flight.

        A run that was put out may have written until now; then they are written behind what it wrote.
        """
        while True:
            step = next_step(session.context.messages)
            pending = step.calls if isinstance(step, RunTools) else ()
            try:
                return await run.stored(session, *self._first(run, session, said, pending)), pending
            except (ConflictError, TakenOverError):
                now = await session.reload()
                is_there = 0 < session.context.length < now.context.length
                if not (is_there and run.hold and await run.hold.is_sure()):
                    raise
                session = now

    def _first(
        self, run: Run, session: Session, said: MessageAdded | None, pending: Sequence[ToolCall]
    ) -> Iterator[Event]:
        """That the run began; a prompt follows the results of calls in flight."""
        yield RunStarted(run_id=run.id, model=self.agent.model.name)
        yield from first_description(
            session,
            said.message if said else None,
            folder=self.folder,
            owner=self.owner,
            ttl_seconds=self.ttl_seconds,
        )
        if said and not pending:
            yield said

    def learn(self, run: Run) -> None:
        """Keep what this run learnt of the server for the next one."""
        self.learnt.budget = self._first_budget().keeping(run.room.budget)

    async def _ask_windows(self) -> None:
        """Let models whose window nobody knows ask their servers, before it is first reckoned with."""
        if self.learnt.budget is None:
            for model in self.models:
                if model.window is None and isinstance(model, AsksWindow):
                    await model.ask_window()

    def _first_budget(self) -> Budget:
        """What the next run begins with; made when first asked for, since counting loads a vocabulary."""
        if self.learnt.budget is None:
            agent = self.agent
            self.learnt.budget = Budget.of(agent.model, agent.instructions, agent.schemas, self.counter)
        return self.learnt.budget
