"""Locks by name in PostgreSQL: held by one, given up with their connection, no secret in their faults."""

import asyncio

import psycopg
import pytest

from agentloop.errors import StoreError
from agentloop.stores.postgres import HeldLock, locks
from tests.postgres_kit import other_program, until_connected


async def test_a_lock_is_held_until_it_is_let_go(database: str) -> None:
    mine, theirs = HeldLock(database, "mine"), HeldLock(database, "theirs")
    await mine.keep()
    await mine.keep()
    await theirs.keep()
    async with theirs.is_free("mine") as is_free:
        assert not is_free
    await mine.free()
    await all_gone_of_mine(theirs)
    await theirs.free()


async def all_gone_of_mine(other: HeldLock) -> None:
    """Wait until the lock `mine` can be had."""
    async with asyncio.timeout(60):
        while True:
            async with other.is_free("mine") as is_free:
                if is_free:
                    return
            await asyncio.sleep(0.005)


async def test_what_the_block_raises_stays_what_it_is_and_the_lock_goes(database: str) -> None:
    """Also where it is an error of the same vendor: it is no fault of the lock's own connection."""
    lock, other = HeldLock(database, "one"), HeldLock(database, "two")
    await lock.keep()
    await other.keep()
    with pytest.raises(psycopg.OperationalError, match="of the block") as caught:
        async with lock.is_free("free"):
            raise psycopg.OperationalError("of the block")
    assert caught.value.__cause__ is None
    async with other.is_free("free") as is_free:
        assert is_free
    await lock.free()
    await other.free()


async def test_a_refused_lock_holds_no_password(database: str) -> None:
    async with other_program(database) as other:
        await other.execute("DROP ROLE IF EXISTS closed")
        await other.execute("CREATE ROLE closed NOLOGIN")
        lock = HeldLock(database.replace("postgres@", "closed:s3cret@"), "mine")
        with pytest.raises(StoreError, match="the user was refused") as caught:
            await lock.keep()
        await other.execute("DROP ROLE closed")
    error: BaseException | None = caught.value
    while error:
        assert "s3cret" not in f"{error!r} {vars(error)}"
        assert getattr(error, "pgconn", None) is None
        error = error.__cause__ or error.__context__


async def test_a_connection_that_cannot_be_used_is_closed(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = HeldLock(f"{database}&application_name=unusable", "mine")
    monkeypatch.setattr(locks, "_SERVER_PROBES", "SELECT 1 / 0")
    with pytest.raises(StoreError, match="division by zero"):
        await lock.keep()
    async with other_program(database) as watcher:
        await until_connected(watcher, "unusable", 0)
    monkeypatch.setattr(locks, "_SERVER_PROBES", "SELECT pg_advisory_lock(7)")
    async with other_program(database) as other:
        await other.execute("SELECT pg_advisory_lock(7)")
        task = asyncio.create_task(lock.keep())
        await until_connected(other, "unusable", 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    async with other_program(database) as watcher:
        await until_connected(watcher, "unusable", 0)
    with pytest.raises(StoreError, match="not connected"):
        async with lock.is_free("other"):
            pass
