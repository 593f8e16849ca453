"""Locks by name in a PostgreSQL database, each held for as long as its holder's connection lasts.

A lock is a session-level advisory one (https://www.postgresql.org/docs/current/explicit-locking.html), which
goes when its connection does. So a process that is killed lets go at once, and a lock that can be taken has
no living holder.
"""

import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

from psycopg import AsyncConnection, Error
from psycopg.conninfo import make_conninfo

from agentloop.errors import StoreError
from agentloop.stores.postgres.address import address_of
from agentloop.stores.postgres.connection import connect
from agentloop.stores.postgres.faults import fault

_TAKE = "SELECT pg_catalog.pg_try_advisory_lock(pg_catalog.hashtextextended(%s, 0))"
_FREE = "SELECT pg_catalog.pg_advisory_unlock(pg_catalog.hashtextextended(%s, 0))"
_HELD = """
    SELECT name FROM pg_catalog.unnest(%s::text[]) AS name
    WHERE EXISTS (
      SELECT FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database
      WHERE locktype = 'advisory' AND granted AND datname = pg_catalog.current_database()
        AND (classid::bigint << 32 | objid::bigint) = pg_catalog.hashtextextended(name, 0)
    )
"""
_PROBES = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
"""A machine that is gone as a whole is noticed in 25 s: idle for 10 s, then three probes 5 s apart."""
_SERVER_PROBES = "; ".join(f"SET tcp_{name} = {value}" for name, value in _PROBES.items())
_SECONDS = 10.0


class HeldLock:
    """The lock of that name in the database at `url`, and a look at those of others.

    Raises:
        UsageError: the URL is none of a PostgreSQL database.
    """

    def __init__(self, url: str, name: str) -> None:
        self._address = address_of(url, statement_seconds=_SECONDS, connect_seconds=_SECONDS)
        self._name = name
        self._connection: AsyncConnection[Any] | None = None
        self._is_held = False

    async def keep(self) -> bool:
        """Hold the lock from now on, on a new connection where the old one is lost.

        Returns whether it was held until now.

        Raises:
            StoreError: the database cannot be reached.
        """
        if self._connection is not None:
            try:
                await self._connection.execute("SELECT 1")
            except Error:
                await self.free()
        was_held = self._is_held
        with self._as_faults():
            connection = self._connection or await self._connect()
            self._connection = connection
            self._is_held = was_held or await _take(connection, self._name)
        return was_held

    @contextlib.asynccontextmanager
    async def is_free(self, name: str) -> AsyncIterator[bool]:
        """Whether nobody holds the lock of that name; nobody takes it within the block.

        Raises:
            StoreError: the database cannot be reached.
        """
        connection = self._connection
        if connection is None:
            raise StoreError(f"{self._address.label}: not connected")
        with self._as_faults():
            is_free = await _take(connection, name)
        try:
            yield is_free
        finally:
            if is_free:
                with self._as_faults():
                    await connection.execute(_FREE, [name])

    async def free(self) -> None:
        """Let go of the lock and its connection; harmless when called again."""
        connection, self._connection, self._is_held = self._connection, None, False
        if connection is not None:
            await connection.close()

    async def _connect(self) -> AsyncConnection[Any]:
        connection = await connect(make_conninfo(self._address.conninfo, **_PROBES))
        try:
            await connection.execute(_SERVER_PROBES)
        except BaseException:  # cancelled too: nobody else would close it
            await connection.close()
            raise
        return connection

    @contextlib.contextmanager
    def _as_faults(self) -> Iterator[None]:
        try:
            yield
        except Error as error:
            raise fault(self._address.label, error) from error


async def held_among(url: str, names: Iterable[str]) -> frozenset[str]:
    """Which of the locks of these names anybody holds in the database at `url`.

    Raises:
        StoreError: the database cannot be reached.
    """
    address = address_of(url, statement_seconds=_SECONDS, connect_seconds=_SECONDS)
    try:
        async with await connect(address.conninfo) as connection:
            rows = await (await connection.execute(_HELD, [sorted(names)])).fetchall()
    except Error as error:
        raise fault(address.label, error) from error
    return frozenset(name for (name,) in rows)


async def _take(connection: AsyncConnection[Any], name: str) -> bool:
    row = await (await connection.execute(_TAKE, [name])).fetchone()
    return bool(row and row[0])
