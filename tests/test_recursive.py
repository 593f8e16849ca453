"""One rolling summary: what it reads, what it builds on, and its texts."""

from dataclasses import replace

import pytest

from agentloop.context import Context
from agentloop.events import holds
from agentloop.messages import Message
from agentloop.strategies import (
    Digest,
    RecursiveSummary,
    Scope,
    Summary,
)
from tests.kit import BUDGET, added, context_of, records_of
from tests.turns_kit import carried_out, exchange, grown, place, said, seen, turn, turns


def test_recursive_summary_reads_the_overlap_right_behind_what_leaves() -> None:
    cut = RecursiveSummary(keep=10, overlap=2)(context_of(turns(10)), BUDGET)
    assert cut is not None
    assert (cut.covers, cut.reads, cut.at) == (((2, 10),), ((2, 12),), 11)
    assert cut.instead == Summary(shadow="What have we said and done so far?")
    assert cut.cleared == ()


@pytest.mark.parametrize(("overlap", "reads"), [(0, ((2, 16),)), (1, ((2, 17),)), (3, ((2, 19),))])
def test_the_overlap_goes_from_nothing_to_all_that_stays_but_one(
    overlap: int, reads: tuple[tuple[int, int], ...]
) -> None:
    cut = RecursiveSummary(keep=4, overlap=overlap)(context_of(turns(10)), BUDGET)
    assert cut is not None
    assert (cut.covers, cut.reads) == (((2, 16),), reads)


def test_an_exchange_that_the_border_runs_through_stays_whole_in_the_newest_turn() -> None:
    context = context_of(said(turns(3), [Message.user("go")], exchange(0, width=3), exchange(1)))
    cut = RecursiveSummary(keep=4, overlap=0)(context, BUDGET)
    assert cut is not None
    assert cut.covers == ((2, 6),)


def test_what_stays_begins_at_a_users_message() -> None:
    context = context_of(said(turns(3), exchange(0, width=3), turn(3)))
    for keep in (4, 5, 6):
        cut = RecursiveSummary(keep=keep, overlap=0)(context, BUDGET)
        assert cut is not None
        assert cut.covers == ((2, 10),)
    cut = RecursiveSummary(keep=8, overlap=0)(context, BUDGET)
    assert cut is not None
    assert cut.covers == ((2, 4),)


def test_the_next_pass_builds_on_the_pair_and_reads_only_what_is_new() -> None:
    strategy = RecursiveSummary(keep=4, overlap=1, shadow="So far?")
    first = carried_out(context_of(turns(6)), strategy(context_of(turns(6)), BUDGET))
    assert [message.text for message in first.messages][1:3] == ["So far?", "what was"]
    assert strategy(first, BUDGET) is None
    second = grown(first, *turns(2))
    cut = strategy(second, BUDGET)
    assert cut is not None
    assert (cut.covers, cut.reads) == (((9, 13),), ((9, 14),))
    assert seen(carried_out(second, cut)) == [1, 18, 18, 14, 15, 16, 17]


def test_in_one_long_turn_the_summary_stands_before_the_request() -> None:
    context = context_of([Message.user("go"), *said(*(exchange(number) for number in range(6)))])
    cut = RecursiveSummary(keep=4, overlap=2)(context, BUDGET)
    assert cut is not None
    assert (cut.covers, cut.reads, place(context, cut)) == (((2, 9),), ((2, 11),), 1)


def test_recursive_summary_hands_its_texts_on() -> None:
    strategy = RecursiveSummary(
        2, 0, system="S", shadow="Q", instruction="I", max_tokens=300, on_failure=Digest()
    )
    cut = strategy(context_of(turns(3)), BUDGET)
    assert cut is not None
    assert cut.instead == Summary(
        system="S", shadow="Q", instruction="I", max_tokens=300, on_failure=Digest()
    )


def test_messages_of_a_branch_are_neither_counted_nor_read() -> None:
    aside = [replace(added(message), branch="helper") for message in turns(8)]
    main = [added(message) for message in turns(4)]
    context = Context.of(records_of([*main[:4], *aside, *main[4:]]))
    cut = RecursiveSummary(keep=2, overlap=1)(context, BUDGET)
    assert cut is not None
    assert carried_out(context, cut).messages[0].text == "request 0"
    assert [entry.seq for entry in context.said if holds(cut.reads or (), entry.seq)] == [2, 3, 4, 21, 22, 23]
    assert seen(carried_out(context, cut)) == [1, 25, 25, 23, 24]
    assert Scope.fixed().runs(context, BUDGET) == ()
