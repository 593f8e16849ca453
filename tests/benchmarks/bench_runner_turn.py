"""The client CPU of one whole turn of the runner at 100k tokens, against the plain openai client's.

The turn of `bench_turn`, but through `Runner.run` on a session of 770 messages in memory: the session is
opened and folded, the prompt stored, room made, both requests built, hashed and sent, the tool run, both
answers stored. The plain client sends the same two requests and keeps nothing. Every turn has a session of
its own, filled before the clock starts; the server runs in a process of its own.

Run it with `python -m tests.benchmarks.bench_runner_turn`; `--profile` prints where our side's time goes.
"""

import argparse
import asyncio
import cProfile
import pstats
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from agentloop.context import count_message, counter_for
from agentloop.events import Event, MessageRecord, ModelCalled
from agentloop.messages import Message
from agentloop.providers.openai import OpenAIChat
from agentloop.run import Agent
from agentloop.runner import Runner
from agentloop.stores import InMemoryStore
from agentloop.stream import TextDelta
from tests.benchmarks.bench_turn import Measured, history, line, measured, plain_turn
from tests.strict_process import provider_process

LIMIT, CHUNK_LIMIT = 0.1, 0.3
FEW_PIECES, MANY_PIECES = 100, 3_000


async def look(path: str) -> str:
    """Look into a file.

    Args:
        path: The file.
    """
    return "seen"


@dataclass(kw_only=True)
class RunnerTurns:
    """Turns of one runner, each on the next of its sessions, which are alike."""

    runner: Runner
    prompt: str
    streams: bool
    waiting: list[str] = field(default_factory=list)

    @classmethod
    async def on(cls, url: str, *, turns: int, streams: bool = False) -> "RunnerTurns":
        """So many sessions, each as runs have left it, and a runner on them."""
        system, *said, prompt = history()
        counter = counter_for("m")
        events: list[Event] = []
        for message in map(Message.from_openai, said):
            if message.role == "assistant":
                events.append(ModelCalled(purpose="agent", model="m"))
            events.append(MessageRecord(message=message, tokens=count_message(message, counter)))
        store = InMemoryStore()
        model = OpenAIChat("m", base_url=url, window="1m")
        agent = Agent(model, tools=[look], instructions=system["content"])
        names = [f"session{number}" for number in range(turns)]
        for name in names:
            await store.append(name, events, expect=0)
        runner = Runner(agent, store=store, transcripts=None)
        return cls(runner=runner, prompt=prompt["content"], streams=streams, waiting=names)

    async def __call__(self) -> None:
        name = self.waiting.pop()
        if self.streams:
            events = [event async for event in self.runner.stream(self.prompt, session_id=name)]
            assert sum(isinstance(event, TextDelta) for event in events) > 1
        else:
            result = await self.runner.run(self.prompt, session_id=name)
            assert result.output
            assert len(result.messages) == 769 + 3


async def profiled(turn: RunnerTurns, turns: int) -> None:
    """Print what our side spends its time on."""
    await turn()
    profile = cProfile.Profile()
    profile.enable()
    for _ in range(turns):
        await turn()
    profile.disable()
    pstats.Stats(profile).sort_stats("tottime").print_stats(25)


async def run(pairs: int, profile: bool) -> None:
    """Measure and print."""
    with provider_process("--brain", "turn", "--pieces", str(FEW_PIECES), "--whole") as url:
        ran = await measured(await RunnerTurns.on(url, turns=pairs + 1), plain_turn(url), pairs)
        print(line("a turn of Runner.run", ran, LIMIT), flush=True)
        streamed = await streamed_turns(url, pairs)
        print(line("a turn of Runner.stream", streamed, LIMIT), flush=True)
        if profile:
            await profiled(await RunnerTurns.on(url, turns=pairs + 1), pairs)
    with provider_process("--brain", "turn", "--pieces", str(MANY_PIECES), "--whole") as url:
        longer = await streamed_turns(url, pairs)
    ours, plain = more_per_chunk(longer.ours, streamed.ours), more_per_chunk(longer.plain, streamed.plain)
    print(
        f"a chunk of Runner.stream: {ours * 1e6:.1f} µs against {plain * 1e6:.1f} µs, "
        f"ratio {ours / plain:.3f} (limit {CHUNK_LIMIT})"
    )


async def streamed_turns(url: str, pairs: int) -> Measured:
    """Turns of `Runner.stream` against the plain client's."""
    return await measured(await RunnerTurns.on(url, turns=pairs + 1, streams=True), plain_turn(url), pairs)


def more_per_chunk(longer: Sequence[float], shorter: Sequence[float]) -> float:
    """The seconds of one chunk, from turns with many and with few of them."""
    return (median(longer) - median(shorter)) / (MANY_PIECES - FEW_PIECES)


def main() -> None:
    """Run and print: a figure is looked at by a person, since a busy machine moves it."""
    parser = argparse.ArgumentParser(
        description="Client CPU of a runner's turn: ours against the openai client's."
    )
    parser.add_argument("--pairs", type=int, default=9, help="how often each side is measured")
    parser.add_argument("--profile", action="store_true", help="print where our time goes")
    given = parser.parse_args()
    asyncio.run(run(given.pairs, given.profile))


if __name__ == "__main__":
    main()
