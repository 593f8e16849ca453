"""`demo`: one conversation, run twice, without compaction and with it. No key, no network."""

import asyncio
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import aclosing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from agentloop.cli import settings
from agentloop.cli.files import whole_file
from agentloop.cli.process import before_leaving
from agentloop.cli.progress import RunFigures
from agentloop.cli.terminal import run_to_end
from agentloop.compaction import Compaction
from agentloop.errors import ContextOverflowError, UsageError
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

_LEFT, _TOP, _WIDTH, _HEIGHT = 70, 96, 640, 240
_RIGHT, _BOTTOM = _LEFT + _WIDTH, _TOP + _HEIGHT

_STYLE = """\
text { font: 14px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2328 }
.card { fill: #ffffff; stroke: #d1d9e0 }
.title { font-size: 17px; font-weight: 600 }
.small { font-size: 12px; fill: #59636e }
.grid { stroke: #d1d9e0; stroke-width: 1 }
.window { stroke: #59636e; stroke-width: 2; stroke-dasharray: 7 5 }
.reserve { fill: #59636e; fill-opacity: 0.1 }
.line { fill: none; stroke-width: 3; stroke-linejoin: round; stroke-linecap: round }
.without { stroke: #cf222e } text.without { stroke: none; fill: #cf222e; font-weight: 600 }
.with { stroke: #0969da } text.with { stroke: none; fill: #0969da; font-weight: 600 }
.fold { stroke-dasharray: 2 6 }
circle.with { fill: #ffffff; stroke-width: 2.5 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc }
  .card { fill: #0d1117; stroke: #3d444d }
  .small { fill: #9198a1 }
  .grid { stroke: #3d444d }
  .window { stroke: #9198a1 }
  .reserve { fill: #9198a1; fill-opacity: 0.15 }
  .without { stroke: #ff7b72 } text.without { fill: #ff7b72 }
  .with { stroke: #58a6ff } text.with { fill: #58a6ff }
  circle.with { fill: #0d1117 }
}
"""


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
    def tokens(self) -> Sequence[int]:
        """Those of each request."""
        return [turn.tokens for turn in self.turns]

    @property
    def survived(self) -> int:
        """How many turns were answered."""
        return sum(not turn.died for turn in self.turns)


@click.command()
@click.option("--svg", "path", metavar="FILE", help="Write a picture of it there, as SVG.")
def demo(path: str | None) -> int:
    """Show an overflow, and compaction; needs no key.

    The same scripted conversation twice, both really run.
    """
    if path == "":
        raise UsageError("--svg is empty: name a file, or leave it out")
    # What cannot be written is known before the demonstration runs.
    with nullcontext() if path is None else whole_file(settings.read_path(path)) as file:
        without, with_it = run_to_end(_run_both())
        if file is not None:
            file.write(draw(without, with_it))
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


def draw(without: DemoReport, with_it: DemoReport) -> str:
    """The two runs as an SVG, readable on a light and on a dark page."""
    sheet = _Sheet(requests=max(len(without.turns), len(with_it.turns)))
    return "\n".join([*_frame(sheet), *_folded(sheet, with_it), *_grown(sheet, without), "</svg>", ""])


async def _run_both() -> tuple[DemoReport, DemoReport]:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sheet:
    requests: int

    def x(self, index: int) -> float:
        return round(_LEFT + _WIDTH * index / max(1, self.requests - 1), 1)

    def y(self, tokens: float) -> float:
        return round(_BOTTOM - _HEIGHT * tokens / WINDOW, 1)

    def line(self, tokens: Sequence[int], first: int, kind: str) -> str:
        points = " ".join(f"{self.x(first + index)},{self.y(each)}" for index, each in enumerate(tokens))
        return f'<polyline class="line {kind}" points="{points}"/>'


def _frame(sheet: _Sheet) -> Iterator[str]:
    yield '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 400" width="760" height="400" role="img">'
    yield "<title>One conversation, without compaction and with it: tokens over requests</title>"
    yield f"<style>\n{_STYLE}</style>"
    yield '<rect class="card" x="0.5" y="0.5" width="759" height="399" rx="8"/>'
    yield _text(20, 30, "The same conversation, without compaction and with it", "title")
    yield _text(20, 52, "Tokens of each request. Both runs are real: agentloop demo", "small")
    room = sheet.y(WINDOW - RESERVE) - _TOP
    yield f'<rect class="reserve" x="{_LEFT}" y="{_TOP}" width="{_WIDTH}" height="{room}"/>'
    yield _text(_LEFT + 8, _TOP + 20, "kept free for the answer", "small")
    for tokens in range(0, WINDOW, WINDOW // 4):
        yield _level(sheet.y(tokens), "grid")
        yield _text(_LEFT - 8, sheet.y(tokens) + 4, f"{tokens:,}", "small", "end")
    yield _level(_TOP, "window")
    yield _text(_LEFT - 8, _TOP + 4, f"{WINDOW:,}", "small", "end")
    yield _text(_LEFT, _TOP - 8, "the model’s window")
    for index in (0, *range(3, sheet.requests, 4)):
        yield _text(sheet.x(index), _BOTTOM + 20, str(index + 1), "small", "middle")
    yield _text(_RIGHT, _BOTTOM + 44, "requests", "small", "end")


def _grown(sheet: _Sheet, report: DemoReport) -> Iterator[str]:
    last = len(report.turns) - 1
    x, y = sheet.x(last), sheet.y(report.tokens[last])
    yield sheet.line(report.tokens, 0, "without")
    if report.turns[-1].died:
        yield f'<path class="line without" d="M{x - 7} {y - 7} l14 14 m0 -14 l-14 14"/>'
        yield _text(x + 16, y + 5, "without: overflow, the end", "without")


def _folded(sheet: _Sheet, report: DemoReport) -> Iterator[str]:
    counts = [turn.compactions for turn in report.turns]
    starts = [0, *(at for at in range(1, len(counts)) if counts[at] > counts[at - 1])]
    for start, end in zip(starts, [*starts[1:], len(counts)], strict=True):
        if start:
            yield sheet.line(report.tokens[start - 1 : start + 1], start - 1, "with fold")
        yield sheet.line(report.tokens[start:end], start, "with")
    for start in starts[1:]:
        x, y = sheet.x(start), sheet.y(report.tokens[start])
        yield f'<circle class="with" cx="{x}" cy="{y}" r="5"/>'
        yield _text(x, y + 24, "compacted", "with", "end" if start > sheet.requests - 3 else "middle")
    yield _text(_LEFT + 8, _BOTTOM + 44, f"with: all {len(report.tokens)} requests are answered", "with")


def _level(y: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{_LEFT}" y1="{y}" x2="{_RIGHT}" y2="{y}"/>'


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}">{words}</text>'
