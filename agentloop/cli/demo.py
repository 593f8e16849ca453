"""`demo`: one conversation, run twice, without compaction and with it. No key, no network."""

import asyncio
import re
import sys
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from agentloop.cli.process import before_leaving
from agentloop.cli.progress import RunFigures
from agentloop.cli.terminal import run_to_end
from agentloop.compaction import Compaction
from agentloop.errors import ContextOverflowError
from agentloop.messages import Message
from agentloop.models import ModelRequest
from agentloop.run import Agent
from agentloop.runner import Runner
from agentloop.sessions import to_openai, transcripts_in
from agentloop.testing import ScriptedModel

WINDOW, RESERVE = 4_000, 500
TURNS = 24
_SESSION = "demo"
_BAR = 10
_FACT = re.compile(r"door (\d+) opens with (\d{4})")
_REMARK = "That door has a story, and I tell it at length so that this conversation grows. " * 14


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn as it went: the request's size in tokens after it, compactions so far, whether it died."""

    tokens: int
    compactions: int
    died: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoReport:
    """One whole conversation: its turns, the facts the model saw at the end, and what the log holds."""

    turns: tuple[Turn, ...]
    facts_in_sight: int
    user_messages: int
    transcripts: int

    @property
    def survived(self) -> int:
        """How many turns were answered."""
        return sum(not turn.died for turn in self.turns)


@click.command()
def demo() -> int:
    """Show an overflow, and compaction; needs no key.

    The same scripted conversation twice, both really run.
    """
    without, with_it = run_to_end(run_both())
    console = Console(highlight=False)
    with console.capture() as shown:
        console.print(Group(_table(without, with_it), Text(proof(without, with_it))))
    # Written here and not by the console, which ends the program by itself where nobody reads.
    sys.stdout.write(shown.get())
    sys.stdout.flush()
    return 0 if without.survived < TURNS == with_it.survived else 1


async def conversation(compaction: Compaction | None) -> DemoReport:
    """Run the conversation once; it ends early where the context cannot be made to fit."""
    model = ScriptedModel([_reply] * TURNS, window=WINDOW, max_output_tokens=RESERVE, summary=_summary)
    agent = Agent(model, instructions="You keep the keys of a house.", compaction=compaction)
    folder = TemporaryDirectory(prefix="agentloop-demo-")
    with folder, before_leaving(folder.cleanup):
        async with Runner(agent, transcripts=folder.name) as runner:
            turns = await _turns(runner)
            records = await runner.store.read(_SESSION)
        return DemoReport(
            turns=turns,
            facts_in_sight=len(_facts(model.requests[-1])),
            user_messages=sum(message["role"] == "user" for message in to_openai(records)),
            transcripts=len(transcripts_in(Path(folder.name))),
        )


def proof(without: DemoReport, with_it: DemoReport) -> str:
    """What the two runs have shown, from what was measured."""
    largest = max(turn.tokens for turn in with_it.turns)
    return "\n".join(
        [
            f"Without compaction: dead at turn {without.survived + 1} of {TURNS}: "
            "its request, and room for the answer, do not fit.",
            f"With compaction: {with_it.survived} of {TURNS} turns, "
            f"{with_it.turns[-1].compactions} compactions, at most {largest:,} of {WINDOW:,} tokens.",
            f"Nothing lost: the last request still held {with_it.facts_in_sight} of {TURNS} facts,",
            f"the log holds {with_it.user_messages} of {TURNS} user messages, and "
            f"{with_it.transcripts} transcript holds the whole conversation.",
        ]
    )


async def run_both() -> tuple[DemoReport, DemoReport]:
    """The conversation without compaction, and with it."""
    return await asyncio.gather(conversation(None), conversation(Compaction(tool=False)))


async def _turns(runner: Runner) -> tuple[Turn, ...]:
    tally, turns = RunFigures(), list[Turn]()
    for number in range(1, TURNS + 1):
        said = f"Turn {number}: door {number} opens with {1000 + 37 * number}. Tell me about it."
        try:
            async with aclosing(runner.stream(said, session_id=_SESSION)) as events:
                async for event in events:
                    tally.add(event)
        except ContextOverflowError as error:
            return (*turns, Turn(tokens=error.tokens, compactions=tally.compactions, died=True))
        tokens = tally.context.tokens if tally.context else 0
        turns.append(Turn(tokens=tokens, compactions=tally.compactions))
    return tuple(turns)


def _reply(request: ModelRequest) -> Message:
    return Message.assistant(f"Noted. I know {len(_facts(request))} doors. {_REMARK}")


def _summary(request: ModelRequest) -> str:
    facts = sorted(_facts(request), key=lambda fact: int(fact[0]))
    return "What was said: " + "; ".join(f"door {door} opens with {code}" for door, code in facts)


def _facts(request: ModelRequest) -> set[tuple[str, str]]:
    return set(_FACT.findall(" ".join(str(message.get("content")) for message in request.messages)))


def _table(without: DemoReport, with_it: DemoReport) -> Table:
    table = Table(title=f"The same conversation of {TURNS} turns in a window of {WINDOW:,} tokens, run twice")
    table.add_column("turn", justify="right")
    for side in ("without", "with compaction"):
        table.add_column(side, justify="right", no_wrap=True)
        table.add_column("window", no_wrap=True)
    table.add_column("compactions", justify="right", no_wrap=True)
    for number, turn in enumerate(with_it.turns):
        other = without.turns[number] if number < len(without.turns) else None
        table.add_row(str(number + 1), *_cells(other), *_cells(turn), str(turn.compactions))
    return table


def _cells(turn: Turn | None) -> tuple[str, Text]:
    if turn is None:
        return "", Text("")
    if turn.died:
        return f"{turn.tokens:,}", Text("OVERFLOW", style="bold red")
    cells = round(_BAR * min(1.0, turn.tokens / WINDOW))
    return f"{turn.tokens:,}", Text("━" * cells + "─" * (_BAR - cells), style="cyan")
