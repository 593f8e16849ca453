"""What SQLite's errors mean, in words that say what to do."""

import sqlite3
from pathlib import Path

from agentloop.errors import DamagedError, StoreError

DAMAGED = "the database is damaged: restore a copy, or try `sqlite3 FILE .recover`"
_ADVICE = {
    sqlite3.SQLITE_FULL: "the disc is full: free some space and try again; what was stored is safe",
    sqlite3.SQLITE_READONLY: "the database is read-only: change its rights or choose another store",
    sqlite3.SQLITE_NOTADB: "this is no SQLite database: choose another path; the file was not touched",
    sqlite3.SQLITE_CORRUPT: DAMAGED,
    sqlite3.SQLITE_CANTOPEN: "the database cannot be opened: check the rights of the file and its folder",
    sqlite3.SQLITE_PERM: "no permission: change the rights or choose another store",
    sqlite3.SQLITE_IOERR: "the disc failed to read or write: check it and try again",
    sqlite3.SQLITE_TOOBIG: "a record is larger than SQLite takes: make it smaller",
}
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_HINDERED = (
    *_LOCKED,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_AUTH,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_TOOBIG,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_PROTOCOL,
)
"""What keeps from reading or writing, whatever the file holds."""


def fault(path: Path, error: sqlite3.Error, busy_seconds: float) -> StoreError:
    """The error as ours, with what to do; `busy_seconds` is how long a lock was waited for.

    Chain it with `raise … from`.
    """
    code = code_of(error)
    if code in _LOCKED:
        return StoreError(f"{path}: {locked(busy_seconds)}")
    otherwise = f"{error}: check the database with `sqlite3 FILE 'PRAGMA integrity_check'`"
    kind = StoreError if code in _HINDERED else DamagedError
    return kind(f"{path}: {_ADVICE.get(code, otherwise)}")


def is_read_only(fault: StoreError) -> bool:
    """Whether it came of a file or a folder that cannot be written."""
    error = fault.__cause__
    return isinstance(error, sqlite3.Error) and code_of(error) == sqlite3.SQLITE_READONLY


def is_of_index(finding: str) -> bool:
    """Whether a line of SQLite's own check speaks of the full-text index, as from 3.44 on: no log has it."""
    return "inverted index for FTS5 table" in finding


def locked(busy_seconds: float) -> str:
    """What to say where another process kept a lock for so long."""
    return (
        f"the database is locked by another process, for over {busy_seconds:g} seconds: "
        "end that process or try again"
    )


def code_of(error: sqlite3.Error) -> int:
    """SQLite's primary code of an error; 0 where it has none."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
