"""The list of the sessions in a SQLite file, and what takes sessions off it."""

import sqlite3
import time
from collections.abc import Sequence
from typing import Any

from agentloop.errors import DamagedError
from agentloop.stores.lines import COLUMNS, line_from, line_of, list_statements, newest_first, whole_line
from agentloop.stores.sqlite.beside import LIVES
from agentloop.stores.sqlite.columns import record_of, to_column
from agentloop.stores.sqlite.file import SQLiteFile
from agentloop.stores.sqlite.index import IS_NUMBERED
from agentloop.stores.values import Scope, SessionInfo

SEQ_BITS = 32
"""A row of the full-text index has for its id the session's number, then, in so many bits, the position."""

LISTS = list_statements(f"SELECT {COLUMNS} FROM sessions", "folder = ?", "owner = ?")
LOG = "SELECT seq, body, sum FROM events WHERE session_id = ? ORDER BY seq"

_DUE = "expires <= ? AND owner IS coalesce(?, owner)"
"""Where an owner is given, it is theirs: `IS`, since nobody's owner is NULL."""

EXPIRED = f"SELECT id FROM sessions WHERE {_DUE} ORDER BY expires"
_LINE = f"SELECT {COLUMNS} FROM sessions WHERE id = ?"
_RUN_OUT = f"FROM leases WHERE NOT ({LIVES})"
_IS_FREE = f"NOT EXISTS (SELECT 1 FROM leases WHERE session_id = id AND {LIVES})"


def info(session_id: str, file: SQLiteFile) -> SessionInfo | None:
    """The session's line; None for a session that does not exist."""
    return file.read(lambda connection: line(connection, session_id, file), None)


def line(connection: sqlite3.Connection, session_id: str, file: SQLiteFile) -> SessionInfo | None:
    """The session's line in a transaction that has begun, made anew from its log where it is damaged.

    None where there is none.

    Raises:
        DamagedError: both are damaged.
    """
    row = connection.execute(_LINE, (session_id,)).fetchone()
    return _line(connection, row, file) if row else None


def written_line(connection: sqlite3.Connection, session_id: str, file: SQLiteFile) -> SessionInfo | None:
    """The session's line as it stands there; None where there is none.

    Raises:
        DamagedError: it is damaged.
    """
    row = connection.execute(_LINE, (session_id,)).fetchone()
    return line_of(str(file.path), row) if row else None


def listed(scope: Scope, file: SQLiteFile) -> tuple[SessionInfo, ...]:
    """The sessions of the folder and the owner, newest update first.

    One of which neither line nor log is whole hides no other: who looks the file through is told of it.
    """
    statement = LISTS[scope.folder is not None, scope.owner is not None]
    values = [to_column(text) for text in (scope.folder, scope.owner) if text is not None]

    def found(connection: sqlite3.Connection) -> tuple[SessionInfo, ...]:
        rows = connection.execute(statement, values).fetchall()
        return newest_first((_line_or_none(connection, row, file) for row in rows), scope)

    return file.read(found, ())


def delete(session_id: str, file: SQLiteFile) -> bool:
    """Remove a session with all that is kept of it; False where there was none."""
    return file.change(lambda connection: _remove(connection, session_id), False)


def expired(scope: Scope, now: float, file: SQLiteFile) -> list[str]:
    """The ids of the owner's sessions whose time to live is over.

    Leases that have run out are forgotten.
    """

    def found(connection: sqlite3.Connection) -> tuple[list[str], bool]:
        names = [name for (name,) in connection.execute(EXPIRED, (now, to_column(scope.owner)))]
        (run_out,) = connection.execute(f"SELECT count(*) {_RUN_OUT}", (time.time(),)).fetchone()
        return names, run_out > 0

    names, some_run_out = file.read(found, (list[str](), False))
    if some_run_out:
        with file.transaction() as connection:
            connection.execute(f"DELETE {_RUN_OUT}", (time.time(),))
    return names


def delete_expired(session_id: str, scope: Scope, now: float, file: SQLiteFile) -> SessionInfo | None:
    """Remove a session if its time to live is over still, it is the owner's and free; return its line.

    One of which neither line nor log is whole stays: that it is over is no more sure than the rest of it.
    """
    with file.transaction() as connection:
        values = (session_id, now, to_column(scope.owner), time.time())
        row = connection.execute(f"{_LINE} AND {_DUE} AND {_IS_FREE}", values).fetchone()
        found = _line_or_none(connection, row, file) if row else None
        if found is None or not scope.takes(found) or found.expires is None or found.expires > now:
            return None
        _remove(connection, session_id)
    return found


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


def _line_or_none(connection: sqlite3.Connection, row: Sequence[Any], file: SQLiteFile) -> SessionInfo | None:
    try:
        return _line(connection, row, file)
    except DamagedError:
        return None


def _remove(connection: sqlite3.Connection, session_id: str) -> bool:
    numbers = connection.execute(f"SELECT number FROM sessions WHERE id = ? AND {IS_NUMBERED}", (session_id,))
    for (number,) in numbers.fetchall():
        first, last = word_rows(number)
        connection.execute("DELETE FROM words WHERE rowid BETWEEN ? AND ?", (first, last))
    connection.execute(f"DELETE {_RUN_OUT} AND session_id = ?", (time.time(), session_id))
    for table in ("events", "checkpoints"):
        connection.execute(f"DELETE FROM {table} WHERE session_id = ?", (session_id,))
    return connection.execute("DELETE FROM sessions WHERE id = ?", (session_id,)).rowcount > 0


def word_rows(number: int) -> tuple[int, int]:
    """The first and the last row id that the session with that number can have in the full-text index."""
    return number << SEQ_BITS, ((number + 1) << SEQ_BITS) - 1
