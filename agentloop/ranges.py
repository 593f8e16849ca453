"""Sets of log positions as inclusive pairs, ascending and apart from each other."""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable

from agentloop.events import Ranges


def ranges_between(positions: Iterable[int], kept: Collection[int] = ()) -> Ranges:
    """The fewest pairs that hold all of these positions and none of the kept ones."""
    walls = sorted(kept)
    pairs: list[tuple[int, int]] = []
    for position in sorted(set(positions)):
        if pairs and bisect_left(walls, pairs[-1][1]) == bisect_left(walls, position):
            pairs[-1] = (pairs[-1][0], position)
        else:
            pairs.append((position, position))
    return tuple(pairs)


def holds(ranges: Ranges, position: int) -> bool:
    """Whether the position is in the set."""
    at = bisect_right(ranges, (position, float("inf"))) - 1
    return at >= 0 and ranges[at][0] <= position <= ranges[at][1]


def united(*sets: Ranges) -> Ranges:
    """The set of the positions that are in any of these sets."""
    pairs: list[tuple[int, int]] = []
    for first, last in sorted(pair for ranges in sets for pair in ranges):
        if pairs and first <= pairs[-1][1] + 1:
            pairs[-1] = (pairs[-1][0], max(pairs[-1][1], last))
        else:
            pairs.append((first, last))
    return tuple(pairs)
