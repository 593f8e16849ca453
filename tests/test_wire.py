"""Requests are valid for strict providers, whatever the log holds."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop.bounds import MOST_NESTED
from agentloop.compaction import Compaction
from agentloop.context import (
    ACKNOWLEDGED,
    TOLD_TO_GO_ON,
    Context,
    answers,
    count_message,
    count_request,
    counter_for,
    estimate_tokens,
)
from agentloop.context.request import alternating, arranged, wire_messages, wire_tools
from agentloop.context.wire import MOST_UNREADABLE_CHARS
from agentloop.errors import AgentLoopError, ModelUnavailableError, UsageError
from agentloop.events import Compacted, MessageRecord, Record, Restored
from agentloop.messages import Message, ToolCall
from agentloop.models import Answer, ModelRequest
from agentloop.prompts import (
    ACKNOWLEDGEMENT,
    ACKNOWLEDGEMENT_TOKENS,
    GO_ON,
    GO_ON_TOKENS,
    INTERRUPTED,
    INTERRUPTED_TOKENS,
)
from agentloop.providers.openai import OpenAIChat
from agentloop.run import Agent
from agentloop.runner import Runner
from agentloop.sessions.export import to_events, to_openai
from agentloop.sessions.importing import parse
from agentloop.stores import InMemoryStore
from agentloop.strategies import KeepRecentFraction
from agentloop.testing import ScriptedModel, calls
from tests.cli_kit import agentloop
from tests.kit import BUDGET, added, body_of, context_of, histories, orderly, records_of, until
from tests.strict_provider import StrictProvider
from tests.strict_replies import Call, Reply
from tests.strict_rules import violations

CALL = ToolCall(id="1", name="read", arguments="{}")
OTHER = ToolCall(id="2", name="read", arguments="{}")
MODES = ("V8", "V9", "content-never-null")


def sent(messages: Sequence[Message], instructions: str | None = "Be brief.") -> list[dict[str, Any]]:
    """The messages of the request as a server would read them."""
    return list(json.loads(json.dumps(wire_messages(messages, instructions=instructions))))


def faults(messages: Sequence[Message], instructions: str | None = "Be brief.") -> list[str]:
    """What any strict provider would refuse in the request of an agent without tools."""
    body = sent(messages, instructions)
    return violations({"messages": body, "tools": list(wire_tools((), body))}, modes=MODES)


@given(st.one_of(histories, orderly()), st.sampled_from([None, "Be brief."]))
def test_l2_any_history_makes_a_valid_request(messages: list[Message], instructions: str | None) -> None:
    assert faults(messages, instructions) == []
    assert faults([*messages, Message.user("go on")], instructions) == []


@given(
    st.one_of(histories, orderly()),
    st.sampled_from([0.0, 0.1, 0.3, 0.6]),
    st.integers(1, 4),
    st.sampled_from([None, "Be brief."]),
)
def test_l2_any_cut_makes_a_valid_request(
    messages: list[Message], keep: float, times: int, instructions: str | None
) -> None:
    context = context_of(messages)
    for _ in range(times):
        cut = KeepRecentFraction(keep)(context, BUDGET)
        if cut is None:
            break
        event = Compacted(covers=cut.covers, at=cut.at, replacement="what was said", tokens=9)
        context = context.add(Record(seq=context.length + 1, event=event))
        assert faults(list(context.messages), instructions) == []


@given(histories)
def test_the_same_log_gives_the_same_bytes(messages: list[Message]) -> None:
    assert json.dumps(wire_messages(messages)) == json.dumps(wire_messages(list(messages)))


def exchange(number: int) -> list[Message]:
    """A call and its result."""
    call = ToolCall(id=f"call_{number % 3}", name="read")
    return [Message.assistant(None, [call]), Message.tool(call.id, "seen")]


moments = st.sampled_from(["prompt", "answer", "blank", "exchange", "system", "critic"])


@given(st.lists(moments, max_size=12), st.sampled_from([None, "Be brief."]))
def test_l12_each_request_begins_with_the_bytes_of_the_one_before(
    life: list[str], instructions: str | None
) -> None:
    log = [Message.user("go")]
    before = json.dumps(sent(log, instructions))
    for number, moment in enumerate(life):
        log += {
            "prompt": [Message.user(f"and {number}")],
            "answer": [Message.assistant(f"so {number}")],
            "blank": [Message.assistant(" ")],
            "exchange": exchange(number),
            "system": [Message(role="system", content="x")],
            "critic": [Message(role="critic", content="x")],
        }[moment]
        now = json.dumps(sent(log, instructions))
        assert now.startswith(before[:-1])
        before = now


def test_late_and_shuffled_results_move_to_their_calls_in_call_order() -> None:
    log = [
        Message.assistant("", [CALL, OTHER]),
        Message.tool("2", "b"),
        Message.user("hm"),
        Message.tool("1", "a"),
    ]
    assert [message.text for message in arranged(log)] == ["", "a", "b", "hm"]


def test_a_missing_result_is_answered_as_interrupted() -> None:
    log = [Message.assistant("", [CALL, OTHER]), Message.tool("1", "a"), Message.user("hm")]
    assert [message.text for message in arranged(log)] == ["", "a", INTERRUPTED, "hm"]


def test_repeated_and_orphaned_results_and_empty_answers_are_left_out() -> None:
    log = [
        Message.tool("9", "orphan"),
        Message.user("go"),
        Message.assistant("  "),
        Message.assistant("", [CALL]),
        Message.tool("1", "first"),
        Message.tool("1", "again"),
    ]
    assert [message.text for message in arranged(log)] == ["go", "", "first"]


def test_ids_used_again_are_made_unique_and_keep_their_own_results() -> None:
    log = [
        Message.assistant("", [CALL, CALL]),
        Message.tool("1", "a"),
        Message.tool("1", "b"),
        Message.assistant("", [CALL]),
        Message.tool("1", "c"),
    ]
    made = list(arranged(log))
    asked = [call.id for message in made for call in message.tool_calls]
    answered = [(message.tool_call_id, message.text) for message in made if message.role == "tool"]
    assert len(set(asked)) == 3
    assert answered == list(zip(asked, ["a", "b", "c"], strict=True))


def asks(*ids: str) -> Message:
    """Calls by these ids."""
    return Message.assistant(None, [ToolCall(id=call_id, name="look") for call_id in ids])


def shown(messages: Sequence[Message]) -> list[str]:
    """What is sent without instructions: `u:` a user, `a:` an assistant, `?` calls, `=` a result."""
    short: list[str] = []
    for data in sent(messages, None):
        if data["role"] == "tool":
            short.append(f"{data['tool_call_id']}={data['content']}")
        elif "tool_calls" in data:
            short.append("?" + "+".join(call["id"] for call in data["tool_calls"]))
        else:
            short.append(f"{data['role'][0]}:{data['content']}")
    return short


GO, NEXT, SAID = Message.user("go"), Message.user("next"), Message.assistant("said")
ONE, TWO = Message.tool("1", "one"), Message.tool("2", "two")
EMPTY = Message.assistant(" \n")
ACK, CUT_OFF = f"a:{ACKNOWLEDGEMENT}", INTERRUPTED
LATE_LOG = [
    *(GO, asks("1", "2"), TWO, EMPTY, NEXT, asks("1"), Message.tool("9", "orphan"), asks("3")),
    *(Message.tool("1", "new"), TWO, ONE, Message.tool("1", "spare"), SAID),
]


@pytest.mark.parametrize(
    ("log", "wanted"),
    [
        ([GO, asks("1"), NEXT, ONE], ["u:go", "?1", "1=one", ACK, "u:next"]),
        ([GO, asks("1"), NEXT, SAID, ONE], ["u:go", "?1", "1=one", ACK, "u:next", "a:said"]),
        ([GO, asks("1", "2"), TWO, ONE], ["u:go", "?1+2", "1=one", "2=two"]),
        ([GO, asks("1"), asks("2"), TWO, ONE], ["u:go", "?1", "1=one", "?2", "2=two"]),
        ([GO, asks("1"), NEXT], ["u:go", "?1", f"1={CUT_OFF}", ACK, "u:next"]),
        ([GO, asks("1", "2"), TWO], ["u:go", "?1+2", f"1={CUT_OFF}", "2=two"]),
        ([GO, asks("1"), ONE, ONE, NEXT, ONE], ["u:go", "?1", "1=one", ACK, "u:next"]),
        ([GO, asks("1"), ONE, Message.tool("1", "other")], ["u:go", "?1", "1=one"]),
        ([GO, TWO, SAID], ["u:go", "a:said"]),
        ([GO, ONE, asks("1"), NEXT], ["u:go", "?1", f"1={CUT_OFF}", ACK, "u:next"]),
        ([GO, asks("1"), ONE, asks("1"), ONE], ["u:go", "?1", "1=one", "?1_2", "1_2=one"]),
        (
            [GO, asks("1"), NEXT, asks("1"), Message.tool("1", "new"), ONE],
            ["u:go", "?1", "1=one", ACK, "u:next", "?1_2", "1_2=new"],
        ),
        (
            [GO, asks("1", "1"), Message.tool("1", "x"), Message.tool("1", "y"), ONE],
            ["u:go", "?1+1_2", "1=x", "1_2=y"],
        ),
        (
            [GO, asks("1"), asks("1"), Message.tool("1", "new")],
            ["u:go", "?1", f"1={CUT_OFF}", "?1_2", "1_2=new"],
        ),
        (
            [GO, asks("1"), ONE, asks("1_2", "1"), TWO, ONE],
            [
                *("u:go", "?1", "1=one", "?1_2+1_3", f"1_2={CUT_OFF}", "1_3=one"),
            ],
        ),
        (
            [GO, asks("", ""), Message.tool("", "x"), Message.tool("", "y")],
            [
                *("u:go", "?call_2+call_3", "call_2=x", "call_3=y"),
            ],
        ),
        ([GO, EMPTY, SAID, EMPTY, NEXT], ["u:go", "a:said", "u:next"]),
        (
            LATE_LOG,
            [
                *("u:go", "?1+2", "1=one", "2=two", ACK, "u:next", "?1_2", "1_2=new"),
                *("?3", f"3={CUT_OFF}", "a:said"),
            ],
        ),
    ],
    ids=[
        *("after-the-user", "long-after", "shuffled", "crossed", "missing", "one-missing", "repeated"),
        *("repeated-otherwise", "orphan", "before-its-call", "id-reused", "reused-and-late"),
        *("twice-in-a-batch", "reused-and-missing", "id-taken", "no-ids", "empty", "all-at-once"),
    ],
)
def test_each_repair_gives_exactly_this_and_leaves_the_log_alone(
    log: list[Message], wanted: list[str]
) -> None:
    before = [message.to_openai() for message in log]
    assert shown(log) == wanted
    assert faults(log, None) == []
    assert [message.to_openai() for message in log] == before
    assert context_of(log).filler.tokens == unsaid_length(log)


def unsaid_length(log: Sequence[Message]) -> int:
    """The tokens of what a request of this log adds to it."""
    open_calls = [
        call.id
        for at, places in answers(log).items()
        for call, place in zip(log[at].tool_calls, places, strict=True)
        if place is None
    ]
    made = list(alternating(arranged(log)))
    assert sum(message.text == INTERRUPTED for message in made) == len(open_calls)
    return (
        sum(INTERRUPTED_TOKENS + estimate_tokens(call_id) for call_id in open_calls)
        + ACKNOWLEDGEMENT_TOKENS * sum(message is ACKNOWLEDGED for message in made)
        + GO_ON_TOKENS * sum(message is TOLD_TO_GO_ON for message in made)
    )


@pytest.mark.parametrize(("content", "wanted"), [("said", ["u:go", "a:said"]), ("", ["u:go"])])
def test_a_list_of_no_calls_is_no_list_of_calls(content: str, wanted: list[str]) -> None:
    data = {"role": "assistant", "content": content, "tool_calls": []}
    assert shown([GO, Message.from_openai(data)]) == wanted


def folded(log: Sequence[Message], *covers: tuple[int, int], at: int) -> Context:
    """The log's context once these positions are covered."""
    event = Compacted(covers=covers, at=at, replacement="what was", tokens=9)
    return context_of(log).add(Record(seq=len(log) + 1, event=event))


def test_a_result_whose_call_was_compacted_away_is_not_sent_until_that_is_undone() -> None:
    log = [GO, asks("1"), NEXT, SAID, ONE]
    context = folded(log, (2, 2), at=3)
    assert shown(context.messages) == ["u:go", ACK, "u:what was", ACK, "u:next", "a:said"]
    assert faults(context.messages, None) == []
    undone = context.add(Record(seq=7, event=Restored(seq=6)))
    assert shown(undone.messages) == ["u:go", "?1", "1=one", ACK, "u:next", "a:said"]


def test_an_id_used_again_keeps_its_result_when_its_first_use_is_compacted_away() -> None:
    log = [GO, asks("1"), ONE, SAID, NEXT, asks("1"), Message.tool("1", "new")]
    context = folded(log, (2, 4), at=5)
    assert shown(context.messages) == ["u:go", ACK, "u:what was", ACK, "u:next", "?1", "1=new"]
    late = context.add(Record(seq=9, event=MessageRecord(message=ONE, tokens=3)))
    assert shown(late.messages) == shown(context.messages)


@st.composite
def damaged(draw: st.DrawFn) -> tuple[list[Message], list[Message]]:
    """A log as an import may hold it, and the orderly one that says what it must be sent as."""
    right: list[Message] = []
    wrong: list[tuple[float, Message]] = []
    for at, message in enumerate(draw(orderly(most_turns=4))):
        fate = draw(st.sampled_from(["whole", "late", "missing", "repeated"]))
        if message.role != "tool" or fate == "whole":
            wrong.append((at, message))
        elif fate == "late":
            wrong.append((at + draw(st.integers(1, 40)) + 0.5, message))
        elif fate == "repeated":
            wrong += [(at, message), (at + draw(st.integers(0, 40)) + 0.5, message)]
        else:
            message = Message.tool(message.tool_call_id or "", INTERRUPTED)
        right.append(message)
        if draw(st.booleans()):
            wrong.append((at + 0.25, EMPTY))
    return [message for _, message in sorted(wrong, key=lambda each: each[0])], right


@given(damaged())
def test_l2_a_damaged_log_is_sent_as_the_orderly_one(logs: tuple[list[Message], list[Message]]) -> None:
    wrong, right = logs
    assert sent(wrong) == sent(right)


@given(damaged())
def test_l2_so_is_one_that_came_through_an_export_and_an_import(
    logs: tuple[list[Message], list[Message]],
) -> None:
    wrong, right = logs
    records = records_of([added(message) for message in wrong])
    for text in (json.dumps(to_openai(records)), "\n".join(to_events(records))):
        back = Context.of(records_of(parse(text, count=lambda message: 1)))
        assert sent(list(back.messages)) == sent(right)


@pytest.mark.parametrize("shape", ["messages", "lines", "events"])
async def test_an_imported_log_is_sent_repaired_and_stays_as_it_is(shape: str, tmp_path: Path) -> None:
    texts = {
        "messages": json.dumps([message.to_openai() for message in LATE_LOG]),
        "lines": "\n".join(json.dumps(message.to_openai()) for message in LATE_LOG),
        "events": "\n".join(to_events(records_of([added(message) for message in LATE_LOG]))),
    }
    store = InMemoryStore()
    await store.append("s", parse(texts[shape], count=lambda message: 9), expect=0)
    model = ScriptedModel(["ok"])
    await Runner(Agent(model, tools=[look]), store=store, transcripts=tmp_path).run("more", session_id="s")
    (request,) = model.requests
    assert violations(body_of(request), modes=MODES) == []
    assert list(request.messages) == sent([*LATE_LOG, Message.user("more")], None)
    kept = [record.event for record in await store.read("s")][: len(LATE_LOG)]
    assert [event.message for event in kept if isinstance(event, MessageRecord)] == LATE_LOG


@pytest.mark.deep
def test_l1_the_command_line_imports_a_damaged_log_and_goes_on_with_it(tmp_path: Path) -> None:
    text = json.dumps([message.to_openai() for message in LATE_LOG])
    (tmp_path / "log.json").write_text(text)
    with StrictProvider(["went on"], modes=MODES) as server:
        env = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "none"}
        for call in (
            ("sessions", "import", "log.json", "--session", "s"),
            ("-p", "more", "-m", "m", "--system", "Be brief.", "--session", "s"),
        ):
            done = agentloop(*call, cwd=tmp_path, env=env)
            assert done.status == 0, done.err
        assert server.refusals == []
        (body,) = [request.body for request in server.requests]
    assert body["messages"] == sent([*LATE_LOG, Message.user("more")], "Be brief.")
    exported = json.loads(agentloop("sessions", "export", "s", cwd=tmp_path).out)
    texts = [message.text for message in (*LATE_LOG, Message.user("more"), Message.assistant("went on"))]
    assert sorted(data["content"] or "" for data in exported) == sorted(texts)


def test_user_and_assistant_take_turns_whatever_was_left_out_between() -> None:
    log = [
        Message.assistant("Hello."),
        Message.assistant("Anyone?"),
        Message.user("one"),
        Message.assistant(" "),
        Message.user("two"),
        Message.assistant(None, [CALL]),
        Message.tool("1", "a"),
        Message.user("three"),
    ]
    assert [message["content"] for message in sent(log, None)] == [
        *(GO_ON, "Hello.", GO_ON, "Anyone?", "one", ACKNOWLEDGEMENT, "two"),
        *("", "a", ACKNOWLEDGEMENT, "three"),
    ]


def test_a_log_in_which_nobody_spoke_still_makes_a_request() -> None:
    assert sent([Message.tool("9", "orphan")], None) == [{"role": "user", "content": GO_ON}]


def test_broken_arguments_are_sent_as_an_object_that_shows_them() -> None:
    log = [
        Message.user("go"),
        Message.assistant("", [ToolCall(id="1", name="read", arguments='{"path": "a')]),
        Message.tool("1", "x"),
    ]
    call = sent(log, None)[1]["tool_calls"][0]["function"]
    assert json.loads(call["arguments"]) == {"unreadable_arguments": '{"path": "a'}


def test_long_broken_arguments_show_head_and_tail_in_their_own_script() -> None:
    raw = '{"t": "' + "写一个很长的文件内容" * 900 + "末"
    call = ToolCall(id="1", name="read", arguments=raw)
    said = wire_messages([Message.user("go"), Message.assistant(None, [call])])[1]
    text = said["tool_calls"][0]["function"]["arguments"]
    shown = json.loads(text)["unreadable_arguments"]
    assert (shown[:9], shown[-1]) == (raw[:9], "末")
    assert len(text) < MOST_UNREADABLE_CHARS + 100


@pytest.mark.parametrize(
    ("data", "name", "arguments"),
    [
        ({"id": "1", "function": {"name": "", "arguments": "{}"}}, "unnamed", {}),
        ({"id": "1"}, "unnamed", {}),
        ({"id": "1", "function": {"name": "a.b c", "arguments": ""}}, "a_b_c", {}),
        ({"id": "1", "function": {"name": "n" * 80, "arguments": "{}"}}, "n" * 64, {}),
        ({"id": "1", "function": {"name": "f", "arguments": {"path": "é"}}}, "f", {"path": "é"}),
        ({"id": "1", "type": "custom", "custom": {"name": "f", "input": "x"}}, "f", {"input": "x"}),
    ],
)
def test_a_call_of_any_shape_is_sent_as_one_that_names_a_function(
    data: dict[str, Any], name: str, arguments: dict[str, Any]
) -> None:
    said = Message.from_openai({"role": "assistant", "content": None, "tool_calls": [data]})
    (call,) = sent([Message.user("go"), said])[2]["tool_calls"]
    assert call.keys() == {"id", "type", "function"}
    assert (call["type"], call["function"]["name"]) == ("function", name)
    assert json.loads(call["function"]["arguments"]) == arguments


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"content": {"type": "text", "text": "MARK"}}, "MARK"),
        ({"content": {"t": "MARK"}}, '{"t": "MARK"}'),
        ({"content": ["MARK", {"type": "text", "text": "b"}]}, "MARK\nb"),
        ({"content": 5}, "5"),
        ({"content": None, "refusal": "MARK"}, "MARK"),
        ({"content": [{"type": "refusal", "refusal": "MARK"}]}, "MARK"),
    ],
)
def test_what_an_unusual_shape_says_is_seen_and_given_back_as_it_was(data: dict[str, Any], text: str) -> None:
    data = {"role": "assistant", **data}
    message = Message.from_openai(data)
    assert message.text == text
    assert message.to_openai() == data
    assert faults([message]) == []
    (seen,) = [each["content"] for each in sent([message]) if each["role"] == "assistant"]
    assert seen == text or "MARK" in json.dumps(seen)


def test_ids_that_are_numbers_pair_and_other_fields_never_win_over_typed_ones() -> None:
    call = {"id": 7, "type": "function", "function": {"name": "f", "arguments": "{}"}}
    asked = {"role": "assistant", "content": {"t": 1}, "tool_calls": [call], "name": 5}
    answered = {"role": "tool", "tool_call_id": 7, "content": None, "tool_calls": [call], "name": "a b"}
    request = sent([Message.from_openai(data) for data in ({"role": "user"}, asked, answered)], None)
    assert request[1]["tool_calls"][0]["id"] == request[2]["tool_call_id"] == "7"
    assert request[2] == {"role": "tool", "tool_call_id": "7", "content": "", "name": "a_b"}


def test_calls_of_a_user_are_no_calls() -> None:
    log = [Message(role="user", content="x", tool_calls=(CALL,)), Message.tool("1", "r")]
    assert sent(log, None) == [{"role": "user", "content": "x"}]


def test_roles_that_chat_completions_do_not_know_are_labelled_user_text() -> None:
    parts: tuple[dict[str, Any], ...] = ({"type": "text", "text": "x"},)
    log = [Message(role="function", name="f", content="42"), Message(role="a\nb", content=parts)]
    request = sent(log, None)
    assert request[0] == {"role": "user", "content": "[function f message of an imported conversation]\n42"}
    assert request[2]["content"][0]["text"] == "[a b message of an imported conversation]\n"
    assert request[2]["content"][1] == parts[0]


def test_deep_data_in_a_message_is_refused_in_one_line() -> None:
    deep: Any = "x"
    for _ in range(MOST_NESTED):
        deep = [deep]
    message = {"role": "user", "content": [], "vendor": deep}
    assert Message.from_openai(message).to_openai() == message
    with pytest.raises(UsageError, match=r"^a message is nested over 100 levels deep: .*$"):
        Message.from_openai({**message, "vendor": [deep]})
    round_about: dict[str, Any] = {}
    round_about |= {"a": round_about, "b": round_about}
    with pytest.raises(UsageError, match="nested"):
        Message.from_openai({"role": "user", "vendor": round_about})


def test_a_system_message_of_an_imported_log_stands_first_unless_there_are_instructions() -> None:
    log = [Message(role="system", content="old"), Message.user("hi")]
    assert [(m["role"], m["content"]) for m in sent(log, None)] == [("system", "old"), ("user", "hi")]
    with_instructions = sent(log, "new")
    assert [m["role"] for m in with_instructions] == ["system", "user", "assistant", "user"]
    assert "old" in str(with_instructions[1]["content"])


def test_provider_fields_of_an_assistant_message_go_back_as_they_came() -> None:
    data = {"role": "assistant", "content": "x", "reasoning_content": "because", "vendor": {"a": [1]}}
    assert sent([Message.user("go"), Message.from_openai(data)], None)[1] == data


def test_what_is_no_utf_8_or_json_anywhere_in_a_message_is_cleaned_and_stays_apart() -> None:
    data = {
        "role": "assistant",
        "content": None,
        "name": "\udc00",
        "tool_calls": [
            {
                "id": "\ud800",
                "type": "function",
                "function": {"name": "a", "arguments": "{}"},
                "x": float("nan"),
            },
            {"id": "\ud801", "type": "function", "function": {"name": "b", "arguments": "{}"}},
        ],
    }
    log = [
        Message.user("go"),
        Message.from_openai(data),
        Message.tool("\ud801", "two"),
        Message.tool("\ud800", "one"),
    ]
    assert faults(log, None) == []
    assert [message["content"] for message in sent(log, None)[2:]] == ["one", "two"]


def look() -> str:
    """Look."""
    return "seen"


async def holding(*messages: Message) -> InMemoryStore:
    """A store whose session s holds these messages."""
    store, counter = InMemoryStore(), counter_for("scripted")
    events = [MessageRecord(message=each, tokens=count_message(each, counter)) for each in messages]
    await store.append("s", events, expect=0)
    return store


Life = Callable[[Path], Awaitable[ScriptedModel]]
"""What happens to a session before its last prompt; the model that was asked."""


async def a_failed_run(folder: Path) -> ScriptedModel:
    def fail(request: ModelRequest) -> str:
        raise ModelUnavailableError("down")

    model = ScriptedModel([fail, "ok"])
    runner = Runner(Agent(model), transcripts=folder)
    with pytest.raises(AgentLoopError):
        await runner.run("a", session_id="s")
    await runner.run("b", session_id="s")
    return model


async def a_cancelled_tool(folder: Path) -> ScriptedModel:
    begun, never = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        """Wait."""
        begun.set()
        await never.wait()

    model = ScriptedModel([calls(("wait", {})), "ok"])
    runner = Runner(Agent(model, tools=[wait]), transcripts=folder)
    task = asyncio.create_task(runner.run("a", session_id="s"))
    await until(begun)
    task.cancel()
    await asyncio.wait({task})
    await runner.run("b", session_id="s")
    return model


async def the_step_limit(folder: Path) -> ScriptedModel:
    model = ScriptedModel([calls(("look", {})), "ok"])
    runner = Runner(Agent(model, tools=[look], max_steps=1), transcripts=folder)
    await runner.run("a", session_id="s")
    await runner.run("b", session_id="s")
    return model


async def a_blank_answer(folder: Path) -> ScriptedModel:
    model = ScriptedModel(["", "ok", "ok"])
    runner = Runner(Agent(model), transcripts=folder)
    await runner.run("a", session_id="s")
    await runner.run("b", session_id="s")
    return model


async def folded_answers(folder: Path) -> ScriptedModel:
    model = ScriptedModel(["word " * 6_000, "", "ok", "ok", "ok"], window=20_000)
    runner = Runner(Agent(model), transcripts=folder)
    await runner.run("a", session_id="s")
    await runner.run("b", session_id="s")
    assert await runner.compact("s")
    await runner.run("c", session_id="s")
    return model


async def an_imported_system_message(folder: Path) -> ScriptedModel:
    store = await holding(Message(role="system", content="old"), Message.user("a"), Message.assistant("b"))
    model = ScriptedModel(["ok"])
    await Runner(Agent(model, instructions="new"), store=store, transcripts=folder).run("b", session_id="s")
    return model


async def calls_and_no_tools(folder: Path) -> ScriptedModel:
    store = await holding(
        Message.user("a"), Message.assistant(None, [CALL]), Message.tool("1", "x"), Message.assistant("b")
    )
    model = ScriptedModel(["ok"])
    await Runner(Agent(model, compaction=None), store=store, transcripts=folder).run("b", session_id="s")
    return model


async def an_orphan_alone(folder: Path) -> ScriptedModel:
    store = await holding(Message.tool("1", "x"))
    model = ScriptedModel(["ok"])
    await Runner(Agent(model), store=store, transcripts=folder).resume("s")
    return model


@pytest.mark.parametrize(
    "life",
    [
        a_failed_run,
        a_cancelled_tool,
        the_step_limit,
        a_blank_answer,
        folded_answers,
        an_imported_system_message,
        calls_and_no_tools,
        an_orphan_alone,
    ],
)
async def test_l1_whatever_happened_to_a_session_its_requests_suit_every_provider(
    life: Life, tmp_path: Path
) -> None:
    model = await life(tmp_path)
    assert model.requests
    for request in model.requests:
        assert violations(body_of(request), modes=MODES) == []


@pytest.mark.parametrize("name", ["", "read file", "x" * 100])
async def test_a_call_by_a_name_that_is_none_poisons_no_later_request(name: str, tmp_path: Path) -> None:
    with StrictProvider([Reply(calls=(Call(name=name),)), "once", "twice"], modes=MODES) as server:
        runner = Runner(Agent(OpenAIChat("m", base_url=server.url), tools=[look]), transcripts=tmp_path)
        said = [(await runner.run(prompt, session_id="s")).output for prompt in ("go", "again")]
        assert server.refusals == []
    assert said == ["once", "twice"]


async def test_l9_results_that_are_missing_are_counted_before_they_are_sent(tmp_path: Path) -> None:
    asked = [Message.assistant(None, [ToolCall(id=f"c{at}", name="look")]) for at in range(300)]
    store = await holding(Message.user("a"), *asked)
    model = ScriptedModel(["ok"], window=8_000)
    await Runner(Agent(model), store=store, transcripts=tmp_path).run("x", session_id="s")
    counter = counter_for(model.name)
    assert all(count_request(request, counter) <= 8_000 for request in model.requests)
    assert [request.purpose for request in model.requests][-1] == "agent"


async def test_l9_broken_arguments_are_counted_as_they_are_sent(tmp_path: Path) -> None:
    raw = '{"t":"' + "写一个很长的文件内容" * 200
    asked = [Message.assistant(None, [ToolCall(id=f"c{at}", name="look", arguments=raw)]) for at in range(3)]
    cut_off = [
        Answer(message=message, finish=finish)
        for message, finish in zip(asked, ("length", "length", "stop"), strict=True)
    ]
    model = ScriptedModel([*cut_off, "ok"], window=16_000, usage=False)
    policy = Compaction(micro=None)
    runner = Runner(Agent(model, tools=[look], compaction=policy), transcripts=tmp_path)
    await runner.run("x", session_id="s")
    *_, last = model.requests
    counted = Context.of(await runner.store.read("s")).tokens
    fixed = count_request(ModelRequest(messages=(), tools=last.tools), counter_for(model.name))
    assert count_request(last, counter_for(model.name)) <= counted + fixed
