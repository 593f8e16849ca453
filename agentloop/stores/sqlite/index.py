"""The full-text index of a SQLite file, which can be lost without losing anything: found out and made anew.

What is damaged in it would keep searches, deletions and sweeps from being done for good. So where one fails,
the index is looked through, and where that is the cause it is begun anew: searches fill it again.
"""

import sqlite3
from contextlib import closing
from functools import cache

from agentloop.errors import StoreError
from agentloop.stores.sqlite.file import SQLiteFile, code_of
from agentloop.stores.sqlite.schema import MAKE_WORDS, WORDS_TABLES

IS_NUMBERED = "typeof(number) = 'integer' AND number BETWEEN 1 AND 2147483647"
"""Whether a session has a part of the row ids: anything else in its place is damage."""

_SIGNS = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT)
_LOOK_THROUGH = "INSERT INTO words (words) VALUES ('integrity-check')"
"""It writes nothing: https://sqlite.org/fts5.html#the_integrity_check_command."""
_WRONG = f"""SELECT count(*) FROM sessions WHERE (number IS NOT NULL AND NOT ({IS_NUMBERED}))
    OR typeof(indexed) <> 'integer' OR indexed < 0"""
_ENTRIES = f"SELECT name, type, sql FROM sqlite_schema WHERE name IN {('words', *WORDS_TABLES)}"


def mended_for(fault: StoreError, file: SQLiteFile) -> bool:
    """Whether this fault of a search or a deletion came of a damaged index; it is empty then, and whole.

    Raises:
        StoreError: the file cannot be written.
    """
    error = fault.__cause__
    code = code_of(error) if isinstance(error, sqlite3.Error) else None
    # Only the index and the numbers of its rows have constraints to break here.
    if code == sqlite3.SQLITE_CONSTRAINT:
        with file.transaction() as connection:
            _begin_anew(connection)
        return True
    return code in _SIGNS and mended(file)


def mended(file: SQLiteFile) -> bool:
    """Whether the index was damaged; it is empty then, and whole.

    Raises:
        StoreError: the file cannot be written.
    """
    if not file.exists():
        return False
    with file.transaction() as connection:
        if _is_whole(connection):
            return False
        _begin_anew(connection)
    return True


def _is_whole(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute(_LOOK_THROUGH)
    except sqlite3.Error as error:
        if code_of(error) in _SIGNS:
            return False
        raise
    # The look-through passes over what a changed word there means: an `id` that is no row id any more.
    if not _as_made() <= set(connection.execute(_ENTRIES)):
        return False
    return bool(connection.execute(_WRONG).fetchone() == (0,))


@cache
def _as_made() -> frozenset[tuple[str, str, str]]:
    """What the schema says of an index that is just made."""
    with closing(sqlite3.connect(":memory:")) as made:
        made.execute(MAKE_WORDS)
        return frozenset(made.execute(_ENTRIES))


def _begin_anew(connection: sqlite3.Connection) -> None:
    """SQLite drops no table whose module cannot open it: so the entry goes first, then what it stands for."""
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("DELETE FROM sqlite_schema WHERE name = 'words'")
    connection.execute("PRAGMA writable_schema = RESET")
    for table in WORDS_TABLES:
        connection.execute(f"DROP TABLE IF EXISTS {table}")
    connection.execute(MAKE_WORDS)
    connection.execute("UPDATE sessions SET indexed = 0, number = NULL")
