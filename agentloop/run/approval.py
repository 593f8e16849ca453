"""Whether a call may run: what was asked and answered of it, who is asked now, what waits."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentloop._plumbing.aio import call_sync_or_async
from agentloop._plumbing.checks import shown
from agentloop._plumbing.to_text import error_text, raised_at
from agentloop.approvals import (
    Answers,
    ApprovalReply,
    Approvals,
    Approve,
    Pending,
    Reject,
    answer_record,
    fingerprint_of,
)
from agentloop.context import calls_of, newest_exchange, next_step
from agentloop.errors import UsageError
from agentloop.events import ApprovalAnswered, ApprovalAsked, Event
from agentloop.messages import ToolCall
from agentloop.prompts import DENIED, OTHER_SERVER, REJECTED
from agentloop.run.state import Run
from agentloop.sessions import Session, Sessions, branch_in
from agentloop.stream import ApprovalGiven, ApprovalNeeded, CallbackFailed
from agentloop.tools import ArgumentsError, RunContext, ToolAnswer, object_of

Write = Callable[[Event], Awaitable[None]]
"""Puts a record into the log."""


async def check_approval(
    run: Run, session: Session, call: ToolCall, context: RunContext[Any], write: Write
) -> ToolCall | ToolAnswer | Pending:
    """The call as it may be run, or what is answered instead, or that it waits for a yes.

    What is asked and answered now is written before anything else comes of it.
    """
    known = await _known_of(run, session, call)
    answered, asked = known.answered.get(call.id), known.asked.get(call.id)
    if answered is None:
        if asked is None:
            needs = await _needs_yes(run, call, context)
            if isinstance(needs, Reject):
                return ToolAnswer(DENIED.format(reason=needs.reason), "error")
            if not needs:
                return call
            asked = run.emitter.hide(_asking(run, call))
            await write(asked)
        answered = await _answer_now(run, call, asked, write)
        if answered is None:
            return pending_of(run.emitter.session_id, asked)
    if answered.run_id == run.id:
        await run.emitter.emit(_given_event(call, answered))
    match answered.verdict:
        case "approved" if asked and (moved := _moved(run, asked)):
            return ToolAnswer(moved, "error")
        case "approved":
            return replace(call, arguments=answered.arguments)
        case "rejected":
            return ToolAnswer(REJECTED.format(reason=answered.text), "error")
        case "responded":
            return ToolAnswer(answered.text, "ok")


async def _answer_now(
    run: Run, call: ToolCall, asked: ApprovalAsked, write: Write
) -> ApprovalAnswered | None:
    """What the approver answers to the call, as the log then has it; None where it is to wait."""
    await run.emitter.emit(ApprovalNeeded(call_id=call.id, name=call.name, arguments=call.arguments))
    pending = pending_of(run.emitter.session_id, asked)
    reply = None if _moved(run, asked) else await _ask_now(run, pending)
    if reply is None:
        return None
    answered = answer_record(run.id, asked, reply)
    await write(run.emitter.hide(answered))
    return answered


def _asking(run: Run, call: ToolCall) -> ApprovalAsked:
    tool = run.registry.get(call.name)
    return ApprovalAsked(
        run_id=run.id,
        call_id=call.id,
        tool=call.name,
        arguments=call.arguments,
        server=tool.server if tool else "",
    )


def _moved(run: Run, asked: ApprovalAsked | Pending) -> str:
    """Why a yes is none to the tool that has this name now; empty where that is the one asked about."""
    tool = run.registry.get(asked.tool)
    if tool is None or tool.server == asked.server:
        return ""
    return OTHER_SERVER.format(asked=_owner(asked.server), now=_owner(tool.server))


def _owner(server: str) -> str:
    return f"MCP server {server!r}" if server else "the agent itself"


def _given_event(call: ToolCall, answered: ApprovalAnswered) -> ApprovalGiven:
    """The event that tells of an answer."""
    return ApprovalGiven(
        call_id=call.id, name=call.name, verdict=answered.verdict, text=answered.text, by=answered.by
    )


def in_flight(session: Session) -> tuple[ToolCall, ...]:
    """The calls of the session that have no result yet, in call order."""
    return calls_of(next_step(session.context.messages))


async def approvals_in(session: Session) -> Approvals:
    """What was asked and answered of the newest calls."""
    asking = newest_exchange(session.context.visible)
    return Approvals.of(await session.since(asking.seq)) if asking else Approvals()


async def waiting_in(
    sessions: Sessions, session: Session, known: Approvals | None = None
) -> dict[str, Pending]:
    """The calls of the session and of its sub-agents that wait for a yes, by what answers are given under.

    `known` is what was asked and answered of the session's own, where that was read before.
    """
    if not (calls := in_flight(session)):
        return {}
    waiting = _waiting(session, calls, known or await approvals_in(session))
    if branch_in(session.id) is None:
        lines = await sessions.store.list(branches_of=session.id)
        for line in sorted(lines, key=lambda line: line.created):
            log = await sessions.open(line.id)
            if calls := in_flight(log):
                waiting += _waiting(log, calls, await approvals_in(log))
    return {each.call_id: each for each in waiting}


def _waiting(log: Session, calls: Sequence[ToolCall], known: Approvals) -> list[Pending]:
    return [pending_of(log.id, known.asked[call.id]) for call in filter(known.waits, calls)]


def answers_to(
    run: Run, session: Session, calls: Sequence[ToolCall], known: Approvals
) -> list[ApprovalAnswered]:
    """What is recorded of the answers that the run was given to these calls of the session."""
    found = []
    for call in filter(known.waits, calls):
        pending = pending_of(session.id, known.asked[call.id])
        reply = run.input.answers.get(pending.call_id)
        if reply is not None and reply.fingerprint in ("", pending.fingerprint):
            found.append(answer_record(run.id, known.asked[call.id], reply))
    return found


async def check_answers(run: Run, session: Session, known: Approvals) -> None:
    """Refuse answers to what does not wait, and a yes to what could not be run, before anything is stored.

    Raises:
        UsageError: see there.
    """
    answers = run.input.answers
    waiting = await waiting_in(run.config.sessions, session, known) if answers else {}
    check_known(answers, waiting, session.id)
    for key, reply in answers.items():
        if waiting[key].session_id == session.id and isinstance(reply, Approve):
            _check_runs(run, session, waiting[key], reply)


def check_known(answers: Answers, waiting: Mapping[str, Pending], session_id: str) -> None:
    """Refuse answers to other calls than those that wait.

    Raises:
        UsageError: see there.
    """
    for key, reply in answers.items():
        if key not in waiting:
            what = f"what waits is {', '.join(waiting)}" if waiting else "nothing waits there"
            raise UsageError(f"no call {key!r} waits for an answer in session {session_id!r}: {what}")
        if reply.fingerprint not in ("", waiting[key].fingerprint):
            raise UsageError(
                f"the answer to call {key!r} was given to another one, and none to what waits in session "
                f"{session_id!r} now: look at it, and answer again"
            )


def _check_runs(run: Run, session: Session, pending: Pending, reply: Approve) -> None:
    tool, name = run.registry.get(pending.tool), pending.tool
    if tool is None or tool.signature is None:
        raise UsageError(
            f"the agent has no tool {name!r}, which call {pending.call_id!r} is for: give it one"
        )
    if moved := _moved(run, pending):
        raise UsageError(f"call {pending.call_id!r} of {name} cannot be approved: {moved}")
    arguments = pending.arguments if reply.arguments is None else dict(reply.arguments)
    with run.context_for(session, pending.call_id) as context:
        try:
            tool.signature.bind(context, arguments)
        except ArgumentsError as error:
            raise UsageError(f"{name} cannot be called so: {error}") from error
        except Exception as error:
            raise UsageError(f"{name} cannot be called so: {error_text(error)}") from error


async def _known_of(run: Run, session: Session, call: ToolCall) -> Approvals:
    """The same as `approvals_in`; not read where this run made a call that needs no yes."""
    asking = newest_exchange(session.context.visible)
    is_free = not run.registry.may_need_approval(call.name)
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


async def _ask_now(run: Run, pending: Pending) -> ApprovalReply | None:
    """What the approver says; None where there is none, where nobody can say, and where asking fails."""
    asks = run.config.approver
    if asks is None:
        return None
    try:
        reply: object = await call_sync_or_async(asks, pending)
    except Exception as error:  # noqa: BLE001 — an approver is a user's code
        await _report_failure(run, error_text(error), raised_at(error))
        return None
    if reply is None or isinstance(reply, ApprovalReply):
        return reply
    await _report_failure(run, f"returned {shown(reply)}: return Approve(…), Reject(…), Respond(…) or None")
    return None


async def _report_failure(run: Run, error: str, where: str = "") -> None:
    failed = CallbackFailed(callback="approver", point="approver", error=error, where=where)
    await run.emitter.callback_list.failed(failed)


def pending_of(session_id: str, asked: ApprovalAsked) -> Pending:
    """The call as it is shown to whoever is to say yes."""
    branch = branch_in(session_id)
    return Pending(
        call_id=f"{branch}/{asked.call_id}" if branch else asked.call_id,
        tool=asked.tool,
        arguments=object_of(asked.arguments),
        session_id=session_id,
        server=asked.server,
        fingerprint=fingerprint_of(asked),
    )
