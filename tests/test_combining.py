"""Strategies made of strategies: chains, choices, and what stands instead."""

from dataclasses import replace

import pytest

from agentloop.context import Budget, Context
from agentloop.strategies import (
    Chain,
    Cut,
    Digest,
    Instead,
    KeepRecentTurns,
    KeepUserMessages,
    Lines,
    Note,
    SlidingWindow,
    Summary,
    TurnWindow,
    cut_of,
    first_of,
    foldable,
    replaced_by,
    strategy_name,
    then,
)
from tests.strategy_kit import (
    BUDGET,
    covered,
    grown,
    in_sight,
    said,
    summed_up,
)


def test_a_chain_names_its_steps_and_its_target() -> None:
    chain = then(SlidingWindow(4), KeepUserMessages(), target=0.3)
    assert (chain.steps, chain.target) == ((SlidingWindow(4), KeepUserMessages()), 0.3)
    assert then(then(SlidingWindow(4), TurnWindow(1)), KeepUserMessages()).steps == (
        SlidingWindow(4),
        TurnWindow(1),
        KeepUserMessages(),
    )
    inner = then(SlidingWindow(4), target=0.2)
    named = Chain((SlidingWindow(4),), name="tiered")
    assert then(inner, named, TurnWindow(1)).steps == (inner, named, TurnWindow(1))


def test_a_chain_answers_with_the_first_cut_of_its_steps() -> None:
    context = said("uauaua")
    assert covered(context, then(SlidingWindow(6), TurnWindow(2))) == [2]
    assert then(SlidingWindow(6), TurnWindow(3))(context, BUDGET) is None


def test_first_of_answers_with_the_first_cut() -> None:
    context = said("uauaua")
    assert covered(context, first_of(SlidingWindow(6), TurnWindow(1), TurnWindow(2))) == [2, 3, 4]
    assert first_of(SlidingWindow(6), TurnWindow(3))(context, BUDGET) is None
    nested = first_of(first_of(SlidingWindow(6), TurnWindow(1)), TurnWindow(2))
    assert nested == first_of(SlidingWindow(6), TurnWindow(1), TurnWindow(2))


@pytest.mark.parametrize("instead", [Summary(max_tokens=100), Digest(), Lines(), Note()])
def test_what_stands_instead_leaves_the_cut_as_it_is(instead: Instead) -> None:
    for strategy in (SlidingWindow(2), KeepUserMessages(), KeepRecentTurns(1)):
        context = said("uauaua")
        cut, other = strategy(context, BUDGET), replaced_by(strategy, instead)(context, BUDGET)
        assert cut is not None
        assert other == replace(cut, instead=instead)
        assert replaced_by(strategy, instead)(said("ua"), BUDGET) is None


def test_a_record_in_the_place_of_a_note_takes_earlier_summaries_in() -> None:
    context = grown(summed_up(said("uaua"), 2, 2), "uauaua")
    assert in_sight(context, replaced_by(TurnWindow(2), Digest())) == ["1", "summary", "8", "9", "10", "11"]
    assert in_sight(context, replaced_by(TurnWindow(2), Note()))[:3] == ["1", "summary", "note"]


def test_of_a_chain_each_step_gets_what_stands_instead() -> None:
    chain = replaced_by(then(SlidingWindow(2), KeepUserMessages(), target=0.4), Digest())
    assert isinstance(chain, Chain)
    assert chain.target == 0.4
    assert [strategy_name(step) for step in chain.steps] == [
        "replaced_by(SlidingWindow, Digest)",
        "replaced_by(KeepUserMessages, Digest)",
    ]


def test_a_cut_that_only_shortens_keeps_its_shape() -> None:
    shortening = Cut(at=1)
    assert replaced_by(lambda context, budget: shortening, Digest())(said("ua"), BUDGET) is shortening


def all_but_the_last(context: Context, budget: Budget) -> Cut | None:
    return cut_of(context, foldable(context, budget)[:-1])


def test_strategies_have_telling_names() -> None:
    assert strategy_name(all_but_the_last) == "all_but_the_last"
    assert strategy_name(SlidingWindow(2)) == "SlidingWindow"
    assert strategy_name(then(SlidingWindow(2), all_but_the_last)) == "then"
    either = first_of(replaced_by(SlidingWindow(2), Summary()), all_but_the_last)
    assert strategy_name(either) == "first_of(replaced_by(SlidingWindow, Summary), all_but_the_last)"
