"""Appends to PostgreSQL against a bare INSERT and commit: `python -m tests.benchmarks.bench_append_postgres`.

All on one server of its own with PostgreSQL's default durability, in rounds that take turns, so that what
else the machine does falls on all alike. Wanted: at least 0.7 of the bare INSERT, at most 1.2 times the cost
on a log of 100,000 records, and 8 sessions at once at least 2 times as fast as one.
"""

import asyncio
import statistics
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

import psycopg

from agentloop.codec import encode
from agentloop.events import MessageAdded
from agentloop.messages import Message
from agentloop.stores import PostgresStore
from tests.postgres_kit import Server

ROUNDS = 15
APPENDS = 60
SESSIONS = 8
LONG = 100_000


def said() -> MessageAdded:
    """A record of the size of a usual message."""
    return MessageAdded(message=Message.user("All work and no play makes Jack a dull boy. " * 12), tokens=130)


async def appended(store: PostgresStore, session_id: str, length: int) -> int:
    """Append one record after another; the new length."""
    for _ in range(APPENDS):
        length = await store.append(session_id, [said()], expect=length)
    return length


async def bare(connection: psycopg.AsyncConnection, session_id: str) -> None:
    """Insert one row after another, each committed."""
    for seq in range(APPENDS):
        await connection.execute("INSERT INTO bare VALUES (%s, %s, %s)", (session_id, seq, encode(said())))


async def seconds(work: Callable[[], Awaitable[object]]) -> float:
    """How long the work takes."""
    started = time.perf_counter()
    await work()
    return time.perf_counter() - started


async def measure(url: str) -> None:
    """Print the rates of all, and their ratios."""
    store = PostgresStore(url)
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
    await connection.execute("CREATE TABLE bare (id text, seq int8, body text, PRIMARY KEY (id, seq))")
    length = 0
    for _ in range(LONG // 5_000):
        length = await store.append("long", [said() for _ in range(5_000)], expect=length)
    lengths = {"long": length}
    found: dict[str, list[float]] = {"bare": [], "store": [], "long": [], "parallel": []}

    async def long() -> None:
        lengths["long"] = await appended(store, "long", lengths["long"])

    async def parallel() -> None:
        await asyncio.gather(*(appended(store, uuid.uuid4().hex, 0) for _ in range(SESSIONS)))

    for _ in range(ROUNDS):
        found["bare"].append(await seconds(lambda: bare(connection, uuid.uuid4().hex)))
        found["store"].append(await seconds(lambda: appended(store, uuid.uuid4().hex, 0)))
        found["long"].append(await seconds(long))
        found["parallel"].append(await seconds(parallel))
    await connection.close()
    await store.close()
    tell({name: statistics.median(times) for name, times in found.items()})


def tell(taken: dict[str, float]) -> None:
    """Print what the median rounds come to."""
    print(f"bare INSERT and commit   {APPENDS / taken['bare']:8.0f} a second")
    print(f"append                   {APPENDS / taken['store']:8.0f} a second")
    print(f"append at {LONG:,}       {APPENDS / taken['long']:8.0f} a second")
    print(f"append, {SESSIONS} sessions       {SESSIONS * APPENDS / taken['parallel']:8.0f} a second")
    print(f"append / bare INSERT     {taken['bare'] / taken['store']:8.2f}   (wanted: 0.7 or more)")
    print(f"cost long / short        {taken['long'] / taken['store']:8.2f}   (wanted: 1.2 or less)")
    ratio = SESSIONS * taken["store"] / taken["parallel"]
    print(f"{SESSIONS} sessions / one         {ratio:8.2f}   (wanted: 2 or more)")


def main() -> None:
    """Start a server, measure, and end it."""
    server = Server(Path(tempfile.mkdtemp(prefix="agentloop-pg-")))
    try:
        with server.database() as url:
            asyncio.run(measure(url))
    finally:
        server.stop()


if __name__ == "__main__":
    main()
