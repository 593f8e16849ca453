"""The one artifact all strategies make."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from agentloop.budget import Budget
from agentloop.context import Context
from agentloop.events import Ranges
from agentloop.exchanges import Unit, covered_ranges, hold_news


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """These positions go, and what stands for them stands before the first message at or after `at`."""

    covers: Ranges
    at: int

    @property
    def positions(self) -> frozenset[int]:
        """Every position it covers."""
        return frozenset(seq for first, last in self.covers for seq in range(first, last + 1))


class Strategy(Protocol):
    """Decides what is covered."""

    def __call__(self, context: Context, budget: Budget, /) -> Cut | None:
        """The cut to make, or None where there is nothing worth it."""
        ...


def cut_before(context: Context, folded: Sequence[Unit]) -> Cut | None:
    """The cut that folds these units; its summary stands where the last of them stood.

    Where the newest user message stands among the folded, the summary comes right before it, so that the
    live request is the last thing a user said.
    """
    if not hold_news(folded):
        return None
    behind = max(entry.at for unit in folded for entry in unit.entries) + 1
    newest = context.newest_user
    return Cut(covers=covered_ranges(context, folded), at=min(behind, newest.seq) if newest else behind)
