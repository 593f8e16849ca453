"""What one run carries along: its agent, its context's keeper, its emitter, its session as last stored."""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from agentloop import compaction
from agentloop._plumbing.aio import to_its_end
from agentloop._plumbing.host_logging import warn
from agentloop.approvals import Answers, Pending, Reject
from agentloop.callbacks import Deny
from agentloop.context import Budget, TokenCounter, count_message
from agentloop.emitter import Emitter, Sink, drop_event
from agentloop.errors import TakenOverError, ToolDefinitionError
from agentloop.events import Event, MessageRecord, RunEndRecord
from agentloop.messages import CallIds, Message, SeenMessage, ToolCall, Usage
from agentloop.models import Answer, AsksWindow
from agentloop.prompts import DENIED, LIMIT_BEFORE_CALL, NEEDS_YES
from agentloop.run.agent import Agent, ContextOfRun
from agentloop.run.config import RunConfig
from agentloop.run.limits import Limits, Spending
from agentloop.sessions import (
    Holder,
    Rebase,
    Session,
    SessionMedia,
    append_rebased,
    has_begun,
    rebase_beside,
)
from agentloop.stream import (
    LimitName,
    MessageAdded,
    RunEnded,
    RunStatus,
    ToolProgress,
)
from agentloop.tools import RunContext, RunThread, ToolAnswer, ToolRegistry, put_away_by


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A session with what a run has just stored, and its messages in that, which nobody has seen yet."""

    session: Session
    unshown: tuple[MessageAdded, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInput:
    """What a caller gives to one run, which begins with its `message`, or goes on where that is None.

    With `earlier` it is in a new session that begins with these. `sink` takes its events. `parent` is what
    the run has used that calls this one as a sub-agent. `answers` are given to calls that wait for a yes, its
    own and those of its sub-agents.
    """

    session_id: str
    message: Message | None = None
    earlier: Sequence[Event] = ()
    sink: Sink = drop_event
    deps: Any = None
    limits: Limits | None = None
    parent: Spending | None = None
    answers: Answers = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Run:
    """One run while it goes on; `waiting` is what waits for a yes, by the ids of this run's own calls.

    `spending` is what it has used, held against its limits. `in_vain` is how many answers in a row came to
    nothing, `session` the session as this run last stored it, None before the log knows of the run and once
    it knows of its end. `hold` is what it holds it by and lets go of at its end, `has_lapsed` says whether
    others may have had the session meanwhile: its log is then looked at before anything is written, since one
    of the same length may be another's. `rebase` says when what it writes still holds though others wrote.
    Who made the run stops its `thread`.
    """

    config: RunConfig
    input: RunInput
    keeper: "compaction.ContextKeeper"
    spending: Spending
    emitter: Emitter
    rebase: Rebase
    has_lapsed: Callable[[], Awaitable[bool]]
    in_vain: int = 0
    session: Session | None = None
    hold: Holder | None = None
    waiting: dict[str, tuple[Pending, ...]] = field(default_factory=dict)
    thread: RunThread = field(init=False)
    media: SessionMedia = field(init=False)
    _call_ids: CallIds | None = None

    def __post_init__(self) -> None:
        self.thread = RunThread(self.past_limit)
        self.media = SessionMedia(self.config.sessions.store, self.emitter.session_id)

    @classmethod
    async def of(
        cls,
        config: RunConfig,
        given: RunInput,
        *,
        has_lapsed: Callable[[], Awaitable[bool]],
        run_id: str | None = None,
        rebase: Rebase | None = None,
        hold: Holder | None = None,
    ) -> "Run":
        """A run that has not begun; by default what it writes still holds as `rebase_beside` says."""
        emitter = config.emitter(given.session_id, given.sink, run_id=run_id)
        rebase = rebase or rebase_beside(emitter.run_id)
        keeper = await config.keeper(emitter, rebase)
        spending = Spending(
            limits=given.limits or Limits(),
            model=config.agent.model,
            writer=config.agent.models[-1],
            counter=config.counter,
            outcomes=keeper.outcomes,
            parent=given.parent,
        )
        return cls(
            config=config,
            input=given,
            keeper=keeper,
            spending=spending,
            emitter=emitter,
            rebase=rebase,
            hold=hold,
            has_lapsed=has_lapsed,
        )

    @property
    def id(self) -> str:
        """The run's id."""
        return self.emitter.run_id

    @property
    def agent(self) -> Agent[Any]:
        """What runs, with the tools that its sets have now."""
        return self.config.agent

    @property
    def registry(self) -> ToolRegistry:
        """The tools that may be called."""
        return self.config.registry

    @property
    def counter(self) -> TokenCounter:
        """What counts the agent's tokens."""
        return self.spending.counter

    def past_limit(self) -> ToolAnswer | None:
        """What is said to a call that is not begun, since a limit is reached; None where it may begin."""
        limit = self.spending.limit_between_calls()
        return ToolAnswer(LIMIT_BEFORE_CALL.format(reason=limit.words), "error") if limit else None

    def spend(self, answer: Answer, counted: int) -> None:
        """Add what one request of the agent used; `counted` is its length by our own count."""
        measured = answer.usage.input_tokens if answer.usage else 0
        self.keeper.budget = self.keeper.budget.having_answered(counted, measured)
        self.spending.add(answer, counted)

    def take_tools(self) -> None:
        """Offer the tools that the agent's sets have now, where these have changed; not if they are unfit."""
        if self.agent.tools_changed == self.agent.tools_changed_now:
            return
        try:
            config = replace(self.config, agent=replace(self.agent))
        except ToolDefinitionError as error:
            warn("changed tools are not offered", error=str(error))
            return
        prefixes = self.config.prefix, config.prefix
        before, now = (Budget.of(self.agent.model, each, self.counter).fixed for each in prefixes)
        budget = self.keeper.budget
        self.keeper.budget = replace(budget, fixed=budget.fixed + now - before)
        self.config = config

    async def learn_window(self) -> None:
        """Ask the server for a window that nobody knows: some name it once they have answered."""
        model = self.agent.model
        if model.window is None and isinstance(model, AsksWindow) and (window := await model.ask_window()):
            budget = self.keeper.budget
            self.keeper.budget = replace(budget, window=min(window, budget.window))

    def call_ids(self, session: Session) -> CallIds:
        """What gives the calls of the next answer ids of their own in the session."""
        if self._call_ids is None:
            self._call_ids = CallIds(session.context.call_ids)
        return self._call_ids

    def record_of(
        self,
        message: Message,
        *,
        keep: bool = False,
        spilled: str | None = None,
        finish: str | None = None,
    ) -> MessageRecord:
        """The record of this message, redacted where that is asked for, its tokens counted."""
        message = self.emitter.hide(message)
        return MessageRecord(
            message=message,
            tokens=count_message(message, self.counter),
            run_id=self.id,
            keep=keep,
            spilled=spilled,
            finish=finish,
        )

    async def record(
        self, session: Session, *events: Event, usage: Usage | None = None, cost: float | None = None
    ) -> Session:
        """The session with these events stored, and its new messages shown.

        `usage` and `cost` are what the messages of the model took.
        """
        stored = await self.store(session, *events)
        await self.show(stored, usage=usage, cost=cost)
        return stored.session

    async def store(self, session: Session, *events: Event) -> Stored:
        """The session with these events stored, its new messages still to be shown.

        What others wrote meanwhile that begins, says and ends nothing is in it too. The first that a run
        stores is stored to its end: the log that knows of the run is to know of its end.

        Raises:
            TakenOverError: another run began on the session.
            ConflictError: somebody said something in it, or it was deleted.
        """
        storing = self._store(session, events)
        return await (to_its_end(storing) if self.session is None else storing)

    async def _store(self, session: Session, events: Sequence[Event]) -> Stored:
        self.session = session = await self._append(session, events)
        first, status = session.context.length - len(events) + 1, self.keeper.status(session.context)
        unshown = (
            MessageAdded(
                seq=seq, message=event.message, tokens=event.tokens, context=status, finish=event.finish
            )
            for seq, event in enumerate(events, first)
            if isinstance(event, MessageRecord) and event.run_id == self.id
        )
        return Stored(session=session, unshown=tuple(unshown))

    async def _append(self, session: Session, events: Sequence[Event]) -> Session:
        if await self.has_lapsed():
            await session.newer()
        return await append_rebased(session, events, self.rebase)

    async def show(self, stored: Stored, *, usage: Usage | None = None, cost: float | None = None) -> None:
        """Show the messages that are stored now; `usage` and `cost` are what those of the model took."""
        for shown in stored.unshown:
            by_model = shown.message.role == "assistant"
            await self.emitter.emit(replace(shown, usage=usage, cost=cost) if by_model else shown)

    async def end(self, status: RunStatus, reason: str | None = None) -> None:
        """Store how the run ended, where it began and its end is not stored yet; let go of the session.

        Raises:
            StoreError: it could not be stored, or another run has the session.
        """
        session, self.session = self.session, None
        try:
            if session is not None:
                usage, reason = self.spending.usage, self.emitter.hide(reason)
                ended = RunEndRecord(run_id=self.id, status=status, usage=usage, reason=reason)
                await self._append(session, [ended])
        finally:
            if self.hold is not None:
                await self.hold.free()

    def ended(
        self,
        status: RunStatus,
        *,
        output: str = "",
        error: str | None = None,
        reason: str | None = None,
        limit: LimitName | None = None,
    ) -> RunEnded:
        """The event of how the run ended; nothing is shown after it."""
        spent = self.spending
        return RunEnded(
            status=status,
            output=output,
            usage=spent.usage,
            cost=spent.cost,
            error=error,
            reason=reason,
            limit=limit,
        )

    async def put_away(self) -> None:
        """Let tool sets put away what they hold for this run, and show what they tell of it."""
        for each in self.agent.tool_sets:
            for call_id, text in (await put_away_by(each, self.emitter.session_id)).items():
                self.emitter.emit_beside(ToolProgress(call_id=call_id, text=text))

    async def check_alone(self) -> None:
        """Look whether the session is still the one that this run last stored something in, and its alone.

        Raises:
            TakenOverError: another run has begun on it since.
            ConflictError: it was deleted; `BegunAnewError` where its id is another's now.
            StoreError: the log could not be read.
        """
        session = self.session
        if session is not None and has_begun(await session.newer(), other_than=self.id):
            raise TakenOverError(session.id)

    async def call_tool(
        self, call: ToolCall, context: RunContext[Any], *, cleared: bool = False
    ) -> ToolAnswer:
        """What comes of a call that the model or a tool makes, with the callbacks before and after it.

        One that needs a yes is run where it is `cleared`, and as it is: no callback may change it then.
        """
        async with self.emitter.around("tool", call.name, call) as outcome:
            outcome.value = answer = await self._call_allowed(call, context, cleared)
        return answer

    async def _call_allowed(self, call: ToolCall, context: RunContext[Any], cleared: bool) -> ToolAnswer:
        callbacks = self.emitter.callback_list
        allowed = await callbacks.before_tool(call)
        if isinstance(allowed, Deny):
            return ToolAnswer(allowed.reason, "error")
        is_cleared = cleared and allowed == call
        registry = self.registry
        needs = registry.denied(allowed) if is_cleared else await registry.needs_approval(allowed, context)
        if isinstance(needs, Reject):
            return ToolAnswer(DENIED.format(reason=needs.reason), "error")
        if needs:
            return ToolAnswer(NEEDS_YES.format(name=call.name), "error")
        answer = await registry.answer(allowed, context, self.thread)
        if not self.emitter.callbacks or answer.pending:
            return answer
        return replace(answer, text=await callbacks.after_tool(allowed, self.emitter.hide(answer.text)))

    @contextlib.contextmanager
    def context_for(self, session: Session, call_id: str) -> Iterator[RunContext[Any]]:
        """What a tool may know of this run; its progress is shown from whatever thread it speaks in.

        `session` is what it may read. What a tool left behind says after the block is dropped.
        """
        loop, under_way = asyncio.get_running_loop(), True

        def say(text: str) -> None:
            if under_way:
                self.emitter.emit_beside(ToolProgress(call_id=call_id, text=text))

        def progress(text: str) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody watches any more
                loop.call_soon_threadsafe(say, text)

        async def said() -> Sequence[SeenMessage]:
            return (await session.whole()).context.seen()

        async def call_tool(name: str, arguments: Mapping[str, Any]) -> ToolAnswer:
            try:
                text = json.dumps(arguments)
            except (TypeError, ValueError, RecursionError) as error:
                return ToolAnswer(f"{name} was not called, since its arguments are no JSON: {error}", "error")
            called = ToolCall(id=call_id, name=name, arguments=text)
            return await self.call_tool(called, context)

        try:
            context = ContextOfRun(
                session_id=self.emitter.session_id,
                run_id=self.id,
                call_id=call_id,
                deps=self.input.deps,
                usage=self.spending.usage,
                on_progress=progress,
                redact=self.emitter.hide,
                said=said,
                call_tool=call_tool,
                run_agent=partial(self.config.run_sub_agent, self, call_id),
            )
            yield context
        finally:
            under_way = False
