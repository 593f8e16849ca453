"""What the model sees now: the fold of the log.

`Context` is a value. `add` costs what the records cost, not what the log costs, and a context grown
record by record equals one folded from scratch. Only four kinds of record change it: `MessageRecord`
appends, `Cleared` shows messages shortened, `Compacted` puts a summary in the place of what it covers,
`Restored` takes one back. `ModelCalled` leaves the provider's own count, which sizes rest on.

A context may hold the newest part alone of what was said (`starts_after`): all that a step needs is there,
and what was added to it is folded in all the same. Only taking a compaction back wants the whole.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from operator import itemgetter

from agentloop.context.entries import Entry, Growing, GrowingSet, Kind, Shown, in_order
from agentloop.context.guard import Guard
from agentloop.context.pairing import FillerTokens, says_nothing
from agentloop.context.reports import Report, is_credible, reported
from agentloop.errors import UsageError
from agentloop.events import (
    Cleared,
    ClearedItem,
    Compacted,
    Described,
    MessageRecord,
    NotCompacted,
    Ranges,
    Record,
    Restored,
    holds,
    united,
)
from agentloop.messages import Message, SeenMessage
from agentloop.prompts import RECALL_MEDIA


def said_entry(seq: int, event: MessageRecord) -> Entry:
    """What was said, as it stands in sight first; a message that says nothing takes no tokens."""
    message = event.message
    return Entry(
        seq=seq,
        message=message,
        tokens=0 if says_nothing(message) else event.tokens,
        original=message,
        at=seq,
        keep=event.keep,
        spilled=event.spilled,
        run_id=event.run_id,
        finish=event.finish,
        time=event.time,
    )


def kept_clearings(
    clearings: Iterable[tuple[int, Cleared]], taken_back: int
) -> Iterator[tuple[int, Cleared]]:
    """The clearings that stand once that compaction is taken back: older messages are whole again.

    Of a clearing made after it only the items behind it stay: the others shortened what it had left in sight.
    """
    for seq, event in clearings:
        items = tuple(item for item in event.items if seq < taken_back or item.seq > taken_back)
        if items:
            yield seq, replace(event, items=items)


def instead_of(seq: int, event: Compacted) -> Iterator[Entry]:
    """What stands for what the compaction covers; where an assistant says it, a user asks for it first.

    Nothing stands for what was taken back.
    """
    if event.covers and event.replacement:
        stands = Message.user(event.replacement)
        kind: Kind = "note" if event.answer or event.made == "note" else "summary"
        tokens = event.tokens - event.answer_tokens
        yield Entry(seq=seq, message=stands, tokens=tokens, original=stands, kind=kind, at=event.at)
    if event.covers and event.answer:
        said = Message.assistant(event.answer)
        tokens = event.answer_tokens
        yield Entry(seq=seq, message=said, tokens=tokens, original=said, kind="summary", at=event.at)
    if event.covers and event.pinned:
        kept, tokens = Message.user(event.pinned), event.pinned_tokens or 0
        yield Entry(seq=seq, message=kept, tokens=tokens, original=kept, kind="note", at=event.at)


def _standing(compactions: Sequence[tuple[int, Compacted]], entries: Iterable[Entry]) -> Iterator[Entry]:
    """The entries without what compactions pinned before the newest one that something stands for."""
    folds = [pair for pair in compactions if pair[1].covers and not pair[1].is_rewind]
    earlier = {seq: event.pinned for seq, event in folds[:-1] if event.pinned}
    for entry in entries:
        if entry.kind != "note" or earlier.get(entry.seq) != entry.message.content:
            yield entry


def as_shown(entry: Entry, item: ClearedItem | None) -> Entry:
    """The entry shown as the item says; the very entry where there is none for it."""
    if item is None or entry.kind != "said":
        return entry
    return replace(entry, message=item.message, tokens=item.tokens)


TELLING_TOKENS = 500
"""From this size on, the provider's count over ours tells of its vocabulary; below, of its overhead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The fold of a log's first `length` records.

    `visible` is what the model sees, oldest first; `filler` what requests hold beside it; `tokens` the length
    of both. `said` is everything ever said on the main line, `call_ids` the ids of its calls. `turns` counts
    the turns that begin behind what stands for older ones. `first` is the first message ever said, whoever
    said it, and `task` the session's first real user message that was not taken back, in sight or not.
    `rewritten_at` is the position of the last record that rewrote what was visible; `reports` holds each
    model's newest credible count, `recent_reports` the last two of each as they came. `guard` is what
    compactions came to so far. `transcript` is the file that compactions here saved the history in, also one
    that was taken back; what stands before an import names another session's.

    A context read from a checkpoint (`sessions/checkpoint.py`) is a short one: `starts_after` is not 0, and
    what a step never needs is left out. `said` begins behind that position. Of the compactions made by then
    it has the newest, those that something in sight stands for, and rewinds; `older_compactions` counts the
    others, as `compaction_count` does. It has none of the clearings made by then. An older message that is
    shown shortened is its own `original`.
    """

    length: int = 0
    starts_after: int = 0
    said: Growing[Entry] = field(default_factory=Growing)
    call_ids: GrowingSet[str] = field(default_factory=GrowingSet)
    visible: Growing[Entry] = field(default_factory=Growing)
    tokens: int = 0
    turns: int = 0
    filler: FillerTokens = field(default_factory=FillerTokens)
    compactions: tuple[tuple[int, Compacted], ...] = ()
    clearings: tuple[tuple[int, Cleared], ...] = ()
    older_compactions: int = 0
    first: Entry | None = None
    task: Entry | None = None
    rewritten_at: int = 0
    reports: Mapping[str, Report] = field(default_factory=dict)
    recent_reports: Mapping[str, tuple[Report, ...]] = field(default_factory=dict)
    guard: Guard = field(default_factory=Guard)
    transcript: str | None = None
    hides_media: bool = False

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

    def records_of(self, entries: Iterable[Entry]) -> tuple[Record, ...]:
        """The records of those of the entries that somebody said, as the log holds them but for their ids."""
        wanted = {entry.seq for entry in entries if entry.kind == "said"}
        return tuple(_record_of(entry) for entry in self.said if entry.seq in wanted)

    def seen(self, gone: Collection[int] = ()) -> list[SeenMessage]:
        """What was said and not taken back, as the log holds it, oldest first; `gone` is taken for hidden."""
        whole = {entry.seq for entry in self.visible if entry.kind == "said" and not entry.cleared}
        taken_back, whole = rewound(self.compactions), whole.difference(gone)
        said = (entry for entry in self.said if not holds(taken_back, entry.seq))
        return [SeenMessage(entry.original, in_sight=entry.seq in whole) for entry in said]

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
    def has_hidden(self) -> bool:
        """Whether something is hidden that no turn taken back accounts for: by a compaction, or an image."""
        return (
            self.hides_media
            or self.older_compactions > 0
            or any(not event.is_rewind for _, event in self.compactions)
        )

    @property
    def compaction_count(self) -> int:
        """How many compactions stand: one in several steps is one, and what took turns back is none."""
        made = {event.group or seq for seq, event in self.compactions if not event.is_rewind}
        return self.older_compactions + len(made)

    def anchor(self, model: str) -> Report | None:
        """The model's count of what is in sight; None once the context was rewritten."""
        report = self.reports.get(model)
        return report if report and report.seq > self.rewritten_at else None

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
            if isinstance(record.event, MessageRecord) and record.event.branch is None
        ]
        filler = self.filler.after(entry.message for entry in entries) if entries else self.filler
        reports, recent_reports = self._heard(records)
        return replace(
            self,
            length=records[-1].seq,
            said=self.said.plus(*entries),
            first=self.first or next(iter(entries), None),
            task=self.task or next((entry for entry in entries if entry.is_user), None),
            call_ids=self.call_ids.plus(*(call.id for entry in entries for call in entry.message.tool_calls)),
            visible=self.visible.plus(*entries),
            tokens=self.tokens - self.filler.tokens + filler.tokens + sum(entry.tokens for entry in entries),
            turns=self.turns + sum(entry.is_user for entry in entries),
            filler=filler,
            reports=reports,
            recent_reports=recent_reports,
            guard=self.guard.after(*(record.event for record in records)),
            transcript=_transcript_after(records, self.transcript),
        )

    def _heard(
        self, records: Sequence[Record]
    ) -> tuple[Mapping[str, Report], Mapping[str, tuple[Report, ...]]]:
        """What stands in `reports` and in `recent_reports` once these records were heard too."""
        reports, recent_reports = self.reports, self.recent_reports
        for model, report in reported(records):
            earlier, trusted = recent_reports.get(model, ()), reports.get(model)
            if is_credible(report, earlier, trusted if trusted and trusted.seq > self.rewritten_at else None):
                reports = {**reports, model: report}
            recent_reports = {**recent_reports, model: (*earlier[-1:], report)}
        return reports, recent_reports

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
        context = self._rewritten(seq, shown, self.filler)
        return replace(context, clearings=(*self.clearings, (seq, event)))

    def _compact(self, seq: int, event: Compacted) -> "Context":
        items = {item.seq: item for item in event.cleared}
        left = (entry for entry in self.visible if not holds(event.covers, entry.seq))
        shown = (as_shown(entry, items.get(entry.seq)) for entry in left)
        gone = rewound([(seq, event)])
        compactions = (*self.compactions, (seq, event))
        return replace(
            self._arranged(seq, _standing(compactions, (*shown, *instead_of(seq, event)))),
            compactions=compactions,
            task=None if self.task and holds(gone, self.task.seq) else self.task,
            guard=self.guard.after(event),
            transcript=event.transcript or self.transcript,
        )

    def _restore(self, seq: int, taken_back: int) -> "Context":
        """As it was before that compaction, with what was said since.

        What older messages were shortened to after it is forgotten too.
        """
        if self.starts_after:
            raise UsageError("a compaction is taken back in a context that holds all that was said")
        compactions = tuple(pair for pair in self.compactions if pair[0] != taken_back)
        clearings = tuple(kept_clearings(self.clearings, taken_back))
        before = replace(self, compactions=compactions, clearings=clearings)
        cleared = before.cleared
        entries = [entry for at, event in compactions for entry in instead_of(at, event)]
        entries.extend(as_shown(entry, cleared.get(entry.seq)) for entry in self.said)
        left = (entry for entry in _standing(compactions, entries) if not _covered(entry, compactions))
        gone = rewound(compactions)
        users = (entry for entry in self.said if entry.is_user and not holds(gone, entry.seq))
        return replace(before._arranged(seq, left), task=next(users, None))

    def _arranged(self, seq: int, entries: Iterable[Entry]) -> "Context":
        visible = in_order(entries)
        return self._rewritten(seq, visible, FillerTokens().after(entry.message for entry in visible))

    def _rewritten(self, seq: int, entries: Iterable[Entry], filler: FillerTokens) -> "Context":
        visible = Growing(entries)
        tokens = filler.tokens + sum(entry.tokens for entry in visible)
        said_since = takewhile(lambda entry: entry.kind == "said", reversed(visible))
        turns = sum(entry.is_user for entry in said_since)
        return replace(
            self,
            length=seq,
            visible=visible,
            tokens=tokens,
            turns=turns,
            filler=filler,
            rewritten_at=seq,
            hides_media=any(entry.cleared and RECALL_MEDIA in entry.message.text for entry in visible),
        )


def _transcript_after(records: Sequence[Record], before: str | None) -> str | None:
    """The file that the history is saved in; none of before, where the session comes into its folder.

    It does so at its beginning, and behind what was imported.
    """
    for record in records:
        match record.event:
            case Described(folder=str()):
                before = None
            case NotCompacted(transcript=str(name)):
                before = name
    return before


def _record_of(said: Entry) -> Record:
    event = MessageRecord(
        message=said.original,
        tokens=said.tokens,
        run_id=said.run_id,
        keep=said.keep,
        spilled=said.spilled,
        finish=said.finish,
        time=said.time,
    )
    return Record(seq=said.seq, event=event)


def _covered(entry: Entry, compactions: Iterable[tuple[int, Compacted]]) -> bool:
    """Whether one of them covers it; what stands for a compaction has that one's own position."""
    return any(seq != entry.seq and holds(event.covers, entry.seq) for seq, event in compactions)


def rewound(compactions: Iterable[tuple[int, Compacted]]) -> Ranges:
    """The positions that were taken back: they are covered, and nothing stands for them."""
    return united(*(event.covers for _, event in compactions if event.is_rewind))
