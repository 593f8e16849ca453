"""What is to be done stands on disc, in order: any program can take the next piece and go on.

The problem
    A todo list lives in one conversation. Work that takes days outlives it, and others are to help. They
    must know what can be begun now, what has to wait, and what somebody else does already.

The picture
    garden/                                           the board as the model sees it
    ├── task_1.json   {"subject": "Dig", …}           1 Dig
    ├── task_2.json   {… "blocked_by": [1]}           2 Plant   waits for 1
    └── task_3.json   {… "blocked_by": [2]}           3 Water   waits for 2

    ada: task_add, task_add, task_add                 then ada's program ends
    bob: task_claim ► 1   task_complete(1) ► 2 is free   task_claim ► 2 …   no task is free

How it works
    `TaskBoard(folder, owner="ada")` is a set of tools, as `Todo` was. Each task is a small file of JSON.
    You can read it, and so can another program. A task is free once all that it is `blocked_by` is
    completed.

    A claim is a compare-and-swap. Who takes a task that was free is sure that nobody took it meanwhile. So
    two agents never do the same. Each change is made whole or not at all, whatever is killed.

    What came of a task is its result. Who claims the next one is told the results that it waited for.

    `board.of("bob")` is the same board for another owner. In place of a folder you can give a store. On
    PostgreSQL that is shared by many machines.

What changed
    | | lesson 6 | now |
    |---|---|---|
    | the plan stands | in the log of a session (`Todo`) | in a folder, for all |
    | order | as it is written | by what a task is blocked by |
    | who works | one agent | whoever claims |

Try it
    python lessons/l07_task_board.py
    python lessons/l07_task_board.py --prompt "Use task_list."

    - With a prompt the offline model takes the place of `worker`, and calls the tools that it names.
    - Let "Water" be blocked by 1 alone. Let two workers run at once, by `asyncio.gather`.
    - With a real model: put OpenAIChat("…") in place of `planner()` and `worker()`; it needs to call tools.
"""

import asyncio
import re
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from agentloop import Agent, ChatModel, ModelRequest, OfflineModel, Runner, Task, TaskBoard, ToolCall
from agentloop.testing import ScriptedModel, calls


async def lesson(model: ChatModel, prompt: str) -> "Shown":
    """One agent plans and is gone; another one, which knows the folder alone, does what is free."""
    with TemporaryDirectory(prefix="agentloop-lesson-") as place:
        board = TaskBoard(place, owner="ada")
        planned = await run(Agent(planner(), tools=[board]), "Plan the garden.")
        files = names(Path(place))
        print(f"on disc: {', '.join(files)}")
        done = await run(Agent(model, tools=[board.of("bob")]), prompt)
        return Shown(files=files, planned=planned, done=done, tasks=tuple(await board.tasks()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The files of the tasks, what both were answered by the board, and the tasks at the end."""

    files: tuple[str, ...]
    planned: Sequence[str]
    done: Sequence[str]
    tasks: tuple[Task, ...]


PROMPT = "Do what is free, until nothing is."
FOUND = {"Dig": "Clay below.", "Plant": "Beans by the wall.", "Water": "Two cans."}


def names(folder: Path) -> tuple[str, ...]:
    """The files of the tasks."""
    return tuple(sorted(path.name for path in folder.glob("task_*.json")))


def planner() -> ChatModel:
    """A model that plans three tasks, each behind the one before."""
    return ScriptedModel(
        [
            calls(task_add={"subject": "Dig", "description": "By the wall."}),
            calls(task_add={"subject": "Plant", "blocked_by": [1]}),
            calls(task_add={"subject": "Water", "blocked_by": [2]}),
            "The plan stands.",
        ]
    )


def worker() -> ChatModel:
    """A model that claims, does what it has claimed, and claims again."""

    def step(request: ModelRequest) -> str | list[ToolCall]:
        newest = request.messages[-1]
        if newest["role"] == "tool" and newest["content"].startswith("No task is free"):
            return "All is done."
        if found := re.match(r"\[Your task (\d+)\] (\w+)", newest["content"]):
            return calls(task_complete={"task_id": int(found[1]), "result": FOUND.get(found[2], "")})
        return calls(task_claim={})

    return ScriptedModel([step] * 20)


async def run(agent: Agent, prompt: str) -> Sequence[str]:
    """One run in a session of its own; gives what the board answered."""
    print(f"> {prompt}")
    async with Runner(agent, transcripts=None) as runner:
        result = await runner.run(prompt)
    answers = [message.text for message in result.messages if message.role == "tool"]
    for text in answers:
        print("\n".join(f"  {line}" for line in text.splitlines()))
    print(f"{result.output}\n")
    return answers


def main(prompt: str | None = None) -> Shown:
    """Run the lesson; a `prompt` goes to the offline model, which calls the tools that it names."""
    return asyncio.run(lesson(OfflineModel() if prompt else worker(), prompt or PROMPT))


if __name__ == "__main__":
    options = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    options.add_argument("--prompt", help="what to ask instead of the lesson's own prompt")
    main(options.parse_args().prompt)
