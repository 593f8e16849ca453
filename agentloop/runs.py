"""One run of a runner, from the lease on its session to its end in the log."""

import asyncio
import contextlib
from typing import Any

from agentloop._plumbing.aio import is_leaked, to_its_end
from agentloop._plumbing.to_text import told_by
from agentloop.beginnings import begin
from agentloop.context import arranged
from agentloop.emitter import Sink
from agentloop.errors import AgentLoopError, SessionNotFoundError, StoreError, UsageError
from agentloop.limits import Limits, check_priced, limited
from agentloop.loop import Ended, loop
from agentloop.messages import Message
from agentloop.redaction import redact_error, redacted
from agentloop.results import RunResult, status_of, unasked
from agentloop.run import Run
from agentloop.sessions import Hold, Session, check_free, check_seen
from agentloop.setting import Setting


async def one_run(
    setting: Setting,
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
    limits = limited(limits, setting.agent.max_steps)
    check_priced(limits, *setting.agent.models)
    await _admit(setting, message, session_id)
    async with setting.leases.held(session_id, setting.store) as hold:
        await _admit(setting, message, session_id)  # it may have been begun while this run waited
        session = await _opened(setting, message, session_id)
        run = await setting.new_run(session_id, sink, hold=hold, deps=deps, limits=limits)
        run.has_lapsed = hold.has_lapsed
        ended = await _ended(setting, run, hold, session, message)
    output = redacted(ended.output, setting.redact)
    await run.show_end(ended.status, output=output, error=ended.reason)
    return _result(run, ended, output)


async def _ended(setting: Setting, run: Run, hold: Hold, session: Session, message: Message | None) -> Ended:
    try:
        with hold.working(run.check_alone):
            ended = await loop(run, await begin(setting, run, session, message))
        await to_its_end(run.end(ended.status, ended.reason))
    except BaseException as error:  # a cancellation, too, is an end that the log tells; raised again
        if is_leaked(error):
            failure = unasked(error)
            await to_its_end(_fail(run, failure))
            raise failure from error
        await to_its_end(_fail(run, error))
        raise
    finally:
        setting.learn(run)
    return ended


async def _admit(setting: Setting, message: Message | None, session_id: str) -> None:
    check = check_seen if message is None else check_free
    await check(session_id, setting.store, setting.owner)


async def _opened(setting: Setting, message: Message | None, session_id: str) -> Session:
    session = await Session.open(session_id, setting.store)
    if message is None and not session.context.length:
        raise SessionNotFoundError(f"there is no session {session_id!r}")
    if message is None and not session.context.said:
        raise UsageError(f"nobody has said anything in session {session_id!r} yet: give a prompt")
    return session


async def _fail(run: Run, error: BaseException) -> None:
    """Note in the log how the run ended, where it began there and the log still takes it; show it."""
    status = status_of(error)
    redact_error(error, run.watch.redact)
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
        session_id=run.watch.session_id,
        run_id=run.id,
        usage=run.spending.usage,
        cost=run.spending.cost,
        messages=tuple(arranged(ended.session.context.messages)),
        compactions=tuple(run.room.ladder.outcomes),
        reason=ended.reason,
    )
