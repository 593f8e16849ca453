"""Keep the newest share of the window, fold what is older."""

from collections.abc import Sequence
from dataclasses import dataclass

from agentloop.budget import Budget
from agentloop.context import Context
from agentloop.errors import UsageError
from agentloop.exchanges import Unit, may_go
from agentloop.strategies.base import Cut, cut_before


@dataclass(frozen=True, slots=True)
class KeepRecentFraction:
    """Walks back from the end to `fraction` of the context's tokens; what is older is folded.

    The tail is smaller where the request would not come down to the target otherwise. It begins between
    exchanges; where a turn begins in its older half, it begins there.

    Raises:
        UsageError: the fraction is not at least 0 and below 1.
    """

    fraction: float = 0.3

    def __post_init__(self) -> None:
        if not 0 <= self.fraction < 1:
            raise UsageError(f"fraction must be at least 0 and below 1, not {self.fraction}")

    def __call__(self, context: Context, budget: Budget, /) -> Cut | None:
        units = may_go(context, task_tokens=budget.task_tokens)
        keep = min(int(self.fraction * context.tokens), _room_at_target(context, budget, units))
        split, kept = len(units), 0
        while split and kept + units[split - 1].tokens <= keep:
            split -= 1
            kept += units[split].tokens
        return cut_before(context, units[: _turn_start(context, units, split, kept)])


def _room_at_target(context: Context, budget: Budget, units: Sequence[Unit]) -> int:
    """What the target leaves for the tail beside all that stays, if the new summary is like the last."""
    earlier = sum(unit.tokens for unit in units if unit.first.kind == "summary")
    stays = context.tokens - sum(unit.tokens for unit in units)
    return budget.own(budget.target, context) - budget.fixed - stays - earlier


def _turn_start(context: Context, units: Sequence[Unit], split: int, kept: int) -> int:
    """The first turn start that leaves at least half of the tail, else the split itself."""
    newest = context.newest_user
    left = kept
    for at in range(split, len(units)):
        if left * 2 < kept:
            break
        begins_newest = newest is not None and units[at - 1].first.at < newest.at < units[at].first.at
        if units[at].first.is_user or (at > 0 and begins_newest):
            return at
        left -= units[at].tokens
    return split
