"""One compaction, in the order that loses nothing.

`CompactionStarted` → `before_compaction` → transcript on disc → summary → check → append `Compacted` →
`after_compaction` → `CompactionEnded`. Whatever fails before the append leaves the context exactly as it was;
the log then says that it was tried (`NotCompacted`). `Compactor.compact` is that page; what it calls stands
below it in the same order, and at last what a plan would come to (`Compactor.preview`).
"""

import asyncio
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import partial
from math import ceil
from pathlib import Path
from typing import TypeAlias

from agentloop._plumbing.aio import in_thread, to_its_end
from agentloop._plumbing.callables import name_of
from agentloop._plumbing.checks import shown
from agentloop._plumbing.host_logging import warn
from agentloop._plumbing.to_text import words_of
from agentloop.callbacks import Focus, Replace, Veto
from agentloop.compaction.faults import summary_fault
from agentloop.compaction.plan import (
    LEAST_RECORD,
    LEAST_SUMMARY_TOKENS,
    Plan,
    longest_record,
    longest_summary,
    room_below,
)
from agentloop.compaction.policy import Compaction
from agentloop.compaction.reading import BETWEEN
from agentloop.compaction.replacement import (
    NOTHING,
    Replacement,
    compacted_record,
    computed,
    record_beside,
    to_read,
)
from agentloop.compaction.summary import NotSmallerError, Summariser, summary_budget
from agentloop.context import (
    AUTOMATIC,
    Context,
    RequestPrefix,
    as_prose,
    count_message,
    fits,
    fitted,
    missing,
    record_in,
)
from agentloop.emitter import Emitter
from agentloop.errors import (
    AgentLoopError,
    ConflictError,
    ModelError,
    ModelRefusedError,
    StoreError,
    SummaryRefusedError,
    TakenOverError,
    UsageError,
)
from agentloop.events import Compacted, ModelCalled, NotCompacted, Record
from agentloop.messages import Message, Usage
from agentloop.models import ChatModel, Priced, used_by
from agentloop.prompts import pinned_message
from agentloop.results import CompactionPreview
from agentloop.sessions import Rebase, Session, SessionMedia, append_rebased, grow, rebase_any, save
from agentloop.strategies import Computed, Digest, OnFailure, Summary
from agentloop.stream import (
    CompactionEnded,
    CompactionRequest,
    CompactionResult,
    CompactionStarted,
    CompactionStatus,
    ContextStatus,
    Positioned,
    StreamEvent,
)
from agentloop.tools import ToolSet, text_from

LengthOf: TypeAlias = Callable[[Plan, float], int]
"""How long what stands instead may be, by the share of the window that a summary takes at most."""

BESIDE_SHARE, MOST_BESIDE = 1 / 3, 0.9
"""The record beside a model's prose may take this share of the longest summary; in a small window more, up to
the most, so that a model's summary keeps no less than a digest."""

PINNED_SHARE, LEAST_PINNED_TOKENS = 0.5, 40
"""All that tool sets pin takes at most this share of the longest summary, which is so much shorter then, so
that the target holds. In less room than the least, nothing more is pinned."""

MOST_LOST = 100
"""So many identifiers are listed as lost at the most, the newest; all are counted."""

SHARE_OF_SUMMARY = 0.2
"""What a model's summary is taken to need of what it stands for, where that is less than it may take."""

LIKELY_NAME = "transcript_1700000000.jsonl"
"""The name of a transcript that is still to be saved is as long as this one."""

_ENDED_FIELDS = {each.name for each in fields(CompactionEnded)} - {each.name for each in fields(StreamEvent)}


class _EndedError(AgentLoopError):
    """The compaction ends here, with this status, and has changed nothing."""

    def __init__(self, status: CompactionStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(slots=True, kw_only=True)
class _Outcome:
    """What has come so far of a plan for a session, as it stands now."""

    plan: Plan
    session: Session
    status: CompactionStatus = "failed"
    error: str | None = "cancelled"
    transcript: str | None = None
    unsaved: str | None = None
    store_fault: StoreError | None = None
    fault: str | None = None
    calls: list[ModelCalled] = field(default_factory=list)
    pinned: str = ""
    replacement: Replacement = NOTHING
    record: Compacted | None = None
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    started: float = field(default_factory=time.monotonic)
    _result: CompactionResult | None = None

    def end(self, status: CompactionStatus, error: str | None) -> None:
        """Take note of how it ended."""
        self.status, self.error = status, error

    def result(self) -> CompactionResult:
        """What it came to, made when it is first asked for: once it has ended."""
        if self._result is None:
            self._result = self._made()
        return self._result

    def _made(self) -> CompactionResult:
        before, budget = self.plan.context, self.plan.budget
        size, record, after = budget.size(before), self.record, self.session.context
        used = used_by(self.calls, record.tokens if record else 0)
        result = CompactionResult(
            status=self.status,
            reason=self.plan.occasion.reason,
            why=self.plan.occasion.why,
            strategy=self.plan.strategy,
            tier=0,
            tokens_before=size,
            tokens_after=size,
            messages_before=len(before.visible),
            messages_after=len(after.visible),
            compaction_id=self.id,
            kept_events=after.records_of(after.visible),
            compacted_events=tuple(after.messages),
            transcript=self.transcript,
            duration_seconds=time.monotonic() - self.started,
            error=self.error,
            usage=used.usage,
            unreported=used.unreported,
            cost=used.cost,
            window=budget.window,
            unsaved=self.unsaved,
            store_fault=self.store_fault,
        )
        if record is None:
            return result
        archived = before.records_of(self.plan.entries)
        seqs = [seq for seq, other in after.compactions if other is record]
        return replace(
            result,
            tier=record.tier,
            tokens_after=record.after,
            archived=tuple(each.seq for each in archived),
            archived_events=archived,
            shortened=tuple(item.seq for item in record.cleared),
            summary=record.answer or record.replacement,
            summary_tokens=record.tokens,
            lost=record.lost,
            lost_count=record.lost_count or 0,
            unread=self.replacement.unread,
            seq=seqs[0] if seqs else None,
        )


@dataclass(slots=True, kw_only=True)
class Compactor:
    """Carries out plans on sessions, by a policy; `transcripts` is the folder for these, None for nowhere.

    `model` is the agent's, which writes summaries where the policy names no other, and `prefix` what its
    requests begin with; None where there is none. `tool_sets` say what stays in sight behind a compaction.
    `rebase` says when a compaction still holds though others wrote to the log meanwhile. `server_refused` is
    whether the server refused to write the newest summary, where nothing else was to stand instead.
    `_summary_window` is what overflows of its own requests taught of the summariser's window.
    """

    policy: Compaction
    model: ChatModel | None
    transcripts: Path | None
    emitter: Emitter
    prefix: RequestPrefix | None = None
    rebase: Rebase = rebase_any
    tool_sets: Sequence[ToolSet] = ()
    server_refused: bool = field(default=False, init=False)
    _summary_window: int | None = field(default=None, init=False)

    async def compact(self, session: Session, plan: Plan) -> tuple[Session, CompactionResult]:
        """The session compacted, and what came of it; a failure leaves the plan's context as it was."""
        async with self._announced(session, plan) as outcome:
            focus, summary = await self._asked_first(outcome)
            await self._keep_transcript(outcome)
            outcome.pinned = self.emitter.hide(self.pinned(plan))
            outcome.replacement = self.emitter.hide(await self._replacement(outcome, focus, summary))
            record = await in_thread(self._record, outcome)
            await to_its_end(self._append(record, outcome))
        return outcome.session, outcome.result()

    @asynccontextmanager
    async def _announced(self, session: Session, plan: Plan) -> AsyncIterator[_Outcome]:
        """From `CompactionStarted` to exactly one `CompactionEnded`, whatever happens in between.

        A failure is the outcome and goes no further: it is noted in the log, and what follows the block is
        done in any case. Until something else is known the outcome says that it was cancelled.

        Raises:
            ConflictError: the session is not what it was: it is another's, or gone.
            TakenOverError: another run has the session.
        """
        self.server_refused = False
        plan = replace(plan, occasion=self.emitter.hide(plan.occasion))
        outcome = _Outcome(plan=plan, session=session)
        async with self.emitter.around("compaction", plan.strategy) as around:
            try:
                with self._failures_of(outcome):
                    await self.emitter.emit(_started(outcome))
                    yield outcome
                if outcome.status != "done":
                    outcome.session = await self.note(outcome.session, _failure(outcome), outcome.calls)
                await self.emitter.callback_list.after_compaction(await in_thread(outcome.result))
            finally:
                around.value = result = outcome.result()
                await self.emitter.emit(
                    CompactionEnded(**{name: getattr(result, name) for name in _ENDED_FIELDS})
                )

    @contextmanager
    def _failures_of(self, outcome: _Outcome) -> Iterator[None]:
        try:
            yield
        except _EndedError as error:
            outcome.end(error.status, self.emitter.hide(str(error)))
        except NotSmallerError as error:
            outcome.end("ineffective", self.emitter.hide(str(error)))
        except (ConflictError, TakenOverError) as error:
            outcome.end("conflict", self.emitter.hide(str(error)))
            raise
        except AgentLoopError as error:
            if isinstance(error, StoreError):
                self.emitter.hide_in(error)
                outcome.store_fault = error
            outcome.end("failed", self.emitter.hide(str(error)))
        except Exception as error:  # noqa: BLE001 — a model of the user's own may raise anything
            outcome.end("failed", self.emitter.hide(f"{type(error).__name__}: {error}"))

    async def note(
        self, session: Session, record: NotCompacted, calls: Sequence[ModelCalled] = ()
    ) -> Session:
        """The session with the record that nothing was compacted; as it was where that cannot be written.

        What keeps it from being written is met by the next write, which matters more.
        """

        async def written() -> Session:
            await session.newer()  # a log of the same length may be another's
            return await append_rebased(session, (*calls, self.emitter.hide(record)), self.rebase)

        try:
            return await to_its_end(written())
        except AgentLoopError as error:
            warn("a compaction that came to nothing could not be noted", error=words_of(error))
            return session

    async def _asked_first(self, outcome: _Outcome) -> tuple[str | None, str | None]:
        """What callbacks say to it: what to keep above all, and the summary of one that wrote it itself."""
        plan = outcome.plan
        request = CompactionRequest(
            session_id=outcome.session.id,
            run_id=self.emitter.run_id,
            reason=plan.occasion.reason,
            why=plan.occasion.why,
            messages=tuple(_messages(plan)),
            tokens_before=plan.budget.size(plan.context),
            focus=plan.occasion.focus,
        )
        request = await in_thread(self.emitter.hide, request)
        replies = await self.emitter.callback_list.before_compaction(request)
        for reply in replies:
            if isinstance(reply, Veto):
                raise _EndedError("vetoed", reply.reason)
        wishes = [plan.occasion.focus, *(reply.text for reply in replies if isinstance(reply, Focus))]
        focus = "; ".join(wish for wish in wishes if wish) or None
        return focus, next((reply.summary for reply in replies if isinstance(reply, Replace)), None)

    async def _keep_transcript(self, outcome: _Outcome) -> None:
        """Save it, or say why that failed; then the compaction ends, unless the policy lets it go on."""
        try:
            outcome.transcript = await self._save_transcript(outcome.session)
        except StoreError as error:
            outcome.unsaved = self.emitter.hide(f"the transcript could not be saved: {error}")
            if self.policy.transcript_failure == "stop":
                raise _EndedError("failed", outcome.unsaved) from error

    async def _save_transcript(self, session: Session) -> str | None:
        folder, context = self.transcripts, session.context
        if folder is None:
            return None
        media, here = SessionMedia(session.store, session.id), asyncio.get_running_loop()

        def whole(message: Message) -> Message:
            if not message.has_media:
                return message
            return asyncio.run_coroutine_threadsafe(media.whole(message), here).result()

        def history() -> Iterator[Message]:
            # A log may be older than its redaction.
            return (self.emitter.hide(whole(entry.original)) for entry in context.said)

        def saved() -> str:
            if context.transcript and grow(folder, context.transcript, history()):
                return context.transcript
            return save(folder, history(), epoch=int(time.time())).name

        return await to_its_end(in_thread(saved))

    def pinned(self, plan: Plan) -> str:
        """What tool sets keep in sight behind it, as one message's text, the highest priority first.

        Empty where nothing is covered: what an earlier one pinned then stays.
        """
        if not (self.tool_sets and plan.covered):
            return ""
        gone = {entry.seq for entry in plan.entries} | {item.seq for item in plan.cleared}
        said, counter = plan.context.seen(gone), plan.budget.counter
        left = int(PINNED_SHARE * self.longest(longest_summary, plan))
        left -= count_message(Message.user(pinned_message("")), counter)
        texts: list[str] = []
        for each in sorted(self.tool_sets, key=lambda each: -each.priority):
            if left < LEAST_PINNED_TOKENS:
                break
            if text := text_from(each.pinned, said, partial(fits, max_tokens=left, counter=counter)):
                texts.append(fitted(text, max_tokens=left, counter=counter))
                left -= counter(BETWEEN + texts[-1])
        return pinned_message(BETWEEN.join(texts)) if texts else ""

    def longest(self, length: LengthOf, plan: Plan, *, pinned: str = "") -> int:
        """What may stand instead beside what is pinned, in tokens; `length` is without any."""
        longest = length(plan, self.policy.summary_share)
        return max(LEAST_SUMMARY_TOKENS, longest - plan.budget.counter(pinned))

    async def _replacement(self, outcome: _Outcome, focus: str | None, summary: str | None) -> Replacement:
        """What stands instead: the summary of a callback, where it can stand, else what is written for it.

        Raises:
            ModelError: no text can stand, and nothing else was to stand in that case.
        """
        plan = outcome.plan
        if not plan.covered:
            return NOTHING
        if summary is None:
            return await self._write(outcome, focus)
        if fault := summary_fault(summary, None, plan.entries, plan.context, plan.budget.counter):
            raise SummaryRefusedError(f"the summary of a callback was refused: {fault}")
        return Replacement(text=as_prose(summary), made="summary")

    async def _write(self, outcome: _Outcome, focus: str | None) -> Replacement:
        """What a model writes or is computed, never longer than may stand instead.

        Raises:
            ModelError: the model wrote nothing that can stand, and nothing else was to stand in that case.
        """
        instead, model = outcome.plan.instead, self.policy.model or self.model
        if not isinstance(instead, Summary):
            return await self._computed(instead, outcome)
        is_due = outcome.plan.occasion.reason in AUTOMATIC
        if model is None or (is_due and not outcome.plan.context.guard.trusts_summaries):
            fallback = instead.on_failure
            return await self._computed(fallback if isinstance(fallback, Computed) else Digest(), outcome)
        try:
            return await self._summary(instead, model, outcome, focus)
        except ModelError as error:
            self.emitter.hide_in(error)
            outcome.fault = str(error)
            fallback = _fallback(instead.on_failure, error)
            if fallback is None:
                self.server_refused = isinstance(error, ModelRefusedError)
                raise
            return replace(await self._computed(fallback, outcome), fault=str(error))

    async def _computed(self, instead: Computed, outcome: _Outcome) -> Replacement:
        longest = self.longest(longest_record, outcome.plan, pinned=outcome.pinned)
        return await in_thread(computed, instead, outcome.plan, max_tokens=longest)

    async def _summary(
        self, spec: Summary, model: ChatModel, outcome: _Outcome, focus: str | None
    ) -> Replacement:
        plan = outcome.plan
        longest = max(
            self.longest(length, plan, pinned=outcome.pinned) for length in (longest_summary, longest_record)
        )
        longest = min(longest, spec.max_tokens or longest)
        beside = int(max(BESIDE_SHARE * longest, min(LEAST_RECORD, MOST_BESIDE * longest)))
        own = summary_budget(model, plan.budget, longest=longest - beside, learnt=self._summary_window)
        whole, room = own.reserve + beside, room_below(plan, pinned=outcome.pinned)
        summariser = Summariser(
            model=model,
            budget=own,
            limit_seconds=self.policy.summary_seconds,
            ask=self.emitter.ask,
            note=outcome.calls.append,
            spec=spec,
            beside=record_beside(plan),
            beside_tokens=beside,
            whole_tokens=whole if room is None else min(whole, room),
            covered=plan.entries,
            reads=to_read(plan),
            context=plan.context,
            focus=focus,
            prefix=self.prefix if spec.prefix == "shared" and model is self.model else None,
        )
        try:
            return await summariser.write()
        finally:
            if summariser.budget.window < own.window:
                self._summary_window = summariser.budget.window

    def _record(self, outcome: _Outcome) -> Compacted:
        """The record of it, with what it loses; only one that makes the context smaller."""
        plan, replacement = outcome.plan, outcome.replacement
        before, budget = plan.context, plan.budget
        record = compacted_record(plan, replacement, transcript=outcome.transcript, pinned=outcome.pinned)
        after = _with(record, before)
        if not budget.fits(before) and (after.tokens >= before.tokens or not budget.fits(after)):
            record = replace(record, pinned="", pinned_tokens=None)  # the request comes first
            after = _with(record, before)
        if after.tokens >= before.tokens:
            sizes = f"{after.tokens:,} tokens instead of {before.tokens:,}"
            raise _EndedError(
                "ineffective", f"what would stand instead is not smaller than what it covers: {sizes}"
            )
        size = budget.size(after)
        if plan.most is not None and size > plan.most:
            text = f"the request would take {size:,} tokens, more than {plan.most:,}"
            raise _EndedError("ineffective", text)
        lost = self.emitter.hide(_lost(plan, after))
        return replace(
            record,
            id=outcome.id,
            before=budget.size(before),
            after=budget.size_of_rewritten(before, after),
            lost=lost[:MOST_LOST],
            lost_count=len(lost),
            fault=replacement.fault,
            eager=plan.occasion.eager,
        )

    async def _append(self, record: Compacted, outcome: _Outcome) -> None:
        """Write the compaction; messages that others added meanwhile do not invalidate it.

        No lease is held for it, and its summary took a while: a log of the same length may be another's.
        """

        async def rebase(session: Session, conflict: ConflictError) -> Session:
            session = await self.rebase(session, conflict)
            if session.context.compactions != outcome.plan.context.compactions:
                outcome.session = session
                raise _EndedError("conflict", "another writer compacted the session first") from conflict
            return session

        session = outcome.session
        await session.newer()  # raises where the log is another's
        outcome.session = await append_rebased(session, (*outcome.calls, record), rebase)
        outcome.record = record
        faults = "; ".join(filter(None, (outcome.replacement.fault, outcome.unsaved)))
        outcome.end("done", self.emitter.hide(faults or None))

    def preview(self, plan: Plan, status: ContextStatus) -> CompactionPreview:
        """What the plan would come to, foreseen without doing it.

        Of a summary, which is still to be written, the length is guessed by what it stands for.
        """
        context, budget, pinned = plan.context, plan.budget, self.pinned(plan)
        length = longest_record if isinstance(plan.instead, Computed) else longest_summary
        longest = self.longest(length, plan, pinned=pinned)
        replacement, unwritten = _foreseen(plan, longest)
        transcript = LIKELY_NAME if self.transcripts else None
        record = compacted_record(plan, replacement, transcript=transcript, pinned=pinned)
        rewritten = _with(record, context)
        before, ratio, touched = budget.size(context), budget.ratio(context), plan.touched
        after = budget.size_of_rewritten(context, rewritten) + ceil(ratio * unwritten)
        lost = ceil(ratio * sum(entry.tokens for entry in context.visible if entry.at >= touched[0].at))
        model = self.model if isinstance(self.model, Priced) else None
        return CompactionPreview(
            first=min(entry.seq for entry in touched),
            last=max(entry.seq for entry in touched),
            messages=len(touched),
            tokens=plan.tokens,
            context=status,
            strategy=plan.strategy,
            summary_tokens=record.tokens + unwritten,
            tokens_after=min(before, after),
            cache_tokens_lost=lost,
            cost_saved=_difference(model, Usage(input_tokens=before), Usage(input_tokens=after)),
            cache_cost=_difference(
                model, Usage(input_tokens=lost), Usage(input_tokens=lost, cached_tokens=lost)
            ),
        )


def _foreseen(plan: Plan, longest: int) -> tuple[Replacement, int]:
    """What would stand instead, and the tokens of what of it a model is still to write."""
    if not plan.covered:
        return NOTHING, 0
    if isinstance(plan.instead, Summary):
        return Replacement(text="", made="summary"), min(longest, ceil(plan.tokens * SHARE_OF_SUMMARY))
    return computed(plan.instead, plan, max_tokens=longest), 0


def _difference(model: Priced | None, more: Usage, less: Usage) -> float | None:
    dear, cheap = (model.price(usage) if model else None for usage in (more, less))
    return None if dear is None or cheap is None else max(0.0, dear - cheap)


def _with(record: Compacted, before: Context) -> Context:
    return before.add(Record(seq=before.length + 1, event=record))


def _fallback(on_failure: OnFailure | None, error: ModelError) -> Computed | None:
    """What is to stand where the model wrote nothing that can.

    Raises:
        AgentLoopError: a function that was to say so failed, or answered with something else.
    """
    if on_failure is None or isinstance(on_failure, Computed):
        return on_failure
    name = f"on_failure, {name_of(on_failure)},"
    try:
        answer: object = on_failure(error)
    except Exception as own:  # noqa: BLE001 — a function of the user may raise anything
        raise AgentLoopError(f"{error}; {name} failed: {type(own).__name__}: {own}") from error
    if isinstance(answer, Computed | None):
        return answer
    wanted = "a Digest, Lines, a Note, or None"
    raise UsageError(f"{error}; {name} answered {shown(answer)}: it must answer with {wanted}") from error


def _started(outcome: _Outcome) -> CompactionStarted:
    plan, touched = outcome.plan, [entry.seq for entry in outcome.plan.touched]
    return CompactionStarted(
        compaction_id=outcome.id,
        reason=plan.occasion.reason,
        why=plan.occasion.why,
        strategy=plan.strategy,
        tokens_before=plan.budget.size(plan.context),
        messages_before=len(plan.context.visible),
        first=min(touched),
        last=max(touched),
    )


def _failure(outcome: _Outcome) -> NotCompacted:
    plan = outcome.plan
    return NotCompacted(
        id=outcome.id,
        status=outcome.status,
        reason=plan.occasion.reason,
        why=plan.occasion.why,
        strategy=plan.strategy,
        error=outcome.error or "",
        before=plan.budget.size(plan.context),
        group=plan.group,
        transcript=outcome.transcript,
        fault=outcome.fault,
    )


def _messages(plan: Plan) -> Iterator[Positioned]:
    """The exact messages about to go."""
    shown = {item.seq for item in plan.cleared}
    for entry in plan.touched:
        if entry.kind == "said":
            yield Positioned(
                seq=entry.seq, message=entry.original, run_id=entry.run_id, shortened=entry.seq in shown
            )


def _lost(plan: Plan, after: Context) -> tuple[str, ...]:
    present = "\n".join(message.text for message in after.messages)
    gone = (entry for entry in reversed(plan.touched) if entry.kind != "note")
    texts = (record_in(entry.original)[1] for entry in gone)
    return missing(texts, present, most=sys.maxsize)
