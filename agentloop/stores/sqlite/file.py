"""One SQLite file: a connection to it, what is checked when it is opened, where it lies, its faults in words.

What is cheap is checked whenever a file is opened: whose it is and of which version, that its tables are
there, and the form of its pages by `PRAGMA quick_check`: of all of them up to 16 MB, in a larger file of
those that list the sessions. Before a larger one is first written to, all of its pages are, up to 1 GB. The
rest is checked as it is read, page by page and record by record. A write-ahead log that was left behind is no
sign of damage: its frames have sums, and only whole transactions are taken over.

A path may be a symbolic link: SQLite keeps its log and its locks beside the file itself, so that is what is
looked at and made. What is said of it names the path as it was given.
"""

import os
import sqlite3
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from agentloop._plumbing.private_files import make_private_folder, new_private_file, refused
from agentloop.bounds import MOST_RECORD_BYTES
from agentloop.errors import ConflictError, DamagedError, StoreError
from agentloop.stores.sqlite.schema import APPLICATION_ID, MIGRATIONS, SCHEMA_VERSION, TABLES

_WRITE = "BEGIN IMMEDIATE"
_STEPS = 10_000
"""So many steps of a statement are about a millisecond."""
_SCHEMA = f"""
    SELECT type, name, replace(replace(sql, ' ', ''), char(10), '') FROM sqlite_schema
    WHERE type IN ('trigger', 'view') OR (sql IS NOT NULL AND tbl_name IN {tuple(sorted(TABLES[-1]))})"""
"""What may do something of its own. The index of words is not looked at: it hides no record that is read."""
_BESIDE = ("-journal", "-wal", "-shm")
"""What SQLite opens beside a file, and waits for a writer where that is a pipe."""
MOST_CHECKED_BYTES = 16 * 1024 * 1024
"""A file up to this size is checked whole when it is opened: 0.4 ms a MB, with short records up to 2."""
MOST_CHECKED_TO_WRITE_BYTES = 1024 * 1024 * 1024
"""A file up to this size is checked whole before a store first writes to it: half a second to two, and what
the disc takes to read it.
"""
T = TypeVar("T")


class SQLiteFile:
    """A database file and its one connection; calls come from any thread, one at a time.

    After any fault the connection is dropped, which takes back what was not committed; the next
    transaction opens the file again.
    """

    def __init__(self, path: Path, *, busy_seconds: float) -> None:
        self.path = path
        self._busy_seconds = busy_seconds
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        """Which file the connection is to: a path may come to name another."""
        self._looked_through: tuple[int, int] | None = None
        """The file whose pages were all checked, so that it may be written to; it outlives the connection."""
        self._log_is_doubtful = False
        """Whether a sync of ours failed, so that nothing may be appended to the log as it is."""
        self.is_given_up: Callable[[], bool] = lambda: False
        """Whether nobody waits for the work at hand any more: what only reads is broken off then."""
        self._only_reads = False
        self._schema: int | None = None
        """The version of the schema that was last looked at for what is not ours."""

    def exists(self) -> bool:
        """Whether there is anything to read; a file that is in use counts even when it was moved.

        Raises:
            StoreError: it cannot be told, or the database is gone and its log is not.
        """
        return self._connection is not None or _stands(self.path)

    def read(self, work: Callable[[sqlite3.Connection], T], empty: T) -> T:
        """What the work finds in one unchanging state of the file; `empty` where there is nothing to read.

        Raises:
            StoreError: see `transaction`.
        """
        if not self.exists():
            return empty
        with self.transaction("BEGIN") as connection:
            return work(connection)

    def rows(self, statement: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[Any]:
        """All rows of one statement that reads; none where there is nothing to read.

        Raises:
            StoreError: see `transaction`.
        """
        return self.read(lambda connection: list(connection.execute(statement, values)), list[Any]())

    def change(self, work: Callable[[sqlite3.Connection], T], empty: T) -> T:
        """What the work returns, once what it changed is committed; `empty` where there is nothing to change.

        Raises:
            StoreError: see `transaction`.
        """
        if not self.exists():
            return empty
        with self.transaction() as connection:
            return work(connection)

    @contextmanager
    def transaction(self, begin: str = _WRITE) -> Iterator[sqlite3.Connection]:
        """Commits at the end of the block; a block that fails leaves nothing written.

        A commit that fails leaves all of it or nothing: where only the disc's word that it is kept did not
        come, the records stand when the file is next opened.

        Raises:
            StoreError: the file cannot be read or written; the text names it and says what to do.
        """
        connection, self._only_reads = None, begin != _WRITE
        try:
            with self._faults_told():
                connection = self._opened()
                if begin == _WRITE and self._looked_through != self._identity:
                    _look_through(connection, self.path)
                    self._looked_through = self._identity
                connection.execute(begin)
                self._look_at_schema(connection)
                yield connection
                connection.execute("COMMIT")
        except ConflictError:  # an answer, no fault: the connection goes on
            self._roll_back()
            raise
        except GeneratorExit:  # a signal's exception left the block behind, and others may have gone on since
            if self._connection is connection:
                self.close()
            raise
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Drop the connection; harmless when there is none."""
        if self._connection:
            with suppress(sqlite3.Error):
                self._connection.close()
        self._connection = self._identity = self._schema = None

    @contextmanager
    def _faults_told(self) -> Iterator[None]:
        """A fault of the file in the block comes out in words that name it and say what to do."""
        try:
            yield
        except sqlite3.Error as error:
            if code_of(error) == sqlite3.SQLITE_IOERR:  # neither log nor pages are taken on trust from now on
                self._log_is_doubtful, self._looked_through = True, None
            raise _fault(self.path, error, self._busy_seconds) from error
        except UnicodeDecodeError as error:  # SQLite tells of a damaged schema in the words that stand there
            raise DamagedError(f"{self.path}: {DAMAGED}") from error
        except OSError as error:
            raise refused(self.path, error) from error

    def _look_at_schema(self, connection: sqlite3.Connection) -> None:
        """Refuse what is not ours, in the transaction that has begun, where the schema is another since.

        Raises:
            StoreError: there is such a thing; nothing was changed.
        """
        (schema,) = connection.execute("PRAGMA schema_version").fetchone()
        if schema != self._schema:
            _refuse_foreign(connection, self.path)
            self._schema = schema

    def _roll_back(self) -> None:
        try:
            if self._connection:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:  # letting go of the connection takes it back too
            self.close()

    def _opened(self) -> sqlite3.Connection:
        if self._connection and self._connection.in_transaction:
            self.close()  # one that a signal's exception left behind
        if self._connection:
            if _identity(self.path) == self._identity:
                return self._connection
            raise StoreError(f"{self.path}: the database was moved or replaced while in use: put it back")
        return self._connected(_made(self.path))

    def _connected(self, database: Path) -> sqlite3.Connection:
        """A connection to that file, usable from any thread, once the file is in order."""
        connection = sqlite3.connect(
            database, timeout=self._busy_seconds, isolation_level=None, check_same_thread=False
        )
        connection.text_factory = _text
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_RECORD_BYTES)
        connection.set_progress_handler(lambda: self._only_reads and self.is_given_up(), _STEPS)
        self._connection = connection
        self._identity = _identity(self.path)
        self._prepare(connection)
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA cell_size_check = ON")
        connection.execute("PRAGMA trusted_schema = OFF")
        _set_defensive(connection, True)
        version = _looked_over(connection, self.path)
        if self._log_is_doubtful:
            self._log_is_doubtful = not _log_begun_anew(connection, self.path, self._busy_seconds)
        else:
            _checkpoint(connection, "PASSIVE")  # what another process left in the log
        # Busy here means that another process is just switching; the mode is the file's, not ours.
        with suppress(sqlite3.OperationalError):
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        if version < SCHEMA_VERSION:
            _migrate(connection, self.path)


@contextmanager
def writable_schema(connection: sqlite3.Connection) -> Iterator[None]:
    """Within it the schema's own table can be written; whatever happens in it, not after it."""
    _set_defensive(connection, False)
    try:
        connection.execute("PRAGMA writable_schema = ON")
        yield
    finally:
        try:
            connection.execute("PRAGMA writable_schema = RESET")
        finally:
            _set_defensive(connection, True)


def _set_defensive(connection: sqlite3.Connection, on: bool) -> None:
    """Have SQLite refuse what can spoil a file, or not (https://sqlite.org/c3ref/c_dbconfig_defensive.html).

    Python can ask for it from 3.12 on.
    """
    if sys.version_info >= (3, 12):
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, on)


def _looked_over(connection: sqlite3.Connection, path: Path) -> int:
    """The version of the tables in the file, 0 where nothing stands in it yet; what is cheap is checked.

    Raises:
        StoreError: it is another program's or a newer version's, or damaged.
    """
    connection.execute("BEGIN")
    if version := _version(connection, path):
        there = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
        small = path.stat().st_size <= MOST_CHECKED_BYTES
        if not TABLES[version] <= there:
            raise DamagedError(f"{path}: {DAMAGED}")
        _check_pages(connection, path, "1" if small else "sessions")
    connection.execute("COMMIT")
    return version


def _refuse_foreign(connection: sqlite3.Connection, path: Path) -> None:
    """What would do something of its own whenever a record is read or written is none of ours.

    Raises:
        StoreError: there is such a trigger, view or index, or a table made otherwise; nothing was changed.
    """
    for kind, name, made in connection.execute(_SCHEMA):
        if made != _schema_of_ours().get((kind, name)):
            raise StoreError(
                f"{path}: the {kind} {name!r} in this database is not agentloop's, and could change or hide "
                "records: remove it, or use a copy that is in order"
            )


@cache
def _schema_of_ours() -> Mapping[tuple[str, str], str]:
    """How all that the steps make was made, without the space between its words."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for statement in chain.from_iterable(MIGRATIONS):
            connection.execute(statement)
        return {(kind, name): made for kind, name, made in connection.execute(_SCHEMA)}


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


def _look_through(connection: sqlite3.Connection, path: Path) -> None:
    """Check the form of all pages, before the first write to a file that was too large for that until now.

    Raises:
        StoreError: it is damaged; nothing was changed.
    """
    if MOST_CHECKED_BYTES < path.stat().st_size <= MOST_CHECKED_TO_WRITE_BYTES:
        _check_pages(connection, path, "1")


def _check_pages(connection: sqlite3.Connection, path: Path, of: str) -> None:
    found = [text for (text,) in connection.execute(f"PRAGMA quick_check({of})")]
    if not all(text == "ok" or is_of_index(text) for text in found):
        raise DamagedError(f"{path}: {DAMAGED}")


def _log_begun_anew(connection: sqlite3.Connection, path: Path, busy_seconds: float) -> bool:
    """Bring all that the log holds into the database; False where nothing can be written, nor be appended.

    After a failed sync the system may take pages of the log for written that are not. What is appended
    behind them, though synced itself, would go with them in a power cut: SQLite reads a log up to the
    first frame that is broken. So where that sync was ours, nothing goes on before the log is begun anew.

    Raises:
        StoreError: somebody else reads or writes it.
    """
    is_busy = _checkpoint(connection, "TRUNCATE")
    if is_busy:
        raise StoreError(f"{path}: {_locked(busy_seconds)}")
    return is_busy is not None


def _checkpoint(connection: sqlite3.Connection, mode: str) -> bool | None:
    """Whether others kept it from being done to the end; None where nothing can be written."""
    try:
        (busy, _, _) = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
    except sqlite3.OperationalError as error:
        if code_of(error) != sqlite3.SQLITE_READONLY:
            raise
        return None
    return bool(busy)


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    """All steps in one transaction: a fault on the way leaves the file as it was.

    Raises:
        StoreError: it is damaged, or cannot be written.
    """
    _look_through(connection, path)
    connection.execute("BEGIN IMMEDIATE")
    # Another process may have gone them meanwhile.
    for step in MIGRATIONS[_version(connection, path) :]:
        for statement in step:
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")


def _text(data: bytes) -> str | bytes:
    """What stands in a column of text; as it is where that is no UTF-8, so that damage hides nothing else."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _stands(path: Path) -> bool:
    """Whether there is anything to read.

    Raises:
        StoreError: it cannot be told, or the database is gone or empty and its log is not.
    """
    try:
        target = _target_of(path)
        if target.is_dir() or _size(target):
            return True
        _refuse_lost_log(path, target)
    except OSError as error:
        raise refused(path, error) from error
    return False


def _made(path: Path) -> Path:
    """The file itself, made where it is missing: its owner's alone, as SQLite makes its companions then.

    Raises:
        StoreError: something else stands there or beside it, or its log is all that is left of it.
        OSError: it cannot be made.
    """
    target = _target_of(path)
    make_private_folder(target.parent)
    _refuse_lost_log(path, target)
    if not os.path.lexists(target):
        with suppress(FileExistsError):
            os.close(new_private_file(target))
    if target.exists() and not target.is_file():
        raise StoreError(f"{path}: this is no file: name the database file to use")
    for each in (target.with_name(f"{target.name}{ending}") for ending in _BESIDE):
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(each.lstat().st_mode):
                raise StoreError(f"{path}: {each} is no file: move it away")
    return target


def _refuse_lost_log(path: Path, target: Path) -> None:
    """SQLite would delete a log whose database is gone or empty, as if it belonged to the new one."""
    log = target.with_name(f"{target.name}-wal")
    if _size(log) and not _size(target):
        raise DamagedError(
            f"{path}: the database is gone or empty, but not its log {log}: "
            "put the database back, or move its log away"
        )


def _identity(path: Path) -> tuple[int, int] | None:
    """What tells the file from any other; None where there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _target_of(path: Path) -> Path:
    """The file itself, where the path is a symbolic link."""
    return Path(os.path.realpath(path))


def _size(path: Path) -> int | None:
    with suppress(FileNotFoundError, NotADirectoryError):
        return path.stat().st_size
    return None


DAMAGED = "the database is damaged: restore a copy, or try `sqlite3 FILE .recover`"
_ADVICE = {
    sqlite3.SQLITE_FULL: "the disc is full: free some space and try again; what was stored is safe",
    sqlite3.SQLITE_READONLY: "the database is read-only: change its rights or choose another store",
    sqlite3.SQLITE_NOTADB: "this is no SQLite database: choose another path; the file was not touched",
    sqlite3.SQLITE_CORRUPT: DAMAGED,
    sqlite3.SQLITE_CANTOPEN: "the database cannot be opened: check the rights of the file and its folder",
    sqlite3.SQLITE_PERM: "no permission: change the rights or choose another store",
    sqlite3.SQLITE_IOERR: "the disc failed to read or write: check it and try again",
    sqlite3.SQLITE_TOOBIG: f"a record holds more than {MOST_RECORD_BYTES // 1_000_000} MB: make it smaller",
}
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_HINDERED = (
    *_LOCKED,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_AUTH,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_TOOBIG,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_PROTOCOL,
)
"""What keeps from reading or writing, whatever the file holds."""


def is_read_only(fault: StoreError) -> bool:
    """Whether it came of a file or a folder that cannot be written."""
    error = fault.__cause__
    return isinstance(error, sqlite3.Error) and code_of(error) == sqlite3.SQLITE_READONLY


def is_of_index(finding: str) -> bool:
    """Whether a line of SQLite's own check speaks of the full-text index, as from 3.44 on: no log has it."""
    return "inverted index for FTS5 table" in finding


def code_of(error: sqlite3.Error) -> int:
    """SQLite's primary code of an error; 0 where it has none."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _fault(path: Path, error: sqlite3.Error, busy_seconds: float) -> StoreError:
    """The error as ours, with what to do; `busy_seconds` is how long a lock was waited for.

    Chain it with `raise … from`.
    """
    code = code_of(error)
    if code in _LOCKED:
        return StoreError(f"{path}: {_locked(busy_seconds)}")
    otherwise = f"{error}: check the database with `sqlite3 FILE 'PRAGMA integrity_check'`"
    kind = StoreError if code in _HINDERED else DamagedError
    return kind(f"{path}: {_ADVICE.get(code, otherwise)}")


def _locked(busy_seconds: float) -> str:
    """What to say where another process kept a lock for so long."""
    return (
        f"the database is locked by another process, for over {busy_seconds:g} seconds: "
        "end that process or try again"
    )
