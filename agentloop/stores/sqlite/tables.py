"""The tables of a SQLite file at work: logs, the list of sessions, checkpoints, leases, and the self-check.

Each is a function of an opened file, the verbs of `stores.base` by their names among them. Those that read
take one unchanging state of it, those that write are one transaction.

A lease runs out by the clock of the machine: all processes that share the file read the same one. Where that
clock is set back, leases hold longer by as much.
"""

import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, TypeAlias

from agentloop._plumbing.checks import shown
from agentloop.codec import encode
from agentloop.errors import ConflictError, DamagedError
from agentloop.events import Event, Record
from agentloop.stores.base import (
    MOST_LEASE_SECONDS,
    Checkpoint,
    Lease,
    SessionInfo,
    SessionScope,
    clamped,
    stays_with,
)
from agentloop.stores.lines import (
    CHECKPOINT_COLUMNS,
    COLUMNS,
    LEASE_COLUMNS,
    LineChange,
    LogCheck,
    change_of,
    changed,
    check_gapless,
    checkpoint_of,
    if_whole,
    lease_of,
    line_from,
    line_of,
    list_statements,
    newest_first,
    whole_line,
)
from agentloop.stores.sqlite.file import SQLiteFile, is_of_index
from agentloop.stores.sqlite.schema import (
    IS_NUMBERED,
    record_of,
    record_sum,
    row_of,
    to_column,
    word_rows,
)

Row: TypeAlias = tuple[str, int, str | bytes, int]
_READ = "SELECT seq, body, sum FROM events WHERE session_id = ? AND seq > ? ORDER BY seq LIMIT ?"
_INSERT = "INSERT INTO events (session_id, seq, body, sum) VALUES (?, ?, ?, ?)"
_PUT = f"""INSERT INTO sessions ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET title = excluded.title, folder = excluded.folder,
    created = excluded.created, updated = excluded.updated, length = excluded.length, owner = excluded.owner,
    ttl_seconds = excluded.ttl_seconds"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Addition:
    """What an append writes: the rows behind record `expect`, and what they make of the session's line."""

    session_id: str
    expect: int
    rows: Sequence[Row]
    change: LineChange | None


def addition_of(session_id: str, events: Sequence[Event], expect: int) -> Addition:
    """The events as they are written."""
    rows = [_row(session_id, seq, event) for seq, event in enumerate(events, start=expect + 1)]
    change = change_of(events) if events else None
    return Addition(session_id=session_id, expect=expect, rows=rows, change=change)


def append(new: Addition, file: SQLiteFile) -> int:
    """The line is the log's length, kept in the same transactions.

    A log that has more all the same refuses the records by its primary key, and one that has less is found
    out by who reads it.
    """
    with file.transaction() as connection:
        before = line(connection, new.session_id, file)
        length = before.length if before else 0
        if length != new.expect:
            _check_written(connection, new, length)
        elif new.change:
            connection.executemany(_INSERT, new.rows)
            connection.execute(_PUT, row_of(changed(before, new.session_id, new.change)))
    return new.expect + len(new.rows)


def _row(session_id: str, seq: int, event: Event) -> Row:
    body = to_column(encode(event))
    assert body is not None
    return session_id, seq, body, record_sum(session_id, seq, body)


def _check_written(connection: sqlite3.Connection, new: Addition, length: int) -> None:
    """A repeated append whose first answer was lost finds the very rows that it sends."""
    at = clamped(new.expect)
    there = connection.execute(
        "SELECT seq, body FROM events WHERE session_id = ? AND seq > ? AND seq <= ? ORDER BY seq",
        (new.session_id, at, at + len(new.rows)),
    ).fetchall()
    if not new.rows or there != [(seq, body) for _, seq, body, _ in new.rows]:
        raise ConflictError(new.session_id, expected=new.expect, actual=length)


def read(session_id: str, after: int, most: int | None, file: SQLiteFile) -> tuple[Record, ...]:
    def found(connection: sqlite3.Connection) -> tuple[int, list[Any]]:
        listed = line(connection, session_id, file)
        rows = connection.execute(_READ, (session_id, after, -1 if most is None else most))
        return listed.length if listed else 0, rows.fetchall()

    length, rows = file.read(found, (0, list[Any]()))
    seqs = [seq for seq, _, _ in rows]
    check_gapless(str(file.path), session_id, seqs, after=after, most=most, length=length)
    return tuple(record_of(file.path, session_id, *row) for row in rows)


LIVES = f"typeof(until) = 'real' AND until - ? BETWEEN 0 AND {MOST_LEASE_SECONDS}"
"""Whether a lease holds at that moment: one that ends later than it can is damaged and keeps nobody out."""
LISTS = list_statements(f"SELECT {COLUMNS} FROM sessions", "folder = ?", "owner = ?")
LOG = "SELECT seq, body, sum FROM events WHERE session_id = ? ORDER BY seq"
_LINE = f"SELECT {COLUMNS} FROM sessions WHERE id = ?"
_DUE = "expires <= ? AND owner IS coalesce(?, owner)"
"""Where an owner is given, it is theirs: `IS`, since nobody's owner is NULL."""
MOST_SWEPT_AT_ONCE = 100
EXPIRED = f"""SELECT {COLUMNS} FROM sessions WHERE {_DUE} AND id NOT IN (SELECT session_id FROM leases)
    ORDER BY expires"""
_RUN_OUT = f"FROM leases WHERE NOT ({LIVES})"


def info(session_id: str, file: SQLiteFile) -> SessionInfo | None:
    return file.read(lambda connection: line(connection, session_id, file), None)


def line(connection: sqlite3.Connection, session_id: str, file: SQLiteFile) -> SessionInfo | None:
    """The session's line in a transaction that has begun, made anew from its log where it is damaged.

    None where there is none.

    Raises:
        DamagedError: both are damaged.
    """
    row = connection.execute(_LINE, (session_id,)).fetchone()
    return _line(connection, row, file) if row else None


def listed(scope: SessionScope, file: SQLiteFile) -> tuple[SessionInfo, ...]:
    """The sessions of the folder and the owner, newest update first.

    One of which neither line nor log is whole hides no other: who looks the file through is told of it.
    """
    statement = LISTS[scope.folder is not None, scope.owner is not None]
    values = [to_column(text) for text in (scope.folder, scope.owner) if text is not None]

    def found(connection: sqlite3.Connection) -> tuple[SessionInfo, ...]:
        rows = connection.execute(statement, values).fetchall()
        return newest_first((if_whole(partial(_line, connection, row, file)) for row in rows), scope)

    return file.read(found, ())


def delete(session_id: str, file: SQLiteFile) -> bool:
    return file.change(lambda connection: _remove(connection, session_id), False)


def sweep(scope: SessionScope, now: float, file: SQLiteFile) -> list[SessionInfo]:
    """Remove some of the owner's sessions whose time to live is over and that are free; return their lines.

    Leases that have run out are forgotten. A session of which neither line nor log is whole stays: that it is
    over is no more sure than the rest of it.
    """

    def swept(connection: sqlite3.Connection) -> list[SessionInfo]:
        connection.execute(f"DELETE {_RUN_OUT}", (time.time(),))
        rows = connection.execute(EXPIRED, (now, to_column(scope.owner))).fetchall()
        lines = filter(None, (if_whole(partial(_line, connection, row, file)) for row in rows))
        due = (line for line in lines if line.expires is not None and line.expires <= now)
        gone = list(islice(filter(scope.takes, due), MOST_SWEPT_AT_ONCE))
        for each in gone:
            _remove(connection, each.id)
        return gone

    return file.change(swept, list[SessionInfo]())


def _line(connection: sqlite3.Connection, row: Sequence[Any], file: SQLiteFile) -> SessionInfo:
    """What the row says; where it is damaged, what the log does, of which it is only an extract.

    Raises:
        DamagedError: both are damaged.
    """
    label, name = str(file.path), row[0]
    if line := whole_line(label, row):
        return line
    rows = connection.execute(LOG, (name,))
    return line_from(name, (record_of(file.path, name, *each) for each in rows)) or line_of(label, row)


_BRANCHES = "SELECT id FROM sessions WHERE id BETWEEN ? || '~' AND ? || '~~'"
_FREE_BRANCHES = "DELETE FROM leases WHERE session_id BETWEEN ? || '~' AND ? || '~~'"
"""No name of a branch holds a `~`, and what it may hold stands before that."""


def _remove(connection: sqlite3.Connection, session_id: str) -> bool:
    """Remove a session with the logs of its sub-agents, and their leases: who let them work is gone."""
    for (name,) in connection.execute(_BRANCHES, (session_id, session_id)).fetchall():
        _remove_one(connection, name)
    connection.execute(_FREE_BRANCHES, (session_id, session_id))
    return _remove_one(connection, session_id)


def _remove_one(connection: sqlite3.Connection, session_id: str) -> bool:
    numbers = connection.execute(f"SELECT number FROM sessions WHERE id = ? AND {IS_NUMBERED}", (session_id,))
    for (number,) in numbers.fetchall():
        first, last = word_rows(number)
        connection.execute("DELETE FROM words WHERE rowid BETWEEN ? AND ?", (first, last))
    connection.execute(f"DELETE {_RUN_OUT} AND session_id = ?", (time.time(), session_id))
    for table in ("events", "checkpoints"):
        connection.execute(f"DELETE FROM {table} WHERE session_id = ?", (session_id,))
    return connection.execute("DELETE FROM sessions WHERE id = ?", (session_id,)).rowcount > 0


_KEEP = f"""INSERT INTO checkpoints (session_id, {CHECKPOINT_COLUMNS})
    SELECT id, ?, ?, ? FROM sessions WHERE id = ?
    ON CONFLICT (session_id) DO UPDATE SET
    seq = excluded.seq, event_id = excluded.event_id, body = excluded.body
    WHERE excluded.seq >= checkpoints.seq"""
_KEPT = f"SELECT {CHECKPOINT_COLUMNS} FROM checkpoints WHERE session_id = ?"


def checkpoint(session_id: str, file: SQLiteFile) -> Checkpoint | None:
    row = file.read(lambda connection: connection.execute(_KEPT, (session_id,)).fetchone(), None)
    return checkpoint_of(row) if row else None


def keep_checkpoint(session_id: str, kept: Checkpoint, file: SQLiteFile) -> None:
    row = (kept.seq, to_column(kept.event_id), to_column(kept.body), session_id)
    file.change(lambda connection: connection.execute(_KEEP, row), None)


def drop_checkpoint(session_id: str, file: SQLiteFile) -> None:
    delete = "DELETE FROM checkpoints WHERE session_id = ?"
    file.change(lambda connection: connection.execute(delete, (session_id,)), None)


_TAKE = f"INSERT OR REPLACE INTO leases (session_id, {LEASE_COLUMNS}, until) VALUES (?, ?, ?, ?, ?, ?, ?)"


def take_lease(session_id: str, lease: Lease, seconds: float, over: str | None, file: SQLiteFile) -> Lease:
    with file.transaction() as connection:
        now = time.time()
        held = _held(connection, session_id, now)
        if held and stays_with(held, lease, over):
            return held
        texts = [to_column(text) for text in (lease.holder, lease.place, lease.started)]
        connection.execute(
            _TAKE,
            (session_id, texts[0], texts[1], lease.pid, texts[2], float(lease.since), now + seconds),
        )
    return lease


def free_lease(session_id: str, holder: str, file: SQLiteFile) -> None:
    free, row = "DELETE FROM leases WHERE session_id = ? AND holder = ?", (session_id, to_column(holder))
    file.change(lambda connection: connection.execute(free, row), None)


def lease(session_id: str, file: SQLiteFile) -> Lease | None:
    return file.read(lambda connection: _held(connection, session_id, time.time()), None)


def _held(connection: sqlite3.Connection, session_id: str, now: float) -> Lease | None:
    row = connection.execute(
        f"SELECT {LEASE_COLUMNS} FROM leases WHERE session_id = ? AND {LIVES}", (session_id, now)
    ).fetchone()
    return lease_of(row) if row else None


def check_form(file: SQLiteFile) -> tuple[str, ...]:
    """What is wrong with the pages, tables and indexes of the file, one line for each finding."""
    rows = file.rows("PRAGMA integrity_check")
    found = (each for (text,) in rows if text != "ok" for each in text.splitlines())
    return tuple(f"{file.path}: {each}" for each in found if not is_of_index(each))


def names(file: SQLiteFile) -> list[object]:
    """The ids of all sessions of which there is a line in the list, a log, or both."""
    rows = file.rows("SELECT id FROM sessions UNION SELECT DISTINCT session_id FROM events")
    return [name for (name,) in rows]


def check_session(session_id: object, file: SQLiteFile) -> tuple[str, ...]:
    """What is wrong with a session: records that do not decode or are missing, a line that says otherwise."""
    if not isinstance(session_id, str):
        return (f"{file.path}: a session's id is damaged: {shown(session_id)}: restore a copy",)
    log = LogCheck(str(file.path), session_id, partial(record_of, file.path, session_id))
    with file.transaction("BEGIN") as connection:
        row = connection.execute(_LINE, (session_id,)).fetchone()
        try:
            listed = line_of(str(file.path), row) if row else None
        except DamagedError as error:
            return (str(error),)
        rows = connection.execute(LOG, (session_id,))
        return (*log.faults_of(rows), *log.faults_of_line(listed))
