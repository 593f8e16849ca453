"""What does an append to PostgreSQL cost beside a bare `INSERT` and commit, and does it grow?

    python -m tests.benchmarks.bench_append_postgres

Measured as `bench_append` measures SQLite, on one server of its own with PostgreSQL's default durability;
then how many appends a second go to 8 sessions at once, against those to one.
"""

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

import psycopg

from agentloop.codec import encode
from agentloop.stores import PostgresStore, SessionStore
from tests.benchmarks.bench_append import APPENDS, Round, event, in_turns, ours, report, say
from tests.postgres_kit import Server

SESSIONS, LEAST_GAIN = 8, 2.0


@contextlib.asynccontextmanager
async def bare_postgres(url: str) -> AsyncIterator[Round]:
    """Rounds of one `INSERT` and commit each, of the same texts into such a table alone."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(
            "CREATE TABLE bare (session_id text, seq int8, body text, PRIMARY KEY (session_id, seq))"
        )
        positions = count(1)

        async def appends() -> float:
            events = [event(number) for number in range(APPENDS)]
            start = time.perf_counter()
            for each in events:
                row = ("bench", next(positions), encode(each))
                await connection.execute("INSERT INTO bare VALUES (%s, %s, %s)", row)
            return (time.perf_counter() - start) / APPENDS

        yield appends


def side_by_side(store: SessionStore) -> Round:
    """Rounds of appends to so many sessions at once; the seconds are those of one append."""
    sessions = [ours(store, f"beside-{number}") for number in range(SESSIONS)]

    async def appends() -> float:
        start = time.perf_counter()
        await asyncio.gather(*(each() for each in sessions))
        return (time.perf_counter() - start) / (APPENDS * SESSIONS)

    return appends


async def measure(url: str) -> None:
    """All measurements of PostgreSQL."""
    store = PostgresStore(url)
    async with bare_postgres(url) as bare:
        await report(store, bare=bare)
    one, many = await in_turns(ours(store, "one"), side_by_side(store))
    gain = one / many
    verdict = "" if gain >= LEAST_GAIN else "   TOO SLOW"
    say(f"one session {1 / one:,.0f}/s   {SESSIONS} at once {1 / many:,.0f}/s   ratio {gain:.2f}{verdict}")
    await store.close()


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
