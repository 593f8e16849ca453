"""The tables of a PostgreSQL database at work: logs, the list, checkpoints, leases, and the self-check.

Each is a function of a connection that commits every statement by itself, the verbs of `stores.base` by their
names among them; where several statements belong together, they are one transaction. Values travel apart from
the statements, as parameters; no text of a user ever becomes part of one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from psycopg import AsyncConnection, sql
from psycopg.errors import UniqueViolation
from psycopg.types.numeric import Int8

from agentloop._plumbing.aio import in_thread
from agentloop.bounds import MOST_RECORD_BYTES
from agentloop.errors import ConflictError, DamagedError, StoreError
from agentloop.events import Record
from agentloop.stores.base import (
    MOST_LEASE_SECONDS,
    MOST_POSITION,
    Checkpoint,
    Lease,
    SessionInfo,
    SessionScope,
    clamped,
)
from agentloop.stores.lines import (
    CHECKPOINT_COLUMNS,
    COLUMNS,
    LEASE_COLUMNS,
    ROWS_AT_ONCE,
    LineChange,
    LogCheck,
    check_gapless,
    checkpoint_of,
    lease_of,
    line_from,
    line_of,
    list_statements,
    newest_first,
    record_of,
    to_bytes,
    whole_line,
)
from agentloop.stores.postgres.connection import Link
from agentloop.stores.postgres.schema import BESIDE, BODY, all_rows, one_row

_TRIES = 5
_EVENTS = """
    INSERT INTO agentloop_events (session_id, seq, body)
    SELECT line.id, %(expect)s::int8 + said.number, said.body
    FROM line, pg_catalog.unnest(%(bodies)s::text[]) WITH ORDINALITY AS said (body, number)"""
_BEGIN = f"""
    WITH line AS (
        INSERT INTO agentloop_sessions (id, title, folder, owner, ttl_seconds, created, updated, length)
        VALUES (%(id)s::text, %(title)s::bytea, %(folder)s::bytea, %(owner)s::bytea,
            nullif(%(ttl)s::float8, 0::float8), %(created)s::float8, %(updated)s::float8, %(added)s::int8)
        ON CONFLICT (id) DO NOTHING RETURNING id)
    {_EVENTS}"""
_GO_ON = f"""
    WITH line AS (
        UPDATE agentloop_sessions SET
            title = coalesce(%(title)s::bytea, title),
            folder = coalesce(%(folder)s::bytea, folder),
            owner = coalesce(%(owner)s::bytea, owner),
            ttl_seconds = nullif(coalesce(%(ttl)s::float8, ttl_seconds), 0::float8),
            updated = greatest(updated, %(updated)s::float8),
            length = length + %(added)s::int8
        WHERE id = %(id)s::text AND length = %(expect)s::int8 RETURNING id)
    {_EVENTS}"""
_THERE = f"""
    SELECT coalesce((SELECT pg_catalog.max(seq) FROM agentloop_events WHERE session_id = %(id)s::text), 0),
        array(SELECT {BODY} FROM agentloop_events WHERE session_id = %(id)s::text
            AND seq > %(expect)s::int8 AND seq <= %(expect)s::int8 + %(added)s::int8 ORDER BY seq)"""
_READ = f"""
    SELECT line.length, said.seq, said.body
    FROM (SELECT coalesce((
        SELECT length FROM agentloop_sessions WHERE id = %(id)s::text), 0)) AS line (length)
    LEFT JOIN LATERAL (
        SELECT seq, {BODY} AS body FROM agentloop_events
        WHERE session_id = %(id)s::text AND seq > %(after)s::int8
        ORDER BY seq LIMIT %(most)s::int8) AS said ON true"""
"""The length that the line says comes with each record, and alone where there is none: both of one moment."""


async def append(
    session_id: str,
    change: LineChange | None,
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


def _values(session_id: str, change: LineChange | None, bodies: Sequence[str], expect: int) -> dict[str, Any]:
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


async def _written(connection: AsyncConnection, change: LineChange, values: Mapping[str, Any]) -> bool:
    statement = _GO_ON if values["expect"] else _BEGIN
    try:
        done = await connection.execute(statement, values)
    except UniqueViolation:
        return False
    return bool(done.rowcount == change.added)


async def _there(connection: AsyncConnection, values: Mapping[str, Any]) -> tuple[int, list[str | None]]:
    """The log's length, and the bodies that stand where ours should; None for one longer than is read."""
    ((length, there),) = await all_rows(
        connection, _THERE, {**values, "expect": Int8(clamped(values["expect"]))}
    )
    return length, there


async def read(
    session_id: str, after: int, most: int | None, connection: AsyncConnection
) -> Sequence[tuple[int, str | None]]:
    """Positions and bodies of the records behind `after`; None for a body that is longer than is read.

    Raises:
        DamagedError: some that the session's line promises are missing.
    """
    values = {"id": session_id, "after": Int8(after), "most": None if most is None else Int8(most)}
    rows = await all_rows(connection, _READ, values)
    # Sorted here, where they come in order as good as always: the server would sort all bodies to be sure.
    there = sorted(((seq, body) for _, seq, body in rows if seq is not None), key=lambda row: row[0])
    check_gapless("", session_id, [seq for seq, _ in there], after=after, most=most, length=rows[0][0])
    return there


def records_of(label: str, session_id: str, rows: Sequence[tuple[int, str | None]]) -> tuple[Record, ...]:
    """The records that rows of positions and bodies hold.

    Raises:
        DamagedError: one is damaged; the text names its place.
    """
    return tuple(record_of(label, session_id, seq, body) for seq, body in rows)


LIVES = (
    "held.until > pg_catalog.clock_timestamp()"
    " AND held.until <= pg_catalog.clock_timestamp()"
    f" + pg_catalog.make_interval(secs => {MOST_LEASE_SECONDS})"
)
"""Whether a lease holds: one that ends later than it can is damaged and keeps nobody out."""
_MOST_SWEPT_AT_ONCE = 100
_LINES = f"SELECT {COLUMNS} FROM agentloop_sessions"
_LIST = list_statements(
    _LINES,
    "pg_catalog.sha256(folder) = pg_catalog.sha256(%(folder)s::bytea) AND folder = %(folder)s::bytea",
    "pg_catalog.sha256(owner) = pg_catalog.sha256(%(owner)s::bytea) AND owner = %(owner)s::bytea",
)
_INFO = f"{_LINES} WHERE id = %s::text"
_LOG = f"SELECT seq, {BODY} FROM agentloop_events WHERE session_id = %s::text ORDER BY seq"
_HOLD = "SELECT FROM agentloop_sessions WHERE id = %s::text FOR UPDATE"
_EXPIRED = f"""{_LINES}
    WHERE expires <= coalesce(%(now)s::float8, extract(epoch FROM pg_catalog.clock_timestamp()))
        AND (%(owner)s::bytea IS NULL OR owner = %(owner)s::bytea)
        AND id <> ALL(%(passed)s::text[])
        AND NOT EXISTS (
            SELECT FROM agentloop_leases AS held WHERE held.session_id = id AND {LIVES})
    ORDER BY updated DESC, id LIMIT {_MOST_SWEPT_AT_ONCE} FOR UPDATE SKIP LOCKED"""
_KEEP_OUT = f"""
    INSERT INTO agentloop_leases AS held (session_id, holder, place, pid, started, since, until)
    SELECT id, ''::bytea, ''::bytea, 0, ''::bytea, 0, pg_catalog.clock_timestamp()
    FROM pg_catalog.unnest(%s::text[]) AS id
    ON CONFLICT (session_id) DO UPDATE SET holder = '' WHERE NOT ({LIVES})
    RETURNING session_id"""
"""The leases of these sessions, but those that are live: who asks for one waits until the sweep is over."""
_FORGET = f"DELETE FROM agentloop_leases AS held WHERE NOT ({LIVES})"


async def info(session_id: str, connection: AsyncConnection) -> SessionInfo | None:
    row = await one_row(connection, _INFO, (session_id,))
    return await _line(row, connection) if row else None


async def listed(scope: SessionScope, connection: AsyncConnection) -> tuple[SessionInfo, ...]:
    """The lines of that folder and owner, newest update first.

    One of which neither line nor log is whole hides no other: who looks the database through is told of it.
    """
    values = {"folder": to_bytes(scope.folder), "owner": to_bytes(scope.owner)}
    rows = await all_rows(connection, _LIST[scope.folder is not None, scope.owner is not None], values)
    return newest_first([await _line_or_none(row, connection) for row in rows], scope)


async def delete(session_id: str, connection: AsyncConnection) -> bool:
    async with connection.transaction():
        held = await connection.execute(_HOLD, (session_id,))
        # Without a line that is held, an append could begin the session between two of these statements.
        return held.rowcount > 0 and await _remove(connection, [session_id]) > 0


async def sweep(link: Link, scope: SessionScope, now: float | None) -> tuple[SessionInfo, ...]:
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
    scope: SessionScope, now: float | None, passed: Sequence[str], connection: AsyncConnection
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
    records = (record_of("", row[0], *each) for each in there)
    return await in_thread(line_from, row[0], records) or line_of("", row)


async def _line_or_none(row: tuple[Any, ...], connection: AsyncConnection) -> SessionInfo | None:
    try:
        return await _line(row, connection)
    except DamagedError:
        return None


_BRANCHES = """
    SELECT branch.id FROM pg_catalog.unnest(%s::text[]) AS trunk
    JOIN agentloop_sessions AS branch ON branch.id BETWEEN trunk || '~' AND trunk || '~~'
    ORDER BY branch.id FOR UPDATE OF branch"""
_FREE_BRANCHES = """
    DELETE FROM agentloop_leases AS held USING pg_catalog.unnest(%s::text[]) AS trunk
    WHERE held.session_id BETWEEN trunk || '~' AND trunk || '~~'"""
"""No name of a branch holds a `~`, and what it may hold stands before that."""


async def _remove(connection: AsyncConnection, trunks: Sequence[str]) -> int:
    """Remove these sessions with the logs of their sub-agents and their leases; how many logs that were."""
    session_ids = [*trunks, *(name for (name,) in await all_rows(connection, _BRANCHES, (list(trunks),)))]
    await connection.execute(f"{_FORGET} AND session_id = ANY(%s::text[])", (session_ids,))
    await connection.execute(_FREE_BRANCHES, (list(trunks),))
    for table in ("agentloop_events", *BESIDE):
        statement = sql.SQL("DELETE FROM {} WHERE session_id = ANY(%s::text[])").format(sql.Identifier(table))
        await connection.execute(statement, (session_ids,))
    done = await connection.execute(
        "DELETE FROM agentloop_sessions WHERE id = ANY(%s::text[])", (session_ids,)
    )
    return done.rowcount


_CHECKPOINT = f"""
    SELECT {CHECKPOINT_COLUMNS} FROM agentloop_checkpoints
    WHERE session_id = %s::text AND pg_catalog.octet_length(body) <= {MOST_RECORD_BYTES}"""
_KEEP = f"""
    INSERT INTO agentloop_checkpoints AS kept (session_id, {CHECKPOINT_COLUMNS})
    SELECT id, %(seq)s::int8, %(event_id)s::bytea, %(body)s::bytea
    FROM agentloop_sessions WHERE id = %(id)s::text FOR KEY SHARE
    ON CONFLICT (session_id) DO UPDATE
    SET seq = excluded.seq, event_id = excluded.event_id, body = excluded.body
    WHERE kept.seq <= excluded.seq"""


async def checkpoint(session_id: str, connection: AsyncConnection) -> Checkpoint | None:
    row = await one_row(connection, _CHECKPOINT, (session_id,))
    return checkpoint_of(row) if row else None


async def keep_checkpoint(session_id: str, kept: Checkpoint, connection: AsyncConnection) -> None:
    values = {"id": session_id, "seq": kept.seq, "event_id": to_bytes(kept.event_id)}
    await connection.execute(_KEEP, {**values, "body": to_bytes(kept.body)})


async def drop_checkpoint(session_id: str, connection: AsyncConnection) -> None:
    await connection.execute("DELETE FROM agentloop_checkpoints WHERE session_id = %s::text", (session_id,))


_LEASE_TRIES = 20
_HELD = f"SELECT {LEASE_COLUMNS} FROM agentloop_leases WHERE session_id = %(id)s::text"
_LIVE = f"""
    SELECT {LEASE_COLUMNS} FROM agentloop_leases AS held
    WHERE session_id = %s::text AND {LIVES}"""
_TAKE = f"""
    INSERT INTO agentloop_leases AS held (session_id, {LEASE_COLUMNS}, until)
    VALUES (%(id)s::text, %(holder)s::bytea, %(place)s::bytea, %(pid)s::int8, %(started)s::bytea,
        %(since)s::float8,
        pg_catalog.clock_timestamp() + pg_catalog.make_interval(secs => %(seconds)s::float8))
    ON CONFLICT (session_id) DO UPDATE
    SET holder = excluded.holder, place = excluded.place, pid = excluded.pid, started = excluded.started,
        since = excluded.since,
        until = pg_catalog.clock_timestamp() + pg_catalog.make_interval(secs => %(seconds)s::float8)
    WHERE held.holder = excluded.holder OR held.holder = %(over)s::bytea OR NOT ({LIVES})
    RETURNING {LEASE_COLUMNS}"""
"""Who holds it stays where `stores.base.stays_with` says so: the condition is its negation."""
_FREE = "DELETE FROM agentloop_leases WHERE session_id = %s::text AND holder = %s::bytea"


async def take_lease(
    session_id: str, lease: Lease, seconds: float, over: str | None, connection: AsyncConnection
) -> Lease:
    values: dict[str, Any] = {
        **asdict(lease),
        "id": session_id,
        "seconds": seconds,
        "holder": to_bytes(lease.holder),
        "place": to_bytes(lease.place),
        "started": to_bytes(lease.started),
        "since": float(lease.since),
        "over": to_bytes(over),
    }
    for _ in range(_LEASE_TRIES):
        # Where it is held, the second statement looks by whom; it may have been freed in between.
        row = await one_row(connection, _TAKE, values) or await one_row(connection, _HELD, values)
        if row and (held := lease_of(row)):
            return held
        values["over"] = row[0] if row else to_bytes(over)
    raise StoreError(f"the lease of session {session_id!r} changes hands too often: try again")


async def free_lease(session_id: str, holder: str, connection: AsyncConnection) -> None:
    await connection.execute(_FREE, (session_id, to_bytes(holder)))


async def lease(session_id: str, connection: AsyncConnection) -> Lease | None:
    row = await one_row(connection, _LIVE, (session_id,))
    return lease_of(row) if row else None


_NAMES = """
    SELECT id FROM agentloop_sessions
    UNION SELECT session_id FROM agentloop_events ORDER BY 1"""
_PAGE = f"""
    SELECT seq, {BODY} FROM agentloop_events WHERE session_id = %s::text AND seq > %s::int8
    ORDER BY seq LIMIT {ROWS_AT_ONCE}"""


async def faults_of(label: str, link: Link) -> tuple[str, ...]:
    """A line for each record that is damaged or missing, and each line of the list that is not its log's."""
    faults: list[str] = []
    try:
        for name in await link.run(_names):
            faults += await link.run(partial(_faults_of_session, label, name))
    except DamagedError as error:
        faults.append(str(error))
    return tuple(faults)


async def _names(connection: AsyncConnection) -> list[str]:
    async with connection.transaction():
        await connection.execute("SET LOCAL statement_timeout = 0")
        return [name for (name,) in await (await connection.execute(_NAMES)).fetchall()]


async def _faults_of_session(label: str, session_id: str, connection: AsyncConnection) -> list[str]:
    """All of it as it was at one moment: who appends or deletes meanwhile is no fault."""
    log, faults = LogCheck(label, session_id, partial(record_of, label, session_id)), list[str]()
    async with connection.transaction():
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        row = await one_row(connection, _INFO, (session_id,))
        try:
            listed = line_of(label, row) if row else None
        except DamagedError as error:
            return [str(error)]
        read = ROWS_AT_ONCE
        while read == ROWS_AT_ONCE:
            rows = await _page(connection, session_id, log.seq)
            faults += await in_thread(log.faults_of, rows)
            read = len(rows)
    return [*faults, *log.faults_of_line(listed)]


async def _page(connection: AsyncConnection, session_id: str, after: int) -> list[tuple[int, str]]:
    return await (await connection.execute(_PAGE, (session_id, after))).fetchall()
