"""Full-text search in a SQLite file by FTS5 (https://sqlite.org/fts5.html): its index filled and asked.

An append does not touch the index. A search first brings the sessions that it asks about up to date
(`to_index`, `catch_up`), some records in each transaction, so that no writer waits long. What the
index finds is then read from the log and held against the query (`search`).
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from agentloop.stores.base import Found, SessionScope
from agentloop.stores.lines import if_whole
from agentloop.stores.sqlite.file import SQLiteFile
from agentloop.stores.sqlite.schema import record_of, to_column
from agentloop.stores.words import Query, found_among, words_in

MOST_ROWS = 500
MOST_CHARS = 500_000
"""So much is taken into the index in one transaction, but for the last record, which is taken whole."""

MOST_ASKED = 50
"""So many phrases, and words of a phrase, the index is asked for; the whole query is held against the log."""

_CATCH_UP = """UPDATE sessions SET indexed = ?, number = coalesce(number,
    (SELECT coalesce(max(number), 0) + 1 FROM sessions)) WHERE id = ?"""
_ADD = "INSERT OR REPLACE INTO words (rowid, text) SELECT (number << 32) + ?, ? FROM sessions WHERE id = ?"
"""What was there already is written again: then the index had forgotten how far it was."""
_SCOPE = """(:id IS NULL OR sessions.id = :id) AND (:folder IS NULL OR sessions.folder = :folder)
    AND (:owner IS NULL OR sessions.owner = :owner)"""
_TO_INDEX = f"SELECT id FROM sessions WHERE indexed < length AND {_SCOPE}"
_NEXT = "SELECT indexed, length FROM sessions WHERE id = ?"
_NEW = "SELECT seq, body, sum FROM events WHERE session_id = ? AND seq > ? AND seq <= ? ORDER BY seq"
_RECORD = "SELECT seq, body, sum FROM events WHERE session_id = ? AND seq = ?"
_IN_SESSION = f"""SELECT sessions.id, words.rowid & 0xFFFFFFFF FROM sessions CROSS JOIN words
    ON words.rowid BETWEEN sessions.number << 32 AND (sessions.number + 1 << 32) - 1
    WHERE words MATCH :asked AND sessions.id = :id AND {_SCOPE} ORDER BY words.rowid DESC"""
_IN_ALL = f"""SELECT sessions.id, words.rowid & 0xFFFFFFFF FROM words
    CROSS JOIN sessions ON sessions.number = words.rowid >> 32
    WHERE words MATCH :asked AND {_SCOPE}
    ORDER BY sessions.updated DESC, sessions.id, words.rowid DESC"""


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
    connection.execute(_CATCH_UP, (end, name))
    connection.executemany(_ADD, [(seq, text, name) for seq, text in words])
    return bool(end == length)


def search(query: Query, scope: SessionScope, most: int, file: SQLiteFile) -> tuple[Found, ...]:
    """The records that hold what is looked for; see `FindsWords`."""
    asked = " ".join(f'"{" ".join(phrase[:MOST_ASKED])}"' for phrase in query.phrases[:MOST_ASKED])
    values = _values(scope) | {"asked": asked}

    def looked_up(connection: sqlite3.Connection) -> tuple[Found, ...]:
        found = connection.execute(_IN_SESSION if scope.session_id else _IN_ALL, values)
        rows = ((name, row) for name, seq in found for row in connection.execute(_RECORD, (name, seq)))
        records = ((name, if_whole(partial(record_of, file.path, name, *row))) for name, row in rows)
        return tuple(islice(found_among(records, query), most))

    return file.read(looked_up, tuple[Found, ...]())


def _values(scope: SessionScope) -> dict[str, str | bytes | None]:
    """The scope as the statements take it."""
    return {"id": scope.session_id, "folder": to_column(scope.folder), "owner": to_column(scope.owner)}
