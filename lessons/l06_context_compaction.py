"""What the model sees is a view of the log. When that is too large, the view changes, not the log.

The problem
    Each request carries the whole conversation, and a model takes only so many tokens: its window. An agent
    that reads files fills it in minutes. Then the server refuses the request and the work is over. Whoever
    deletes the oldest messages to go on has lost what was asked and what was found.

The picture
    the log: everything, for ever            the context: what the model sees now
    ┌───┬───┬───┬───┬───┬───┬───┬───┐
    │ 1 │ 2 │ 3 │ 4 │ 5 │ 6 │ 7 │ 8 │  ───►  1  2  3  4  5  6  7  8
    └───┴───┴───┴───┴───┴───┴───┴───┘
      layer 1, micro: old results            1  2  3~ 4  5~ 6  7  8     3 and 5 are shown shortened
      layer 2, auto: a threshold             1  [summary of 2-6]  7  8  a transcript is saved first
      layer 3, compact: the model's wish     1  [summary of 2-7]  8     the same, at a good moment
      undo                                   1  2  3~ 4  5~ 6  7  8     one more record; nothing was lost

How it works
    1. Before each request old tool results are cleared. They keep their place and their first characters,
       with a note of how to get the rest. No model is asked. It is done in batches: each change of an old
       message makes a provider's prompt cache worthless from there.
    2. When the next request would cross the threshold, the full history is saved to a transcript. Then a
       model writes a summary of the older part. Where it is enough to shorten more old results, no more is
       done: 26 messages stay 26. The summary stands in their place as a user message, which begins with
       `[Conversation compressed. Transcript: <file name>]`. What is recent stays as it is. A call and its
       results are never parted, and the newest request is never hidden.
    3. The model is offered the tool `compact(focus=…)`, since it knows best when a part of the work is
       done. The stand-in follows rules and has no such sense, so here a second prompt tells it to.

    Each compaction is one record in the log: "these positions are represented by this text from now on". So
    `undo` is one more record, and the context of before is back.

What changed
    | | lesson 5 | now |
    |---|---|---|
    | compaction came | when we called `compact` | by itself, in three layers |
    | the agent has | tools | also `compaction=Compaction()`, which is the default anyway |
    | the loop | | did not change: room is made right before the model is asked |

Try it
    python lessons/l06_context_compaction.py
    python lessons/l06_context_compaction.py --prompt "Read red_kale.py and say what it does."

    - One file fits: nothing is compacted until the second prompt wishes it.
    - Set WINDOW to "5k" and to "128k"; pass `Compaction(micro=None)`; pass `compaction=None` and see it
      end.
    - With a real model: add --model gpt-5-mini. It needs to call tools; WINDOW makes its window as small as
      here.
"""

import asyncio
import json
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from agentloop import Agent, ChatModel, Compaction, Message, OfflineModel, OpenAIChat, Runner
from agentloop.sessions import transcripts_in
from agentloop.stream import (
    AnyStreamEvent,
    CompactionEnded,
    CompactionStarted,
    MessageAdded,
    ResultsCleared,
    RunEnded,
)
from agentloop.workspace import workspace_tools


async def lesson(model: ChatModel, prompt: str) -> "Shown":
    """Read more files than fit, then ask for a compaction, list what was saved, and undo."""
    with TemporaryDirectory(prefix="agentloop-lesson-") as place:
        garden, saved = Path(place, "garden"), Path(place, "transcripts")
        plant(garden)
        agent = Agent(model, tools=workspace_tools(garden), compaction=Compaction())
        async with Runner(agent, transcripts=saved) as runner:
            print(f"{len(PLANTS)} files, and a window of {model.window} tokens")
            events = [*await watch(runner, prompt), *await watch(runner, WISH)]
            compacted = (await runner.status(SESSION)).tokens
            await runner.undo(SESSION)
            undone = (await runner.status(SESSION)).tokens
        shown = Shown(
            events=tuple(events),
            transcript=next(map(read, transcripts_in(saved)), None),
            tokens_compacted=compacted,
            tokens_undone=undone,
        )
    report(shown)
    return shown


PROMPT = "Read every Python file in this folder and say what each one does."
WISH = "Use `compact` with focus on the plants."
WINDOW = "7k"
SESSION = "garden"

PLANTS = tuple(
    f"{colour}_{plant}"
    for colour in ("black", "red", "white")
    for plant in ("bean", "beet", "carrot", "currant", "kale", "mulberry", "onion", "radish")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """A transcript as it lay on disc: its name, and its lines, one message each."""

    name: str
    lines: tuple[str, ...]

    def is_whole(self, said: Sequence[Message]) -> bool:
        """Whether it holds all that was said up to the last compaction, untouched."""
        history = [message.to_openai() for message in said[: len(self.lines)]]
        return [json.loads(line) for line in self.lines] == history


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What was seen of both runs, what was saved, and the size of the context around the undo."""

    events: tuple[AnyStreamEvent, ...]
    transcript: Transcript | None
    tokens_compacted: int
    tokens_undone: int

    @property
    def said(self) -> tuple[Message, ...]:
        """Every message of the session, whole, in the order of the log."""
        return tuple(event.message for event in self.events if isinstance(event, MessageAdded))


def plant(garden: Path) -> None:
    """Write the files: each says what it does, then goes on for longer than anybody needs."""
    garden.mkdir()
    for name in PLANTS:
        says = f'"""Grows the {name.replace("_", " ")}, from the seed to the kitchen."""'
        weeks = (f'WEEK_{week} = "Water it, look for snails, write down its height."' for week in range(14))
        (garden / f"{name}.py").write_text("\n".join((says, "", *weeks)), "utf-8")


async def watch(runner: Runner, prompt: str) -> list[AnyStreamEvent]:
    """One run; what happens to the context is shown as it happens."""
    print(f"\n> {prompt}")
    events = []
    async for event in runner.stream(prompt, session_id=SESSION):
        events.append(event)
        show(event)
    return events


def show(event: AnyStreamEvent) -> None:
    """The events of the three layers, and the end."""
    match event:
        case ResultsCleared(positions=positions, tokens_before=before, tokens_after=after):
            print(f"  {'1 micro':<10} {len(positions)} old results are shown shortened")
            print(f"             {before:,} → {after:,} tokens")
        case CompactionStarted(reason=reason, why=why):
            layer = "3 compact" if reason == "tool" else "2 auto"
            print(f"  {layer:<10} {why}")
        case CompactionEnded(tokens_before=before, tokens_after=after) as end:
            change = f"{end.messages_before} → {end.messages_after} messages"
            print(f"             {before:,} → {after:,} tokens, {change}: {end.status}")
        case RunEnded(output=output):
            first, *others = output.splitlines() or [""]
            print(f"  {'answer':<10} {first}" + (f" … and {len(others)} lines more" if others else ""))


def read(path: Path) -> Transcript:
    """The transcript at that path."""
    return Transcript(name=path.name, lines=tuple(path.read_text("utf-8").splitlines()))


def report(shown: Shown) -> None:
    """The transcript, then the undo."""
    print(f"\ntranscript: one, which grows; the log holds {len(shown.said)} messages")
    if transcript := shown.transcript:
        state = "all there was" if transcript.is_whole(shown.said) else "not whole!"
        print(f"  {transcript.name}  {len(transcript.lines)} messages, {state}")
    print("\nundo: the newest compaction is taken back")
    print(f"  {shown.tokens_compacted:,} → {shown.tokens_undone:,} tokens in the context")


def main(prompt: str | None = None, model: ChatModel | None = None) -> Shown:
    """Run the lesson; `prompt` is asked instead of its own, and `model` instead of the stand-in."""
    return asyncio.run(lesson(model or OfflineModel(window=WINDOW), prompt or PROMPT))


if __name__ == "__main__":
    options = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    options.add_argument("--prompt", help="what to ask instead of the lesson's own prompt")
    options.add_argument("--model", metavar="NAME", help="a real model, such as gpt-5-mini")
    given = options.parse_args()
    main(given.prompt, OpenAIChat(given.model, window=WINDOW) if given.model else None)
