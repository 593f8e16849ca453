"""Searching the logs in a SQLite file by FTS5 (https://sqlite.org/fts5.html).

An append does not touch the full-text index. A search first brings the sessions that it asks about up to
date, some records in each transaction, so that no writer waits long. What the index finds is then read from
the log and held against the query.
"""

import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from agentloop.errors import DamagedError
from agentloop.stores.base import Found, SessionScope, clamped
from agentloop.stores.sqlite.file import SQLiteFile
from agentloop.stores.sqlite.index import IS_NUMBERED
from agentloop.stores.sqlite.schema import record_of, to_column
from agentloop.stores.sqlite.tables import SEQ_BITS, word_rows
from agentloop.stores.words import Query, found_in, is_wordless, searchable, words_of

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
_BEHIND = f"SELECT id, length FROM sessions WHERE indexed < length AND {_COUNTED} AND {_SCOPE}"
_NEXT = f"SELECT indexed, length FROM sessions WHERE id = ? AND {_COUNTED}"
_NUMBER = f"SELECT number FROM sessions WHERE id = :id AND {IS_NUMBERED} AND {_SCOPE}"
_IN_SCOPE = f"SELECT id FROM sessions WHERE {_SCOPE} ORDER BY updated DESC, id"
_NEWEST_FIRST = "SELECT seq, body, sum FROM events WHERE session_id = ? ORDER BY seq DESC"
_IN_SESSION = """SELECT sessions.id, words.rowid FROM sessions CROSS JOIN words
    WHERE words MATCH :asked AND sessions.id = :id AND words.rowid BETWEEN :first AND :last
    ORDER BY words.rowid DESC"""
_IN_ALL = f"""SELECT sessions.id, words.rowid FROM words
    CROSS JOIN sessions ON sessions.number = words.rowid >> {SEQ_BITS}
    WHERE words MATCH :asked AND {_SCOPE}
    ORDER BY sessions.updated DESC, sessions.id, words.rowid DESC"""


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


def behind(scope: SessionScope, file: SQLiteFile) -> dict[str, int]:
    """The sessions concerned that the index does not know wholly, and their lengths."""
    return dict(file.rows(_BEHIND, _values(scope)))


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
        rows = _candidates(connection, query, scope)
        found = (_found(connection, name, row, query, file) for name, row in rows)
        return tuple(islice((each for each in found if each), clamped(most)))

    return file.read(looked_up, tuple[Found, ...]())


def search_logs(query: Query, scope: SessionScope, most: int, file: SQLiteFile) -> tuple[Found, ...]:
    """The same from the logs alone, as long as they are: where the index cannot be brought up to date."""

    def read(connection: sqlite3.Connection) -> tuple[Found, ...]:
        names = connection.execute(_IN_SCOPE, _values(scope)).fetchall()
        rows = ((name, row) for (name,) in names for row in connection.execute(_NEWEST_FIRST, (name,)))
        found = (_held(name, row, query, file) for name, row in rows)
        return tuple(islice((each for each in found if each), clamped(most)))

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


def _found(
    connection: sqlite3.Connection, session_id: str, row_id: int, query: Query, file: SQLiteFile
) -> Found | None:
    seq = row_id & ((1 << SEQ_BITS) - 1)
    row = connection.execute(
        "SELECT seq, body, sum FROM events WHERE session_id = ? AND seq = ?", (session_id, seq)
    ).fetchone()
    return _held(session_id, row, query, file) if row else None


def _held(session_id: str, row: Any, query: Query, file: SQLiteFile) -> Found | None:
    """The record of this row, if it holds what is looked for."""
    seq, body, total = row
    if isinstance(body, str) and is_wordless(body):
        return None
    try:
        return found_in(session_id, record_of(file.path, session_id, seq, body, total), query)
    except DamagedError:
        return None  # it is damaged: reading the log tells of it


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
    for seq, body, total in rows:
        if room.is_full:
            return
        room.take(body)
        news.end, news.last = seq, (seq, body)
        if words := _words(news.session_id, seq, body, total, file):
            news.words.append((seq, words))
    news.end, news.is_whole = length, True


def _words(session_id: str, seq: int, body: Any, total: int | None, file: SQLiteFile) -> str:
    """The words of a record; a damaged one has none here, and is told of by who reads it."""
    if isinstance(body, str) and is_wordless(body):
        return ""
    try:
        record = record_of(file.path, session_id, seq, body, total)
    except DamagedError:
        return ""
    return " ".join(words_of(searchable(record.event)))


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
