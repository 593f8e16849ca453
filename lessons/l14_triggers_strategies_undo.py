"""When, what goes, and what stands instead: three small values, and any of them can be yours.

The problem
    Lesson 6 took the default: near the threshold the older part becomes a summary. A chat wants its newest
    turns and no bill for summaries. A long job wants to keep what was decided. Which policy is right is
    your choice. A wrong choice must not cost what was said.

The picture
    trigger(context, budget)      strategy(context, budget)                 instead
    ────────────────────────      ─────────────────────────                 ───────
    "9 turns > 8"            ──►  cover these positions, keep those    ──►  a summary, a digest, a note

    the log      1 2 3 4 5 6 7 8 9      one more record for a compaction, one more for the undo
    the context  [digest of 1-6] 7 8 9  ── undo ──►  1 2 3 4 5 6 7 8 9

How it works
    A trigger is a function of a context and a budget. It gives `Fired(why)`, or None. `many_turns` is one.
    `agentloop.triggers` has others, and `any_of`, `all_of` and `not_` combine them.

    A strategy gives a `Cut`: what is covered, and what stands instead. `drop_the_older_half` is one.
    `foldable` says what may go, so that no call is parted from its result. `replaced_by(strategy,
    Digest())` takes the cut of one and puts a digest in its place.

    A policy puts them together: `Compaction(trigger=…, strategy=…)`. `runner.compact(id, strategy=…)` takes
    another strategy this once. `runner.preview(id, strategy=…)` says what it would do, and does nothing.

    Nothing is deleted. `undo` adds one record, and the context is what it was, byte for byte.

What changed
    | | lesson 13 | now |
    |---|---|---|
    | when | at a share of the window | a function says when |
    | what goes | all but the newest part | a function says what |
    | what stands instead | a summary by a model | a digest or a note, without a model |

Try it
    python lessons/l14_triggers_strategies_undo.py
    python lessons/l14_triggers_strategies_undo.py --prompt "What is the code of the mill?"

    - Add `SlidingWindow(4)`, or a strategy of yours, to `STRATEGIES`.
    - With a real model: put OpenAIChat("…") in place of `OfflineModel()`; it needs nothing but words.
"""

import asyncio
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from dataclasses import dataclass

from agentloop import Agent, Compaction, OfflineModel, Runner
from agentloop.context import Budget, Context
from agentloop.strategies import (
    Cut,
    Digest,
    KeepRecentTurns,
    Note,
    Strategy,
    TurnWindow,
    cut_of,
    foldable,
    replaced_by,
)
from agentloop.triggers import Fired


def many_turns(context: Context, budget: Budget) -> Fired | None:
    """A trigger: compact when users spoke more than eight times in what is seen."""
    turns = sum(seen.message.role == "user" for seen in context.visible)
    return Fired(f"{turns} turns > 8") if turns > 8 else None


def drop_the_older_half(context: Context, budget: Budget) -> Cut | None:
    """A strategy: the older half of what may go, a note instead."""
    units = foldable(context, budget)
    return cut_of(context, units[: len(units) // 2], Note()) if len(units) > 1 else None


STRATEGIES: dict[str, Strategy] = {
    "drop_the_older_half": drop_the_older_half,
    "the newest 3 turns": TurnWindow(3),
    "3 turns, a digest": replaced_by(KeepRecentTurns(3), Digest()),
}
SESSION = "house"
QUESTION = "What is the code of the cellar?"
DOORS = ("attic", "cellar", "shed", "stable", "tower", "gate", "barn", "mill")
TALK = (
    "I tell you the codes of our doors.",
    *(f"The code of the {door} is {37 * at + 1000}. " + "It is old. " * 25 for at, door in enumerate(DOORS)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One strategy: sizes before, after and after the undo, and the answer with it and after the undo."""

    name: str
    sizes: tuple[int, int, int]
    answer: str
    undone: str


async def by_trigger() -> str:
    """A policy of the two functions above; gives why it compacted."""
    policy = Compaction(trigger=many_turns, strategy=drop_the_older_half)
    async with Runner(Agent(OfflineModel(), compaction=policy), transcripts=None) as runner:
        for text in TALK:
            result = await runner.run(text, session_id=SESSION)
    return ", ".join(f"{each.why} ({each.status})" for each in result.compactions)


async def tried(name: str, question: str) -> Shown:
    """One session, compacted by that strategy, asked, and taken back."""
    async with Runner(Agent(OfflineModel()), transcripts=None) as runner:
        for text in TALK:
            await runner.run(text, session_id=SESSION)
        done = await runner.compact(SESSION, strategy=STRATEGIES[name])
        answer = (await runner.run(question, session_id=SESSION)).output
        await runner.undo(SESSION)
        undone = (await runner.status(SESSION)).tokens
        again = (await runner.run(question, session_id=SESSION)).output
    sizes = (done.tokens_before, done.tokens_after, undone)
    return Shown(name=name, sizes=sizes, answer=answer, undone=again)


async def lesson(question: str) -> tuple[Shown, ...]:
    """The trigger, then each strategy on the same talk."""
    print(f"a trigger of our own\n  {await by_trigger()}\n\n> {question}")
    shown = []
    for name in STRATEGIES:
        each = await tried(name, question)
        before, after, undone = each.sizes
        print(f"{name}\n  {before:,} → {after:,} tokens, and {undone:,} after the question and the undo")
        print(f"  compacted:  {each.answer}\n  undone:     {each.undone}")
        shown.append(each)
    return tuple(shown)


def main(prompt: str | None = None) -> tuple[Shown, ...]:
    """Run the lesson; `prompt` is asked instead of its own question."""
    return asyncio.run(lesson(prompt or QUESTION))


if __name__ == "__main__":
    options = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    options.add_argument("--prompt", help="what to ask instead of the lesson's own question")
    main(options.parse_args().prompt)
