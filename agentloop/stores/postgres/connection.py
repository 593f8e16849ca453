"""Connections to a PostgreSQL database.

`Link` runs work on a connection of a pool, and again on another where that one was lost. Other clients of the
same database come to it by `found_at`.
"""

import asyncio
import os
import random
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Self, TypeVar

from psycopg import AsyncConnection, Error
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus

from agentloop._plumbing.host_logging import leave_to_host, warn
from agentloop.errors import ConflictError, DamagedError, StoreError
from agentloop.stores.postgres.address import Address, address_of
from agentloop.stores.postgres.faults import fault, is_lost, state_of
from agentloop.stores.postgres.schema import one_row, prepare

T = TypeVar("T")
Work = Callable[[AsyncConnection], Awaitable[T]]
_FIRST_WAIT_SECONDS = 0.05
_LONGEST_WAIT_SECONDS = 0.5
_STARTING = "57P03"
_RACED = ("40001", "40P01")
"""Another writer came between: the same call may work at once."""


class Link:
    """Runs work on a connection, and again on another where that one was lost.

    Work must do no harm when it is done twice: an answer may be lost after the server did it. Connections are
    lost when the server stops or ends them. Then, and where other writers came between, the work is tried
    again as long as `retry` seconds have not passed since it began, with waits that double up to half a
    second and carry some chance. A server that was never reached is asked only once. Nobody waits for one of
    the connections longer than `longest_wait` seconds.

    No statement is prepared: a pooler in between may hand on other connections than those on which it was, or
    clear them (https://www.pgbouncer.org/features.html).
    """

    def __init__(
        self, address: Address, prepare: Work[None], *, connections: int, longest_wait: float, retry: float
    ) -> None:
        self._address = address
        self._prepare = prepare
        self._connections = connections
        self._longest_wait = longest_wait
        self._retry_seconds = retry
        self._is_away = False
        self._pools: dict[asyncio.AbstractEventLoop, _Pool] = {}
        self._forget_all()

    async def run(self, work: Work[T]) -> T:
        """What the work gives.

        Raises:
            StoreError: the database cannot be reached or refuses; the text names it and says what to do.
        """
        started, wait = time.monotonic(), _FIRST_WAIT_SECONDS
        while True:
            pool = self._pool()
            try:
                result = await pool.run(self._work, work)
                self._is_away = False
                return result
            except Error as error:
                self._note(error)
                wait = min(wait * 2, _LONGEST_WAIT_SECONDS)
                is_over = time.monotonic() - started + wait >= self._retry_seconds
                if is_over or not self._may_work_again(error, pool):
                    raise fault(self._address.label, error) from error
            except ConflictError:
                raise
            except DamagedError as error:
                raise DamagedError(f"{self._address.label}: {error}") from error
            except StoreError as error:
                raise StoreError(f"{self._address.label}: {error}") from error
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))

    def close(self) -> None:
        """Let all connections go, also those of other loops; harmless when called again."""
        self._notice_fork()
        with self._lock:
            pools, self._pools = list(self._pools.values()), {}
            self._ready = False
        for pool in pools:
            pool.close()

    async def _work(self, connection: AsyncConnection, work: Work[T]) -> T:
        if not self._ready:
            await self._prepare(connection)
            self._ready = True
        return await work(connection)

    def _note(self, error: Error) -> None:
        """Tell the host once that the server is away: it may be tried for long before its caller hears."""
        if self._is_away or not is_lost(error):
            return
        self._is_away = True
        warn("database_away", error=str(fault(self._address.label, error)))

    def _may_work_again(self, error: Error, pool: "_Pool") -> bool:
        if state_of(error) in _RACED:
            return True
        if not is_lost(error):
            return False
        self._forget(pool)
        return self._ready or state_of(error) == _STARTING

    def _pool(self) -> "_Pool":
        loop = asyncio.get_running_loop()
        self._notice_fork()
        with self._lock:
            for other in [each for each in self._pools if each.is_closed()]:
                self._pools.pop(other).close()
            if loop not in self._pools:
                make = partial(connect, self._address.conninfo)
                self._pools[loop] = _Pool(make, self._connections, self._longest_wait)
            return self._pools[loop]

    def _notice_fork(self) -> None:
        if self._pid != os.getpid():
            self._forget_all()

    def _forget_all(self) -> None:
        """Begin anew, also with the lock, which a thread that stayed behind in the parent may hold."""
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._pools = {}
        self._ready = False

    def _forget(self, pool: "_Pool") -> None:
        """One lost connection seldom comes alone: the next call makes a new pool."""
        with self._lock:
            if self._pools.get(pool.loop) is pool:
                del self._pools[pool.loop]
        pool.close()


class _Pool:
    """The connections of one event loop, made when needed, the one used last first.

    Not that of psycopg_pool: there, who waits for a connection is never told why none can be made, only that
    time is up, and its tasks swallow the cancellation that ends an event loop while they connect, so that
    the loop never ends.
    """

    def __init__(
        self, connect: Callable[[], Awaitable["_Connection"]], connections: int, longest_wait: float
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._connect = connect
        self._longest_wait = longest_wait
        self._places = asyncio.Semaphore(connections)
        self._idle: list[_Connection] = []
        self._closed = False

    async def run(self, work: Callable[[AsyncConnection, Work[T]], Awaitable[T]], argument: Work[T]) -> T:
        """What the work gives on a connection.

        Raises:
            Error: as psycopg and libpq raise them.
            StoreError: all connections stayed busy.
        """
        await self._wait_for_place()
        try:
            connection = self._pop() or await self._connect()
            try:
                return await work(connection, argument)
            finally:
                self._put(connection)
        finally:
            self._places.release()

    def close(self) -> None:
        """Close what is idle now, and what is in use when it comes back; from any thread."""
        self._closed = True
        while connection := self._pop():
            connection.pgconn.finish()

    async def _wait_for_place(self) -> None:
        try:
            async with asyncio.timeout(self._longest_wait):
                await self._places.acquire()
        except TimeoutError as error:
            text = "all connections of this store stayed busy: raise connections, or do less at once"
            raise StoreError(text) from error

    def _pop(self) -> "_Connection | None":
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _put(self, connection: "_Connection") -> None:
        if connection.pgconn.transaction_status == TransactionStatus.IDLE:
            self._idle.append(connection)
        else:
            connection.pgconn.finish()
        if self._closed:
            self.close()


async def connect(conninfo: str) -> "_Connection":
    """A new connection, which commits each statement by itself and prepares none.

    Raises:
        Error: as psycopg and libpq raise it, without the password.
    """
    leave_to_host("psycopg")
    return await _Connection.connect(conninfo, autocommit=True, prepare_threshold=None)


class _Connection(AsyncConnection[Any]):
    """A connection whose faults hold no password, and which goes quietly with a loop that has ended.

    One that a forked process has inherited is left to the parent: ending it here would end it there.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._pid = os.getpid()

    @classmethod
    async def connect(cls, *args: Any, **kwargs: Any) -> Self:
        try:
            return await super().connect(*args, **kwargs)
        except Error as error:
            plain = type(error)(str(error))
        # psycopg's own error holds the parameters of the connection, the password too: it is left behind.
        raise plain

    def __del__(self, *_: object) -> None:
        if getattr(self, "_pid", None) == os.getpid():
            self.pgconn.finish()


_PLACE = ("host", "hostaddr", "port")


async def found_at(
    url: str, *, connect_seconds: float, statement_seconds: float
) -> tuple[Mapping[str, str], str]:
    """What `psycopg.connect` is to be told to come to that database, and the schema of its tables.

    `user` and `dbname` always stand there, as the server knows them, and what is said is in UTF-8, as a
    store's is. Where the server is stands in `conninfo`, as libpq read it: other readers have rules of their
    own for several hosts.

    Raises:
        UsageError: it is no URL of a PostgreSQL database.
        StoreError: it cannot be reached, or cannot hold a store.
    """
    address = address_of(url, statement_seconds=statement_seconds, connect_seconds=connect_seconds)
    link = Link(address, prepare, connections=1, longest_wait=connect_seconds, retry=0)
    try:
        known, schema = await link.run(_known_of)
    finally:
        link.close()
    told = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    place = {name: told.pop(name) for name in _PLACE if name in told}
    told |= {**known, "client_encoding": "utf8", "conninfo": make_conninfo("", **place)}
    return told, schema


async def _known_of(connection: AsyncConnection) -> tuple[Mapping[str, str], str]:
    """What the server knows of the connection, and the schema that tables are made in."""
    [schema] = await one_row(connection, "SELECT pg_catalog.current_schema()", ()) or [""]
    return {"user": connection.info.user, "dbname": connection.info.dbname}, schema
