"""Agents that work together need no shared context: they need names, and letters that are read once.

The problem
    A sub-agent is called, answers, and is gone. Colleagues stay: one asks another something, works on, and
    hears the answer later. In one shared conversation all would pay for what each of them reads.

The picture
    user ──► lead                       team.lead    a session each, with a context of its own
              │ send(ada), send(bob)    team.ada
       ┌──────┴──────┐                  team.bob
       ▼             ▼
      ada           bob                 the letters: one log, which only grows
       │ send(lead)  │ send(lead)       1 user → lead   2 lead → ada   3 lead → bob
       └──────┬──────┘                  4 ada → lead    5 bob → lead
              ▼
             lead ──► the answer

How it works
    `Team({"lead": …, "ada": …})` gives each member a session, an inbox and tools. `send` writes to one,
    `broadcast` to all others, `inbox` reads. An idle member is given what it has not read, and begins. One
    that is at work finds a note of new letters behind its next result.

    Letters stand in one log of the store. Up to which one a member has read, its session says. So each is
    given to it once, also where a program was killed in between.

    `team.run()` ends when nobody is at work and nothing is unread.

What changed
    | | lesson 8 | now |
    |---|---|---|
    | who works | one agent, its sub-agents and jobs | members that stay |
    | they hear of each other | by the result of a call | by letters |
    | a run begins | when you call it | when a letter comes |

Try it
    python lessons/l09_team.py
    python lessons/l09_team.py --prompt "What sings in the garden?"

    - With a prompt the lead asks both that.
    - Let both use `broadcast`, without `to`, in place of `send`. Who is woken by it, and what do they say?
    - With a real model: put OpenAIChat("…") in place of the three scripts; it needs to call tools.
"""

import asyncio
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from dataclasses import dataclass

from agentloop import Agent, ChatModel, ModelRequest, Team, ToolCall
from agentloop.testing import ScriptedModel, calls


async def lesson(prompt: str) -> "Shown":
    """One letter from outside, and what becomes of it."""
    agents = {"lead": Agent(leader())} | {name: Agent(counter(found)) for name, found in FOUND.items()}
    team = Team(agents, transcripts=None)
    await team.send("lead", prompt)
    results = await team.run()
    print("letters")
    for letter in await team.letters():
        print(f"  {letter.id} {letter.sender} → {letter.to or 'all'}: {letter.text}")
    print("\nanswers, each in the session of its member")
    for result in results:
        print(f"  {result.session_id}: {result.output}")
    letters = tuple((each.sender, each.to, each.text) for each in await team.letters())
    return Shown(letters=letters, outputs=[(result.session_id, result.output) for result in results])


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """All letters, from whom to whom, and what each run answered, by its session."""

    letters: tuple[tuple[str, str | None, str], ...]
    outputs: Sequence[tuple[str, str]]


PROMPT = "What creeps in the garden?"
FOUND = {"ada": "Seven snails.", "bob": "Two slugs."}


def leader() -> ChatModel:
    """A model that asks both, and answers when it has heard of both."""

    def step(request: ModelRequest) -> str | list[ToolCall]:
        newest = request.messages[-1]
        if newest["role"] == "tool":
            return "I have asked both."
        if "from user]" in newest["content"]:
            asked = newest["content"].partition("] ")[2]
            return calls(*(("send", {"to": name, "text": asked}) for name in FOUND))
        heard = "\n".join(str(each["content"]) for each in request.messages if each["role"] == "user")
        missing = [name for name in FOUND if f"from {name}]" not in heard]
        return f"I wait for {missing[0]}." if missing else " ".join(FOUND.values())

    return ScriptedModel([step] * 20)


def counter(found: str) -> ChatModel:
    """A model that tells the lead what it has found when the lead asks."""

    def step(request: ModelRequest) -> str | list[ToolCall]:
        if "from lead]" in request.messages[-1]["content"]:
            return calls(send={"to": "lead", "text": found})
        return "Told." if request.messages[-1]["role"] == "tool" else "Good to know."

    return ScriptedModel([step] * 20)


def main(prompt: str | None = None) -> Shown:
    """Run the lesson; `prompt` is written to the lead instead of its own."""
    return asyncio.run(lesson(prompt or PROMPT))


if __name__ == "__main__":
    options = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    options.add_argument("--prompt", help="what to ask instead of the lesson's own prompt")
    main(options.parse_args().prompt)
