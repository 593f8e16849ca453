"""Durable runs with one worker in this process: what tests of them share."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
import structlog

from agentloop import Agent
from agentloop.durable import QueuedRun, RunQueue, Worker
from agentloop.events import MessageRecord, Record
from agentloop.stores import SessionStore, open_store
from agentloop.stream import AnyStreamEvent
from tests.kit import until
from tests.postgres_kit import Server


@pytest.fixture(scope="module")
def url(postgres: Server, with_tables: str) -> Iterator[str]:
    """One database for all tests here."""
    with postgres.database(like=with_tables) as url:
        yield url


@pytest.fixture(scope="module")
def queue(url: str) -> Iterator[RunQueue]:
    """The queue from outside."""
    queue = RunQueue(url)
    yield queue
    asyncio.run(queue.close())


@pytest.fixture(autouse=True)
async def no_run_is_left(queue: RunQueue) -> AsyncIterator[None]:
    """A test that fails leaves no run to the workers of the next."""
    yield
    for run in await queue.runs(only_open=True, most=None):
        await queue.cancel(run.id)


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written beside the database is written here."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
async def store(url: str) -> AsyncIterator[SessionStore]:
    """The sessions."""
    store = open_store(url)
    yield store
    await store.close()


@pytest.fixture
def configured() -> Iterator[list[MutableMapping[str, Any]]]:
    """What the host's structlog is handed."""
    structlog.configure()
    with structlog.testing.capture_logs() as entries:
        yield entries
    structlog.reset_defaults()


@contextlib.asynccontextmanager
async def at_work(agent: Agent, url: str, **options: Any) -> AsyncIterator[Worker]:
    """A worker for the time of the block, by whose end it stops."""
    options = {"transcripts": None, "poll_seconds": 0.05, "look_seconds": 0.2, **options}
    worker = Worker(agent, url, **options)
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        # A cancellation, by which other ways to wait would end, waits for its end too.
        assert (await asyncio.wait({task}, timeout=60))[0], "it does not stop"
        await task


async def over(queue: RunQueue, run_id: str) -> QueuedRun:
    """The run once it is over, for as long as a broken test may take."""
    return await asyncio.wait_for(queue.wait(run_id, poll_seconds=0.02), timeout=60)


async def said(store: SessionStore, session_id: str) -> list[tuple[str, str]]:
    """Role and text of all messages of a log."""
    records = await store.read(session_id)
    return [(each.message.role, each.message.text) for each in messages(records)]


def messages(records: Sequence[Record]) -> list[MessageRecord]:
    """The messages among the records."""
    return [record.event for record in records if isinstance(record.event, MessageRecord)]


def locked_out(connection: "psycopg.Connection[Any]", table: str) -> int:
    """How many others wait for a lock with a query that names this table."""
    return connection.execute(
        "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s"
        " AND datname = current_database() AND pid <> pg_backend_pid()",
        [f"%{table}%"],
    ).rowcount


async def looked_at(url: str, session_id: str) -> None:
    """Hold the lease on a session for as long as nobody else wants to take it."""
    with psycopg.connect(url, autocommit=True) as watching:
        await become(lambda: not locked_out(watching, "agentloop_leases"))
        async with await psycopg.AsyncConnection.connect(url) as holding:
            await holding.execute(
                "SELECT FROM agentloop_leases WHERE session_id = %s FOR UPDATE", [session_id]
            )
            await become(lambda: locked_out(watching, "agentloop_leases"))


async def become(condition: Callable[[], object]) -> None:
    """Look until it is so; only the server can tell."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


class Heard:
    """Hears the events of a worker's runs until one of this kind comes."""

    def __init__(self, kind: type[AnyStreamEvent]) -> None:
        self.is_heard = asyncio.Event()
        self._kind = kind

    def __call__(self, event: AnyStreamEvent) -> None:
        if isinstance(event, self._kind):
            self.is_heard.set()


class Gate:
    """A tool that says when it is in, and stays there until it is let out."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.leave = asyncio.Event()
        self.times = 0

    async def wait(self) -> str:
        """Wait at the gate."""
        self.times += 1
        self.entered.set()
        await until(self.leave)
        return "through"


def echo(text: str) -> str:
    """Say it again."""
    return f"heard {text}"


def answers(count: int) -> list[str]:
    """So many different answers."""
    return [f"answer {n}" for n in range(count)]
