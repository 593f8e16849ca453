"""What is sent back to a Responses API of the items that it sent, however they were changed since."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop.context import count_message, counter_for, wire_messages
from agentloop.messages import Message, ToolCall
from agentloop.models import ModelRequest
from agentloop.providers.openai.items import inputs_of
from tests.kit import imported, said
from tests.responses_kit import (
    OUTPUTS,
    call_item,
    message_item,
    results_for,
    sent_back,
    text_part,
    thought,
    whole_of,
)
from tests.strict_bodies import Body
from tests.strict_responses import ResponsesSide


def test_what_the_items_repeat_is_not_counted_again() -> None:
    count = counter_for("m")
    plain = Message.assistant("I look.", whole_of([call_item(1), call_item(2)]).message.tool_calls)
    items = OUTPUTS["reasoning, text and calls"]
    message = whole_of(items).message
    sealed = sum(len(item.get("encrypted_content", "")) for item in items) // 5
    assert 0 < count_message(message, count) - count_message(plain, count) - sealed < 80
    long = whole_of([thought(1, encrypted_content="gAAAA" + "x" * 50_000), call_item(1)]).message
    assert 10_000 < count_message(long, count) < 10_100


def test_a_renamed_and_shortened_call_is_sent_as_it_is_now() -> None:
    message = whole_of([thought(1), call_item(1, '{"text": "long"}')]).message
    call = replace(message.tool_calls[0], id="call_1_2", arguments='{"text": "l…"}')
    items = sent_back(replace(message, tool_calls=(call,)), Message.tool("call_1_2", "seen"))
    assert items[:2] == [thought(1), call_item(1, '{"text": "l…"}', call_id="call_1_2")]


def test_calls_that_are_more_or_fewer_than_the_items_say() -> None:
    message = whole_of([thought(1), call_item(1), call_item(2)]).message
    fewer = replace(message, tool_calls=message.tool_calls[:1])
    assert sent_back(fewer, *results_for(fewer))[:-1] == [thought(1), call_item(1)]
    none = replace(message, tool_calls=(), content="nothing to do")
    assert [item["type"] for item in sent_back(none)] == ["message"]
    more = replace(message, tool_calls=(*message.tool_calls, ToolCall(id="x", name="look")))
    added = {"type": "function_call", "call_id": "x", "name": "look", "arguments": "{}"}
    assert sent_back(more, *results_for(more))[:4] == [thought(1), call_item(1), call_item(2), added]


@pytest.mark.parametrize("name", ["text", "refusal", "two parts", "two messages", "search", "citations"])
def test_a_text_that_changed_stands_once_without_citations(name: str) -> None:
    message = replace(whole_of(OUTPUTS[name]).message, content="[redacted] and longer than it was before")
    items = sent_back(message, *results_for(message))
    parts = [part for item in items if item["type"] == "message" for part in item["content"]]
    changed = {"type": "output_text", "text": "[redacted] and longer than it was before", "annotations": []}
    assert parts == [changed]


def test_a_text_that_is_gone_takes_its_reasoning_along() -> None:
    message = whole_of([thought(1), message_item(1, text_part("I look.")), call_item(1)]).message
    gone = replace(message, content=None)
    bare = {key: value for key, value in call_item(1).items() if key != "id"}
    assert sent_back(gone, *results_for(gone))[:-1] == [bare]


@pytest.mark.parametrize(
    "items",
    [
        pytest.param([thought(1, encrypted_content=None), call_item(1)], id="nothing to send back"),
        pytest.param([thought(1, encrypted_content=""), call_item(1)], id="blank"),
    ],
)
def test_reasoning_that_only_its_server_knew_stays_in_the_log(items: list[Body]) -> None:
    message = whole_of(items).message
    assert message.extra["response_items"][0]["id"] == "rs_1"
    bare = {key: value for key, value in call_item(1).items() if key != "id"}
    assert sent_back(message, *results_for(message))[:-1] == [bare]


def test_reasoning_in_plain_text_goes_back() -> None:
    plain = thought(
        1, encrypted_content=None, content=[{"type": "reasoning_text", "text": "hm"}], status=None
    )
    message = whole_of([plain, call_item(1)]).message
    back = {key: value for key, value in plain.items() if value is not None}
    assert sent_back(message, *results_for(message))[:-1] == [back, call_item(1)]


def test_reasoning_with_nothing_behind_it_never_stands_alone() -> None:
    message = whole_of([message_item(1, text_part("so")), thought(1)]).message
    assert sent_back(message) == [message_item(1, text_part("so"))]
    alone = whole_of([thought(1)], status="incomplete").message
    assert sent_back(alone) == []
    assert alone.extra == {"response_items": [thought(1)]}


def test_ids_that_the_api_refuses_are_left_out() -> None:
    long = "fc_" + "9" * 70
    message = whole_of(
        [
            thought(1, id="think-1"),
            message_item(1, text_part("a"), id="0"),
            call_item(1, id=long),
            call_item(2),
        ]
    ).message
    sent = sent_back(message, *results_for(message))
    assert ["id" in item for item in sent[:4]] == [False, False, False, True]
    again = sent_back(message, *results_for(message), Message.user("and"), message, *results_for(message))
    assert [item["id"] for item in again if "id" in item] == ["fc_2"]


def test_long_call_ids_are_shortened_for_call_and_result_alike() -> None:
    names = ["x" * 70 + end for end in "ab"]
    message = Message.assistant(None, [ToolCall(id=name, name="look") for name in names])
    items = sent_back(message, *results_for(message))
    shown = [item["call_id"] for item in items]
    assert shown[:2] == shown[2:]
    assert len({*shown}) == 2
    assert all(len(name) == 64 for name in shown)


def test_a_call_of_another_kind_stays_in_the_log() -> None:
    clicked = {
        "id": "cu_1",
        "type": "computer_call",
        "call_id": "call_9",
        "action": {},
        "status": "completed",
    }
    message = whole_of([thought(1), clicked, message_item(1, text_part("I click."))]).message
    assert clicked in message.extra["response_items"]
    assert [item["type"] for item in sent_back(message)] == ["message"]


def test_what_users_and_tools_give_in_parts() -> None:
    content = [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "http://x/y"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AA"}},
        {"type": "input_image", "image_url": "u", "detail": "high"},
        {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
    ]
    parts = [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "low"},
        {"type": "input_image", "image_url": "http://x/y", "detail": "auto"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AA"},
        {"type": "input_image", "image_url": "u", "detail": "high"},
        {"type": "input_text", "text": f"[input_audio part, not taken here: {json.dumps(content[-1])}]"},
    ]
    user = Message.from_openai({"role": "user", "content": content, "name": "Ada"})
    call = Message.assistant("I look.", [ToolCall(id="a", name="look")])
    result = Message.from_openai({"role": "tool", "tool_call_id": "a", "content": content})
    items = sent_back(Message.assistant("yes"), user, call, result)
    assert items[1]["content"] == parts
    assert items[-1] == {"type": "function_call_output", "call_id": "a", "output": parts}


def test_messages_of_chat_completions_lose_what_is_not_said() -> None:
    data = {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "I look."}],
        "reasoning_content": "why",
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}, "signature": "s"}
        ],
    }
    items = sent_back(Message.from_openai(data), Message.tool("a", "seen"))
    assert items[:2] == [
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "I look.", "annotations": []}],
        },
        {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"},
    ]


broken_items = st.lists(
    st.sampled_from(
        [item for items in OUTPUTS.values() for item in items]
        + [
            {},
            {"type": 5},
            {"type": "message"},
            {"type": "function_call"},
            {"type": "reasoning"},
            "bare",
            None,
        ]
        + [thought(1, encrypted_content=None), message_item(1), message_item(1, text_part(""))]
    ),
    max_size=6,
)


@given(st.lists(said | imported, max_size=8), broken_items)
@pytest.mark.many(150)
def test_l1_every_history_is_a_valid_request(history: list[Message], items: list[Any]) -> None:
    marked = [
        replace(message, extra={**message.extra, "response_items": items})
        if message.role == "assistant"
        else message
        for message in history
    ]
    request = ModelRequest(messages=wire_messages(marked))
    body = {"input": inputs_of(request.messages, with_reasoning=True), "store": False}
    broken = ResponsesSide().violations(json.loads(json.dumps(body)), window=None, factor=1.0)
    assert broken == []


@given(st.lists(said, min_size=1, max_size=8))
@pytest.mark.many(60)
def test_l12_more_messages_begin_with_the_same_items(history: list[Message]) -> None:
    messages = wire_messages(history)
    items = inputs_of(messages, with_reasoning=True)
    for cut in range(len(messages)):
        before = inputs_of(messages[:cut], with_reasoning=True)
        assert json.dumps(items[: len(before)]) == json.dumps(before)
