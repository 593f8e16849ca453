"""PostgresStore: sessions in a PostgreSQL database, for any number of processes on any number of machines.

The log is the table `agentloop_events`, whose primary key (session, position) is the compare-and-swap: no
second writer can take a position. Each append is one statement that commits by itself: it moves the session's
line in `agentloop_sessions` from the length the writer named to the new one, and adds the records. The commit
is as durable as the server makes it (`synchronous_commit`, on by default).
"""

from collections.abc import Sequence
from functools import partial

from agentloop._plumbing.aio import in_thread
from agentloop._plumbing.checks import at_least, whole
from agentloop.bounds import MOST_RECORD_BYTES
from agentloop.codec import encode
from agentloop.errors import StoreError
from agentloop.events import Event, Record
from agentloop.stores.base import (
    Checkpoint,
    ChecksItself,
    FindsWords,
    Found,
    GrantsLeases,
    KeepsCheckpoints,
    Lease,
    SessionInfo,
    SessionScope,
    SessionStore,
    TellsLeases,
    checked_append,
    checked_holder,
    checked_lease_seconds,
    checked_now,
    checked_page,
    checked_search,
    checked_session_id,
)
from agentloop.stores.lines import change_of, of_trunk
from agentloop.stores.postgres import tables
from agentloop.stores.postgres.address import address_of
from agentloop.stores.postgres.connection import Link
from agentloop.stores.postgres.schema import prepare
from agentloop.stores.postgres.search import search
from agentloop.stores.postgres.tables import faults_of
from agentloop.stores.words import Query

_MANY = 100
"""More records than these are put into or taken out of their texts in a thread, so that the loop goes on."""


class PostgresStore(SessionStore, ChecksItself, FindsWords, KeepsCheckpoints, GrantsLeases, TellsLeases):
    """A store in the PostgreSQL database of a `postgresql://…` URL, with all that may stand beside.

    Making one connects to nothing. The first use makes or brings up to date the tables, in the first schema
    of the search_path. Everything in the URL reaches libpq as it stands (`sslmode`, `sslrootcert`,
    `application_name`, `target_session_attrs`, several hosts, …:
    https://www.postgresql.org/docs/current/libpq-connect.html). The password stands in no text of ours.

    A statement, and the wait for another's lock, ends after `statement_seconds`, connecting after
    `connect_seconds`, unless the URL says otherwise. At most `connections` are open in each event loop that
    uses the store, and any number of loops may. Where the server restarts or ends a connection, a call goes
    on with a new one as long as `retry_seconds` have not passed; a repeated append writes nothing twice. An
    append that is cancelled while it is awaited is written whole or not at all. Leases and sweeps go by the
    clock of the server. A store that is used after `close` connects again.

    Example:
        >>> PostgresStore("postgresql://me:secret@db.example/agents?sslmode=verify-full")
        PostgresStore("PostgreSQL database 'agents' at db.example")

    Raises:
        UsageError: the URL is none of a PostgreSQL database, or a number is out of its range.
    """

    def __init__(
        self,
        url: str,
        *,
        statement_seconds: float = 30.0,
        connect_seconds: float = 10.0,
        connections: int = 8,
        retry_seconds: float = 30.0,
    ) -> None:
        at_least("statement_seconds", statement_seconds, 0.001)
        at_least("connect_seconds", connect_seconds, 0.001)
        whole("connections", connections, 1)
        at_least("retry_seconds", retry_seconds, 0)
        address = address_of(url, statement_seconds=statement_seconds, connect_seconds=connect_seconds)
        self._label = address.label
        self._link = Link(
            address,
            prepare,
            connections=connections,
            longest_wait=statement_seconds + connect_seconds,
            retry=retry_seconds,
        )

    def __repr__(self) -> str:
        return f'PostgresStore("{self._label}")'

    async def append(self, session_id: str, events: Sequence[Event], *, expect: int) -> int:
        written = checked_append(session_id, events, expect)
        bodies = await in_thread(_bodies, written) if len(written) > _MANY else _bodies(written)
        if any(map(_is_too_long, bodies)):
            most = f"more than {MOST_RECORD_BYTES // 1_000_000} MB"
            raise StoreError(f"{self._label}: a record holds {most}: make it smaller")
        change = change_of(written) if written else None
        return await self._link.run(partial(tables.append, session_id, change, bodies, expect))

    async def read(self, session_id: str, *, after: int = 0, most: int | None = None) -> Sequence[Record]:
        after, most = checked_page(session_id, after, most)
        rows = await self._link.run(partial(tables.read, session_id, after, most))
        if len(rows) > _MANY:
            return await in_thread(tables.records_of, self._label, session_id, rows)
        return tables.records_of(self._label, session_id, rows)

    async def info(self, session_id: str) -> SessionInfo | None:
        checked_session_id(session_id)
        return await self._link.run(partial(tables.info, session_id))

    async def list(
        self, *, folder: str | None = None, owner: str | None = None, branches_of: str | None = None
    ) -> Sequence[SessionInfo]:
        scope = SessionScope(folder=folder, owner=owner)
        return of_trunk(await self._link.run(partial(tables.listed, scope)), branches_of)

    async def delete(self, session_id: str) -> bool:
        checked_session_id(session_id)
        return await self._link.run(partial(tables.delete, session_id))

    async def sweep(self, *, owner: str | None = None, now: float | None = None) -> Sequence[SessionInfo]:
        moment = None if now is None else checked_now(now)
        return await tables.sweep(self._link, SessionScope(owner=owner), moment)

    async def search(
        self,
        text: str,
        *,
        session_id: str | None = None,
        folder: str | None = None,
        owner: str | None = None,
        most: int = 50,
    ) -> Sequence[Found]:
        scope, most = checked_search(session_id, folder, owner, most)
        query = await in_thread(Query.of, text)
        return await search(self._link, query, scope, most)

    async def checkpoint(self, session_id: str) -> Checkpoint | None:
        checked_session_id(session_id)
        return await self._link.run(partial(tables.checkpoint, session_id))

    async def keep_checkpoint(self, session_id: str, checkpoint: Checkpoint) -> None:
        checked_session_id(session_id)
        await self._link.run(partial(tables.keep_checkpoint, session_id, checkpoint))

    async def drop_checkpoint(self, session_id: str) -> None:
        checked_session_id(session_id)
        await self._link.run(partial(tables.drop_checkpoint, session_id))

    async def take_lease(
        self, session_id: str, lease: Lease, *, seconds: float, over: str | None = None
    ) -> Lease:
        seconds = checked_lease_seconds(session_id, seconds, over)
        return await self._link.run(partial(tables.take_lease, session_id, lease, seconds, over))

    async def free_lease(self, session_id: str, holder: str) -> None:
        checked_holder(session_id, holder)
        await self._link.run(partial(tables.free_lease, session_id, holder))

    async def lease(self, session_id: str) -> Lease | None:
        checked_session_id(session_id)
        return await self._link.run(partial(tables.lease, session_id))

    async def check(self) -> Sequence[str]:
        return await faults_of(self._label, self._link)

    async def close(self) -> None:
        self._link.close()


def _bodies(events: Sequence[Event]) -> tuple[str, ...]:
    return tuple(map(encode, events))


def _is_too_long(body: str) -> bool:
    """Whether nobody would read it again."""
    return len(body) > MOST_RECORD_BYTES // 4 and len(body.encode()) > MOST_RECORD_BYTES
