"""What stays verbatim: users' messages, the last turns, the newest share."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from agentloop.strategies import (
    KeepRecentFraction,
    KeepRecentTurns,
    KeepUserMessages,
)
from tests.strategy_kit import (
    BUDGET,
    NOTHING,
    covered,
    grown,
    in_sight,
    place,
    said,
    summed_up,
)


@pytest.mark.parametrize(
    ("sizes", "most", "gone"),
    [
        ((10, 10, 10, 10, 10, 10), 30, [2, 4]),
        ((10, 10, 10, 10, 10, 10), 20, [2, 4]),
        ((10, 10, 10, 10, 10, 10), 19, [2, 3, 4]),
        ((10, 10, 10, 10, 10, 10), 1, [2, 3, 4]),
        ((10, 10, 10, 10, 900, 10), 20, [2, 3, 4]),
        ((10, 10, 30, 10, 10, 10), 39, [2, 3, 4]),
        ((10, 10, 30, 10, 10, 10), 40, [2, 4]),
        ((900, 10, 10, 10, 10, 10), 919, [1, 2, 4]),
        ((900, 10, 10, 10, 10, 10), 920, [2, 4]),
    ],
)
def test_user_messages_stay_newest_first_up_to_the_cap(
    sizes: Sequence[int], most: int, gone: list[int]
) -> None:
    assert covered(said("uauaua", *sizes), KeepUserMessages(most)) == gone


def test_nothing_older_than_a_user_message_over_the_cap_stays() -> None:
    context = said("uauauaua", 10, 10, 10, 10, 500, 10, 10, 10)
    assert covered(context, KeepUserMessages(100)) == [2, 3, 4, 5, 6]


def test_the_summary_stands_between_the_user_messages_kept_and_the_live_request() -> None:
    assert in_sight(said("uauxaua"), KeepUserMessages()) == ["1", "3", "summary", "7", "8"]
    assert in_sight(said("uauu"), KeepUserMessages()) == ["1", "3", "summary", "4"]
    assert in_sight(said("uauxx"), KeepUserMessages()) == ["1", "summary", "3", "6", "7"]
    assert in_sight(said("uxxx"), KeepUserMessages()) == ["summary", "1", "6", "7"]
    assert in_sight(said("aaxa"), KeepUserMessages()) == ["summary", "5"]


def test_user_messages_alone_are_nothing_to_fold() -> None:
    assert KeepUserMessages()(said("uuuu"), BUDGET) is None
    assert KeepUserMessages()(said("sua"), BUDGET) is None


def test_earlier_summaries_are_updated_where_only_user_messages_stay() -> None:
    context = grown(summed_up(said("uauaua"), 2, 4), "ua")
    assert in_sight(context, KeepUserMessages()) == ["1", "5", "summary", "8", "9"]
    context = grown(summed_up(said("uauaua"), 2, 4, answer="said"), "ua")
    assert in_sight(context, KeepUserMessages()) == ["1", "5", "summary", "8", "9"]


@pytest.mark.parametrize(
    ("script", "turns", "gone", "at"),
    [
        ("uauauxa", 3, NOTHING, None),
        ("uauauxa", 2, [2], 3),
        ("uauauxa", 1, [2, 3, 4], 5),
        ("auaua", 3, NOTHING, None),
        ("auaua", 2, [1], 3),
        ("auaua", 1, [1, 3], 4),
        ("suaua", 1, [3], 4),
        ("ucu1a2uxa", 2, [2, 4, 6], 3),
        ("axxa", 1, NOTHING, None),
    ],
)
def test_the_last_turns_stay_whole_within_their_cap(
    script: str, turns: int, gone: list[int], at: int | None
) -> None:
    context = said(script)
    assert covered(context, KeepRecentTurns(turns)) == gone
    assert place(context, KeepRecentTurns(turns)) == at


@pytest.mark.parametrize(
    ("window", "cap"), [(4_000, 2_000), (9_000, 2_000), (9_008, 2_002), (33_000, 8_000), (200_000, 8_000)]
)
def test_the_cap_of_a_turn_is_a_quarter_of_what_may_be_sent_within_its_bounds(window: int, cap: int) -> None:
    assert KeepRecentTurns().cap(said("ua"), replace(BUDGET, window=window)) == cap


def test_the_cap_is_in_tokens_of_our_own_count() -> None:
    budget = replace(BUDGET, window=25_000, least_ratio=1.5)
    assert KeepRecentTurns().cap(said("ua"), budget) == 4_000


def capped(turns: int, most: int) -> KeepRecentTurns:
    return KeepRecentTurns(turns, least_tokens=1, most_tokens=most)


@pytest.mark.parametrize(
    ("most", "gone"),
    [(60, [2]), (59, [2, 4, 5]), (40, [2, 4, 5]), (39, [2, 4, 5, 6, 7]), (10, [2, *range(4, 9)])],
)
def test_of_a_turn_over_its_cap_stay_the_user_message_and_the_newest_exchanges(
    most: int, gone: list[int]
) -> None:
    context = said("uauxxaua")
    assert covered(context, capped(2, most)) == gone
    assert place(context, capped(2, most)) == 3


def test_each_turn_has_its_own_cap_and_the_live_one_keeps_its_request() -> None:
    context = said("uauxxuxx")
    assert covered(context, capped(2, 50)) == [2]
    assert covered(context, capped(2, 30)) == [2, 4, 5, 9, 10]
    assert covered(context, capped(1, 30)) == [2, 3, 4, 5, 6, 7, 9, 10]
    assert in_sight(context, capped(1, 30)) == ["1", "summary", "8", "11", "12"]
    large = said("uauxxuxx", *(10,) * 7, 900, *(10,) * 4)
    assert covered(large, capped(2, 50)) == [2, 9, 10]


def test_a_user_message_over_the_cap_goes_with_its_turn() -> None:
    assert covered(said("uauxaua", 10, 10, 51, 10, 10, 10, 10, 10), capped(2, 50)) == [2, 3, 4, 5, 6]


def test_earlier_summaries_are_updated_where_turns_stay() -> None:
    context = grown(summed_up(said("uaua"), 2, 2), "uaua")
    assert in_sight(context, KeepRecentTurns()) == ["1", "summary", "6", "7", "8", "9"]
    assert KeepRecentTurns(3)(context, BUDGET) is None


def test_the_newest_share_stays_from_a_turn_start() -> None:
    context = said("uauauaua", *(500,) * 8)
    assert covered(context, KeepRecentFraction(0.3)) == [2, 3, 4]
    assert covered(context, KeepRecentFraction(0)) == [2, 3, 4, 5, 6]
    assert place(context, KeepRecentFraction(0)) == 7


def test_a_share_kept_from_a_turn_start_begins_at_a_users_message() -> None:
    context = said("uaaauaaaua")
    assert covered(context, KeepRecentFraction(0.2)) == [2, 3, 4, 5, 6]
    assert covered(context, KeepRecentFraction(0.2, at="turn")) == [2, 3, 4, 5, 6, 7, 8]
    assert covered(context, KeepRecentFraction(0.5, at="turn")) == [2, 3, 4]
    inside = said("uaaaaaaa")
    assert covered(inside, KeepRecentFraction(0.3, at="turn")) == covered(inside, KeepRecentFraction(0.3))


def test_the_tail_leaves_room_for_the_first_record() -> None:
    context = said("uauauauauaua", *(500 for _ in range(12)))
    budget = replace(BUDGET, threshold=5_600, record=3_100)
    assert covered(context, KeepRecentFraction(0.5)) == [2, 3, 4, 5, 6, 7, 8]
    assert covered(context, KeepRecentFraction(0.5), budget) == [2, 3, 4, 5, 6, 7, 8, 9]
    later = summed_up(context, 2, 3, tokens=100)
    assert covered(later, KeepRecentFraction(0.5), budget) == covered(later, KeepRecentFraction(0.5))
