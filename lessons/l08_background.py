"""What takes long runs beside the work: begin it, go on, and be told when it has ended.

The problem
    A build takes ten minutes. An agent that waits for it does nothing meanwhile. One that does not wait
    must ask again and again whether it is ready, and each question costs a request.

The picture
    the model        run_in_background(brew) ► job 1      knead ►  lay_table ►      answer
                          │                                          ▲
    the job               └── brews ─────────────── has ended ───────┘
                                                    the notice stands behind the next result, once

How it works
    `Background(agent_tools=["brew"])` is a set of tools. `run_in_background` begins a job and answers at
    once, with the job's id. With `workdir="."` the model may run shell commands so, too.

    When a job has ended, the model need not ask. A notice stands behind the next result that it gets. It
    stands there once, also where the program was killed in between: the log says what was told.

    `check` shows what a job printed, and can wait for its end. `stop` ends it. A job lives as long as its
    run. What still runs when the run has its answer is stopped, and you see that as `ToolProgress`.

What changed
    | | lesson 7 | now |
    |---|---|---|
    | a call | is answered when it is done | may be answered when it is begun |
    | a result holds | what the call came to | also notices of what ended meanwhile |
    | the end of a run | ends nothing | stops what still runs |

Try it
    python lessons/l08_background.py
    python lessons/l08_background.py --prompt "Use check."

    - With a prompt the offline model takes the place of `host`, and calls the tools that it names.
    - Leave out `knead` and `lay_table`: the tea is not ready when the run ends. What becomes of it?
    - With a real model: put OpenAIChat("…") in place of `host()`; it needs to call tools.
"""

import asyncio
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from dataclasses import dataclass, field

from agentloop import Agent, Background, ChatModel, OfflineModel, RunContext, Runner, tool
from agentloop.stream import AnyStreamEvent, ToolProgress
from agentloop.testing import ScriptedModel, calls


async def lesson(model: ChatModel, prompt: str) -> "Shown":
    """One run with two jobs: one that ends while the model works, and one that never does."""
    agent = Agent(model, tools=[Background(agent_tools=["brew", "watch_the_sky"]), *TOOLS])
    stopped: list[str] = []

    def show(event: AnyStreamEvent) -> None:
        if isinstance(event, ToolProgress):
            stopped.append(event.text)

    print(f"> {prompt}")
    async with Runner(agent, transcripts=None) as runner:
        result = await runner.run(prompt, deps=House(), on_event=show)
    results = tuple(message.text for message in result.messages if message.role == "tool")
    for text in (*results, result.output):
        print("\n".join(f"  {line}" for line in text.splitlines()))
    print("\nstopped at the end of the run:" if stopped else "\nnothing was left running")
    for text in stopped:
        print(f"  {text}")
    return Shown(results=results, stopped=tuple(stopped), output=result.output)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What calls were answered, what was stopped at the end, and the answer."""

    results: tuple[str, ...]
    stopped: tuple[str, ...]
    output: str


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """What goes on in the house; the model never sees it."""

    kneaded: asyncio.Event = field(default_factory=asyncio.Event)
    brewed: asyncio.Event = field(default_factory=asyncio.Event)


@tool
async def brew(house: RunContext[House]) -> str:
    """Brew tea, which takes as long as the dough."""
    await house.deps.kneaded.wait()
    house.deps.brewed.set()
    return "strong tea"


@tool
async def watch_the_sky() -> str:
    """Watch the sky, for ever."""
    await asyncio.Event().wait()
    return "nothing"


@tool
async def knead(house: RunContext[House]) -> str:
    """Knead the dough."""
    house.deps.kneaded.set()
    return "the dough is smooth"


@tool
async def lay_table(house: RunContext[House]) -> str:
    """Lay the table, and look whether there is tea."""
    await house.deps.brewed.wait()
    return "four plates, four cups"


@tool
def light_candles() -> str:
    """Light the candles."""
    return "two candles burn"


TOOLS = (brew, watch_the_sky, knead, lay_table, light_candles)
PROMPT = "Make tea and bread, and lay the table."


def host() -> ChatModel:
    """A model that begins what takes long, and does the rest meanwhile."""
    return ScriptedModel(
        [
            calls(("run_in_background", {"tool": "brew"}), ("run_in_background", {"tool": "watch_the_sky"})),
            calls(knead={}),
            calls(lay_table={}),
            calls(light_candles={}),
            "All is ready. The tea was done while I kneaded.",
        ]
    )


def main(prompt: str | None = None) -> Shown:
    """Run the lesson; a `prompt` goes to the offline model, which calls the tools that it names."""
    return asyncio.run(lesson(OfflineModel() if prompt else host(), prompt or PROMPT))


if __name__ == "__main__":
    options = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    options.add_argument("--prompt", help="what to ask instead of the lesson's own prompt")
    main(options.parse_args().prompt)
