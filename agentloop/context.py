"""What the model sees now: the fold of the log.

`Context` is a value. `add` costs what the records cost, not what the log costs, and a context grown
record by record equals one folded from scratch. Only four kinds of record change it: `MessageAdded`
appends, `Cleared` shows messages shortened, `Compacted` puts a summary in the place of what it covers,
`Restored` takes one back. `ModelCalled` leaves the provider's own count, which sizes rest on.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, overload

from agentloop.events import (
    Cleared,
    ClearedItem,
    Compacted,
    Event,
    MessageAdded,
    ModelCalled,
    Record,
    Restored,
)
from agentloop.growing import Growing
from agentloop.messages import Message
from agentloop.prompts import ACKNOWLEDGEMENT, ACKNOWLEDGEMENT_TOKENS
from agentloop.ranges import holds

Kind = Literal["said", "summary", "acknowledgement"]

TELLING_TOKENS = 500
"""From this size on, the provider's count over ours tells of its vocabulary; below, of its overhead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One message in sight.

    `message` is how it is shown and `tokens` the length of that; `original` is what the log holds. `at`
    orders entries: a position for what was said, the place given by its compaction for a summary.
    """

    seq: int
    message: Message
    tokens: int
    original: Message
    kind: Kind = "said"
    at: int = 0
    keep: bool = False
    spilled: str | None = None

    @property
    def cleared(self) -> bool:
        """Whether it is shown shortened."""
        return self.message is not self.original

    @property
    def is_user(self) -> bool:
        """Whether a real user said it: summaries start no turn."""
        return self.kind == "said" and self.message.role == "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """The provider's count of one request, held against ours; stale once the context is rewritten."""

    model: str
    measured: int
    counted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The fold of a log's first `length` records.

    `visible` is what the model sees, oldest first; `tokens` its length. `said` is everything ever said on
    the main line. `epoch` is the position of the last record that rewrote what was visible.
    """

    length: int = 0
    said: Growing[Entry] = field(default_factory=Growing)
    visible: Growing[Entry] = field(default_factory=Growing)
    tokens: int = 0
    compactions: tuple[tuple[int, Compacted], ...] = ()
    cleared: Mapping[int, ClearedItem] = field(default_factory=dict)
    epoch: int = 0
    anchor: Anchor | None = None
    ratios: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, records: Iterable[Record]) -> "Context":
        """The fold of these records from scratch."""
        return cls().add(*records)

    def add(self, *records: Record) -> "Context":
        """This context with the next records of the log."""
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
    def task(self) -> Entry | None:
        """The session's first real user message, in sight or not."""
        return next((entry for entry in self.said if entry.is_user), None)

    def _grow(self, records: Sequence[Record]) -> "Context":
        """This context with records that rewrite nothing, all at once."""
        if not records:
            return self
        entries = [
            _said(record.seq, record.event)
            for record in records
            if isinstance(record.event, MessageAdded) and record.event.branch is None
        ]
        reports = [report for record in records if (report := _report(record.event))]
        return replace(
            self,
            length=records[-1].seq,
            said=self.said.plus(*entries),
            visible=self.visible.plus(*entries),
            tokens=self.tokens + sum(entry.tokens for entry in entries),
            anchor=reports[-1] if reports else self.anchor,
            ratios={**self.ratios, **{each.model: each.measured / each.counted for each in reports}},
        )

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
        shown = (_as_shown(entry, items.get(entry.seq)) for entry in self.visible)
        return replace(self._rewritten(seq, shown), cleared={**self.cleared, **items})

    def _compact(self, seq: int, event: Compacted) -> "Context":
        left = (entry for entry in self.visible if not holds(event.covers, entry.seq))
        return replace(
            self._rewritten(seq, _acknowledged((*left, _summary(seq, event)))),
            compactions=(*self.compactions, (seq, event)),
        )

    def _restore(self, seq: int, taken_back: int) -> "Context":
        compactions = tuple(pair for pair in self.compactions if pair[0] != taken_back)
        entries = [_summary(at, event) for at, event in compactions]
        entries.extend(_as_shown(entry, self.cleared.get(entry.seq)) for entry in self.said)
        left = (entry for entry in entries if not _covered(entry, compactions))
        return replace(self._rewritten(seq, _acknowledged(left)), compactions=compactions)

    def _rewritten(self, seq: int, entries: Iterable[Entry]) -> "Context":
        visible = Growing(entries)
        tokens = sum(entry.tokens for entry in visible)
        return replace(self, length=seq, visible=visible, tokens=tokens, epoch=seq, anchor=None)


class Shown(Sequence[Message]):
    """Entries seen as the messages they show."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        if isinstance(index, slice):
            return [entry.message for entry in self._entries[index]]
        return self._entries[index].message

    def __iter__(self) -> Iterator[Message]:
        return (entry.message for entry in self._entries)


def _said(seq: int, event: MessageAdded) -> Entry:
    message = event.message
    return Entry(
        seq=seq,
        message=message,
        tokens=event.tokens,
        original=message,
        at=seq,
        keep=event.keep,
        spilled=event.spilled,
    )


def _report(event: Event) -> Anchor | None:
    """The provider's count that this record holds, if it is one to rest on."""
    if not isinstance(event, ModelCalled) or event.purpose != "agent":
        return None
    measured = event.usage.input_tokens if event.usage else 0
    if not _believable(measured, event.counted):
        return None
    return Anchor(model=event.model, measured=measured, counted=event.counted)


def _covered(entry: Entry, compactions: Iterable[tuple[int, Compacted]]) -> bool:
    return any(seq != entry.seq and holds(event.covers, entry.seq) for seq, event in compactions)


def _summary(seq: int, event: Compacted) -> Entry:
    message = Message.user(event.replacement)
    return Entry(seq=seq, message=message, tokens=event.tokens, original=message, kind="summary", at=event.at)


def _as_shown(entry: Entry, item: ClearedItem | None) -> Entry:
    if item is None or entry.kind != "said":
        return entry
    return replace(entry, message=item.message, tokens=item.tokens)


def _acknowledged(entries: Iterable[Entry]) -> Iterator[Entry]:
    """In order, a short assistant message between two user messages of which one is a summary."""
    before: Entry | None = None
    for entry in sorted(entries, key=lambda entry: (entry.at, entry.kind == "said", entry.seq)):
        if entry.kind == "acknowledgement":
            continue
        if before and _speak_as_users(before, entry) and "summary" in (before.kind, entry.kind):
            yield Entry(
                seq=entry.seq,
                message=_ACKNOWLEDGED,
                tokens=ACKNOWLEDGEMENT_TOKENS,
                original=_ACKNOWLEDGED,
                kind="acknowledgement",
                at=entry.at,
            )
        yield entry
        before = entry


def _speak_as_users(*entries: Entry) -> bool:
    return all(entry.message.role == "user" for entry in entries)


def _believable(measured: int, counted: int) -> bool:
    """Providers report nothing, zeros, or the sum of all calls; none of these may move the line."""
    return counted > 0 and 0.5 < measured / counted < 2.0


_ACKNOWLEDGED = Message.assistant(ACKNOWLEDGEMENT)
