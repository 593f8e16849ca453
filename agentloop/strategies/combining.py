"""Strategies made of strategies: one after the other, the first that finds something, another stand-in."""

from dataclasses import dataclass, replace

from agentloop.budget import Budget
from agentloop.callables import name_of
from agentloop.checks import fraction
from agentloop.context import Context
from agentloop.errors import UsageError
from agentloop.exchanges import covered_ranges, may_go
from agentloop.instead import Digest, Instead, Note, Summary
from agentloop.strategies.base import Chain, Cut, Strategy


def then(*strategies: Strategy, target: float | None = None) -> Chain:
    """These strategies one after the other, until the request is down to the target.

    `target` is a share of the largest request that may be sent (None: where compaction aims at anyway). Each
    step sees the context that the steps before it left; one that finds nothing is passed over.

    Raises:
        UsageError: no strategy is given, something is none, or the target is not above 0 and at most 1.

    Example:
        >>> from agentloop.strategies import KeepUserMessages, SlidingWindow
        >>> both = then(SlidingWindow(40), KeepUserMessages(8_000), target=0.4)
        >>> [strategy_name(step) for step in both.steps], both.target
        (['SlidingWindow', 'KeepUserMessages'], 0.4)
    """
    _check("then", strategies)
    if target is not None:
        fraction("target", target)
    return Chain(tuple(step for strategy in strategies for step in _steps(strategy)), target)


def first_of(*strategies: Strategy) -> "FirstOf":
    """The first of these strategies that finds something to do, asked in this order at each compaction.

    Raises:
        UsageError: no strategy is given, or something is none.

    Example:
        >>> from agentloop.strategies import KeepRecentTurns, TurnWindow
        >>> first_of(TurnWindow(20), KeepRecentTurns()).name
        'first_of(TurnWindow, KeepRecentTurns)'
    """
    _check("first_of", strategies)
    choices = ((each.choices if isinstance(each, FirstOf) else (each,)) for each in strategies)
    return FirstOf(tuple(choice for group in choices for choice in group))


def replaced_by(strategy: Strategy, instead: Instead) -> "Chain | Replaced":
    """This strategy with another stand-in for what it covers; of a chain, with each step's replaced.

    Where the strategy leaves but a `Note` and keeps earlier summaries beside it, a record that stands instead
    takes them in, so that summaries do not pile up.

    Raises:
        UsageError: the strategy is none, or `instead` is no Summary, Digest or Note.

    Example:
        >>> from agentloop.strategies import SlidingWindow
        >>> replaced_by(SlidingWindow(40), Digest(max_tokens=500)).name
        'replaced_by(SlidingWindow, Digest)'
    """
    _check("replaced_by", (strategy,))
    if not isinstance(instead, Summary | Digest | Note):
        raise UsageError(f"instead must be a Summary, a Digest or a Note, not {instead!r}")
    if isinstance(strategy, Chain):
        return replace(strategy, steps=tuple(replaced_by(step, instead) for step in strategy.steps))
    return Replaced(strategy, instead)


@dataclass(frozen=True, slots=True)
class FirstOf:
    """What `first_of` makes."""

    choices: tuple[Strategy, ...]

    @property
    def name(self) -> str:
        """How results call it."""
        return f"first_of({', '.join(map(strategy_name, self.choices))})"

    def __call__(self, context: Context, budget: Budget, /) -> Cut | None:
        return next((cut for choice in self.choices if (cut := choice(context, budget))), None)


@dataclass(frozen=True, slots=True)
class Replaced:
    """What `replaced_by` makes."""

    strategy: Strategy
    instead: Instead

    @property
    def name(self) -> str:
        """How results call it."""
        return f"replaced_by({strategy_name(self.strategy)}, {type(self.instead).__name__})"

    def __call__(self, context: Context, budget: Budget, /) -> Cut | None:
        cut = self.strategy(context, budget)
        if cut is None or not cut.covers:
            return cut
        takes_in = isinstance(cut.instead, Note) and not isinstance(self.instead, Note)
        return replace(_with_summaries(cut, context, budget) if takes_in else cut, instead=self.instead)


def strategy_name(strategy: Strategy) -> str:
    """How results call a strategy: by the name it was made with, else by that of its function or class."""
    if isinstance(strategy, Chain | FirstOf | Replaced):
        return strategy.name
    return name_of(strategy)


def _with_summaries(cut: Cut, context: Context, budget: Budget) -> Cut:
    positions = cut.positions
    units = may_go(context, task_tokens=budget.task_tokens)
    covered = [unit for unit in units if unit.first.kind != "said" or positions.issuperset(unit.seqs)]
    return replace(cut, covers=covered_ranges(context, covered))


def _steps(strategy: Strategy) -> tuple[Strategy, ...]:
    """Its own steps where it is a plain chain inside a chain, which says nothing of its own."""
    if isinstance(strategy, Chain) and strategy == Chain(strategy.steps):
        return strategy.steps
    return (strategy,)


def _check(name: str, strategies: tuple[object, ...]) -> None:
    if not strategies:
        raise UsageError(f"{name} must be given at least 1 strategy")
    for strategy in strategies:
        if not callable(strategy) or isinstance(strategy, type):
            raise UsageError(
                f"{name} must be given strategies: functions of a context and a budget, not {strategy!r}"
            )
