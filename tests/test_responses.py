"""The body of a request to a strict Responses API, and what becomes of what comes back."""

import json
from dataclasses import replace

import pytest

from agentloop.codec import decode, encode
from agentloop.errors import UsageError
from agentloop.events import MessageRecord
from agentloop.messages import ToolCall
from agentloop.models import Answer, ModelRequest
from agentloop.providers.openai import OpenAIChat, OpenAIResponses
from tests.responses_kit import OUTPUTS, following, responses, results_for, whole_of
from tests.server_kit import LOOK, answer_of, parts_of, saying, shown_in
from tests.strict_bodies import Body
from tests.strict_provider import StrictProvider
from tests.strict_responses import Output


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
        added = MessageRecord(message=parts[-1].message, tokens=1)
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
