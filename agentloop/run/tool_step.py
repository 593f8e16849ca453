"""One step of the loop: run the calls that have no result yet, side by side."""

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from agentloop._plumbing.aio import in_thread, to_its_end
from agentloop._plumbing.private_files import refused
from agentloop._plumbing.truncate import head
from agentloop.approvals import Approvals, Pending
from agentloop.bounds import MOST_AT_ONCE
from agentloop.compaction import COMPACT, focus_of, outcome_text
from agentloop.context import count_message, fits, fitted, newest_exchange
from agentloop.events import Event, MessageRecord
from agentloop.messages import Json, Message, ToolCall, labelled_part
from agentloop.prompts import CHANGED, INTERRUPTED, MEDIA_NO_ROOM, REMINDER, REPEATED, set_apart
from agentloop.run.approval import Write, check_approval
from agentloop.run.state import Run
from agentloop.sessions import Session
from agentloop.stream import CallRepeated, MessageAdded, ToolEnded, ToolStarted, ToolStatus
from agentloop.tools import RunContext, ToolAnswer, notice_from, spill, text_from

MOST_RESULT_TOKENS = 10_000
"""Results longer than this are shortened when they are made, however large the window."""

LEAST_RESULT_TOKENS = 100
"""So much of a result is shown however small the window and large the batch."""

REPEATS_REPORTED = 3
"""From so many equal results of the same call on, the model is told of it."""

_MOST_CHANGED_CHARS = 200

MOST_REMINDER_TOKENS = 200
"""What one tool set reminds of is cut to so much: behind a result that is kept it stays as it is."""

RESULT_SHARE = 1 / 3
"""All results of one batch together get this share of the window's room for the context."""


async def run_tools(run: Run, session: Session, calls: Sequence[ToolCall]) -> Session:
    """The session with a result for each of these calls.

    Each result is stored as soon as it is there, so that no finished tool ever runs again; requests show
    results in call order. The compact tool runs after all others.
    """
    others, asked = split_off_compact(run, calls)
    session = await _SideBySide(run, session, others, share=len(calls)).answer_all()
    return await compact(run, session, asked) if asked else session


def split_off_compact(run: Run, calls: Sequence[ToolCall]) -> tuple[Sequence[ToolCall], Sequence[ToolCall]]:
    """The calls that run side by side, and those of the compact tool, which are answered after them."""
    asked = [call for call in calls if call.name == COMPACT and run.agent.offers_compact]
    return [call for call in calls if call not in asked], asked


async def settle(run: Run, session: Session, calls: Sequence[ToolCall], known: Approvals) -> Session:
    """The session with calls answered that were in flight when something died, or that waited for a yes.

    Idempotent tools run again; any other call that may have begun is answered as interrupted, its effect
    unknown. So it is not with what waits for a yes by what was `known` before this run gave its answers.
    """
    again = [call for call in calls if may_run_again(run, call) or known.waits(call)]
    lost = [await interrupted_record(run, session, call) for call in calls if call not in again]
    if lost:
        session = await run.record(session, *lost)
    return await _SideBySide(run, session, again, share=len(calls)).answer_all()


def may_run_again(run: Run, call: ToolCall) -> bool:
    """Whether a call that was in flight when something died runs again: its tool is `idempotent`."""
    known = run.registry.get(call.name)
    return bool(known and known.idempotent)


async def interrupted_record(run: Run, session: Session, call: ToolCall) -> MessageRecord:
    """The record that answers a call as interrupted, its effect unknown."""
    return run.record_of(Message.tool(call.id, INTERRUPTED + await _notices(run, session, call)))


async def answer_one(
    run: Run, session: Session, call: ToolCall, *, share: int, write: Write
) -> tuple[MessageRecord, ToolEnded] | None:
    """Run one call of a batch of `share`: the record of its result, and what is to be told once it is stored.

    None where it waits for a yes; `write` stores what is asked and answered of that. The end of a call that
    is cut off is told here.
    """
    reply = await _reply_to(run, session, call, write)
    if reply is None:
        return None
    record = await _result(run, session, reply, share)
    return record, reply.ended(reply.answer.status)


class _SideBySide:
    """Calls that run at once, `MOST_AT_ONCE` at most; each result is stored at once, and then told.

    `share` is how many calls share the room for results.
    """

    def __init__(self, run: Run, session: Session, calls: Sequence[ToolCall], *, share: int) -> None:
        self._run, self._session, self._share = run, session, share
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)
        self._tasks = [asyncio.create_task(self._reply_in_turn(call)) for call in calls]
        self._unshown = _Unshown(run)
        self._writing = asyncio.Lock()

    async def answer_all(self) -> Session:
        """The session with all of their results; what was there when it is cut off is stored too."""
        waiting = set(self._tasks)
        try:
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                await to_its_end(self._store(done))
                await self._unshown.show()
            return self._session
        finally:
            if waiting or self._unshown:
                await to_its_end(self._cut_off(waiting))

    async def _reply_in_turn(self, call: ToolCall) -> "_Reply | None":
        async with self._turns:
            return await _reply_to(self._run, self._session, call, self._write)

    async def _write(self, event: Event) -> None:
        async def write() -> None:
            async with self._writing:
                self._session = (await self._run.store(self._session, event)).session

        await to_its_end(write())

    async def _store(self, finished: Collection[asyncio.Task["_Reply | None"]]) -> None:
        replies = [reply for task in self._tasks if task in finished and (reply := task.result())]
        async with self._writing:
            await self._store_replies(replies)

    async def _store_replies(self, replies: Sequence["_Reply"]) -> None:
        results = [await _result(self._run, self._session, reply, self._share) for reply in replies]
        if not results:
            return
        try:
            stored = await self._run.store(self._session, *results)
        except BaseException:  # a cancellation, too, leaves calls whose end is to be told; raised again
            self._unshown.add(*(reply.ended("interrupted") for reply in replies))
            raise
        self._session = stored.session
        self._unshown.add(*(reply.ended(reply.answer.status) for reply in replies), *stored.unshown)

    async def _cut_off(self, waiting: Collection[asyncio.Task["_Reply | None"]]) -> None:
        self._run.emitter.callback_list.hurry()
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        if finished := [task for task in waiting if not task.cancelled() and task.exception() is None]:
            await self._store(finished)
        await self._unshown.show()


class _Unshown:
    """Events of what is stored that were not shown yet; the showing goes on where it was cut off."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._events: list[ToolEnded | MessageAdded] = []

    def __bool__(self) -> bool:
        return bool(self._events)

    def add(self, *events: ToolEnded | MessageAdded) -> None:
        self._events += events

    @asynccontextmanager
    async def show_in_any_case(self) -> AsyncIterator[None]:
        """Whatever ends the block, what is unshown then is shown, if in a hurry."""
        try:
            yield
        finally:
            if self:
                self._run.emitter.callback_list.hurry()
                await to_its_end(self.show())

    async def show(self) -> None:
        while self._events:
            await self._run.emitter.emit(self._events.pop(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reply:
    """What a tool said, and how long it took."""

    call: ToolCall
    answer: ToolAnswer
    seconds: float

    def ended(self, status: ToolStatus) -> ToolEnded:
        return _ended(self.call, status, self.seconds)


async def _reply_to(run: Run, session: Session, call: ToolCall, write: Write) -> _Reply | None:
    """Run one call, None where it waits for a yes.

    The end of one that is cut off is told here, of any other once its result is stored.
    """
    with run.context_for(session, call.id) as context:
        allowed = run.past_limit() or await check_approval(run, session, call, context, write)
        if isinstance(allowed, Pending):
            run.waiting[call.id] = (allowed,)
            return None
        reply = await _reply(run, call, allowed, context)
    if pending := reply.answer.pending:
        run.waiting[call.id] = pending
        await run.emitter.emit(reply.ended("interrupted"))
        return None
    return reply


async def _reply(
    run: Run, call: ToolCall, allowed: ToolCall | ToolAnswer, context: RunContext[Any]
) -> _Reply:
    """What comes of the call as it may be run, or of what is answered in its place."""
    started = time.monotonic()
    try:
        await run.emitter.emit(ToolStarted(call_id=call.id, name=call.name, arguments=call.arguments))
        if isinstance(allowed, ToolCall):
            answer = await run.call_tool(allowed, context, cleared=True)
            if allowed.arguments != call.arguments:
                said = head(allowed.arguments, _MOST_CHANGED_CHARS)
                answer = replace(answer, text=CHANGED.format(arguments=said) + answer.text)
        else:
            answer = allowed
    except BaseException:  # whatever cut the call off, its end is told; raised again
        await run.emitter.emit(_ended(call, "interrupted", time.monotonic() - started))
        raise
    return _Reply(call=call, answer=answer, seconds=time.monotonic() - started)


async def _result(run: Run, session: Session, reply: _Reply, share: int) -> MessageRecord:
    """The record of a result of a batch of `share`; a long one stands there head and tail, whole in a file.

    Behind the first result of a batch stands what tool sets tell and remind of.
    """
    text, spilled = run.emitter.hide(reply.answer.text), None
    times = run.spending.add_result(reply.call, f"{text}{reply.answer.media or ''}")
    most_tokens = int(run.keeper.budget.room(session.context) * RESULT_SHARE) // share
    most_tokens = min(max(LEAST_RESULT_TOKENS, most_tokens), MOST_RESULT_TOKENS)
    if not fits(text, max_tokens=most_tokens, counter=run.counter):
        spilled, rest = await _spill_result(run, text, reply.call)
        text = fitted(text, max_tokens=most_tokens, counter=run.counter, rest=rest)
    text = set_apart(text)
    if times >= REPEATS_REPORTED:
        text += REPEATED.format(times=times)
        await run.emitter.emit(CallRepeated(call_id=reply.call.id, name=reply.call.name, times=times))
    text += await _notices(run, session, reply.call)
    known = run.registry.get(reply.call.name)
    message = Message.tool(reply.call.id, text)
    if reply.answer.media:
        content = ({"type": "text", "text": text}, *_with_room(run, reply.answer.media, most_tokens))
        message = await run.media.keep(replace(message, content=content))
    return run.record_of(message, keep=bool(known and known.keep), spilled=spilled)


def _with_room(run: Run, media: Sequence[Json], most_tokens: int) -> Iterator[Json]:
    """The images and files of a result, as far as there is room; the rest is named."""
    for part in media:
        tokens = count_message(Message(role="tool", content=(part,)), run.counter)
        has_room = tokens <= most_tokens
        most_tokens -= tokens if has_room else 0
        yield part if has_room else labelled_part(part, MEDIA_NO_ROOM) or part


async def _notices(run: Run, session: Session, call: ToolCall) -> str:
    """What tool sets tell and remind of with this batch of calls, where this is the first of them.

    A call of the compact tool is none: it is answered last.
    """
    if not (sets := run.agent.tool_sets):
        return ""
    asked, messages = newest_exchange(session.context.visible), session.context.messages
    others, _ = split_off_compact(run, asked.message.tool_calls if asked else ())
    if call.id not in [each.id for each in others[:1]]:
        return ""
    texts: list[str] = []
    with run.context_for(session, call.id) as context:
        for each in sets:
            texts += (await notice_from(each, context), text_from(each.reminder, messages))
    return "".join(REMINDER.format(text=_reminder(run, text)) for text in texts if text)


def _reminder(run: Run, text: str) -> str:
    """What a tool set tells or reminds of in one line, a long one head and tail."""
    short = fitted(run.emitter.hide(text), max_tokens=MOST_REMINDER_TOKENS, counter=run.counter)
    return " ".join(short.split())


async def _spill_result(run: Run, text: str, call: ToolCall) -> tuple[str | None, str]:
    """The file that holds the whole text, None where there is none, and how to get it in words."""
    folder, again = run.config.transcripts, "call the tool again for the rest"
    if folder is None:
        return None, again
    try:
        path = str(await in_thread(lambda: spill(folder, f"{run.emitter.session_id}_{call.id}", text)))
    except OSError as error:
        return None, f"the whole could not be kept ({refused(folder, error)}); {again}"
    return path, f"the whole is in {path}"


async def compact(run: Run, session: Session, asked: Sequence[ToolCall]) -> Session:
    """One compaction for all wishes of a batch, by the same mechanism as any other."""
    focus = "; ".join(focus for call in asked if (focus := focus_of(call))) or None
    started, unshown, begun = time.monotonic(), _Unshown(run), list[ToolCall]()

    def ended(status: ToolStatus) -> list[ToolEnded]:
        return [_ended(call, status, time.monotonic() - started) for call in begun]

    async with unshown.show_in_any_case():
        try:
            for call in asked:
                begun.append(call)
                await run.emitter.emit(ToolStarted(call_id=call.id, name=call.name, arguments=call.arguments))
            session, result = await run.keeper.compact_for_model(session, focus)
            results = [run.record_of(Message.tool(call.id, outcome_text(result))) for call in asked]
            stored = await run.store(session, *results)
        except BaseException:  # a cancellation, too, leaves calls whose end is to be told; raised again
            unshown.add(*ended("interrupted"))
            raise
        unshown.add(
            *ended("ok" if result.status in ("done", "not_due", "skipped") else "error"), *stored.unshown
        )
        await unshown.show()
    return stored.session


def _ended(call: ToolCall, status: ToolStatus, seconds: float) -> ToolEnded:
    return ToolEnded(call_id=call.id, name=call.name, status=status, duration_seconds=seconds)
