"""Budget triggers whose limit comes from the window: all measure the next request by `budget.size`."""

from dataclasses import dataclass

from agentloop._plumbing.checks import fraction, whole
from agentloop.context import Budget, Context
from agentloop.triggers.base import Fired


@dataclass(frozen=True, slots=True)
class WindowFraction:
    """Fires when the next request is larger than this share of what the window leaves after the reserve.

    Example:
        >>> budget = Budget(window=10_000, fixed=8_000, model="m")  # 1,250 are kept free for the answer
        >>> WindowFraction(0.8)(Context(), budget)
        Fired(why='tokens 8,000 > 7,000', reason='threshold')

    Raises:
        UsageError: the fraction is not above 0 and at most 1.
    """

    fraction: float = 0.8

    def __post_init__(self) -> None:
        fraction("fraction", self.fraction)

    def threshold(self, budget: Budget, /) -> int:
        """That share, in tokens."""
        return int(budget.limit * self.fraction)

    def __call__(self, context: Context, budget: Budget, /) -> Fired | None:
        return _larger(context, budget, self.threshold(budget))


@dataclass(frozen=True, slots=True)
class Headroom:
    """Fires when less than the share `below` of the window is left under the mark at its share `at`.

    With the defaults that is above 85 % of the window, the answer's reserve counted in: less than 5 % is left
    under the 90 % mark. It fires no later than where a request no longer fits beside that reserve.

    Example:
        >>> budget = Budget(window=10_000, fixed=8_600, model="m")
        >>> Headroom(at=0.90, below=0.05)(Context(), budget).why
        'tokens 8,600 > 8,500: less than 5% of the window is left under its 90% mark'

    Raises:
        UsageError: `at` is not above 0 and at most 1, or `below` not above 0 and at most `at`.
    """

    at: float = 0.90
    below: float = 0.05

    def __post_init__(self) -> None:
        fraction("at", self.at)
        fraction("below", self.below, most=self.at)

    def threshold(self, budget: Budget, /) -> int:
        """The mark less that share, in tokens."""
        return min(_share(budget.window, self.at - self.below), budget.limit)

    def __call__(self, context: Context, budget: Budget, /) -> Fired | None:
        left = f": less than {_percent(self.below)} of the window is left under its {_percent(self.at)} mark"
        return _larger(context, budget, self.threshold(budget), left)


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """Fires when less than a slack is left of the window, the answer's reserve counted in.

    The slack is `slack_tokens` (20,000) for windows larger than `large_window` (200,000 tokens), and `share`
    (20 %) of smaller ones. It fires no later than where a request no longer fits beside the reserve.

    Example:
        >>> Buffer()(Context(), Budget(window=262_144, fixed=250_000, model="m")).why
        'tokens 250,000 > 242,144: less than 20,000 is left of the window of 262,144'
        >>> Buffer().threshold(Budget(window=100_000, fixed=100, model="m"))
        80000

    Raises:
        UsageError: a number of tokens is no whole number of at least 0, or `share` not above 0 and at most 1.
    """

    slack_tokens: int = 20_000
    large_window: int = 200_000
    share: float = 0.2

    def __post_init__(self) -> None:
        whole("slack_tokens", self.slack_tokens, 0)
        whole("large_window", self.large_window, 0)
        fraction("share", self.share)

    def slack(self, budget: Budget, /) -> int:
        """What is to stay free of this window, in tokens."""
        large = budget.window > self.large_window
        return min(self.slack_tokens if large else _share(budget.window, self.share), budget.window)

    def threshold(self, budget: Budget, /) -> int:
        """The window less the slack, in tokens."""
        return min(budget.window - self.slack(budget), budget.limit)

    def __call__(self, context: Context, budget: Budget, /) -> Fired | None:
        left = f": less than {self.slack(budget):,} is left of the window of {budget.window:,}"
        return _larger(context, budget, self.threshold(budget), left)


@dataclass(frozen=True, slots=True)
class Overflow:
    """Fires when the next request is larger than what may be sent: the budget trigger that fires late.

    What may be sent is the window less the answer's reserve, in tokens. Room is made then whatever other
    trigger a policy has.

    Example:
        >>> Overflow()(Context(), Budget(window=8_192, fixed=9_123, model="m")).why
        'tokens 9,123 > 7,168, all that fits'
    """

    def threshold(self, budget: Budget, /) -> int:
        """The largest request that may be sent, in tokens."""
        return budget.limit

    def __call__(self, context: Context, budget: Budget, /) -> Fired | None:
        return _larger(context, budget, self.threshold(budget))


def _larger(context: Context, budget: Budget, threshold: int, words: str = "") -> Fired | None:
    size = budget.size(context)
    if size <= threshold:
        return None
    words = ", all that fits" if threshold >= budget.limit else words
    return Fired(f"tokens {size:,} > {threshold:,}{words}")


def _share(tokens: int, share: float) -> int:
    """Whole tokens; rounded first, since 0.95 - 0.05 is a little less than 0.9."""
    return int(round(tokens * share, 6))


def _percent(share: float) -> str:
    return f"{100 * share:g}%"
