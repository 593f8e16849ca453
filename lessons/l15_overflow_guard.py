"""A refusal teaches how wide the window is, and a guard stops what does not help.

The problem
    Your count of tokens is an estimate, and the server's window may be smaller than you were told. So a
    request can be refused although all looked well. And a compaction can fail to help: whoever compacts
    again and again then pays for summaries and gets nowhere.

The picture
    request: 2,788 tokens  ──►  server: "too long, my window is 2,500"
                           ◄──  the window is learnt: 2,500
    compaction (overflow), then the same request, smaller  ──►  answered

    compaction ► did not help: strike 1 ► wait ► strike 2 ► wait longer ► strike 3 ► paused
                                                  the context has grown ► tried again

How it works
    `Server` stands for a server that says nothing of its window and refuses what is larger. A refusal is a
    `ContextTooLongError` with the sizes that the server named. The run learns the window, compacts with the
    reason `overflow`, and asks again. You see nothing of it but events.

    Each compaction is judged by its outcome. One that did nothing, failed, or was needed again at once is a
    strike. After a strike the next try waits. Three strikes pause automatic compaction until the context
    has grown. `CompactionSkipped` says why nothing is begun. Strikes are read from the log, so a new
    process knows them.

    `restless` is a trigger that always fires. The model that writes its summaries gives blank ones, so each
    compaction fails and is a strike. Python's own warning says so once. Without the guard each request would
    cost such a summary.

    What cannot be made to fit ends the run with `ContextOverflowError`, which names what is too big.

What changed
    | | lesson 14 | now |
    |---|---|---|
    | the window is | known | learnt from a refusal |
    | compaction comes | when a trigger fires | also after a refusal |
    | compaction stays away | while no trigger fires | also while the guard waits |

Try it
    python lessons/l15_overflow_guard.py
    python lessons/l15_overflow_guard.py --prompt "How many messages do you see?"

    - Set WINDOW to "2k" and to "8k". Let `restless` fire only at more than ten messages.
    - With a real model: put OpenAIChat("…", window="1m") in place of `Server()`; its server must refuse.
"""

import asyncio
import logging
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from textwrap import shorten

from agentloop import Agent, Compaction, ContextOverflowError, ModelRequest, OfflineModel, Runner
from agentloop.context import Budget, Context
from agentloop.models import ModelPart
from agentloop.stream import AnyStreamEvent, CompactionEnded, CompactionSkipped, CompactionStarted, Retrying
from agentloop.testing import ScriptedModel
from agentloop.triggers import Fired


class Server:
    """A model that does not say how wide its window is, and refuses what is larger."""

    name, window, max_output_tokens = "server", None, None

    async def stream(self, request: ModelRequest, /) -> AsyncGenerator[ModelPart, None]:
        """Raises ContextTooLongError for a request of more than WINDOW tokens."""
        async for part in OfflineModel(window=WINDOW).stream(request):
            yield part


def restless(context: Context, budget: Budget) -> Fired:
    """A trigger that is never content."""
    return Fired("it could be smaller")


WINDOW = "2500"
SESSION = "sea"
QUESTION = "What is the name of my ship?"
TALK = (
    "The name of my ship is Otter.",
    *(f"Day {day}. " + "The wind is fair, the sea is calm. " * 30 for day in range(9)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The window before and after, why compactions came, the answer, the guard's words, what was too big."""

    believed: int
    learnt: int
    reasons: tuple[str, ...]
    answer: str
    outcomes: tuple[str, ...]
    skipped: tuple[str, ...]
    too_big: str


def show(event: AnyStreamEvent) -> None:
    """What becomes of compactions."""
    match event:
        case CompactionStarted(reason=reason, why=why):
            print(f"  {reason}: {why}")
        case CompactionEnded(status=status, tokens_before=before, tokens_after=after):
            print(f"      {status}, {before:,} → {after:,} tokens")
        case Retrying(error=error):
            print(f"  refused, so asked again: {error}")
        case CompactionSkipped(error=error):
            print(f"  skipped: {shorten(error, 100, placeholder=' …')}")


async def talk(runner: Runner, *texts: str) -> tuple[list[AnyStreamEvent], str]:
    """Some turns; the events and the last answer."""
    events: list[AnyStreamEvent] = []
    for text in texts:
        result = await runner.run(text, session_id=SESSION, on_event=events.append)
    for event in events:
        show(event)
    return events, result.output


async def lesson(question: str) -> Shown:
    """A window that is learnt, a compaction that does not help, and what can never fit."""
    print(f"a server with a window of {WINDOW} tokens, which nobody was told")
    async with Runner(Agent(Server()), transcripts=None) as runner:
        await talk(runner, TALK[0])
        believed = (await runner.status(SESSION)).window
        events, answer = await talk(runner, *TALK[1:], question)
        learnt = (await runner.status(SESSION)).window
        print(f"the window: {believed:,} assumed, {learnt:,} learnt\n> {question}\n  {answer}")
        too_big = "nothing: it all fits"
        try:
            await runner.run("Read this: " + "far too much of it, " * 900, session_id=SESSION)
        except ContextOverflowError as error:
            too_big = str(error)
    print("\na trigger that always fires, and summaries that are blank")
    policy = Compaction(trigger=restless, model=ScriptedModel([], summary=" "))
    async with Runner(Agent(OfflineModel(), compaction=policy), transcripts=None) as runner:
        judged, _ = await talk(runner, *TALK)
    print(f"\nwhat can never fit\n  {too_big}")
    return Shown(
        believed=believed,
        learnt=learnt,
        reasons=tuple(each.reason for each in events if isinstance(each, CompactionStarted)),
        answer=answer,
        outcomes=tuple(each.status for each in judged if isinstance(each, CompactionEnded)),
        skipped=tuple(each.error for each in judged if isinstance(each, CompactionSkipped)),
        too_big=too_big,
    )


def main(prompt: str | None = None) -> Shown:
    """Run the lesson; `prompt` is asked instead of its own question."""
    return asyncio.run(lesson(prompt or QUESTION))


if __name__ == "__main__":
    logging.getLogger("agentloop").addHandler(logging.NullHandler())  # a refusal is a warning; we expect one
    options = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    options.add_argument("--prompt", help="what to ask instead of the lesson's own question")
    main(options.parse_args().prompt)
