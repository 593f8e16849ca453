"""Servers that mean harm or are broken: what they send without end is bounded, and nothing is led astray."""

import asyncio
import itertools
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from agentloop import Agent, Limits, OpenAIChat, OpenAIResponses, Runner, tool
from agentloop.bounds import (
    BYTES_A_TOKEN,
    LEAST_ANSWER_BYTES,
    MOST_AT_ONCE,
    MOST_CALLS,
    MOST_CALLS_RUN,
    MOST_NESTED,
    MOST_REDIRECTS,
)
from agentloop.errors import BadAnswerError, ModelUnavailableError
from agentloop.messages import Message, ToolCall
from agentloop.testing import ScriptedModel
from tests.server_kit import answer_of, at_once, error_of
from tests.test_border_breaks import FINE, chunk, raw, response, runner_of, sse

TOKENS = 100
MOST = LEAST_ANSWER_BYTES + TOKENS * BYTES_A_TOKEN
KINDS = [OpenAIChat, OpenAIResponses]
PIECE = 200_000

Pieces = Callable[[], Iterable[bytes]]


class EndlessServer:
    """Answers each request with the pieces of one of these, as long as somebody reads them."""

    def __init__(self, *replies: Pieces) -> None:
        self.replies, self.requests, self.sent_bytes, self.url = replies, 0, 0, ""
        self.has_sent = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            lengths = [line for line in head.splitlines() if line.startswith("content-length:")]
            await reader.readexactly(int(lengths[0].partition(":")[2]) if lengths else 0)
            reply = self.replies[min(self.requests, len(self.replies) - 1)]
            self.requests += 1
            for piece in reply():
                writer.write(piece)
                self.sent_bytes += len(piece)
                self.has_sent.set()
                await writer.drain()
                await asyncio.sleep(0)
        writer.close()


@asynccontextmanager
async def endless(*replies: Pieces) -> AsyncIterator[EndlessServer]:
    server = EndlessServer(*replies)
    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        await server.serve(reader, writer)

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
    try:
        yield server
    finally:
        listening.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


def head(kind: str, status: int = 200, more: str = "") -> bytes:
    return f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nConnection: close\r\n{more}\r\n".encode()


def again(
    begun: bytes, unit: bytes, kind: str = "text/event-stream", status: int = 200, more: str = ""
) -> Pieces:
    """This beginning, and the unit behind it for ever."""
    piece = unit * (PIECE // len(unit))
    return lambda: itertools.chain([head(kind, status, more) + begun], itertools.repeat(piece))


def model_at(url: str, kind: type[OpenAIChat] | type[OpenAIResponses] = OpenAIChat, **options: Any) -> Any:
    fixed: dict[str, Any] = {"base_url": url, "api_key": "sk-test", "retry": at_once()}
    return kind("m", **(fixed | {"max_output_tokens": TOKENS, "window": "32k"} | options))


JSON = "application/json"
SAYS = b'data: {"choices":[{"delta":{"content":"' + b"a" * 1_000 + b'"}}],"type":"response.other"}\n\n'
WITHOUT_END = {
    "line": again(b"data: ", b"x"),
    "event": again(b"", b"data: " + b"x" * 90 + b"\n"),
    "events": again(b"", SAYS),
    "empty events": again(b"", b"data:\n\n"),
    "signs of life": again(b"", b": " + b"ping" * 25 + b"\n\n"),
    "foreign lines": again(b"", b"ab" * 50 + b"\n"),
    "blanks": again(b"", b" "),
    "body": again(b'{"choices":[{"message":{"content":"', b"a", JSON),
    "lists": again(b'{"choices":[', b"[],", JSON),
}


@pytest.mark.deep
@pytest.mark.parametrize(("kind", "stream"), [(OpenAIChat, True), (OpenAIResponses, False)])
@pytest.mark.parametrize("name", WITHOUT_END)
async def test_an_answer_without_end_is_bounded(name: str, stream: bool, kind: type[OpenAIChat]) -> None:
    async with endless(WITHOUT_END[name]) as server:
        tracemalloc.start()
        try:
            error = await error_of(model_at(server.url, kind, stream=stream))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert isinstance(error, BadAnswerError)
    assert "has no end" in str(error)
    assert server.requests == 1
    assert server.sent_bytes < MOST + 20_000_000
    assert peak < 10 * MOST


async def test_it_is_not_asked_for_again() -> None:
    async with endless(WITHOUT_END["body"]) as server:
        assert isinstance(await error_of(model_at(server.url)), BadAnswerError)
    assert (server.requests, server.sent_bytes < MOST + 20_000_000) == (1, True)


@pytest.mark.parametrize("coding", ["gzip", "gzip, gzip", "br"])
async def test_what_is_packed_is_not_read(coding: str) -> None:
    more = f"Content-Encoding: {coding}\r\n"
    async with raw(response(200, b"data: x\n\n", "text/event-stream", more)) as server:
        error = await error_of(model_at(server.url))
    assert isinstance(error, BadAnswerError)
    assert coding in str(error)


async def test_a_run_is_cancelled_in_the_middle_of_what_has_no_end() -> None:
    async with endless(again(b"", b": ping\n\n")) as server:
        run = asyncio.create_task(Runner(Agent(model_at(server.url)), transcripts=None).run("hi"))
        await server.has_sent.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run


def led(location: str, status: int = 307) -> bytes:
    return f"HTTP/1.1 {status} T\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_nothing_goes_to_another_server(status: int, stream: bool, kind: type[OpenAIChat]) -> None:
    async with raw(FINE) as other:
        there = other.url.replace("://", "://me:hidden@") + "/chat/completions?token=hidden"
        async with raw(led(there, status)) as server:
            error = await error_of(model_at(server.url, kind, stream=stream))
        assert other.heads == []
    assert isinstance(error, BadAnswerError)
    assert len(server.bodies) == 1
    assert other.url.removesuffix("/v1") in str(error)
    assert "hidden" not in str(error)


@pytest.mark.parametrize(
    "there",
    [
        *("ftp://127.0.0.1/v1", "//elsewhere.invalid/v1", "http://[", "http://localhost:1/"),
        *("/v1/\x01", "http://\x1b[31melsewhere/", f"http://{'a' * 50_000}/"),
    ],
    ids=lambda there: there[:20],
)
async def test_nor_to_what_is_no_address_of_its_own(there: str) -> None:
    async with raw(led(there)) as server:
        error = await error_of(model_at(server.url))
    assert isinstance(error, BadAnswerError)
    assert "sends requests on" in str(error)
    assert len(server.bodies) == 1
    assert len(str(error)) < 1_000


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_the_same_server_gets_the_same_request_again(status: int) -> None:
    async with raw(led("/v1/there?a=b", status), FINE) as server:
        assert (await answer_of(model_at(server.url))).message.text == "fine"
    assert server.bodies[0] == server.bodies[1]
    assert server.heads[1].startswith("POST /v1/there?a=b ")
    assert "authorization: bearer sk-test" in server.heads[1].lower()


@pytest.mark.parametrize("unit", [b"X-Header: x\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"])
async def test_headers_without_end_are_given_up(unit: bytes) -> None:
    begun = b"" if unit.startswith(b"HTTP") else b"HTTP/1.1 200 OK\r\n"
    async with raw(begun, tail=unit) as server:
        error = await error_of(model_at(server.url, timeout_seconds=0.1))
    assert isinstance(error, ModelUnavailableError)


async def test_what_is_to_be_seen_elsewhere_is_only_looked_at() -> None:
    async with raw(led("/v1/there", 303), script=lambda n, _: led("/v1/there", 303)) as server:
        await error_of(model_at(server.url))
    assert [head.split(" ")[0] for head in server.heads] == ["POST", *["GET"] * MOST_REDIRECTS]


async def test_the_body_of_a_redirect_is_not_read() -> None:
    there = again(b"", b"x", status=307, more="Location: /v1/there\r\n")
    async with endless(there, lambda: [FINE]) as server:
        assert (await answer_of(model_at(server.url))).message.text == "fine"
    assert server.sent_bytes < 20_000_000


@tool
async def look(what: object = None) -> str:
    """Look."""
    return "seen"


def calls_of(count: int, arguments: object = "{}") -> list[dict[str, Any]]:
    return [
        {"index": at, "id": f"c{at}", "function": {"name": "look", "arguments": arguments}}
        for at in range(count)
    ]


def items_of(count: int) -> list[dict[str, Any]]:
    return [
        {"type": "function_call", "id": f"i{at}", "call_id": f"c{at}", "name": "look", "arguments": "{}"}
        for at in range(count)
    ]


def asking(count: int, kind: type[Any], stream: bool) -> bytes:
    """An answer that asks for so many calls."""
    if kind is OpenAIResponses:
        whole = {"object": "response", "status": "completed", "output": items_of(count)}
        return sse({"type": "response.completed", "response": whole}) if stream else response(200, whole)
    if stream:
        return sse(chunk({"tool_calls": calls_of(count)}), chunk({}, "tool_calls"))
    message = {"role": "assistant", "content": None, "tool_calls": calls_of(count)}
    return response(200, {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_of_very_many_calls_is_none(stream: bool, kind: type[Any]) -> None:
    async with raw(asking(20_000, kind, stream)) as server:
        error = await error_of(model_at(server.url, kind, stream=stream))
    assert isinstance(error, BadAnswerError)
    assert f"{MOST_CALLS:,}" in str(error)


async def test_calls_beyond_those_that_are_run_are_answered_in_words() -> None:
    async with raw(asking(MOST_CALLS_RUN + 50, OpenAIChat, True), FINE) as server:
        result = await runner_of(server, look, window="1m").run("hi")
    answers = [message.text for message in result.messages if message.role == "tool"]
    assert all(answer.startswith("seen") for answer in answers[:MOST_CALLS_RUN])
    assert len(answers) == MOST_CALLS_RUN + 50
    assert {answer.partition(":")[0] for answer in answers[MOST_CALLS_RUN:]} == {"not run"}


DEEP = ['{"what":' + "[" * 200_000 + "]" * 200_000 + "}", "[" * 200_000, '{"a":' * 200_000]
DEEP += ['{"what":' + "[" * depth + "]" * depth + "}" for depth in (MOST_NESTED, 800, 980, 5_000)]


@pytest.mark.parametrize("arguments", DEEP, ids=len)
async def test_arguments_that_are_nested_very_deep_are_an_error_of_the_call(arguments: str) -> None:
    answers = [sse(chunk({"tool_calls": calls_of(1, arguments)}), chunk({}, "tool_calls")), FINE]
    async with raw(*answers) as server:
        result = await runner_of(server, look).run("hi")
    assert result.output == "fine"
    [answer] = [message.text for message in result.messages if message.role == "tool"]
    assert "not called" in answer


@pytest.mark.parametrize("depth", [MOST_NESTED, 900, 200_000])
@pytest.mark.parametrize("stream", [True, False])
async def test_so_are_those_that_come_as_an_object(depth: int, stream: bool) -> None:
    deep = '{"x":' * depth + "1" + "}" * depth
    written = asking(1, OpenAIChat, stream).partition(b"\r\n\r\n")[2].replace(b'"{}"', deep.encode())
    kind = "text/event-stream" if stream else JSON
    async with raw(response(200, written, kind), FINE) as server:
        with suppress(BadAnswerError):
            assert (await runner_of(server, look).run("hi")).output == "fine"


class Clock:
    """Passes only where it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("own", [True, False])
async def test_a_limit_of_seconds_is_looked_at_between_calls(own: bool) -> None:
    clock, ran = Clock(), 0

    async def wait() -> str:
        """Wait."""
        return passed()

    def passed() -> str:
        nonlocal ran
        clock.now, ran = clock.now + 1.0, ran + 1
        return str(ran)

    def wait_there() -> str:
        """Wait."""
        return passed()

    waiting = tool(thread="own")(wait_there) if own else tool(wait)
    calls = [ToolCall(id=f"c{at}", name="wait_there" if own else "wait") for at in range(100)]
    model = ScriptedModel([Message.assistant(None, calls), "done"])
    result = await Runner(Agent(model, tools=[waiting]), transcripts=None).run(
        "hi", limits=Limits(seconds=3.0, clock=clock)
    )
    assert (result.status, ran) == ("limit", 3 if own else MOST_AT_ONCE)
    answers = [message.text for message in result.messages if message.role == "tool"]
    assert len(answers) == 100
    assert all("3 seconds" in answer for answer in answers[ran:])


async def test_a_limit_of_repeats_is_looked_at_between_calls() -> None:
    ran = 0

    @tool
    async def same() -> str:
        """The same."""
        nonlocal ran
        ran += 1
        await asyncio.sleep(0)
        return "same"

    calls = [ToolCall(id=f"c{at}", name="same") for at in range(MOST_CALLS_RUN)]
    model = ScriptedModel([Message.assistant(None, calls), "done"])
    result = await Runner(Agent(model, tools=[same]), transcripts=None).run("hi", limits=Limits(repeats=5))
    assert result.status == "limit"
    assert ran < MOST_CALLS_RUN


async def test_a_cancelled_batch_begins_no_further_call() -> None:
    ran = 0

    @tool
    async def hold() -> str:
        """Hold."""
        nonlocal ran
        ran += 1
        held.set()
        await asyncio.Event().wait()
        return ""

    held = asyncio.Event()
    calls = [ToolCall(id=f"c{at}", name="hold") for at in range(MOST_CALLS_RUN)]
    agent = Agent(ScriptedModel([Message.assistant(None, calls)]), tools=[hold])
    run = asyncio.create_task(Runner(agent, transcripts=None).run("hi"))
    await held.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert ran < MOST_CALLS_RUN
