"""What is exported is the whole session, valid where it can be, and comes back."""

import json
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from agentloop.codec import encode
from agentloop.context import Context
from agentloop.errors import UsageError
from agentloop.events import (
    MAIN,
    Cleared,
    ClearedItem,
    Compacted,
    Described,
    Event,
    EventFilter,
    MessageRecord,
    ModelCalled,
    NotCompacted,
    Noted,
    Record,
    Restored,
    Unknown,
    select,
)
from agentloop.messages import Message, ToolCall
from agentloop.sessions.export import heading, to_blocks, to_events, to_openai
from agentloop.sessions.importing import parse
from agentloop.strategies import KeepRecentFraction
from tests.export_kit import DONE, TASK, WHOLE, asks, length, log, said
from tests.kit import BUDGET, orderly, records_of


def order(records: Sequence[Record]) -> list[str]:
    return [
        data["content"] or "+".join(call["id"] for call in data["tool_calls"]) for data in to_openai(records)
    ]


def test_openai_hides_and_shortens_nothing_of_the_main_line() -> None:
    assert to_openai(WHOLE) == [
        message.to_openai() for message in (TASK, asks("a"), Message.tool("a", "x" * 500), DONE)
    ]


@pytest.mark.parametrize(
    ("messages", "wanted"),
    [
        ([asks("a", "b"), Message.tool("b", "B"), Message.tool("a", "A")], ["a+b", "A", "B"]),
        ([asks("a"), TASK, DONE, Message.tool("a", "late")], ["a", "late", "task", "done"]),
        ([asks("a"), asks("b"), Message.tool("b", "B"), Message.tool("a", "A")], ["a", "A", "b", "B"]),
        ([asks("a"), Message.tool("a", "A1"), asks("a"), Message.tool("a", "A2")], ["a", "A1", "a", "A2"]),
        ([asks("a"), TASK, asks("a"), Message.tool("a", "A2")], ["a", "task", "a", "A2"]),
        ([asks("a", "a"), TASK, Message.tool("a", "1"), Message.tool("a", "2")], ["a+a", "1", "2", "task"]),
        ([asks("a", "b"), Message.tool("a", "A"), TASK], ["a+b", "A", "task"]),
        ([Message.tool("z", "nobody asked"), TASK], ["nobody asked", "task"]),
        ([asks("a"), Message.tool("a", "A"), TASK, Message.tool("a", "again")], ["a", "A", "task", "again"]),
    ],
    ids=[
        "shuffled",
        "late",
        "crossed",
        "reused",
        "reused-open",
        "twice-in-a-batch",
        "missing",
        "orphan",
        "repeated",
    ],
)
def test_results_stand_behind_their_calls_and_none_is_lost(
    messages: list[Message], wanted: list[str]
) -> None:
    assert order(log(*messages)) == wanted


@pytest.mark.parametrize("body", ['{"v":2, "kind":"dreamt"}', '\t { "kind" : "dreamt", "v":2 , "x":" y " } '])
def test_events_come_back_as_they_were(body: str) -> None:
    records = [*WHOLE, Record(seq=11, event=Unknown(kind="dreamt", body=body))]
    text = "".join(f"{line}\n" for line in to_events(records))
    events = parse(text, count=length)
    assert [encode(event) for event in events] == [encode(record.event) for record in records]


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(), values, max_size=3),
)


@given(st.dictionaries(st.text(), ODD, max_size=3))
def test_whatever_a_log_holds_comes_back_to_the_byte(data: dict[str, object]) -> None:
    odd = Message.from_openai({**data, "role": "user", "content": "hi"})
    records = log(odd, Noted(source="x", data=data), ModelCalled(purpose="agent", model="m", cost=0.5))
    lines = list(to_events(records))
    assert [encode(event) for event in parse("\n".join(lines), count=length)] == lines


def test_messages_are_those_that_the_filter_takes_of_one_line() -> None:
    def texts(only: EventFilter) -> list[str]:
        return [data["content"] or "call" for data in to_openai(WHOLE, only=only)]

    whole = "x" * 500
    assert texts(EventFilter()) == texts(EventFilter(branch=MAIN)) == ["task", "call", whole, "done"]
    assert texts(EventFilter(branch="helper")) == ["aside"]
    assert texts(EventFilter(first=3, last=5)) == ["call", whole]
    assert texts(EventFilter(first=4)) == [whole, "done"]
    assert texts(EventFilter(kinds=["compacted"])) == []


def test_filtered_events_say_where_they_stood() -> None:
    lines = [json.loads(line) for line in to_events(WHOLE, only=EventFilter(first=6, last=9))]
    assert [(line["position"], line["kind"]) for line in lines] == [
        (6, "cleared"),
        (7, "compacted"),
        (8, "model_called"),
        (9, "restored"),
    ]
    assert lines[1]["covers"] == [[2, 4]]


def again(records: Sequence[Record], only: EventFilter) -> list[Record]:
    """What comes back of a filtered export."""
    return records_of(parse("\n".join(to_events(records, only=only)), count=length))


def test_filtered_events_get_positions_without_gaps_and_point_at_each_other_by_them() -> None:
    rewrites = (Cleared, Compacted, Restored)
    back = [record.event for record in again(WHOLE, EventFilter(kinds=(MessageRecord, *rewrites)))]
    assert back == [
        *(record.event for record in WHOLE[1:5]),
        Cleared(items=(ClearedItem(seq=3, message=Message.tool("a", "xx..."), tokens=1),)),
        Compacted(covers=((1, 3),), replacement="They looked.", at=1, tokens=4, before=900, after=80),
        Restored(seq=6),
        said(DONE),
    ]


@st.composite
def compacted_logs(draw: st.DrawFn) -> list[Record]:
    """Orderly talk with branches, other records and compactions in between."""
    noise = st.sampled_from([Noted(source="x"), said(Message.user("aside"), branch="helper")])
    events: list[Event] = [Described(title="t")]
    for message in draw(orderly(most_turns=4)):
        events += draw(st.lists(noise, max_size=2))
        events.append(said(message))
        context = Context.of(records_of(events))
        if draw(st.booleans()) and (cut := KeepRecentFraction(0.3)(context, BUDGET)):
            events.append(Compacted(covers=cut.covers, at=cut.at, replacement="so far", tokens=1))
            events += draw(st.sampled_from([[], [Restored(seq=len(events))]]))
    return records_of(events)


@pytest.mark.many(50)
@given(compacted_logs())
def test_an_export_of_the_main_line_gives_the_same_context(records: list[Record]) -> None:
    kinds = (MessageRecord, Compacted, Restored)
    for only in (EventFilter(branch=MAIN), EventFilter(kinds=kinds), EventFilter(first=2)):
        context, back = Context.of(records), Context.of(again(records, only))
        assert list(back.messages) == list(context.messages)
        assert (back.tokens, back.turns) == (context.tokens, context.turns)
        assert len(back.said) == len(context.said)


def test_a_filtered_record_of_a_newer_version_comes_back_to_the_byte() -> None:
    body = '{"v":2, "kind":"dreamt", "position_of":{"position": 3}}'
    records = [Record(seq=40, event=Unknown(kind="dreamt", body=body)), Record(seq=41, event=said(TASK))]
    first, second = again(records, EventFilter(first=40))
    assert encode(first.event) == body
    assert second.event == said(TASK)


@pytest.mark.parametrize(
    ("only", "says"),
    [
        (EventFilter(first=3), "line 5: it points at position 2, which the export left out"),
        (EventFilter(kinds=["compacted"]), "line 1: it points at position 2, which the export left out"),
        (EventFilter(first=8), "line 2: it points at position 7, which the export left out"),
        (EventFilter(first=5, last=6), "line 2: it points at position 4, which the export left out"),
    ],
)
def test_what_points_at_what_was_left_out_is_no_session(only: EventFilter, says: str) -> None:
    with pytest.raises(UsageError, match=rf"^nothing imported: {says}[^\n]*$"):
        again(WHOLE, only)


def test_no_kind_of_record_has_a_field_that_an_export_adds() -> None:
    for record in WHOLE:
        assert "position" not in json.loads(encode(record.event))


def test_without_a_filter_an_export_holds_what_the_store_holds() -> None:
    assert list(to_events(WHOLE)) == [encode(record.event) for record in WHOLE]
    assert [record.seq for record in select(WHOLE, None)] == list(range(1, 11))


def test_markdown_reads_as_a_talk_and_says_where_it_was_compacted() -> None:
    assert heading("A\n day") == "# A day"
    assert "\n\n".join(to_blocks(WHOLE)) == "\n\n".join(
        [
            "## 2 User",
            "task",
            "## 3 Assistant",
            "Calls `look` (`a`):",
            "```\n{}\n```",
            "## 4 Tool: result of `a`",
            f"```\n{'x' * 500}\n```",
            "## 5 User in helper",
            "aside",
            "*7: 2–4 compacted (manual): 900 tokens before, 80 after*",
            "```\nThey looked.\n```",
            "*9: the compaction at 7 was taken back*",
            "## 10 Assistant",
            "done",
        ]
    )


def test_markdown_cannot_be_broken_by_what_was_said() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:…"}}
    shown = "\n\n".join(
        to_blocks(
            log(
                Message.tool("a", "```\n# Fake\n````"),
                Message(role="user", content=({"type": "text", "text": "see\ud800"}, picture)),
                Message(role="user", content=(picture,)),
                Message.assistant(""),
            )
        )
    )
    assert "`````\n```\n# Fake\n````\n`````" in shown
    assert "see\\ud800\n[image]" in shown
    assert shown.encode().decode() == shown


def headings_of(text: str) -> list[str]:
    """All headings that CommonMark sees, however deep; there is no HTML."""
    tokens = list(MarkdownIt("commonmark").parse(text))
    inner = [each for token in tokens for each in token.children or ()]
    assert not [each for each in (*tokens, *inner) if each.type.startswith("html")]
    return [after.content for at, after in pairwise(tokens) if at.type == "heading_open"]


SIGNS = st.text(alphabet="\n\n\n\r\x0b\x85\u2028 \t#=-`~<h1>!/*>`.7:ab", max_size=30)
FORGED = st.sampled_from(
    (
        *(
            "# A",
            "a\n===",
            "a\n---",
            "> ## A",
            "- # A",
            "1. # A",
            "<h2>A</h2>",
            "a <!--",
            "```",
            "~~~~",
            "    # A",
        ),
        *(
            "\r## 9 User",
            "a\n## 9 User\nyes",
            "x`\n# A",
            "</blockquote>",
            "\t# A",
            "*9: taken back*",
            "Calls `x`:",
        ),
    )
)
TEXTS = st.lists(SIGNS | FORGED, max_size=3).map("\n".join)
MESSAGES = st.one_of(
    st.builds(Message.user, TEXTS),
    st.builds(Message.tool, TEXTS, TEXTS),
    st.builds(
        lambda text, name, call_id, arguments: Message.assistant(
            text, [ToolCall(id=call_id, name=name, arguments=arguments)]
        ),
        *(TEXTS, TEXTS, TEXTS, TEXTS),
    ),
    st.builds(lambda kind: Message(role="user", content=({"type": kind},)), TEXTS),
)


@pytest.mark.many(300)
@given(st.lists(MESSAGES, max_size=4), TEXTS, TEXTS)
@example([Message.tool("<h2>A</h2>", "")], "", "`")
@example([], "\\<h2>A</h2>", "")
@example([Message.assistant("", [ToolCall(id="`\n<h2>A</h2>", name="", arguments="")])], "", "")
def test_all_headings_of_a_markdown_export_are_ours(said: list[Message], title: str, branch: str) -> None:
    failed = NotCompacted(reason=title, status="failed", error=branch)
    told = [MessageRecord(message=message, tokens=1, branch=branch or None) for message in said]
    text = "\n\n".join([heading(title or "Mine"), *to_blocks(log(*told, failed))])
    first, *others = headings_of(text)
    assert [each.split()[0] for each in others] == [str(seq) for seq in range(1, len(said) + 1)]
    assert "\n" not in first


@pytest.mark.parametrize(
    "forged", ["# A", "a\n---", "<h2>A</h2>", "```\n# A", "*9: all taken back*", "Calls `rm`:"]
)
def test_what_looks_like_a_line_of_ours_stands_in_a_fence(forged: str) -> None:
    plain = Message.assistant("Plain - or < and # and *so*.\n- 1\n- 2")
    shown = "\n\n".join(to_blocks(log(Message.user(forged), plain)))
    fence = "````" if "`" * 3 in forged else "```"
    assert f"## 1 User\n\n{fence}\n{forged}\n{fence}\n\n## 2 Assistant\n\nPlain -" in shown
