"""The whole check of a SQLite file: its form, each record, and the list held against the logs."""

import sqlite3
from contextlib import closing
from functools import cache, partial
from itertools import chain

from agentloop._plumbing.checks import shown
from agentloop.errors import DamagedError, StoreError
from agentloop.stores.checking import LogCheck
from agentloop.stores.sqlite import index
from agentloop.stores.sqlite.columns import record_of
from agentloop.stores.sqlite.faults import is_of_index, is_read_only
from agentloop.stores.sqlite.file import SQLiteFile
from agentloop.stores.sqlite.schema import MIGRATIONS
from agentloop.stores.sqlite.sessions import LOG, written_line

_COLUMNS = """SELECT made.name, of.name FROM sqlite_schema AS made, pragma_table_xinfo(made.name) AS of
    WHERE made.type = 'table' AND made.name IN ('events', 'sessions', 'checkpoints', 'leases')"""


def check_form(file: SQLiteFile) -> tuple[str, ...]:
    """What is wrong with the pages, tables and indexes of the file, one line for each finding."""
    rows = file.rows("PRAGMA integrity_check")
    found = (each for (text,) in rows if text != "ok" for each in text.splitlines())
    faults = [each for each in found if not is_of_index(each)]
    if file.exists():
        lacking = _as_made() - set(file.rows(_COLUMNS))
        faults += [f"the table {table!r} has no column {column!r}" for table, column in sorted(lacking)]
    return tuple(f"{file.path}: {fault}" for fault in faults)


@cache
def _as_made() -> frozenset[tuple[str, str]]:
    """The tables and columns of a file that is just made: no sum covers their names in the file."""
    with closing(sqlite3.connect(":memory:")) as made:
        for statement in chain.from_iterable(MIGRATIONS):
            made.execute(statement)
        return frozenset(made.execute(_COLUMNS))


def check_index(file: SQLiteFile) -> tuple[str, ...]:
    """A line where the full-text index was damaged; it is begun anew then, as nothing stands in it alone."""
    try:
        was_damaged = index.mended(file)
    except StoreError as fault:
        if not is_read_only(fault):
            raise
        return ()
    anew = "the full-text index was damaged: the next search makes it anew, no record is lost"
    return (f"{file.path}: {anew}",) if was_damaged else ()


def names(file: SQLiteFile) -> list[object]:
    """The ids of all sessions of which there is a line in the list, a log, or both."""
    rows = file.rows("SELECT id FROM sessions UNION SELECT DISTINCT session_id FROM events")
    return [name for (name,) in rows]


def check_session(session_id: object, file: SQLiteFile) -> tuple[str, ...]:
    """What is wrong with a session: records that do not decode or are missing, a line that says otherwise."""
    if not isinstance(session_id, str):
        return (f"{file.path}: a session's id is damaged: {shown(session_id)}: restore a copy",)
    log = LogCheck(str(file.path), session_id, partial(record_of, file.path, session_id))
    with file.transaction("BEGIN") as connection:
        try:
            listed = written_line(connection, session_id, file)
        except DamagedError as error:
            return (str(error),)
        rows = connection.execute(LOG, (session_id,))
        return (*log.faults_of(rows), *log.faults_of_line(listed))
