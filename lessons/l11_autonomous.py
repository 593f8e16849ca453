"""Nobody hands out the work: whoever is idle takes the next free task, and no two take the same.

The problem
    A lead that hands out each task is a bottleneck, and the work stops where it stops. But where all take
    what they like, two do the same, and one begins what is not ready.

The picture
    the board                    two programs, one store
    ─────────                    ───────────────────────
    1 Dig                        program 1: ada, bob      program 2: ada, bob
    2 Fetch water                       │                        │
    3 Plant     after 1                 └── whoever is idle ─────┘
    4 Water     after 2, 3              claim ► do ► complete ► claim ► …
    5 Sweep
    6 Rest      after 4, 5              all done: both programs end

How it works
    A member of a team that has nothing to read claims the oldest task that is free. It is told the task,
    and the results of the tasks before. Its answer is the result. Then it claims again.

    A claim is a compare-and-swap, as in lesson 7, in whatever process. A member works in one process at a
    time: whoever begins its turn takes a lease. So a program more is more hands, and never the same work
    twice. What a program that died was doing, the next one goes on with.

    `run` ends when nobody is at work anywhere, nothing is unread, and no task is free.

What changed
    | | lesson 10 | now |
    |---|---|---|
    | who begins | somebody writes to a member | an idle member claims |
    | programs | one | as many as you like, on one store |
    | the order | by letters | by what a task is blocked by |

Try it
    python lessons/l11_autonomous.py
    python lessons/l11_autonomous.py --prompt "Mend the fence"

    - With a prompt that is one more task.
    - Give `workers=["ada"]` to `Team`. Who does what then?
    - With a real model: put OpenAIChat("…") in place of `gardener`; it needs nothing but words.
"""

import asyncio
import re
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory

from agentloop import Agent, ChatModel, ModelRequest, Task, Team
from agentloop.testing import ScriptedModel


def program(store: str) -> Team:
    """What each program makes: the same team, on the same store."""
    return Team({"ada": Agent(gardener()), "bob": Agent(gardener())}, store=store, transcripts=None)


async def lesson(more: str | None) -> "Shown":
    """Put the tasks on the board, and let two programs work them off at once."""
    with TemporaryDirectory(prefix="agentloop-lesson-") as place:
        store = f"sqlite:///{place}/garden.db"
        first, second = program(store), program(store)
        for subject, blocked_by in (*TASKS, *([(more, ())] if more else [])):
            await first.board.add(subject, blocked_by=blocked_by)
        done = [len(results) for results in await asyncio.gather(first.run(), second.run())]
        tasks = tuple(await first.board.tasks())
    for task in tasks:
        after = f" (after {', '.join(map(str, task.blocked_by))})" if task.blocked_by else ""
        print(f"{task.id} {task.subject}{after}: {task.owner}. {task.result}")
    print(f"\nruns in all programs: {sum(done)}, tasks: {len(tasks)}")
    return Shown(tasks=tasks, runs=sum(done))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The tasks at the end, and how many runs both programs made."""

    tasks: tuple[Task, ...]
    runs: int


TASKS: Sequence[tuple[str, Sequence[int]]] = (
    ("Dig", ()),
    ("Fetch water", ()),
    ("Plant", (1,)),
    ("Water", (2, 3)),
    ("Sweep", ()),
    ("Rest", (4, 5)),
)


def gardener() -> ChatModel:
    """A model that does whatever it is given, and says after what."""

    def step(request: ModelRequest) -> str:
        text = request.messages[-1]["content"]
        before = re.findall(r"^Task \d+, ([^:]+):", text, re.MULTILINE)
        return f"Done, after {' and '.join(before)}." if before else "Done."

    return ScriptedModel([step] * 20)


def main(prompt: str | None = None) -> Shown:
    """Run the lesson; `prompt` is one more task."""
    return asyncio.run(lesson(prompt))


if __name__ == "__main__":
    options = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    options.add_argument("--prompt", help="one more task")
    main(options.parse_args().prompt)
