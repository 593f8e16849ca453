"""Requests are valid for strict providers, whatever the log holds."""

import json

from hypothesis import given
from hypothesis import strategies as st

from agentloop.events import Compacted, Record
from agentloop.messages import Message, ToolCall
from agentloop.prompts import INTERRUPTED
from agentloop.strategies import KeepRecentFraction
from agentloop.wire import arranged, wire_messages
from tests.kit import BUDGET, context_of, histories, orderly
from tests.strict_rules import violations

CALL = ToolCall(id="1", name="read", arguments="{}")
OTHER = ToolCall(id="2", name="read", arguments="{}")


def sent(messages: list[Message], instructions: str | None = "Be brief.") -> list[dict[str, object]]:
    """The messages of the request as a server would read them."""
    return list(json.loads(json.dumps(wire_messages(messages, instructions=instructions))))


@given(st.one_of(histories, orderly()))
def test_l2_any_history_makes_a_valid_request(messages: list[Message]) -> None:
    request = {"model": "m", "messages": sent([*messages, Message.user("go on")])}
    assert violations(request) == []


@given(orderly(), st.sampled_from([0.0, 0.1, 0.3, 0.6]), st.integers(1, 4))
def test_l2_any_cut_makes_a_valid_request(messages: list[Message], keep: float, times: int) -> None:
    context = context_of(messages)
    for _ in range(times):
        cut = KeepRecentFraction(keep)(context, BUDGET)
        if cut is None:
            break
        event = Compacted(covers=cut.covers, at=cut.at, replacement="what was said", tokens=9)
        context = context.add(Record(seq=context.length + 1, event=event))
        assert violations({"messages": sent(list(context.messages))}, modes=["V8"]) == []


@given(histories)
def test_the_same_log_gives_the_same_bytes(messages: list[Message]) -> None:
    assert json.dumps(wire_messages(messages)) == json.dumps(wire_messages(list(messages)))


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


def test_broken_arguments_are_sent_as_an_object_that_shows_them() -> None:
    log = [
        Message.assistant("", [ToolCall(id="1", name="read", arguments='{"path": "a')]),
        Message.tool("1", "x"),
    ]
    request = sent(log, None)
    call = request[0]["tool_calls"][0]["function"]  # type: ignore[index]
    assert json.loads(call["arguments"]) == {"unreadable_arguments": '{"path": "a'}


def test_a_system_message_of_an_imported_log_stands_first_unless_there_are_instructions() -> None:
    log = [Message(role="system", content="old"), Message.user("hi")]
    assert [(m["role"], m["content"]) for m in sent(log, None)] == [("system", "old"), ("user", "hi")]
    with_instructions = sent(log, "new")
    assert [m["role"] for m in with_instructions] == ["system", "user", "user"]
    assert "old" in str(with_instructions[1]["content"])


def test_provider_fields_of_an_assistant_message_go_back_as_they_came() -> None:
    data = {"role": "assistant", "content": "x", "reasoning_content": "because", "vendor": {"a": [1]}}
    assert sent([Message.from_openai(data)], None) == [data]


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
    log = [Message.from_openai(data), Message.tool("\ud801", "two"), Message.tool("\ud800", "one")]
    request = sent(log, None)
    assert violations({"messages": request}) == []
    assert [message["content"] for message in request[1:]] == ["one", "two"]
