"""What holds for all simple strategies, and which arguments they refuse."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop.context import Context, wire_messages
from agentloop.context.exchanges import may_go, protected, safe_cover, units_of
from agentloop.strategies import (
    Chain,
    Digest,
    FirstOf,
    KeepRecentFraction,
    KeepRecentTurns,
    KeepUserMessages,
    Note,
    SlidingWindow,
    Strategy,
    Summary,
    TokenWindow,
    TurnWindow,
    cut_of,
    first_of,
    replaced_by,
    then,
)
from tests.kit import added, histories, orderly, records_of
from tests.strategy_kit import (
    BUDGET,
    compacted,
    covered,
    said,
)
from tests.strict_rules import violations


@pytest.mark.parametrize(
    ("make", "words"),
    [
        *(
            (lambda bad=bad: SlidingWindow(bad), "max_events must be .* 1")
            for bad in (0, -1, 1.5, True, None, "3")
        ),
        *(
            (lambda bad=bad: TurnWindow(bad), "max_turns must be .* 1")
            for bad in (0, -1, 1.5, True, None, "3")
        ),
        *(
            (lambda bad=bad: TokenWindow(bad), "max_tokens must be from 1 to 1,000,000,000")
            for bad in (0, -1, 1.5, True, None, "many", "", "2000m")
        ),
        *(
            (lambda bad=bad: KeepUserMessages(bad), "max_tokens must be .* 1")
            for bad in (0, -1, 0.5, None, "8k")
        ),
        *(
            (lambda bad=bad: KeepRecentFraction(bad), "fraction must be at least 0 and below 1")
            for bad in (-0.1, 1, float("nan"), None, "0.3")
        ),
        (lambda: KeepRecentTurns(0), "turns must be .* 1"),
        (lambda: KeepRecentTurns(share=0), "share must be above 0 and at most 1"),
        (lambda: KeepRecentTurns(share=1.01), "share must be above 0 and at most 1"),
        (lambda: KeepRecentTurns(least_tokens=0), "least_tokens must be .* 1"),
        (lambda: KeepRecentTurns(most_tokens=1_999), "most_tokens must be .* 2000"),
        (lambda: then(), "then must be given at least 1 strategy"),
        (lambda: then(SlidingWindow), "each strategy of then must be"),
        (lambda: then(SlidingWindow(2), "x"), "each strategy of then must be"),
        (lambda: then(SlidingWindow(2), target=0), "target must be above 0 and at most 1"),
        (lambda: then(SlidingWindow(2), target=1.1), "target must be above 0 and at most 1"),
        (lambda: Chain(()), "then must be given at least 1 strategy"),
        (lambda: Chain((), target=7), "then must be given at least 1 strategy"),
        (lambda: Chain((SlidingWindow(2),), target=7), "target must be above 0 and at most 1"),
        (lambda: Chain((SlidingWindow(2),), target=0), "target must be above 0 and at most 1"),
        (lambda: Chain(("x",), name="mine"), "each strategy of mine must be"),
        (lambda: first_of(), "first_of must be given at least 1 strategy"),
        (lambda: first_of(None), "each strategy of first_of must be"),
        (lambda: replaced_by(None, Note()), "each strategy of replaced_by must be"),
        (
            lambda: replaced_by(SlidingWindow(2), "a summary"),
            "instead must be a Summary, a Digest, Lines or a Note",
        ),
    ],
)
def test_bad_arguments_are_named_with_their_range(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_the_least_and_the_largest_numbers_are_taken() -> None:
    assert (SlidingWindow(1).max_events, TurnWindow(1).max_turns, TokenWindow(1).max_tokens) == (1, 1, 1)
    assert TokenWindow("1000m").max_tokens == 1_000_000_000
    assert KeepUserMessages(1).max_tokens == 1
    assert KeepRecentTurns(1, 1, 1, 1).cap(said("ua"), BUDGET) == 1
    assert then(TurnWindow(1), target=1).target == 1


STRATEGIES: list[Strategy] = [
    SlidingWindow(1),
    SlidingWindow(7),
    TurnWindow(1),
    TurnWindow(2),
    TokenWindow(1),
    TokenWindow(400),
    KeepUserMessages(),
    KeepUserMessages(40),
    KeepRecentFraction(0.3),
    KeepRecentTurns(1),
    KeepRecentTurns(least_tokens=1, most_tokens=150),
    replaced_by(SlidingWindow(4), Digest()),
    first_of(TurnWindow(4), KeepRecentTurns(1)),
    then(TurnWindow(3), KeepUserMessages(60)),
]


@st.composite
def contexts(draw: st.DrawFn) -> Context:
    """Any history, compacted at up to three points to a summary, a question with its answer or a note."""
    messages = draw(histories | orderly())
    points = st.integers(len(messages) // 2, max(0, len(messages) - 1))
    stops = draw(st.lists(points, min_size=draw(st.sampled_from([0, 1, 2])), max_size=3).map(sorted))
    context = Context()
    for start, end in zip([0, *stops], [*stops, len(messages)], strict=True):
        new = records_of([added(message) for message in messages[start:end]])
        context = context.add(*(replace(record, seq=record.seq + context.length) for record in new))
        context = draw(compacted_somehow(context)) if end < len(messages) else context
    return context


@st.composite
def compacted_somehow(draw: st.DrawFn, context: Context) -> Context:
    units = may_go(context, task_tokens=BUDGET.task_tokens)
    if not units:
        return context
    first = draw(st.integers(0, len(units) - 1))
    last = draw(st.integers(first + 1, len(units)))
    cut = cut_of(context, units[first:last], draw(st.sampled_from([Summary(), Note()])))
    if cut is None:
        return context
    answer = "" if isinstance(cut.instead, Note) else draw(st.sampled_from(["", "the answer"]))
    return compacted(context, cut, answer=answer)


@pytest.mark.many(50)
@given(contexts())
def test_a_cut_splits_no_exchange_and_holds_nothing_that_must_stay(context: Context) -> None:
    units = units_of(context.visible)
    for strategy in STRATEGIES:
        if (cut := strategy(context, BUDGET)) is None:
            continue
        gone = cut.positions
        assert all(gone.issuperset(unit.seqs) or gone.isdisjoint(unit.seqs) for unit in units), strategy
        assert gone.isdisjoint(entry.seq for entry in protected(context, BUDGET.task_tokens)), strategy
        assert gone.isdisjoint(units[-1].seqs), strategy
        goes = safe_cover(context, gone, task_tokens=BUDGET.task_tokens)
        assert {seq for unit in goes for seq in unit.seqs} == set(covered(context, strategy)), strategy


@pytest.mark.many(50)
@given(contexts())
def test_what_is_left_is_valid_and_the_live_request_is_the_last_that_a_user_says(context: Context) -> None:
    for strategy in STRATEGIES:
        after = left_by(strategy, context)
        users = [entry for entry in after.visible if entry.message.role == "user"]
        assert context.newest_user is None or users[-1] == context.newest_user, strategy
        assert violations({"model": "m", "messages": list(wire_messages(after.messages))}) == [], strategy


@pytest.mark.many(50)
@given(contexts())
def test_a_strategy_finds_nothing_in_what_it_left(context: Context) -> None:
    for strategy in STRATEGIES:
        if isinstance(strategy, KeepRecentFraction):
            continue  # its share is of what there is, and there is less each time
        left = context
        for _ in range(parts_of(strategy)):
            left = left_by(strategy, left)
        assert strategy(left, BUDGET) is None, strategy


def parts_of(strategy: Strategy) -> int:
    """How many strategies take turns in it."""
    if isinstance(strategy, Chain):
        return len(strategy.steps)
    return len(strategy.choices) if isinstance(strategy, FirstOf) else 1


@given(contexts(), st.integers(1, 30))
@pytest.mark.many(50)
def test_a_sliding_window_keeps_no_more_than_it_says(context: Context, most: int) -> None:
    left = left_by(SlidingWindow(most), context)
    free = [unit for unit in may_go(left, task_tokens=BUDGET.task_tokens) if unit.is_said]
    assert sum(len(unit.entries) for unit in free) <= most


@given(contexts(), st.integers(1, 1_000))
@pytest.mark.many(50)
def test_a_token_window_keeps_no_more_than_it_says_but_what_must_stay(context: Context, most: int) -> None:
    left = left_by(TokenWindow(most), context)
    free = [unit for unit in may_go(left, task_tokens=BUDGET.task_tokens) if unit.is_said]
    units = [unit for unit in units_of(left.visible) if unit.entries[-1].kind != "note"]
    stays = sum(unit.tokens for unit in units)
    assert not free or stays <= most


@given(contexts(), st.integers(1, 300))
@pytest.mark.many(50)
def test_user_messages_kept_are_the_newest_within_the_cap(context: Context, most: int) -> None:
    left = left_by(KeepUserMessages(most), context)
    free = [unit.first for unit in may_go(left, task_tokens=BUDGET.task_tokens) if unit.is_said]
    assert all(entry.is_user for entry in free)
    live = [left.newest_user.tokens] if left.newest_user else []
    assert not free or sum(live) + sum(entry.tokens for entry in free) <= most


def left_by(strategy: Strategy, context: Context) -> Context:
    cut = strategy(context, BUDGET)
    return compacted(context, cut) if cut else context
