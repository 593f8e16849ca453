"""A session kept in its window by what people use: a plain list given again and again, and a runner."""

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence

from agentloop import Agent, Runner, compact_messages, tool
from agentloop.context import TokenCounter, count_message
from agentloop.errors import ModelError
from agentloop.messages import Message
from agentloop.testing import ScriptedModel

FULL = 0.8


def again_and_again(messages: Sequence[Message], window: int, counter: TokenCounter) -> list[Message]:
    """A plain list that grows by one message after the other, compacted when it passes 0.8 of the window."""
    kept: list[Message] = []
    tokens = 0
    for message in messages:
        kept.append(message)
        tokens += count_message(message, counter)
        if tokens > FULL * window:
            short = compact_messages((one.to_openai() for one in kept), window=window)
            kept = [Message.from_openai(one) for one in short]
            tokens = sum(count_message(one, counter) for one in kept)
    return kept


def without_summaries(messages: Sequence[Message], window: int) -> list[Message]:
    """What a runner sends its model last on this session, where each summary that it asks for fails."""
    model = ScriptedModel(
        [message for message in messages if message.role == "assistant"],
        window=window,
        max_output_tokens=window // 8,
        summary=ModelError("no summary is to be had"),
    )
    results = (message.text for message in messages if message.role == "tool")
    names = {call.name for message in messages for call in message.tool_calls}
    agent = Agent(model, tools=[_tool(name, results) for name in sorted(names)])
    asyncio.run(_live(Runner(agent, transcripts=None), [one.text for one in messages if one.role == "user"]))
    return [Message.from_openai(json.loads(json.dumps(one))) for one in model.requests[-1].messages]


async def _live(runner: Runner, prompts: Sequence[str]) -> None:
    async with runner:
        for prompt in prompts:
            await runner.run(prompt, session_id="s")


def _tool(name: str, results: Iterator[str]) -> Callable[..., str]:
    @tool(name=name)
    def told(path: str = "", file_path: str = "", command: str = "", target: str = "") -> str:
        """The next result of the session."""
        return next(results)

    return told
