"""When an answer is over: what half answers, early words of the end and signs of life come to."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeAlias

import pytest

from agentloop import OpenAIChat, OpenAIResponses, RetryPolicy, Runner
from agentloop.errors import ModelUnavailableError
from agentloop.events import Compacted
from agentloop.stream import Retrying
from tests.kit import watched
from tests.look_kit import looking, ran, watched_texts
from tests.server_kit import Waits
from tests.strict_bodies import Body

Piece: TypeAlias = bytes | float
Told: TypeAlias = list[Piece]

DROP = -1.0
"""In place of a pause: the connection is cut, so that it is seen."""


@asynccontextmanager
async def telling(tell: Callable[[int], Told]) -> AsyncIterator[tuple[str, list[Body]]]:
    """A server that answers the nth request by these pieces, with pauses where a number stands.

    Gives its address, and the bodies that it has got so far.
    """
    got: list[Body] = []
    serving: set[asyncio.Task[None] | None] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.current_task())
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = next(line for line in head.splitlines() if line.startswith("content-length:"))
            got.append(json.loads(await reader.readexactly(int(length.partition(":")[2]))))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n")
            writer.write(b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
            await send(writer, tell(len(got)))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", got
    finally:
        server.close()
        for task in filter(None, serving):
            task.cancel()
        await asyncio.gather(*filter(None, serving), return_exceptions=True)


async def send(writer: asyncio.StreamWriter, told: Told) -> None:
    for piece in told:
        if piece == DROP:
            return
        if isinstance(piece, float):
            await asyncio.sleep(piece)
        else:
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
    writer.write(b"0\r\n\r\n")
    await writer.drain()


def runner_at(url: str, kind: type[Any] = OpenAIChat, **options: Any) -> Runner:
    fixed: Body = {
        "base_url": url,
        "api_key": "sk-test",
        "window": "32k",
        "retry": RetryPolicy(sleep=Waits()),
    }
    return looking(kind("m", **(fixed | options)))


def chunk(delta: Body | None = None, finish: str | None = None) -> bytes:
    return event({"choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}]})


def event(data: Body) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def say(text: str) -> Told:
    return [chunk({"content": text}), chunk({}, "stop"), b"data: [DONE]\n\n"]


def piece(arguments: str = "", index: int = 0, **named: str) -> Body:
    function = {"arguments": arguments} | ({"name": "look"} if named else {})
    return {"tool_calls": [{"index": index, **named, "function": function}]}


GAP = 1.3
"""Longer than a word of the end is waited behind where it is believed."""

EARLY: dict[str, Told] = {
    "the reason in each chunk": [
        chunk(piece(id="a"), "tool_calls"),
        GAP,
        chunk(piece('{"path": "FILE"}'), "tool_calls"),
        chunk({}, "tool_calls"),
    ],
    "an empty chunk with it first": [
        chunk({"role": "assistant"}, "stop"),
        GAP,
        chunk(piece(id="a")),
        chunk(piece('{"path": "FILE"}'), "stop"),
    ],
    "a reason behind what is thought": [
        chunk({"reasoning_content": "I look."}),
        chunk({}, "stop"),
        GAP,
        chunk(piece(id="a")),
        chunk(piece('{"path": "FILE"}')),
        chunk({}, "tool_calls"),
    ],
    "each call with it": [
        chunk(piece('{"path": "FILE"}', id="a"), "tool_calls"),
        GAP,
        chunk(piece('{"path": "FILE, again"}', 1, id="b"), "tool_calls"),
    ],
    "a call with no argument yet": [
        chunk({"content": "So: "}),
        chunk(piece(id="a"), "tool_calls"),
        GAP,
        chunk(piece('{"path": "FILE"}'), "tool_calls"),
    ],
    "half of a call": [
        chunk({"content": "So: "}),
        chunk(piece('{"pa', id="a"), "tool_calls"),
        GAP,
        chunk(piece('th": "FILE"}'), "tool_calls"),
    ],
}


def always(told: Told) -> Callable[[int], Told]:
    return lambda _: told


@asynccontextmanager
async def runners(
    cases: Iterable[Callable[[int], Told]], **options: Any
) -> AsyncIterator[list[tuple[Runner, list[Body]]]]:
    """A runner at a server of its own for each of these, and what that server has got."""
    async with AsyncExitStack() as servers:
        told = [await servers.enter_async_context(telling(tell)) for tell in cases]
        yield [(runner_at(url, **options), got) for url, got in told]


async def test_no_early_word_of_the_end_cuts_a_call_off() -> None:
    def told_by(name: str) -> Callable[[int], Told]:
        told = [
            each if isinstance(each, float) else each.replace(b"FILE", name.encode()) for each in EARLY[name]
        ]
        return lambda number: told if number == 1 else say("done")

    async with runners(map(told_by, EARLY)) as at:
        results = await asyncio.gather(*(runner.run("go") for runner, _ in at))
    assert [(result.output, len(got)) for result, (_, got) in zip(results, at, strict=True)] == [
        ("done", 2)
    ] * len(EARLY)
    assert ran == dict.fromkeys(EARLY, 1) | {"each call with it, again": 1}


async def test_no_early_word_of_the_end_cuts_a_text_off() -> None:
    pieces: Told = [chunk({"content": "Part one. "}, "stop"), GAP, chunk({"content": "Part two."}, "stop")]
    async with telling(lambda _: pieces) as (url, got):
        seen = await watched(runner_at(url), "go")
    assert watched_texts(seen) == ["Part one. Part two."]
    assert len(got) == 1


DROPPED: dict[str, Told] = {
    "a text, with its first chunk": [chunk({"content": "Part"}, "stop")],
    "a call without arguments": [chunk({"content": "Part"}), chunk(piece(id="a")), chunk({}, "tool_calls")],
    "half of a call": [chunk(piece('{"path": "o', id="a")), chunk({}, "tool_calls")],
    "more behind it": [chunk({"content": "Pa"}), chunk({}, "stop"), chunk({"content": "rt"})],
    "the reason again": [chunk({"content": "Pa"}, "stop"), chunk({"content": "rt"}), chunk({}, "stop")],
}


@pytest.mark.parametrize("told", DROPPED.values(), ids=DROPPED.keys())
async def test_a_drop_behind_a_word_that_may_be_early_is_a_broken_stream(told: Told) -> None:
    async with telling(lambda number: [*told, DROP] if number == 1 else say("whole")) as (url, got):
        seen = await watched(runner_at(url), "go")
    assert not ran
    assert watched_texts(seen) == ["whole"]
    assert len([each for each in seen if isinstance(each, Retrying)]) == 1
    assert len(got) == 2


async def test_a_call_whose_arguments_may_be_still_to_come_does_not_run_where_the_server_leaves() -> None:
    alone: Told = [chunk(piece(id="a"), "tool_calls")]
    async with telling(lambda number: alone if number == 1 else say("whole")) as (url, got):
        assert (await runner_at(url).run("go")).output == "whole"
    assert (dict(ran), len(got)) == ({}, 2)


ENDED: dict[str, Told] = {
    "by its own chunk": [chunk({"content": "all"}), chunk({}, "stop")],
    "by its last chunk": [chunk({"content": "a"}), chunk({"content": "ll"}, "stop")],
    "cut short in a call": [chunk({"content": "all"}), chunk(piece('{"path', id="a")), chunk({}, "length")],
}
PINGS: Told = [0.02, b": ping\n\n", 0.02, b"event: ping\ndata: {}\n\n", 0.02, chunk({"content": ""})] * 400


@pytest.mark.parametrize("told", ENDED.values(), ids=ENDED.keys())
@pytest.mark.parametrize("behind", [[DROP], PINGS], ids=["drop", "pings"])
async def test_what_has_surely_ended_is_an_answer_whatever_comes_behind_it(told: Told, behind: Told) -> None:
    async with telling(lambda number: [*told, *behind] if number == 1 else say("done")) as (url, _):
        seen = await watched(runner_at(url), "go")
    assert watched_texts(seen)[0] == "all"
    assert not [each for each in seen if isinstance(each, Retrying)]


async def test_one_chunk_that_is_never_closed_ends_once_nothing_more_comes() -> None:
    async with telling(lambda _: [chunk({"content": "all"}, "stop"), *PINGS]) as (url, got):
        assert (await runner_at(url, timeout_seconds=1).run("go")).output == "all"
    assert len(got) == 1


SIGNS: dict[str, bytes] = {
    "comments": b": keepalive\n\n",
    "pings": b'event: ping\ndata: {"type": "ping"}\n\n',
    "empty chunks": chunk({"content": ""}),
    "blanks": b"\n",
}


@pytest.mark.parametrize("kind", [OpenAIChat, OpenAIResponses])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_signs_of_life_alone_do_not_hold_a_run_up_for_ever(stream: bool, kind: type[Any]) -> None:
    lives: list[Told] = [[sign, 0.02] * 300 for sign in SIGNS.values()]
    options: Body = {"timeout_seconds": 0.2, "stream": stream, "retry": RetryPolicy(attempts=1), "kind": kind}
    async with runners(map(always, lives), **options) as at:
        ends = await asyncio.gather(*(runner.run("go") for runner, _ in at), return_exceptions=True)
    assert [type(end) for end in ends] == [ModelUnavailableError] * len(lives)
    assert ["signs of life" in str(end) for end in ends] == [True] * len(lives)


async def test_signs_of_life_between_pieces_are_silence_that_is_borne() -> None:
    waiting: Told = [b": keepalive\n\n", 0.05] * 4
    told: Told = [*waiting, chunk({"content": "a"}), *waiting, chunk({"content": "ll"}), *waiting, *say("")]
    async with telling(lambda _: told) as (url, got):
        assert (await runner_at(url, timeout_seconds=0.2).run("go")).output == "all"
    assert len(got) == 1


async def test_half_a_summary_never_stands_for_the_history() -> None:
    halves: Told = [
        chunk({"content": "The user asked for facts. First half, "}, "stop"),
        GAP,
        chunk({"content": "second half."}, "stop"),
    ]
    long = "we decided this and more words. " * 60
    async with telling(lambda number: say(f"{number} {long}") if number < 5 else halves) as (url, _):
        runner = runner_at(url)
        for number in range(4):
            await runner.run(f"question {number} {long}", session_id="s")
        await runner.compact("s")
        events = await runner.events("s")
    summaries = [each.event.replacement for each in events if isinstance(each.event, Compacted)]
    assert ["second half." in str(summary) for summary in summaries] == [True]
