"""The full agent is the loop of lesson 1 with sets of tools around it. The loop has not changed.

The problem
    Each lesson had one thing: a plan, a helper, know-how, a board, long jobs, or too small a window. Real
    work has all at once, for hours, and none may break another.

The picture
                        ┌────────────────────────────── the log ──────────────────────────────┐
    next_step ► ask ► run tools ► ask ► …                                                     │
                        │                                                                     ▼
                        ├── Todo, TaskBoard      what is to be done          kept in sight behind
                        ├── Skills               how it is done              the summary of what
                        ├── Worktrees            where it is done            a compaction hides
                        ├── Background           what runs meanwhile
                        └── scout, an agent      who finds out

How it works
    `agent` below is all of it: a model, a list of tools, and a policy. Each set knows nothing of the
    others. What they share is the log. From it each set says what must stay in sight, and with what
    priority.

    A compaction hides the older part. Behind its summary stand the todo list, the skill, the task and the
    worktree, under one budget. So the agent goes on with its work where it was.

    The scout runs as a background job. An agent that is a tool is a tool like any.

    Kill the program anywhere, and `runner.resume(id)` goes on. With `Team` in place of `Runner` there are
    many of it.

What changed
    | | lesson 12 | now |
    |---|---|---|
    | sets of tools | one at a time | all at once |
    | kept in sight | what one set says | what all say, under one budget |
    | the loop | as in lesson 1 | as in lesson 1 |

Try it
    python lessons/l13_full_agent.py
    python lessons/l13_full_agent.py --prompt "Use read_skill on 'release'."

    - With a prompt the offline model takes the place of `worker`, and calls the tools that it names.
    - Leave `Todo()` out of the tools, and its calls out of `worker`. What is kept in sight then?
    - With a real model: put OpenAIChat("…") in place of `worker()` and `finder()`; it needs to call tools.
"""

import asyncio
import subprocess
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import shorten

from agentloop import (
    Agent,
    Background,
    ChatModel,
    Compaction,
    OfflineModel,
    Runner,
    Skills,
    TaskBoard,
    Todo,
    Worktrees,
)
from agentloop.stream import CompactionEnded, MessageAdded
from agentloop.testing import Reply, ScriptedModel, calls


def full_agent(model: ChatModel, place: Path) -> Agent:
    """The idea: all of it in one value."""
    scout = Agent(finder(), instructions="Find out one thing.").as_tool("scout", "Finds out one thing.")
    return Agent(
        model,
        tools=[
            Todo(),
            TaskBoard(place / "board", owner="ada"),
            Skills(place / "skills"),
            Worktrees(place / "site"),
            Background(agent_tools=["scout"]),
            scout,
        ],
        compaction=Compaction(),
    )


WINDOW = "16k"
PROMPT = "Do the next task."
SESSION = "work"
SKILL = "---\nname: release\ndescription: How we write a release note.\n---\nOne line. No adjectives."
TODO = ("read the changes", "write the note", "bring it home")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What calls were answered, what stood behind the summary, the note, and the state of its task."""

    results: tuple[str, ...]
    kept: str
    note: str
    task: str


def finder() -> ChatModel:
    """The scout's model."""
    return ScriptedModel(["The newest version is 4."] * 9)


def plan(done: int) -> Reply:
    """The call that writes the todo list once so many items are done."""
    states = ["completed"] * done + ["in_progress"] + ["pending"] * len(TODO)
    items = [{"content": each, "status": state} for each, state in zip(TODO, states, strict=False)]
    return calls(todo_write={"items": items[: len(TODO)]})


def worker() -> ChatModel:
    """A model that knows its trade."""
    note = {"path": "note.txt", "content": "Version 4: tea is served hot.\n"}
    return ScriptedModel(
        [
            calls(task_claim={}, read_skill={"name": "release"}, worktree_enter={"name": "note"}),
            plan(0),
            calls(run_in_background={"tool": "scout", "arguments": {"task": "Which version is the newest?"}}),
            calls(read_file={"path": "changes.txt"}),
            calls(compact={"focus": "the release note"}),
            plan(1),
            calls(write_file=note),
            plan(2),
            calls(worktree_merge={"name": "note"}),
            plan(3),
            calls(task_complete={"task_id": 1, "result": "The note is home."}),
            "The release note stands.",
        ],
        window=WINDOW,
    )


def prepare(place: Path) -> None:
    """A skill, and a repository with a file that is long."""
    files = {"skills/release/SKILL.md": SKILL, "site/changes.txt": "Tea is served hot now, not warm.\n" * 500}
    for name, text in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text, "utf-8")
    you = ("-c", "user.name=You", "-c", "user.email=you@localhost")
    for words in ("init -q -b main", "add .", "commit -q -m Begin"):
        subprocess.run(["git", *you, *words.split()], cwd=place / "site", check=True)


async def lesson(model: ChatModel, prompt: str) -> Shown:
    """One run of the agent with everything."""
    with TemporaryDirectory(prefix="agentloop-lesson-") as folder:
        place = Path(folder)
        prepare(place)
        board = TaskBoard(place / "board", owner="ada")
        await board.add("Write the release note")
        results: list[str] = []
        print(f"> {prompt}")
        async with Runner(full_agent(model, place), transcripts=None) as runner:
            async for event in runner.stream(prompt, session_id=SESSION):
                if isinstance(event, MessageAdded) and event.message.role == "tool":
                    results.append(event.message.text)
                    first, *more = event.message.text.splitlines()
                    told = (first, *(line for line in more if line.startswith("[Reminder")))
                    print("\n    ".join(f"  {shorten(line, 90, placeholder=' …')}" for line in told))
                elif isinstance(event, CompactionEnded):
                    print(f"  compaction: {event.status}, {event.tokens_after:,} tokens are left")
            pinned = [getattr(record.event, "pinned", "") for record in await runner.events(SESSION)]
        (task,) = await board.tasks()
        note = read(place / "site" / "note.txt")
    kept = next((each for each in pinned if each), "")
    print(f"\nkept in sight behind the summary\n{kept or '(nothing)'}")
    print(f"\nthe board: {task.subject}, {task.status}\nthe repository: {note or 'no note'}")
    return Shown(results=tuple(results), kept=kept, note=note, task=task.status)


def read(path: Path) -> str:
    """The file's text; nothing where there is none."""
    return path.read_text("utf-8").strip() if path.exists() else ""


def main(prompt: str | None = None) -> Shown:
    """Run the lesson; a `prompt` goes to the offline model, which calls the tools that it names."""
    return asyncio.run(lesson(OfflineModel() if prompt else worker(), prompt or PROMPT))


if __name__ == "__main__":
    options = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    options.add_argument("--prompt", help="what to ask instead of the lesson's own prompt")
    main(options.parse_args().prompt)
