"""The tables of a SQLite file at work: logs, the list of sessions, checkpoints, leases, and the self-check.

Each is a function of an opened file, the verbs of `stores.base` by their names among them. Those that read
take one unchanging state of it, those that write are one transaction.

A lease runs out by the clock of the machine: all processes that share the file read the same one. Where that
clock is set back, leases hold longer by as much.
"""

import sqlite3
import time
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, TypeAlias

from agentloop.codec import encode
from agentloop.errors import ConflictError
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
    change_of,
    changed,
    check_gapless,
    checkpoint_of,
    lease_of,
    line_of,
    newest_first,
    whole_line,
)
from agentloop.stores.sqlite.file import SQLiteFile
from agentloop.stores.sqlite.schema import record_of, record_sum, row_of, to_column

Row: TypeAlias = tuple[str, int, str | bytes, int]
_READ = "SELECT seq, body, sum FROM events WHERE session_id = ? AND seq > ? ORDER BY seq LIMIT ?"
_INSERT = "INSERT INTO events (session_id, seq, body, sum) VALUES (?, ?, ?, ?)"
_PUT = f"""INSERT INTO sessions ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET title = excluded.title, folder = excluded.folder,
    created = excluded.created, updated = excluded.updated, length = excluded.length, owner = excluded.owner,
    ttl_seconds = excluded.ttl_seconds"""


def append(session_id: str, events: Sequence[Event], expect: int, file: SQLiteFile) -> int:
    """The line is the log's length, kept in the same transactions.

    A log that has more all the same refuses the records by its primary key, and one that has less is found
    out by who reads it.
    """
    rows = [_row(session_id, seq, event) for seq, event in enumerate(events, start=expect + 1)]
    with file.transaction() as connection:
        before = line(connection, session_id, file)
        length = before.length if before else 0
        if length != expect:
            _check_written(connection, session_id, rows, expect, length)
        elif rows:
            connection.executemany(_INSERT, rows)
            connection.execute(_PUT, row_of(changed(before, session_id, change_of(events))))
    return expect + len(rows)


def _row(session_id: str, seq: int, event: Event) -> Row:
    body = to_column(encode(event))
    assert body is not None
    return session_id, seq, body, record_sum(session_id, seq, body)


def _check_written(
    connection: sqlite3.Connection, session_id: str, rows: Sequence[Row], expect: int, length: int
) -> None:
    """A repeated append whose first answer was lost finds the very rows that it sends."""
    at = clamped(expect)
    there = connection.execute(
        "SELECT seq, body FROM events WHERE session_id = ? AND seq > ? AND seq <= ? ORDER BY seq",
        (session_id, at, at + len(rows)),
    ).fetchall()
    if not rows or there != [(seq, body) for _, seq, body, _ in rows]:
        raise ConflictError(session_id, expected=expect, actual=length)


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
    """The session's line in a transaction that has begun; None where there is none.

    Raises:
        DamagedError: it is damaged.
    """
    row = connection.execute(_LINE, (session_id,)).fetchone()
    return line_of(str(file.path), row) if row else None


def listed(scope: SessionScope, file: SQLiteFile) -> tuple[SessionInfo, ...]:
    """The sessions of the folder and the owner, newest update first.

    One whose line is damaged hides no other: who looks the file through is told of it.
    """
    given = {"folder": to_column(scope.folder), "owner": to_column(scope.owner)}
    asked = {name: text for name, text in given.items() if text is not None}
    return newest_first(map(whole_line, file.rows(list_statement(asked), list(asked.values()))))


def list_statement(asked: Iterable[str]) -> str:
    """What lists the sessions that have certain values in these columns."""
    return f"SELECT {COLUMNS} FROM sessions WHERE {' AND '.join(f'{name} = ?' for name in asked) or 'TRUE'}"


def delete(session_id: str, file: SQLiteFile) -> bool:
    return file.change(lambda connection: _remove(connection, session_id), False)


def sweep(scope: SessionScope, now: float, file: SQLiteFile) -> list[SessionInfo]:
    """Remove some of the owner's sessions whose time to live is over and that are free; return their lines.

    Leases that have run out are forgotten. A session whose line is damaged stays: that it is over is no more
    sure than the rest of it.
    """

    def swept(connection: sqlite3.Connection) -> list[SessionInfo]:
        connection.execute(f"DELETE {_RUN_OUT}", (time.time(),))
        rows = connection.execute(EXPIRED, (now, to_column(scope.owner))).fetchall()
        gone = list(islice(filter(None, map(whole_line, rows)), MOST_SWEPT_AT_ONCE))
        for each in gone:
            _remove(connection, each.id)
        return gone

    return file.change(swept, list[SessionInfo]())


_BRANCHES = "SELECT id FROM sessions WHERE id BETWEEN ? || '~' AND ? || '~~'"
_FREE_BRANCHES = "DELETE FROM leases WHERE session_id BETWEEN ? || '~' AND ? || '~~'"
"""No name of a branch holds a `~`, and what it may hold stands before that."""


def _remove(connection: sqlite3.Connection, session_id: str) -> bool:
    """Remove a session with the logs of its sub-agents, and their leases: who let them work is gone."""
    for (name,) in connection.execute(_BRANCHES, (session_id, session_id)).fetchall():
        _remove_one(connection, name)
    connection.execute(_FREE_BRANCHES, (session_id, session_id))
    return _remove_one(connection, session_id)


_FORGET_WORDS = """DELETE FROM words WHERE rowid BETWEEN (SELECT number << 32 FROM sessions WHERE id = ?)
    AND (SELECT (number + 1 << 32) - 1 FROM sessions WHERE id = ?)"""


def _remove_one(connection: sqlite3.Connection, session_id: str) -> bool:
    connection.execute(_FORGET_WORDS, (session_id, session_id))
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
    return tuple(f"{file.path}: {each}" for (text,) in rows if text != "ok" for each in text.splitlines())


def names(file: SQLiteFile) -> list[object]:
    """The ids of all sessions of which there is a line in the list, a log, or both."""
    rows = file.rows("SELECT id FROM sessions UNION SELECT DISTINCT session_id FROM events")
    return [name for (name,) in rows]
