"""Records that were taken out of their log: at their new positions they point at each other by these."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

from agentloop.errors import UsageError
from agentloop.events import Cleared, Compacted, Event, Restored


def renumbered(event: Event, position: int, positions: Sequence[int]) -> Event:
    """The event, which stood at `position`, pointing at new ones; `positions` are the old ones before it.

    Example:
        >>> renumbered(Restored(seq=7), 9, [2, 4, 7])
        Restored(seq=3)

    Raises:
        UsageError: it points at what is not before it, or was left out.
    """
    for wanted in points_at(event):
        if not 1 <= wanted < position:
            raise UsageError("this event points at a record that is not before it")
        if not _is_there(wanted, positions):
            raise UsageError(f"it points at position {wanted}, which the export left out: take it in too")
    return event if position == len(positions) + 1 else _moved(event, positions)


def points_at(event: Event) -> list[int]:
    """The positions of the records that it cannot do without."""
    match event:
        case Compacted():
            covered = [position for pair in event.covers for position in pair]
            return covered + [item.seq for item in event.cleared]
        case Cleared():
            return [item.seq for item in event.items]
        case Restored():
            return [event.seq]
    return []


def _moved(event: Event, positions: Sequence[int]) -> Event:
    match event:
        case Compacted():
            covers = tuple(
                (_place(first, positions), _place(last, positions)) for first, last in event.covers
            )
            cleared = tuple(replace(item, seq=_place(item.seq, positions)) for item in event.cleared)
            return replace(event, covers=covers, cleared=cleared, at=_place(event.at, positions))
        case Cleared():
            items = tuple(replace(item, seq=_place(item.seq, positions)) for item in event.items)
            return replace(event, items=items)
        case Restored():
            return replace(event, seq=_place(event.seq, positions))
    return event


def _place(position: int, positions: Sequence[int]) -> int:
    """The new position of what stood there, or of the first behind it."""
    return bisect_left(positions, position) + 1


def _is_there(position: int, positions: Sequence[int]) -> bool:
    at = bisect_left(positions, position)
    return at < len(positions) and positions[at] == position
