"""The one artifact all strategies make: which positions are covered, and what stands instead."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agentloop.budget import Budget
from agentloop.context import Context
from agentloop.events import ClearedItem, Ranges
from agentloop.exchanges import Unit, clamped, covered_ranges, hold_news
from agentloop.instead import Instead, Summary


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """These positions go, and `instead` stands before the first message at or after position `at`.

    `cleared` are messages that stay, shown shortened from now on; a cut may do that alone. `reads` are the
    positions that what stands instead is made from, beside earlier summaries that are covered; None: those
    covered.
    """

    covers: Ranges = ()
    at: int = 0
    instead: Instead = field(default_factory=Summary)
    cleared: tuple[ClearedItem, ...] = ()
    reads: Ranges | None = None

    @property
    def positions(self) -> frozenset[int]:
        """Every position it covers."""
        return frozenset(seq for first, last in self.covers for seq in range(first, last + 1))


class Strategy(Protocol):
    """Decides what is covered."""

    def __call__(self, context: Context, budget: Budget, /) -> Cut | None:
        """The cut to make, or None where there is nothing worth it."""
        ...


@dataclass(frozen=True, slots=True)
class Chain:
    """Strategies carried out one after the other, until the request is down to the target.

    Called, it answers with the first cut that a step makes. `target` is a share of the limit; None: where
    compaction aims at anyway. `name` is how results call it.
    """

    steps: tuple[Strategy, ...]
    target: float | None = None
    name: str = "then"

    def __call__(self, context: Context, budget: Budget, /) -> Cut | None:
        return next((cut for step in self.steps if (cut := step(context, budget))), None)


def cut_before(context: Context, folded: Sequence[Unit], instead: Instead | None = None) -> Cut | None:
    """The cut that folds these units; what stands instead stands where the last of them stood.

    Where the newest user message stands among the folded, it comes right before it, so that the live request
    is the last thing a user said. None where the units hold nothing but earlier summaries.
    """
    if not hold_news(folded):
        return None
    behind = max(entry.at for unit in folded for entry in unit.entries) + 1
    newest = context.newest_user
    return Cut(
        covers=covered_ranges(context, folded),
        at=min(behind, newest.seq) if newest else behind,
        instead=instead or Summary(),
    )


def cut_at(
    context: Context, budget: Budget, folded: Sequence[Unit], at: int, instead: Instead | None = None
) -> Cut | None:
    """The cut that folds these units; what stands instead stands at `at`, as near as kept messages let it.

    None where the units hold nothing but earlier summaries.
    """
    if not hold_news(folded):
        return None
    return Cut(
        covers=covered_ranges(context, folded),
        at=clamped(context, at, budget.task_tokens),
        instead=instead or Summary(),
    )
