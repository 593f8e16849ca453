"""L14: what a strategy does is in proportion to what is in sight, counted in operations."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import islice

import pytest

from agentloop.context import Context
from agentloop.events import MessageRecord, Record
from agentloop.strategies import (
    Blocks,
    Chain,
    ClearResults,
    Cut,
    Digest,
    KeepRecentFraction,
    KeepRecentTurns,
    KeepUserMessages,
    Note,
    RecursiveSummary,
    Reduce,
    Scope,
    SlidingWindow,
    Strategy,
    Summary,
    Tiered,
    TokenWindow,
    TurnWindow,
    cut_of,
    foldable,
    replaced_by,
    strategy_name,
)
from tests.benchmarks.conversation import conversation
from tests.strategy_kit import BUDGET, compacted
from tests.test_costs import operations

pytestmark = pytest.mark.deep

ROOMY = replace(BUDGET, window=1_000_000)
A_RUN = 100
"""So many messages make a run."""

NESTED = 100

STRATEGIES: list[Strategy] = [
    SlidingWindow(400),
    TurnWindow(50),
    TokenWindow(40_000),
    KeepUserMessages(),
    KeepRecentFraction(),
    KeepRecentTurns(40),
    replaced_by(SlidingWindow(400), Digest()),
    RecursiveSummary(),
    Blocks(),
    Blocks(scope=Scope.token_budget()),
    Tiered(),
    Reduce(),
    ClearResults(0, 0),
]


def steps_of(strategy: Strategy) -> tuple[Strategy, ...]:
    return strategy.steps if isinstance(strategy, Chain) else (strategy,)


def spoken(length: int, after: int = 0) -> list[Record]:
    """So many messages of one long conversation in runs, behind the records there are."""
    messages = islice(conversation(), length)
    runs = (f"run_{(after + at) // A_RUN}" for at in range(length))
    events = (
        MessageRecord(message=each, tokens=90, run_id=run) for each, run in zip(messages, runs, strict=False)
    )
    return [Record(seq=seq, event=event) for seq, event in enumerate(events, after + 1)]


@cache
def with_notes(length: int) -> Context:
    """A conversation in sight, with what some early parts of it were compacted to."""
    context = Context.of(spoken(length))
    for start, instead in ((5, Note()), (105, Summary()), (205, Note())):
        context = compacted(context, Cut(covers=((start, start + 3),), at=start + 4, instead=instead))
    return context


@cache
def nested(length: int, times: int = NESTED) -> Context:
    """A conversation whose beginning was compacted so many times, each summary taking the last one in."""
    context = Context()
    for _ in range(times):
        context = context.add(*spoken(8, after=context.length))
        cut = cut_of(context, foldable(context, ROOMY))
        assert cut is not None
        context = compacted(context, cut)
    return context.add(*spoken(length, after=context.length))


def taken(strategy: Strategy, context: Context) -> int:
    """The operations that all of its steps take."""
    with operations() as counted:
        cuts = [step(context, ROOMY) for step in steps_of(strategy)]
    assert any(cuts)
    return counted.total()


@pytest.mark.parametrize("context_of", [with_notes, pytest.param(nested, marks=pytest.mark.deep)])
@pytest.mark.parametrize("strategy", STRATEGIES, ids=strategy_name)
def test_l14_ten_times_the_messages_take_ten_times_the_operations(
    strategy: Strategy, context_of: Callable[[int], Context]
) -> None:
    few, many = (taken(strategy, context_of(length)) for length in (1_000, 10_000))
    assert many <= 12 * few
    assert many <= 100 * 10_000 * len(steps_of(strategy))


@pytest.mark.parametrize("strategy", STRATEGIES, ids=strategy_name)
def test_l14_each_compaction_behind_a_summary_adds_as_much_as_the_one_before(strategy: Strategy) -> None:
    some, twice, many = (taken(strategy, nested(1_000, times)) for times in (10, 20, NESTED))
    assert many - some <= 12 * (twice - some) + 500
