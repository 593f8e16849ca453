"""Chains of tiers and reductions: what each step covers."""

from dataclasses import replace

import pytest

from agentloop.messages import Message
from agentloop.strategies import (
    Cut,
    Digest,
    Note,
    Reduce,
    Summary,
    Tiered,
)
from tests.kit import BUDGET, context_of
from tests.turns_kit import ROOM, carried_out, exchange, grown, said, seen, shown, turn, turns


def test_tiered_goes_from_stubs_to_a_record_without_a_model() -> None:
    long = said(*([*turn(number), *exchange(number, lines=40)] for number in range(5)))
    context = context_of([*long, Message.assistant("done")])
    strip, chunks, half, plain = Tiered().steps
    assert [item.seq for item in (strip(context, ROOM) or Cut()).cleared] == [4, 8, 12, 16]
    assert shown(strip(context, ROOM))[4].startswith("line 0 of 0\nline 1 of 0")
    cuts = [step(context, ROOM) for step in (chunks, half, plain)]
    assert [cut.covers for cut in cuts if cut] == [((2, 16),), ((2, 9),), ((2, 16),)]
    assert [cut.instead for cut in cuts if cut] == [
        Summary(chunk_tokens=12_000, message_chars=10_000),
        Summary(chunk_tokens=12_000, message_chars=10_000),
        Digest(),
    ]
    folded = carried_out(context, chunks(context, ROOM))
    assert [step(folded, ROOM) for step in Tiered().steps] == [None] * 4


def test_the_first_tier_that_can_be_enough_is_taken() -> None:
    long = said(*([*turn(number), *exchange(number, lines=40)] for number in range(5)))
    context = context_of([*long, Message.assistant("done")])
    budget = replace(ROOM, fixed=0)
    shortened = sum(item.tokens for item in (Tiered().steps[0](context, budget) or Cut()).cleared)
    stripped = context.tokens - sum(context.visible[at - 1].tokens for at in (4, 8, 12, 16)) + shortened
    for most, covers in ((stripped, ()), (stripped - 1, ((2, 16),))):
        cut = Tiered()(context, replace(budget, threshold=most))
        assert cut is not None
        assert cut.covers == covers
    assert Tiered(target=0.5).most(replace(budget, threshold=9_000)) == budget.limit // 2
    assert Tiered().most(budget) == budget.limit
    cut = Tiered(target=0.000_1)(context, budget)
    assert cut is not None
    assert cut.instead == Digest()


def test_the_newest_messages_stay_with_the_whole_exchange_they_belong_to() -> None:
    context = context_of(said(turns(2), exchange(0, width=3), turn(2), turn(3)))
    for step in (Tiered(keep=5).steps[1], Tiered(keep=5).steps[3]):
        cut = step(context, BUDGET)
        assert cut is not None
        assert cut.covers == ((2, 4),)


@pytest.mark.parametrize(
    ("window", "most", "tokens"),
    [
        (40, 12_000, 20),
        (20_000, 12_000, 8_000),
        (30_000, 12_000, 12_000),
        (128_000, 10**9, 51_200),
        (564_000, 10**9, 155_100),
        (1_000_000, 10**9, 150_000),
        (2_000_000, 10**9, 300_000),
    ],
)
def test_chunks_take_a_smaller_share_of_very_large_windows(window: int, most: int, tokens: int) -> None:
    step = Tiered(chunk_tokens=most).steps[1]
    cut = step(context_of(turns(6)), replace(BUDGET, window=window))
    assert cut is not None
    assert isinstance(cut.instead, Summary)
    assert cut.instead.chunk_tokens == tokens


def test_reduce_shortens_then_summarises_then_drops() -> None:
    long = said(*([*turn(number), *exchange(number, lines=60)] for number in range(5)))
    context = context_of([*long, Message.assistant("done")])
    lines, summary, drop = Reduce().steps
    assert [item.seq for item in (lines(context, ROOM) or Cut()).cleared] == [4, 8, 12, 16, 20]
    older = summary(context, ROOM)
    assert older is not None
    assert (older.covers, older.at, older.instead) == (((2, 12),), 13, Summary(max_tokens=2_000))
    dropped = drop(context, ROOM)
    assert dropped is not None
    assert (dropped.covers, dropped.at, dropped.instead) == (((5, 12),), 13, Note())
    folded = carried_out(context, older)
    assert drop(folded, ROOM) is None
    once_more = summary(folded, ROOM)
    assert once_more is not None
    assert seen(carried_out(folded, once_more)) == [1, 23, 17, 19, 20, 21]


def test_reduce_counts_exchanges_where_there_is_one_turn() -> None:
    context = context_of([Message.user("go"), *said(*(exchange(number) for number in range(6)))])
    _, summary, drop = Reduce().steps
    older, dropped = summary(context, BUDGET), drop(context, BUDGET)
    assert older is not None
    assert dropped is not None
    assert (older.covers, dropped.covers) == (((2, 9),), ((4, 9),))
    assert summary(carried_out(context, older), BUDGET) is None
    assert drop(carried_out(context, dropped), BUDGET) is None


def test_what_stands_for_the_newest_turn_is_taken_into_the_summary_before_it() -> None:
    context = context_of(said(turns(2), [Message.user("go")], exchange(0), exchange(1), exchange(2)))
    folded = carried_out(context, Cut(covers=((6, 9),), at=5))
    cut = Reduce(keep_turns=1).steps[1](folded, BUDGET)
    assert cut is not None
    assert (cut.covers, seen(carried_out(folded, cut))) == (((2, 4), (12, 12)), [1, 13, 5, 10, 11])


def test_what_is_dropped_leaves_summaries_in_sight_and_one_line() -> None:
    _, summary, drop = Reduce(keep_turns=1).steps
    folded = grown(carried_out(context_of(turns(4)), summary(context_of(turns(4)), BUDGET)), *turns(3))
    once = carried_out(folded, drop(folded, BUDGET))
    assert seen(once) == [1, 9, 16, 14, 15]
    twice = grown(once, *turns(3))
    assert seen(carried_out(twice, drop(twice, BUDGET))) == [1, 9, 23, 21, 22]
