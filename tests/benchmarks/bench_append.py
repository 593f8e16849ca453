"""What does an append cost beside a bare `INSERT` and commit at the same durability, and does it grow?

    python -m tests.benchmarks.bench_append

One event an append, one after the other. Prints appends a second of both, medians of rounds that take turns
in one run, and the ratio; then what an append costs behind 100 and behind 100,000 events, again in turns.
"""

import asyncio
import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import TypeAlias

from agentloop.codec import encode
from agentloop.events import MessageAdded
from agentloop.messages import Message
from agentloop.stores import SessionStore, SQLiteStore

ROUNDS, APPENDS = 15, 400
SHORT, LONG, AT_ONCE = 100, 100_000, 5_000
LEAST_SHARE, MOST_GROWTH = 0.7, 1.2

Round: TypeAlias = Callable[[], Awaitable[float]]
"""Appends so many events, and returns the seconds that one took."""


def event(number: int) -> MessageAdded:
    """A message of ordinary size."""
    return MessageAdded(message=Message.user(f"message {number}: " + "some words " * 40), tokens=100)


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


def bare_sqlite(path: Path) -> Round:
    """Rounds of one `INSERT` and commit each, of the same texts into a table alone."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(
        """CREATE TABLE events (session_id TEXT NOT NULL, seq INTEGER NOT NULL, body TEXT NOT NULL,
        PRIMARY KEY (session_id, seq)) WITHOUT ROWID"""
    )
    at = 0

    async def appends() -> float:
        nonlocal at
        texts = [encode(event(number)) for number in range(APPENDS)]
        start = time.perf_counter()
        for text in texts:
            at += 1
            connection.execute("INSERT INTO events VALUES ('bench', ?, ?)", (at, text))
        return (time.perf_counter() - start) / APPENDS

    return appends


async def grown(store: SessionStore, session_id: str, length: int) -> Round:
    """Rounds of appends to a session that holds so many records."""
    at = 0
    while at < length:
        events = [event(number) for number in range(min(AT_ONCE, length - at))]
        at = await store.append(session_id, events, expect=at)
    return ours(store, session_id, length)


async def in_turns(first: Round, second: Round) -> tuple[float, float]:
    """The median seconds of one append of both, measured in turns after a round that counts for nothing."""
    await first(), await second()
    pairs = [(await first(), await second()) for _ in range(ROUNDS)]
    return median(one for one, _ in pairs), median(other for _, other in pairs)


async def report(name: str, bare: Round, store: SessionStore) -> None:
    """Two lines: against the bare insert, and by the length of the log."""
    alone, with_us = await in_turns(bare, ours(store, "bench"))
    share = alone / with_us
    print(
        f"{name:12} bare {1 / alone:7,.0f}/s   ours {1 / with_us:7,.0f}/s   ratio {share:.2f}"
        f"{'' if share >= LEAST_SHARE else '   TOO SLOW'}",
        flush=True,
    )
    short, long = await in_turns(await grown(store, "short", SHORT), await grown(store, "long", LONG))
    print(
        f"{name:12} behind {SHORT:,}: {short * 1e6:.0f} µs   behind {LONG:,}: {long * 1e6:.0f} µs   "
        f"ratio {long / short:.2f}{'' if long / short <= MOST_GROWTH else '   GROWS'}",
        flush=True,
    )


async def sqlite(folder: Path) -> None:
    """Both measurements of SQLite."""
    store = SQLiteStore(folder / "ours.db")
    await report("SQLite", bare_sqlite(folder / "bare.db"), store)
    await store.close()


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        await sqlite(Path(folder))


if __name__ == "__main__":
    asyncio.run(main())
