"""A long look around through a small window: a tool that tells facts, and the run that must lose none."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agentloop.compaction import Compaction
from agentloop.events import MessageRecord
from agentloop.messages import Message
from agentloop.models import ChatModel
from agentloop.providers.openai import OpenAIChat
from agentloop.run import Agent
from agentloop.runner import Runner
from tests.server_kit import at_once
from tests.strict_bodies import Body
from tests.strict_provider import StrictProvider
from tests.strict_replies import MARKER, Answered, ExtractiveSummariser, Reply, calling


def looking(rounds: int, beside: Callable[[int], Body] = lambda at: {}) -> ExtractiveSummariser:
    """A model that looks `rounds` times, one to three times at once, and then says all facts in sight.

    `beside` gives the fields that the reply of a round has beside its calls.
    """
    asked = iter(range(rounds))

    def answer(body: Body) -> Answered | str:
        at = next(asked, None)
        if at is None:
            return "I know " + " ".join(dict.fromkeys(MARKER.findall(json.dumps(body["messages"]))))
        looks = tuple(calling("look", at=f"{at}-{n}") for n in range(at % 3 + 1))
        return Reply(calls=looks, **beside(at))

    return ExtractiveSummariser(answer)


def look(at: str) -> str:
    """Look somewhere."""
    number = int(at.split("-")[0]) * 3 + int(at.split("-")[1])
    return f"FACT-{number:06x} " + "and so on " * 300 + f"FACT-{number + 4096:06x}"


async def said(runner: Runner, session_id: str = "s") -> list[Message]:
    """The messages of the session's log."""
    records = await runner.store.read(session_id)
    return [record.event.message for record in records if isinstance(record.event, MessageRecord)]


async def run_looking(
    folder: Path | None, server: StrictProvider, kind: Callable[..., ChatModel] = OpenAIChat, **options: Any
) -> tuple[Any, list[Message]]:
    """The result of a run with that tool on a model of this kind, transcripts in `folder`; its messages."""
    model = kind("m", base_url=server.url, retry=at_once(), **options)
    agent = Agent(model, tools=[look], instructions="Look.", compaction=Compaction(micro=None))
    runner = Runner(agent, transcripts=folder)
    result = await runner.run("Look around. FACT-abcdef", session_id="s")
    return result, await said(runner)


def assert_all_known(output: str, history: list[Message]) -> None:
    """The output names each fact of the history, and no other."""
    assert {*MARKER.findall(output)} == {fact for message in history for fact in MARKER.findall(message.text)}
