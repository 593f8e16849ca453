"""The client CPU of one turn at 100k tokens of context: ours against the plain openai client's.

A turn is two streamed requests with some 770 messages: one that is answered with a tool call, and one with
its result that is answered with text. The server runs in a process of its own, so the process time of this
one is the client's. Both sides do the same turn by turns, and each pair gives one ratio; the median counts.

Run it with `python -m tests.benchmarks.bench_turn`; it prints the ratios of one run.
"""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from httpx2 import Request, Response
from openai import AsyncOpenAI, AsyncStream
from openai.types.chat import ChatCompletionChunk

from agentloop.models import Answer, ModelRequest
from agentloop.providers.openai import OpenAIChat
from agentloop.providers.openai.chat import GrowingCompletion
from agentloop.providers.openai.sse import streamed
from tests.strict_process import provider_process

Turn = Callable[[], Awaitable[None]]

EXCHANGES = 256
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look into a file.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    },
}


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Seconds of process time for each pair of turns, ours and the plain client's."""

    ours: tuple[float, ...]
    plain: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """The median of the ratios of the pairs."""
        return statistics.median(a / b for a, b in zip(self.ours, self.plain, strict=True))


def history() -> tuple[dict[str, Any], ...]:
    """A conversation of 770 messages and about 100k tokens."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}]
    for number in range(EXCHANGES):
        messages += exchange(f"call_{number}", f"src/file_{number}.py", "a line of text that was read " * 52)
        messages.append({"role": "assistant", "content": f"File {number} is read."})
    return (*messages, {"role": "user", "content": "Look once more, then say what you saw."})


def exchange(call_id: str, path: str, result: str) -> list[dict[str, Any]]:
    """An assistant message with one call, and its result."""
    function = {"name": "look", "arguments": json.dumps({"path": path})}
    calls = [{"id": call_id, "type": "function", "function": function}]
    return [
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": call_id, "content": result},
    ]


def our_turn(url: str) -> Turn:
    """The turn through `OpenAIChat`."""
    model, messages = OpenAIChat("m", base_url=url), history()

    async def turn() -> None:
        answer = await ask(messages)
        call = answer.message.tool_calls[0]
        result = {"role": "tool", "tool_call_id": call.id, "content": "seen"}
        answer = await ask((*messages, answer.message.to_openai(), result))
        assert answer.message.text

    async def ask(asked: tuple[dict[str, Any], ...]) -> Answer:
        *_, last = [part async for part in model.stream(ModelRequest(messages=asked, tools=(TOOL,)))]
        assert isinstance(last, Answer)
        return last

    return turn


def plain_turn(url: str) -> Turn:
    """The turn through the openai client, as its documentation shows it."""
    client, messages = AsyncOpenAI(base_url=url, api_key="no-key", max_retries=0), list(history())

    async def turn() -> None:
        text, call_id, arguments = await ask(messages)
        said, result = exchange(call_id, "", "seen")
        said["tool_calls"][0]["function"]["arguments"] = arguments
        text, _, _ = await ask([*messages, said, result])
        assert text

    async def ask(asked: Any) -> tuple[str, str, str]:
        text, call_id, arguments = [], "", []
        stream = await client.chat.completions.create(
            model="m", messages=asked, tools=[TOOL], stream=True, stream_options={"include_usage": True}
        )  # type: ignore[call-overload]
        async for chunk in stream:
            for choice in chunk.choices:
                text.append(choice.delta.content or "")
                for call in choice.delta.tool_calls or ():
                    call_id = call_id or call.id
                    arguments.append(call.function.arguments or "")
        return "".join(text), call_id, "".join(arguments)

    return turn


async def measured(ours: Turn, plain: Turn, pairs: int) -> Measured:
    """Process time of both, by turns, after one of each to warm up."""
    await ours()
    await plain()
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(pairs):
        order = ((ours, 0), (plain, 1))
        for turn, side in order if number % 2 else reversed(order):
            begun = time.process_time()
            await turn()
            times[side].append(time.process_time() - begun)
    return Measured(ours=tuple(times[0]), plain=tuple(times[1]))


def chunks(count: int) -> list[bytes]:
    """A stream's events, as a server sends them."""
    fixed = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choice = {"index": 0, "delta": {"content": "sixteen letters "}, "logprobs": None, "finish_reason": None}
    events = [fixed | {"choices": [choice]}] * count + [
        fixed | {"choices": [choice | {"delta": {}, "finish_reason": "stop"}]}
    ]
    return [b"data: %s\n\n" % json.dumps(event).encode() for event in events] + [b"data: [DONE]\n\n"]


async def measured_chunks(count: int, pairs: int) -> Measured:
    """Process time of parsing the same events, one piece each: our parser and the client's."""
    pieces = chunks(count)
    client = AsyncOpenAI(base_url="http://127.0.0.1:1", api_key="no-key")

    async def received() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    async def ours() -> None:
        parts = [part async for part in streamed(GrowingCompletion(), received())]
        assert len(parts) == count + 1

    async def plain() -> None:
        response = Response(200, content=received(), request=Request("POST", "http://127.0.0.1:1"))
        parsed = AsyncStream(cast_to=ChatCompletionChunk, response=response, client=client)
        assert len([chunk async for chunk in parsed]) == count + 1

    return await measured(ours, plain, pairs)


def line(name: str, result: Measured, limit: float, per: int = 1) -> str:
    """One line of the report; times are medians."""
    ours, plain = (statistics.median(side) / per * 1e6 for side in (result.ours, result.plain))
    return f"{name}: {ours:,.1f} µs against {plain:,.1f} µs, ratio {result.ratio:.3f} (limit {limit})"


async def run(pairs: int) -> None:
    """Measure and print everything."""
    with provider_process("--brain", "turn", "--pieces", "100", "--whole") as url:
        turn = await measured(our_turn(url), plain_turn(url), pairs)
    chunk = await measured_chunks(2_000, pairs)
    print(line("a turn", turn, 0.1))
    print(line("a chunk", chunk, 0.3, per=2_000))


def main() -> None:
    """Run and print: a figure is looked at by a person, since a busy machine moves it."""
    parser = argparse.ArgumentParser(description="Client CPU of a turn: ours against the openai client's.")
    parser.add_argument("--pairs", type=int, default=9, help="how often each side is measured")
    asyncio.run(run(parser.parse_args().pairs))


if __name__ == "__main__":
    main()
