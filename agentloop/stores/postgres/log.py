"""The log of a session in a PostgreSQL database: what is appended, and what is read.

Values travel apart from the statements, as parameters; no text of a user ever becomes part of one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from psycopg import AsyncConnection
from psycopg.errors import UniqueViolation
from psycopg.types.numeric import Int8

from agentloop.errors import ConflictError, DamagedError
from agentloop.events import Record
from agentloop.stores.checked import MOST_POSITION, clamped
from agentloop.stores.lines import Change, check_gapless, record_of, to_bytes
from agentloop.stores.postgres.rows import all_rows

_TRIES = 5

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
            updated = greatest(updated, %(updated)s::float8),
            length = length + %(added)s::int8
        WHERE id = %(id)s::text AND length = %(expect)s::int8 RETURNING id)
    {_EVENTS}"""
_ADD = f"""
    WITH line AS (
        UPDATE agentloop_sessions SET
            updated = greatest(updated, %(updated)s::float8), length = length + %(added)s::int8
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


async def append(
    session_id: str,
    change: Change | None,
    bodies: Sequence[str],
    expect: int,
    connection: AsyncConnection,
) -> int:
    """Write the events of these bodies after record `expect`, or none; one round trip where nobody raced.

    `change` is what they make of the session's line, None where there are none.

    Raises:
        ConflictError: the log is of another length.
    """
    values, actual = _values(session_id, change, bodies, expect), expect
    for _ in range(_TRIES):
        if change and 0 <= expect <= MOST_POSITION and await _written(connection, change, values):
            return expect + len(bodies)
        actual, there = await _there(connection, values)
        if (there == list(bodies) and bodies) or (not bodies and actual == expect):
            return expect + len(bodies)
        if actual != expect:
            raise ConflictError(session_id, expected=expect, actual=actual)
    raise DamagedError(
        f"session {session_id!r} and its line in the list disagree about its length: run check()"
    )


async def read(
    session_id: str, after: int, most: int | None, connection: AsyncConnection
) -> Sequence[tuple[int, str]]:
    """Positions and bodies of the records behind `after`.

    Raises:
        DamagedError: some that the session's line promises are missing.
    """
    after, most = clamped(max(after, 0)), None if most is None else clamped(most)
    values = {"id": session_id, "after": Int8(after), "most": None if most is None else Int8(most)}
    rows = await all_rows(connection, _READ, values)
    # Sorted here, where they come in order as good as always: the server would sort all bodies to be sure.
    there = sorted((seq, body) for _, seq, body in rows if seq is not None)
    check_gapless("", session_id, [seq for seq, _ in there], after=after, most=most, length=rows[0][0])
    return there


def records_of(label: str, session_id: str, rows: Sequence[tuple[int, str]]) -> tuple[Record, ...]:
    """The records that rows of positions and bodies hold.

    Raises:
        DamagedError: one is damaged; the text names its place.
    """
    return tuple(record_of(label, session_id, seq, body) for seq, body in rows)


async def _written(connection: AsyncConnection, change: Change, values: Mapping[str, Any]) -> bool:
    statement = _BEGIN if not values["expect"] else _ADD if change.only_adds else _GO_ON
    try:
        done = await connection.execute(statement, values, prepare=True)
    except UniqueViolation:
        return False
    return bool(done.rowcount == change.added)


async def _there(connection: AsyncConnection, values: Mapping[str, Any]) -> tuple[int, list[str]]:
    """The log's length, and the bodies that stand where ours should."""
    ((length, there),) = await all_rows(
        connection, _THERE, {**values, "expect": Int8(clamped(values["expect"]))}
    )
    return length, there


def _values(session_id: str, change: Change | None, bodies: Sequence[str], expect: int) -> dict[str, Any]:
    """What an append changes, for its statement, which applies it as `lines.changed` does."""
    values = {"id": session_id, "bodies": list(bodies), "added": Int8(len(bodies)), "expect": Int8(expect)}
    if change is None:
        return values
    return values | {
        "title": to_bytes(change.title),
        "folder": to_bytes(change.folder),
        "owner": to_bytes(change.owner),
        "ttl": change.ttl_seconds,
        "created": change.first,
        "updated": change.updated,
    }
