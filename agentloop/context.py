"""What the model sees now: the fold of the log.

`Context` is a value. `add` costs what the records cost, not what the log costs, and a context grown
record by record equals one folded from scratch. Only four kinds of record change it: `MessageAdded`
appends, `Cleared` shows messages shortened, `Compacted` puts a summary in the place of what it covers,
`Restored` takes one back. `ModelCalled` leaves the provider's own count, which sizes rest on.

A context may hold the newest part alone of what was said (`base`): all that a step needs is there, and what
was added to it is folded in all the same. Only taking a compaction back wants the whole.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from operator import itemgetter

from agentloop.entries import Entry, Shown, in_order
from agentloop.errors import UsageError
from agentloop.events import Cleared, ClearedItem, Compacted, MessageAdded, Record, Restored, holds
from agentloop.growing import Growing, GrowingSet
from agentloop.messages import Message
from agentloop.overlays import as_shown, instead_of, kept_clearings, reported, said_entry
from agentloop.reports import Report, can_be_true
from agentloop.unsaid import Unsaid

TELLING_TOKENS = 500
"""From this size on, the provider's count over ours tells of its vocabulary; below, of its overhead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The fold of a log's first `length` records.

    `visible` is what the model sees, oldest first; `unsaid` what requests hold beside it; `tokens` the length
    of both. `said` is everything ever said on the main line, `call_ids` the ids of its calls. `turns` counts
    the turns that begin behind what stands for older ones. `first` is the first message ever said, whoever
    said it, and `task` the session's first real user message, in sight or not. `epoch` is the position of the
    last record that rewrote what was visible; `reports` holds each model's newest count that can be true,
    `told` the last two of each as they came.

    Where `base` is not 0, `said` holds only what was said behind that position, the newest message that is no
    result among it. Of the compactions it then has the newest and those that something in sight stands for:
    `older_compactions` counts the others; no clearings from then; and what was shown shortened by then and
    stands before `base` has no other `original`.
    """

    length: int = 0
    base: int = 0
    said: Growing[Entry] = field(default_factory=Growing)
    call_ids: GrowingSet[str] = field(default_factory=GrowingSet)
    visible: Growing[Entry] = field(default_factory=Growing)
    tokens: int = 0
    turns: int = 0
    unsaid: Unsaid = field(default_factory=Unsaid)
    compactions: tuple[tuple[int, Compacted], ...] = ()
    clearings: tuple[tuple[int, Cleared], ...] = ()
    older_compactions: int = 0
    first: Entry | None = None
    task: Entry | None = None
    epoch: int = 0
    reports: Mapping[str, Report] = field(default_factory=dict)
    told: Mapping[str, tuple[Report, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, records: Iterable[Record]) -> "Context":
        """The fold of these records from scratch."""
        return cls().add(*records)

    def add(self, *records: Record) -> "Context":
        """This context with the next records of the log.

        Raises:
            UsageError: a compaction is taken back, and the context holds a part alone of what was said.
        """
        context, growth = self, 0
        for at, record in enumerate(records):
            if isinstance(event := record.event, Cleared | Compacted | Restored):
                context = context._grow(records[growth:at])._rewrite(record.seq, event)
                growth = at + 1
        return context._grow(records[growth:])

    @property
    def messages(self) -> Sequence[Message]:
        """The visible messages as they are shown; a view that costs nothing."""
        return Shown(self.visible)

    @property
    def newest_user(self) -> Entry | None:
        """The newest message that a real user said and that is in sight."""
        return next((entry for entry in reversed(self.visible) if entry.is_user), None)

    @property
    def cleared(self) -> Mapping[int, ClearedItem]:
        """How messages are shown that are shown shortened, by their position."""
        shown = [(seq, event.items) for seq, event in self.clearings]
        shown += [(seq, event.cleared) for seq, event in self.compactions]
        return {item.seq: item for _, items in sorted(shown, key=itemgetter(0)) for item in items}

    @property
    def compaction_count(self) -> int:
        """How many compactions stand."""
        return self.older_compactions + len(self.compactions)

    def anchor(self, model: str) -> Report | None:
        """The model's count of what is in sight; None once the context was rewritten."""
        report = self.reports.get(model)
        return report if report and report.seq > self.epoch else None

    def ratio(self, model: str) -> float:
        """The model's tokens for one of ours; 1 until a report tells, since small ones tell of overhead."""
        report = self.reports.get(model)
        return report.measured / report.counted if report and report.counted >= TELLING_TOKENS else 1.0

    def _grow(self, records: Sequence[Record]) -> "Context":
        """This context with records that rewrite nothing, all at once."""
        if not records:
            return self
        entries = [
            said_entry(record.seq, record.event)
            for record in records
            if isinstance(record.event, MessageAdded) and record.event.branch is None
        ]
        unsaid = self.unsaid.after(entry.message for entry in entries) if entries else self.unsaid
        reports, told = self._heard(records)
        return replace(
            self,
            length=records[-1].seq,
            said=self.said.plus(*entries),
            first=self.first or next(iter(entries), None),
            task=self.task or next((entry for entry in entries if entry.is_user), None),
            call_ids=self.call_ids.plus(*(call.id for entry in entries for call in entry.message.tool_calls)),
            visible=self.visible.plus(*entries),
            tokens=self.tokens - self.unsaid.tokens + unsaid.tokens + sum(entry.tokens for entry in entries),
            turns=self.turns + sum(entry.is_user for entry in entries),
            unsaid=unsaid,
            reports=reports,
            told=told,
        )

    def _heard(
        self, records: Sequence[Record]
    ) -> tuple[Mapping[str, Report], Mapping[str, tuple[Report, ...]]]:
        """What stands in `reports` and in `told` once these records were heard too."""
        reports, told = self.reports, self.told
        for model, report in reported(records):
            earlier, trusted = told.get(model, ()), reports.get(model)
            if can_be_true(report, earlier, trusted if trusted and trusted.seq > self.epoch else None):
                reports = {**reports, model: report}
            told = {**told, model: (*earlier[-1:], report)}
        return reports, told

    def _rewrite(self, seq: int, event: Cleared | Compacted | Restored) -> "Context":
        match event:
            case Cleared():
                return self._clear(seq, event)
            case Compacted():
                return self._compact(seq, event)
            case Restored(seq=taken_back):
                return self._restore(seq, taken_back)

    def _clear(self, seq: int, event: Cleared) -> "Context":
        items = {item.seq: item for item in event.items}
        shown = (as_shown(entry, items.get(entry.seq)) for entry in self.visible)
        context = self._rewritten(seq, shown, self.unsaid)
        return replace(context, clearings=(*self.clearings, (seq, event)))

    def _compact(self, seq: int, event: Compacted) -> "Context":
        items = {item.seq: item for item in event.cleared}
        left = (entry for entry in self.visible if not holds(event.covers, entry.seq))
        shown = (as_shown(entry, items.get(entry.seq)) for entry in left)
        return replace(
            self._arranged(seq, (*shown, *instead_of(seq, event))),
            compactions=(*self.compactions, (seq, event)),
        )

    def _restore(self, seq: int, taken_back: int) -> "Context":
        """As it was before that compaction, with what was said since.

        What older messages were shortened to after it is forgotten too.
        """
        if self.base:
            raise UsageError("a compaction is taken back in a context that holds all that was said")
        compactions = tuple(pair for pair in self.compactions if pair[0] != taken_back)
        clearings = tuple(kept_clearings(self.clearings, taken_back))
        before = replace(self, compactions=compactions, clearings=clearings)
        cleared = before.cleared
        entries = [entry for at, event in compactions for entry in instead_of(at, event)]
        entries.extend(as_shown(entry, cleared.get(entry.seq)) for entry in self.said)
        left = (entry for entry in entries if not _covered(entry, compactions))
        return before._arranged(seq, left)

    def _arranged(self, seq: int, entries: Iterable[Entry]) -> "Context":
        visible = in_order(entries)
        return self._rewritten(seq, visible, Unsaid().after(entry.message for entry in visible))

    def _rewritten(self, seq: int, entries: Iterable[Entry], unsaid: Unsaid) -> "Context":
        visible = Growing(entries)
        tokens = unsaid.tokens + sum(entry.tokens for entry in visible)
        said_since = takewhile(lambda entry: entry.kind == "said", reversed(visible))
        turns = sum(entry.is_user for entry in said_since)
        return replace(
            self, length=seq, visible=visible, tokens=tokens, turns=turns, unsaid=unsaid, epoch=seq
        )


def _covered(entry: Entry, compactions: Iterable[tuple[int, Compacted]]) -> bool:
    return any(seq != entry.seq and holds(event.covers, entry.seq) for seq, event in compactions)
