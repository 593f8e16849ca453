"""One SQLite file: opened late, checked before it is touched, each fault one clear line."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from agentloop.errors import StoreError
from agentloop.ondisc import make_private_folder, refused

SCHEMA_VERSION = 1
APPLICATION_ID = 0x61676C70
"""`aglp` in the file's header: a database without it was made by another program."""

_SCHEMA = (
    """CREATE TABLE events (
        session_id TEXT NOT NULL, seq INTEGER NOT NULL, body TEXT NOT NULL,
        PRIMARY KEY (session_id, seq)) WITHOUT ROWID""",
    """CREATE TABLE sessions (
        id TEXT PRIMARY KEY NOT NULL, title, folder,
        created REAL NOT NULL, updated REAL NOT NULL, length INTEGER NOT NULL) WITHOUT ROWID""",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)
_ADVICE = {
    sqlite3.SQLITE_FULL: "the disc is full: free some space and try again; what was stored is safe",
    sqlite3.SQLITE_READONLY: "the database is read-only: change its rights or choose another store",
    sqlite3.SQLITE_NOTADB: "this is no SQLite database: choose another path; the file was not touched",
    sqlite3.SQLITE_CORRUPT: "the database is damaged: restore a copy, or try `sqlite3 FILE .recover`",
    sqlite3.SQLITE_CANTOPEN: "the database cannot be opened: check the rights of the file and its folder",
    sqlite3.SQLITE_PERM: "no permission: change the rights or choose another store",
    sqlite3.SQLITE_IOERR: "the disc failed to read or write: check it and try again",
    sqlite3.SQLITE_TOOBIG: "a record is larger than SQLite takes: make it smaller",
}
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class SQLiteFile:
    """A database file and its one connection; all calls come from one thread.

    After any fault the connection is dropped, which takes back what was not committed; the next
    transaction opens the file again.
    """

    def __init__(self, path: Path, *, busy_seconds: float) -> None:
        self.path = path
        self._busy_seconds = busy_seconds
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None

    def exists(self) -> bool:
        """Whether anything stands at the path; a file that is in use counts even when it was moved."""
        return self._connection is not None or os.path.lexists(self.path)

    @contextmanager
    def transaction(self, begin: str = "BEGIN IMMEDIATE") -> Iterator[sqlite3.Connection]:
        """Commits at the end of the block; writes nothing where the block or the commit fails.

        Raises:
            StoreError: the file cannot be read or written; the text names it and says what to do.
        """
        try:
            connection = self._opened()
            connection.execute(begin)
            yield connection
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self.close()
            raise self._fault(error) from error
        except OSError as error:
            self.close()
            raise refused(self.path, error) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Drop the connection; harmless when there is none."""
        if self._connection:
            with suppress(sqlite3.Error):
                self._connection.close()
        self._connection = self._identity = None

    def _opened(self) -> sqlite3.Connection:
        if self._connection:
            if _identity(self.path) == self._identity:
                return self._connection
            raise StoreError(f"{self.path}: the database was moved or replaced while in use: put it back")
        self._make()
        self._connection = sqlite3.connect(self.path, timeout=self._busy_seconds, isolation_level=None)
        self._identity = _identity(self.path)
        self._prepare(self._connection)
        return self._connection

    def _make(self) -> None:
        """The file comes first and is its owner's alone: SQLite gives its companions the same rights."""
        make_private_folder(self.path.parent)
        if not os.path.lexists(self.path):
            with suppress(FileExistsError):
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        if self.path.exists() and not self.path.is_file():
            raise StoreError(f"{self.path}: this is no file: name the database file to use")

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN")
        is_new = self._is_new(connection)
        connection.execute("COMMIT")
        # Busy here means that another process is just switching; the mode is the file's, not ours.
        with suppress(sqlite3.OperationalError):
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        if is_new:
            self._create(connection)

    def _create(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        # Another process may have made the tables meanwhile.
        if self._is_new(connection):
            for statement in _SCHEMA:
                connection.execute(statement)
        connection.execute("COMMIT")

    def _is_new(self, connection: sqlite3.Connection) -> bool:
        """Whether nothing stands in the file yet, read in one transaction; refuses what is not ours."""
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if not (version or application or tables):
            return True
        if application != APPLICATION_ID:
            raise StoreError(f"{self.path}: this database belongs to another program: choose another path")
        if version > SCHEMA_VERSION:
            raise StoreError(
                f"{self.path}: a newer agentloop wrote this database (version {version}, "
                f"this one knows {SCHEMA_VERSION}): update agentloop"
            )
        return False

    def _fault(self, error: sqlite3.Error) -> StoreError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        advice = _ADVICE.get(
            code, f"{error}: check the database with `sqlite3 FILE 'PRAGMA integrity_check'`"
        )
        if code in _LOCKED:
            advice = (
                f"the database is locked by another process, for over {self._busy_seconds:g} seconds: "
                "end that process or try again"
            )
        return StoreError(f"{self.path}: {advice}")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
