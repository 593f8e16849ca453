"""What does a durable run cost beside the same run in a plain runner, and what does a kill?

    python -m tests.benchmarks.bench_durable

All on one PostgreSQL server of its own. Each run asks the scripted model four times and calls six tools that
do nothing. Prints runs a second side by side, the median seconds of one run alone, plain and durable and by
DBOS's own clock, in turns; then the seconds from a SIGKILL until the run goes on in another worker that has
nothing else to do, whose parts are the look for dead workers and the poll of the queue.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from itertools import repeat
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from agentloop import Agent, Runner, tool
from agentloop.durable import QueuedRun, QueueLimits, RunQueue, Worker
from agentloop.stores import SessionStore, open_store
from agentloop.testing import ScriptedModel
from tests.durable_kit import LONGEST_SECONDS, LOOK_SECONDS, Fleet, marks, stamping, zygote
from tests.postgres_kit import Server

SIDE_BY_SIDE, MANY, ROUNDS, KILLS = 4, 40, 15, 7
POLL_SECONDS = 0.02


@tool
async def stamp(milliseconds: int) -> str:
    """Do nothing."""
    return "stamp left"


@tool(idempotent=True)
async def look(milliseconds: int) -> str:
    """Do nothing."""
    return "look left"


def agent() -> Agent:
    """Four answers and six calls a run, none of which takes time of its own."""
    return Agent(ScriptedModel(repeat(stamping)), tools=[stamp, look])


@contextlib.asynccontextmanager
async def at_work(url: str) -> AsyncIterator[None]:
    """A worker in this process."""
    limits = QueueLimits(name="agentloop", each=SIDE_BY_SIDE)
    worker = Worker(agent(), url, queues=[limits], transcripts=None, poll_seconds=POLL_SECONDS)
    task = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.stop()
        await task


async def plain_seconds(runner: Runner) -> float:
    """One run in a plain runner on the same store."""
    start = time.perf_counter()
    await runner.run("Stamp.")
    return time.perf_counter() - start


async def whole(queue: RunQueue, run_id: str) -> QueuedRun:
    """The run once it is over, for as long as it may take at the most."""
    async with asyncio.timeout(LONGEST_SECONDS):
        return await queue.wait(run_id, poll_seconds=POLL_SECONDS)


async def durable_seconds(queue: RunQueue) -> tuple[float, float]:
    """One run from its submission to its end, and from its start to its end."""
    run = await whole(queue, await queue.submit("Stamp."))
    assert run.ended
    assert run.started
    return run.ended - run.submitted, run.ended - run.started


async def throughput(queue: RunQueue, runner: Runner) -> tuple[float, float]:
    """Runs a second, durable and plain, so many side by side."""
    ids = [await queue.submit("Stamp.") for _ in range(MANY)]
    runs = [await whole(queue, run_id) for run_id in ids]
    durable = max(run.ended or 0 for run in runs) - min(run.started or 0 for run in runs)
    slots, start = asyncio.Semaphore(SIDE_BY_SIDE), time.perf_counter()

    async def one() -> None:
        async with slots:
            await runner.run("Stamp.")

    await asyncio.gather(*(one() for _ in range(MANY)))
    return MANY / durable, MANY / (time.perf_counter() - start)


async def kill_seconds(queue: RunQueue, fleet: Fleet, store: SessionStore, folder: Path) -> float:
    """From the kill of the worker that has the only run until something is next stored of it."""
    before = len(marks(folder / "marks"))
    run_id = await queue.submit("Stamp.")
    async with asyncio.timeout(LONGEST_SECONDS):
        while len(marks(folder / "marks")) == before:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    seen = await queue.run(run_id)
    victim = next(pid for pid in fleet.pids if f"-{pid}-" in str(seen.worker))
    fleet.kill(victim)
    struck = time.time()
    ended = await whole(queue, run_id)
    fleet.start()
    log = await store.read(ended.session_id)
    return next(record.event.time for record in log if record.event.time > struck) - struck


async def main() -> None:
    """Print the figures."""
    with TemporaryDirectory() as name, zygote() as warm:
        folder = Path(name)
        server = Server(folder / "server")
        try:
            with server.database() as url:
                await measured(url, Fleet(warm, url, folder / "marks"), folder)
        finally:
            server.stop()


async def measured(url: str, fleet: Fleet, folder: Path) -> None:
    """Each figure on this database."""
    store = open_store(url)
    runner = Runner(agent(), store=store, transcripts=None)
    async with RunQueue(url) as queue:
        async with at_work(url):
            await durable_seconds(queue)
            await plain_seconds(runner)
            pairs = [(await plain_seconds(runner), *await durable_seconds(queue)) for _ in range(ROUNDS)]
            plain, whole, inside = (median(column) for column in zip(*pairs, strict=True))
            print(f"one run: plain {plain * 1000:.0f} ms, durable {inside * 1000:.0f} ms from its start and")
            print(f"  {whole * 1000:.0f} ms from its submission: {inside / plain:.1f} times the plain one")
            durable, beside = await throughput(queue, runner)
            print(f"{SIDE_BY_SIDE} side by side: durable {durable:.1f} runs/s, plain {beside:.1f} runs/s")
        for _ in range(2):
            fleet.start()
        costs = [await kill_seconds(queue, fleet, store, folder) for _ in range(KILLS)]
        print(f"a kill costs {median(costs):.2f} s, at most {max(costs):.2f}, looking every {LOOK_SECONDS} s")
        fleet.end()
    await store.close()


if __name__ == "__main__":
    asyncio.run(main())
