"""A PostgreSQL database: its connections, its address, its faults in words, and locks by name in it.

`Link` runs work on a connection of a pool, and again on another where that one was lost. `address_of` reads a
store's URL, so that no password stands in a text of ours; `fault` puts what the server says into words. Other
clients of the same database come to it by `found_at`, and share those words by `fault_of` and `is_away`.

`HeldLock` is a lock by name, held for as long as its holder's connection lasts: a session-level advisory lock
(https://www.postgresql.org/docs/current/explicit-locking.html) goes when its connection does. So a process
that is killed lets go at once, and a lock that can be taken has no living holder.
"""

import asyncio
import contextlib
import math
import os
import random
import re
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self, TypeVar

import psycopg
from psycopg import AsyncConnection, Error, InterfaceError, OperationalError
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus

from agentloop._plumbing.host_logging import warn
from agentloop._plumbing.to_text import first_line
from agentloop.errors import ConflictError, DamagedError, StoreError, UsageError
from agentloop.stores.postgres.schema import one_row, prepare

T = TypeVar("T")
Work = Callable[[AsyncConnection], Awaitable[T]]
_FIRST_WAIT_SECONDS = 0.05
_LONGEST_WAIT_SECONDS = 0.5
_STARTING = "57P03"
_RACED = ("40001", "40P01")
"""Another writer came between: the same call may work at once."""
_UNPREPARED = ("26000", "42P05")
"""A statement that was prepared is not there, or another's is: a pooler stands in between."""


class Link:
    """Runs work on a connection, and again on another where that one was lost.

    Work must do no harm when it is done twice: an answer may be lost after the server did it. Connections are
    lost when the server stops or ends them. Then, and where other writers came between, the work is tried
    again as long as `retry` seconds have not passed since it began, with waits that double up to half a
    second and carry some chance. A server that was never reached is asked only once. Nobody waits for one of
    the connections longer than `longest_wait` seconds.

    Statements are prepared, until one that was is not there: then a pooler hands on other connections than
    those they were prepared on, or clears them (https://www.pgbouncer.org/features.html), and none is from
    then on.
    """

    def __init__(
        self, address: "Address", prepare: Work[None], *, connections: int, longest_wait: float, retry: float
    ) -> None:
        self._address = address
        self._prepare = prepare
        self._connections = connections
        self._longest_wait = longest_wait
        self._retry_seconds = retry
        self._prepares = True
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
        if self._prepares and state_of(error) in _UNPREPARED:
            self._prepares = False
            self._forget(pool)
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
                threshold = 1 if self._prepares else None
                self._pools[loop] = _Pool(
                    partial(connect, self._address.conninfo, prepare_threshold=threshold),
                    self._connections,
                    self._longest_wait,
                )
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


async def connect(conninfo: str, *, prepare_threshold: int | None = 1) -> "_Connection":
    """A new connection, which commits each statement by itself; with no threshold it prepares none.

    Raises:
        Error: as psycopg and libpq raise it, without the password.
    """
    return await _Connection.connect(conninfo, autocommit=True, prepare_threshold=prepare_threshold)


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


_FORM = "use postgresql://user:password@host:port/database?option=value, other characters as %XX"
_UNKNOWN = "invalid URI query parameter"
_FAULTS = (
    _UNKNOWN,
    'missing key/value separator "=" in URI query parameter',
    'extra key/value separator "=" in URI query parameter',
    "invalid percent-encoded token",
    "forbidden value %00 in percent-encoded value",
    'end of string reached when looking for matching "]" in IPv6 host address',
    "IPv6 host address may not be empty",
    "unexpected character",
)
"""What libpq says of a URL before it repeats a part of it."""
_NAMED = re.compile(r'"([a-z_]{1,40})"\s*$')
_LEAST_CONNECT_SECONDS = 2
"""Less is taken as this by libpq: https://www.postgresql.org/docs/current/libpq-connect.html."""
_MOST_SECONDS = 1_000_000
"""The server counts in milliseconds, in 32 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A database: what libpq is told, and how it is called where a password must not stand."""

    conninfo: str = field(repr=False)
    label: str


def address_of(url: str, *, statement_seconds: float, connect_seconds: float) -> Address:
    """The database that the URL names, with these limits where it has none of its own.

    Everything else in the URL reaches libpq as it stands. What the server is told (`options`) begins with our
    limits, so that the user's own, which come behind, win.

    Raises:
        UsageError: it is no URL of a PostgreSQL database; the text repeats nothing of it.
    """
    given = _parameters(url)
    milliseconds = max(1, math.ceil(min(statement_seconds, _MOST_SECONDS) * 1000))
    limits = f"-c statement_timeout={milliseconds} -c lock_timeout={milliseconds}"
    theirs = given.get("options") or os.environ.get("PGOPTIONS", "")
    ours = {
        "connect_timeout": max(_LEAST_CONNECT_SECONDS, math.ceil(min(connect_seconds, _MOST_SECONDS))),
        "tcp_user_timeout": milliseconds,
        "fallback_application_name": "agentloop",
        **given,
        "options": f"{limits} {theirs}".strip(),
        "client_encoding": "utf8",
    }
    return Address(conninfo=make_conninfo("", **ours), label=_label(given))


def _parameters(url: str) -> dict[str, Any]:
    if not isinstance(url, str) or not url.startswith(("postgresql://", "postgres://")):
        raise _bad("it begins with neither postgresql:// nor postgres://")
    if "\0" in url:
        raise _bad("a NUL stands in it")
    before_query = url.partition("?")[0].partition("//")[2]
    # A bare @ or / of a password would make libpq take some of it for the host, and say so in its errors.
    if before_query.count("@") > 1 or "@" in before_query.partition("/")[2]:
        raise _bad("a bare @ or / stands before the host: write %40 or %2F")
    try:
        parameters, fault = dict[str, Any](conninfo_to_dict(url)), ""
    except (psycopg.Error, UnicodeError) as error:
        parameters, fault = {}, _without_values(str(error), url)
    if fault:  # raised here, as a chain to libpq's error would repeat parts of the URL
        raise _bad(fault)
    if not set(str(parameters.get("port") or "")) <= set("0123456789,"):
        raise _bad("the port is no number")
    # A URL within: its password would stand in our texts, and in the server's.
    for name in ("dbname", "user", "host", "hostaddr"):
        if "://" in str(parameters.get(name) or ""):
            raise _bad(f"a URL within it stands for {name}")
    return parameters


def _bad(fault: str) -> UsageError:
    return UsageError(f"bad PostgreSQL URL: {fault}; {_FORM}")


def _without_values(words: str, url: str) -> str:
    """libpq's words for what is wrong, without what they repeat of the URL but a parameter's name."""
    fault = next((known for known in _FAULTS if words.startswith(known)), "libpq cannot read it")
    named = _NAMED.search(words)
    # Behind an @ that far back, what looks like a name may be a part of a password.
    if fault == _UNKNOWN and named and "@" not in url.partition("?")[2]:
        return f"{fault} {named[1]!r}"
    return fault


def _label(given: dict[str, Any]) -> str:
    name = given.get("dbname") or given.get("user") or "of the user's name"
    host = given.get("host") or given.get("hostaddr") or os.environ.get("PGHOST") or "the local socket"
    port = f":{given['port']}" if given.get("port") else ""
    return f"PostgreSQL database {name!r} at {host}{port}"


_RIGHTS = "grant the user CREATE on the schema, or SELECT, INSERT, UPDATE and DELETE on its tables"
_NO_ROOM = "the server's disc is full: free some space there and try again; what was stored is safe"
_DAMAGED = "the server says that its data is damaged: restore a copy"
_TRY_AGAIN = "it stopped while it was asked: try again; what was stored is safe"
_CORRUPTED = ("XX001", "XX002")
_ADVICE = {
    "25006": "it is read-only, as a standby is: name the primary, or add target_session_attrs=read-write",
    "28000": "the user was refused: check the name, and pg_hba.conf on the server",
    "28P01": "the user or the password was refused: check both",
    "3D000": "there is no such database: create it, or name another",
    "3F000": "no schema of its search_path is there: create one, or set another search_path",
    "40001": "other writers kept coming between: try again",
    "40P01": "other writers kept coming between: try again",
    "42501": f"no rights: {_RIGHTS}",
    "42703": "its agentloop tables are not as agentloop makes them: name another database or search_path",
    "42P01": "its agentloop tables are gone: open the store again, or restore a copy",
    "53100": _NO_ROOM,
    "53200": "the server is out of memory: try again, or give it more",
    "53300": "the server takes no more connections: close some, raise max_connections, or lower connections",
    "55P03": "another writer held a lock for too long: try again",
    "57014": "the statement took longer than it may: try again, or raise statement_seconds",
    "57P03": "the server is starting up or shutting down: try again",
    **dict.fromkeys(_CORRUPTED, _DAMAGED),
}
_SAID = (
    (r"password authentication failed|no password supplied", "28P01"),
    (r"role .* does not exist|no pg_hba.conf entry|authentication failed|not permitted to log in", "28000"),
    (r"database .* does not exist", "3D000"),
    (r"permission denied for database", "42501"),
    (r"too many (connections|clients)|connection slots are reserved", "53300"),
    (r"invalid value for parameter|unrecognized configuration parameter", "22023"),
    (r"session is read-only|server is in hot standby", "25006"),
    (r"system is (starting up|shutting down|in recovery)|not (yet )?accepting connections", "57P03"),
)
"""libpq hands on no SQLSTATE where it could not connect, only the server's text."""
_LOST = ("57P01", "57P02", "57P03", "57P05", "25P03")
_OF_TABLES = "42"
"""The class of errors that speak of tables and names; the store's words for them are of its own tables."""


def fault(label: str, error: Error) -> StoreError:
    """The fault as ours; chain it with `raise … from`."""
    kind = DamagedError if state_of(error) in _CORRUPTED else StoreError
    return kind(f"{label}: {_in_words(error)}")


def fault_of(label: str, error: BaseException) -> StoreError:
    """The fault that another client met with; chain it with `raise … from`."""
    if isinstance(error, Error) and state_of(error)[:2] != _OF_TABLES:
        return fault(label, error)
    return StoreError(f"{label}: {first_line(error)}")


def is_lost(error: Error) -> bool:
    """Whether the connection is gone, or none could be made for now."""
    state = state_of(error)
    broken = isinstance(error, OperationalError | InterfaceError)
    return state in _LOST or state[:2] == "08" or (broken and not state)


def is_away(error: BaseException | None) -> bool:
    """Whether that is a server which is not there for now."""
    return isinstance(error, Error) and is_lost(error)


def state_of(error: Error) -> str:
    """The SQLSTATE (https://www.postgresql.org/docs/current/errcodes-appendix.html); empty where unknown."""
    if error.sqlstate:
        return error.sqlstate
    text = str(error)
    return next((state for said, state in _SAID if re.search(said, text)), "")


def _in_words(error: Error) -> str:
    match state_of(error):
        case "42501":
            return f"no rights ({_first_line(error)}): {_RIGHTS}"
        case state if state in _ADVICE:
            return _ADVICE[state]
        case state if is_lost(error) and not state:
            return f"no connection ({_first_line(error)}): check the address, and that the server runs"
        case state if is_lost(error):
            return _TRY_AGAIN
        case state:
            return f"it refused the statement ({_first_line(error)}; SQLSTATE {state or 'unknown'})"


def _first_line(error: Error) -> str:
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0].removeprefix("connection failed: ").removeprefix("connection is bad: ")[:300]


_PLACE = ("host", "hostaddr", "port")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundAddress:
    """What `psycopg.connect` is to be told to come to a database, and the schema of a store's tables in it.

    `user` and `dbname` always stand there, as the server knows them, and what is said is in UTF-8, as a
    store's is. Where the server is stands in `conninfo`, as libpq read it: other readers have rules of their
    own for several hosts.
    """

    keywords: Mapping[str, str]
    schema: str


async def found_at(url: str, *, connect_seconds: float, statement_seconds: float) -> FoundAddress:
    """The database of the URL, once a store can use it.

    Raises:
        UsageError: it is no URL of a PostgreSQL database.
        StoreError: it cannot be reached, or cannot hold a store.
    """
    address = address_of(url, statement_seconds=statement_seconds, connect_seconds=connect_seconds)
    link = Link(address, prepare, connections=1, longest_wait=connect_seconds, retry=0)
    try:
        known, schema = await link.run(_known)
    finally:
        link.close()
    told = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    place = {name: told.pop(name) for name in _PLACE if name in told}
    told |= {**known, "client_encoding": "utf8", "conninfo": make_conninfo("", **place)}
    return FoundAddress(keywords=told, schema=schema)


async def _known(connection: AsyncConnection) -> tuple[Mapping[str, str], str]:
    """What the server knows of the connection, and the schema that tables are made in."""
    [schema] = await one_row(connection, "SELECT current_schema()", ()) or [""]
    return {"user": connection.info.user, "dbname": connection.info.dbname}, schema


_TAKE = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"
_FREE = "SELECT pg_advisory_unlock(hashtextextended(%s, 0))"
_HELD = """
    SELECT name FROM unnest(%s::text[]) AS name
    WHERE EXISTS (
      SELECT FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database
      WHERE locktype = 'advisory' AND granted AND datname = current_database()
        AND (classid::bigint << 32 | objid::bigint) = hashtextextended(name, 0)
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
        with self._faults_told():
            connection = self._connection or await self._connected()
            self._connection = connection
            self._is_held = was_held or await _taken(connection, self._name)
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
        with self._faults_told():
            is_free = await _taken(connection, name)
        try:
            yield is_free
        finally:
            if is_free:
                with self._faults_told():
                    await connection.execute(_FREE, [name])

    async def free(self) -> None:
        """Let go of the lock and its connection; harmless when called again."""
        connection, self._connection, self._is_held = self._connection, None, False
        if connection is not None:
            await connection.close()

    async def _connected(self) -> AsyncConnection[Any]:
        connection = await connect(make_conninfo(self._address.conninfo, **_PROBES))
        try:
            await connection.execute(_SERVER_PROBES)
        except BaseException:  # cancelled too: nobody else would close it
            await connection.close()
            raise
        return connection

    @contextlib.contextmanager
    def _faults_told(self) -> Iterator[None]:
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


async def _taken(connection: AsyncConnection[Any], name: str) -> bool:
    row = await (await connection.execute(_TAKE, [name])).fetchone()
    return bool(row and row[0])
