"""What does it cost to open a session of 100,000 events, with a checkpoint and without?

    python -m tests.benchmarks.bench_open [EVENTS]

The log is a long one in a SQLite file: runs of calls and results, cleared in batches, compacted some sixty
times. It is read whole, then opened by a checkpoint that is as old as one may be. Peak memory is what Python
allocated (tracemalloc), in a run of its own. Last, the append that keeps a checkpoint is held against the
others. The exit status says whether both ways send the same request, and whether the whole comes back from
the checkpoint: it does not judge the clock.
"""

import asyncio
import json
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Coroutine
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

from agentloop.context import Context, wire_messages
from agentloop.events import Event
from agentloop.sessions import Session
from agentloop.sessions.checkpoint import CHECKPOINT_EVERY, is_due
from agentloop.stores import SQLiteStore
from tests.benchmarks.long_log import LongLog

EVENTS, BATCH = 100_000, 5_000
TIMES = 5

Way: TypeAlias = Callable[[Path], Coroutine[Any, Any, Context]]


async def written(path: Path, events: int) -> list[Event]:
    """The file with a log that grew from a checkpoint for as long as no new one was due; what comes next."""
    log, store, length = LongLog().events(), SQLiteStore(path), 0
    left = CHECKPOINT_EVERY - 1
    while length < events - left:
        batch = list(islice(log, min(BATCH, events - left - length)))
        length = await store.append("s", batch, expect=length)
    session = await Session.open("s", store)
    await store.append("s", list(islice(log, left)), expect=session.context.length)
    await store.close()
    return list(islice(log, 2 * CHECKPOINT_EVERY))


async def read_whole(path: Path) -> Context:
    """The context from the whole log."""
    store = SQLiteStore(path)
    try:
        return Context.of(await store.read("s"))
    finally:
        await store.close()


async def opened(path: Path) -> Context:
    """The context of a session that is opened."""
    store = SQLiteStore(path)
    try:
        return (await Session.open("s", store)).context
    finally:
        await store.close()


async def brought_back(path: Path) -> Context:
    """The whole context of a session that was opened by its checkpoint."""
    store = SQLiteStore(path)
    try:
        return (await (await Session.open("s", store)).whole()).context
    finally:
        await store.close()


def timed(way: Way, path: Path, times: int) -> float:
    """The median of the seconds that it takes."""
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        asyncio.run(way(path))
        seconds.append(time.perf_counter() - start)
    return median(seconds)


def memory(way: Way, path: Path) -> tuple[float, float]:
    """The MB that Python holds for the context, and the most that it held on the way."""
    tracemalloc.start()
    context = asyncio.run(way(path))
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del context
    return held / 2**20, peak / 2**20


async def appended(path: Path, events: list[Event]) -> tuple[list[float], list[float]]:
    """The seconds of each append that keeps no checkpoint, and of each that does."""
    store, plain, keeping = SQLiteStore(path), [], []
    session = await Session.open("s", store)
    for event in events:
        kept, start = session.kept, time.perf_counter()
        session = await session.append(event)
        (plain if session.kept == kept else keeping).append(time.perf_counter() - start)
    await store.close()
    return plain, keeping


def as_sent(context: Context) -> str:
    """The messages of its next request."""
    return json.dumps(wire_messages(context.messages))


def faults(path: Path) -> list[str]:
    """What differs between the two ways."""
    whole, part, back = (asyncio.run(way(path)) for way in (read_whole, opened, brought_back))
    same = {
        "the log is read whole": part.starts_after > 0,
        "the requests differ": as_sent(whole) == as_sent(part),
        "the sizes differ": (whole.tokens, whole.turns, whole.filler)
        == (part.tokens, part.turns, part.filler),
        "the whole does not come back": back == whole,
        "a checkpoint is due": not is_due(part, whole.length - CHECKPOINT_EVERY + 1),
    }
    return [fault for fault, held in same.items() if not held]


def compare(path: Path) -> None:
    """A line for each way, and one with the ratios."""
    whole, part = timed(read_whole, path, 2), timed(opened, path, TIMES)
    (held, peak), (part_held, part_peak) = memory(read_whole, path), memory(opened, path)
    print(f"{'':22}{'time':>11}{'held':>13}{'at most':>13}")
    print(f"{'reading all':22}{whole * 1000:8.0f} ms{held:10.1f} MB{peak:10.1f} MB")
    print(f"{'opening by checkpoint':22}{part * 1000:8.0f} ms{part_held:10.1f} MB{part_peak:10.1f} MB")
    print(f"{'':22}{whole / part:9.0f}x {held / part_held:11.0f}x {peak / part_peak:11.0f}x")


def describe(path: Path, events: int) -> None:
    """What log it is."""
    context = asyncio.run(opened(path))
    size = sum(file.stat().st_size for file in path.parent.iterdir()) / 2**20
    print(
        f"{events:,} events, {size:.0f} MB in SQLite; {len(context.visible):,} messages in sight "
        f"({context.tokens:,} tokens), {context.compaction_count} compactions, "
        f"{len(context.call_ids):,} ids of calls"
    )


def main() -> int:
    events = int(sys.argv[1]) if len(sys.argv) > 1 else EVENTS
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sessions.db"
        more = asyncio.run(written(path, events))
        found = faults(path)
        describe(path, events)
        compare(path)
        plain, keeping = asyncio.run(appended(path, more))
    share = sum(keeping) / (sum(plain) + sum(keeping))
    print(
        f"an append {median(plain) * 1000:.2f} ms, with a checkpoint {median(keeping) * 1000:.1f} ms: "
        f"{share:.1%} of the time of {len(more):,} appends"
    )
    for fault in found:
        print(f"WRONG: {fault}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
