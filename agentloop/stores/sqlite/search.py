"""Full-text search in a SQLite file by FTS5 (https://sqlite.org/fts5.html): its index filled, asked, mended.

An append does not touch the index. A search first brings the sessions that it asks about up to date
(`sessions_to_index`, `catch_up`), some records in each transaction, so that no writer waits long. What the
index finds is then read from the log and held against the query (`search`).

The index can be lost without losing anything. What is damaged in it would keep searches, deletions and sweeps
from being done for good: so where one fails, the index is looked through, and where that is the cause it is
begun anew (`mended_for`), and searches fill it again.
"""

import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

from agentloop.errors import StoreError
from agentloop.stores.base import Found, SessionScope
from agentloop.stores.sqlite.file import SQLiteFile, code_of, is_read_only, writable_schema
from agentloop.stores.sqlite.schema import (
    IS_NUMBERED,
    MAKE_WORDS,
    SEQ_BITS,
    WORDS_TABLES,
    as_made,
    record_of,
    to_column,
    word_rows,
)
from agentloop.stores.words import Query, found_among, worded_record, words_in

MOST_ROWS = 500
MOST_CHARS = 500_000
"""So much is taken into the index in one transaction, but for the last record, which is taken whole."""

MOST_ASKED = 50
"""So many phrases, and words of a phrase, the index is asked for; the whole query is held against the log."""

_CATCH_UP = f"""UPDATE sessions SET indexed = ?, number = iif({IS_NUMBERED}, number,
    (SELECT coalesce(max(number), 0) + 1 FROM sessions WHERE {IS_NUMBERED}))
    WHERE id = ? AND indexed = ? RETURNING number"""
_STANDS = """SELECT 1 FROM events
    WHERE session_id = ? AND seq = ? AND CAST(body AS BLOB) = CAST(? AS BLOB)"""
_SCOPE = """(:id IS NULL OR sessions.id = :id) AND (:folder IS NULL OR sessions.folder = :folder)
    AND (:owner IS NULL OR sessions.owner = :owner)"""
_COUNTED = "typeof(length) = 'integer' AND typeof(indexed) = 'integer'"
_TO_INDEX = f"SELECT id, length FROM sessions WHERE indexed < length AND {_COUNTED} AND {_SCOPE}"
_NEXT = f"SELECT indexed, length FROM sessions WHERE id = ? AND {_COUNTED}"
_NUMBER = f"SELECT number FROM sessions WHERE id = :id AND {IS_NUMBERED} AND {_SCOPE}"
_IN_SCOPE = f"SELECT id FROM sessions WHERE {_SCOPE} ORDER BY updated DESC, id"
_RECORD = "SELECT seq, body, sum FROM events WHERE session_id = ? AND seq = ?"
_NEWEST_FIRST = "SELECT seq, body, sum FROM events WHERE session_id = ? ORDER BY seq DESC"
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
_ENTRIES = f"SELECT name, type, sql FROM sqlite_schema WHERE name IN {('words', *WORDS_TABLES)}"


@dataclass(slots=True, kw_only=True)
class _News:
    """What the index is to learn of a session: the words of its records behind `indexed`, up to `end`.

    `last` is the position and the text of the newest of them, by which it is known that the session was not
    deleted and begun again before its words are written.
    """

    session_id: str
    indexed: int
    end: int = 0
    last: tuple[int, Any] | None = None
    is_whole: bool = False
    words: list[tuple[int, str]] = field(default_factory=list)


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


def sessions_to_index(scope: SessionScope, file: SQLiteFile) -> dict[str, int]:
    """The sessions concerned that the index does not know wholly, and their lengths."""
    return dict(file.rows(_TO_INDEX, _values(scope)))


def catch_up(lengths: Mapping[str, int], file: SQLiteFile) -> dict[str, int]:
    """Take the next records of these sessions into the index; returns the sessions that have more."""
    with file.transaction("BEGIN") as connection:
        news = _news(connection, lengths, file)
    with file.transaction() as connection:
        learnt = {each.session_id for each in news if _learnt(connection, each)}
    done = {each.session_id for each in news if each.is_whole} & learnt
    return {name: length for name, length in lengths.items() if name not in done}


def search(query: Query, scope: SessionScope, most: int, file: SQLiteFile) -> tuple[Found, ...]:
    """The records that hold what is looked for; see `FindsWords`."""

    def looked_up(connection: sqlite3.Connection) -> tuple[Found, ...]:
        found = _candidates(connection, query, scope)
        places = ((name, row_id & ((1 << SEQ_BITS) - 1)) for name, row_id in found)
        rows = ((name, row) for name, seq in places for row in connection.execute(_RECORD, (name, seq)))
        return _held(rows, query, most, file)

    return file.read(looked_up, tuple[Found, ...]())


def search_logs(query: Query, scope: SessionScope, most: int, file: SQLiteFile) -> tuple[Found, ...]:
    """The same from the logs alone, as long as they are: where the index cannot be brought up to date."""

    def read(connection: sqlite3.Connection) -> tuple[Found, ...]:
        names = connection.execute(_IN_SCOPE, _values(scope)).fetchall()
        rows = ((name, row) for (name,) in names for row in connection.execute(_NEWEST_FIRST, (name,)))
        return _held(rows, query, most, file)

    return file.read(read, tuple[Found, ...]())


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


def _held(rows: Iterable[tuple[str, Any]], query: Query, most: int, file: SQLiteFile) -> tuple[Found, ...]:
    """The records of these rows, each with its session's id, that hold what is looked for."""
    records = ((name, worded_record(row[1], partial(record_of, file.path, name, *row))) for name, row in rows)
    return tuple(islice(found_among(records, query), most))


def _news(connection: sqlite3.Connection, lengths: Mapping[str, int], file: SQLiteFile) -> list[_News]:
    """The next records of the first of these sessions, until there are enough for one transaction."""
    news: list[_News] = []
    room = _Room()
    for name, length in lengths.items():
        if room.is_full:
            break
        line = connection.execute(_NEXT, (name,)).fetchone()
        indexed, there = line or (0, 0)
        each = _News(session_id=name, indexed=indexed)
        news.append(each)
        _take(connection, each, min(length, there), room, file)
    return news


def _take(connection: sqlite3.Connection, news: _News, length: int, room: _Room, file: SQLiteFile) -> None:
    rows = connection.execute(
        "SELECT seq, body, sum FROM events WHERE session_id = ? AND seq > ? AND seq <= ? ORDER BY seq",
        (news.session_id, news.indexed, length),
    )
    for row in rows:
        if room.is_full:
            return
        seq, body, _ = row
        room.take(body)
        news.end, news.last = seq, (seq, body)
        record = worded_record(body, partial(record_of, file.path, news.session_id, *row))
        if record and (words := words_in(record)):
            news.words.append((seq, " ".join(words)))
    news.end, news.is_whole = length, True


def _learnt(connection: sqlite3.Connection, news: _News) -> bool:
    """Whether nothing is left to learn of these news: also where the session is gone meanwhile.

    False where another process was faster, or began the session anew; nothing is written then.
    """
    (there,) = connection.execute("SELECT count(*) FROM sessions WHERE id = ?", (news.session_id,)).fetchone()
    if not there:
        return True
    if news.last and not connection.execute(_STANDS, (news.session_id, *news.last)).fetchone():
        return False
    number = connection.execute(_CATCH_UP, (max(news.end, news.indexed), news.session_id, news.indexed))
    row = number.fetchone()
    if row is None:
        return False
    first, _ = word_rows(row[0])
    rows = [(first + seq, words) for seq, words in news.words]
    connection.executemany("INSERT INTO words (rowid, text) VALUES (?, ?)", rows)
    return True


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
    # The look-through passes over what a changed word there means: an `id` that is no row id any more.
    if not as_made(_ENTRIES) <= set(connection.execute(_ENTRIES)):
        return False
    return bool(connection.execute(_WRONG).fetchone() == (0,))


def _begin_anew(connection: sqlite3.Connection) -> None:
    """SQLite drops no table whose module cannot open it: so the entry goes first, then what it stands for."""
    with writable_schema(connection):
        connection.execute("DELETE FROM sqlite_schema WHERE name = 'words'")
    for table in WORDS_TABLES:
        connection.execute(f"DROP TABLE IF EXISTS {table}")
    connection.execute(MAKE_WORDS)
    connection.execute("UPDATE sessions SET indexed = 0, number = NULL")
