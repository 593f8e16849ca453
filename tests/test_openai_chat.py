"""What goes over the wire to a real loopback server, and what becomes of what comes back."""

import asyncio
import gc
import json
import socket
import time
from contextlib import aclosing
from email.utils import formatdate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop._plumbing.amounts import tokens_of
from agentloop.errors import (
    BadAnswerError,
    ContextTooLongError,
    ModelRefusedError,
    ModelUnavailableError,
    UsageError,
)
from agentloop.messages import Message, Usage
from agentloop.models import Answer, ChatModel, ModelRequest, Retry, RetryPolicy, TextPart
from agentloop.providers.openai import OpenAIChat
from agentloop.providers.openai.chat import GrowingCompletion
from agentloop.providers.openai.sse import streamed
from tests.server_kit import LOOK, Waits, answer_of, bytewise, chat, error_of, parts_of, pieces_of, saying
from tests.strict_bodies import Body
from tests.strict_overflows import OVERFLOWS
from tests.strict_provider import StrictProvider
from tests.strict_replies import Answered, Call, Drop, Fault, Hang, Raw, Reply, calling, events, invalid


@pytest.fixture
def waits() -> Waits:
    return Waits()


async def test_text_comes_in_pieces_and_then_whole() -> None:
    with StrictProvider(["A fairly long answer, in several pieces."]) as server:
        *texts, answer = await parts_of(chat(server))
    assert isinstance(answer, Answer)
    assert len(texts) > 1
    assert "".join(part.text for part in texts if isinstance(part, TextPart)) == answer.message.text
    assert answer.message == Message.assistant("A fairly long answer, in several pieces.")
    assert answer.finish == "stop"
    assert server.bodies == [
        {
            "model": "strict",
            "stream": True,
            "stream_options": {"include_usage": True},
            "messages": [{"role": "user", "content": "Hello"}],
        }
    ]


async def test_without_streaming_the_text_is_one_part() -> None:
    with StrictProvider(["A fairly long answer, in several pieces."]) as server:
        text, answer = await parts_of(chat(server, stream=False))
    assert text == TextPart(text="A fairly long answer, in several pieces.")
    assert isinstance(answer, Answer)
    assert answer.message.text == "A fairly long answer, in several pieces."
    assert server.bodies == [
        {"model": "strict", "stream": False, "messages": [{"role": "user", "content": "Hello"}]}
    ]


REPLIES = [
    Reply(text="plain"),
    Reply(text="ünïcödé 🙂 " * 5, piece_chars=1),
    Reply(calls=(calling("look", "a", path="ä"), calling("look", "b"))),
    Reply(text="I look.", calls=(Call(name="look", arguments='{"path": "', id="half"),), finish="length"),
    Reply(text="thought", reasoning="First,\n  then 🙂 second."),
    Reply(calls=(calling("look", "c"),), reasoning="why", extra={"signature": "s=="}),
    Reply(text="stop with calls", calls=(calling("look", "d"),), finish="stop"),
    Reply(finish="content_filter"),
]


@pytest.mark.parametrize("reply", REPLIES)
async def test_both_ways_give_the_same_answer(reply: Reply) -> None:
    with StrictProvider([reply, reply], usage="unasked") as server:
        streamed_answer = await answer_of(chat(server))
        whole_answer = await answer_of(chat(server, stream=False))
    assert streamed_answer == whole_answer
    assert streamed_answer.message.to_openai() == reply.message()
    assert streamed_answer.finish == reply.finish_reason


async def test_messages_and_tools_go_out_as_they_are() -> None:
    messages = (
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "ä 🙂"}, {"type": "image_url", "image_url": {}}],
        },
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "hm\n",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{ }"}, "x": [1]}
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "seen"},
    )
    with StrictProvider(["ok"]) as server:
        await answer_of(chat(server), ModelRequest(messages=messages, tools=(LOOK,)))
    assert server.bodies[0]["messages"] == list(messages)
    assert server.bodies[0]["tools"] == [LOOK]
    assert "ä 🙂".encode() in server.requests[0].raw


async def test_reasoning_goes_back_byte_for_byte(stream: bool) -> None:
    reply = Reply(calls=(calling("look"),), reasoning="  a\n\nb 🙂", piece_chars=3)
    with StrictProvider([reply, "done"], modes=["V11"]) as server:
        model = chat(server, stream=stream)
        asked = saying("Look")
        message = (await answer_of(model, asked)).message
        result = Message.tool(message.tool_calls[0].id, "seen").to_openai()
        again = ModelRequest(messages=(*asked.messages, message.to_openai(), result), tools=(LOOK,))
        assert (await answer_of(model, again)).message.text == "done"
    assert server.refusals == []


async def test_options_of_a_request(stream: bool) -> None:
    with StrictProvider(["a", "b", "c"]) as server:
        model = chat(
            server,
            stream=stream,
            max_output_tokens="1k",
            temperature=0.5,
            extra_body={"top_k": 3, "messages": []},
        )
        await answer_of(model, saying("x"))
        await answer_of(model, saying("x", max_output_tokens=7))
        await answer_of(chat(server, stream=stream), saying("x"))
    first, second, third = server.bodies
    assert (first["max_tokens"], first["temperature"], first["top_k"]) == (1000, 0.5, 3)
    assert first["messages"] == [{"role": "user", "content": "x"}]
    assert second["max_tokens"] == 7
    assert "max_tokens" not in third
    assert "temperature" not in third


async def test_usage_as_reported(stream: bool) -> None:
    with StrictProvider(lambda _: "word", usage="right") as server:
        usage = (await answer_of(chat(server, stream=stream), saying("x" * 400))).usage
    assert usage == Usage(input_tokens=104, output_tokens=5, cached_tokens=52)


@pytest.mark.parametrize(
    ("report", "usage"),
    [
        ("absent", None),
        ("zeros", Usage()),
        ("output-only", Usage(output_tokens=5)),
        ("double", Usage(input_tokens=208, output_tokens=10, cached_tokens=104)),
    ],
)
async def test_usage_that_cannot_be_trusted(report: str, usage: Usage | None, stream: bool) -> None:
    with StrictProvider(["word"], usage=report) as server:
        assert (await answer_of(chat(server, stream=stream), saying("x" * 400))).usage == usage


async def test_usage_comes_with_any_chunk_and_null_does_not_undo_it() -> None:
    raw = events(
        {"choices": [{"delta": {"content": "a"}}], "usage": {"prompt_tokens": 3, "completion_tokens": 1}},
        {"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": None},
    )
    with StrictProvider([raw]) as server:
        assert (await answer_of(chat(server))).usage == Usage(input_tokens=3, output_tokens=1)


def fragments(*deltas: object, finish: str | None = "tool_calls") -> Raw:
    choices = [{"index": 0, "delta": {"tool_calls": [delta]}} for delta in deltas]
    return events(*({"choices": [choice]} for choice in choices), {"choices": [{"finish_reason": finish}]})


def piece(arguments: object = None, *, name: str | None = None, **fields: object) -> dict[str, object]:
    function = {"name": name} if name else {}
    return fields | {"function": function | ({} if arguments is None else {"arguments": arguments})}


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param(
            fragments(piece(name="f", index=0, id="a"), piece('{"x"', index=0), piece(": 1}", index=0)),
            [("a", "f", '{"x": 1}')],
            id="id only first",
        ),
        pytest.param(
            fragments(
                piece(name="f", index=0, id="a"),
                piece(name="g", index=1, id="b"),
                piece("{}", index=1),
                piece('{"x": 1}', index=0),
            ),
            [("a", "f", '{"x": 1}'), ("b", "g", "{}")],
            id="interleaved",
        ),
        pytest.param(
            fragments(piece("{", name="f", id="a"), piece("}"), piece("{}", name="g", id="b")),
            [("a", "f", "{}"), ("b", "g", "{}")],
            id="no index",
        ),
        pytest.param(
            fragments(piece("{}", name="f", index=0, id="a"), piece("{}", name="f", index=0, id="b")),
            [("a", "f", "{}"), ("b", "f", "{}")],
            id="every call at place 0",
        ),
        pytest.param(
            fragments(piece("{}", name="f", index=0), piece('{"x": 1}', name="f", index=0)),
            [("", "f", "{}"), ("", "f", '{"x": 1}')],
            id="whole calls without ids",
        ),
        pytest.param(
            fragments(piece('{"x"', name="f", index=0, id="a"), piece(": 1}", name="f", index=0, id="a")),
            [("a", "f", '{"x": 1}')],
            id="id and name repeated",
        ),
        pytest.param(
            fragments(piece(name="get_", index=0, id="a"), piece("{}", name="file", index=0)),
            [("a", "get_file", "{}")],
            id="name in pieces",
        ),
        pytest.param(fragments(piece({"x": "ä"}, name="f", id="a")), [("a", "f", '{"x": "ä"}')], id="a dict"),
        pytest.param(
            fragments(piece(name="f", index=0, id="a", strict=True), piece("{}", index=0, strict=True)),
            [("a", "f", "{}")],
            id="a further field, twice",
        ),
        pytest.param(fragments(piece(name="f", id=None)), [("", "f", "")], id="no id, no arguments"),
    ],
)
async def test_calls_merged_from_fragments(raw: Raw, expected: list[tuple[str, str, str]]) -> None:
    with StrictProvider([raw]) as server:
        message = (await answer_of(chat(server))).message
    assert [(call.id, call.name, call.arguments) for call in message.tool_calls] == expected


async def test_unknown_fields_of_calls_and_messages_are_kept() -> None:
    raw = events(
        {"choices": [{"delta": {"reasoning_details": [{"type": "text", "text": "I ", "index": 0}]}}]},
        {"choices": [{"delta": {"reasoning_details": [{"type": "text", "text": "see", "index": 0}]}}]},
        {"choices": [{"delta": {"reasoning_details": [{"type": "sealed", "data": "=="}], "refusal": None}}]},
        {"choices": [{"delta": {"tool_calls": [piece("{}", name="f", id="a", extra={"signature": "s"})]}}]},
        {
            "choices": [
                {"delta": {"tool_calls": [{"extra": {"signature": "t"}, "function": {"strict": True}}]}}
            ]
        },
        {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]},
    )
    with StrictProvider([raw]) as server:
        message = (await answer_of(chat(server))).message.to_openai()
    assert message["reasoning_details"] == [
        {"type": "text", "text": "I see", "index": 0},
        {"type": "sealed", "data": "=="},
    ]
    assert message["tool_calls"] == [
        {
            "id": "a",
            "type": "function",
            "function": {"name": "f", "arguments": "{}", "strict": True},
            "extra": {"signature": "st"},
        }
    ]
    assert "refusal" not in message


async def test_content_in_parts_and_only_the_first_of_two_choices() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    raw = events(
        {"choices": [{"index": 0, "delta": {"content": [thinking]}}]},
        {"choices": [{"index": 1, "delta": {"content": "other"}}]},
        {"choices": [{"index": 0, "delta": {"content": [{"type": "text", "text": "yes"}]}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    )
    with StrictProvider([raw]) as server:
        *texts, answer = await parts_of(chat(server))
    assert texts == [TextPart(text="yes")]
    assert isinstance(answer, Answer)
    assert answer.message.content == (thinking, {"type": "text", "text": "yes"})


STREAM = (
    b"\xef\xbb\xbf: a comment\r\n\r\n"
    b'id: 1\r\nevent: message\r\ndata: {"choices": [{"delta": {"content": "a\xc3\xa4"}}]}\r\n\r\n'
    b"retry: 5\n\n"
    b'data: {"choices":\ndata: [{"delta": {"content": "\xf0\x9f\x99\x82"}}]}\n\n'
    b'data:{"choices": [{"delta": {"content": "\\ud83d"}}]}\r\r'
    b'data:{"choices": [{"delta": {"content": "\\ude42!"}, "finish_reason": "stop"}]}\n\n'
    b'data: {"choices": [], "usage": {"prompt_tokens": 1}}\n\n'
    b"data: [DONE]\n\n"
)


@given(st.lists(st.integers(0, len(STREAM))))
@pytest.mark.many(60)
async def test_bytes_may_be_split_anywhere(cuts: list[int]) -> None:
    *texts, answer = [part async for part in streamed(GrowingCompletion(), pieces_of(STREAM, cuts))]
    assert "".join(part.text for part in texts if isinstance(part, TextPart)) == "aä🙂🙂!"
    assert isinstance(answer, Answer)
    assert (answer.message.text, answer.finish, answer.usage) == ("aä🙂🙂!", "stop", Usage(input_tokens=1))


async def test_one_byte_at_a_time_over_the_wire() -> None:
    with StrictProvider([bytewise(STREAM)]) as server:
        assert (await answer_of(chat(server))).message.text == "aä🙂🙂!"


async def test_what_is_no_text_never_poisons_the_answer() -> None:
    lone = {"choices": [{"delta": {"content": "a\ud83d", "reasoning_content": "\udc00"}}]}
    end = b'data: {"choices": [{"delta": {"score": NaN, "content": "\xff"}, "finish_reason": "stop"}]}\n\n'
    with StrictProvider([Raw(pieces=(*events(lone, done=False).pieces, end))]) as server:
        message = (await answer_of(chat(server))).message.to_openai()
    text = json.dumps(message, ensure_ascii=False, allow_nan=False).encode().decode()
    assert json.loads(text) == {
        "role": "assistant",
        "content": "a\ufffd\ufffd",
        "reasoning_content": "\ufffd",
    }


CALLING = Reply(text="I look. ", calls=(calling("look", "a", path="one"), calling("look", "b", path="two")))


@pytest.mark.parametrize("kept", range(13))
async def test_a_dropped_stream_never_gives_half_a_call(kept: int, waits: Waits) -> None:
    with StrictProvider([Drop(reply=CALLING, events=kept), CALLING]) as server:
        parts = await parts_of(chat(server, waits))
    retries = [part for part in parts if isinstance(part, Retry)]
    assert isinstance(parts[-1], Answer)
    assert parts[-1].message.to_openai() == CALLING.message()
    assert len(retries) == len(waits.seconds) == len(server.requests) - 1
    assert bool(retries) == (kept < 7), "the seventh event is the finish reason"


async def test_a_stream_that_ends_in_order_too_soon_is_tried_again(waits: Waits) -> None:
    half = fragments(piece('{"path": "o', name="look", index=0, id="a"), finish=None)
    text = events({"choices": [{"delta": {"content": "and th"}}]}, done=False)
    torn = Raw(pieces=(b'data: {"choices": [{"delta": {"content": "an',))
    with StrictProvider([half, text, torn, "whole"]) as server:
        parts = await parts_of(chat(server, waits))
    assert [part.attempt for part in parts if isinstance(part, Retry)] == [1, 2, 3]
    assert isinstance(parts[-1], Answer)
    assert parts[-1].message.text == "whole"


async def test_done_is_enough_where_no_finish_reason_is_sent() -> None:
    with StrictProvider([fragments(piece("{}", name="look", id="a"), finish=None)]) as server:
        answer = await answer_of(chat(server))
    assert answer.finish is None
    assert answer.message.tool_calls[0].arguments == "{}"


async def test_a_stream_left_open_after_its_end_holds_nobody_up() -> None:
    ended = events({"choices": [{"delta": {"content": "all"}, "finish_reason": "stop"}]})
    with StrictProvider([Raw(pieces=ended.pieces, left_open=True)]) as server:
        assert (await answer_of(chat(server))).message.text == "all"


async def test_a_server_that_does_not_stream_is_understood() -> None:
    body = json.dumps({"choices": [{"message": {"role": "assistant", "content": "whole"}}]}).encode()
    with StrictProvider([Raw(pieces=(body,), content_type="application/json; charset=utf-8")]) as server:
        assert await parts_of(chat(server)) == [
            TextPart(text="whole"),
            Answer(message=Message.assistant("whole")),
        ]


async def test_one_connection_serves_many_requests(stream: bool) -> None:
    with StrictProvider(lambda _: "ok") as server:
        model = chat(server, stream=stream)
        for _ in range(3):
            await answer_of(model)
        assert server.connections == 1
        await model.close()
        await answer_of(model)
        assert server.connections == 2


def test_several_event_loops_one_after_the_other() -> None:
    with StrictProvider(lambda _: "ok") as server:
        model = chat(server)
        for _ in range(2):
            assert asyncio.run(answer_of(model)).message.text == "ok"
    assert server.connections == 2


async def test_two_event_loops_at_once() -> None:
    with StrictProvider(lambda _: "ok") as server:
        model = chat(server)
        here = await answer_of(model)
        there = await asyncio.to_thread(lambda: asyncio.run(answer_of(model)))
        again = await answer_of(model)
    assert here == there == again
    assert server.connections == 2


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
async def test_l17_what_may_pass_is_tried_again(status: int, waits: Waits, stream: bool) -> None:
    fault = Fault(status=status, body={"error": {"message": "busy"}})
    with StrictProvider([fault, fault, "at last"]) as server:
        parts = await parts_of(chat(server, waits, stream=stream))
    retries = [part for part in parts if isinstance(part, Retry)]
    assert [(retry.attempt, retry.wait_seconds) for retry in retries] == list(enumerate(waits.seconds, 1))
    assert all("busy" in retry.error for retry in retries)
    assert 0.5 <= waits.seconds[0] <= 1.0 <= waits.seconds[1] <= 1.5
    assert isinstance(parts[-1], Answer)


async def test_each_retry_is_told_before_its_wait(waits: Waits) -> None:
    with StrictProvider([Fault(status=503), "ok"]) as server:
        async with aclosing(chat(server, waits).stream(saying("x"))) as parts:
            assert isinstance(await anext(parts), Retry)
            assert waits.seconds == []


async def test_at_the_last_try_it_fails(waits: Waits) -> None:
    with StrictProvider(lambda _: Fault(status=503, headers={"retry-after": "2"})) as server:
        error = await error_of(chat(server, waits))
    assert isinstance(error, ModelUnavailableError)
    assert error.retry_after_seconds == 2
    assert waits.seconds == [2, 2, 2, 2]
    assert len(server.requests) == 5


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
    ],
)
async def test_l17_the_server_says_how_long_to_wait(
    headers: dict[str, str], seconds: float, waits: Waits
) -> None:
    with StrictProvider([Fault(status=429, headers=headers), "ok"]) as server:
        await answer_of(chat(server, waits))
    assert waits.seconds == [seconds]


WAITS: list[tuple[Body, float]] = [
    ({"message": "Rate limit reached. Please try again in 38s."}, 38.0),
    ({"message": "Please try again in 0m42.5s. Visit https://example.com/limits"}, 42.5),
    ({"message": "Please retry in 250ms."}, 0.25),
    ({"message": "Too many requests, retry after 20 seconds"}, 20.0),
    ({"message": "Quota exceeded", "details": [{"@type": "x/RetryInfo", "retryDelay": "38s"}]}, 38.0),
]


@pytest.mark.parametrize(("error", "seconds"), WAITS)
@pytest.mark.whole
async def test_l17_a_wait_that_stands_in_the_body_is_heeded(
    error: Body, seconds: float, waits: Waits
) -> None:
    with StrictProvider([Fault(status=429, body={"error": error}), "ok"]) as server:
        await answer_of(chat(server, waits))
    assert waits.seconds == [seconds]


async def test_the_server_names_a_date_to_wait_for(waits: Waits) -> None:
    headers = {"retry-after": formatdate(time.time() + 30, usegmt=True)}
    with StrictProvider([Fault(status=429, headers=headers), "ok"]) as server:
        await answer_of(chat(server, waits))
    assert 20 < waits.seconds[0] <= 30


@pytest.mark.parametrize("text", ["soon", "-3", ""])
async def test_nonsense_in_retry_after_is_passed_over(text: str, waits: Waits) -> None:
    with StrictProvider([Fault(status=429, headers={"retry-after": text}), "ok"]) as server:
        await answer_of(chat(server, waits))
    assert 0.5 <= waits.seconds[0] <= 1.0


async def test_l17_a_wait_longer_than_the_longest_fails_at_once(waits: Waits) -> None:
    with StrictProvider([Fault(status=429, headers={"retry-after": "61"})]) as server:
        error = await error_of(chat(server, waits))
    assert isinstance(error, ModelUnavailableError)
    assert error.retry_after_seconds == 61
    assert waits.seconds == []
    assert len(server.requests) == 1


async def test_nobody_listens(waits: Waits) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
        error = await error_of(OpenAIChat("m", base_url=url, retry=RetryPolicy(sleep=waits)))
    assert isinstance(error, ModelUnavailableError)
    assert url in str(error)
    assert len(waits.seconds) == 4


@pytest.mark.deep
async def test_a_server_that_hangs(stream: bool, waits: Waits) -> None:
    half = Raw(pieces=events({"choices": [{"delta": {"content": "h"}}]}, done=False).pieces, left_open=True)
    with StrictProvider([Hang(), half if stream else Hang()]) as server:
        model = chat(server, stream=stream, timeout_seconds=1, retry=RetryPolicy(attempts=2, sleep=waits))
        error = await error_of(model)
    assert isinstance(error, ModelUnavailableError)
    assert "in time" in str(error)
    assert len(server.requests) == 2


@pytest.mark.parametrize("status", [400, 402, 403, 404, 405, 422])
async def test_l17_a_refusal_is_sent_once(status: int, waits: Waits, stream: bool) -> None:
    with StrictProvider([Fault(status=status, body={"error": {"message": "not like this"}})]) as server:
        error = await error_of(chat(server, waits, stream=stream))
    assert isinstance(error, ModelRefusedError)
    assert error.status == status
    assert "not like this" in str(error)
    assert len(server.requests) == 1


async def test_a_wrong_key_is_named_and_not_shown() -> None:
    with StrictProvider(key="sk-right") as server:
        error = await error_of(chat(server, api_key="sk-wrong-and-secret"))
    assert isinstance(error, ModelRefusedError)
    assert error.status == 401
    assert "OPENAI_API_KEY" in str(error)
    assert "sk-wrong" not in str(error)
    assert "Incorrect API key" in str(error)


async def test_an_unknown_model_or_path_is_named() -> None:
    with StrictProvider(model="other") as server:
        unknown = await error_of(chat(server))
        lost = await error_of(chat(server, base_url=server.url + "/v9"))
    assert "'strict'" in str(unknown)
    assert server.url in str(unknown)
    assert server.url + "/v9" in str(lost)


NAMELESS = {"glm", "http-413", "error-object", "llamacpp-bare"}


@pytest.mark.parametrize("dialect", sorted(OVERFLOWS.keys() - {"bare-500"}))
async def test_overflow_in_every_dialect(dialect: str, waits: Waits, stream: bool) -> None:
    with StrictProvider(window=1_000, overflow=dialect) as server:
        error = await error_of(chat(server, waits, stream=stream), saying("x" * 8_000, max_output_tokens=50))
    assert isinstance(error, ContextTooLongError)
    numbers = (1_000, 2_004 if dialect.startswith("llamacpp") else 2_054)
    assert (error.window, error.tokens) == ((None, None) if dialect in NAMELESS else numbers)
    assert len(server.requests) == 1
    assert waits.seconds == []


SENTENCES = [
    (
        "maximum context length is 128000 tokens. However, your messages resulted in 130012 tokens.",
        128000,
        130012,
    ),
    ("Your input exceeds the context window of this model.", None, None),
    ("However, you requested 5000 tokens: the maximum context length is 4,096 tokens", 4096, 5000),
    (
        "'max_tokens' is too large: 1000. This model's maximum context length is 2048 tokens and your "
        "request has 1500 input tokens (1000 > 2048 - 1500).",
        2048,
        2500,
    ),
    ("The decoder prompt (length 5000) is longer than the maximum model length of 2048.", 2048, 5000),
    ("The input (5000 tokens) is longer than the model's context length (4096 tokens).", 4096, 5000),
    ("request (5000 tokens) exceeds the available context size (2048 tokens), try increasing it", 2048, 5000),
    ("input is too large to process. increase the physical batch size", None, None),
    ("the input token count is 1200000 but model only supports up to 1048576.", 1048576, 1200000),
    ("Prompt contains 40000 tokens, too large for model with 32768 maximum context length", 32768, 40000),
    ("maximum prompt length is 131072 but the request contains 537812 tokens.", 131072, 537812),
    ("Input is too long for requested model.", None, None),
    ("too many tokens: tokens in the prompt cannot exceed 4081 - received 5000.", 4081, 5000),
    ("Range of input length should be [1, 30720]", 30720, None),
    ("Your request exceeded model token limit: 8192 (requested: 9000)", 8192, 9000),
    (
        "`inputs` tokens + `max_new_tokens` must be <= 4097. Given: 5000 `inputs` tokens and 512 more",
        4097,
        5512,
    ),
    ("prompt token count of 128573 exceeds the limit of 128000", 128000, 128573),
    ("keep the first 5000 tokens when context the overflows. context length of only 4096", 4096, 5000),
    ("prompt too long; exceeded max context length by 952 tokens", None, None),
    ("context window exceeds limit (2013)", None, None),
    ("Requested tokens (5000) exceed context window of 4096", 4096, 5000),
    ("Please reduce the length of the messages. Current length is 9000 while limit is 8192", 8192, 9000),
]


@pytest.mark.deep
@pytest.mark.parametrize("status", [200, 400, 500])
async def test_overflow_in_a_bare_sentence(status: int) -> None:
    def bodies(sentence: str) -> list[object]:
        quoted = {"message": "from upstream", "metadata": {"raw": sentence}}
        objects = [{"error": sentence}, {"message": sentence}, {"error": quoted}]
        return objects if status == 200 else [sentence, *objects]

    asked = [(sizes, body) for sentence, *sizes in SENTENCES for body in bodies(sentence)]
    with StrictProvider([Fault(status=status, body=body) for _, body in asked]) as server:
        model = chat(server)
        for sizes, _ in asked:
            error = await error_of(model)
            assert isinstance(error, ContextTooLongError)
            assert [error.window, error.tokens] == sizes


@pytest.mark.parametrize(
    "sentence",
    [
        "Invalid schema for function 'f': In context=('properties', 'x'), array schema missing items.",
        "Unknown parameter: 'context_window'.",
        "Unrecognized request argument supplied: context_length",
        "Unsupported parameter: 'max_context_length' exceeds what is known",
        "max_tokens is too large: 100000. This model supports 16384 completion tokens, whereas you ...",
        "max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens",
        "Invalid 'messages[3].content': string too long. Expected a string with maximum length 10485760",
        "context must be a string",
        "max_tokens must be <= 8192",
        "An assistant message with 'tool_calls' must be followed by tool messages",
        "You exceeded your current quota for tokens, please check your plan",
    ],
)
async def test_what_is_no_overflow(sentence: str) -> None:
    with StrictProvider([Fault(status=400, body={"error": {"message": sentence}})]) as server:
        assert isinstance(await error_of(chat(server)), ModelRefusedError)


@pytest.mark.parametrize("status", [400, 413, 429])
async def test_a_request_larger_than_a_whole_minutes_allowance_is_too_long(status: int, waits: Waits) -> None:
    for said in (
        "Request too large for m in organization o on tokens per min (TPM): Limit 30000, Requested 40000.",
        "Request too large: tokens per min limit is 30,000, requested 40,000",
    ):
        with StrictProvider([invalid(status, said, code="rate_limit_exceeded")]) as server:
            error = await error_of(chat(server, waits))
        assert isinstance(error, ContextTooLongError)
        assert (error.window, error.tokens) == (30_000, 40_000)
        assert waits.seconds == []


@pytest.mark.parametrize("status", [413, 429])
async def test_one_that_is_smaller_waits(status: int, waits: Waits) -> None:
    said = (
        "Rate limit on tokens per min (TPM): Limit 6000, Used 5500, Requested 900. Please try again in 4.2s."
    )
    with StrictProvider([invalid(status, said, code="rate_limit_exceeded"), "ok"]) as server:
        await answer_of(chat(server, waits))
    assert waits.seconds == [4.2]


@pytest.mark.parametrize("status", [400, 401, 403])
async def test_l17_words_of_an_allowance_do_not_make_another_refusal_pass(status: int, waits: Waits) -> None:
    said = "Your limit on tokens per min (TPM): Limit 6000, Requested 900. Upgrade your key."
    with StrictProvider([invalid(status, said)]) as server:
        assert isinstance(await error_of(chat(server, waits)), ModelRefusedError)
    assert waits.seconds == []


@pytest.mark.parametrize("status", [401, 403, 404, 422])
async def test_these_statuses_are_no_overflow(status: int) -> None:
    words = "This model's maximum context length is 5 tokens"
    with StrictProvider([Fault(status=status, body={"error": {"message": words}})]) as server:
        assert isinstance(await error_of(chat(server)), ModelRefusedError)


@pytest.mark.parametrize("body", ["", "Internal Server Error", "<html>500</html>"])
async def test_a_bare_500_to_the_largest_request_so_far_is_an_overflow(body: str, waits: Waits) -> None:
    with StrictProvider(["ok", *[Fault(status=500, body=body)] * 10]) as server:
        model = chat(server, waits)
        await answer_of(model, saying("x" * 40_000))
        smaller = await error_of(model, saying("x" * 30_000))
        larger = await error_of(model, saying("x" * 50_000))
    assert isinstance(smaller, ModelUnavailableError)
    assert isinstance(larger, ContextTooLongError)
    assert (larger.window, larger.tokens) == (None, None)
    assert len(waits.seconds) == 8


async def test_a_server_that_knows_another_name_for_the_limit(stream: bool) -> None:
    with StrictProvider(lambda _: "ok", refuses=["max_tokens"]) as server:
        model = chat(server, stream=stream, max_output_tokens=9)
        await answer_of(model)
        await answer_of(model)
    limits = [(body.get("max_tokens"), body.get("max_completion_tokens")) for body in server.bodies]
    assert limits == [(9, None), (None, 9), (None, 9)]


async def test_a_server_that_knows_no_stream_options() -> None:
    with StrictProvider(lambda _: "ok", refuses=["stream_options", "max_tokens"], usage="unasked") as server:
        model = chat(server, max_output_tokens=9)
        assert (await answer_of(model)).usage is not None
        await answer_of(model)
    assert ["stream_options" in body for body in server.bodies] == [True, True, False, False]


async def test_a_server_that_refuses_either_name_of_the_limit_is_sent_none() -> None:
    with StrictProvider(["Hello."], refuses=["max_tokens", "max_completion_tokens"]) as server:
        assert (await answer_of(chat(server, max_output_tokens=9))).message.text == "Hello."
    assert [name for name in server.bodies[-1] if name.startswith("max_")] == []


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "odd", "code": "odd"}, BadAnswerError),
        ({"message": "busy", "code": 429}, ModelUnavailableError),
        ({"message": "busy", "type": "overloaded_error"}, ModelUnavailableError),
        ({"message": "who are you", "code": 401}, ModelRefusedError),
        ("odd", BadAnswerError),
    ],
)
async def test_an_error_in_place_of_an_answer(error: object, kind: type[Exception], waits: Waits) -> None:
    begun = {"choices": [{"delta": {"content": "a"}}]}
    alone: list[Answered] = [
        Fault(status=200, body={"error": error}),
        events({"error": error}),
        Raw(pieces=(b"event: error\ndata: " + json.dumps({"error": error}).encode() + b"\n\n",)),
    ]
    behind: list[Answered] = [
        events(begun, {"error": error}, done=False),
        events(begun, {"choices": [{"delta": {}, "finish_reason": "error", "error": error}]}),
    ]
    broken = ModelUnavailableError if kind is BadAnswerError else kind
    for shape, wanted in (*((each, kind) for each in alone), *((each, broken) for each in behind)):
        with StrictProvider([shape]) as server:
            model = chat(server, retry=RetryPolicy(attempts=1, sleep=waits))
            assert isinstance(await error_of(model), wanted)


async def test_other_forms_of_an_error_event() -> None:
    flat = events({"object": "error", "message": "the prompt is too long", "code": 400})
    text = Raw(pieces=(b"event: error\ndata: the prompt is too long\n\n",))
    with StrictProvider([flat, text]) as server:
        assert isinstance(await error_of(chat(server)), ContextTooLongError)
        assert isinstance(await error_of(chat(server)), ContextTooLongError)


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b"[]",
        b"null",
        b"<html>Welcome</html>",
        b'{"choices": 5}',
        b"[" * 50_000,
    ],
)
async def test_what_is_no_answer(body: bytes, stream: bool) -> None:
    kind = "text/html" if body.startswith(b"<") else "application/json"
    with StrictProvider([Raw(pieces=(body,) if body else (), content_type=kind)]) as server:
        assert isinstance(await error_of(chat(server, stream=stream)), BadAnswerError)


async def test_bytes_that_are_not_what_the_server_says_they_are() -> None:
    packed = Fault(status=200, body=b"not packed", headers={"content-encoding": "gzip"})
    with StrictProvider([packed]) as server:
        error = await error_of(chat(server))
    assert isinstance(error, BadAnswerError)
    assert server.url in str(error)


async def test_credentials_in_a_base_url_are_not_shown() -> None:
    with StrictProvider([Fault(status=400)]) as server:
        error = await error_of(chat(server, base_url=server.url.replace("//", "//me:secret@")))
    assert "secret" not in str(error)


@pytest.mark.deep
async def test_a_model_let_go_closes_its_connections() -> None:
    with StrictProvider(lambda _: "ok") as server:
        for _ in range(3):
            await answer_of(chat(server))
            gc.collect()
    assert server.connections == 3


@pytest.mark.parametrize("raw", [events({"type": "ping"}), Raw(pieces=(b"data: odd\n\n",))])
async def test_a_stream_that_is_no_answer(raw: Raw) -> None:
    with StrictProvider([raw]) as server:
        assert isinstance(await error_of(chat(server)), BadAnswerError)


async def test_the_environment_names_server_and_key(monkeypatch: pytest.MonkeyPatch) -> None:
    with StrictProvider(lambda _: "ok") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-from-the-environment\n")
        await answer_of(OpenAIChat("m"))
        await answer_of(OpenAIChat("m", api_key="sk-given"))
        monkeypatch.delenv("OPENAI_API_KEY")
        await answer_of(OpenAIChat("m"))
    sent = [request.headers["authorization"] for request in server.requests]
    assert sent == ["Bearer sk-from-the-environment", "Bearer sk-given", "Bearer no-key"]


@pytest.mark.parametrize("variable", ["http_proxy", "ALL_PROXY"])
async def test_this_machine_is_spoken_to_past_the_proxy(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:1")
    with StrictProvider(["ok"]) as server:
        assert (await answer_of(chat(server))).message.text == "ok"


async def test_a_proxys_refusal_is_called_a_proxys(monkeypatch: pytest.MonkeyPatch, waits: Waits) -> None:
    with StrictProvider(lambda _: Fault(status=407)) as server:
        assert "a proxy on the way to http://" in str(await error_of(chat(server)))
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{server.port}")
        retry = RetryPolicy(attempts=1, sleep=waits)
        model = OpenAIChat("m", base_url="https://models.example/v1", api_key="sk-x", retry=retry)
        assert "the proxy on the way to https://models.example/v1 refused it" in str(await error_of(model))
        await model.close()


async def test_neither_server_nor_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(UsageError, match="OPENAI_API_KEY"):
        await parts_of(OpenAIChat("gpt-5-mini"))


@pytest.mark.parametrize("key", ["sk 1", "sk-ä", "sk\n1"])
async def test_a_key_that_cannot_be_sent(key: str) -> None:
    with pytest.raises(UsageError, match="characters that no key has") as caught:
        await parts_of(OpenAIChat("m", base_url="http://127.0.0.1:1/v1", api_key=key))
    assert key not in str(caught.value)


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://x/v1", "http://", "http://[::1", "http://x:99999"])
def test_a_bad_base_url(url: str) -> None:
    with pytest.raises(UsageError, match="bad base URL"):
        OpenAIChat("m", base_url=url)


def test_bad_options() -> None:
    with pytest.raises(UsageError, match="bad model name"):
        OpenAIChat(" ")
    with pytest.raises(UsageError, match="extra_body cannot be sent as JSON"):
        OpenAIChat("m", extra_body={"bad": {1, 2}})
    with pytest.raises(UsageError, match="temperature must be a number of at least 0, not nan"):
        OpenAIChat("m", temperature=float("nan"))
    with pytest.raises(UsageError, match="timeout_seconds"):
        OpenAIChat("m", timeout_seconds=0)
    with pytest.raises(UsageError, match="number of tokens"):
        OpenAIChat("m", window="large")
    with pytest.raises(UsageError, match="at least 1"):
        RetryPolicy(attempts=0)
    with pytest.raises(UsageError, match="jitter_seconds"):
        RetryPolicy(jitter_seconds=-1)


def test_what_a_model_says_of_itself() -> None:
    model: ChatModel = OpenAIChat("m", base_url="http://x/v1", api_key="sk-secret", window="128k")
    assert (model.name, model.window, model.max_output_tokens) == ("m", 128_000, None)
    assert repr(model) == "OpenAIChat('m', base_url='http://x/v1', window=128000)"


@pytest.mark.parametrize(
    ("size", "tokens"),
    [
        (5, 5),
        ("5", 5),
        ("8k", 8_000),
        (" 128K ", 128_000),
        ("1m", 1_000_000),
        ("1.5k", 1_500),
        ("32,768", 32_768),
    ],
)
def test_sizes(size: int | str, tokens: int) -> None:
    assert tokens_of(size) == tokens


@pytest.mark.parametrize("size", ["", "k", "0", 0, -1, "-5", "8kb", "1.0001k", "٨k", True, None, 1.5])
def test_bad_sizes(size: Any) -> None:
    with pytest.raises(UsageError, match="no number of tokens"):
        tokens_of(size)


async def test_l16_leaving_early_leaves_no_task() -> None:
    begun = events({"choices": [{"delta": {"content": "a"}}]}, done=False)
    tasks = asyncio.all_tasks()
    with StrictProvider([Raw(pieces=begun.pieces, left_open=True), Hang()]) as server:
        model = chat(server)
        async with aclosing(model.stream(saying("x"))) as parts:
            assert await anext(parts) == TextPart(text="a")
        assert asyncio.all_tasks() == tasks
        server.hanging.clear()
        asking = asyncio.create_task(parts_of(model))
        assert await asyncio.to_thread(server.hanging.wait, 5)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert asyncio.all_tasks() == tasks
