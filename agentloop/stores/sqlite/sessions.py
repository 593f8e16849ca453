"""The list of the sessions in a SQLite file, and what takes sessions off it."""

import sqlite3

from agentloop.stores.base import SessionInfo
from agentloop.stores.sqlite.columns import INFO, info_of, to_column
from agentloop.stores.sqlite.file import SQLiteFile

SEQ_BITS = 32
"""A row of the full-text index has for its id the session's number, then, in so many bits, the position."""

LISTS = {
    (False, False): f"SELECT {INFO} FROM sessions ORDER BY updated DESC, id",
    (True, False): f"SELECT {INFO} FROM sessions WHERE folder = ? ORDER BY updated DESC, id",
    (False, True): f"SELECT {INFO} FROM sessions WHERE owner = ? ORDER BY updated DESC, id",
    (True, True): f"SELECT {INFO} FROM sessions WHERE folder = ? AND owner = ? ORDER BY updated DESC, id",
}
"""By whether a folder and an owner are given."""

EXPIRED = "SELECT id FROM sessions WHERE expires <= ? ORDER BY expires"
_LINE = f"SELECT {INFO} FROM sessions WHERE id = ?"


def info(session_id: str, file: SQLiteFile) -> SessionInfo | None:
    """The session's line; None for a session that does not exist."""
    if not file.exists():
        return None
    with file.transaction("BEGIN") as connection:
        row = connection.execute(_LINE, (session_id,)).fetchone()
    return info_of(row, file.path) if row else None


def listed(folder: str | None, owner: str | None, file: SQLiteFile) -> tuple[SessionInfo, ...]:
    """The sessions, newest update first; those of the folder, of the owner, where given."""
    if not file.exists():
        return ()
    statement = LISTS[folder is not None, owner is not None]
    values = [to_column(text) for text in (folder, owner) if text is not None]
    with file.transaction("BEGIN") as connection:
        rows = connection.execute(statement, values).fetchall()
    return tuple(info_of(row, file.path) for row in rows)


def delete(session_id: str, file: SQLiteFile) -> bool:
    """Remove a session with all that is kept of it; False where there was none."""
    if not file.exists():
        return False
    with file.transaction() as connection:
        return _remove(connection, session_id)


def expired(now: float, file: SQLiteFile) -> list[str]:
    """The ids of the sessions whose time to live is over."""
    if not file.exists():
        return []
    with file.transaction("BEGIN") as connection:
        return [name for (name,) in connection.execute(EXPIRED, (now,))]


def delete_expired(session_id: str, now: float, file: SQLiteFile) -> SessionInfo | None:
    """Remove a session if its time to live is over still, and return its line."""
    with file.transaction() as connection:
        row = connection.execute(f"{_LINE} AND expires <= ?", (session_id, now)).fetchone()
        if row is None:
            return None
        gone = info_of(row, file.path)
        _remove(connection, session_id)
    return gone


def _remove(connection: sqlite3.Connection, session_id: str) -> bool:
    numbers = connection.execute("SELECT number FROM sessions WHERE id = ? AND number > 0", (session_id,))
    for (number,) in numbers.fetchall():
        first, last = word_rows(number)
        connection.execute("DELETE FROM words WHERE rowid BETWEEN ? AND ?", (first, last))
    for table in ("events", "checkpoints", "leases"):
        connection.execute(f"DELETE FROM {table} WHERE session_id = ?", (session_id,))
    return connection.execute("DELETE FROM sessions WHERE id = ?", (session_id,)).rowcount > 0


def word_rows(number: int) -> tuple[int, int]:
    """The first and the last row id that the session with that number can have in the full-text index."""
    return number << SEQ_BITS, ((number + 1) << SEQ_BITS) - 1
