"""One run from the lease on its session to its end in the log.

`execute_run` is the whole of it. What each step of its loop does stands in `RunSteps`, how a run begins in
`start_run`.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agentloop._plumbing.aio import is_leaked, to_its_end
from agentloop._plumbing.to_text import error_text, words_of
from agentloop.approvals import Approvals
from agentloop.context import (
    SYSTEM_ROLES,
    AskModel,
    Context,
    Finish,
    RunTools,
    Step,
    arranged,
    calls_of,
    cut_short_by,
    newest_exchange,
    next_step,
    partial_answer,
)
from agentloop.errors import (
    AgentLoopError,
    ConflictError,
    OutputError,
    SessionNotFoundError,
    StoreError,
    TakenOverError,
    UsageError,
)
from agentloop.events import Event, MessageRecord, Record, RunStartRecord
from agentloop.messages import Message, ToolCall
from agentloop.models import TellsMedia
from agentloop.results import RunResult, as_run_failure, status_of
from agentloop.run.approval import answers_to, approvals_in, check_answers, in_flight
from agentloop.run.config import RunConfig
from agentloop.run.limits import ReachedLimit, check_priced, with_step_limit
from agentloop.run.loop import NextStep, loop
from agentloop.run.model_step import ask_model
from agentloop.run.state import Run, RunInput, Stored
from agentloop.run.tool_step import run_tools, settle
from agentloop.sessions import Holder, Session, Sessions, branch_in, title_of
from agentloop.stream import LimitName, RunEnded, RunStarted, RunStatus


async def execute_run(config: RunConfig, given: RunInput) -> RunResult[Any]:
    """Run the session to its answer or to a limit, with the message given or from where it stands.

    The session is let go of before anybody is told the end, so that who hears of it may go on with it.

    Raises:
        AgentLoopError: see `Runner.run` and `Runner.resume`.
    """
    limits = with_step_limit(given.limits, config.agent.max_steps)
    check_priced(limits, *config.agent.all_models)
    await _admit(config.sessions, given)
    finished: tuple[Run, Ended] | None = None
    try:
        async with config.sessions.held(given.session_id) as hold:
            finished = run, ended = await _run_held(config, replace(given, limits=limits), hold)
    except asyncio.CancelledError:
        if finished is not None:  # it ended in order, and whoever hears of it hears so
            await to_its_end(run.emitter.emit(_end_of(*finished)))
        raise
    await run.emitter.emit(_end_of(run, ended))
    return _result(run, ended)


async def _run_held(config: RunConfig, given: RunInput, hold: Holder) -> tuple[Run, "Ended"]:
    """The run, and how it ended in order, while the session is held; any other end is told here."""
    await _admit(config.sessions, given)  # it may have been begun while this run waited
    session = await _open(config.sessions, given)
    run = await Run.of(config, given, hold=hold, has_lapsed=hold.has_lapsed)
    try:
        async with run.emitter.around("run", config.agent.model.name) as outcome:
            try:
                with hold.working(run.check_alone):
                    ended = await loop(RunSteps(run=run, session=session))
            finally:
                await to_its_end(run.put_away())
            await to_its_end(run.end(ended.status, ended.reason))
            outcome.value = _end_of(run, ended)
    except BaseException as error:  # a cancellation, too, is an end that the log tells; raised again
        failure = as_run_failure(error) if is_leaked(error) else error
        await to_its_end(_fail(run, failure))
        if failure is error:
            raise
        raise failure from error
    finally:
        run.thread.stop()
        config.learn(run.keeper.budget)
    return run, ended


def _end_of(run: Run, ended: "Ended") -> RunEnded:
    error, reason = ended.reason if ended.limit else None, ended.reason
    return run.ended(ended.status, output=ended.output, error=error, reason=reason, limit=ended.limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a run ended in order: `status` is `answered`, `needs_approval` or `limit`.

    `reason` and `limit` are as in `RunResult`.

    `output` is the answer as text, and `answer` as the agent's type has it, where there is none as text too.
    """

    session: Session
    status: RunStatus
    output: str
    answer: Any
    reason: str | None = None
    limit: LimitName | None = None


@dataclass(slots=True, kw_only=True)
class RunSteps:
    """The steps of a run of this process: its session is kept from one to the next."""

    run: Run
    session: Session
    _step: Step = field(default_factory=AskModel)
    _limit: ReachedLimit | None = None

    async def open(self) -> NextStep:
        """Store that the run began, and settle what was in flight."""
        return self._at(await start_run(self.run, self.session))

    async def make_room(self) -> NextStep:
        """Make the next request fit, unless a limit keeps it from being sent."""
        spending = self.run.spending
        self.run.take_tools()
        if not spending.limit_reached():
            self.session = await self.run.keeper.make_room(self.session)
        self._limit = spending.limit_reached()
        return "end" if self._limit else "ask"

    async def ask(self) -> NextStep:
        """Ask the model."""
        return self._at(await ask_model(self.run, self.session))

    async def run_tools(self) -> NextStep:
        """Run the calls side by side."""
        return self._at(await run_tools(self.run, self.session, calls_of(self._step)))

    async def end(self) -> Ended:
        """The answer, or at a limit what there is of one."""
        if isinstance(self._step, Finish):
            reason = cut_short_by(self.session.context.visible)
            answer, text = output_of(self.run, self._step)
            return Ended(session=self.session, status="answered", output=text, answer=answer, reason=reason)
        output = await self._said_so_far()
        waiting = Ended(session=self.session, status="needs_approval", output=output, answer=output)
        if self._is_waiting:
            return waiting
        limit = self._limit
        assert limit is not None, "a run ends with an answer or at a limit"
        return replace(waiting, status="limit", reason=limit.words, limit=limit.name)

    async def _said_so_far(self) -> str:
        asked = self.session.context.newest_user
        since = [record.event for record in await self.session.since(asked.seq if asked else 0)]
        said = (event for event in since if isinstance(event, MessageRecord) and event.branch is None)
        return self.run.emitter.hide(partial_answer(event.message for event in said))

    @property
    def _is_waiting(self) -> bool:
        return bool(self.run.waiting) and isinstance(self._step, RunTools)

    def _at(self, session: Session) -> NextStep:
        """What is to be done next with the session as it is now."""
        self.session, self._step = session, next_step(session.context.messages)
        match self._step:
            case Finish():
                return "end"
            case RunTools():
                return "end" if self._is_waiting else "tools"
            case AskModel():
                return "make_room"


async def start_run(run: Run, session: Session) -> Session:
    """Store that the run began, with its prompt, before anybody is told; settle what was in flight.

    A prompt follows the results of calls in flight. Until it does it stands in the record of the run's
    beginning, so it is kept however long they take, and whoever goes on says it.

    Raises:
        ContextOverflowError: the prompt can never fit; nothing is stored.
        StoreError: it could not be stored, or another run has the session.
    """
    said = run.record_of(run.input.message) if run.input.message else None
    try:
        _check_taken(run)
        _check_fits(run, said)
        if said:
            said = replace(said, message=await run.media.keep(said.message))
        kept = [await run.media.keep_in(event) for event in run.input.earlier]
        begun, known = await _store_beginning(run, session, said, kept)
    finally:
        await run.emitter.emit(RunStarted(model=run.agent.model.name))
    await run.show(begun)
    return await settle_and_say(run, begun.session, known=known) if known else begun.session


async def settle_and_say(
    run: Run, session: Session, *more: Message, known: Approvals | None = None
) -> Session:
    """The session with calls answered that were in flight, and with what was to be said behind their results.

    What `more` there is to be said follows in the same write; nothing is said while calls wait for a yes.
    `known` is what was asked and answered of them before this run gave its answers, where it was read.

    Raises:
        StoreError: it could not be read or written, or another run has the session.
    """
    if calls := in_flight(session):
        session = await settle(run, session, calls, known or await approvals_in(session))
    if run.waiting:
        return session
    unsaid = [run.record_of(await run.media.keep(each)) for each in (*await _unsaid(session), *more)]
    return await run.record(session, *unsaid) if unsaid else session


def _check_taken(run: Run) -> None:
    """Refuse an image or a file before it is stored where the model is known to take none.

    Raises:
        UsageError: it is.
    """
    model, message = run.agent.model, run.input.message
    if message and message.has_media and isinstance(model, TellsMedia) and not model.takes_media:
        raise UsageError(f"the model {model.name} takes no images and no files but texts: use another model")


def _check_fits(run: Run, said: MessageRecord | None) -> None:
    """Refuse what can never fit before anything is stored.

    Raises:
        ContextOverflowError: the fixed part, or it together with the prompt, is larger than the window.
    """
    alone = [Record(seq=1, event=said)] if said else []
    run.keeper.budget.check(Context.of(alone))


async def _store_beginning(
    run: Run, session: Session, said: MessageRecord | None, earlier: Sequence[Event]
) -> tuple[Stored, Approvals | None]:
    """The run's first records stored; what was asked and answered of calls in flight, None without any.

    A run that was put out may have written until now; then they are written behind what it wrote.
    """
    while True:
        before = await session.beginning_with(earlier) if earlier else session
        calls = in_flight(before)
        known = await approvals_in(before) if calls else Approvals()
        if branch_in(session.id) is None:
            await check_answers(run, before, known)
        try:
            answers = answers_to(run, before, calls, known)
            began = await _first_records(run, before, said, calls)
            first = [*earlier, *began, *run.emitter.hide(answers)]
            return await run.store(session, *first), known if calls else None
        except (ConflictError, TakenOverError):
            now = await session.reload()
            is_there = 0 < session.context.length < now.context.length
            if not (is_there and run.hold and await run.hold.is_sure()):
                raise
            session = now


async def _first_records(
    run: Run, session: Session, said: MessageRecord | None, calls: Sequence[ToolCall]
) -> Sequence[Event]:
    """The records that a run begins with; a prompt follows the results of these calls."""
    prompt = said.message if said and calls else None
    agent = run.agent
    start = RunStartRecord(run_id=run.id, model=agent.model.name, prompt=prompt, setup=agent.setup)
    began: list[Event] = [run.emitter.hide(start)]
    if said and not session.context.said:
        began.append(run.config.sessions.description(title_of(said.message) or None))
    if calls:
        return began
    earlier = [run.record_of(message) for message in await _unsaid(session)]
    return [*began, *earlier, said] if said else [*began, *earlier]


async def _unsaid(session: Session) -> tuple[Message, ...]:
    """The prompts of runs that ended before the results which they were to follow were there."""
    asking = newest_exchange(session.context.visible)
    began = (record.event for record in await session.since(asking.seq)) if asking else ()
    return tuple(event.prompt for event in began if isinstance(event, RunStartRecord) and event.prompt)


async def _admit(sessions: Sessions, given: RunInput) -> None:
    await (sessions.check_seen if given.message is None else sessions.check_free)(given.session_id)


async def _open(sessions: Sessions, given: RunInput) -> Session:
    session, name = await sessions.open(given.session_id), given.session_id
    if given.earlier and session.context.length:
        raise UsageError(f"a history begins a new session, and {name!r} exists: leave it out")
    if given.message is None and not session.context.length:
        raise SessionNotFoundError(f"there is no session {name!r}")
    if given.message is None and all(each.role in SYSTEM_ROLES for each in session.context.messages):
        raise UsageError(f"nobody has said anything in session {name!r} yet: give a prompt")
    return session


async def _fail(run: Run, error: BaseException) -> None:
    """Note in the log how the run ended, where it began there and the log still takes it; show it."""
    status = status_of(error)
    run.emitter.hide_in(error)
    if isinstance(error, StoreError):
        run.session = None
    with contextlib.suppress(AgentLoopError):
        await run.end(status)
    is_cancelled = isinstance(error, asyncio.CancelledError | KeyboardInterrupt)
    await run.emitter.emit(run.ended(status, error="cancelled" if is_cancelled else words_of(error)))


def output_of(run: Run, step: Finish) -> tuple[Any, str]:
    """The answer as its type has it, and as text: the JSON of a value.

    Raises:
        OutputError: it is not of the agent's type.
    """
    text, output = run.emitter.hide(step.answer), run.agent.output_type
    if output is None:
        return text, text
    try:
        value = output.read(text, step.tool)
    except Exception as error:
        raise OutputError(
            f"the answer is not of the type asked for: {error_text(error)}", text=text
        ) from error
    return value, output.dump(value)


def _result(run: Run, ended: Ended) -> RunResult[Any]:
    messages = ended.session.context.messages
    return RunResult(
        output=ended.answer,
        status=ended.status,
        session_id=run.emitter.session_id,
        run_id=run.id,
        usage=run.spending.usage,
        cost=run.spending.cost,
        messages=tuple(messages if run.waiting else arranged(messages)),
        compactions=tuple(run.keeper.outcomes),
        reason=ended.reason,
        limit=ended.limit,
        callback_failures=tuple(run.emitter.failures),
        pending=tuple(each for calls in run.waiting.values() for each in calls),
    )
