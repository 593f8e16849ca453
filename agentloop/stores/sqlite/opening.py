"""What a SQLite file goes through when it is opened: whose it is, whether it is in order, and its tables.

What is cheap is checked whenever a file is opened: whose it is and of which version, that its tables are
there, and the form of its pages by `PRAGMA quick_check`: of all of them up to 16 MB, in a larger file of
those that list the sessions. The rest is checked as it is read, page by page and record by record. A
write-ahead log that was left behind is no sign of damage: its frames have sums, and only whole transactions
are taken over.
"""

import sqlite3
from pathlib import Path

from agentloop.errors import StoreError
from agentloop.stores.sqlite.faults import DAMAGED, is_of_index
from agentloop.stores.sqlite.schema import APPLICATION_ID, MIGRATIONS, SCHEMA_VERSION, TABLES

MOST_CHECKED_BYTES = 16 * 1024 * 1024
"""A file up to this size is checked whole when it is opened: about 1 ms for each megabyte."""


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


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """All steps in one transaction: a fault on the way leaves the file as it was."""
    connection.execute("BEGIN IMMEDIATE")
    # Another process may have gone them meanwhile.
    for step in MIGRATIONS[_version(connection, path) :]:
        for statement in step:
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")


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
        raise StoreError(f"{path}: {DAMAGED}")
    return int(version)


def _look_over(connection: sqlite3.Connection, path: Path, version: int) -> None:
    """What is cheap to check of a file that was made before, in the transaction that read its version."""
    there = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    small = path.stat().st_size <= MOST_CHECKED_BYTES
    of = "1" if small else "sessions"
    if TABLES[version] <= there:
        found = [text for (text,) in connection.execute(f"PRAGMA quick_check({of})")]
        if all(text == "ok" or is_of_index(text) for text in found):
            return
    raise StoreError(f"{path}: {DAMAGED}")
