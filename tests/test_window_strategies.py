"""What each window keeps and drops, at both sides of its numbers."""

from dataclasses import replace

import pytest

from agentloop.strategies import (
    Note,
    SlidingWindow,
    Strategy,
    TokenWindow,
    TurnWindow,
)
from tests.strategy_kit import (
    BUDGET,
    NOTHING,
    covered,
    grown,
    in_sight,
    noted,
    place,
    said,
    summed_up,
)


@pytest.mark.parametrize(
    ("script", "most", "gone", "at"),
    [
        ("uauaua", 6, NOTHING, None),
        ("uauaua", 5, [2], 3),
        ("uauaua", 4, [2], 3),
        ("uauaua", 3, [2, 3, 4], 5),
        ("uauaua", 2, [2, 3, 4], 5),
        ("uauaua", 1, [2, 3, 4], 5),
        ("suaua", 4, NOTHING, None),
        ("suaua", 2, [3], 4),
        ("sauaua", 2, [2, 4], 5),
        ("uxxxx", 9, NOTHING, None),
        ("uxxxx", 8, NOTHING, None),
        ("uxxxx", 7, [2, 3], 1),
        ("uxxxx", 6, [2, 3], 1),
        ("uxxxx", 1, [2, 3, 4, 5, 6, 7], 1),
        ("uaupppa", 11, [2], 3),
        ("uaupppa", 10, [2], 3),
        ("uaupppa", 9, [2, 4, 5, 6], 3),
        ("uaupppa", 7, [2, 4, 5, 6], 3),
        ("ucu1a2uxa", 10, NOTHING, None),
        ("ucu1a2uxa", 9, [2, 4, 6], 3),
        ("ucu1a2uxa", 6, [2, 4, 6], 3),
        ("ucu1a2uxa", 5, [2, 3, 4, 5, 6], 6),
        ("aaaa", 2, [1, 2], 3),
        ("", 1, NOTHING, None),
    ],
)
def test_a_sliding_window_keeps_the_last_messages_from_a_turn_start(
    script: str, most: int, gone: list[int], at: int | None
) -> None:
    context = said(script)
    assert covered(context, SlidingWindow(most)) == gone
    assert place(context, SlidingWindow(most)) == at


@pytest.mark.parametrize(
    ("script", "most", "gone", "at"),
    [
        ("uauxaua", 3, NOTHING, None),
        ("uauxaua", 2, [2], 3),
        ("uauxaua", 1, [2, 3, 4, 5, 6], 7),
        ("saauaua", 2, NOTHING, None),
        ("saauaua", 1, [5], 6),
        ("uxxxx", 1, NOTHING, None),
        ("ucu1a2ua", 2, [2, 4, 6], 3),
        ("aaaa", 1, NOTHING, None),
    ],
)
def test_a_turn_window_keeps_the_last_turns_and_what_stands_before_the_first(
    script: str, most: int, gone: list[int], at: int | None
) -> None:
    context = said(script)
    assert covered(context, TurnWindow(most)) == gone
    assert place(context, TurnWindow(most)) == at


@pytest.mark.parametrize(
    ("script", "most", "gone", "at"),
    [
        ("uauaua", 60, NOTHING, None),
        ("uauaua", 59, [2], 3),
        ("uauaua", 50, [2], 3),
        ("uauaua", 49, [2, 3, 4], 5),
        ("uauaua", 30, [2, 3, 4], 5),
        ("uauaua", 1, [2, 3, 4], 5),
        ("suaua", 40, [3], 4),
        ("uxxxx", 70, [2, 3], 1),
        ("uxxxx", 69, [2, 3, 4, 5], 1),
        ("uappa", 60, [2, 3, 4, 5], 1),
        ("uappa", 50, [2, 3, 4, 5], 1),
        ("uappa", 49, [2, 3, 4, 5, 6, 7, 8], 1),
        ("aaaa", 20, [1, 2], 3),
    ],
)
def test_a_token_window_keeps_a_suffix_beside_what_must_stay(
    script: str, most: int, gone: list[int], at: int | None
) -> None:
    context = said(script)
    assert covered(context, TokenWindow(most)) == gone
    assert place(context, TokenWindow(most)) == at


def test_a_token_window_leaves_no_gap_before_what_is_too_large() -> None:
    context = said("uaaaua", 10, 10, 500, 10, 10, 10)
    assert covered(context, TokenWindow(60)) == [2, 3, 4]
    inside = said("uaaaa", 10, 10, 500, 10, 10)
    assert covered(inside, TokenWindow(60)) == [2, 3]
    assert covered(inside, TokenWindow(530)) == [2]


def test_a_token_window_reads_sizes_as_people_write_them() -> None:
    assert TokenWindow("8k") == TokenWindow(8_000)
    assert covered(said("uauaua"), TokenWindow("50")) == [2]


def test_a_task_too_long_to_be_kept_goes_with_its_turn() -> None:
    context = said("uauaua", 801, 10, 10, 10, 10, 10)
    larger = replace(BUDGET, window=8_010)
    for strategy in (SlidingWindow(4), TurnWindow(2), TokenWindow(40)):
        assert covered(context, strategy) == [1, 2]
    for strategy in (SlidingWindow(4), TurnWindow(2), TokenWindow(841)):
        assert covered(context, strategy, larger) == [2]


@pytest.mark.parametrize(
    "answer", ["", "what an assistant says of it"], ids=["summary", "question and answer"]
)
def test_windows_keep_earlier_summaries(answer: str) -> None:
    context = grown(summed_up(said("uaua"), 2, 2, answer=answer), "uauaua")
    stands = ["note", "summary"] if answer else ["summary"]
    assert in_sight(context, SlidingWindow(4)) == ["1", *stands, "note", "8", "9", "10", "11"]
    assert in_sight(context, TurnWindow(2)) == ["1", *stands, "note", "8", "9", "10", "11"]
    assert in_sight(context, TokenWindow(60)) == ["1", *stands, "note", "8", "9", "10", "11"]


def test_summaries_are_free_of_charge_in_a_sliding_window_and_paid_first_in_a_token_window() -> None:
    context = grown(summed_up(said("uaua"), 2, 2, tokens=500), "ua")
    assert covered(context, SlidingWindow(5)) == NOTHING
    assert covered(context, TokenWindow(550)) == NOTHING
    assert covered(context, TokenWindow(549)) == [3, 4]
    pair = grown(summed_up(said("uaua"), 2, 2, answer="said", tokens=500), "ua")
    assert covered(pair, TokenWindow(550)) == NOTHING
    assert covered(pair, TokenWindow(549)) == [3, 4]


def test_earlier_notes_are_taken_in_by_the_next_one() -> None:
    context = grown(noted(said("uauaua"), 2, 2), "uaua")
    for strategy in (SlidingWindow(4), TurnWindow(2), TokenWindow(50)):
        assert covered(context, strategy) == [7, 3, 4, 5, 6]
        assert in_sight(context, strategy) == ["1", "note", "8", "9", "10", "11"]


def test_a_note_alone_is_nothing_to_drop() -> None:
    context = noted(said("uaua"), 2, 2)
    for strategy in (SlidingWindow(2), TurnWindow(1), TokenWindow(30)):
        assert strategy(context, BUDGET) is None


@pytest.mark.parametrize("strategy", [SlidingWindow(2), TurnWindow(1), TokenWindow(30)])
def test_windows_leave_a_note(strategy: Strategy) -> None:
    cut = strategy(said("uauaua"), BUDGET)
    assert cut is not None
    assert cut.instead == Note()
