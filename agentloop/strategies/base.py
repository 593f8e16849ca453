"""The one artifact all strategies make: which positions are covered, and what stands instead."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agentloop._plumbing.checks import called, fraction
from agentloop.context import Budget, Context, Unit, covered_ranges, hold_news, may_go
from agentloop.errors import UsageError
from agentloop.events import ClearedItem, Ranges
from agentloop.instead import Instead, Summary

NEVER = 0.0
"""The target of a chain that no request gets to: every step is carried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """These positions go, and `instead` stands before the first message at or after position `at`.

    Whatever it names, what must stay stays, exchanges stay whole, and what stands instead comes before the
    newest user message.

    `cleared` are messages that stay, shown shortened from now on; a cut may do that alone. `reads` are the
    positions that what stands instead is made from, beside earlier summaries that are covered; None: those
    covered.

    Example:
        >>> from agentloop.strategies import Note
        >>> sorted(Cut(covers=((2, 3), (6, 6)), at=7, instead=Note()).positions)
        [2, 3, 6]
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
    """Decides what is covered: any function of a context and a budget.

    Example:
        >>> from agentloop.strategies import Note, TurnWindow, first_of
        >>> def all_that_may_go(context: Context, budget: Budget) -> Cut | None:
        ...     return cut_of(context, foldable(context, budget), Note())
        >>> first_of(TurnWindow(20), all_that_may_go).name
        'first_of(TurnWindow, all_that_may_go)'
    """

    def __call__(self, context: Context, budget: Budget, /) -> Cut | None:
        """The cut to make, or None where there is nothing worth it."""
        ...


@dataclass(frozen=True, slots=True)
class Chain:
    """Strategies carried out one after the other, until the request is down to the target.

    Called, it answers with the first cut that a step makes. `target` is a share of the limit; None: where
    compaction aims at anyway; `NEVER`: every step is carried out. `name` is how results call it.

    Raises:
        UsageError: there is no step, one is no strategy, or the target is not above 0 and at most 1.

    Example:
        >>> from agentloop.strategies import KeepRecentTurns, TurnWindow
        >>> budget = Budget(window=8_000, fixed=0, model="m")
        >>> Chain((TurnWindow(9), KeepRecentTurns()), target=0.4)(Context(), budget) is None
        True
    """

    steps: tuple[Strategy, ...]
    target: float | None = None
    name: str = "then"

    def __post_init__(self) -> None:
        check_strategies(self.name, self.steps)
        if self.target is not None and self.target is not NEVER:
            fraction("target", self.target)

    def __call__(self, context: Context, budget: Budget, /) -> Cut | None:
        return next((cut for step in self.steps if (cut := step(context, budget))), None)


def check_strategies(name: str, strategies: Sequence[object]) -> None:
    """Refuse none at all, and what is no strategy.

    Raises:
        UsageError: with the name of what is made of them.
    """
    if not strategies:
        raise UsageError(f"{name} must be given at least 1 strategy")
    for strategy in strategies:
        called(f"each strategy of {name}", strategy)


def foldable(context: Context, budget: Budget) -> list[Unit]:
    """What may go, oldest first: single messages, and exchanges, which go whole.

    Never among them: what begins the session, its task while that is short, the newest user message, and the
    newest exchange or answer.

    Example:
        >>> from agentloop.events import MessageAdded, Record
        >>> from agentloop.messages import Message
        >>> said = [Message.user("hi"), Message.assistant("ok"), Message.user("go"), Message.assistant("no")]
        >>> added = [MessageAdded(message=message, tokens=10) for message in said]
        >>> context = Context.of(Record(seq=seq, event=event) for seq, event in enumerate(added, 1))
        >>> [unit.seqs for unit in foldable(context, Budget(window=8_000, fixed=0, model="m"))]
        [(2,)]
    """
    return may_go(context, task_tokens=budget.task_tokens)


def cut_of(
    context: Context, folded: Sequence[Unit], instead: Instead | None = None, *, at: int | None = None
) -> Cut | None:
    """The cut that folds these units; a `Summary` stands instead where nothing else is given.

    It stands at position `at`, or where the last of the units stood. None where they hold nothing but what
    stands for earlier ones.

    Example:
        >>> from agentloop.events import MessageAdded, Record
        >>> from agentloop.messages import Message
        >>> added = [MessageAdded(message=Message.user("next"), tokens=10) for _ in range(5)]
        >>> context = Context.of(Record(seq=seq, event=event) for seq, event in enumerate(added, 1))
        >>> units = foldable(context, Budget(window=8_000, fixed=0, model="m"))
        >>> cut = cut_of(context, units[1:])
        >>> cut.covers, cut.at
        (((3, 4),), 5)
    """
    if not hold_news(folded):
        return None
    behind = max(entry.at for unit in folded for entry in unit.entries) + 1
    return Cut(
        covers=covered_ranges(context, folded),
        at=behind if at is None else at,
        instead=instead or Summary(),
    )
