"""The logs and the list of sessions: what is asked of PostgreSQL, statement by statement.

Values travel apart from the statements, as parameters; no text of a user ever becomes part of one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from psycopg import AsyncConnection, sql
from psycopg.errors import UniqueViolation
from psycopg.types.numeric import Int8

from agentloop.errors import ConflictError, StoreError
from agentloop.events import Event, Record
from agentloop.stores.base import MOST_POSITION, SessionInfo, clamped
from agentloop.stores.lines import (
    COLUMNS,
    change_of,
    check_gapless,
    line_of,
    list_statements,
    record_of,
    to_bytes,
)
from agentloop.stores.postgres.schema import BESIDE

_TRIES = 5
_MOST_SWEPT_AT_ONCE = 100

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
_ADD = f"""
    WITH line AS (
        UPDATE agentloop_sessions SET updated = %(updated)s::float8, length = length + %(added)s::int8
        WHERE id = %(id)s::text AND length = %(expect)s::int8 RETURNING id)
    {_EVENTS}"""
"""As `_GO_ON`, for events that say nothing of the session itself, as most do: half the parameters to send."""
_THERE = """
    SELECT coalesce((SELECT max(seq) FROM agentloop_events WHERE session_id = %(id)s::text), 0),
        array(SELECT body FROM agentloop_events WHERE session_id = %(id)s::text
            AND seq > %(expect)s::int8 AND seq <= %(expect)s::int8 + %(added)s::int8 ORDER BY seq)"""
_READ = """
    SELECT line.length, said.seq, said.body
    FROM (SELECT coalesce((
        SELECT length FROM agentloop_sessions WHERE id = %(id)s::text), 0)) AS line (length)
    LEFT JOIN LATERAL (
        SELECT seq, body FROM agentloop_events WHERE session_id = %(id)s::text AND seq > %(after)s::int8
        ORDER BY seq LIMIT %(most)s::int8) AS said ON true"""
"""The length that the line says comes with each record, and alone where there is none: both of one moment."""
_LINES = f"SELECT {COLUMNS} FROM agentloop_sessions"
_IN_ORDER = "ORDER BY updated DESC, id"
_LIST = list_statements(
    _LINES,
    "sha256(folder) = sha256(%(folder)s::bytea) AND folder = %(folder)s::bytea",
    "sha256(owner) = sha256(%(owner)s::bytea) AND owner = %(owner)s::bytea",
)
_INFO = f"{_LINES} WHERE id = %s::text"
_HOLD = "SELECT FROM agentloop_sessions WHERE id = %s::text FOR UPDATE"
_EXPIRED = f"""{_LINES}
    WHERE expires <= coalesce(%(now)s::float8, extract(epoch FROM clock_timestamp()))
        AND (%(owner)s::bytea IS NULL OR owner = %(owner)s::bytea)
        AND NOT EXISTS (
            SELECT FROM agentloop_leases AS held WHERE held.session_id = id AND until > clock_timestamp())
    {_IN_ORDER} LIMIT {_MOST_SWEPT_AT_ONCE} FOR UPDATE SKIP LOCKED"""

_KEEP_OUT = """
    INSERT INTO agentloop_leases AS held (session_id, holder, place, pid, started, since, until)
    SELECT id, ''::bytea, ''::bytea, 0, ''::bytea, 0, clock_timestamp() FROM unnest(%s::text[]) AS id
    ON CONFLICT (session_id) DO UPDATE SET holder = '' WHERE held.until <= clock_timestamp()
    RETURNING session_id"""
"""The leases of these sessions, but those that are live: who asks for one waits until the sweep is over."""
_FORGET = "DELETE FROM agentloop_leases WHERE until <= clock_timestamp()"


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
        if bodies and 0 <= expect <= MOST_POSITION and await _written(connection, change):
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
    """Positions and bodies of the records behind `after`.

    Raises:
        StoreError: some that the session's line promises are missing.
    """
    after, most = clamped(max(after, 0)), None if most is None else clamped(most)
    values = {"id": session_id, "after": Int8(after), "most": None if most is None else Int8(most)}
    rows = await _all(connection, _READ, values)
    # Sorted here, where they come in order as good as always: the server would sort all bodies to be sure.
    there = sorted((seq, body) for _, seq, body in rows if seq is not None)
    check_gapless("", session_id, [seq for seq, _ in there], after=after, most=most, length=rows[0][0])
    return there


async def info(connection: AsyncConnection, session_id: str) -> SessionInfo | None:
    """The session's line; None where there is none."""
    rows = await _all(connection, _INFO, (session_id,))
    return line_of("", rows[0]) if rows else None


async def listed(
    connection: AsyncConnection, folder: str | None, owner: str | None
) -> tuple[SessionInfo, ...]:
    """The lines of that folder and owner, newest update first."""
    values = {"folder": to_bytes(folder), "owner": to_bytes(owner)}
    rows = await _all(connection, _LIST[folder is not None, owner is not None], values)
    return tuple(line_of("", row) for row in rows)


async def delete(connection: AsyncConnection, session_id: str) -> bool:
    """Remove the session with all that belongs to it; an append meanwhile comes before or after."""
    async with connection.transaction():
        held = await connection.execute(_HOLD, (session_id,))
        # Without a line that is held, an append could begin the session between two of these statements.
        return held.rowcount > 0 and await _remove(connection, [session_id]) > 0


async def sweep(connection: AsyncConnection, owner: str | None, now: float | None) -> tuple[SessionInfo, ...]:
    """Remove some sessions that expired, of that owner, and say what they were; none where none are left."""
    async with connection.transaction():
        rows = await _all(connection, _EXPIRED, {"owner": to_bytes(owner), "now": now})
        due = tuple(line_of("", row) for row in rows)
        free = {name for (name,) in await _all(connection, _KEEP_OUT, ([each.id for each in due],))}
        await _remove(connection, list(free))
        await connection.execute(_FORGET)
    return tuple(each for each in due if each.id in free)


def records_of(label: str, session_id: str, rows: Sequence[tuple[int, str]]) -> tuple[Record, ...]:
    """The records that rows of positions and bodies hold.

    Raises:
        StoreError: one is damaged; the text names its place.
    """
    return tuple(record_of(label, session_id, seq, body) for seq, body in rows)


async def _written(connection: AsyncConnection, change: Mapping[str, Any]) -> bool:
    try:
        done = await connection.execute(_statement_of(change), change, prepare=True)
    except UniqueViolation:
        return False
    return bool(done.rowcount == change["added"])


def _statement_of(change: Mapping[str, Any]) -> str:
    if not change["expect"]:
        return _BEGIN
    only_adds = all(change[name] is None for name in ("title", "folder", "owner", "ttl"))
    return _ADD if only_adds else _GO_ON


async def _there(connection: AsyncConnection, change: Mapping[str, Any]) -> tuple[int, list[str]]:
    """The log's length, and the bodies that stand where ours should."""
    values = {**change, "expect": Int8(clamped(change["expect"]))}
    ((length, there),) = await _all(connection, _THERE, values)
    return length, there


async def _remove(connection: AsyncConnection, session_ids: Sequence[str]) -> int:
    await connection.execute(f"{_FORGET} AND session_id = ANY(%s::text[])", (session_ids,))
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
    """What an append changes, for its statement, which applies it as `lines.changed` does."""
    if not events:
        return {"id": session_id, "expect": Int8(expect), "added": Int8(0)}
    change = change_of(events)
    return {
        "id": session_id,
        "title": to_bytes(change.title),
        "folder": to_bytes(change.folder),
        "owner": to_bytes(change.owner),
        "ttl": change.ttl_seconds,
        "created": change.first,
        "updated": change.updated,
        "bodies": list(bodies),
        "added": Int8(change.added),
        "expect": Int8(expect),
    }
