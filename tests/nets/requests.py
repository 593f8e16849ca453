"""Requests as they arrive at a server: their paths and bodies, of runs of every kind."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, TypeAlias

from agentloop import (
    Agent,
    Compaction,
    Message,
    MicroCompact,
    OpenAIChat,
    OpenAIResponses,
    RetryPolicy,
    Runner,
)
from agentloop.models import Answer, ModelRequest
from agentloop.strategies import KeepRecentTurns
from tests.nets.frozen import write
from tests.strict_provider import StrictProvider
from tests.strict_replies import Answered, Call, Reply, calling

FILE = "requests.json"
Kind: TypeAlias = Literal["chat", "responses"]
Scene: TypeAlias = Callable[[Kind], Awaitable[list[Any]]]
SECRET = "sk-test-0123456789abcdef"


def look(path: str, lines: int = 1) -> str:
    """Look at a file.

    Args:
        path: Which one.
        lines: How many lines of it.
    """
    return f"{path}: " + "a line of it " * 40 * lines


def note(text: str, tags: list[str], urgent: bool = False) -> str:
    """Note a text."""
    return f"noted {text} {tags} {urgent}"


ONE = Reply(text="I look.", calls=(calling("look", "call_1", path="a.txt"),))
TWO = Reply(calls=(calling("look", "call_2", path="b.txt"), calling("note", "call_3", text="n", tags=["x"])))
BROKEN = Reply(calls=(Call(name="look", arguments='{"path": ', id="call_4"), calling("nothing", "call_5")))
THINKS = Reply(reasoning="First I look.", calls=(calling("look", "call_6", path="c.txt"),))
COMPACTS = Reply(calls=(calling("compact", "call_7", focus="names"),))
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"}}
SUMMARY = "## Goal\nThey look at a.txt and b.txt.\n## State\nBoth hold a line."


@asynccontextmanager
async def _talk(
    kind: Kind,
    replies: Sequence[Answered | str],
    *,
    policy: Compaction | None = None,
    options: Mapping[str, Any] | None = None,
    **server: Any,
) -> AsyncIterator[tuple[Runner, list[Any]]]:
    """A runner that talks to a strict server, and what arrives there."""
    sent: list[Any] = []
    with StrictProvider(replies, **server) as provider, TemporaryDirectory() as folder:
        retry = RetryPolicy(first_wait_seconds=0.0, jitter_seconds=0.0)
        make = OpenAIChat if kind == "chat" else OpenAIResponses
        fixed: dict[str, Any] = {
            "base_url": provider.url,
            "api_key": SECRET,
            "retry": retry,
            "window": 16_000,
        }
        model = make("strict", **fixed | dict(options or {}))
        agent = Agent(model, tools=[look, note], instructions="You look at files.", compaction=policy)
        async with Runner(agent, transcripts=Path(folder)) as runner:
            yield runner, sent
        sent += [{"path": each.path, "body": normal(each.body, folder)} for each in provider.requests]


def normal(value: Any, folder: str) -> Any:
    """The body without what differs from one time to the next."""
    if isinstance(value, str):
        return re.sub(r"transcript_\d+(-\d+)?", "transcript_TIME", value.replace(folder, "FOLDER"))
    if isinstance(value, Mapping):
        return {key: normal(each, folder) for key, each in value.items()}
    return [normal(each, folder) for each in value] if isinstance(value, list) else value


async def plain(kind: Kind) -> list[Any]:
    """A prompt, and another one."""
    async with _talk(kind, ["Hello.", "Again."]) as (runner, sent):
        await runner.run("Hi 🙂 \x00 \ud800", session_id="s")
        await runner.run(
            Message.from_openai({"role": "user", "content": "Again", "name": "ann"}), session_id="s"
        )
    return sent


async def whole(kind: Kind) -> list[Any]:
    """Not streamed, with further fields and a limit."""
    options = {"stream": False, "temperature": 0.5, "max_output_tokens": "2k", "extra_body": {"seed": 7}}
    async with _talk(kind, ["Hello."], options=options) as (runner, sent):
        await runner.run("Hi")
    return sent


async def tools(kind: Kind) -> list[Any]:
    """A call, calls side by side, broken calls and their results."""
    async with _talk(kind, (ONE, TWO, BROKEN, "Done.")) as (runner, sent):
        await runner.run("Look.")
    return sent[-1:]


async def images(kind: Kind) -> list[Any]:
    """A message of several parts."""
    said = {"role": "user", "content": [{"type": "text", "text": "What is it?"}, IMAGE]}
    async with _talk(kind, ["A dot."]) as (runner, sent):
        await runner.run(Message.from_openai(said))
    return sent


async def reasoning(kind: Kind) -> list[Any]:
    """What a model thought goes back, as far as its server wants it."""
    says = Reply(text="So.", reasoning="Then I say.")
    async with _talk(kind, (THINKS, says, "More.")) as (runner, sent):
        await runner.run("Look.", session_id="s")
        await runner.run("And?", session_id="s")
    return sent[1:]


async def cleared(kind: Kind) -> list[Any]:
    """Old results are shortened."""
    policy = Compaction(micro=MicroCompact(keep_messages=2, min_gain_tokens=0), trigger=None, tool=False)
    async with _talk(kind, [ONE, TWO, "Done."], policy=policy) as (runner, sent):
        await runner.run("Look.")
    return sent[-1:]


async def compacted(kind: Kind) -> list[Any]:
    """The request for a summary, and the one that follows."""
    policy = Compaction(micro=None, trigger=None, strategy=KeepRecentTurns(1), tool=False)
    replies: list[Answered | str] = [ONE, TWO, "Done.", "Yes.", SUMMARY, "More."]
    async with _talk(kind, replies, policy=policy) as (runner, sent):
        await runner.run("Look.", session_id="s")
        await runner.run("Sure?", session_id="s")
        result = await runner.compact("s", focus="the files")
        assert result is not None
        assert result.status == "done", result.error
        await runner.run("Go on.", session_id="s")
    return sent[-2:]


async def compact_tool(kind: Kind) -> list[Any]:
    """The model asks for a compaction itself."""
    policy = Compaction(micro=None, trigger=None, strategy=KeepRecentTurns(1))
    async with _talk(kind, [ONE, TWO, "Done.", COMPACTS, SUMMARY, "More."], policy=policy) as (runner, sent):
        await runner.run("Look.", session_id="s")
        await runner.run("Tidy up.", session_id="s")
    return sent[3:]


async def overflowed(kind: Kind) -> list[Any]:
    """A server refuses what is too long; the request is made smaller and sent again."""
    policy = Compaction(trigger=None, strategy=KeepRecentTurns(1), tool=False)
    replies = ["One. " * 400, "Two. " * 400, SUMMARY, "Three."]
    async with _talk(kind, replies, policy=policy, window=1_400) as (runner, sent):
        for prompt in ("A", "B", "C"):
            await runner.run(prompt * 9, session_id="s")
    return sent[-2:]


async def refused_fields(kind: Kind) -> list[Any]:
    """What a server does not know is left out the next time."""
    options = {"max_output_tokens": 500, "temperature": 0.2}
    refuses = ["temperature", "stream_options", "max_completion_tokens"]
    async with _talk(kind, [ONE, "Done."], options=options, refuses=refuses) as (runner, sent):
        await runner.run("Look.")
    return sent


async def dialects(_: Kind) -> list[Any]:
    """No system message, ids of nine characters, plain schemas, no further fields."""
    modes = ["no-system", "ids-of-9", "plain-schemas", "no-message-fields"]
    async with _talk("chat", [ONE, TWO, "Done."], modes=modes) as (runner, sent):
        await runner.run(Message.from_openai({"role": "user", "content": "Look.", "name": "ann"}))
    return sent[-1:]


async def no_streams(_: Kind) -> list[Any]:
    """A server that does not stream."""
    async with _talk("chat", ["Hello."], modes=["no-streams"]) as (runner, sent):
        await runner.run("Hi")
    return sent


async def structured(kind: Kind) -> list[Any]:
    """A request that the user of a model makes, with messages of every role and structured parts."""
    messages = (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "See"}, IMAGE]},
        {"role": "assistant", "content": [{"type": "text", "text": "Seen."}]},
        {"role": "user", "content": "On."},
    )
    with StrictProvider(["Yes."]) as provider:
        make = OpenAIChat if kind == "chat" else OpenAIResponses
        model = make("strict", base_url=provider.url, api_key=SECRET)
        async for part in model.stream(ModelRequest(messages=messages, max_output_tokens=100)):
            assert not isinstance(part, Answer) or part.message.text == "Yes."
        return [{"path": each.path, "body": each.body} for each in provider.requests]


BOTH: Sequence[Scene] = (
    plain,
    whole,
    tools,
    images,
    reasoning,
    cleared,
    compacted,
    compact_tool,
    overflowed,
    refused_fields,
    structured,
)
CASES: Mapping[str, tuple[Scene, Kind]] = {
    **{f"chat: {scene.__name__}": (scene, "chat") for scene in (*BOTH, dialects, no_streams)},
    **{f"responses: {scene.__name__}": (scene, "responses") for scene in BOTH},
}

WITH_TOOLS = (tools, compact_tool, dialects)
"""Where the tools are shown whole; else a hash stands for them, so that the data stays small."""


async def sent_in(case: str) -> list[Any]:
    """What arrives at the server in this case."""
    scene, kind = CASES[case]
    sent = await scene(kind)
    if scene not in WITH_TOOLS:
        for each in sent:
            if "tools" in each["body"]:
                each["body"]["tools"] = sha256(json.dumps(each["body"]["tools"]).encode()).hexdigest()
    return sent


def freeze() -> None:
    """Write anew what arrives."""
    write(FILE, {case: asyncio.run(sent_in(case)) for case in CASES})
