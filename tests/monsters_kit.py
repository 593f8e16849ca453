"""Monsters: texts of any size in every script, and a run in which one of them stands in a chosen place."""

import base64
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agentloop._plumbing.strict_json import cleaned
from agentloop.context import count_message, counter_for
from agentloop.errors import ContextOverflowError
from agentloop.events import MessageRecord
from agentloop.messages import Message, ToolCall
from agentloop.models import RetryPolicy
from agentloop.providers.openai import OpenAIChat
from agentloop.run import Agent
from agentloop.runner import Runner
from tests.strict_bodies import Body
from tests.strict_provider import StrictProvider
from tests.strict_replies import (
    Answered,
    Brain,
    Call,
    ExtractiveSummariser,
    Fault,
    Reply,
    asks_for_summary,
    calling,
)
from tests.strict_rules import text_of

WINDOW = 16_000
PIECE_CHARS = 4_096
"""Servers that are tested here for the length of an answer send it in pieces of so many characters."""

_UNITS = {
    "prose": "and so on " * 4 + "Whatever fails before the append leaves the log exactly as it was. ",
    "one line": "a",
    "CJK": "漢字語で書かれた長い文章、",
    "emoji": "👩🏽\u200d🚀👨\u200d👩\u200d👧\u200d👦🏳\ufe0f\u200d🌈🇩🇪",
    "combining": "e\u0301\u0302\u0323q\u0307\u0323",
    "Hangul": "\u1112\u1161\u11ab\u1100\u1173\u11af",
    "blanks": " ",
    "newlines": "\n",
    "signs": "^~/",
    "lone surrogates": "a\ud800",
}
_MIXED = ("prose", "base64", "CJK", "emoji", "combining", "JSON", "blanks", "newlines")

SCRIPTS = (
    "prose", "one line", "base64", "CJK", "emoji", "combining", "Hangul", "JSON", "deep JSON", "blanks",
    "newlines", "signs", "lone surrogates", "mixed",
)  # fmt: skip
PLACES = ("result", "four results", "arguments", "four arguments", "prompt", "answer", "imported result")
ENDS = ("then on", "then compacted", "then compacted in vain")
"""What is done next: something said, a compaction asked for, or one whose summariser is down."""


def monster(script: str, size: int) -> str:
    """A text of that script whose UTF-8 takes about `size` bytes, never more."""
    match script:
        case "base64":
            return base64.b64encode(random.Random(7).randbytes(size * 3 // 4 - 2)).decode()[:size]
        case "JSON":
            rows = [{"id": at, "name": f"row {at}", "tags": ["ä"], "on": True} for at in range(size // 64)]
            return json.dumps(rows, ensure_ascii=False)
        case "deep JSON":
            return "[" * (size // 2) + "]" * (size // 2)
        case "mixed":
            return "".join(monster(each, size // len(_MIXED)) for each in _MIXED)
    unit = _UNITS[script]
    return unit * (size // len(unit.encode("utf-8", "surrogatepass")))


def acting(place: str, text: str) -> Brain:
    """What a model does with a monster in this place: one turn with it, and short ones behind it."""
    first: dict[str, Callable[[], Reply]] = {
        "result": lambda: Reply(calls=(calling("monster"),)),
        "four results": lambda: Reply(calls=tuple(calling("monster") for _ in range(4))),
        "arguments": lambda: Reply(calls=_taking(text, 1), piece_chars=PIECE_CHARS),
        "four arguments": lambda: Reply(calls=_taking(text, 4), piece_chars=PIECE_CHARS),
        "answer": lambda: Reply(text=text, piece_chars=PIECE_CHARS),
    }
    waiting = [first[place]()] if place in first else []

    def answer(body: Body) -> Answered | str:
        return waiting.pop() if waiting and "Go." in text_of(body["messages"][-1]) else "done"

    return answer


def _taking(text: str, times: int) -> tuple[Call, ...]:
    return tuple(Call(name="take", arguments=json.dumps({"text": text})) for _ in range(times))


def serving(place: str, text: str, end: str = "then on") -> StrictProvider:
    """A provider that meets this monster in a window of 16,000 tokens."""
    brain = acting(place, text)

    def down(body: Body) -> Answered | str:
        return Fault(status=400, body="down") if asks_for_summary(body) else brain(body)

    return StrictProvider(
        down if end == "then compacted in vain" else ExtractiveSummariser(brain), window=WINDOW
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Met:
    """What came of it: the outputs of the first run and of the next, None where it could not be made to fit.

    `kept` says how often the text is there whole: in the log, or in the file that holds what was too long.
    """

    first: str | None
    after: str | None
    compaction: str | None
    kept: int


async def meet(
    url: str,
    place: str,
    text: str,
    folder: Path,
    *,
    end: str = "then on",
    store: str = "memory:",
    stream: bool = True,
) -> Met:
    """Run into the monster, and then on."""

    def monster() -> str:
        """Give it."""
        return text

    def take(text: str) -> str:
        """Take it."""
        return f"{len(text)} characters"

    retry = RetryPolicy(first_wait_seconds=0.0, jitter_seconds=0.0)
    model = OpenAIChat("m", base_url=url, window=WINDOW, stream=stream, retry=retry)
    agent = Agent(model, tools=[monster, take], instructions="Be brief.")
    async with Runner(agent, store=store, transcripts=folder) as runner:
        if place == "imported result":
            await runner.store.append("s", _imported(text), expect=0)
        for number in range(3):
            await _said(runner, f"What about {number}? " + "It is about this. " * 40)
        first = await _said(runner, text if place == "prompt" else "Go. FACT-abcdef")
        compaction = None if end == "then on" else await runner.compact("s")
        after = await _said(runner, "And on. FACT-fedcba")
        events = [record.event for record in await runner.store.read("s")]
    said = [event for event in events if isinstance(event, MessageRecord)]
    status = f"{compaction.status} at tier {compaction.tier}" if compaction else None
    return Met(first=first, after=after, compaction=status, kept=sum(_holds(event, text) for event in said))


def _holds(event: MessageRecord, text: str) -> int:
    if event.spilled is not None:
        return Path(event.spilled).read_bytes() == text.encode("utf-8", "backslashreplace")
    if text in event.message.text or cleaned(text) == event.message.text:
        return 1
    decoded = [call.decoded() or {} for call in event.message.tool_calls]
    return sum(arguments.get("text") in (text, cleaned(text)) for arguments in decoded)


def _imported(text: str) -> list[MessageRecord]:
    said = [
        Message.user("Look."),
        Message.assistant("", [ToolCall(id="c", name="monster")]),
        Message.tool("c", text),
        Message.assistant("Seen."),
    ]
    counter = counter_for("m")
    return [MessageRecord(message=message, tokens=count_message(message, counter)) for message in said]


async def _said(runner: Runner, prompt: str) -> str | None:
    try:
        return (await runner.run(prompt, session_id="s")).output
    except ContextOverflowError:
        return None
