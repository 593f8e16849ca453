"""The one answer all triggers give, and what may be asked of them."""

from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, get_args, runtime_checkable

from agentloop.context import Budget, Context
from agentloop.errors import UsageError

Cause: TypeAlias = Literal["threshold", "idle"]
"""A limit was crossed or something happened; nothing happened for long."""


@dataclass(frozen=True, slots=True)
class Fired:
    """Now; `why` says it in words, e.g. `tokens 81,204 > 80,000`.

    `reason` is what a compaction made for it in a run records. Outside of a run, where sessions that rest are
    looked after (`Runner.compact_if_due`), every compaction records `idle`.

    Example:
        >>> Fired("the deployment is over")
        Fired(why='the deployment is over', reason='threshold')

    Raises:
        UsageError: `why` is no text, or `reason` neither `threshold` nor `idle`.
    """

    why: str
    reason: Cause = "threshold"

    def __post_init__(self) -> None:
        if not isinstance(self.why, str) or not self.why.strip():
            raise UsageError(f"why must be a text that is not blank, not {self.why!r}")
        if self.reason not in get_args(Cause):
            raise UsageError(f"reason must be 'threshold' or 'idle', not {self.reason!r}")


class Trigger(Protocol):
    """Decides when. It is asked before each request to the model.

    Of a session that was opened by a checkpoint it sees what a step needs: all that is in sight, the newest
    few dozen messages said and the newest compaction (see `Context.base`).

    Example:
        >>> def on_error(context: Context, budget: Budget) -> Fired | None:
        ...     return Fired("an error") if any("Error" in m.text for m in context.messages[-1:]) else None
        >>> on_error(Context(), Budget(window=8_000, fixed=100, model="m"))
    """

    def __call__(self, context: Context, budget: Budget, /) -> Fired | None:
        """The reason to compact now, or None."""
        ...


@runtime_checkable
class HasThreshold(Protocol):
    """A trigger that fires at a certain size of the next request.

    Example:
        >>> from agentloop.triggers import Overflow
        >>> isinstance(Overflow(), HasThreshold)
        True
    """

    def threshold(self, budget: Budget, /) -> int | None:
        """Where it fires, in tokens by `budget.size`; None where, as it was made, it has no such place."""
        ...


def threshold_of(trigger: Trigger, budget: Budget) -> int | None:
    """Where a trigger fires, in tokens by `budget.size`; None where it has no such place.

    Of `any_of` it is the least of its parts, of `all_of` the largest. Functions have none, nor what counts
    turns, time, or by a counter of its own.

    Example:
        >>> from agentloop.triggers import NeedsFollowUp, TokenCount, WindowFraction, all_of
        >>> budget = Budget(window=10_000, fixed=100, model="m")
        >>> threshold_of(WindowFraction(0.8), budget)
        7000
        >>> threshold_of(all_of(TokenCount(4000), NeedsFollowUp()), budget)
        4000
        >>> threshold_of(NeedsFollowUp(), budget)
    """
    # A protocol is met by a field of that name too, such as a number that a trigger of yours keeps.
    if isinstance(trigger, HasThreshold) and callable(trigger.threshold):
        return trigger.threshold(budget)
    return None


def last_compaction(context: Context) -> int:
    """The position of the newest compaction that stands; 0 where there is none."""
    return context.compactions[-1][0] if context.compactions else 0
