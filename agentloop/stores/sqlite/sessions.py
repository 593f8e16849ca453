"""The list of the sessions in a SQLite file, and what takes sessions off it."""

import sqlite3
import time

from agentloop.stores.base import SessionInfo
from agentloop.stores.lines import COLUMNS, line_of, list_statements
from agentloop.stores.sqlite.columns import to_column
from agentloop.stores.sqlite.file import SQLiteFile

SEQ_BITS = 32
"""A row of the full-text index has for its id the session's number, then, in so many bits, the position."""

LISTS = list_statements(f"SELECT {COLUMNS} FROM sessions", "folder = ?", "owner = ?")

_DUE = "expires <= ? AND owner IS coalesce(?, owner)"
"""Where an owner is given, it is theirs: `IS`, since nobody's owner is NULL."""

EXPIRED = f"SELECT id FROM sessions WHERE {_DUE} ORDER BY expires"
_LINE = f"SELECT {COLUMNS} FROM sessions WHERE id = ?"
_RUN_OUT = "FROM leases WHERE until <= ?"
_IS_FREE = "NOT EXISTS (SELECT 1 FROM leases WHERE session_id = id AND until > ?)"


def info(session_id: str, file: SQLiteFile) -> SessionInfo | None:
    """The session's line; None for a session that does not exist."""
    return file.read(lambda connection: line(connection, session_id, file), None)


def line(connection: sqlite3.Connection, session_id: str, file: SQLiteFile) -> SessionInfo | None:
    """The session's line in a transaction that has begun; None where there is none.

    Raises:
        StoreError: it is damaged.
    """
    row = connection.execute(_LINE, (session_id,)).fetchone()
    return line_of(str(file.path), row) if row else None


def listed(folder: str | None, owner: str | None, file: SQLiteFile) -> tuple[SessionInfo, ...]:
    """The sessions, newest update first; those of the folder, of the owner, where given."""
    statement = LISTS[folder is not None, owner is not None]
    values = [to_column(text) for text in (folder, owner) if text is not None]
    rows = file.rows(statement, values)
    return tuple(line_of(str(file.path), row) for row in rows)


def delete(session_id: str, file: SQLiteFile) -> bool:
    """Remove a session with all that is kept of it; False where there was none."""
    return file.change(lambda connection: _remove(connection, session_id), False)


def expired(owner: str | None, now: float, file: SQLiteFile) -> list[str]:
    """The ids of the sessions whose time to live is over; those of the owner, where given.

    Leases that have run out are forgotten.
    """

    def found(connection: sqlite3.Connection) -> tuple[list[str], bool]:
        names = [name for (name,) in connection.execute(EXPIRED, (now, to_column(owner)))]
        (run_out,) = connection.execute(f"SELECT count(*) {_RUN_OUT}", (time.time(),)).fetchone()
        return names, run_out > 0

    names, some_run_out = file.read(found, (list[str](), False))
    if some_run_out:
        with file.transaction() as connection:
            connection.execute(f"DELETE {_RUN_OUT}", (time.time(),))
    return names


def delete_expired(session_id: str, owner: str | None, now: float, file: SQLiteFile) -> SessionInfo | None:
    """Remove a session if its time to live is over still, it is the owner's and free; return its line."""
    with file.transaction() as connection:
        values = (session_id, now, to_column(owner), time.time())
        row = connection.execute(f"{_LINE} AND {_DUE} AND {_IS_FREE}", values).fetchone()
        if row is None:
            return None
        gone = line_of(str(file.path), row)
        _remove(connection, session_id)
    return gone


def _remove(connection: sqlite3.Connection, session_id: str) -> bool:
    numbers = connection.execute("SELECT number FROM sessions WHERE id = ? AND number > 0", (session_id,))
    for (number,) in numbers.fetchall():
        first, last = word_rows(number)
        connection.execute("DELETE FROM words WHERE rowid BETWEEN ? AND ?", (first, last))
    connection.execute("DELETE FROM leases WHERE session_id = ? AND until <= ?", (session_id, time.time()))
    for table in ("events", "checkpoints"):
        connection.execute(f"DELETE FROM {table} WHERE session_id = ?", (session_id,))
    return connection.execute("DELETE FROM sessions WHERE id = ?", (session_id,)).rowcount > 0


def word_rows(number: int) -> tuple[int, int]:
    """The first and the last row id that the session with that number can have in the full-text index."""
    return number << SEQ_BITS, ((number + 1) << SEQ_BITS) - 1
