"""A tool is a function; its signature and docstring are all that a model needs to call it.

The problem
    In lesson 1 the description of the tool was written by hand beside the function. The two will drift
    apart. The loop trusted the model: a wrong name or a wrong argument ended the program. And calls that
    could run at the same time waited for each other.

The picture
    @tool                                              what the model is sent
    async def heat_oven(         ──► name ───────────► heat_oven
        degrees: Annotated[int,  ──► type, limits ───► integer, 50 to 250
                 Field(ge=50, …)],
        kitchen: RunContext[…],  ──► filled in ──────► (nothing: it never sees this)
    ) -> str:
        "Heat the oven…"         ──► docstring ──────► what it does, and what each argument means

    a batch of calls ──┬─► bake ──────── waits ──── ok ──┐
                       ├─► fetch ─ RetryTool: a hint ────┼─► results, in the order of the calls
                       └─► heat_oven ─ ok ───────────────┘

How it works
    Type hints become the JSON schema and check the arguments; `Annotated[…, Field(…)]` adds limits and
    words. The docstring says what it is for. `@tool` only marks the function, which stays callable as it
    was. It takes options, such as how long a call may last.

    A parameter annotated with `RunContext` is filled in by the runner and hidden from the model. Its `deps`
    is your own object, given to `run(deps=…)`: a kitchen here, a database elsewhere.

    Whatever goes wrong is an answer. It may be arguments that do not fit, an exception, a time limit, or a
    name that is no tool. The model reads what happened and decides. `RetryTool` is for what it can do
    better: its text is the hint.

    Tools reach what you give them, and nothing else: that is the sandbox. `fetch` knows one pantry.
    `agentloop.workspace` has tools for files that never leave their folder.

    All calls of one message run side by side. Here `bake` waits until `heat_oven`, called after it, has
    heated the oven. One after the other they would never end.

What changed
    | | lesson 1 | now |
    |---|---|---|
    | the schema | written by hand | made from the function |
    | a wrong call | ends the program | is answered, and the model tries again |
    | calls of one message | one after the other | side by side |

Try it
    python lessons/l02_tools.py
    python lessons/l02_tools.py --prompt "Use fetch on 'flour' and 'saffron'."
    python lessons/l02_tools.py --prompt "Use bake on 'bread'."

    - With a prompt the offline model takes the place of `baker`, and calls the tools that it names.
    - The last one bakes in a cold oven: the time limit answers.
    - With a real model: put OpenAIChat("…") in place of `baker()`; it needs to call tools.
"""

import asyncio
import json
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from agentloop import Agent, ChatModel, Message, OfflineModel, RetryTool, RunContext, Runner, Tool, tool
from agentloop.testing import ScriptedModel, calls


@dataclass(frozen=True, slots=True, kw_only=True)
class Kitchen:
    """What the tools work on; the model never sees it."""

    pantry: frozenset[str] = frozenset({"flour", "salt", "yeast"})
    hot: asyncio.Event = field(default_factory=asyncio.Event)


@tool
def fetch(ingredient: str, kitchen: RunContext[Kitchen]) -> str:
    """Fetch an ingredient from the pantry.

    Args:
        ingredient: Its name, in the singular.
    """
    pantry = kitchen.deps.pantry
    if ingredient not in pantry:
        raise RetryTool(f"there is no {ingredient!r}, there is {', '.join(sorted(pantry))}")
    return f"{ingredient} is on the table"


@tool
async def heat_oven(
    degrees: Annotated[int, Field(ge=50, le=250, description="How hot, in degrees Celsius.")],
    kitchen: RunContext[Kitchen],
) -> str:
    """Heat the oven and wait until it is hot."""
    kitchen.deps.hot.set()
    return f"the oven is at {degrees} °C"


@tool(timeout_seconds=2)
async def bake(what: str, kitchen: RunContext[Kitchen]) -> str:
    """Bake something as soon as the oven is hot."""
    await kitchen.deps.hot.wait()
    return f"the {what} is baked"


@tool
def weigh(ingredient: str) -> int:
    """Weigh an ingredient, in grams."""
    raise OSError(f"the scale shows nothing for {ingredient}: its battery is empty")


PROMPT = "Bake a bread."


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What the model was sent of one tool, and what it was told of each of its calls."""

    schema: Mapping[str, Any]
    answers: tuple[tuple[str, str], ...]
    output: str


def baker() -> ScriptedModel:
    """A model that errs in every way at first, reads what it is told, and does better."""
    return ScriptedModel(
        [
            calls(
                fetch={"ingredient": "flower"},
                heat_oven={"degrees": 900},
                weigh={"ingredient": "salt"},
                knead={"minutes": 10},
            ),
            calls(bake={"what": "bread"}, fetch={"ingredient": "flour"}, heat_oven={"degrees": 220}),
            "The bread is baked. I could not weigh the salt.",
        ]
    )


async def lesson(model: ChatModel, prompt: str) -> Shown:
    """One run of the agent with four tools and a kitchen."""
    schema = Tool.of(heat_oven).schema
    print("what the model is sent of heat_oven")
    print(json.dumps(schema["function"]["parameters"]["properties"], indent=2, ensure_ascii=False))
    agent = Agent(model, tools=[fetch, heat_oven, bake, weigh])
    async with Runner(agent, transcripts=None) as runner:
        result = await runner.run(prompt, deps=Kitchen())
    answers = answered(result.messages)
    print(f"\n{prompt}")
    for call, told in answers:
        print(f"  {call}\n      {told}")
    print(result.output)
    return Shown(schema=schema, answers=answers, output=result.output)


def answered(messages: Sequence[Message]) -> tuple[tuple[str, str], ...]:
    """Each call as the model wrote it, and the text that it was answered with."""
    results = {message.tool_call_id: message.text for message in messages}
    return tuple(
        (f"{call.name}({call.arguments})", results[call.id])
        for message in messages
        for call in message.tool_calls
    )


def main(prompt: str | None = None) -> Shown:
    """Run the lesson; a `prompt` goes to the offline model, which calls the tools that it names."""
    return asyncio.run(lesson(OfflineModel() if prompt else baker(), prompt or PROMPT))


if __name__ == "__main__":
    options = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    options.add_argument("--prompt", help="what to ask instead of the lesson's own prompt")
    main(options.parse_args().prompt)
