"""The list of the sessions in a PostgreSQL database, and what takes sessions off it.

Values travel apart from the statements, as parameters; no text of a user ever becomes part of one.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from psycopg import AsyncConnection, sql

from agentloop._plumbing.aio import in_thread
from agentloop.errors import DamagedError, StoreError
from agentloop.stores.lines import (
    COLUMNS,
    line_from,
    line_of,
    list_statements,
    newest_first,
    record_of,
    to_bytes,
    whole_line,
)
from agentloop.stores.postgres.beside import LIVES
from agentloop.stores.postgres.link import Link
from agentloop.stores.postgres.rows import all_rows, one_row
from agentloop.stores.postgres.schema import BESIDE
from agentloop.stores.values import Scope, SessionInfo

_MOST_SWEPT_AT_ONCE = 100

_LINES = f"SELECT {COLUMNS} FROM agentloop_sessions"
_LIST = list_statements(
    _LINES,
    "sha256(folder) = sha256(%(folder)s::bytea) AND folder = %(folder)s::bytea",
    "sha256(owner) = sha256(%(owner)s::bytea) AND owner = %(owner)s::bytea",
)
_INFO = f"{_LINES} WHERE id = %s::text"
_LOG = "SELECT seq, body FROM agentloop_events WHERE session_id = %s::text ORDER BY seq"
_HOLD = "SELECT FROM agentloop_sessions WHERE id = %s::text FOR UPDATE"
_EXPIRED = f"""{_LINES}
    WHERE expires <= coalesce(%(now)s::float8, extract(epoch FROM clock_timestamp()))
        AND (%(owner)s::bytea IS NULL OR owner = %(owner)s::bytea)
        AND id <> ALL(%(passed)s::text[])
        AND NOT EXISTS (
            SELECT FROM agentloop_leases AS held WHERE held.session_id = id AND {LIVES})
    ORDER BY updated DESC, id LIMIT {_MOST_SWEPT_AT_ONCE} FOR UPDATE SKIP LOCKED"""
_KEEP_OUT = f"""
    INSERT INTO agentloop_leases AS held (session_id, holder, place, pid, started, since, until)
    SELECT id, ''::bytea, ''::bytea, 0, ''::bytea, 0, clock_timestamp() FROM unnest(%s::text[]) AS id
    ON CONFLICT (session_id) DO UPDATE SET holder = '' WHERE NOT ({LIVES})
    RETURNING session_id"""
"""The leases of these sessions, but those that are live: who asks for one waits until the sweep is over."""
_FORGET = f"DELETE FROM agentloop_leases AS held WHERE NOT ({LIVES})"


async def info(session_id: str, connection: AsyncConnection) -> SessionInfo | None:
    """The session's line, made anew from its log where it is damaged; None where there is none.

    Raises:
        DamagedError: both are damaged.
    """
    row = await one_row(connection, _INFO, (session_id,))
    return await _line(row, connection) if row else None


async def written_line(session_id: str, connection: AsyncConnection) -> SessionInfo | None:
    """The session's line as it stands there; None where there is none.

    Raises:
        DamagedError: it is damaged.
    """
    row = await one_row(connection, _INFO, (session_id,))
    return line_of("", row) if row else None


async def listed(scope: Scope, connection: AsyncConnection) -> tuple[SessionInfo, ...]:
    """The lines of that folder and owner, newest update first.

    One of which neither line nor log is whole hides no other: who looks the database through is told of it.
    """
    values = {"folder": to_bytes(scope.folder), "owner": to_bytes(scope.owner)}
    rows = await all_rows(connection, _LIST[scope.folder is not None, scope.owner is not None], values)
    return newest_first([await _line_or_none(row, connection) for row in rows], scope)


async def delete(session_id: str, connection: AsyncConnection) -> bool:
    """Remove the session with all that belongs to it; an append meanwhile comes before or after."""
    async with connection.transaction():
        held = await connection.execute(_HOLD, (session_id,))
        # Without a line that is held, an append could begin the session between two of these statements.
        return held.rowcount > 0 and await _remove(connection, [session_id]) > 0


async def sweep(link: Link, scope: Scope, now: float | None) -> tuple[SessionInfo, ...]:
    """Remove the owner's sessions that expired, some in each transaction, and say what they were.

    Raises:
        StoreError: as the link raises it, where nothing went before.
    """
    gone: list[SessionInfo] = []
    passed: list[str] = []
    try:
        while True:
            swept, kept = await link.run(partial(_swept, scope, now, passed))
            if not (swept or kept):
                return tuple(gone)
            gone += swept
            passed += kept
    except StoreError:
        if not gone:
            raise
        return tuple(gone)  # the next sweep meets the fault again


async def _swept(
    scope: Scope, now: float | None, passed: Sequence[str], connection: AsyncConnection
) -> tuple[list[SessionInfo], list[str]]:
    """Remove some of the owner's sessions that expired, but those that were passed over.

    Returns what they were, and the ids of others that are passed over: by their log they do not expire,
    neither it nor their line is whole, or they were taken meanwhile. Both are empty where none are left.
    """
    values = {"owner": to_bytes(scope.owner), "now": now, "passed": list(passed)}
    async with connection.transaction():
        rows = await all_rows(connection, _EXPIRED, values)
        lines = [await _line_or_none(row, connection) for row in rows]
        due = [line for line in lines if line and line.expires is not None and scope.takes(line)]
        kept_out = await all_rows(connection, _KEEP_OUT, ([line.id for line in due],))
        free = {name for (name,) in kept_out}
        await _remove(connection, list(free))
        await connection.execute(_FORGET)
    return [line for line in due if line.id in free], [name for name, *_ in rows if name not in free]


async def _line(row: tuple[Any, ...], connection: AsyncConnection) -> SessionInfo:
    """What the row says; where it is damaged, what the log does, of which it is only an extract.

    Raises:
        DamagedError: both are damaged.
    """
    if line := whole_line("", row):
        return line
    there = await all_rows(connection, _LOG, (row[0],))
    return await in_thread(_made_anew, row[0], there) or line_of("", row)


def _made_anew(session_id: str, rows: Sequence[tuple[int, str]]) -> SessionInfo | None:
    return line_from(session_id, (record_of("", session_id, *row) for row in rows))


async def _line_or_none(row: tuple[Any, ...], connection: AsyncConnection) -> SessionInfo | None:
    try:
        return await _line(row, connection)
    except DamagedError:
        return None


async def _remove(connection: AsyncConnection, session_ids: Sequence[str]) -> int:
    await connection.execute(f"{_FORGET} AND session_id = ANY(%s::text[])", (session_ids,))
    for table in ("agentloop_events", *BESIDE):
        statement = sql.SQL("DELETE FROM {} WHERE session_id = ANY(%s::text[])").format(sql.Identifier(table))
        await connection.execute(statement, (session_ids,))
    done = await connection.execute(
        "DELETE FROM agentloop_sessions WHERE id = ANY(%s::text[])", (session_ids,)
    )
    return done.rowcount
