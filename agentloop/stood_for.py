"""What entries stand for: the messages of the log behind a summary, a digest or a note."""

from collections.abc import Iterable, Iterator

from agentloop.context import Context
from agentloop.entries import Entry
from agentloop.events import Compacted, Ranges
from agentloop.ranges import holds


def stood_for(context: Context, entries: Iterable[Entry]) -> list[Entry]:
    """The messages that these entries are or stand for, as the log holds them, oldest first."""
    there = list(entries)
    themselves = {entry.seq for entry in there if entry.kind == "said"}
    covers = list(_covers(dict(context.compactions), {entry.seq for entry in there} - themselves))
    return [
        entry
        for entry in context.said
        if entry.seq in themselves or any(holds(ranges, entry.seq) for ranges in covers)
    ]


def written_by_a_model(context: Context, entries: Iterable[Entry]) -> list[Entry]:
    """Those of the entries that hold a summary which a model wrote."""
    made = {seq: event.made for seq, event in context.compactions}
    return [entry for entry in entries if entry.kind == "summary" and made.get(entry.seq) == "summary"]


def _covers(compactions: dict[int, Compacted], waiting: set[int]) -> Iterator[Ranges]:
    """What these compactions cover, and those that they cover."""
    while waiting:
        covers = compactions.pop(waiting.pop()).covers
        waiting |= {seq for seq in compactions if holds(covers, seq)}
        yield covers
