"""The runner: opens a session, adds the prompt, runs the loop, and shows what happens."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from agentloop.agent import Agent
from agentloop.answering import settle
from agentloop.budget import Budget, default_reserve
from agentloop.callbacks import Callbacks, CompactionResult
from agentloop.compaction import Compaction
from agentloop.compactor import Compactor
from agentloop.errors import (
    AgentLoopError,
    ContextOverflowError,
    ContextTooLongError,
    ModelUnavailableError,
    SessionNotFoundError,
    StoreError,
    UsageError,
)
from agentloop.events import Described, Event, Restored, RunEnded, RunStarted
from agentloop.ladder import Ladder
from agentloop.loop import loop
from agentloop.messages import Message, Usage
from agentloop.room import Room
from agentloop.run import Run
from agentloop.sessions import Session
from agentloop.steps import RunTools, next_step
from agentloop.stores import open_store
from agentloop.stores.base import SessionStore
from agentloop.stream import AnyStreamEvent, ContextStatus
from agentloop.stream import RunEnded as RunEndedShown
from agentloop.stream import RunStarted as RunStartedShown
from agentloop.threads import to_its_end
from agentloop.tokens import REQUEST_OVERHEAD, TokenCounter, count_message, count_tools, counter_for
from agentloop.watch import CALLBACK_SECONDS, Sink, Watch
from agentloop.wire import arranged

DEFAULT_WINDOW = 128_000
"""The window of a model that names none, until its server says otherwise."""

MOST_TITLE_CHARS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What a run came to.

    `status` is a word of the exit table: `answered`, or `limit` where a limit ended it. `messages` is what
    the model sees at the end; the whole history stands in the log. `cost` is in US dollars, None where no
    price is known.
    """

    output: str
    status: str
    session_id: str
    run_id: str
    usage: Usage
    cost: float | None
    messages: tuple[Message, ...]
    compactions: tuple[CompactionResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPreview:
    """What a compaction asked for now would cover: positions, messages, and tokens by our count."""

    first: int
    last: int
    messages: int
    tokens: int
    context: ContextStatus


class Runner:
    """Runs an agent on sessions.

    `store` is a store or a URL (`memory:`, `sqlite:///sessions.db`); `transcripts` is the folder of the
    transcripts and of results too long to show, None for none; `folder` marks new sessions as belonging to
    a folder. A callback may take `callback_seconds`.
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
    ) -> None:
        self.agent = agent
        self.store = open_store(store)
        self._callbacks = tuple(callbacks)
        self._transcripts = None if transcripts is None else Path(transcripts)
        self._folder = folder
        self._callback_seconds = callback_seconds
        self._counter = counter_for(agent.model.name)
        self._learnt: Budget | None = None

    async def run(
        self, prompt: str | Message, *, session_id: str | None = None, deps: Any = None
    ) -> RunResult:
        """Say `prompt` in the session, a new one where no id is given, and run to the answer.

        Raises:
            UsageError: the prompt is empty or the id not allowed; nothing was stored.
            ContextOverflowError: the context cannot be made to fit.
            ModelError: the model gave no answer.
            StoreError: the session could not be read or written.
        """
        return await self._run(prompt, session_id or _new_session_id(), deps, _unseen)

    async def resume(self, session_id: str, *, deps: Any = None) -> RunResult:
        """Go on with a run that was interrupted; no finished tool runs again.

        A session whose last run was answered gives that answer again.

        Raises:
            SessionNotFoundError: there is no such session.
        """
        return await self._run(None, session_id, deps, _unseen)

    async def stream(
        self, prompt: str | Message | None, *, session_id: str | None = None, deps: Any = None
    ) -> AsyncGenerator[AnyStreamEvent, None]:
        """The same as `run`, or as `resume` for None, event by event; closing it cancels the run.

        The last event is `RunEnded`; where the run failed, the error is raised after it.
        """
        events: asyncio.Queue[AnyStreamEvent | None] = asyncio.Queue()
        work = self._run(prompt, session_id or _new_session_id(), deps, events.put_nowait)
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
        run = self._new_run(session_id, None, _unseen)
        _, result = await run.room.requested(session, reason="manual", why="asked for", focus=focus)
        return result

    async def preview(self, session_id: str) -> CompactionPreview | None:
        """What `compact` would cover; None where there is nothing to compact.

        Raises:
            SessionNotFoundError: there is no such session.
        """
        session = await self._existing(session_id)
        room = self._new_run(session_id, None, _unseen).room
        plan = room.preview(session.context)
        if plan is None:
            return None
        covers = plan.covers(session.context)
        return CompactionPreview(
            first=covers[0][0],
            last=covers[-1][1],
            messages=len(plan.entries),
            tokens=plan.tokens,
            context=room.status(session.context),
        )

    async def undo(self, session_id: str) -> int | None:
        """Take the newest compaction back; its position, or None where there is none to take back.

        Raises:
            SessionNotFoundError: there is no such session.
        """
        session = await self._existing(session_id)
        if not session.context.compactions:
            return None
        seq = session.context.compactions[-1][0]
        await session.append(Restored(seq=seq))
        return seq

    async def status(self, session_id: str) -> ContextStatus:
        """How full the window is with this session."""
        session = await Session.open(session_id, self.store)
        return self._new_run(session_id, None, _unseen).room.status(session.context)

    async def close(self) -> None:
        """Close the store."""
        await self.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _run(self, prompt: str | Message | None, session_id: str, deps: Any, sink: Sink) -> RunResult:
        message = None if prompt is None else _spoken(prompt)
        session = await (Session.open(session_id, self.store) if message else self._existing(session_id))
        run = self._new_run(session_id, deps, sink)
        try:
            ended = await loop(run, await self._begin(run, session, message))
        except BaseException as error:
            await to_its_end(self._fail(run, error))
            raise
        finally:
            self._learnt = run.room.budget
        session = await ended.session.append(_ended(run, ended.status))
        await self._show_end(run, ended.status, output=ended.output, error=ended.reason)
        return RunResult(
            output=ended.output,
            status=ended.status,
            session_id=session_id,
            run_id=run.id,
            usage=run.usage,
            cost=run.cost,
            messages=tuple(arranged(session.context.messages)),
            compactions=tuple(run.room.ladder.done),
        )

    async def _begin(self, run: Run, session: Session, message: Message | None) -> Session:
        """Settle what was in flight, then say the prompt."""
        await run.watch.say(RunStartedShown, model=self.agent.model.name)
        check_prompt_fits(run.room.budget, message, self._counter)
        run.begun = True
        step = next_step(session.context.messages)
        if isinstance(step, RunTools):
            session = await settle(run, session, step.calls)
        began = RunStarted(run_id=run.id, model=self.agent.model.name)
        if message is None:
            return await session.append(began)
        said = run.added(message)
        session = await session.append(began, *self._described(session, message), said)
        await run.show(session, said)
        return session

    def _described(self, session: Session, message: Message) -> tuple[Event, ...]:
        if session.context.said:
            return ()
        title = " ".join(message.text.split())[:MOST_TITLE_CHARS]
        return (Described(title=title or None, folder=self._folder),)

    async def _fail(self, run: Run, error: BaseException) -> None:
        """Note in the log how the run ended, where it began there and the log still takes it; show it."""
        status = status_of(error)
        if run.begun and not isinstance(error, StoreError):
            with contextlib.suppress(AgentLoopError):
                session = await Session.open(run.watch.session_id, self.store)
                await session.append(_ended(run, status))
        text = str(error) or type(error).__name__
        await self._show_end(run, status, output="", error="cancelled" if status == "interrupted" else text)

    async def _show_end(self, run: Run, status: str, *, output: str, error: str | None) -> None:
        await run.watch.say(
            RunEndedShown, status=status, output=output, usage=run.usage, cost=run.cost, error=error
        )

    async def _existing(self, session_id: str) -> Session:
        session = await Session.open(session_id, self.store)
        if not session.context.length:
            raise SessionNotFoundError(f"there is no session {session_id!r}")
        return session

    def _new_run(self, session_id: str, deps: Any, sink: Sink) -> Run:
        watch = Watch(session_id, uuid.uuid4().hex, sink, self._callbacks, self._callback_seconds)
        compactor = Compactor(counter=self._counter, transcripts=self._transcripts, watch=watch)
        policy, model = self.agent.compaction, self.agent.model
        ladder = Ladder(policy=policy or Compaction(), model=model, compactor=compactor)
        return Run(
            agent=self.agent,
            room=Room(policy=policy, budget=self._budget(), ladder=ladder),
            watch=watch,
            counter=self._counter,
            spills=self._transcripts,
            deps=deps,
        )

    def _budget(self) -> Budget:
        if self._learnt is not None:
            return self._learnt
        model = self.agent.model
        window = model.window or DEFAULT_WINDOW
        instructions = self.agent.instructions
        system = (
            count_message(Message(role="system", content=instructions), self._counter) if instructions else 0
        )
        return Budget(
            window=window,
            reserve=default_reserve(window, model.max_output_tokens),
            fixed=REQUEST_OVERHEAD + system + count_tools(self.agent.schemas, self._counter),
            model=model.name,
        )


def status_of(error: BaseException) -> str:
    """The word of the exit table for what ended a run."""
    match error:
        case asyncio.CancelledError() | KeyboardInterrupt():
            return "interrupted"
        case UsageError():
            return "usage"
        case ContextOverflowError() | ContextTooLongError():
            return "too_large"
        case ModelUnavailableError():
            return "try_later"
    return "failed"


def check_prompt_fits(budget: Budget, message: Message | None, counter: TokenCounter) -> None:
    """Refuse what can never fit before anything is stored.

    Raises:
        ContextOverflowError: the fixed part, or it together with the prompt, is larger than the window.
    """
    said = count_message(message, counter) if message else 0
    if budget.fixed + said <= budget.limit:
        return
    if budget.fixed > budget.limit:
        text = f"instructions and tool schemas take {budget.fixed:,} tokens"
    else:
        text = f"the prompt has {said:,} tokens beside {budget.fixed:,} of instructions and tool schemas"
    raise ContextOverflowError(
        f"{text}, and the window of {budget.window:,} leaves {budget.limit:,}: "
        "shorten it, or use a larger window",
        tokens=budget.fixed + said,
        window=budget.window,
    )


def _spoken(prompt: str | Message) -> Message:
    message = prompt if isinstance(prompt, Message) else Message.user(prompt)
    if message.role != "user" or not (message.text.strip() or isinstance(message.content, tuple)):
        raise UsageError("the prompt is empty: say what is to be done")
    return message


def _ended(run: Run, status: str) -> RunEnded:
    return RunEnded(run_id=run.id, status=status, usage=run.usage)


def _new_session_id() -> str:
    return uuid.uuid4().hex[:12]


def _unseen(event: AnyStreamEvent) -> None:
    """Nobody watches."""
