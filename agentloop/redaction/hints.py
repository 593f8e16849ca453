"""Which shapes have hints in a text: most are out by the pairs of letters that it has, without a search."""

from array import array
from collections import defaultdict
from collections.abc import Collection, Sequence
from functools import lru_cache

from agentloop.redaction.shapes import Shape

_ANY = -1
"""Stands for a pair where a hint has none."""


class Hints:
    """The hints of these shapes, which are told by their numbers."""

    def __init__(self, shapes: Sequence[Shape]) -> None:
        self.shapes = shapes
        self._with_pair: dict[int, set[tuple[int, str]]] = defaultdict(set)
        for number, shape in enumerate(shapes):
            for hint in shape.hints or ("",):
                for pairs in _pairs_of(hint):
                    self._with_pair[min(pairs, default=_ANY)].add((number, hint))

    def of(self, lowered: str, but: Collection[int] = ()) -> dict[int, list[str]]:
        """The shapes of which hints stand in the text, in order, and those; these are not looked for."""
        pairs = _pairs(lowered)
        may_be = {each for pair in (_ANY, *pairs) for each in self._with_pair.get(pair, ())}
        found: dict[int, list[str]] = {}
        for number, hint in sorted(may_be):
            even, odd = _pairs_of(hint)
            if number not in but and (even <= pairs or odd <= pairs) and hint in lowered:
                found.setdefault(number, []).append(hint)
        return found


def _pairs(text: str, at: int = 0) -> frozenset[int]:
    """Each two letters from this place on, as numbers.

    A text has all those of what stands in it, from its first letter on or from its second.
    """
    data = text.encode("latin-1", "replace")[at:]
    return frozenset(array("H", data[: len(data) // 2 * 2]))


@lru_cache(maxsize=1_024)
def _pairs_of(hint: str) -> tuple[frozenset[int], frozenset[int]]:
    return _pairs(hint), _pairs(hint, 1)
