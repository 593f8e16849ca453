"""The log of a session in a SQLite file: what is appended, and what is read."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from agentloop.codec import encode
from agentloop.errors import ConflictError
from agentloop.events import Event, Record
from agentloop.stores.checked import clamped
from agentloop.stores.lines import COLUMNS, Change, change_of, changed, check_gapless, incomplete
from agentloop.stores.sqlite.columns import record_of, row_of, to_column
from agentloop.stores.sqlite.file import SQLiteFile
from agentloop.stores.sqlite.schema import record_sum
from agentloop.stores.sqlite.sessions import line

Row: TypeAlias = tuple[str, int, str | bytes, int]

MOST_SMALL_CHARS = 64 * 1024

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
    change: Change | None

    @property
    def is_small(self) -> bool:
        """Whether writing it takes about as long as writing a single short record."""
        return sum(len(body) for _, _, body, _ in self.rows) <= MOST_SMALL_CHARS


def addition_of(session_id: str, events: Sequence[Event], expect: int) -> Addition:
    """The events as they are written."""
    rows = [_row(session_id, seq, event) for seq, event in enumerate(events, start=expect + 1)]
    change = change_of(events) if events else None
    return Addition(session_id=session_id, expect=expect, rows=rows, change=change)


def append(new: Addition, file: SQLiteFile) -> int:
    """Write all of it, or nothing; see `SessionStore.append`."""
    with file.transaction() as connection:
        if not _went_on(connection, new):
            _begin_or_describe(connection, new, file)
        elif new.rows:
            connection.executemany(_INSERT, new.rows)
    return new.expect + len(new.rows)


def read(session_id: str, after: int, most: int | None, file: SQLiteFile) -> tuple[Record, ...]:
    """The records behind position `after`, at most `most` of them.

    Raises:
        DamagedError: one is damaged or missing.
    """
    after, most = clamped(after), None if most is None else clamped(most)

    def found(connection: sqlite3.Connection) -> tuple[Any, list[Any]]:
        rows = connection.execute(_READ, (session_id, after, -1 if most is None else most))
        return _listed(connection, session_id), rows.fetchall()

    length, rows = file.read(found, (0, list[Any]()))
    seqs = [seq for seq, _, _ in rows]
    check_gapless(str(file.path), session_id, seqs, after=after, most=most, length=length)
    return tuple(record_of(file.path, session_id, *row) for row in rows)


def _row(session_id: str, seq: int, event: Event) -> Row:
    body = to_column(encode(event))
    assert body is not None
    return session_id, seq, body, record_sum(session_id, seq, body)


def _length(connection: sqlite3.Connection, session_id: str) -> int:
    positions = "SELECT max(seq) FROM events WHERE session_id = ? AND typeof(seq) = 'integer'"
    return connection.execute(positions, (session_id,)).fetchone()[0] or 0


def _listed(connection: sqlite3.Connection, session_id: str) -> int:
    """The length that the line says; that of the log itself where the line says no number."""
    row = connection.execute("SELECT length FROM sessions WHERE id = ?", (session_id,)).fetchone()
    if row and not isinstance(row[0], int):
        return _length(connection, session_id)
    return row[0] if row else 0


def _check_written(connection: sqlite3.Connection, new: Addition, length: int) -> None:
    """A repeated append whose first answer was lost finds the very rows that it sends."""
    at = clamped(new.expect)
    there = connection.execute(
        "SELECT seq, body FROM events WHERE session_id = ? AND seq > ? AND seq <= ? ORDER BY seq",
        (new.session_id, at, at + len(new.rows)),
    ).fetchall()
    if not new.rows or there != [(seq, body) for _, seq, body, _ in new.rows]:
        raise ConflictError(new.session_id, expected=new.expect, actual=length)


def _went_on(connection: sqlite3.Connection, new: Addition) -> bool:
    """Whether the log has `expect` records and its line now says that these are behind them.

    The line is the log's length, kept in the same transactions; a log that has more all the same refuses the
    records by its primary key, and one that has less is found out by who reads it.
    """
    if new.change is None or not new.change.only_adds:
        return False
    at = clamped(new.expect)
    updated = connection.execute(
        "UPDATE sessions SET updated = max(updated, ?), length = ? WHERE id = ? AND length = ?",
        (new.change.updated, at + new.change.added, new.session_id, at),
    )
    return updated.rowcount == 1


def _begin_or_describe(connection: sqlite3.Connection, new: Addition, file: SQLiteFile) -> None:
    length = _length(connection, new.session_id)
    if length != new.expect:
        _check_written(connection, new, length)
        return
    before = line(connection, new.session_id, file)
    listed = before.length if before else 0
    if listed != new.expect:
        raise incomplete(str(file.path), new.session_id, listed)
    if new.change:
        connection.executemany(_INSERT, new.rows)
        connection.execute(_PUT, row_of(changed(before, new.session_id, new.change)))
