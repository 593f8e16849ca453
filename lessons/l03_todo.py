"""A plan that scrolls away is no plan: the list is written down, kept in sight, and asked after.

The problem
    An agent that works in many steps says at the start what it will do. Twenty results later that plan is
    far up, or a compaction has taken it away. The agent repeats a step, leaves one out, or stops too soon.

The picture
    todo_write([…])  ──►  [x] scrape the boards        the newest list, in the log
                          [>] sand them
                          [ ] paint them
    work, work       ──►  result
                          [Reminder: the todo list was not updated for 2 steps …]     once
    a compaction     ──►  [summary of what was done]
                          [Kept in sight by your tools …]  the newest list, behind the summary

How it works
    `Todo` is a set of tools. The model writes the whole list with `todo_write`, with one item in progress
    at most. A list that breaks this is refused, with the reason. The old one stands.

    The set holds no list. The list is what the last `todo_write` in the log says. So a crash loses nothing,
    and another process goes on with it.

    Before results go into the log, the set is asked whether the model is to be reminded. It counts the
    steps since the last list. At the number that you set, one note stands behind the result.

    When a compaction hides the newest list, the set says it again, behind the summary. Until the next
    compaction that text stays the same, byte for byte, so that a provider's prompt cache still holds.

What changed
    | | lesson 2 | now |
    |---|---|---|
    | tools come | one by one | also as a set |
    | after a compaction stands | a summary | a summary, and what sets keep in sight |
    | behind a result stands | nothing | a reminder, where one is due |

Try it
    python lessons/l03_todo.py
    python lessons/l03_todo.py --prompt "Use todo_read."

    - With a prompt the offline model takes the place of `painter`. It calls `todo_read`: nothing is
      written.
    - Set `remind_after` to None, and look at the results. Leave `Todo` out, and look what a compaction
      leaves.
    - With a real model: put OpenAIChat("…") in place of `painter()`; it needs to call tools.
"""

import asyncio
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import Any

from agentloop import Agent, ChatModel, Message, OfflineModel, Runner, Todo, tool
from agentloop.testing import ScriptedModel, calls


async def lesson(model: ChatModel, prompt: str) -> "Shown":
    """A day of work, a compaction over night, and what the model sees of its list in the morning."""
    agent = Agent(model, tools=[Todo(remind_after=2), work])
    async with Runner(agent, transcripts=None) as runner:
        print(f"> {prompt}")
        result = await runner.run(prompt, session_id=SESSION)
        for talk in TALK:
            await runner.run(talk, session_id=SESSION)
        results = tuple(message.text for message in result.messages if message.role == "tool")
        report(results)
        print(f"\ncompact: {(await runner.compact(SESSION)).status}")
        result = await runner.run("Good morning.", session_id=SESSION)
    kept = kept_in(result.messages)
    print(f"\nbehind the summary\n{kept or '(nothing is open)'}\n\n{result.output}")
    return Shown(results=results, kept=kept, output=result.output)


PROMPT = "Paint the garden shed."
JOBS = ("scrape the boards", "sand them", "fill the cracks", "paint them")
TALK = ("Will it rain?", "Good night.")
SESSION = "shed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What the calls were answered, and what the model was sent of the list after the compaction."""

    results: tuple[str, ...]
    kept: str
    output: str


@tool
def work(step: str) -> str:
    """Do one step of the work."""
    return f"{step}: done. " + "The wood is dry, the sun is out, the ladder stands safe. " * 12


def plan(done: int) -> Mapping[str, Any]:
    """The list once so many jobs are done: the next one is in progress."""
    states = ["completed"] * done + ["in_progress"] + ["pending"] * len(JOBS)
    return {"items": [{"content": job, "status": state} for job, state in zip(JOBS, states, strict=False)]}


def painter() -> ScriptedModel:
    """A model that begins two jobs at once, then forgets its list until it is reminded."""
    both = {"items": [{"content": job, "status": "in_progress"} for job in JOBS[:2]]}
    return ScriptedModel(
        [
            calls(todo_write=both),
            calls(todo_write=plan(0)),
            calls(work={"step": JOBS[0]}),
            calls(work={"step": JOBS[1]}),
            calls(todo_write=plan(2)),
            calls(work={"step": JOBS[2]}),
            calls(todo_write=plan(3)),
            "The paint must wait for tomorrow.",
            "First the clouds come up from the sea, then the wind turns. " * 60,
            "Good night.",
            "Good morning. I go on with the last job: paint them.",
        ]
    )


def report(results: Sequence[str]) -> None:
    """Each result by its first words; a reminder behind it whole."""
    for text in results:
        said, _, reminder = text.partition("\n[Reminder: ")
        print("\n".join(f"  {shorten(line, 90, placeholder=' …')}" for line in said.splitlines()))
        if reminder:
            print(f"  [Reminder: {reminder}")


def kept_in(messages: Sequence[Message]) -> str:
    """What tools keep in sight; empty where it is nothing."""
    return next((each.text for each in messages if each.text.startswith("[Kept in sight")), "")


def main(prompt: str | None = None) -> Shown:
    """Run the lesson; a `prompt` goes to the offline model, which calls the tools that it names."""
    return asyncio.run(lesson(OfflineModel() if prompt else painter(), prompt or PROMPT))


if __name__ == "__main__":
    options = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    options.add_argument("--prompt", help="what to ask instead of the lesson's own prompt")
    main(options.parse_args().prompt)
