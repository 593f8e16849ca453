"""One compaction, in the order that loses nothing.

decide → `CompactionStarted` → before_compaction → transcript on disc → summary → check → append
`Compacted` → after_compaction → `CompactionEnded`. Whatever fails before the append leaves the log, and so
the session, exactly as it was.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TypeAlias

from agentloop.budget import Budget
from agentloop.callbacks import (
    CompactionRequest,
    CompactionResult,
    Focus,
    Positioned,
    Replace,
    Veto,
)
from agentloop.context import Context
from agentloop.entries import Entry
from agentloop.errors import AgentLoopError, ConflictError, SummaryRefusedError
from agentloop.events import Compacted, ModelCalled, Ranges, Record
from agentloop.exchanges import Unit, covered_ranges
from agentloop.identifiers import missing
from agentloop.labelled import neutral, summary_in
from agentloop.messages import Message, Usage
from agentloop.prompts import summary_message
from agentloop.refusal import fault_of
from agentloop.sessions import Session
from agentloop.stream import (
    CompactionEnded,
    CompactionReason,
    CompactionStarted,
    CompactionStatus,
)
from agentloop.summary import Note, Written
from agentloop.threads import in_thread, to_its_end
from agentloop.tokens import TokenCounter, count_message
from agentloop.transcripts import save
from agentloop.watch import Watch

MOST_LOST = 100
"""So many identifiers are listed as lost at the most."""

Writer: TypeAlias = Callable[[tuple[Entry, ...], Context, str | None, Note], Awaitable[Written]]
"""Writes what stands for these entries of this context, with the focus asked for; notes its requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A compaction decided on: why, what it covers, and who writes what stands instead.

    The replacement stands before the first message at or after position `at`.
    """

    reason: CompactionReason
    why: str
    strategy: str
    tier: int
    covered: tuple[Unit, ...]
    at: int
    write: Writer
    focus: str | None = None

    @property
    def tokens(self) -> int:
        """What is covered takes so much of the context."""
        return sum(unit.tokens for unit in self.covered)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """What is covered, oldest first."""
        entries = (entry for unit in self.covered for entry in unit.entries)
        return tuple(sorted(entries, key=lambda entry: (entry.at, entry.seq)))

    def covers(self, context: Context) -> Ranges:
        """The positions of what is covered, in the context it was decided for."""
        return covered_ranges(context, self.covered)


class _EndedError(AgentLoopError):
    def __init__(self, status: CompactionStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Compactor:
    """Carries out plans on sessions; `transcripts` is the folder they are saved in, None for nowhere."""

    counter: TokenCounter
    transcripts: Path | None
    watch: Watch

    async def carry_out(
        self, session: Session, plan: Plan, budget: Budget
    ) -> tuple[Session, CompactionResult]:
        """The session compacted, and what came of it; a failure leaves the session as it was."""
        work = _Work(compactor=self, session=session, plan=plan, budget=budget)
        return await work.done()


class _Work:
    """One plan being carried out: its request, its clock, its model calls and its result."""

    def __init__(self, *, compactor: Compactor, session: Session, plan: Plan, budget: Budget) -> None:
        self.compactor, self.session, self.plan, self.budget = compactor, session, plan, budget
        self.covered, self.covers = plan.entries, plan.covers(session.context)
        self.size_before = budget.size(session.context)
        self.started = time.monotonic()
        self.transcript: str | None = None
        self.calls: list[ModelCalled] = []
        self.unread: tuple[int, ...] = ()
        self.compacted = session
        self.result = self._result("failed", error="cancelled")

    async def done(self) -> tuple[Session, CompactionResult]:
        try:
            await self._say_started()
            await self._compact()
        except _EndedError as error:
            self.result = self._result(error.status, error=str(error))
        except AgentLoopError as error:
            self.result = self._result("failed", error=str(error))
        except Exception as error:  # noqa: BLE001 — a model of the user's own may raise anything
            self.result = self._result("failed", error=f"{type(error).__name__}: {error}")
        finally:
            await self._say_ended()
        return self.compacted, self.result

    async def _compact(self) -> None:
        watch = self.compactor.watch
        replies = await watch.callback_list.before_compaction(self._request())
        for reply in replies:
            if isinstance(reply, Veto):
                raise _EndedError("vetoed", reply.reason)
        self.transcript = await self._save_transcript()
        written = await self._written(replies)
        self.unread = written.unread
        await to_its_end(self._append(self._event(written.text)))
        await watch.callback_list.after_compaction(self.result)

    async def _written(self, replies: Sequence[Veto | Focus | Replace]) -> Written:
        """The text of a callback, else that of the plan's writer."""
        for reply in replies:
            if isinstance(reply, Replace):
                return self._replaced(reply.summary)
        wishes = [self.plan.focus, *(reply.text for reply in replies if isinstance(reply, Focus))]
        focus = "; ".join(wish for wish in wishes if wish) or None
        return await self.plan.write(self.covered, self.session.context, focus, self.calls.append)

    def _replaced(self, text: str) -> Written:
        fault = fault_of(text, None, self.covered, self.session.context, self.compactor.counter)
        if fault is not None:
            raise SummaryRefusedError(f"the summary of a callback was refused: {fault}")
        return Written(text=neutral(text))

    def _event(self, written: str) -> Compacted:
        context, plan = self.session.context, self.plan
        text = summary_message(written, self.transcript)
        event = Compacted(
            covers=self.covers,
            replacement=text,
            at=plan.at,
            tokens=count_message(Message.user(text), self.compactor.counter),
            reason=plan.reason,
            why=plan.why,
            strategy=plan.strategy,
            tier=plan.tier,
            before=self.size_before,
            transcript=self.transcript,
        )
        after = context.add(Record(seq=context.length + 1, event=event))
        if after.tokens >= context.tokens:
            raise _EndedError("ineffective", "what would stand instead is not smaller than what it covers")
        present = "\n".join(message.text for message in after.messages)
        texts = (summary_in(entry.original.text) for entry in reversed(self.covered))
        return replace(event, after=self.budget.size(after), lost=missing(texts, present, most=MOST_LOST))

    async def _append(self, event: Compacted) -> None:
        """Write the compaction; messages that others added meanwhile do not invalidate it."""
        session = self.session
        while True:
            try:
                self.compacted = await session.append(*self.calls, event)
                break
            except ConflictError as error:
                session = await session.reload()
                if session.context.compactions != self.session.context.compactions:
                    raise _EndedError("conflict", "another writer compacted the session first") from error
        self.result = self._result("done", event=event)

    async def _save_transcript(self) -> str | None:
        folder = self.compactor.transcripts
        if folder is None:
            return None
        history = [entry.original for entry in self.session.context.said]
        return (await in_thread(lambda: save(folder, history, epoch=int(time.time())))).name

    def _request(self) -> CompactionRequest:
        return CompactionRequest(
            session_id=self.session.id,
            run_id=self.compactor.watch.run_id,
            reason=self.plan.reason,
            why=self.plan.why,
            messages=tuple(
                Positioned(seq=entry.seq, message=entry.original)
                for entry in self.covered
                if entry.kind == "said"
            ),
            tokens_before=self.size_before,
            focus=self.plan.focus,
        )

    def _result(
        self, status: CompactionStatus, *, event: Compacted | None = None, error: str | None = None
    ) -> CompactionResult:
        before, after = self.session.context, self.compacted.context
        seqs = [seq for seq, other in after.compactions if other is event]
        costs = [called.cost for called in self.calls if called.cost is not None]
        return CompactionResult(
            status=status,
            reason=self.plan.reason,
            why=self.plan.why,
            strategy=self.plan.strategy,
            tier=self.plan.tier,
            tokens_before=self.size_before,
            tokens_after=event.after if event else self.size_before,
            messages_before=len(before.visible),
            messages_after=len(after.visible),
            archived=event.covers if event else (),
            transcript=self.transcript,
            duration_seconds=time.monotonic() - self.started,
            summary=event.replacement if event else "",
            summary_tokens=event.tokens if event else 0,
            lost=event.lost if event else (),
            unread=self.unread if event else (),
            error=error,
            usage=sum((called.usage for called in self.calls if called.usage), Usage()),
            cost=sum(costs) if costs else None,
            seq=seqs[0] if seqs else None,
        )

    async def _say_started(self) -> None:
        started = CompactionStarted(
            reason=self.plan.reason,
            why=self.plan.why,
            strategy=self.plan.strategy,
            tokens_before=self.size_before,
            messages_before=len(self.session.context.visible),
            first=self.covers[0][0],
            last=self.covers[-1][1],
        )
        await self.compactor.watch.say(started)

    async def _say_ended(self) -> None:
        shown = {name: getattr(self.result, name) for name in _ENDED_FIELDS}
        await self.compactor.watch.say(CompactionEnded(**shown))


_ENDED_FIELDS = {each.name for each in fields(CompactionEnded)} & {
    each.name for each in fields(CompactionResult)
}
