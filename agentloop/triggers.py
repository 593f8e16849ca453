"""When to compact: each trigger answers "now?" with its reason in words.

A trigger is any function of a context and a budget that returns `Fired` or None.
"""

from dataclasses import dataclass
from typing import Protocol

from agentloop.budget import Budget
from agentloop.context import Context
from agentloop.errors import UsageError

__all__ = ["Budget", "Context", "Fired", "Trigger", "WindowFraction"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fired:
    """Now; `why` says it in words, e.g. `tokens 81,204 > 80,000`."""

    why: str


class Trigger(Protocol):
    """Decides when."""

    def __call__(self, context: Context, budget: Budget, /) -> Fired | None:
        """The reason to compact now, or None."""
        ...


@dataclass(frozen=True, slots=True)
class WindowFraction:
    """Fires when the next request is larger than this share of what the window leaves after the reserve.

    Raises:
        UsageError: the fraction is not above 0 and at most 1.
    """

    fraction: float = 0.8

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise UsageError(f"fraction must be above 0 and at most 1, not {self.fraction}")

    def threshold(self, budget: Budget) -> int:
        """Where it fires, in tokens."""
        return int(budget.limit * self.fraction)

    def __call__(self, context: Context, budget: Budget, /) -> Fired | None:
        size, threshold = budget.size(context), self.threshold(budget)
        return Fired(why=f"tokens {size:,} > {threshold:,}") if size > threshold else None
