"""Whether a call may run: what was asked and answered of it, who is asked now, what waits."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from agentloop._plumbing.aio import said_by
from agentloop._plumbing.checks import shown
from agentloop._plumbing.to_text import error_text, raised_at
from agentloop.approvals import ApprovalReply, Approvals, Approve, Pending, Reject, answer_record
from agentloop.context import Entry, calls_of, next_step
from agentloop.errors import UsageError
from agentloop.events import ApprovalAnswered, ApprovalAsked, Event
from agentloop.messages import ToolCall
from agentloop.prompts import DENIED, REJECTED
from agentloop.run.state import Run
from agentloop.sessions import Session, Sessions, branch_in
from agentloop.stream import ApprovalGiven, ApprovalNeeded, CallbackFailed
from agentloop.tools import RunContext, ToolAnswer, object_of

Write = Callable[[Event], Awaitable[None]]
"""Puts a record into the log."""


async def cleared(
    run: Run, session: Session, call: ToolCall, context: RunContext[Any], write: Write
) -> ToolCall | ToolAnswer | Pending:
    """The call as it may be run, or what is answered instead, or that it waits for a yes.

    What is asked and answered now is written before anything else comes of it.
    """
    known = await _known_of(run, session, call)
    answered, asked = known.answered.get(call.id), known.asked.get(call.id)
    if answered is None:
        needs = asked is not None or await _needs_yes(run, call, context)
        if isinstance(needs, Reject):
            return ToolAnswer(DENIED.format(reason=needs.reason), "error")
        if not needs:
            return call
        pending = pending_of(run.emitter.session_id, call)
        if asked is None:
            await write(
                ApprovalAsked(run_id=run.id, call_id=call.id, tool=call.name, arguments=call.arguments)
            )
        await run.emitter.emit(ApprovalNeeded(call_id=call.id, name=call.name, arguments=call.arguments))
        reply = await _asked_now(run, pending)
        if reply is None:
            return pending
        answered = answer_record(run.id, call, reply)
        await write(answered)
    if answered.run_id == run.id:
        await run.emitter.emit(_given(call, answered))
    match answered.verdict:
        case "approved":
            return replace(call, arguments=answered.arguments)
        case "rejected":
            return ToolAnswer(REJECTED.format(reason=answered.text), "error")
        case "responded":
            return ToolAnswer(answered.text, "ok")


def _given(call: ToolCall, answered: ApprovalAnswered) -> ApprovalGiven:
    """The event that tells of an answer."""
    return ApprovalGiven(
        call_id=call.id, name=call.name, verdict=answered.verdict, text=answered.text, by=answered.by
    )


async def approvals_in(session: Session) -> Approvals:
    """What was asked and answered of the newest calls."""
    asking = _asking(session)
    return Approvals.of(await session.since(asking.seq)) if asking else Approvals()


async def waiting_in(sessions: Sessions, session: Session) -> dict[str, tuple[Session, ToolCall]]:
    """The calls of the session and of its sub-agents that wait for a yes, by what answers are given under."""
    if not (calls := calls_of(next_step(session.context.messages))):
        return {}
    logs, waiting = [session], dict[str, tuple[Session, ToolCall]]()
    if branch_in(session.id) is None:
        lines = await sessions.store.list(branches_of=session.id)
        logs += [await sessions.open(line.id) for line in sorted(lines, key=lambda line: line.created)]
    for log in logs:
        calls = calls_of(next_step(log.context.messages))
        known = await approvals_in(log) if calls else Approvals()
        for call in filter(known.waits, calls):
            waiting[pending_of(log.id, call).call_id] = log, call
    return waiting


async def answers_to(run: Run, session: Session, calls: Sequence[ToolCall]) -> list[ApprovalAnswered]:
    """What is recorded of the answers that the run was given to these calls of the session."""
    if not run.answers:
        return []
    waits = filter((await approvals_in(session)).waits, calls)
    keys = ((call, pending_of(session.id, call).call_id) for call in waits)
    return [answer_record(run.id, call, run.answers[key]) for call, key in keys if key in run.answers]


async def check_answers(run: Run, session: Session) -> None:
    """Refuse answers to what does not wait, and a yes to what could not be run, before anything is stored.

    Raises:
        UsageError: see there.
    """
    waiting = await waiting_in(run.sessions, session) if run.answers else {}
    for key, reply in run.answers.items():
        if key not in waiting:
            what = f"what waits is {', '.join(waiting)}" if waiting else "nothing waits there"
            raise UsageError(f"no call {key!r} waits for an answer in session {session.id!r}: {what}")
        log, call = waiting[key]
        if log.id == session.id and isinstance(reply, Approve):
            _check_runs(run, session, call, reply)


def _check_runs(run: Run, session: Session, call: ToolCall, reply: Approve) -> None:
    tool = run.registry.get(call.name)
    if tool is None or tool.signature is None:
        raise UsageError(f"the agent has no tool {call.name!r}, which call {call.id!r} is for: give it one")
    arguments = object_of(call.arguments) if reply.arguments is None else dict(reply.arguments)
    with run.context_for(session, call.id) as context:
        try:
            tool.signature.bind(context, arguments)
        except Exception as error:
            raise UsageError(f"{call.name} cannot be called so: {error_text(error)}") from error


def _asking(session: Session) -> Entry | None:
    return next((entry for entry in reversed(session.context.visible) if entry.message.tool_calls), None)


async def _known_of(run: Run, session: Session, call: ToolCall) -> Approvals:
    """The same as `approvals_in`; not read where this run made a call that needs no yes."""
    asking, is_free = _asking(session), not run.registry.may_need_approval(call.name)
    return Approvals() if asking and asking.run_id == run.id and is_free else await approvals_in(session)


async def _needs_yes(run: Run, call: ToolCall, context: RunContext[Any]) -> bool | Reject:
    """Whether somebody is to be asked; not of a call whose arguments do not fit, which is not run."""
    needs, tool = await run.registry.needs_approval(call, context), run.registry.get(call.name)
    if needs is not True or tool is None or tool.signature is None:
        return needs
    try:
        tool.signature.bind(context, object_of(call.arguments))
    except Exception:  # noqa: BLE001 — a validator of the tool's author may raise anything
        return False
    return True


async def _asked_now(run: Run, pending: Pending) -> ApprovalReply | None:
    """What the approver says; None where there is none, where nobody can say, and where asking fails."""
    asks = run.approver
    if asks is None:
        return None
    try:
        reply: object = await said_by(asks, pending)
    except Exception as error:  # noqa: BLE001 — an approver is a user's code
        await _failed(run, error_text(error), raised_at(error))
        return None
    if reply is None or isinstance(reply, ApprovalReply):
        return reply
    await _failed(run, f"returned {shown(reply)}: return Approve(…), Reject(…), Respond(…) or None")
    return None


async def _failed(run: Run, error: str, where: str = "") -> None:
    failed = CallbackFailed(callback="approver", point="approver", error=error, where=where)
    await run.emitter.callback_list.failed(failed)


def pending_of(session_id: str, call: ToolCall) -> Pending:
    """The call as it is shown to whoever is to say yes."""
    branch = branch_in(session_id)
    return Pending(
        call_id=f"{branch}/{call.id}" if branch else call.id,
        tool=call.name,
        arguments=object_of(call.arguments),
        session_id=session_id,
    )
