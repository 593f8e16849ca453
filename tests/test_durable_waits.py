"""Who waits for a durable run, while its database goes away and comes back."""

import asyncio
import contextlib
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from agentloop.durable import RunQueue, workflow
from agentloop.durable import engine as durable_database
from agentloop.errors import StoreError
from tests.durable_work_kit import over
from tests.kit import until

_END_ALL = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"


@contextlib.contextmanager
def closed(url: str) -> Iterator[None]:
    """The database takes nobody for the time of the block, and those whom it had are out."""
    name = str(conninfo_to_dict(url)["dbname"])
    allow = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
    with psycopg.connect(url.replace(f"/{name}?", "/postgres?"), autocommit=True) as connection:
        connection.execute(allow.format(sql.Identifier(name), False))
        connection.execute(_END_ALL, [name])
        try:
            yield
        finally:
            connection.execute(allow.format(sql.Identifier(name), True))


@pytest.mark.deep
async def test_who_waits_goes_on_when_a_database_that_went_away_is_there_again(
    database_with_tables: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_missed = asyncio.Event()

    def retry_pause(_: int, error: BaseException, *, retry_seconds: float) -> float:
        is_missed.set()
        return retry_seconds / 100

    monkeypatch.setattr(durable_database, "retry_pause", retry_pause)
    async with RunQueue(database_with_tables) as queue:
        run_id = await queue.submit("Hello.")
        waiting = asyncio.create_task(over(queue, run_id))
        with closed(database_with_tables):
            await until(is_missed)
        assert not waiting.done()
        await queue.cancel(run_id)
        assert (await waiting).state == "cancelled"


@pytest.mark.deep
async def test_who_waits_gives_up_on_a_database_that_stays_away(
    database_with_tables: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float | None] = []

    def retry_pause(number: int, error: BaseException, *, retry_seconds: float) -> float | None:
        pauses.append(workflow.retry_pause(number, error, retry_seconds=retry_seconds / 10_000))
        return pauses[-1]

    monkeypatch.setattr(durable_database, "retry_pause", retry_pause)
    async with RunQueue(database_with_tables) as queue:
        run_id = await queue.submit("Hello.")
        with (
            closed(database_with_tables),
            pytest.raises(StoreError, match=f"; run {run_id} stays in the queue") as raised,
        ):
            await over(queue, run_id)
    assert str(raised.value).count(f"run {run_id}") == 1
    assert (len(pauses), pauses[-1]) == (5, None)
