"""The logs and the list of sessions: what is asked of PostgreSQL, statement by statement.

Values travel apart from the statements, as parameters; no text of a user ever becomes part of one.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from psycopg import AsyncConnection, sql
from psycopg.errors import UniqueViolation
from psycopg.types.numeric import Int8

from agentloop.codec import decode
from agentloop.errors import ConflictError, StoreError, UsageError
from agentloop.events import Described, Event, Record
from agentloop.stores.base import SessionInfo
from agentloop.stores.index import described
from agentloop.stores.postgres.schema import BESIDE

_TRIES = 5
_MOST_SWEPT_AT_ONCE = 100
_MOST_POSITION = 2**62

_EVENTS = """
    INSERT INTO agentloop_events (session_id, seq, body)
    SELECT line.id, %(expect)s::int8 + said.number, said.body
    FROM line, unnest(%(bodies)s::text[]) WITH ORDINALITY AS said (body, number)"""
_BEGIN = f"""
    WITH line AS (
        INSERT INTO agentloop_sessions (id, title, folder, owner, ttl_seconds, created, updated, length)
        VALUES (%(id)s::text, %(title)s::bytea, %(folder)s::bytea, %(owner)s::bytea,
            nullif(%(ttl)s::float8, 0), %(created)s::float8, %(updated)s::float8, %(added)s::int8)
        ON CONFLICT (id) DO NOTHING RETURNING id)
    {_EVENTS}"""
_GO_ON = f"""
    WITH line AS (
        UPDATE agentloop_sessions SET
            title = coalesce(%(title)s::bytea, title),
            folder = coalesce(%(folder)s::bytea, folder),
            owner = coalesce(%(owner)s::bytea, owner),
            ttl_seconds = nullif(coalesce(%(ttl)s::float8, ttl_seconds), 0),
            updated = %(updated)s::float8,
            length = length + %(added)s::int8
        WHERE id = %(id)s::text AND length = %(expect)s::int8 RETURNING id)
    {_EVENTS}"""
_THERE = """
    SELECT coalesce((SELECT max(seq) FROM agentloop_events WHERE session_id = %(id)s::text), 0),
        array(SELECT body FROM agentloop_events WHERE session_id = %(id)s::text
            AND seq > %(expect)s::int8 AND seq <= %(expect)s::int8 + %(added)s::int8 ORDER BY seq)"""
_READ = """
    SELECT seq, body FROM agentloop_events WHERE session_id = %s::text AND seq > %s::int8
    ORDER BY seq LIMIT %s::int8"""
_COLUMNS = "id, title, folder, created, updated, length, owner, ttl_seconds"
_LINES = f"SELECT {_COLUMNS} FROM agentloop_sessions"
_IN_ORDER = "ORDER BY updated DESC, id"
_LIST = {
    (False, False): f"{_LINES} {_IN_ORDER}",
    (True, False): f"{_LINES} WHERE folder = %(folder)s::bytea {_IN_ORDER}",
    (False, True): f"{_LINES} WHERE owner = %(owner)s::bytea {_IN_ORDER}",
    (True, True): f"{_LINES} WHERE owner = %(owner)s::bytea AND folder = %(folder)s::bytea {_IN_ORDER}",
}
_INFO = f"{_LINES} WHERE id = %s::text"
_HOLD = "SELECT FROM agentloop_sessions WHERE id = %s::text FOR UPDATE"
_EXPIRED = f"""{_LINES}
    WHERE expires <= coalesce(%s::float8, extract(epoch FROM clock_timestamp()))
    {_IN_ORDER} LIMIT {_MOST_SWEPT_AT_ONCE} FOR UPDATE SKIP LOCKED"""


async def append(
    connection: AsyncConnection, session_id: str, events: Sequence[Event], bodies: Sequence[str], expect: int
) -> int:
    """Write the events, of these bodies, after record `expect`, or none; one round trip where nobody raced.

    Raises:
        ConflictError: the log is of another length.
    """
    change = _change(session_id, events, bodies, expect)
    actual = expect
    for _ in range(_TRIES):
        if bodies and 0 <= expect <= _MOST_POSITION and await _written(connection, change):
            return expect + len(bodies)
        actual, there = await _there(connection, change)
        if (there == list(bodies) and bodies) or (not bodies and actual == expect):
            return expect + len(bodies)
        if actual != expect:
            raise ConflictError(session_id, expected=expect, actual=actual)
    raise StoreError(
        f"session {session_id!r} and its line in the list disagree about its length: run check()"
    )


async def read(
    connection: AsyncConnection, session_id: str, after: int, most: int | None
) -> Sequence[tuple[int, str]]:
    """Positions and bodies of the records behind `after`."""
    start = max(0, min(after, _MOST_POSITION))
    end = None if most is None else Int8(min(most, _MOST_POSITION))
    return await _all(connection, _READ, (session_id, Int8(start), end))


async def info(connection: AsyncConnection, session_id: str) -> SessionInfo | None:
    """The session's line; None where there is none."""
    rows = await _all(connection, _INFO, (session_id,))
    return _line(rows[0]) if rows else None


async def listed(
    connection: AsyncConnection, folder: str | None, owner: str | None
) -> tuple[SessionInfo, ...]:
    """The lines of that folder and owner, newest update first."""
    values = {"folder": to_bytes(folder), "owner": to_bytes(owner)}
    return tuple(map(_line, await _all(connection, _LIST[folder is not None, owner is not None], values)))


async def delete(connection: AsyncConnection, session_id: str) -> bool:
    """Remove the session with all that belongs to it; an append meanwhile comes before or after."""
    async with connection.transaction():
        held = await connection.execute(_HOLD, (session_id,))
        # Without a line that is held, an append could begin the session between two of these statements.
        return held.rowcount > 0 and await _remove(connection, [session_id]) > 0


async def sweep(connection: AsyncConnection, now: float | None) -> tuple[SessionInfo, ...]:
    """Remove some sessions that expired and what they were; none where there are none left."""
    async with connection.transaction():
        gone = tuple(map(_line, await _all(connection, _EXPIRED, (now,))))
        await connection.execute("DELETE FROM agentloop_leases WHERE until <= clock_timestamp()")
        if gone:
            await _remove(connection, [each.id for each in gone])
    return gone


def records_of(label: str, session_id: str, rows: Sequence[tuple[int, str]]) -> tuple[Record, ...]:
    """The records that rows of positions and bodies hold.

    Raises:
        StoreError: one is damaged; the text names its place.
    """
    return tuple(_record(label, session_id, seq, body) for seq, body in rows)


def to_bytes(text: str | None) -> bytes | None:
    """The text as the columns hold it: lone surrogates as they are."""
    return None if text is None else text.encode("utf-8", "surrogatepass")


def to_text(data: bytes | None) -> str | None:
    """The text of a column.

    Raises:
        UnicodeDecodeError: somebody else wrote into it.
    """
    return None if data is None else data.decode("utf-8", "surrogatepass")


def _record(label: str, session_id: str, seq: int, body: str) -> Record:
    try:
        return Record(seq=seq, event=decode(body))
    except StoreError as error:
        raise StoreError(f"{label}: session {session_id!r}, record {seq}: {error}") from error


async def _written(connection: AsyncConnection, change: Mapping[str, Any]) -> bool:
    statement = _GO_ON if change["expect"] else _BEGIN
    try:
        done = await connection.execute(statement, change, prepare=True)
    except UniqueViolation:
        return False
    return bool(done.rowcount == change["added"])


async def _there(connection: AsyncConnection, change: Mapping[str, Any]) -> tuple[int, list[str]]:
    """The log's length, and the bodies that stand where ours should."""
    expect = Int8(max(-_MOST_POSITION, min(change["expect"], _MOST_POSITION)))
    ((length, there),) = await _all(connection, _THERE, {**change, "expect": expect})
    return length, there


async def _remove(connection: AsyncConnection, session_ids: Sequence[str]) -> int:
    for table in ("agentloop_events", *BESIDE):
        statement = sql.SQL("DELETE FROM {} WHERE session_id = ANY(%s::text[])").format(sql.Identifier(table))
        await connection.execute(statement, (session_ids,))
    done = await connection.execute(
        "DELETE FROM agentloop_sessions WHERE id = ANY(%s::text[])", (session_ids,)
    )
    return done.rowcount


async def _all(connection: AsyncConnection, statement: str, values: Any) -> list[Any]:
    return await (await connection.execute(statement, values, prepare=True, binary=True)).fetchall()


def _change(session_id: str, events: Sequence[Event], bodies: Sequence[str], expect: int) -> dict[str, Any]:
    """What an append changes, for its statement; `ttl` is 0 where the time to live is taken off."""
    if not events:
        return {"id": session_id, "expect": Int8(expect), "added": Int8(0)}
    line = described(None, session_id, events)
    said = [each.ttl_seconds for each in events if isinstance(each, Described)]
    takes_off = line.ttl_seconds is None and any(each is not None for each in said)
    try:
        created, updated = float(line.created), float(line.updated)
    except OverflowError as error:
        raise UsageError("the time of a record is too large a number") from error
    return {
        "id": session_id,
        "title": to_bytes(line.title),
        "folder": to_bytes(line.folder),
        "owner": to_bytes(line.owner),
        "ttl": 0.0 if takes_off else line.ttl_seconds,
        "created": created,
        "updated": updated,
        "bodies": list(bodies),
        "added": Int8(len(bodies)),
        "expect": Int8(expect),
    }


def _line(row: Sequence[Any]) -> SessionInfo:
    name, title, folder, created, updated, length, owner, ttl_seconds = row
    try:
        texts = {"title": to_text(title), "folder": to_text(folder), "owner": to_text(owner)}
    except UnicodeDecodeError:
        texts = None
    if texts is None or not (math.isfinite(created) and math.isfinite(updated)):
        raise StoreError(f"the entry of session {ascii(name)[:60]} is damaged: restore a copy")
    return SessionInfo(
        id=name, created=created, updated=updated, length=length, ttl_seconds=ttl_seconds, **texts
    )
