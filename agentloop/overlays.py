"""What records make of entries: said, shown shortened, or standing for others."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from agentloop.entries import Entry, Kind
from agentloop.events import Cleared, ClearedItem, Compacted, MessageAdded, ModelCalled, Record
from agentloop.messages import Message
from agentloop.reports import Report
from agentloop.unsaid import says_nothing


def said_entry(seq: int, event: MessageAdded) -> Entry:
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
        time=event.time,
    )


def reported(records: Iterable[Record]) -> Iterator[tuple[str, Report]]:
    """The provider's counts of requests that these records hold."""
    for record in records:
        event = record.event
        if isinstance(event, ModelCalled) and event.purpose == "agent":
            measured = event.usage.input_tokens if event.usage else 0
            yield event.model, Report(seq=record.seq, measured=measured, counted=event.counted)


def kept_clearings(
    clearings: Iterable[tuple[int, Cleared]], taken_back: int
) -> Iterator[tuple[int, Cleared]]:
    """The clearings that stand once that compaction is taken back: older messages are whole again."""
    for seq, event in clearings:
        items = tuple(item for item in event.items if seq < taken_back or item.seq > taken_back)
        if items:
            yield seq, replace(event, items=items)


def instead_of(seq: int, event: Compacted) -> Iterator[Entry]:
    """What stands for what the compaction covers; where an assistant says it, a user asks for it first."""
    if event.covers:
        told = Message.user(event.replacement)
        kind: Kind = "note" if event.answer or event.made == "note" else "summary"
        tokens = event.tokens - event.answer_tokens
        yield Entry(seq=seq, message=told, tokens=tokens, original=told, kind=kind, at=event.at)
    if event.covers and event.answer:
        said = Message.assistant(event.answer)
        tokens = event.answer_tokens
        yield Entry(seq=seq, message=said, tokens=tokens, original=said, kind="summary", at=event.at)


def as_shown(entry: Entry, item: ClearedItem | None) -> Entry:
    """The entry shown as the item says; the very entry where there is none for it."""
    if item is None or entry.kind != "said":
        return entry
    return replace(entry, message=item.message, tokens=item.tokens)
