"""The whole check of a SQLite file: its form, each record, and the list held against the logs."""

from functools import partial

from agentloop.errors import StoreError
from agentloop.stores.checking import LogCheck
from agentloop.stores.sqlite.columns import record_of
from agentloop.stores.sqlite.file import SQLiteFile
from agentloop.stores.sqlite.sessions import line


def check_form(file: SQLiteFile) -> tuple[str, ...]:
    """What is wrong with the pages, tables and indexes of the file, one line for each finding."""
    rows = file.rows("PRAGMA integrity_check")
    return tuple(f"{file.path}: {each}" for (text,) in rows if text != "ok" for each in text.splitlines())


def names(file: SQLiteFile) -> list[str]:
    """The ids of all sessions of which there is a line in the list, a log, or both."""
    rows = file.rows("SELECT id FROM sessions UNION SELECT DISTINCT session_id FROM events")
    return [name for (name,) in rows]


def check_session(session_id: str, file: SQLiteFile) -> tuple[str, ...]:
    """What is wrong with a session: records that do not decode or are missing, a line that says otherwise."""
    log = LogCheck(str(file.path), session_id, partial(record_of, file.path, session_id))
    with file.transaction("BEGIN") as connection:
        try:
            listed = line(connection, session_id, file)
        except StoreError as error:
            return (str(error),)
        rows = connection.execute(
            "SELECT seq, body, sum FROM events WHERE session_id = ? ORDER BY seq", (session_id,)
        )
        return (*log.faults_of(rows), *log.faults_of_line(listed))
