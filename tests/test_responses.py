"""What goes over the wire to a strict Responses API, and what becomes of what comes back."""

import itertools
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop.codec import decode, encode
from agentloop.errors import (
    BadAnswerError,
    ContextTooLongError,
    ModelError,
    ModelRefusedError,
    ModelUnavailableError,
    UsageError,
)
from agentloop.events import MessageAdded
from agentloop.messages import Message, ToolCall, Usage
from agentloop.models import Answer, ChatModel, ModelPart, ModelRequest, Retry, TextPart
from agentloop.openai_api.server_events import ServerSaidError
from agentloop.openai_chat import OpenAIChat
from agentloop.openai_responses import OpenAIResponses
from agentloop.openai_responses.inputs import inputs_of
from agentloop.openai_responses.stream import streamed, whole
from agentloop.retry import RetryPolicy
from agentloop.tokens import count_message, counter_for
from agentloop.wire import wire_messages
from tests.kit import imported, said
from tests.strict_provider import StrictProvider
from tests.strict_replies import Answered, Body, Call, Drop, Fault, Raw, Reply, calling, events
from tests.strict_responses import Output, ResponsesSide, failed, response, response_events, sse

LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


class Waits:
    """A clock that passes at once and remembers how long it was asked to wait."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


@pytest.fixture(params=[True, False], ids=["streamed", "whole"])
def stream(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def responses(server: StrictProvider, **options: Any) -> OpenAIResponses:
    fixed: dict[str, Any] = {
        "base_url": server.url,
        "api_key": "sk-test",
        "retry": RetryPolicy(sleep=Waits()),
    }
    return OpenAIResponses("strict", **(fixed | options))


def saying(*texts: str, **fields: Any) -> ModelRequest:
    return ModelRequest(messages=tuple({"role": "user", "content": text} for text in texts), **fields)


def following(*messages: Message, tools: tuple[Any, ...] = (LOOK,)) -> ModelRequest:
    """The request in which these messages are what was said so far."""
    return ModelRequest(messages=wire_messages([Message.user("Hello"), *messages]), tools=tools)


async def parts_of(model: ChatModel, request: ModelRequest | None = None) -> list[ModelPart]:
    return [part async for part in model.stream(request or saying("Hello"))]


async def answer_of(model: ChatModel, request: ModelRequest | None = None) -> Answer:
    last = (await parts_of(model, request))[-1]
    assert isinstance(last, Answer)
    return last


async def error_of(model: ChatModel, request: ModelRequest | None = None) -> Exception:
    with pytest.raises(ModelError) as caught:
        await parts_of(model, request)
    assert "\n" not in str(caught.value)
    return caught.value


def shown_in(parts: list[ModelPart]) -> str:
    return "".join(part.text for part in parts if isinstance(part, TextPart))


def results_for(message: Message) -> list[Message]:
    return [Message.tool(call.id, "seen") for call in message.tool_calls]


def text_part(text: str, **fields: Any) -> Body:
    return {"type": "output_text", "annotations": [], "logprobs": [], "text": text} | fields


def message_item(number: int, *parts: Body, **fields: Any) -> Body:
    item = {"id": f"msg_{number}", "type": "message", "status": "completed", "content": list(parts)}
    return item | {"role": "assistant"} | fields


def call_item(number: int, arguments: str = '{"path": "ä"}', **fields: Any) -> Body:
    item = {"id": f"fc_{number}", "type": "function_call", "status": "completed", "arguments": arguments}
    return item | {"call_id": f"call_{number}", "name": "look"} | fields


def thought(number: int, *summary: str, **fields: Any) -> Body:
    parts = [{"type": "summary_text", "text": text} for text in summary]
    sealed = f"gAAAA{number}=="
    return {"id": f"rs_{number}", "type": "reasoning", "summary": parts, "encrypted_content": sealed} | fields


CITATION = {"type": "url_citation", "start_index": 0, "end_index": 2, "url": "u", "title": "t"}
SEARCH = {
    "id": "ws_1",
    "type": "web_search_call",
    "status": "completed",
    "action": {"type": "search", "query": "ä 🙂", "sources": [{"z": 1, "a": None}]},
}
OUTPUTS: dict[str, list[Body]] = {
    "text": [message_item(1, text_part("plain, ünïcödé 🙂"))],
    "refusal": [message_item(1, {"type": "refusal", "refusal": "I cannot."})],
    "text and refusal": [message_item(1, text_part("Well, "), {"type": "refusal", "refusal": "no."})],
    "citations": [message_item(1, text_part("as said", annotations=[CITATION]), phase="final_answer")],
    "two parts": [message_item(1, text_part("one "), text_part("two", annotations=[CITATION]))],
    "two messages": [
        message_item(1, text_part("First I look."), phase="commentary"),
        call_item(1),
        message_item(2, text_part("\n\nThen I say."), phase="final_answer"),
    ],
    "an empty message": [message_item(1, text_part("")), call_item(1)],
    "calls": [call_item(1), call_item(2, "{}", namespace="files")],
    "reasoning and a call": [thought(1, "First,\n  then 🙂."), call_item(1)],
    "reasoning, text and calls": [
        thought(1),
        message_item(1, text_part("I look.")),
        thought(2, "a", "b"),
        call_item(1),
        call_item(2),
    ],
    "two thoughts in a row": [thought(1, "a"), thought(2, "b"), message_item(1, text_part("so"))],
    "search": [thought(1), SEARCH, thought(2), message_item(1, text_part("found", annotations=[CITATION]))],
    "a custom call": [
        {
            "id": "ctc_1",
            "type": "custom_tool_call",
            "status": "completed",
            "call_id": "call_c",
            "name": "run",
            "input": 'print("ä")',
        }
    ],
    "a hosted function": [
        call_item(1),
        {"type": "function_call_output", "call_id": "call_1", "output": "by the server", "id": "fco_1"},
        message_item(1, text_part("done")),
    ],
}


def ours(items: list[Body]) -> list[Body]:
    """The outputs that we owe for these items."""
    answered = {item["call_id"] for item in items if item["type"].endswith("_output")}
    return [
        {"type": f"{item['type']}_output", "call_id": item["call_id"], "output": "seen"}
        for item in items
        if item["type"] in ("function_call", "custom_tool_call") and item["call_id"] not in answered
    ]


async def test_the_body_of_a_request() -> None:
    messages = (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello ä 🙂"},
    )
    with StrictProvider(["A fairly long answer, in several pieces."]) as server:
        request = ModelRequest(messages=messages, tools=(LOOK,), max_output_tokens=7)
        parts = await parts_of(responses(server), request)
    assert len(parts) > 2
    assert isinstance(parts[-1], Answer)
    assert shown_in(parts) == parts[-1].message.text == "A fairly long answer, in several pieces."
    assert parts[-1].finish == "stop"
    assert server.bodies == [
        {
            "model": "strict",
            "stream": True,
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "instructions": "Be brief.",
            "input": [
                {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_text", "text": "Hello ä 🙂"}],
                }
            ],
            "tools": [
                {
                    "type": "function",
                    "name": "look",
                    "parameters": {"type": "object", "properties": {}},
                    "strict": False,
                }
            ],
            "max_output_tokens": 7,
        }
    ]
    assert "ä 🙂".encode() in server.requests[0].raw


async def test_further_fields_join_those_of_a_request(stream: bool) -> None:
    search = {"type": "web_search"}
    extra = {"reasoning": {"effort": "low"}, "tools": [search], "include": ["message.output_text.logprobs"]}
    strict = {"type": "function", "function": {"name": "see", "strict": True}}
    with StrictProvider(["a", "b"]) as server:
        model = responses(
            server,
            stream=stream,
            max_output_tokens="1k",
            temperature=0.5,
            extra_body=extra | {"store": True, "input": [], "instructions": "mine"},
        )
        await answer_of(model, saying("x", tools=(strict,)))
        await answer_of(responses(server, stream=stream), saying("x"))
    first, second = server.bodies
    assert first["tools"] == [search, {"type": "function", "strict": True, "name": "see"}]
    assert first["include"] == ["reasoning.encrypted_content", "message.output_text.logprobs"]
    assert (first["store"], first["temperature"], first["max_output_tokens"]) == (True, 0.5, 1000)
    assert (first["reasoning"], first["instructions"]) == ({"effort": "low"}, "mine")
    assert len(first["input"]) == 1
    assert second.keys() == {"model", "stream", "store", "include", "input"}


@pytest.mark.parametrize("name", OUTPUTS)
async def test_what_comes_goes_back_without_loss(name: str, stream: bool) -> None:
    items = OUTPUTS[name]
    with StrictProvider([Output(items=tuple(items)), "done"]) as server:
        model = responses(server, stream=stream)
        parts = await parts_of(model)
        assert isinstance(parts[-1], Answer)
        added = MessageAdded(message=parts[-1].message, tokens=1)
        stored = decode(encode(added))
        assert stored == added
        message = stored.message
        await answer_of(model, following(message, *results_for(message)))
    assert server.refusals == []
    assert server.bodies[1]["input"][1:] == items + ours(items)
    assert shown_in(parts) == message.text


@pytest.mark.parametrize("name", OUTPUTS)
async def test_both_ways_give_the_same_answer(name: str) -> None:
    reply = Output(items=tuple(OUTPUTS[name]), piece_chars=1)
    with StrictProvider([reply, reply]) as server:
        assert await answer_of(responses(server)) == await answer_of(responses(server, stream=False))


def test_the_typed_fields_say_it_once() -> None:
    message = whole_of(OUTPUTS["reasoning, text and calls"]).message
    assert message.content == "I look."
    assert message.tool_calls == (
        ToolCall(id="call_1", name="look", arguments='{"path": "ä"}'),
        ToolCall(id="call_2", name="look", arguments='{"path": "ä"}'),
    )
    kept = json.dumps(message.extra)
    assert "I look." not in kept
    assert "call_1" not in kept
    assert "path" not in kept
    assert [item["id"] for item in message.extra["response_items"]] == [
        "rs_1",
        "msg_1",
        "rs_2",
        "fc_1",
        "fc_2",
    ]


def whole_of(items: list[Body], **fields: Any) -> Answer:
    return whole(json.dumps(response({}, Reply(), items, None) | fields).encode())


HELLO = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]}


def sent_back(*messages: Message) -> list[dict[str, Any]]:
    """The items behind the first user message."""
    items = inputs_of(following(*messages).messages, with_reasoning=True)[1:]
    body = {"input": [HELLO, *items], "store": False}
    broken = ResponsesSide().violations(body, window=None, factor=1.0)
    assert broken == []
    return items


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
        {"type": "input_text", "text": json.dumps(content[-1])},
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
@settings(max_examples=150)
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
@settings(max_examples=60)
def test_l12_more_messages_begin_with_the_same_items(history: list[Message]) -> None:
    messages = wire_messages(history)
    items = inputs_of(messages, with_reasoning=True)
    for cut in range(len(messages)):
        before = inputs_of(messages[:cut], with_reasoning=True)
        assert json.dumps(items[: len(before)]) == json.dumps(before)


single = st.one_of(
    st.builds(lambda text, n: message_item(n, text_part(text)), st.text(max_size=9), st.integers(0, 10**6)),
    st.builds(lambda n: thought(n, "t"), st.integers(0, 10**6)),
    st.builds(lambda n: call_item(n), st.integers(0, 10**6)),
    st.builds(lambda n: SEARCH | {"id": f"ws_{n}"}, st.integers(0, 10**6)),
)


@given(st.lists(single, max_size=8, unique_by=lambda item: item["id"]), st.integers(1, 5), st.data())
@settings(max_examples=60)
async def test_any_output_is_the_same_whole_and_in_pieces_split_anywhere(
    items: list[Body], size: int, data: st.DataObject
) -> None:
    told = response_events({}, Reply(piece_chars=size), items, {"completion_tokens": 1})
    body = b"".join(told)
    cuts = data.draw(st.lists(st.integers(0, len(body)), max_size=8))
    parts = [part async for part in streamed(pieces_of(body, cuts))]
    assert parts[-1] == whole_of(items, usage={"output_tokens": 1})
    assert isinstance(parts[-1], Answer)
    assert shown_in(parts) == parts[-1].message.text
    again = [item for item in sent_back(parts[-1].message) if "output" not in item]
    while items and items[-1]["type"] == "reasoning":
        items.pop()
    if again:
        assert again == items


async def pieces_of(body: bytes, cuts: list[int]) -> AsyncIterator[bytes]:
    places = [0, *sorted(cuts), len(body)]
    for start, end in itertools.pairwise(places):
        yield body[start:end]


def told(*happened: Mapping[str, Any]) -> Raw:
    return Raw(pieces=tuple(sse(dict(event)) for event in happened))


def delta(text: str, **fields: Any) -> Body:
    return {
        "type": "response.output_text.delta",
        "item_id": "msg_1",
        "output_index": 0,
        "delta": text,
    } | fields


def ended(status: str = "completed", **fields: Any) -> Body:
    return {"type": f"response.{status}", "response": {"status": status, "output": []} | fields}


def begun(item: Body, at: int = 0) -> Body:
    return {"type": "response.output_item.added", "output_index": at, "item": item}


def finished(item: Body, at: int = 0) -> Body:
    return {"type": "response.output_item.done", "output_index": at, "item": item}


EMPTY = message_item(1)
CALL_TOLD = [
    begun(call_item(1, "")),
    {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "output_index": 0, "delta": '{"pa'},
    {
        "type": "response.function_call_arguments.delta",
        "item_id": "fc_1",
        "output_index": 0,
        "delta": 'th": 1}',
    },
]


@pytest.mark.parametrize(
    ("raw", "items"),
    [
        pytest.param(
            told(begun(EMPTY), delta("a"), delta("b"), ended()),
            [message_item(1, {"type": "output_text", "annotations": [], "text": "ab"})],
            id="deltas alone",
        ),
        pytest.param(
            told(delta("a"), delta("b"), ended()),
            [
                {
                    "type": "message",
                    "id": "msg_1",
                    "role": "assistant",
                    "content": [{"type": "output_text", "annotations": [], "text": "ab"}],
                }
            ],
            id="deltas that nothing announces",
        ),
        pytest.param(told(*CALL_TOLD, ended()), [call_item(1, '{"path": 1}')], id="a call without its end"),
        pytest.param(
            told(*CALL_TOLD, {"type": "response.function_call_arguments.done", "arguments": "{}"}, ended()),
            [call_item(1, "{}")],
            id="the last word on arguments",
        ),
        pytest.param(
            told(*CALL_TOLD, finished(call_item(1, '{"x": 2}')), ended()),
            [call_item(1, '{"x": 2}')],
            id="the last word on an item",
        ),
        pytest.param(
            told(finished(thought(1, "a")), finished(call_item(1), 1), ended()),
            [thought(1, "a"), call_item(1)],
            id="items that come whole",
        ),
        pytest.param(
            told(
                begun(call_item(1, "")), begun(call_item(2, "")),
                finished(call_item(2)), finished(call_item(1)), ended(),
            ),
            [call_item(1), call_item(2)],
            id="all at place 0",
        ),
        pytest.param(
            told(
                begun(call_item(1, "", id="fc_a")), begun(call_item(2, "", id="fc_b"), 1),
                finished(call_item(1, id="fc_c")), finished(call_item(2, id="fc_d"), 1), ended(),
            ),
            [call_item(1, id="fc_c"), call_item(2, id="fc_d")],
            id="ids that change",
        ),
        pytest.param(
            told(*CALL_TOLD, ended(output=[call_item(7)])), [call_item(7)], id="the end's own output wins"
        ),
        pytest.param(
            Raw(pieces=(*told(finished(call_item(1))).pieces, b"data: [DONE]\n\n")),
            [call_item(1)],
            id="only DONE",
        ),
        pytest.param(
            told(
                {"type": "response.queued"},
                {"type": "keepalive"},
                {"type": "response.future_thing.delta", "delta": {"deep": []}},
                finished(call_item(1)),
                {"type": "response.output_item.added", "item": None},
                {"type": "response.output_item.done"},
                {"type": "response.output_text.delta", "item_id": "x", "delta": None},
                ended(output=[call_item(1)]),
            ),
            [call_item(1)],
            id="unknown and odd events",
        ),
    ],
)  # fmt: skip
async def test_streams_of_every_making(raw: Raw, items: list[Body]) -> None:
    with StrictProvider([raw]) as server:
        parts = await parts_of(responses(server, retry=RetryPolicy(attempts=1)))
    assert isinstance(parts[-1], Answer)
    assert parts[-1].message == whole_of(items).message
    assert shown_in(parts) == parts[-1].message.text


async def test_text_that_only_the_end_holds_is_shown() -> None:
    end = ended(output=[message_item(1, text_part("whole text"))])
    with StrictProvider([told(end), told(delta("whole"), end)]) as server:
        model = responses(server)
        for _ in range(2):
            assert shown_in(await parts_of(model)) == "whole text"


HALVES = (
    b"\xef\xbb\xbf: a comment\r\n\r\n"
    b'id: 1\r\nevent: response.output_text.delta\r\ndata: {"delta": "a\xc3\xa4"}\r\n\r\n'
    b"retry: 5\n\n"
    b'event: response.output_text.delta\ndata: {"delta":\ndata: "\xf0\x9f\x99\x82"}\n\n'
    b'data:{"type": "response.output_text.delta", "delta": "\\ud83d"}\r\r'
    b'data:{"type": "response.output_text.delta", "delta": "\\ude42!"}\n\n'
    b'data: {"type": "response.completed", "response": {"usage": {"input_tokens": 1}}}\n\n'
)


@given(st.lists(st.integers(0, len(HALVES))))
@settings(max_examples=60)
async def test_bytes_may_be_split_anywhere(cuts: list[int]) -> None:
    parts = [part async for part in streamed(pieces_of(HALVES, cuts))]
    answer = parts[-1]
    assert isinstance(answer, Answer)
    assert shown_in(parts) == answer.message.text == "aä🙂🙂!"
    assert (answer.finish, answer.usage) == ("stop", Usage(input_tokens=1))


async def test_one_byte_at_a_time_over_the_wire() -> None:
    pieces = tuple(HALVES[at : at + 1] for at in range(len(HALVES)))
    with StrictProvider([Raw(pieces=pieces)]) as server:
        assert (await answer_of(responses(server))).message.text == "aä🙂🙂!"


async def test_what_is_no_text_never_poisons_the_answer() -> None:
    lone = message_item(1, text_part("a\ud83d"), odd="\udc00")
    raw = events(begun(EMPTY), delta("a\ud83d"), finished(lone), ended(output=[lone]), done=False)
    with StrictProvider([raw]) as server:
        parts = await parts_of(responses(server))
    assert isinstance(parts[-1], Answer)
    assert shown_in(parts) == parts[-1].message.text == "a\ufffd"
    encode(MessageAdded(message=parts[-1].message, tokens=1))
    json.dumps(parts[-1].message.to_openai(), ensure_ascii=False).encode()


CALLING = Reply(
    text="I look. ",
    reasoning="why",
    calls=(calling("look", "a", path="one"), calling("look", "b", path="two")),
)


EVENTS_TOLD = len(response_events({}, CALLING, ResponsesSide().output(CALLING), None))


@pytest.mark.parametrize("kept", range(EVENTS_TOLD))
async def test_a_dropped_stream_never_gives_half_a_call(kept: int) -> None:
    with StrictProvider([Drop(reply=CALLING, events=kept), CALLING]) as server:
        parts = await parts_of(responses(server))
    retried = [at for at, part in enumerate(parts) if isinstance(part, Retry)]
    assert isinstance(parts[-1], Answer)
    assert parts[-1].message.to_openai().items() >= {"content": "I look. "}.items()
    assert [call.id for call in parts[-1].message.tool_calls] == ["a", "b"]
    assert len(retried) == 1
    assert shown_in(parts[retried[0] :]) == "I look. "


async def test_a_stream_that_ends_without_its_end_is_tried_again() -> None:
    half = told(*CALL_TOLD)
    unended = told(finished(call_item(1)))
    open_at_done = Raw(pieces=(*half.pieces, b"data: [DONE]\n\n"))
    with StrictProvider([half, unended, open_at_done, "whole"]) as server:
        parts = await parts_of(responses(server))
    assert [part.attempt for part in parts if isinstance(part, Retry)] == [1, 2, 3]
    assert isinstance(parts[-1], Answer)
    assert parts[-1].message.text == "whole"


async def test_a_stream_left_open_after_its_end_holds_nobody_up() -> None:
    raw = told(delta("all"), ended())
    with StrictProvider([Raw(pieces=raw.pieces, left_open=True)]) as server:
        assert (await answer_of(responses(server))).message.text == "all"


@pytest.mark.parametrize(
    ("fields", "finish"),
    [
        ({}, "tool_calls"),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "content_filter"),
        ({"status": "incomplete", "incomplete_details": None}, "length"),
        ({"status": None}, "tool_calls"),
    ],
)
async def test_how_an_answer_ended(fields: Body, finish: str) -> None:
    assert whole_of([call_item(1)], **fields).finish == finish
    kind = "response.incomplete" if fields.get("status") else "response.completed"
    raw = told(finished(call_item(1)), {"type": kind, "response": fields})
    with StrictProvider([raw]) as server:
        assert (await answer_of(responses(server))).finish == finish


async def test_cut_off_replies_come_through(stream: bool) -> None:
    replies = [
        Reply(text="half", calls=(Call(name="look", arguments='{"path": "', id="a"),), finish="length"),
        Reply(finish="content_filter"),
    ]
    with StrictProvider(replies) as server:
        model = responses(server, stream=stream)
        cut = await answer_of(model)
        filtered = await answer_of(model)
    assert (cut.finish, cut.message.tool_calls[0].arguments) == ("length", '{"path": "')
    assert (filtered.finish, filtered.message) == ("content_filter", Message.assistant(""))


@pytest.mark.parametrize("name", ["right", "unasked", "absent", "zeros", "output-only", "double"])
async def test_usage_as_reported(name: str, stream: bool) -> None:
    expected = {
        "absent": None,
        "zeros": Usage(),
        "output-only": Usage(output_tokens=5),
        "double": Usage(input_tokens=208, output_tokens=10, cached_tokens=104),
    }
    with StrictProvider(lambda _: "word", usage=name) as server:
        usage = (await answer_of(responses(server, stream=stream), saying("x" * 400))).usage
    assert usage == expected.get(name, Usage(input_tokens=104, output_tokens=5, cached_tokens=52))


def error_object(code: str | None, message: str, **fields: Any) -> Body:
    return {"code": code, "message": message, **fields}


@pytest.mark.parametrize(
    ("code", "message", "kind"),
    [
        ("rate_limit_exceeded", "Slow down.", ModelUnavailableError),
        ("server_error", "Something broke.", ModelUnavailableError),
        (
            "context_length_exceeded",
            "Your input exceeds the context window of this model.",
            ContextTooLongError,
        ),
        ("invalid_prompt", "Not like this.", BadAnswerError),
        ("image_too_large", "Use a smaller one.", BadAnswerError),
    ],
)
async def test_failures_in_place_of_an_answer(code: str, message: str, kind: type[ModelError]) -> None:
    whole_body = Fault(status=200, body={"object": "response", "status": "failed", "output": []} | {
        "error": error_object(code, message)
    })  # fmt: skip
    shapes: list[Answered] = [
        failed(code, message),
        told(
            delta("half"), {"type": "error", "sequence_number": 3, **error_object(code, message, param=None)}
        ),
        told({"type": "response.error", "error": error_object(code, message)}),
        told({"type": "error", "error": error_object(code, message, type="x")}),
        whole_body,
    ]
    for shape in shapes:
        with StrictProvider(lambda _, shape=shape: shape) as server:
            error = await error_of(responses(server, retry=RetryPolicy(attempts=2, sleep=Waits())))
            assert type(error) is kind
            assert message.rstrip(".") in str(error)
            assert len(server.requests) == (2 if kind is ModelUnavailableError else 1)


async def test_a_failure_with_no_reason_may_pass() -> None:
    gone = {"type": "response.failed", "response": {"status": "failed", "error": None}}
    with StrictProvider(
        [told(gone), Fault(status=200, body={"status": "cancelled", "output": []}), "ok"]
    ) as server:
        parts = await parts_of(responses(server))
    assert [isinstance(part, Retry) for part in parts[:2]] == [True, True]


@pytest.mark.parametrize("name", ["include", "store", "temperature", "max_output_tokens", "reasoning"])
async def test_a_field_that_a_server_does_not_know_is_found_out_once(name: str, stream: bool) -> None:
    options = {"temperature": 0.5, "max_output_tokens": 99, "extra_body": {"reasoning": {"effort": "low"}}}
    with StrictProvider(lambda _: "ok", refuses=[name]) as server:
        model = responses(server, stream=stream, **options)
        for _ in range(2):
            assert (await answer_of(model)).message.text == "ok"
    assert [name in body for body in server.bodies] == [True, False, False]
    assert server.bodies[0].keys() - server.bodies[1].keys() == {name}


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "Encrypted content is not supported with this model.", "param": "include"}},
        {"error": {"message": "Unrecognized request argument supplied: include"}},
        {"error": {"message": "`include` is not allowed here"}},
        {"detail": [{"type": "extra_forbidden", "loc": ["body", "include"], "msg": "not permitted"}]},
    ],
)
async def test_so_it_is_in_other_words(body: Body) -> None:
    with StrictProvider([Fault(status=400, body=body), "ok"]) as server:
        await answer_of(responses(server))
    assert ["include" in body for body in server.bodies] == [True, False]


@pytest.mark.parametrize(
    "message",
    [
        "Invalid 'max_output_tokens': integer below minimum value.",
        "Invalid value: 'huge'. Supported values are: 'low', 'medium', and 'high' for 'reasoning.effort'.",
        "The input must include a user message; others are not supported.",
    ],
)
async def test_l17_what_is_wrong_with_a_value_is_sent_once(message: str) -> None:
    with StrictProvider(lambda _: Fault(status=400, body={"error": {"message": message}})) as server:
        await error_of(responses(server, max_output_tokens=3, extra_body={"reasoning": {"effort": "huge"}}))
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (
            400,
            {"code": "invalid_encrypted_content", "message": "The encrypted content could not be verified."},
        ),
        (
            400,
            {"message": "Item 'rs_1' of type 'reasoning' was provided without its required following item."},
        ),
        (400, {"message": "Item 'fc_1' was provided without its required 'reasoning' item: 'rs_1'."}),
        (404, {"message": "Item with id 'rs_1' not found. Items are not persisted when `store` is false."}),
    ],
)
async def test_reasoning_that_a_server_does_not_take_back_is_left_out(status: int, error: Body) -> None:
    message = whole_of(OUTPUTS["reasoning and a call"]).message
    request = following(message, *results_for(message))
    with StrictProvider([Fault(status=status, body={"error": error}), "ok", "ok"]) as server:
        model = responses(server)
        for _ in range(2):
            assert (await answer_of(model, request)).message.text == "ok"
    kinds = [[item["type"] for item in body["input"]] for body in server.bodies]
    assert kinds[0] == ["message", "reasoning", "function_call", "function_call_output"]
    assert kinds[1] == kinds[2] == ["message", "function_call", "function_call_output"]
    assert "id" not in server.bodies[1]["input"][1]


@pytest.mark.parametrize("status", [400, 403, 404, 422])
async def test_l17_a_refusal_is_sent_once(status: int, stream: bool) -> None:
    with StrictProvider([Fault(status=status, body={"error": {"message": "not like this"}})]) as server:
        error = await error_of(responses(server, stream=stream))
    assert isinstance(error, ModelRefusedError)
    assert error.status == status
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"choices": [{"message": {"role": "assistant", "content": "a chat"}}]},
        {"status": "completed", "output": None},
        {"status": "queued", "output": []},
        {"status": "in_progress", "output": []},
        "<html>no API</html>",
        json.dumps(
            {"status": "completed", "output": [{"type": "x", "deep": json.loads("[" * 200 + "]" * 200)}]}
        ),
    ],
)
async def test_what_is_no_answer(body: object) -> None:
    with StrictProvider(lambda _: Fault(status=200, body=body)) as server:
        assert isinstance(await error_of(responses(server, stream=False)), BadAnswerError)
    foreign = events({"choices": [{"delta": {"content": "a chat"}, "finish_reason": "stop"}]})
    with StrictProvider(lambda _: foreign) as server:
        assert isinstance(await error_of(responses(server)), BadAnswerError)


odd_values = st.sampled_from(
    [None, 0, -3, 1.5, True, "", "odd", [], {}, [1], [[]], {"type": []}, {"a": {"b": 1}}]
)


@st.composite
def damaged(draw: st.DrawFn, value: Any) -> Any:
    """The value, some of what is in it replaced."""
    if draw(st.integers(0, 19)) == 0:
        return draw(odd_values)
    if isinstance(value, dict):
        return {key: draw(damaged(each)) for key, each in value.items()}
    return [draw(damaged(each)) for each in value] if isinstance(value, list) else value


async def told_or_refused(data: bytes) -> Answer | None:
    try:
        answer = [part async for part in streamed(pieces_of(data, []))][-1]
    except (ModelError, ServerSaidError):
        return None
    assert isinstance(answer, Answer)
    return answer


@given(st.sampled_from([*OUTPUTS]), st.data())
@settings(max_examples=60)
async def test_damaged_answers_are_refused_or_can_be_kept_and_sent_again(
    name: str, data: st.DataObject
) -> None:
    usage = {"input_tokens": 1, "input_tokens_details": {"cached_tokens": 1}, "output_tokens": 1}
    body = data.draw(damaged(response({}, Reply(), OUTPUTS[name], None) | {"usage": usage}))
    events_told = [data.draw(damaged(json.loads(piece.partition(b"data: ")[2]))) for piece in
                   response_events({}, Reply(), OUTPUTS[name], None)]  # fmt: skip
    answers = [
        await told_or_refused(
            b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events_told)
        )
    ]
    with suppress(ModelError, ServerSaidError):
        answers.append(whole(json.dumps(body).encode()))
    for answer in answers:
        if answer is None:
            continue
        message = decode(encode(MessageAdded(message=answer.message, tokens=1))).message
        count_message(message, len)
        items = inputs_of(following(message, *results_for(message)).messages, with_reasoning=True)
        broken = ResponsesSide().violations({"input": items, "store": False}, window=None, factor=1.0)
        assert [line for line in broken if line[:2] in ("R1", "R2", "R3", "R5", "R6", "V6")] == []


async def test_one_piece_where_a_stream_was_announced() -> None:
    body = json.dumps(response({}, Reply(), OUTPUTS["reasoning, text and calls"], None), indent=1).encode()
    with StrictProvider(
        [Raw(pieces=(body,)), Raw(pieces=(b'{"error": {"message": "no such thing"}}',))]
    ) as server:
        model = responses(server)
        parts = await parts_of(model)
        assert isinstance(await error_of(model), BadAnswerError)
    assert parts == [TextPart(text="I look."), whole_of(OUTPUTS["reasoning, text and calls"])]


async def test_words_of_a_gateway_in_the_middle_of_an_answer_are_tried_again() -> None:
    broken = Raw(pieces=(*told(begun(EMPTY), delta("ha")).pieces, b"data: upstream went away\n\n"))
    plain = Raw(pieces=(b"event: error\ndata: no such model\n\n",))
    with StrictProvider([broken, "whole", plain]) as server:
        model = responses(server)
        _, retry, *_, answer = await parts_of(model)
        assert "no such model" in str(await error_of(model))
    assert isinstance(retry, Retry)
    assert "upstream went away" in retry.error
    assert isinstance(answer, Answer)
    assert answer.message.text == "whole"


async def test_shapes_of_other_servers() -> None:
    plain = {"type": "message", "role": "assistant", "content": "bare"}
    parts = {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "typed"}, "odd"]}
    objects = call_item(1, {"path": 1})  # type: ignore[arg-type]
    answer = whole_of([plain, parts, objects, "no item"], usage={"prompt_tokens": 3, "completion_tokens": 1})
    assert answer.message.text == "bare\n\ntyped"
    assert answer.message.tool_calls[0].arguments == '{"path": 1}'
    assert answer.usage == Usage(input_tokens=3, output_tokens=1)


async def test_response_items_never_reach_chat_completions() -> None:
    message = whole_of(OUTPUTS["reasoning and a call"]).message
    marked = replace(message, extra={**message.extra, "reasoning_content": "hm"})
    with StrictProvider(["ok"]) as server:
        await answer_of(OpenAIChat("m", base_url=server.url), following(marked, *results_for(marked)))
    sent = server.bodies[0]["messages"][1]
    assert sent.keys() == {"role", "content", "tool_calls", "reasoning_content"}


@pytest.mark.parametrize("extra", [{"include": "all"}, {"tools": {"type": "web_search"}}, {"tools": ["x"]}])
def test_bad_options(extra: Body) -> None:
    with pytest.raises(UsageError, match="extra_body"):
        OpenAIResponses("m", extra_body=extra)


def test_it_says_what_it_is() -> None:
    model = OpenAIResponses("m", base_url="http://localhost:1/v1", api_key="sk-secret", window="128k")
    assert repr(model) == "OpenAIResponses('m', base_url='http://localhost:1/v1', window=128000)"
    assert (model.name, model.window, model.max_output_tokens) == ("m", 128_000, None)
