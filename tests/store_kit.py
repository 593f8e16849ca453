"""What the tests of stores share: what is said and read, a store with nothing beside, writers elsewhere."""

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, LiteralString, TypeAlias

import pytest
from psycopg import sql

from agentloop.events import Event, MessageRecord, Record
from agentloop.messages import Message
from agentloop.stores import InMemoryStore, PostgresStore, SessionInfo, SessionStore, SQLiteStore
from agentloop.stores.base import Checkpoint, Lease, checked_session_id
from tests.postgres_kit import other_program

AnyStore: TypeAlias = InMemoryStore | SQLiteStore | PostgresStore

WRITER = """
import asyncio, sys
from agentloop.errors import ConflictError
from agentloop.events import MessageRecord
from agentloop.messages import Message
from agentloop.stores import open_store

async def write(store, name, records):
    length = 0
    for number in range(records):
        event = MessageRecord(message=Message.user(f"{name} {number}"), tokens=1)
        while True:
            try:
                length = await store.append("shared", [event], expect=length)
                print(length, flush=True)
                break
            except ConflictError as error:
                length = error.actual

async def main(url, records, *names):
    store = open_store(url)
    await asyncio.gather(*(write(store, name, int(records)) for name in names))
    await store.close()

asyncio.run(main(*sys.argv[1:]))
"""
"""Writes so many records into the session `shared` of the store at a URL, for each name by a task of its own.

They say `name 0`, `name 1`, …; the length that each append returned is printed.
"""


class CheckpointingStore(InMemoryStore):
    """A store in memory that keeps checkpoints, as those on disc do."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[str, Checkpoint] = {}

    async def checkpoint(self, session_id: str) -> Checkpoint | None:
        return self._kept.get(checked_session_id(session_id))

    async def keep_checkpoint(self, session_id: str, checkpoint: Checkpoint) -> None:
        kept = self._kept.get(checked_session_id(session_id))
        if await self.info(session_id) and (kept is None or kept.seq <= checkpoint.seq):
            self._kept[session_id] = checkpoint

    async def drop_checkpoint(self, session_id: str) -> None:
        self._kept.pop(checked_session_id(session_id), None)

    async def delete(self, session_id: str) -> bool:
        await self.drop_checkpoint(session_id)
        return await super().delete(session_id)

    async def sweep(self, *, owner: str | None = None, now: float | None = None) -> Sequence[SessionInfo]:
        gone = await super().sweep(owner=owner, now=now)
        for info in gone:
            await self.drop_checkpoint(info.id)
        return gone


class CountingStore(CheckpointingStore):
    """A store that notes how many records each append and each read moved."""

    def __init__(self) -> None:
        super().__init__()
        self.moved: list[tuple[str, int]] = []

    async def append(self, session_id: str, events: Sequence[Event], *, expect: int) -> int:
        self.moved.append(("append", len(events)))
        return await super().append(session_id, events, expect=expect)

    async def read(self, session_id: str, *, after: int = 0, most: int | None = None) -> Sequence[Record]:
        records = await super().read(session_id, after=after, most=most)
        self.moved.append(("read", len(records)))
        return records


class LogAlone:
    """A store with the verbs that every store must have, and no other; in memory."""

    def __init__(self) -> None:
        store = InMemoryStore()
        self.append, self.read, self.info, self.list = store.append, store.read, store.info, store.list
        self.delete, self.sweep, self.close = store.delete, store.sweep, store.close


def made_store(kind: str, path: Path, database: Callable[[], str]) -> AnyStore:
    """A new store of that kind: `memory`, `sqlite` at the path, or `postgres` in the database of that URL."""
    match kind:
        case "memory":
            return InMemoryStore()
        case "sqlite":
            return SQLiteStore(path)
        case _:
            return PostgresStore(database(), retry_seconds=5)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AnyStore]:
    """Each store of the package, empty."""
    made = made_store(request.param, tmp_path / "sessions.db", lambda: request.getfixturevalue("database"))
    yield made
    await made.close()


def lease(holder: str = "h", **fields: Any) -> Lease:
    """A lease of this holder; other fields by name."""
    return Lease(**({"holder": holder, "place": "p", "pid": 1, "started": "1", "since": 1.0} | fields))


async def changed_behind_its_back(
    store: AnyStore, table: str, change: LiteralString, request: pytest.FixtureRequest
) -> None:
    """Update a table of the store on disc that `made_store` made in this test, as another program would."""
    if isinstance(store, SQLiteStore):
        path = request.getfixturevalue("tmp_path") / "sessions.db"
        with closing(sqlite3.connect(path)) as file, file:
            file.execute(f"UPDATE {table} SET {change}")
        return
    url = request.getfixturevalue("database")
    async with other_program(url) as connection:
        name = sql.Identifier(f"agentloop_{table}")
        await connection.execute(sql.SQL("UPDATE {} SET ").format(name) + sql.SQL(change))


def said(text: str = "hi") -> MessageRecord:
    """What a user said just now."""
    return MessageRecord(message=Message.user(text), tokens=1)


async def texts(store: SessionStore, session_id: str = "s") -> list[str]:
    """What the messages of a session say, in order."""
    records = await store.read(session_id)
    return [record.event.message.text for record in records if isinstance(record.event, MessageRecord)]


async def ran(script: str, *arguments: str) -> tuple[int, str]:
    """Run a script in a Python of its own, where a warning is an error; its status and all that it said."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", "-c", script, *arguments,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()
