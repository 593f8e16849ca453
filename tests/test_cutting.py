"""Long texts shown in part: head and tail, a beginning, the last lines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop._plumbing.truncate import beginning, ends, halves, head, last_lines, tail
from agentloop.prompts import SPILLED, ends_of

TEXTS = st.text(
    alphabet=st.characters() | st.sampled_from("\ud83d\ude00\u0301\u200d\u2764\ufe0f👩👩🏽\r\n"), max_size=400
)


def test_a_text_that_is_short_enough_is_itself() -> None:
    assert ends("x" * 100, max_chars=100, rest="the whole is in f.txt") == "x" * 100


def test_head_and_tail_stand_two_to_one_around_a_marker() -> None:
    text = "".join(chr(ord("a") + index % 26) for index in range(9_000))
    short = ends(text, max_chars=1_000, rest="the whole is in result_c1.txt")
    head, marker, tail = short.partition("\n... [")[0], short.split("\n")[1], short.rpartition("] ...\n")[2]
    assert text.startswith(head)
    assert text.endswith(tail)
    assert abs(len(head) - 2 * len(tail)) <= 3
    assert 990 <= len(short) <= 1_000
    left_out = 9_000 - len(head) - len(tail)
    assert marker == f"... [{left_out:,} of 9,000 characters left out; the whole is in result_c1.txt] ..."


@given(st.integers(100, 900))
def test_what_stands_around_the_marker_can_be_told_from_it(max_chars: int) -> None:
    text = "".join(f"... [{number}] ...\n" for number in range(900))
    path = "/results/result_c1.txt"
    shown = ends(text, max_chars=max_chars, rest=SPILLED.format(path=path))
    before, after, total = ends_of(shown, path)
    assert total == len(text)
    assert before + after
    assert text.startswith(before)
    assert text.endswith(after)
    assert len(before) + len(after) > max_chars - 100


def test_the_marker_says_how_to_get_the_rest() -> None:
    assert "left out; ask again] ..." in ends("x" * 900, max_chars=200, rest="ask again")


def test_the_text_itself_beats_a_longer_marker() -> None:
    assert ends("x" * 30, max_chars=20) == "x" * 30
    assert len(ends("x" * 500, max_chars=0)) < 120


@pytest.mark.parametrize("unit", ["👩🏽\u200d🚀", "e\u0301\u0302", "\ud83d\ude00", "\r\n", "❤\ufe0f"])
@pytest.mark.parametrize("room", range(200, 212))
def test_characters_of_several_code_points_stay_whole(unit: str, room: int) -> None:
    short = ends(unit * 1_000, max_chars=room)
    head, tail = short.partition("\n... [")[0], short.rpartition("] ...\n")[2]
    assert head == unit * (len(head) // len(unit))
    assert tail == unit * (len(tail) // len(unit))
    assert head
    assert tail


@pytest.mark.parametrize("text", ["a" + "\u0301" * 5_000, "\u200d" * 5_000])
def test_an_endless_character_is_cut_nevertheless(text: str) -> None:
    short = ends(text, max_chars=1_000)
    assert 900 < len(short) <= 1_000


@given(TEXTS, st.integers(min_value=-5, max_value=500), st.none() | st.text(max_size=20))
def test_l11_ends_keep_their_limit(text: str, max_chars: int, whole: str | None) -> None:
    short = ends(text, max_chars=max_chars, rest=whole or "")
    assert len(short) <= len(text)
    if max_chars >= 120 + 2 * len(whole or ""):
        assert len(short) <= max_chars
    if len(text) <= max_chars:
        assert short == text


@pytest.mark.many(30)
@given(st.lists(st.sampled_from(["\ud83d\ude00", "x", "\U0001f600"]), min_size=200, max_size=250))
def test_l11_no_surrogate_pair_is_split(units: list[str]) -> None:
    short = ends("".join(units), max_chars=180)
    assert short.encode("utf-16", "surrogatepass").decode("utf-16")


@given(TEXTS, st.integers(1, 50))
def test_a_beginning_is_no_longer_than_it_may_be(text: str, most: int) -> None:
    short = beginning(text, most)
    assert len(short) <= min(len(text), most)
    assert short == text or (short[-1] == "…" and text.startswith(short[:-1]))


@given(TEXTS, st.integers(0, 50))
def test_halves_are_head_and_tail_in_lines_of_their_own(text: str, most: int) -> None:
    seen = halves(text, most)
    assert seen == (text if len(text) <= most else f"{head(text, most // 2)}\n{tail(text, most // 2)}")


@pytest.mark.parametrize(
    ("text", "most", "seen"),
    [
        ("a\nb\nc", 3, "a\nb\nc"),
        ("a\nb\nc\n", 3, "a\nb\nc\n"),
        ("a\nb\nc", 2, "[1 earlier lines left out]\nb\nc"),
        ("a\n" * 1_001, 1, "[1,000 earlier lines left out]\na"),
        ("", 1, ""),
    ],
)
def test_the_last_lines_stand_behind_one_that_counts_the_others(text: str, most: int, seen: str) -> None:
    assert last_lines(text, most) == seen


def test_the_line_before_the_last_lines_says_how_to_get_the_rest() -> None:
    assert last_lines("a\nb", 1, rest="ask again") == "[1 earlier lines left out; ask again]\nb"
