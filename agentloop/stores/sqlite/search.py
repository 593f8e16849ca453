"""Full-text search in a SQLite file by FTS5 (https://sqlite.org/fts5.html): its index filled, asked, mended.

An append does not touch the index. A search first brings the sessions that it asks about up to date
(`to_index`, `catch_up`), some records in each transaction, so that no writer waits long. What the
index finds is then read from the log and held against the query (`search`).

The index can be lost without losing anything. What is damaged in it would keep searches, deletions and sweeps
from being done for good: so where one fails, the index is looked through, and where that is the cause it is
begun anew (`mended_for`), and searches fill it again.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from agentloop.errors import StoreError
from agentloop.stores.base import Found, SessionScope
from agentloop.stores.lines import if_whole
from agentloop.stores.sqlite.file import SQLiteFile, code_of, is_read_only, writable_schema
from agentloop.stores.sqlite.schema import (
    IS_NUMBERED,
    MAKE_WORDS,
    SEQ_BITS,
    WORDS_TABLES,
    record_of,
    to_column,
    word_rows,
)
from agentloop.stores.words import Query, found_among, words_in

MOST_ROWS = 500
MOST_CHARS = 500_000
"""So much is taken into the index in one transaction, but for the last record, which is taken whole."""

MOST_ASKED = 50
"""So many phrases, and words of a phrase, the index is asked for; the whole query is held against the log."""

_CATCH_UP = f"""UPDATE sessions SET indexed = ?, number = iif({IS_NUMBERED}, number,
    (SELECT coalesce(max(number), 0) + 1 FROM sessions WHERE {IS_NUMBERED}))
    WHERE id = ? RETURNING number"""
_SCOPE = """(:id IS NULL OR sessions.id = :id) AND (:folder IS NULL OR sessions.folder = :folder)
    AND (:owner IS NULL OR sessions.owner = :owner)"""
_COUNTED = "typeof(length) = 'integer' AND typeof(indexed) = 'integer'"
_TO_INDEX = f"SELECT id FROM sessions WHERE indexed < length AND {_COUNTED} AND {_SCOPE}"
_NEXT = f"SELECT indexed, length FROM sessions WHERE id = ? AND {_COUNTED}"
_NUMBER = f"SELECT number FROM sessions WHERE id = :id AND {IS_NUMBERED} AND {_SCOPE}"
_NEW = "SELECT seq, body, sum FROM events WHERE session_id = ? AND seq > ? AND seq <= ? ORDER BY seq"
_RECORD = "SELECT seq, body, sum FROM events WHERE session_id = ? AND seq = ?"
_IN_SESSION = """SELECT sessions.id, words.rowid FROM sessions CROSS JOIN words
    WHERE words MATCH :asked AND sessions.id = :id AND words.rowid BETWEEN :first AND :last
    ORDER BY words.rowid DESC"""
_IN_ALL = f"""SELECT sessions.id, words.rowid FROM words
    CROSS JOIN sessions ON sessions.number = words.rowid >> {SEQ_BITS}
    WHERE words MATCH :asked AND {_SCOPE}
    ORDER BY sessions.updated DESC, sessions.id, words.rowid DESC"""

_SIGNS = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT)
_LOOK_THROUGH = "INSERT INTO words (words) VALUES ('integrity-check')"
"""It writes nothing: https://sqlite.org/fts5.html#the_integrity_check_command."""
_WRONG = f"""SELECT count(*) FROM sessions WHERE (number IS NOT NULL AND NOT ({IS_NUMBERED}))
    OR typeof(indexed) <> 'integer' OR indexed < 0"""


@dataclass(slots=True)
class _Room:
    """What one transaction still takes."""

    rows: int = MOST_ROWS
    chars: int = MOST_CHARS

    @property
    def is_full(self) -> bool:
        return self.rows <= 0 or self.chars <= 0

    def take(self, body: str | bytes) -> None:
        self.rows -= 1
        self.chars -= len(body)


def to_index(scope: SessionScope, file: SQLiteFile) -> Sequence[str]:
    """The sessions concerned that the index does not know wholly."""
    return [name for (name,) in file.rows(_TO_INDEX, _values(scope))]


def catch_up(names: Sequence[str], file: SQLiteFile) -> Sequence[str]:
    """Take the next records of these sessions into the index; returns the sessions that have more."""
    room = _Room()
    with file.transaction() as connection:
        for at, name in enumerate(names):
            if not _index(connection, name, room, file):
                return names[at:]
    return ()


def _index(connection: sqlite3.Connection, name: str, room: _Room, file: SQLiteFile) -> bool:
    """Take the next records of a session in, while there is room; whether it is wholly in the index now."""
    line = connection.execute(_NEXT, (name,)).fetchone()
    end, length = line or (0, 0)
    words: list[tuple[int, str]] = []
    for row in connection.execute(_NEW, (name, end, length)):
        if room.is_full:
            break
        end, body, _ = row
        room.take(body)
        record = if_whole(partial(record_of, file.path, name, *row))
        if record and (said := words_in(record)):
            words.append((end, " ".join(said)))
    else:
        end = end if room.is_full else length
    if line:
        (number,) = connection.execute(_CATCH_UP, (end, name)).fetchone()
        first, _ = word_rows(number)
        rows = [(first + seq, text) for seq, text in words]
        connection.executemany("INSERT INTO words (rowid, text) VALUES (?, ?)", rows)
    return bool(end == length)


def search(query: Query, scope: SessionScope, most: int, file: SQLiteFile) -> tuple[Found, ...]:
    """The records that hold what is looked for; see `FindsWords`."""

    def looked_up(connection: sqlite3.Connection) -> tuple[Found, ...]:
        found = _candidates(connection, query, scope)
        places = ((name, row_id & ((1 << SEQ_BITS) - 1)) for name, row_id in found)
        rows = ((name, row) for name, seq in places for row in connection.execute(_RECORD, (name, seq)))
        records = ((name, if_whole(partial(record_of, file.path, name, *row))) for name, row in rows)
        return tuple(islice(found_among(records, query), most))

    return file.read(looked_up, tuple[Found, ...]())


def _values(scope: SessionScope) -> dict[str, str | bytes | None]:
    """The scope as the statements take it."""
    return {"id": scope.session_id, "folder": to_column(scope.folder), "owner": to_column(scope.owner)}


def _candidates(
    connection: sqlite3.Connection, query: Query, scope: SessionScope
) -> Iterable[tuple[str, int]]:
    """The ids of the sessions and of the rows that the index finds."""
    asked = " ".join(f'"{" ".join(phrase[:MOST_ASKED])}"' for phrase in query.phrases[:MOST_ASKED])
    values = _values(scope) | {"asked": asked}
    if scope.session_id is None:
        return connection.execute(_IN_ALL, values)
    line = connection.execute(_NUMBER, _values(scope)).fetchone()
    if line is None:
        return ()
    first, last = word_rows(line[0])
    return connection.execute(_IN_SESSION, values | {"first": first, "last": last})


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


def check_index(file: SQLiteFile) -> tuple[str, ...]:
    """A line where the full-text index was damaged; it is begun anew then, as nothing stands in it alone."""
    try:
        was_damaged = mended(file)
    except StoreError as fault:
        if not is_read_only(fault):
            raise
        return ()
    anew = "the full-text index was damaged: the next search makes it anew, no record is lost"
    return (f"{file.path}: {anew}",) if was_damaged else ()


def _is_whole(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute(_LOOK_THROUGH)
    except sqlite3.Error as error:
        if code_of(error) in _SIGNS:
            return False
        raise
    return bool(connection.execute(_WRONG).fetchone() == (0,))


def _begin_anew(connection: sqlite3.Connection) -> None:
    """SQLite drops no table whose module cannot open it: so the entry goes first, then what it stands for."""
    with writable_schema(connection):
        connection.execute("DELETE FROM sqlite_schema WHERE name = 'words'")
    for table in WORDS_TABLES:
        connection.execute(f"DROP TABLE IF EXISTS {table}")
    connection.execute(MAKE_WORDS)
    connection.execute("UPDATE sessions SET indexed = 0, number = NULL")
