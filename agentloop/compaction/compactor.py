"""One compaction in the order that loses nothing.

One compaction, in the order that loses nothing.

decide → `CompactionStarted` → before_compaction → transcript on disc → summary → check → append
`Compacted` → after_compaction → `CompactionEnded`. Whatever fails before the append leaves the log, and so
the session, exactly as it was.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from agentloop._plumbing.aio import in_thread, to_its_end
from agentloop.callbacks import Focus, Replace, Veto
from agentloop.compaction.plan import NOTHING, Plan, Standing, record_of
from agentloop.compaction.policy import TranscriptFailure
from agentloop.compaction.summary import fault_of
from agentloop.compaction.writers import Writer
from agentloop.context import Budget, Context, TokenCounter, missing, neutral, summary_in
from agentloop.emitter import Emitter
from agentloop.errors import AgentLoopError, ConflictError, StoreError, SummaryRefusedError, TakenOverError
from agentloop.events import Compacted, ModelCalled, Record
from agentloop.messages import Usage
from agentloop.redaction import redacted
from agentloop.sessions import Rebase, Session, appended, rebase_any, save
from agentloop.stream import (
    CompactionEnded,
    CompactionRequest,
    CompactionResult,
    CompactionStarted,
    CompactionStatus,
    Positioned,
    StreamEvent,
)


def request_for(plan: Plan, *, session_id: str, run_id: str, tokens: int) -> CompactionRequest:
    """What callbacks are asked before it: the exact messages about to go."""
    return CompactionRequest(
        session_id=session_id,
        run_id=run_id,
        reason=plan.occasion.reason,
        why=plan.occasion.why,
        messages=tuple(_messages(plan)),
        tokens_before=tokens,
        focus=plan.occasion.focus,
    )


def started(plan: Plan, context: Context, tokens: int) -> CompactionStarted:
    """The event that it begins; `tokens` is the size of the context."""
    touched = [entry.seq for entry in plan.touched]
    return CompactionStarted(
        reason=plan.occasion.reason,
        why=plan.occasion.why,
        strategy=plan.strategy,
        tokens_before=tokens,
        messages_before=len(context.visible),
        first=min(touched),
        last=max(touched),
    )


def ended(result: CompactionResult) -> CompactionEnded:
    """The event that it ended so."""
    return CompactionEnded(**{name: getattr(result, name) for name in _ENDED_FIELDS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    """What the model calls of a compaction took; `unreported` is our count of what no answer reported."""

    usage: Usage
    unreported: Usage
    cost: float | None


def took(calls: Sequence[ModelCalled], output_tokens: int) -> Took:
    """The sum of these calls; `output_tokens` is how long what they wrote is."""
    costs = [called.cost for called in calls if called.cost is not None]
    silent = [called.counted for called in calls if not (called.usage and called.usage.input_tokens)]
    return Took(
        usage=sum((called.usage for called in calls if called.usage), Usage()),
        unreported=Usage(input_tokens=sum(silent), output_tokens=output_tokens if silent else 0),
        cost=sum(costs) if costs else None,
    )


def _messages(plan: Plan) -> Iterator[Positioned]:
    shown = {item.seq for item in plan.cleared}
    for entry in plan.touched:
        if entry.kind == "said":
            yield Positioned(
                seq=entry.seq, message=entry.original, run_id=entry.run_id, shortened=entry.seq in shown
            )


_ENDED_FIELDS = [
    each.name
    for each in fields(CompactionEnded)
    if each.name not in {own.name for own in fields(StreamEvent)}
]


MOST_LOST = 100
"""So many identifiers are listed as lost at the most."""


class _EndedError(AgentLoopError):
    def __init__(self, status: CompactionStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Compactor:
    """Carries out plans on sessions; `transcripts` is the folder they are saved in, None for nowhere.

    `transcript_failure` says what becomes of a compaction whose transcript cannot be saved, `rebase`
    when one still holds though others wrote to the log meanwhile.
    """

    counter: TokenCounter
    transcripts: Path | None
    emitter: Emitter
    transcript_failure: TranscriptFailure = "stop"
    rebase: Rebase = rebase_any

    async def carry_out(
        self, session: Session, plan: Plan, budget: Budget, write: Writer
    ) -> tuple[Session, CompactionResult]:
        """The session compacted, and what came of it; a failure leaves the session as it was."""
        return await _Work(self, session, plan, budget, write).done()


class _Work:
    """One plan being carried out: its request, its clock, its model calls and its result."""

    def __init__(
        self, compactor: Compactor, session: Session, plan: Plan, budget: Budget, write: Writer
    ) -> None:
        self.compactor, self.session, self.budget, self.write = compactor, session, budget, write
        self.redact = compactor.emitter.redact
        self.plan = replace(plan, occasion=redacted(plan.occasion, self.redact))
        self.covered, self.covers = plan.entries, plan.covers(session.context)
        self.size_before = budget.size(session.context)
        self.started = time.monotonic()
        self.transcript: str | None = None
        self.unsaved: str | None = None
        self.calls: list[ModelCalled] = []
        self.unread: tuple[int, ...] = ()
        self.fault: str | None = None
        self.compacted = session
        self.result = self._result("failed", error="cancelled")

    async def done(self) -> tuple[Session, CompactionResult]:
        try:
            began = started(self.plan, self.session.context, self.size_before)
            await self.compactor.emitter.emit(began)
            await self._compact()
        except _EndedError as error:
            self.result = self._result(error.status, error=str(error))
        except (ConflictError, TakenOverError) as error:
            self.result = self._result("conflict", error=str(error))
            raise
        except AgentLoopError as error:
            self.result = self._result("failed", error=str(error))
        except Exception as error:  # noqa: BLE001 — a model of the user's own may raise anything
            self.result = self._result("failed", error=f"{type(error).__name__}: {error}")
        finally:
            await self.compactor.emitter.emit(ended(self.result))
        return self.compacted, self.result

    async def _compact(self) -> None:
        emitter = self.compactor.emitter
        replies = await emitter.callback_list.before_compaction(self._request())
        for reply in replies:
            if isinstance(reply, Veto):
                raise _EndedError("vetoed", reply.reason)
        await self._keep_transcript()
        standing = await self._standing(replies) if self.covered else NOTHING
        self.unread, self.fault = standing.unread, standing.fault
        await to_its_end(self._append(self._event(standing)))
        await emitter.callback_list.after_compaction(self.result)

    async def _standing(self, replies: Sequence[Veto | Focus | Replace]) -> Standing:
        """The text of a callback, else that of the plan's writer."""
        for reply in replies:
            if isinstance(reply, Replace):
                return self._replaced(reply.summary)
        wishes = [self.plan.occasion.focus, *(reply.text for reply in replies if isinstance(reply, Focus))]
        focus = "; ".join(wish for wish in wishes if wish) or None
        return await self.write(self.plan, self.session.context, focus, self.calls.append)

    def _replaced(self, text: str) -> Standing:
        fault = fault_of(text, None, self.covered, self.session.context, self.compactor.counter)
        if fault is not None:
            raise SummaryRefusedError(f"the summary of a callback was refused: {fault}")
        return Standing(text=neutral(text), made="summary")

    def _event(self, standing: Standing) -> Compacted:
        context = self.session.context
        standing, counter = redacted(standing, self.redact), self.compactor.counter
        event = record_of(standing, self.plan, context, transcript=self.transcript, counter=counter)
        after = context.add(Record(seq=context.length + 1, event=event))
        if after.tokens >= context.tokens:
            raise _EndedError("ineffective", "what would stand instead is not smaller than what it covers")
        size = self.budget.size_of_rewritten(context, after)
        return replace(
            event, before=self.size_before, after=size, lost=redacted(self._lost(after), self.redact)
        )

    def _lost(self, after: Context) -> tuple[str, ...]:
        present = "\n".join(message.text for message in after.messages)
        gone = (entry for entry in reversed(self.plan.touched) if entry.kind != "note")
        texts = (summary_in(entry.original.text) for entry in gone)
        return missing(texts, present, most=MOST_LOST)

    async def _append(self, event: Compacted) -> None:
        """Write the compaction; messages that others added meanwhile do not invalidate it.

        No lease is held for it, and its summary took a while: a log of the same length may be another's.
        """
        await self.session.newer()
        self.compacted = await appended(self.session, (*self.calls, event), self._caught_up)
        faults = "; ".join(filter(None, (self.fault, self.unsaved)))
        self.result = self._done(event, faults or None)

    async def _caught_up(self, session: Session, conflict: ConflictError) -> Session:
        """The session with what others wrote; where they compacted it, that is what it came to."""
        session = await self.compactor.rebase(session, conflict)
        if session.context.compactions != self.session.context.compactions:
            self.compacted = session
            raise _EndedError("conflict", "another writer compacted the session first") from conflict
        return session

    async def _keep_transcript(self) -> None:
        """Save it, or say why that failed; then the compaction ends, unless the policy lets it go on."""
        try:
            self.transcript = await self._save_transcript()
        except StoreError as error:
            self.unsaved = f"the transcript could not be saved: {error}"
            if self.compactor.transcript_failure == "stop":
                raise _EndedError("failed", self.unsaved) from error

    async def _save_transcript(self) -> str | None:
        folder = self.compactor.transcripts
        if folder is None:
            return None

        def saved() -> Path:
            # A log may be older than its redaction.
            history = (redacted(entry.original, self.redact) for entry in self.session.context.said)
            return save(folder, history, epoch=int(time.time()))

        return (await to_its_end(in_thread(saved))).name

    def _request(self) -> CompactionRequest:
        session_id, run_id = self.session.id, self.compactor.emitter.run_id
        request = request_for(self.plan, session_id=session_id, run_id=run_id, tokens=self.size_before)
        return redacted(request, self.redact)

    def _done(self, event: Compacted, fault: str | None) -> CompactionResult:
        """The result of the compaction that this record is."""
        seqs = [seq for seq, other in self.compacted.context.compactions if other is event]
        return replace(
            self._result("done", error=fault, summary_tokens=event.tokens),
            tier=event.tier,
            tokens_after=event.after,
            archived=event.covers,
            compacted=sum(entry.kind == "said" for entry in self.covered),
            shortened=tuple(item.seq for item in event.cleared),
            summary=event.answer or event.replacement,
            summary_tokens=event.tokens,
            lost=event.lost,
            unread=self.unread,
            seq=seqs[0] if seqs else None,
        )

    def _result(
        self, status: CompactionStatus, *, error: str | None, summary_tokens: int = 0
    ) -> CompactionResult:
        """The result of a compaction that changed nothing of its own, and what it cost."""
        spent = took(self.calls, summary_tokens)
        return CompactionResult(
            status=status,
            reason=self.plan.occasion.reason,
            why=self.plan.occasion.why,
            strategy=self.plan.strategy,
            tier=self.plan.tier,
            tokens_before=self.size_before,
            tokens_after=self.size_before,
            messages_before=len(self.session.context.visible),
            messages_after=len(self.compacted.context.visible),
            transcript=self.transcript,
            duration_seconds=time.monotonic() - self.started,
            error=redacted(error, self.redact),
            usage=spent.usage,
            unreported=spent.unreported,
            cost=spent.cost,
            window=self.budget.window,
            unsaved=redacted(self.unsaved, self.redact),
        )
