"""A session outlives its program: the log says what was done, and so what is to be done next.

The problem
    Programs die in the middle of their work. The one that goes on must not do again what was done. Else a
    bill is paid twice. And two programs at once on one conversation spoil it for each other.

The picture
    program 1:  prompt ► pack(tent) ✓ ► pack(stove) … killed
                  │          │              │
    trip.db     prompt     call, result   call, no result        the log, in one file
                                            │
    program 2:                            resume ► the model is told ► it decides ► answer

    two runs at once:  the first has the lease;  the second is refused, or waits, as you say

How it works
    `store="sqlite:///trip.db"` keeps the logs in a file. Each message and each result is stored at once.
    Whoever opens the file goes on with the session, by its id.

    The first program is killed while `pack` runs. `resume` reads the log. The tent has a result, and is not
    packed again. The stove has none, and nobody knows how far that came. So the model is told that the call
    was interrupted, and decides. A tool marked `@tool(idempotent=True)` would just run again.

    A run has its session by a lease. A second one is refused by `SessionBusyError`, or waits its turn with
    `when_busy="wait"`. The lease of a dead program counts no more. Beside it each write says how long it
    believes the log to be. Where that is wrong, nothing is written: a conflict, and no message is lost.

    Many machines do the same on PostgreSQL: `RunQueue` takes runs, `Worker`s do them. Where one dies,
    another goes on. Give --database postgresql://…, and the last part runs too.

What changed
    | | lesson 16 | now |
    |---|---|---|
    | sessions live in | memory, one program | a file or a database, many programs |
    | a killed program | has lost its work | is gone on with by `resume` |
    | two runs at once | one program, so it knows | a lease, and a check at each write |

Try it
    python lessons/l17_sessions_resume_workers.py
    python lessons/l17_sessions_resume_workers.py --prompt "What do you remember?"

    - Mark `pack` as `@tool(idempotent=True)`. Its call runs again, and the script, which does not look,
      packs the stove twice.
    - With a real model: put OpenAIChat("…") in place of both scripts; it needs to call tools.
"""

import asyncio
import os
import subprocess
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import shorten

from agentloop import Agent, ModelRequest, OfflineModel, RunContext, Runner, SessionBusyError, tool
from agentloop.testing import ScriptedModel, calls


async def go_on(store: str, bag: Path) -> str:
    """The idea: a program that knows the session's id, and nothing else, goes on where another one died."""
    agent = Agent(ScriptedModel([calls(pack={"thing": "stove"}), "All is packed."]), tools=[pack])
    async with Runner(agent, store=store, transcripts=None) as runner:
        result = await runner.resume(SESSION, deps=bag)
        for message in result.messages:
            asked = ", ".join(f"{call.name}({call.arguments})" for call in message.tool_calls)
            print(f"  {message.role:>9}: {shorten(message.text or asked, 100, placeholder=' …')}")
    return result.output


SESSION = "trip"
PROMPT = "Pack the tent and the stove."
QUESTION = "How many messages do you see?"
KILLED = "--be-killed"
"""The argument by which this file plays the first program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """How the first program ended, what is packed, what the second said, and what became of the others."""

    killed: int
    packed: tuple[str, ...]
    resumed: str
    busy: str
    waited: str
    queued: str | None


@tool
def pack(thing: str, bag: RunContext[Path]) -> str:
    """Put a thing into the bag."""
    if thing == "stove" and KILLED in sys.argv:
        os._exit(9)  # as if the power went
    with bag.deps.open("a", encoding="utf-8") as packed:
        packed.write(f"{thing}\n")
    return f"the {thing} is packed"


async def be_killed(place: str) -> None:
    """The first program: it packs the tent, and ends in the middle of the second call."""
    store, bag = f"sqlite:///{place}/trip.db", Path(place, "bag")
    model = ScriptedModel([calls(pack={"thing": "tent"}), calls(pack={"thing": "stove"})])
    async with Runner(Agent(model, tools=[pack]), store=store, transcripts=None) as runner:
        await runner.run(PROMPT, session_id=SESSION, deps=bag)


def lines(bag: Path) -> list[str]:
    """What is in the bag."""
    return bag.read_text("utf-8").splitlines()


async def two_at_once(store: str, question: str) -> tuple[str, str]:
    """While a first run has the session, one is refused and one waits; gives what became of both."""
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def slow(_: ModelRequest) -> str:
        begun.set()
        await may_end.wait()
        return "The first one is done."

    slowly, quickly = Agent(ScriptedModel([slow]), tools=[pack]), Agent(OfflineModel())
    async with (
        Runner(slowly, store=store, transcripts=None) as first,
        Runner(quickly, store=store, transcripts=None) as second,
        Runner(quickly, store=store, transcripts=None, when_busy="wait") as third,
    ):
        running = asyncio.create_task(first.run("Take your time.", session_id=SESSION))
        await begun.wait()
        try:
            await second.run(question, session_id=SESSION)
        except SessionBusyError as error:
            busy = str(error)
        waiting = asyncio.create_task(third.run(question, session_id=SESSION))
        may_end.set()
        await running
        return busy, (await waiting).output


async def on_workers(database: str, question: str) -> str:
    """The same loop in a queue on PostgreSQL, done by a worker: here one, else as many as you like."""
    from agentloop.durable import RunQueue, Worker  # which needs the extra `durable`

    worker = Worker(Agent(OfflineModel()), database)
    working = asyncio.create_task(worker.run())
    async with RunQueue(database) as queue:
        run_id = await queue.submit(question)
        state = (await queue.wait(run_id)).state
        answer = await queue.answer(run_id)
    worker.stop()
    await working
    return f"{state}: {answer}"


async def lesson(question: str, database: str | None) -> Shown:
    """A program that is killed, one that goes on, two at once, and a worker where there is a database."""
    with TemporaryDirectory(prefix="agentloop-lesson-") as place:
        store, bag = f"sqlite:///{place}/trip.db", Path(place, "bag")
        print(f"> {PROMPT}")
        killed = await asyncio.to_thread(
            subprocess.run, [sys.executable, __file__, KILLED, place], check=False
        )
        print(f"program 1 is killed: status {killed.returncode}\nprogram 2 goes on")
        resumed = await go_on(store, bag)
        packed = tuple(lines(bag))
        print(f"packed: {', '.join(packed)}\n\ntwo runs at once\n> {question}")
        busy, waited = await two_at_once(store, question)
        print(f"  refused: {busy}\n  waited:  {waited}")
    queued = await on_workers(database, question) if database else None
    print(f"\na worker: {queued or 'give --database postgresql://… to see one'}")
    return Shown(
        killed=killed.returncode, packed=packed, resumed=resumed, busy=busy, waited=waited, queued=queued
    )


def main(prompt: str | None = None, database: str | None = None) -> Shown:
    """Run the lesson; `prompt` is asked by two runs at once instead of its own question."""
    return asyncio.run(lesson(prompt or QUESTION, database))


if __name__ == "__main__":
    options = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    options.add_argument("--prompt", help="what to ask instead of the lesson's own question")
    options.add_argument("--database", help="the URL of a PostgreSQL database, for the part with a worker")
    options.add_argument(KILLED, dest="place", help="play the program that is killed, in this folder")
    given = options.parse_args()
    if given.place:
        asyncio.run(be_killed(given.place))
    else:
        main(given.prompt, given.database)
