"""What a SQLite file goes through when it is opened: whose it is, whether it is in order, and its tables.

What is cheap is checked whenever a file is opened: whose it is and of which version, that its tables are
there, and the form of its pages by `PRAGMA quick_check`: of all of them up to 16 MB, in a larger file of
those that list the sessions. Before a larger one is first written to, all of its pages are, up to 1 GB. The
rest is checked as it is read, page by page and record by record. A write-ahead log that was left behind is no
sign of damage: its frames have sums, and only whole transactions are taken over.
"""

import sqlite3
from pathlib import Path

from agentloop.errors import DamagedError, StoreError
from agentloop.stores.sqlite.faults import DAMAGED, code_of, is_of_index, locked
from agentloop.stores.sqlite.schema import APPLICATION_ID, MIGRATIONS, SCHEMA_VERSION, TABLES

MOST_CHECKED_BYTES = 16 * 1024 * 1024
"""A file up to this size is checked whole when it is opened: 0.4 ms a MB, with short records up to 2."""
MOST_CHECKED_TO_WRITE_BYTES = 1024 * 1024 * 1024
"""A file up to this size is checked whole before a store first writes to it: half a second to two, and what
the disc takes to read it.
"""

NO_LOG_CAN_BE_MADE = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)
"""What SQLite refuses a file with, though it could be read, whose log cannot stand beside it."""


def connected(database: str, busy_seconds: float) -> sqlite3.Connection:
    """A connection to a path or a `file:` URI, usable from any thread; nothing was read yet."""
    connection = sqlite3.connect(
        database, timeout=busy_seconds, isolation_level=None, check_same_thread=False, uri=True
    )
    connection.text_factory = _text
    return connection


def looked_over(connection: sqlite3.Connection, path: Path) -> int:
    """The version of the tables in the file, 0 where nothing stands in it yet.

    Raises:
        StoreError: it is another program's or a newer version's, or damaged.
    """
    connection.execute("BEGIN")
    version = _version(connection, path)
    if version:
        _look_over(connection, path, version)
    connection.execute("COMMIT")
    return version


def look_through(connection: sqlite3.Connection, path: Path) -> None:
    """Check the form of all pages, before the first write to a file that was too large for that until now.

    Raises:
        StoreError: it is damaged; nothing was changed.
    """
    if MOST_CHECKED_BYTES < path.stat().st_size <= MOST_CHECKED_TO_WRITE_BYTES:
        _check_pages(connection, path, "1")


def take_over_log(connection: sqlite3.Connection) -> None:
    """Bring what another process left in the log into the database, as far as nobody reads it."""
    _checkpoint(connection, "PASSIVE")


def log_begun_anew(connection: sqlite3.Connection, path: Path, busy_seconds: float) -> bool:
    """Bring all that the log holds into the database; False where nothing can be written, nor be appended.

    After a failed sync the system may take pages of the log for written that are not. What is appended
    behind them, though synced itself, would go with them in a power cut: SQLite reads a log up to the
    first frame that is broken. So where that sync was ours, nothing goes on before the log is begun anew.

    Raises:
        StoreError: somebody else reads or writes it.
    """
    is_busy = _checkpoint(connection, "TRUNCATE")
    if is_busy:
        raise StoreError(f"{path}: {locked(busy_seconds)}")
    return is_busy is not None


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """All steps in one transaction: a fault on the way leaves the file as it was.

    Raises:
        StoreError: it is damaged, or cannot be written.
    """
    look_through(connection, path)
    try:
        _go_all_steps(connection, path)
    except sqlite3.Error as error:
        if code_of(error) != sqlite3.SQLITE_READONLY:
            raise
        raise StoreError(
            f"{path}: an older agentloop made this database, and it cannot be brought up to date where it is "
            "read-only: copy it to a folder that can be written"
        ) from error


def _go_all_steps(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("BEGIN IMMEDIATE")
    # Another process may have gone them meanwhile.
    for step in MIGRATIONS[_version(connection, path) :]:
        for statement in step:
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")


def _checkpoint(connection: sqlite3.Connection, mode: str) -> bool | None:
    """Whether others kept it from being done to the end; None where nothing can be written."""
    try:
        (busy, _, _) = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
    except sqlite3.OperationalError as error:
        if code_of(error) != sqlite3.SQLITE_READONLY:
            raise
        return None
    return bool(busy)


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """The version of the tables in the file, read in one transaction; refuses what is not ours.

    0 where nothing stands in it yet.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if not (version or application or tables):
        return 0
    if application != APPLICATION_ID:
        raise StoreError(f"{path}: this database belongs to another program: choose another path")
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{path}: a newer agentloop wrote this database (version {version}, "
            f"this one knows {SCHEMA_VERSION}): update agentloop"
        )
    if version < 1:
        raise DamagedError(f"{path}: {DAMAGED}")
    return int(version)


def _look_over(connection: sqlite3.Connection, path: Path, version: int) -> None:
    """What is cheap to check of a file that was made before, in the transaction that read its version."""
    there = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    small = path.stat().st_size <= MOST_CHECKED_BYTES
    if not TABLES[version] <= there:
        raise DamagedError(f"{path}: {DAMAGED}")
    _check_pages(connection, path, "1" if small else "sessions")


def _check_pages(connection: sqlite3.Connection, path: Path, of: str) -> None:
    found = [text for (text,) in connection.execute(f"PRAGMA quick_check({of})")]
    if not all(text == "ok" or is_of_index(text) for text in found):
        raise DamagedError(f"{path}: {DAMAGED}")


def _text(data: bytes) -> str | bytes:
    """What stands in a column of text; as it is where that is no UTF-8, so that damage hides nothing else."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data
