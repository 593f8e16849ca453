"""Send somebody else to read: one line comes back, and the pages stay there.

The problem
    An agent is asked one thing and has to read ten pages for it. The pages stay in its context. They cost
    tokens in every later request, and they push out what the user said. Only one line of them was needed.

The picture
    the lead                                  three scouts, side by side
    ────────                                  ──────────────────────────
    user: what do Ada, Ben and Cleo wish?
    scout("… Ada's letter …")     ────────►   task ► read_letter ► 40 lines ► answer
    scout("… Ben's letter …")     ────────►   task ► read_letter ► 40 lines ► answer
    scout("… Cleo's letter …")    ────────►   task ► read_letter ► 40 lines ► answer
    three lines                   ◄────────   (the 40 lines stay in the logs of the scouts)
    answer

How it works
    `agent.as_tool(name, description)` makes an agent a tool of another one. The model gives it a `task`.
    That text is all that the sub-agent knows: it begins with an empty context of its own. Its answer is the
    result of the call.

    Each call has a log of its own, a branch of the session. `runner.branches(id)` lists them. They go where
    the session goes: who deletes it deletes them.

    Calls in one answer run side by side, as in lesson 2. What scouts use counts for the run, so its limits
    hold for all together. Cancel the run, and the scouts end with it.

What changed
    | | lesson 3 | now |
    |---|---|---|
    | a tool is | a function, or a set of them | also an agent |
    | what was read stands | in the one context | in the scout's context |
    | logs | one | one, and a branch for each call |

Try it
    python lessons/l04_sub_agents.py
    python lessons/l04_sub_agents.py --prompt "scout(task='Read the letter of Ben.')"

    - With a prompt the offline model takes the place of `lead`, and calls the tools that it names.
    - Give `as_tool` the argument `limits=Limits(steps=1)`: no scout comes home, and the lead is told so.
    - With a real model: put OpenAIChat("…") in place of `lead()` and `reader()`; it needs to call tools.
"""

import asyncio
import re
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from dataclasses import dataclass

from agentloop import Agent, ChatModel, ModelRequest, OfflineModel, Runner, ToolCall, tool
from agentloop.testing import ScriptedModel, calls


async def with_scouts(lead: ChatModel, prompt: str) -> "Shown":
    """The idea: an agent among the tools of another one."""
    scout = Agent(reader(), tools=[read_letter], instructions="Read one letter. Say what is wished.")
    agent = Agent(lead, tools=[scout.as_tool("scout", "Reads one letter, and says what its writer wishes.")])
    async with Runner(agent, transcripts=None) as runner:
        result = await runner.run(prompt, session_id=SESSION)
        status = await runner.status(SESSION)
        branches = await runner.branches(SESSION)
        records = {branch.id: len(await runner.events(branch.id)) for branch in branches}
    results = tuple(message.text for message in result.messages if message.role == "tool")
    return Shown(
        results=results,
        output=result.output,
        context=status.tokens,
        used=result.usage.input_tokens,
        branches=records,
    )


PROMPT = "What do Ada, Ben and Cleo wish for?"
SESSION = "letters"
WISHES = {"Ada": "a telescope", "Ben": "a day without rain", "Cleo": "a letter back"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What calls were answered, the size of the context at the end, all input tokens, and the branches."""

    results: tuple[str, ...]
    output: str
    context: int
    used: int
    branches: dict[str, int]


@tool
def read_letter(writer: str) -> str:
    """Read the letter of one writer, from the first line to the last."""
    lines = [f"Line {number}: the garden is green, and the hens are well." for number in range(1, 40)]
    return "\n".join([f"{writer} writes:", *lines, f"I wish for {WISHES.get(writer, 'nothing')}."])


def reader() -> ChatModel:
    """A model that reads the letter of whoever the task names, then says what the last line says."""

    def step(request: ModelRequest) -> str | list[ToolCall]:
        newest = request.messages[-1]
        if newest["role"] == "tool":
            lines = newest["content"].splitlines()
            return f"{lines[0].removesuffix(' writes:')}: {lines[-1]}"
        named = re.findall("|".join(WISHES), newest["content"])
        return calls(read_letter={"writer": named[0]}) if named else "The task names no writer I know."

    return ScriptedModel([step] * 20)


def lead() -> ChatModel:
    """A model that sends three scouts at once."""
    tasks = [("scout", {"task": f"Read the letter of {writer}."}) for writer in WISHES]
    return ScriptedModel([calls(*tasks), "A telescope, a day without rain, and a letter back."])


async def without_scouts() -> int:
    """The same work by one agent alone; gives the size of its context at the end."""
    model = ScriptedModel([calls(*(("read_letter", {"writer": each}) for each in WISHES)), "All is read."])
    async with Runner(Agent(model, tools=[read_letter]), transcripts=None) as runner:
        await runner.run(PROMPT, session_id=SESSION)
        return (await runner.status(SESSION)).tokens


async def lesson(model: ChatModel, prompt: str) -> tuple[Shown, int]:
    """One prompt with scouts, and the same work without."""
    shown = await with_scouts(model, prompt)
    print(f"> {prompt}")
    for text in shown.results:
        print(f"  scout: {text}")
    print(shown.output)
    print("\nlogs of their own" if shown.branches else "\nno scout was sent")
    for branch, records in shown.branches.items():
        print(f"  {branch}: {records} records")
    alone = await without_scouts()
    print(f"\nthe context at the end: {shown.context:,} tokens with scouts, {alone:,} if one reads all alone")
    print(f"all requests together, those of the scouts too: {shown.used:,} tokens")
    return shown, alone


def main(prompt: str | None = None) -> tuple[Shown, int]:
    """Run the lesson; a `prompt` goes to the offline model, which calls the tools that it names."""
    return asyncio.run(lesson(OfflineModel() if prompt else lead(), prompt or PROMPT))


if __name__ == "__main__":
    options = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    options.add_argument("--prompt", help="what to ask instead of the lesson's own prompt")
    main(options.parse_args().prompt)
