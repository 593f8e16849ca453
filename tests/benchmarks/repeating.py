"""A session kept in its window by what people use: a plain list given again and again, and a runner.

The runner's summaries are written as in `SUMMARISERS`.
"""

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence

from agentloop import Agent, Compaction, Runner, compact_messages, tool
from agentloop.context import TokenCounter, count_message
from agentloop.errors import ModelError
from agentloop.messages import Message
from agentloop.models import ModelRequest
from agentloop.strategies import Digest, KeepRecentFraction, replaced_by
from agentloop.testing import Reply, ScriptedModel

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


def _gist(request: ModelRequest) -> str:
    """What a small model says of anything: fluent, short, and without a single fact."""
    said = _material(request).split()
    return f"The user and the assistant worked on several parts of the project: {' '.join(said[40:52])}."


def _echo(request: ModelRequest) -> str:
    """What it was given, as far as that goes."""
    return _material(request)[:2_000]


def _fair(request: ModelRequest) -> str:
    """Every second line of what it was given that says something exact, the last ones."""
    lines = [line for line in _material(request).splitlines() if any(map(str.isdigit, line))]
    return "So far:\n" + "\n".join(line[:160] for line in lines[-40::2])


def _material(request: ModelRequest) -> str:
    return "\n".join(str(message.get("content") or "") for message in request.messages[1:])


SUMMARISERS: dict[str, Reply | None] = {
    "no model": None,
    "a gist": _gist,
    "an echo": _echo,
    "a fair one": _fair,
    "a failing one": ModelError("no summary is to be had"),
}
"""Who writes the summaries: nobody, so that digests stand, or a model of this kind."""


def in_a_runner(messages: Sequence[Message], window: int, summariser: str) -> ScriptedModel:
    """The model of a runner that lived through this session, with all requests that it got."""
    summary = SUMMARISERS[summariser]
    model = ScriptedModel(
        [message for message in messages if message.role == "assistant"],
        window=window,
        max_output_tokens=window // 8,
        summary=summary,
    )
    results = (message.text for message in messages if message.role == "tool")
    names = {call.name for message in messages for call in message.tool_calls}
    policy = (
        Compaction(strategy=replaced_by(KeepRecentFraction(), Digest())) if summary is None else Compaction()
    )
    agent = Agent(model, tools=[_tool(name, results) for name in sorted(names)], compaction=policy)
    asyncio.run(_live(Runner(agent, transcripts=None), [one.text for one in messages if one.role == "user"]))
    return model


def last_sent(model: ScriptedModel) -> list[Message]:
    """The messages of the newest request but those for a summary."""
    request = next(one for one in reversed(model.requests) if one.purpose == "agent")
    return [Message.from_openai(json.loads(json.dumps(one))) for one in request.messages]


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
