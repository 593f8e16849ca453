"""One step of the loop: run the calls that have no result yet, side by side."""

import asyncio
import time
from collections.abc import Collection, Sequence

from agentloop.callbacks import CompactionResult
from agentloop.compact_tool import COMPACT, focus_of, outcome_text
from agentloop.events import MessageAdded
from agentloop.messages import Message, ToolCall
from agentloop.prompts import INTERRUPTED
from agentloop.run import Run
from agentloop.sessions import Session
from agentloop.stream import ToolEnded, ToolStarted, ToolStatus
from agentloop.threads import in_thread, to_its_end
from agentloop.tool_results import shortened, spill

MOST_RESULT_CHARS = 40_000
"""Results longer than this are shortened when they are made, however large the window."""

RESULT_SHARE = 1 / 3
"""All results of one batch together get this share of the window's room for the context."""


async def answer(run: Run, session: Session, calls: Sequence[ToolCall]) -> Session:
    """The session with a result for each of these calls.

    Each result is stored as soon as it is there, so that no finished tool ever runs again; requests show
    results in call order. The compact tool runs after all others.
    """
    asked = [call for call in calls if call.name == COMPACT and run.agent.offers_compact]
    others = [call for call in calls if call not in asked]
    session = await _side_by_side(run, session, others, share=len(calls))
    return await _compact(run, session, asked) if asked else session


async def settle(run: Run, session: Session, calls: Sequence[ToolCall]) -> Session:
    """The session with calls answered that were in flight when something died.

    Idempotent tools run again; any other call is answered as interrupted, its effect unknown.
    """
    again = [call for call in calls if (known := run.agent.registry.get(call.name)) and known.idempotent]
    lost = [run.added(Message.tool(call.id, INTERRUPTED)) for call in calls if call not in again]
    if lost:
        session = await run.record(session, *lost)
    return await _side_by_side(run, session, again, share=len(calls))


async def _side_by_side(run: Run, session: Session, calls: Sequence[ToolCall], *, share: int) -> Session:
    tasks = [asyncio.create_task(_result(run, call, share)) for call in calls]
    waiting = set(tasks)

    async def store(finished: Collection[asyncio.Task[MessageAdded]]) -> None:
        nonlocal session
        results = [task.result() for task in tasks if task in finished]
        session = await run.record(session, *results)

    try:
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            await to_its_end(store(done))
        return session
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        if finished := [task for task in waiting if not task.cancelled() and task.exception() is None]:
            await to_its_end(store(finished))


async def _result(run: Run, call: ToolCall, share: int) -> MessageAdded:
    await run.watch.say(ToolStarted(call_id=call.id, name=call.name, arguments=call.arguments))
    started = time.monotonic()
    status: ToolStatus = "interrupted"
    try:
        reply = await run.agent.registry.answer(call, run.context_for(call.id))
        status = reply.status
    finally:
        await _ended(run, call, status, started)
    known = run.agent.registry.get(call.name)
    text, spilled = await _fitted(run, reply.text, call, share)
    return run.added(Message.tool(call.id, text), keep=bool(known and known.keep), spilled=spilled)


async def _fitted(run: Run, text: str, call: ToolCall, share: int) -> tuple[str, str | None]:
    """The result as it may stand in the context: long ones head and tail, the whole in a file."""
    most_tokens = max(100, int(run.room.budget.for_context * RESULT_SHARE) // max(1, share))
    most_chars = min(MOST_RESULT_CHARS, most_tokens * 4)
    if len(text) <= most_chars and (len(text) <= most_tokens or run.counter(text) <= most_tokens):
        return text, None
    whole = await _spilled(run, text, call)
    rest = f"the whole is in {whole}" if whole else "call the tool again for the rest"
    shown = shortened(text, max_chars=most_chars, rest=rest)
    while run.counter(shown) > most_tokens and most_chars > 200:
        most_chars = max(200, most_chars // 2)
        shown = shortened(text, max_chars=most_chars, rest=rest)
    return shown, whole


async def _spilled(run: Run, text: str, call: ToolCall) -> str | None:
    folder = run.spills
    if folder is None:
        return None
    try:
        return str(await in_thread(lambda: spill(folder, f"{run.watch.session_id}_{call.id}", text)))
    except OSError:
        return None


async def _compact(run: Run, session: Session, asked: Sequence[ToolCall]) -> Session:
    """One compaction for all wishes of a batch, by the same mechanism as any other."""
    focus = "; ".join(focus for call in asked if (focus := focus_of(call))) or None
    for call in asked:
        await run.watch.say(ToolStarted(call_id=call.id, name=call.name, arguments=call.arguments))
    started = time.monotonic()
    result: CompactionResult | None
    session, result = await run.room.wished(session, focus)
    results = [run.added(Message.tool(call.id, outcome_text(result))) for call in asked]
    for call in asked:
        status: ToolStatus = "error" if result and result.status != "done" else "ok"
        await _ended(run, call, status, started)
    return await run.record(session, *results)


async def _ended(run: Run, call: ToolCall, status: ToolStatus, started: float) -> None:
    seconds = time.monotonic() - started
    ended = ToolEnded(call_id=call.id, name=call.name, status=status, duration_seconds=seconds)
    await run.watch.say(ended)
