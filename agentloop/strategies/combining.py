"""Strategies made of strategies: one after another, the first that finds something, another instead."""

from dataclasses import dataclass, replace

from agentloop._plumbing.callables import name_of
from agentloop._plumbing.checks import fraction_or_none, shown
from agentloop.context import Budget, Context, covered_ranges
from agentloop.errors import UsageError
from agentloop.strategies.base import Chain, Cut, Instead, Note, Strategy, check_strategies, foldable


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
    check_strategies("then", strategies)
    fraction_or_none("target", target)
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
    check_strategies("first_of", strategies)
    choices = ((each.choices if isinstance(each, FirstOf) else (each,)) for each in strategies)
    return FirstOf(tuple(choice for group in choices for choice in group))


def replaced_by(strategy: Strategy, instead: Instead) -> "Chain | Replaced":
    """This strategy with something else instead of what it covers; of a chain, each step of it.

    Where the strategy leaves but a `Note` and keeps earlier summaries beside it, a record that stands instead
    takes them in, so that summaries do not pile up.

    Raises:
        UsageError: the strategy is none, or `instead` is no Summary, Digest, Lines or Note.

    Example:
        >>> from agentloop.strategies import Digest, SlidingWindow
        >>> replaced_by(SlidingWindow(40), Digest(max_tokens=500)).name
        'replaced_by(SlidingWindow, Digest)'
    """
    check_strategies("replaced_by", (strategy,))
    if not isinstance(instead, Instead):
        raise UsageError(f"instead must be a Summary, a Digest, Lines or a Note, not {shown(instead)}")
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
    """How results call a strategy: by the name it was made with, else by that of its function or class.

    Example:
        >>> from agentloop.strategies import KeepRecentTurns, Tiered
        >>> strategy_name(KeepRecentTurns(4)), strategy_name(Tiered())
        ('KeepRecentTurns', 'Tiered')
    """
    if isinstance(strategy, Chain | FirstOf | Replaced):
        return strategy.name
    return name_of(strategy)


def _with_summaries(cut: Cut, context: Context, budget: Budget) -> Cut:
    positions = cut.positions
    units = foldable(context, budget)
    covered = [unit for unit in units if not unit.is_said or positions.issuperset(unit.seqs)]
    return replace(cut, covers=covered_ranges(context, covered))


def _steps(strategy: Strategy) -> tuple[Strategy, ...]:
    """Its own steps where it is a plain chain inside a chain, which says nothing of its own."""
    if isinstance(strategy, Chain) and strategy == Chain(strategy.steps):
        return strategy.steps
    return (strategy,)
