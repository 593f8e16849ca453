"""From the lease to the end in the log."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

from agentloop._plumbing.aio import is_leaked, to_its_end
from agentloop._plumbing.to_text import told_by
from agentloop.context import RunTools, arranged, next_step
from agentloop.emitter import Sink
from agentloop.errors import (
    AgentLoopError,
    ConflictError,
    SessionNotFoundError,
    StoreError,
    TakenOverError,
    UsageError,
)
from agentloop.events import Described, Event, MessageRecord, RunStartRecord
from agentloop.messages import Message, ToolCall
from agentloop.redaction import redact_error, redacted
from agentloop.results import RunResult, status_of, unasked
from agentloop.run.config import RunConfig, check_prompt, title_of
from agentloop.run.limits import Limits, check_priced, limited
from agentloop.run.loop import Ended, loop
from agentloop.run.state import Run, Stored
from agentloop.run.tool_step import settle
from agentloop.sessions import Holder, Session, check_free, check_seen
from agentloop.stream import RunStarted


async def start_run(config: RunConfig, run: Run, session: Session, message: Message | None) -> Session:
    """Store that the run began, with its prompt, before anybody is told; settle what was in flight.

    A prompt follows the results of calls in flight. Until it does it stands in the record of the run's
    beginning, so it is kept however long they take, and whoever goes on says it.

    Raises:
        ContextOverflowError: the prompt can never fit; nothing is stored.
        StoreError: it could not be stored, or another run has the session.
    """
    said = run.added(message) if message else None
    try:
        check_prompt(run.keeper.budget, said)
        begun, pending = await _begun(config, run, session, said)
    finally:
        await run.emitter.emit(RunStarted(model=config.agent.model.name))
    await run.show(begun)
    return await settle_and_say(run, begun.session) if pending else begun.session


async def settle_and_say(run: Run, session: Session, *more: Message) -> Session:
    """The session with calls answered that were in flight, and with what was to be said behind their results.

    What `more` there is to be said follows in the same write.

    Raises:
        StoreError: it could not be read or written, or another run has the session.
    """
    if calls := _in_flight(session):
        session = await settle(run, session, calls)
    unsaid = [run.added(message) for message in (*await _unsaid(session), *more)]
    return await run.record(session, *unsaid) if unsaid else session


async def _begun(
    config: RunConfig, run: Run, session: Session, said: MessageRecord | None
) -> tuple[Stored, Sequence[ToolCall]]:
    """The run's first records stored, and the calls in flight.

    A run that was put out may have written until now; then they are written behind what it wrote.
    """
    while True:
        calls = _in_flight(session)
        try:
            first = await _first(config, run, session, said, calls)
            return await run.stored(session, *first), calls
        except (ConflictError, TakenOverError):
            now = await session.reload()
            is_there = 0 < session.context.length < now.context.length
            if not (is_there and run.hold and await run.hold.is_sure()):
                raise
            session = now


async def _first(
    config: RunConfig, run: Run, session: Session, said: MessageRecord | None, calls: Sequence[ToolCall]
) -> Sequence[Event]:
    """The records that a run begins with; a prompt follows the results of these calls."""
    prompt = said.message if said and calls else None
    began: list[Event] = [RunStartRecord(run_id=run.id, model=config.agent.model.name, prompt=prompt)]
    if said and not session.context.said:
        began.append(_first_description(config, said.message))
    if calls:
        return began
    earlier = [run.added(message) for message in await _unsaid(session)]
    return [*began, *earlier, said] if said else [*began, *earlier]


def _in_flight(session: Session) -> tuple[ToolCall, ...]:
    step = next_step(session.context.messages)
    return step.calls if isinstance(step, RunTools) else ()


async def _unsaid(session: Session) -> tuple[Message, ...]:
    """The prompts of runs that ended before the results which they were to follow were there."""
    newest = next(
        (entry for entry in reversed(session.context.visible) if entry.message.role != "tool"), None
    )
    if newest is None or not newest.message.tool_calls:
        return ()
    records = await session.store.read(session.id, after=newest.seq, most=session.context.length - newest.seq)
    began = [record.event for record in records if isinstance(record.event, RunStartRecord)]
    return tuple(event.prompt for event in began if event.prompt)


def _first_description(config: RunConfig, message: Message) -> Described:
    """What a session that begins with this message is called, and whose it is."""
    title = title_of(message) or None
    return Described(title=title, folder=config.folder, owner=config.owner, ttl_seconds=config.ttl_seconds)


async def execute_run(
    config: RunConfig,
    message: Message | None,
    session_id: str,
    *,
    sink: Sink,
    deps: Any = None,
    limits: Limits | None = None,
) -> RunResult:
    """Run the session to its answer or to a limit, with this message or from where it stands.

    The session is let go of before anybody is told the end, so that who hears of it may go on with it.

    Raises:
        AgentLoopError: see `Runner.run` and `Runner.resume`.
    """
    limits = limited(limits, config.agent.max_steps)
    check_priced(limits, *config.agent.models)
    await _admit(config, message, session_id)
    async with config.leases.held(session_id, config.store) as hold:
        await _admit(config, message, session_id)  # it may have been begun while this run waited
        session = await _opened(config, message, session_id)
        run = await config.new_run(session_id, sink, hold=hold, deps=deps, limits=limits)
        run.has_lapsed = hold.has_lapsed
        ended = await _ended(config, run, hold, session, message)
    output = redacted(ended.output, config.redact)
    await run.show_end(ended.status, output=output, error=ended.reason)
    return _result(run, ended, output)


async def _ended(
    config: RunConfig, run: Run, hold: Holder, session: Session, message: Message | None
) -> Ended:
    try:
        with hold.working(run.check_alone):
            ended = await loop(run, await start_run(config, run, session, message))
        await to_its_end(run.end(ended.status, ended.reason))
    except BaseException as error:  # a cancellation, too, is an end that the log tells; raised again
        if is_leaked(error):
            failure = unasked(error)
            await to_its_end(_fail(run, failure))
            raise failure from error
        await to_its_end(_fail(run, error))
        raise
    finally:
        config.learn(run)
    return ended


async def _admit(config: RunConfig, message: Message | None, session_id: str) -> None:
    check = check_seen if message is None else check_free
    await check(session_id, config.store, config.owner)


async def _opened(config: RunConfig, message: Message | None, session_id: str) -> Session:
    session = await Session.open(session_id, config.store)
    if message is None and not session.context.length:
        raise SessionNotFoundError(f"there is no session {session_id!r}")
    if message is None and not session.context.said:
        raise UsageError(f"nobody has said anything in session {session_id!r} yet: give a prompt")
    return session


async def _fail(run: Run, error: BaseException) -> None:
    """Note in the log how the run ended, where it began there and the log still takes it; show it."""
    status = status_of(error)
    redact_error(error, run.emitter.redact)
    if isinstance(error, StoreError):
        run.session = None
    with contextlib.suppress(AgentLoopError):
        await run.end(status)
    is_cancelled = isinstance(error, asyncio.CancelledError | KeyboardInterrupt)
    text = "cancelled" if is_cancelled else told_by(error)
    await run.show_end(status, error=text)


def _result(run: Run, ended: Ended, output: str) -> RunResult:
    return RunResult(
        output=output,
        status=ended.status,
        session_id=run.emitter.session_id,
        run_id=run.id,
        usage=run.spending.usage,
        cost=run.spending.cost,
        messages=tuple(arranged(ended.session.context.messages)),
        compactions=tuple(run.keeper.outcomes),
        reason=ended.reason,
    )
