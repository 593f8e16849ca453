"""What broken, lying and misconfigured servers send: one typed error, and nothing untrue is learnt."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from agentloop import Agent, ModelError, OpenAIChat, OpenAIResponses, RetryPolicy, Runner, tool
from agentloop.errors import BadAnswerError, ContextOverflowError, ContextTooLongError, ModelRefusedError
from agentloop.providers.openai.fields import tokens_in
from agentloop.stream import Retrying
from tests.server_kit import Waits, error_of

KEY = "sk-SECRETKEY123456"
Body = dict[str, Any]
Script = Callable[[int, Body], bytes]


class RawServer:
    """Answers each POST with the bytes that its script gives; `heads` and `bodies` are what it got."""

    def __init__(self, script: Script, tail: bytes = b"") -> None:
        self.script, self.tail = script, tail
        self.heads: list[str] = []
        self.bodies: list[Body] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.heads.append(head)
            lengths = [line for line in head.lower().splitlines() if line.startswith("content-length:")]
            body = await reader.readexactly(int(lengths[0].partition(":")[2]) if lengths else 0)
            if head.startswith("POST"):
                self.bodies.append(json.loads(body))
            writer.write(self.script(len(self.bodies) - 1, self.bodies[-1] if self.bodies else {}))
            await writer.drain()
            while self.tail:
                writer.write(self.tail)
                await writer.drain()
                await asyncio.sleep(0.02)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def raw(*replies: bytes, script: Script | None = None, tail: bytes = b"") -> AsyncIterator[RawServer]:
    server = RawServer(script or (lambda n, _: replies[min(n, len(replies) - 1)]), tail)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
    try:
        yield server
    finally:
        listening.close()


def response(status: int, body: object, kind: str = "application/json", more: str = "") -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nConnection: close\r\n{more}"
    return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data


def said(message: str, status: int = 400) -> bytes:
    return response(status, {"error": {"message": message}})


def chunk(delta: Body, finish: str | None = None, **fields: Any) -> Body:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish, **fields}]}


def sse(*chunks: Body | bytes, done: bool = True) -> bytes:
    data = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in chunks]
    events = b"".join(b"data: " + each + b"\n\n" for each in data) + (b"data: [DONE]\n\n" if done else b"")
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n" + events


FINE = sse(chunk({"content": "fine"}), chunk({}, "stop"))


def model_of(server: RawServer, kind: type[Any] = OpenAIChat, **options: Any) -> Any:
    fixed: Body = {"base_url": server.url, "api_key": KEY, "retry": RetryPolicy(sleep=Waits())}
    return kind("m", **(fixed | options))


def runner_of(server: RawServer, *tools: Any, kind: type[Any] = OpenAIChat, **options: Any) -> Runner:
    return Runner(Agent(model_of(server, kind, **options), tools=tools), transcripts=None)


@pytest.mark.parametrize(
    ("written", "tokens"),
    [
        ("128K", 128_000),
        ("128 K", 128_000),
        ("1M", 1_000_000),
        ("1e6", 1_000_000),
        ("32.768", 32_768),
        ("200 000", 200_000),
        ("200'000", 200_000),
        ("1.5M", 1_500_000),
        ("131,072", 131_072),
        ("8192", 8_192),
        ("100", None),
        ("1", None),
    ],
)
async def test_a_window_is_read_as_people_write_it_and_none_below_the_least(
    written: str, tokens: int | None
) -> None:
    assert tokens is None or tokens_in(written) == tokens
    async with raw(said(f"maximum context length is {written} tokens, that is too long")) as server:
        error = await error_of(model_of(server))
    assert isinstance(error, ContextTooLongError)
    assert error.window == tokens


@pytest.mark.parametrize(
    "refusal",
    [
        said("prompt too long"),
        said("maximum context length is 128K tokens"),
        said("maximum context length is 1 tokens, however you requested 9 tokens"),
        said("maximum context length is 300 tokens"),
        response(413, b"<html>413 Request Entity Too Large</html>", "text/html"),
    ],
)
async def test_a_false_overflow_of_a_small_request_leaves_later_runs_as_they_were(refusal: bytes) -> None:
    @tool
    def look(place: str) -> str:
        """Look."""
        return place

    async with raw(script=lambda n, _: refusal if n == 0 else FINE) as server:
        long = Agent(model_of(server), instructions="Answer well. " * 100, tools=[look])
        runner = Runner(long, transcripts=None)
        with suppress(ContextOverflowError, ModelError):
            await runner.run("hi")
        results = [await runner.run("hi") for _ in range(2)]
    assert [result.output for result in results] == ["fine", "fine"]


async def test_no_guess_is_kept_of_a_request_smaller_than_one_that_was_answered() -> None:
    async with raw(script=lambda n, _: said("prompt too long") if n == 1 else FINE) as server:
        runner = runner_of(server)
        await runner.run("word " * 6_000)
        with suppress(ContextOverflowError):
            await runner.run("word " * 3_000)
        assert (await runner.run("word " * 6_000)).output == "fine"


def reachable(error: BaseException) -> Iterator[str]:
    """All that hangs on an error and on those behind it, frames aside."""
    waiting: list[object] = [error]
    seen: set[int] = set()
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield repr(each)
        if isinstance(each, dict):
            waiting += [*each.keys(), *each.values()]
        elif isinstance(each, list | tuple | set | frozenset):
            waiting += each
        elif not isinstance(each, str | bytes | int | float | type(None)):
            waiting.append(getattr(each, "__dict__", {}))
        if isinstance(each, BaseException):
            waiting += [each.args, each.__cause__, each.__context__]


LEAKS = [
    said(f"bad key {KEY}"),
    said(f"bad key {KEY}", 500),
    said(f"bad key {KEY.lower()}", 401),
    b"HTTP/1.1 200 OK\r\nBearer " + KEY.encode() + b"\r\n\r\n",
    f"HTTP/1.1 307 T\r\nLocation: {KEY}://h/x\r\nContent-Length: 0\r\n\r\n".encode(),
    response(200, f"{KEY} is no JSON".encode(), "text/html"),
    sse({"error": {"message": KEY, "type": "server_error"}}),
    response(400, b'{"error":"x"}', more=f"X-Echo: {KEY}\r\n"),
    b"",
]


@pytest.mark.parametrize("reply", LEAKS)
async def test_neither_events_nor_what_hangs_on_an_error_has_the_key(reply: bytes) -> None:
    events: list[object] = []
    async with raw(reply) as server:
        with pytest.raises(ModelError) as caught:
            async for event in runner_of(server).stream("hi"):
                events.append(event)
    texts = [*map(repr, events), *reachable(caught.value)]
    assert [text for text in texts if KEY.lower() in text.lower() or "bearer sk" in text.lower()] == []
    assert "httpx2" not in " ".join(texts), "no request and no response hangs on it"


async def test_what_is_told_of_a_retry_has_no_key() -> None:
    async with raw(said(f"busy, {KEY}", 503), FINE) as server:
        events = [event async for event in runner_of(server).stream("hi")]
    assert ["***" in event.error for event in events if isinstance(event, Retrying)] == [True]


BAD = response(400, {"error": {"message": "bad"}})
CHARSETS = ("utf-16", "hex", "rot13", "base64", "undefined", "zlib", "idna")


@pytest.mark.parametrize("charset", CHARSETS)
async def test_a_refusal_keeps_its_status_and_words_in_any_charset(charset: str) -> None:
    reply = response(400, {"error": {"message": "bad"}}, f"application/json; charset={charset}")
    async with raw(reply) as server:
        with pytest.raises(ModelRefusedError, match="bad") as caught:
            await runner_of(server).run("hi")
    assert (caught.value.status, len(server.bodies)) == (400, 1)


DEEP = b'{"choices":[{"delta":{"content":"x","z":' + b"[" * 600 + b"]" * 600 + b'},"finish_reason":"stop"}]}'


@pytest.mark.parametrize(
    "reply",
    [
        sse({"choices": 5}),
        sse({"choices": {"0": 1}}),
        sse(DEEP),
        response(200, {"error": {"code": "4" * 5_000, "message": "x"}}),
        response(200, b'{"error":' * 900 + b"1" + b"}" * 900),
    ],
)
async def test_what_nobody_thought_of_is_a_bad_answer(reply: bytes) -> None:
    async with raw(reply) as server:
        with pytest.raises(BadAnswerError):
            await runner_of(server).run("hi")
    assert len(server.bodies) == 1


@pytest.mark.parametrize("place", ["0", -1, 1, None, False])
async def test_a_lone_choice_is_taken_whatever_its_place(place: object) -> None:
    whole = {"choices": [{"index": place, "message": {"content": "hey"}, "finish_reason": "stop"}]}
    streamed = {"choices": [{"index": place, "delta": {"content": "hey"}, "finish_reason": "stop"}]}
    async with raw(sse(streamed), response(200, whole)) as server:
        runner = runner_of(server)
        assert [(await runner.run("hi")).output for _ in range(2)] == ["hey", "hey"]


async def test_a_part_whose_type_is_no_text_is_kept_beside_the_text() -> None:
    odd = chunk({"content": [{"type": ["x"], "text": "a"}, {"type": "text", "text": "fine"}]}, "stop")
    async with raw(sse(odd)) as server:
        assert (await runner_of(server).run("hi")).output == "a\nfine"


def counting() -> tuple[list[int], Any]:
    ran: list[int] = []

    @tool
    def add(a: int) -> str:
        """Add."""
        ran.append(a)
        return str(a)

    return ran, add


async def test_an_answer_that_was_cut_short_stays_so_and_its_call_does_not_run() -> None:
    ran, add = counting()
    call = {"index": 0, "id": "c", "function": {"name": "add", "arguments": '{"a":1}'}}
    cut = sse(chunk({"tool_calls": [call]}, "length"), chunk({}, "stop"))
    async with raw(cut, FINE) as server:
        result = await runner_of(server, add).run("hi")
    assert (ran, result.output) == ([], "fine")


async def test_an_item_that_is_sent_twice_runs_once() -> None:
    ran, add = counting()
    item = {"type": "function_call", "id": "fc", "call_id": "c", "name": "add", "arguments": '{"a":1}'}
    message = {"type": "message", "content": [{"type": "output_text", "text": "fine"}]}
    first, last = (response(200, {"status": "completed", "output": out}) for out in ([item, item], [message]))
    async with raw(first, last) as server:
        result = await runner_of(server, add, kind=OpenAIResponses).run("hi")
    assert (ran, result.output) == ([1], "fine")


@pytest.mark.parametrize(
    ("message", "limits"),
    [
        ("Your account (tier 2) exceeds its monthly limit of output tokens", [4_000]),
        ("Invalid 'max_tokens': must be greater than thinking.budget_tokens 1024 limit", [4_000]),
        ("max_tokens is too large: at most 2", [4_000]),
        ("max_tokens is too large: 4000. This model supports at most 1024 completion tokens", [4_000, 1_024]),
    ],
)
async def test_only_words_of_the_limit_lower_it(message: str, limits: list[int]) -> None:
    async with raw(said(message), FINE) as server:
        runner = runner_of(server, max_output_tokens=4_000)
        with suppress(ModelRefusedError):
            await runner.run("hi")
    assert [body["max_tokens"] for body in server.bodies] == limits


async def test_a_server_that_knows_neither_name_of_the_limit_is_sent_none() -> None:
    def script(_: int, body: Body) -> bytes:
        named = [name for name in body if name.startswith("max_")]
        return said(f"Unsupported parameter: '{named[0]}'") if named else FINE

    async with raw(script=script) as server:
        assert (await runner_of(server, max_output_tokens=500).run("hi")).output == "fine"
    assert len(server.bodies) == 3


async def test_redirects_in_a_circle_are_followed_a_few_times_and_not_tried_again() -> None:
    circle = b"HTTP/1.1 307 T\r\nLocation: /v1/chat/completions\r\nContent-Length: 0\r\n\r\n"
    async with raw(circle) as server:
        with pytest.raises(BadAnswerError, match="base URL"):
            await runner_of(server).run("hi")
    assert len(server.bodies) == 4


LYING = BAD.replace(b"Content-Length: ", b"Content-Length: 9")
BROKEN_GZIP = response(400, b"no gzip", more="Content-Encoding: gzip\r\n")
MANY = response(400, b'{"detail":[' + b'{"msg":"x","loc":["a"]},' * 30_000 + b"{}]}")


def bomb() -> bytes:
    """50 MB of blanks, in 50 kB."""
    return response(400, gzip.compress(b" " * 50_000_000), more="Content-Encoding: gzip\r\n")


@pytest.mark.parametrize("reply", [LYING, BROKEN_GZIP, bomb, MANY], ids=["lying", "broken", "bomb", "many"])
async def test_a_4xx_is_sent_once_whatever_its_body(reply: bytes | Callable[[], bytes]) -> None:
    async with raw(reply if isinstance(reply, bytes) else reply()) as server:
        with pytest.raises(ModelRefusedError) as caught:
            await runner_of(server).run("hi")
    assert (caught.value.status, len(server.bodies)) == (400, 1)


@pytest.mark.deep
async def test_a_stream_that_is_silent_behind_its_finish_is_done() -> None:
    async with raw(sse(chunk({"content": "fine"}, "stop"), done=False), tail=b": ping\n\n") as server:
        async with asyncio.timeout(120):
            assert (await runner_of(server, timeout_seconds=2, window="8k").run("hi")).output == "fine"


async def test_the_query_of_a_base_url_goes_behind_the_path_and_into_no_text() -> None:
    async with raw(said("no such user secret-of-mine"), FINE) as server:
        url = f"{server.url}?api-version=2025-01-01&api_key=secret-of-mine"
        runner = Runner(Agent(model_of(server, base_url=url)), transcripts=None)
        with pytest.raises(ModelRefusedError) as caught:
            await runner.run("hi")
    posted = [head.split()[1] for head in server.heads if head.startswith("POST")]
    assert posted == ["/v1/chat/completions?api-version=2025-01-01&api_key=secret-of-mine"]
    assert "secret-of-mine" not in " ".join(reachable(caught.value))


async def test_a_server_without_the_responses_api_is_told_of_with_what_helps() -> None:
    async with raw(said("Not Found", 404)) as server:
        with pytest.raises(ModelRefusedError, match="--api chat"):
            await runner_of(server, kind=OpenAIResponses).run("hi")
