"""Which results a later result replaces, and how they are shown."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given

from agentloop.context import Context, Entry, count_message, for_chat, wire_messages
from agentloop.events import Cleared, ClearedItem, MessageRecord, Record
from agentloop.messages import Message, ToolCall
from agentloop.models import ModelRequest
from agentloop.strategies import superseded_items
from agentloop.strategies.superseded import newer_results
from tests.kit import COUNTER, added, assert_valid, context_of, histories, orderly, records_of

LONG = "one line of the file as it was then\n" * 20
Step = tuple[str, dict[str, Any] | str, str | None]


def done(*steps: Step, last: str | None = "Done.") -> list[Message]:
    """One exchange for each step: the tool, its arguments, its result."""
    messages = [Message.user("Go.")]
    for number, (name, arguments, result) in enumerate(steps):
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        messages.append(Message.assistant(None, [ToolCall(id=f"c{number}", name=name, arguments=text)]))
        if result is not None:
            messages.append(Message.tool(f"c{number}", result))
    return [*messages, Message.assistant(last)] if last else messages


def gone(messages: Sequence[Message]) -> list[str]:
    entries = context_of(messages).visible
    return [entry.original.text for entry in entries if entry.seq in newer_results(entries)]


def shown(context: Context, *items: ClearedItem) -> Context:
    """The context with these messages shown so."""
    return context.add(Record(seq=context.length + 1, event=Cleared(items=items)))


A, B = {"path": "src/a.py"}, {"path": "src/b.py"}


@pytest.mark.parametrize(
    ("steps", "texts"),
    [
        ([("read", A, "old"), ("read", A, "new")], ["old"]),
        ([("read", A, "1"), ("read", B, "2"), ("read", A, "3"), ("read", A, "4")], ["1", "3"]),
        ([("read", '{"path": "src/a.py"}', "old"), ("read", '{ "path":"src\\u002fa.py" }', "new")], ["old"]),
        (
            [("grep", {"q": "x", "in": "y"}, "as ever"), ("grep", {"in": "y", "q": "x"}, "as ever")],
            ["as ever"],
        ),
        ([("grep", {"q": "x"}, "2 found"), ("grep", {"q": "x"}, "3 found")], []),
        ([("next_record", {}, "record 1"), ("next_record", {}, "record 2")], []),
        ([("run", {"command": "pytest -q"}, "1 failed"), ("run", {"command": "pytest -q"}, "2 passed")], []),
        ([("view", {"file": "notes"}, "old"), ("view", {"file": "notes"}, "new")], ["old"]),
        ([("read", {"path": "./src/a.py"}, "old"), ("read", A | {"limit": None}, "new")], ["old"]),
        ([("now", {}, "old"), ("now", "", "new")], []),
        ([("read", A, "read failed: gone"), ("read", A, "new")], ["read failed: gone"]),
        ([("read", A, "same"), ("read", A, "same")], ["same"]),
        ([("read", A, "old"), ("read", B, "new")], []),
        ([("read", A, "old"), ("show", A, "new")], []),
        ([("read", A | {"offset": 1}, "old"), ("read", A | {"offset": 61}, "new")], []),
        ([("read", A, "old"), ("read", A | {"offset": 61}, "new")], []),
        ([("read", A | {"offset": 61}, "old"), ("read", A, "new")], []),
        ([("read", A, "old"), ("read", A, None)], []),
        ([("read", A, "old"), ("read", A, "read failed: OSError: gone")], []),
        (
            [("read", A, "old"), ("read", A, "read timed out after 3 s; what it did until then stays done")],
            [],
        ),
        ([("read", A, "old"), ("read", A, "interrupted: the run stopped")], []),
        ([("read", A, "old"), ("read", A, "Traceback (most recent call last):\n…")], []),
        ([("read", A, "1"), ("read", A, "2"), ("read", A, "error: gone")], ["1"]),
        ([("read", "{broken", "old"), ("read", "{broken", "new")], []),
        ([("get", {"url": "http://a/b/../c"}, "old"), ("get", {"url": "http://a/c"}, "new")], []),
    ],
)
def test_what_a_later_result_replaces(steps: list[Step], texts: list[str]) -> None:
    assert gone(done(*steps)) == texts


def test_what_is_to_be_kept_is_never_replaced() -> None:
    events = [added(message) for message in done(("plan", {}, "the plan"), ("plan", {}, "the plan"))]
    kept = MessageRecord(message=events[2].message, tokens=events[2].tokens, keep=True)
    assert set(newer_results(Context.of(records_of(events)).visible)) == {3}
    assert not newer_results(Context.of(records_of([*events[:2], kept, *events[3:]])).visible)


def test_the_newest_good_result_is_named() -> None:
    steps: list[Step] = [("read", A, "1"), ("read", A, "2"), ("read", A, "3"), ("read", A, "error: x")]
    newer = newer_results(context_of(done(*steps)).visible)
    assert {seq: (by.seq, by.name) for seq, by in newer.items()} == {3: (7, "read"), 5: (7, "read")}


def test_a_superseded_result_is_shown_as_one_line() -> None:
    context = context_of(done(("read", A, LONG), ("read", A, LONG + "changed")))
    (item,) = superseded_items(context, COUNTER)
    old = context.visible[2]
    assert item.seq == old.seq
    assert item.message.text == "[superseded: a later result of the same call of read stands below]"
    assert (item.message.role, item.message.tool_call_id) == ("tool", "c0")
    assert item.tokens == count_message(item.message, COUNTER) < old.tokens
    cleared = shown(context, item)
    assert cleared.messages[2] == item.message
    assert cleared.said[2].original == old.original
    assert superseded_items(cleared, COUNTER) == ()


FAILURES = [
    "FileNotFoundError: [Errno 2] No such file or directory: 'src/a.py'",
    "Traceback (most recent call last):\n  File \"x.py\", line 1\nKeyError: 'a'",
    "read failed: OSError: gone",
    "read timed out after 5 s; what it did until then stays done",
    "read was not called, since its arguments do not fit: path",
    "Call read again, differently: the file has moved",
    "interrupted: the run stopped before this call's result was kept",
    "not run: the answer that asked for this call was cut off",
    "Error: no such file",
    "cat: src/a.py: No such file or directory",
    "exit code 1",
    "[exit status 127]",
    "one line of output\n[exit status 2]",
    "[killed by signal 9]",
    "fatal: not a git repository",
    "HTTP/1.1 503 Service Unavailable",
    '{"error": "quota"}',
    '{"ok": false}',
    '{"isError": true, "content": []}',
    "permission denied",
    "collected 3 items\n1 failed, 2 passed",
]


@pytest.mark.parametrize("failure", FAILURES)
def test_what_failed_later_replaces_nothing(failure: str) -> None:
    steps = [("read", A, "good"), ("read", A, failure), ("read", A, failure)]
    assert gone(done(*steps)) == []
    assert gone(done(*steps, ("read", A, "better"))) == ["good", failure, failure]


@pytest.mark.parametrize(
    "good",
    ["", "ok", '{"error": null}', '{"status": 200}', "exit code 0", "[exit status 0]", "0 failed, 3 passed"],
)
def test_what_went_well_replaces_what_was_before(good: str) -> None:
    assert gone(done(("read", A, "old"), ("read", A, good))) == ["old"]


def test_what_saves_nothing_stays() -> None:
    assert superseded_items(context_of(done(("read", A, "short"), ("read", A, LONG))), COUNTER) == ()


def test_what_was_not_read_yet_stays() -> None:
    twice = [ToolCall(id=each, name="read", arguments=json.dumps(A)) for each in "ab"]
    batch = [Message.assistant(None, twice), Message.tool("a", LONG), Message.tool("b", LONG)]
    unread = context_of([Message.user("Go."), *batch])
    assert set(newer_results(unread.visible)) == {3}
    assert superseded_items(unread, COUNTER) == ()
    earlier = context_of([*done(("read", A, LONG), last=None), *batch])
    assert [item.seq for item in superseded_items(earlier, COUNTER)] == [3]
    spoken = context_of([Message.user("Go."), *batch, Message.user("Go on.")])
    assert superseded_items(spoken, COUNTER) == ()
    read = context_of([Message.user("Go."), *batch, Message.assistant("Seen.")])
    assert [item.seq for item in superseded_items(read, COUNTER)] == [3]


def test_a_result_gives_way_only_to_one_that_stands_whole() -> None:
    context = context_of(done(("read", A, LONG), ("read", A, LONG)))
    (item,) = superseded_items(context, COUNTER)
    newer = context.visible[4]
    short = ClearedItem(seq=newer.seq, message=Message.tool("c1", "…"), tokens=6)
    assert superseded_items(shown(context, short), COUNTER) == ()
    assert superseded_items(context, COUNTER) == (item,)


@pytest.mark.many(80)
@given(histories | orderly())
def test_l1_l2_only_results_with_a_newer_one_change(messages: list[Message]) -> None:
    context = context_of(messages)
    items = superseded_items(context, COUNTER)
    entries: dict[int, Entry] = {entry.seq: entry for entry in context.visible}
    newer = newer_results(context.visible)
    for item in items:
        assert entries[item.seq].message.role == "tool"
        assert item.tokens < entries[item.seq].tokens
        assert item.message.tool_call_id == entries[item.seq].message.tool_call_id
        assert newer[item.seq].seq > item.seq
        assert newer[item.seq].seq not in {other.seq for other in items}
    messages = list(shown(context, *items).messages)
    assert_valid([ModelRequest(messages=tuple(for_chat(wire_messages(messages))))])
