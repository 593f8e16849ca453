"""What does an append cost beside a bare `INSERT` and commit at the same durability, and does it grow?

    python -m tests.benchmarks.bench_append

One event an append, one after the other; each is made a row of the same contents in the same table with the
same pragmas. Prints appends a second of both, medians of rounds that take turns in one run, and the ratio:
against an `INSERT` that stops the event loop, and against one that is awaited, by `asyncio.to_thread`. Then
what an append costs behind 100 and behind 100,000 events, again in turns. Each line ends with the load
average: what else runs takes more from two threads than from one.
"""

import asyncio
import os
import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from statistics import median
from typing import TypeAlias

from agentloop.codec import encode
from agentloop.events import MessageRecord
from agentloop.messages import Message
from agentloop.stores import SessionStore, SQLiteStore
from agentloop.stores.sqlite.schema import record_sum

ROUNDS, APPENDS = 15, 400
SHORT, LONG, AT_ONCE = 100, 100_000, 5_000
LEAST_SHARE, MOST_GROWTH = 0.7, 1.2

Round: TypeAlias = Callable[[], Awaitable[float]]
"""Appends so many events, and returns the seconds that one took."""


def event(number: int) -> MessageRecord:
    """A message of ordinary size."""
    return MessageRecord(message=Message.user(f"message {number}: " + "some words " * 40), tokens=100)


def ours(store: SessionStore, session_id: str, length: int = 0) -> Round:
    """Rounds of appends to one session of a store, which holds `length` records."""
    at = length

    async def appends() -> float:
        nonlocal at
        events = [event(number) for number in range(APPENDS)]
        start = time.perf_counter()
        for each in events:
            at = await store.append(session_id, [each], expect=at)
        return (time.perf_counter() - start) / APPENDS

    return appends


def bare_sqlite(path: Path) -> tuple[Round, Round]:
    """Rounds of one `INSERT` and commit each, of the same rows into such a table alone; and those awaited."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "cell_size_check = ON"):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute(
        """CREATE TABLE events (session_id TEXT NOT NULL, seq INTEGER NOT NULL, body TEXT NOT NULL,
        sum INTEGER, PRIMARY KEY (session_id, seq)) WITHOUT ROWID"""
    )
    positions = count(1)

    def insert(added: MessageRecord) -> None:
        at, text = next(positions), encode(added)
        row = ("bench", at, text, record_sum("bench", at, text))
        connection.execute("INSERT INTO events VALUES (?, ?, ?, ?)", row)

    async def appends() -> float:
        events = [event(number) for number in range(APPENDS)]
        start = time.perf_counter()
        for each in events:
            insert(each)
        return (time.perf_counter() - start) / APPENDS

    async def awaited() -> float:
        events = [event(number) for number in range(APPENDS)]
        start = time.perf_counter()
        for each in events:
            await asyncio.to_thread(insert, each)
        return (time.perf_counter() - start) / APPENDS

    return appends, awaited


async def grown(store: SessionStore, session_id: str, length: int) -> Round:
    """Rounds of appends to a session that holds so many records."""
    at = 0
    while at < length:
        events = [event(number) for number in range(min(AT_ONCE, length - at))]
        at = await store.append(session_id, events, expect=at)
    return ours(store, session_id, length)


async def in_turns(*rounds: Round) -> list[float]:
    """The median seconds of one append of each, measured in turns after a round that counts for nothing."""
    taken = [[await each() for each in rounds] for _ in range(ROUNDS + 1)]
    return [median(times) for times in zip(*taken[1:], strict=True)]


def say(text: str) -> None:
    """One line of the report, with the load average of the last minute."""
    print(f"{text}   (load {os.getloadavg()[0]:.1f})", flush=True)


async def report(store: SessionStore, **bare: Round) -> None:
    """A line against each bare insert, by its name, and one by the length of the log."""
    *others, with_us = await in_turns(*bare.values(), ours(store, "bench"))
    for name, other in zip(bare, others, strict=True):
        share = other / with_us
        verdict = "" if share >= LEAST_SHARE else "   TOO SLOW"
        say(f"{name:8} {1 / other:7,.0f}/s   ours {1 / with_us:7,.0f}/s   ratio {share:.2f}{verdict}")
    short, long = await in_turns(await grown(store, "short", SHORT), await grown(store, "long", LONG))
    verdict = "" if long / short <= MOST_GROWTH else "   GROWS"
    behind = f"behind {SHORT:,}: {short * 1e6:.0f} µs   behind {LONG:,}: {long * 1e6:.0f} µs"
    say(f"{behind}   ratio {long / short:.2f}{verdict}")


async def sqlite(folder: Path) -> None:
    """All measurements of SQLite."""
    store = SQLiteStore(folder / "ours.db")
    bare, awaited = bare_sqlite(folder / "bare.db")
    await report(store, bare=bare, awaited=awaited)
    await store.close()


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        await sqlite(Path(folder))


if __name__ == "__main__":
    asyncio.run(main())
