"""Some letters want a yes: before a plan is carried out, and before a colleague goes home.

The problem
    A letter can be left unanswered, and an answer may be of something else. Where the pipe is, nobody
    should dig before somebody has said yes. And who just kills an agent loses what it is in the middle of.

The picture
    ada                                      lead
    task: Dig
    ask(lead, plan, "by the pipe")   1 ───►  [1 from ada asks for a yes to a plan]
    "I wait."                                answer(1, no, "There is a pipe.")
    [2 from lead says no to 1]       ◄─── 2
    ask(lead, plan, "by the wall")   3 ───►  answer(3, yes)
    [4 from lead says yes to 3]      ◄─── 4
    dig ► the task is done

    user: ask(ada, shutdown)         5 ───►  ada: answer(5, yes) ► takes nothing more

How it works
    `ask(to, kind, text)` is a letter that wants a yes. Its number is the id of the question. `answer(id,
    approved, text)` answers that one, once, and only who was asked can do it.

    Who asked ends its run with a short answer and is idle. Nothing waits in memory: the open question
    stands in the log of letters. While it is open the task is not done. With the answer it is given again.

    A `shutdown` is asked for, too. A member may say no while it is in the middle of something. One that
    says yes claims no more tasks, and is woken only by a letter to itself. So "Water", which is added then,
    stays pending.

What changed
    | | lesson 9 | now |
    |---|---|---|
    | a letter | tells something | may ask for a yes |
    | an answer | is another letter | names the question, and comes once |
    | a member stops | when all is done | when it agrees to |

Try it
    python lessons/l10_protocols.py
    python lessons/l10_protocols.py --prompt "Dig by the wall, please."

    - With a prompt that is the plan which ada asks about first.
    - Two that never agree write for ever. Let ada give up after a second no.
    - With a real model: put OpenAIChat("…") in place of both scripts; it needs to call tools.
"""

import asyncio
import re
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from dataclasses import dataclass

from agentloop import Agent, ChatModel, ModelRequest, Task, Team, ToolCall, tool
from agentloop.testing import ScriptedModel, calls


async def lesson(plan: str) -> "Shown":
    """A task whose plan needs a yes, then a shutdown, then a task that nobody takes any more."""
    team = Team(
        {"lead": Agent(careful()), "ada": Agent(digger(plan), tools=[dig])}, workers=["ada"], transcripts=None
    )
    await team.board.add("Dig")
    await team.run()
    await team.ask("ada", "shutdown", "It is late.")
    await team.run()
    await team.board.add("Water")
    await team.run()
    letters = []
    for each in await team.letters():
        how = {True: "yes", False: "no", None: each.kind}[each.approved]
        about = f" to {each.about}" if each.about else ""
        letters.append(f"{each.id} {each.sender} → {each.to}: {how}{about}. {each.text}")
    tasks = tuple(await team.board.tasks())
    print("letters\n" + "\n".join(f"  {line}" for line in letters) + "\n\ntasks")
    for task in tasks:
        print(f"  {task.id} {task.subject}: {' '.join((task.status, task.result)).strip()}")
    return Shown(letters=tuple(letters), tasks=tasks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """All letters, a line each, and the tasks at the end."""

    letters: tuple[str, ...]
    tasks: tuple[Task, ...]


PLANS = ("I dig by the pipe.", "I dig by the wall.")


@tool
def dig() -> str:
    """Dig."""
    return "It is dug."


def careful() -> ChatModel:
    """The lead's model: it says no to whatever is near the pipe."""

    def step(request: ModelRequest) -> str | list[ToolCall]:
        newest = request.messages[-1]
        asked = re.search(r"\[(\d+) from ada asks for a yes to a plan\] (.*)", newest["content"])
        if newest["role"] == "tool" or not asked:
            return "I have answered."
        is_good = "pipe" not in asked[2]
        text = "Go on." if is_good else "There is a pipe."
        return calls(answer={"id": int(asked[1]), "approved": is_good, "text": text})

    return ScriptedModel([step] * 20)


def digger(plan: str) -> ChatModel:
    """The model of ada: it asks, waits, asks better, digs; and says yes when it is to stop."""

    def step(request: ModelRequest) -> str | list[ToolCall]:
        newest = request.messages[-1]
        text = newest["content"]
        if newest["role"] == "tool":
            return text if text == "It is dug." else "I wait."
        if found := re.search(r"\[(\d+) from \w+ asks you to stop\]", text):
            return calls(answer={"id": int(found[1]), "approved": True, "text": "Good night."})
        if "says yes to" in text:
            return calls(dig={})
        return calls(ask={"to": "lead", "kind": "plan", "text": PLANS[1] if "says no to" in text else plan})

    return ScriptedModel([step] * 20)


def main(prompt: str | None = None) -> Shown:
    """Run the lesson; `prompt` is the first plan, instead of one that goes near the pipe."""
    return asyncio.run(lesson(prompt or PLANS[0]))


if __name__ == "__main__":
    options = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    options.add_argument("--prompt", help="the first plan, instead of the lesson's own")
    main(options.parse_args().prompt)
