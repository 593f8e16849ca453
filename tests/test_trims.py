"""What a trim leaves of the input of a summary, on both sides of its number."""

import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop.context import Entry, render
from agentloop.errors import StoreError
from agentloop.messages import Message, ToolCall
from agentloop.prompts import CLEARED
from agentloop.strategies import (
    CapToolText,
    DropAgentItems,
    DropOldest,
    LastLines,
    MarkOldResults,
    Trim,
    left_unread,
    trimmed,
)
from tests.kit import COUNTER, context_of, orderly

ALL_TRIMS: list[Trim] = [
    DropOldest(),
    DropAgentItems(),
    LastLines(2),
    CapToolText(100),
    MarkOldResults(keep=1),
]


def entries_of(*messages: Message) -> list[Entry]:
    return list(context_of(messages).visible)


def results(*texts: str) -> list[Entry]:
    """Exchanges, one for each result, after a user's words; results stand at 3, 5, 7 and so on."""
    said = [Message.user("go")]
    for at, text in enumerate(texts):
        said += [Message.assistant("", [ToolCall(id=f"c{at}", name="run")]), Message.tool(f"c{at}", text)]
    return entries_of(*said)


def shown(entries: Sequence[Entry]) -> list[str]:
    """The results, as they are read."""
    return [entry.original.text for entry in entries if entry.original.role == "tool"]


def size(entries: Sequence[Entry]) -> int:
    blocks = render(entries, max_result_chars=10**9)
    return sum(COUNTER(str(part)) + 2 for parts in blocks for part in parts)


@given(orderly(), st.integers(0, 400), st.sampled_from(ALL_TRIMS))
def test_a_trim_leaves_the_order_and_what_users_said_last(
    messages: list[Message], room: int, trim: Trim
) -> None:
    before = entries_of(*messages)
    after = trim(before, room, COUNTER)
    positions = [entry.seq for entry in after]
    assert positions == sorted(set(positions))
    assert [entry.message for entry in after] == [before[seq - 1].message for seq in positions]
    assert size(after) <= size(before) or not isinstance(trim, DropOldest | DropAgentItems)
    gone = {entry.seq for entry in before} - set(positions)
    assert gone <= left_unread(before, after)


@pytest.mark.parametrize(("spare", "dropped"), [(0, []), (-1, [1]), (-10_000, [1, 2])])
def test_the_oldest_goes_only_where_there_is_too_much(spare: int, dropped: list[int]) -> None:
    before = entries_of(*(Message.user(f"text {at} " + "word " * 20) for at in range(3)))
    after = DropOldest()(before, size(before) + spare, COUNTER)
    assert [entry.seq for entry in before if entry not in after] == dropped
    assert left_unread(before, after) == set(dropped)


def test_an_earlier_record_is_never_dropped() -> None:
    said = entries_of(*(Message.user("word " * 50) for _ in range(4)))
    before = [replace(said[0], kind="summary"), *said[1:]]
    assert [entry.seq for entry in DropOldest()(before, 0, COUNTER)] == [1, 4]
    assert [entry.seq for entry in DropAgentItems()(before, 0, COUNTER)] == [1, 2, 3, 4]


@pytest.mark.parametrize(("spare", "left"), [(0, [1, 2, 3, 4, 5]), (-1, [1, 2, 3, 4]), (-10_000, [1, 4])])
def test_what_the_agent_did_goes_newest_first(spare: int, left: list[int]) -> None:
    call = ToolCall(id="c", name="run")
    said = [Message.user("why " * 9), Message.assistant("", [call]), Message.tool("c", "so " * 40)]
    before = entries_of(*said, Message.user("and " * 9), Message.assistant("yes " * 9))
    after = DropAgentItems()(before, size(before) + spare, COUNTER)
    assert [entry.seq for entry in after] == left


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_result_of_as_many_lines_stays_and_one_more_is_cut(end: str) -> None:
    five, six = "a\nb\nc\nd\ne" + end, "0\na\nb\nc\nd\ne" + end
    after = LastLines(5)(results(five, six), 0, COUNTER)
    assert shown(after) == [five, "[1 earlier lines left out]\na\nb\nc\nd\ne"]


def test_what_was_cut_is_kept_in_a_private_file_once(tmp_path: Path) -> None:
    whole = "\n".join(f"line {at} é \ud800" for at in range(99))
    trim = LastLines(3, folder=tmp_path / "kept")
    first, again = (shown(trim(results(whole), 0, COUNTER)) for _ in range(2))
    (path,) = (tmp_path / "kept").glob("result_*")
    assert first == again
    assert first[0].startswith(f"[96 earlier lines left out; the whole is in {path}]\nline 96")
    assert path.read_bytes() == whole.encode("utf-8", "backslashreplace")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_result_that_a_file_holds_already_is_named_by_it(tmp_path: Path) -> None:
    before = results("a\nb\nc")
    before[-1] = replace(before[-1], spilled="/kept/result_1.txt")
    after = LastLines(1, folder=tmp_path)(before, 0, COUNTER)
    assert shown(after) == ["[2 earlier lines left out; the whole is in /kept/result_1.txt]\nc"]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="something else stands there: choose another place"):
        LastLines(1, folder=tmp_path / "file")(results("a\nb"), 0, COUNTER)


@pytest.mark.parametrize(
    ("most", "left"), [(6, ["a a", "b b", "c c"]), (5, [CLEARED, "b b", "c c"]), (0, [CLEARED] * 3)]
)
def test_tool_text_over_the_cap_goes_oldest_first(most: int, left: list[str]) -> None:
    def words(text: str) -> int:
        return len(text.split())

    assert shown(CapToolText(most)(results("a a", "b b", "c c"), 0, words)) == left


def test_the_result_at_the_cap_is_cut_to_head_and_tail() -> None:
    long = "HEAD " + "word " * 2_000 + "TAIL"
    before = results("older", long, "newest")
    old, cut, newest = shown(after := CapToolText(500)(before, 0, COUNTER))
    assert (old, newest) == (CLEARED, "newest")
    assert cut.startswith("HEAD")
    assert cut.endswith("TAIL")
    assert COUNTER(cut) + COUNTER(newest) <= 500
    assert left_unread(before, after) == {3}


@pytest.mark.parametrize(
    ("keep", "left"), [(0, [CLEARED] * 3), (2, [CLEARED, "b", "c"]), (3, ["a", "b", "c"])]
)
def test_old_results_are_marked_and_the_newest_stay(keep: int, left: list[str]) -> None:
    before = results("a", "b", "c")
    after = MarkOldResults(keep=keep)(before, 0, COUNTER)
    assert shown(after) == left
    assert shown(before) == ["a", "b", "c"]
    assert left_unread(before, after) == {3 + 2 * at for at in range(3 - keep)}


def test_trims_follow_each_other() -> None:
    before = results("a\nb\nc", "d\ne\nf")
    after = trimmed(before, (MarkOldResults(keep=1), LastLines(1)), 0, COUNTER)
    assert shown(after) == [CLEARED, "[2 earlier lines left out]\nf"]
