"""The whole check of a SQLite file: its form, each record, and the list held against the logs."""

import sqlite3
from collections.abc import Iterator

from agentloop.errors import StoreError
from agentloop.events import Event
from agentloop.stores.base import SessionInfo
from agentloop.stores.index import described
from agentloop.stores.sqlite.columns import INFO, info_of, record_of
from agentloop.stores.sqlite.file import SQLiteFile


def check_form(file: SQLiteFile) -> tuple[str, ...]:
    """What is wrong with the pages, tables and indexes of the file, one line for each finding."""
    if not file.exists():
        return ()
    with file.transaction("BEGIN") as connection:
        texts = [text for (text,) in connection.execute("PRAGMA integrity_check")]
    if texts == ["ok"]:
        return ()
    return tuple(f"{file.path}: {line}" for text in texts for line in text.splitlines())


def names(file: SQLiteFile) -> list[str]:
    """The ids of all sessions of which there is a line in the list, a log, or both."""
    if not file.exists():
        return []
    with file.transaction("BEGIN") as connection:
        rows = connection.execute("SELECT id FROM sessions UNION SELECT DISTINCT session_id FROM events")
        return [name for (name,) in rows]


def check_session(session_id: str, file: SQLiteFile) -> tuple[str, ...]:
    """What is wrong with a session: records that do not decode or are missing, a line that says otherwise."""
    with file.transaction("BEGIN") as connection:
        row = connection.execute(f"SELECT {INFO} FROM sessions WHERE id = ?", (session_id,)).fetchone()
        try:
            listed = info_of(row, file.path) if row else None
        except StoreError as error:
            return (str(error),)
        log = _Log(session_id, file)
        findings = tuple(log.findings(connection))
    if not findings and listed != log.info:
        findings = (f"{file.path}: session {session_id!r}: its line in the list says what its log does not",)
    return findings


class _Log:
    """A log as it is read through: the line that follows from it, unless something is found."""

    def __init__(self, session_id: str, file: SQLiteFile) -> None:
        self._session_id = session_id
        self._file = file
        self.info: SessionInfo | None = None

    def findings(self, connection: sqlite3.Connection) -> Iterator[str]:
        last = 0
        rows = connection.execute(
            "SELECT seq, body, sum FROM events WHERE session_id = ? ORDER BY seq", (self._session_id,)
        )
        for seq, body, total in rows:
            if seq != last + 1:
                yield f"{self._file.path}: session {self._session_id!r}: records are missing before {seq}"
            last = seq
            try:
                self._add(record_of(self._file.path, self._session_id, seq, body, total).event)
            except StoreError as error:
                yield str(error)

    def _add(self, event: Event) -> None:
        self.info = described(self.info, self._session_id, [event])
