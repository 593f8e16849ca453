"""A server that tells its answers piece by piece, with pauses and drops, and runners at it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeAlias

from agentloop import OpenAIChat, RetryPolicy, Runner
from tests.counted_tool_kit import looking
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
    """Send these pieces of a body."""
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
    """A runner, with a tool, at a server; it waits before no further try."""
    fixed: Body = {
        "base_url": url,
        "api_key": "sk-test",
        "window": "32k",
        "retry": RetryPolicy(sleep=Waits()),
    }
    return looking(kind("m", **(fixed | options)))


def chunk(delta: Body | None = None, finish: str | None = None) -> bytes:
    """One chunk of an answer."""
    return event({"choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}]})


def event(data: Body) -> bytes:
    """One event."""
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def say(text: str) -> Told:
    """A whole answer as OpenAI tells it."""
    return [chunk({"content": text}), chunk({}, "stop"), b"data: [DONE]\n\n"]


def piece(arguments: str = "", index: int = 0, **named: str) -> Body:
    """What a chunk says of a call; with an `id` it names the tool."""
    function = {"arguments": arguments} | ({"name": "look"} if named else {})
    return {"tool_calls": [{"index": index, **named, "function": function}]}


def always(told: Told) -> Callable[[int], Told]:
    """The same answer to every request."""
    return lambda _: told


@asynccontextmanager
async def runners(
    cases: Iterable[Callable[[int], Told]], **options: Any
) -> AsyncIterator[list[tuple[Runner, list[Body]]]]:
    """A runner at a server of its own for each of these, and what that server has got."""
    async with AsyncExitStack() as servers:
        told = [await servers.enter_async_context(telling(tell)) for tell in cases]
        yield [(runner_at(url, **options), got) for url, got in told]
