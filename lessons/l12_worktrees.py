"""Two tasks in one folder spoil each other's files: give each a copy, and bring the copies together.

The problem
    One agent edits a file while another one runs its tests. What does the test speak of? Git knows the
    answer: a worktree, a second folder of the same repository, on a branch of its own.

The picture
    tea/                      main ──●────────────●────────────●     what you see
    ├── tea.txt                      │            ▲ merge      ▲ merge, once the conflict is mended
    └── .worktrees/                  │            │            │
        ├── milk/    agentloop/milk ─┼──● edit ───┘            │
        └── mint/    agentloop/mint ─┴──● edit ── conflict ──● edit

How it works
    `Worktrees(repository)` is a set of tools. `worktree_enter(name)` makes a worktree, or goes back to it.
    From then on the file tools of that session see this folder alone: lesson 2's sandbox, one for each
    task.

    `worktree_merge` commits what is there, and brings it to the branch that you have checked out. Where
    both have changed the same lines, nothing of yours is touched. The conflict is met in the worktree: its
    files are named, the model edits them there, and merges again.

    `worktree_remove` refuses while something is not committed. What was merged stays in the history.

    A sub-agent has a session of its own, and so a worktree of its own. Here two sessions play the two
    tasks.

What changed
    | | lesson 11 | now |
    |---|---|---|
    | tasks share | all files | the history alone |
    | two edits of one line | the last one wins | a conflict, which somebody mends |
    | the file tools see | one folder, always | the worktree that was entered |

Try it
    python lessons/l12_worktrees.py
    python lessons/l12_worktrees.py --prompt "worktree_list()"

    - With a prompt the offline model comes last, and calls the tools that it names.
    - Let only milk write. What is the history then?
    - With a real model: put OpenAIChat("…") in place of `cook` and `mender`; it needs to call tools.
"""

import asyncio
import subprocess
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from agentloop import Agent, OfflineModel, Runner, ToolCall, Worktrees
from agentloop.stream import MessageAdded
from agentloop.testing import Reply, ScriptedModel, calls


async def step(runner: Runner, name: str, prompt: str) -> tuple[str, ...]:
    """One run of a task in its own session; gives what its calls were answered."""
    print(f"{name}: {prompt}")
    answers = []
    async for event in runner.stream(prompt, session_id=name):
        if isinstance(event, MessageAdded) and event.message.role == "tool":
            answers.append(event.message.text)
            print("\n".join(f"  {line}" for line in event.message.text.splitlines()))
    return tuple(answers)


async def lesson(prompt: str | None) -> "Shown":
    """Two tasks that change the same line of the same file, each in a worktree of its own."""
    with TemporaryDirectory(prefix="agentloop-lesson-") as place:
        tea = repository(Path(place, "tea"))
        trees = Worktrees(tea)
        milk, mint = Agent(cook("milk"), tools=[trees]), Agent(mender("mint"), tools=[trees])
        async with Runner(milk, transcripts=None) as first, Runner(mint, transcripts=None) as second:
            for runner, name in ((first, "milk"), (second, "mint")):
                await step(runner, name, f"Write how tea is made with {name}.")
            meanwhile = text(tea)
            merged = [
                await step(runner, name, "Bring it home.")
                for runner, name in ((first, "milk"), (second, "mint"))
            ]
        if prompt:
            async with Runner(Agent(OfflineModel(), tools=[trees]), transcripts=None) as runner:
                await step(runner, "offline", prompt)
        print(f"\ntea.txt meanwhile:  {meanwhile!r}\ntea.txt at the end: {text(tea)!r}")
        history = tuple(git(tea, "log", "--format=%s").splitlines())
        print("history, the newest first: " + " · ".join(history))
        return Shown(merged=merged, meanwhile=meanwhile, at_the_end=text(tea), history=history)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What both were told as they merged, the file before and after that, and the history."""

    merged: Sequence[tuple[str, ...]]
    meanwhile: str
    at_the_end: str
    history: tuple[str, ...]


def writes(line: str) -> list[ToolCall]:
    """The call that writes the file with this as its second line."""
    return calls(write_file={"path": "tea.txt", "content": f"warm the pot\n{line}\n"})


def cook(name: str, *more: Reply) -> ScriptedModel:
    """A model that writes in its worktree, and merges when it is told to."""
    merge = calls(worktree_merge={"name": name})
    begin = (calls(worktree_enter={"name": name}), writes(f"pour, with {name}"), "It is written.")
    return ScriptedModel([*begin, merge, *more, "It is home."])


def mender(name: str) -> ScriptedModel:
    """One that meets a conflict, looks at the file, writes what both meant, and merges again."""
    look, merge = calls(read_file={"path": "tea.txt"}), calls(worktree_merge={"name": name})
    return cook(name, look, writes("pour, with milk or mint"), merge)


def repository(folder: Path) -> Path:
    """A git repository with one file."""
    folder.mkdir()
    (folder / "tea.txt").write_text("warm the pot\npour\n", "utf-8")
    for words in ("init -q -b main", "add .", "commit -q -m Begin"):
        git(folder, *words.split())
    return folder


def text(folder: Path) -> str:
    """The file as it is for you."""
    return (folder / "tea.txt").read_text("utf-8")


def git(folder: Path, *words: str) -> str:
    """What git says there, whoever you are."""
    you = ("-c", "user.name=You", "-c", "user.email=you@localhost")
    done = subprocess.run(["git", *you, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def main(prompt: str | None = None) -> Shown:
    """Run the lesson; a `prompt` goes to the offline model at the end, which calls what it names."""
    return asyncio.run(lesson(prompt))


if __name__ == "__main__":
    options = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    options.add_argument("--prompt", help="what to ask at the end of an agent with the same worktrees")
    main(options.parse_args().prompt)
