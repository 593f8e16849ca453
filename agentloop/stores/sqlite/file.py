"""One SQLite file: opened late, checked before it is touched, each fault one clear line."""

import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from agentloop._plumbing.private_files import refused
from agentloop.errors import ConflictError, DamagedError, StoreError
from agentloop.stores.sqlite import opening, place
from agentloop.stores.sqlite.as_it_stood import AsItStood
from agentloop.stores.sqlite.faults import DAMAGED, code_of, fault
from agentloop.stores.sqlite.schema import SCHEMA_VERSION

_WRITE = "BEGIN IMMEDIATE"
QUICK_SECONDS = 0.002
"""A write that took less is over sooner than two switches of threads would be on a machine at work."""

T = TypeVar("T")


class BusyError(Exception):
    """Another process writes, and nothing was begun: an answer, no fault."""


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
        self._as_it_stood: AsItStood | None = None
        """What the file was when it was opened, where it is read without a log and locks."""
        self._looked_through: tuple[int, int] | None = None
        """The file whose pages were all checked, so that it may be written to; it outlives the connection."""
        self._log_is_doubtful = False
        """Whether a sync of ours failed, so that nothing may be appended to the log as it is."""
        self._is_patient = True
        """Whether the work at hand may wait for another process, for up to `busy_seconds`."""
        self._timeout_seconds = busy_seconds
        """How long the connection waits, as it was last told."""
        self._last_write_seconds: float | None = None
        """What the last write by this connection took; None where there was none."""

    @property
    def is_quick(self) -> bool:
        """Whether the file is open, and what was last written to it took less than `QUICK_SECONDS`."""
        return self._last_write_seconds is not None and self._last_write_seconds < QUICK_SECONDS

    def at_once(self, work: Callable[["SQLiteFile"], T]) -> T:
        """What the work returns, where it need not wait for another process.

        Raises:
            BusyError: it would have to.
            StoreError: see `transaction`.
        """
        self._is_patient = False
        try:
            return work(self)
        finally:
            self._is_patient = True

    def exists(self) -> bool:
        """Whether there is anything to read; a file that is in use counts even when it was moved.

        Raises:
            StoreError: it cannot be told, or the database is gone and its log is not.
        """
        return self._connection is not None or place.stands(self.path)

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
        connection = None
        try:
            with self._faults_told():
                connection = self._opened()
                began = self._begin(connection, begin)
                yield connection
                self._commit(connection)
            if begin == _WRITE:
                self._last_write_seconds = time.perf_counter() - began
        except BusyError:
            raise
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
        self._connection = self._identity = self._as_it_stood = self._last_write_seconds = None

    @contextmanager
    def _faults_told(self) -> Iterator[None]:
        """A fault of the file in the block comes out in words that name it and say what to do."""
        try:
            yield
        except sqlite3.Error as error:
            self._doubt(error)
            self._refuse_written()
            raise fault(self.path, error, self._busy_seconds) from error
        except UnicodeDecodeError as error:  # SQLite tells of a damaged schema in the words that stand there
            raise DamagedError(f"{self.path}: {DAMAGED}") from error
        except OSError as error:
            raise refused(self.path, error) from error

    def _begin(self, connection: sqlite3.Connection, begin: str) -> float:
        """Begin a transaction; the moment from which it counts, what it waits for others included."""
        if begin == _WRITE:
            self._look_through(connection)
        began = time.perf_counter()
        self._set_timeout(connection)
        try:
            connection.execute(begin)
        except sqlite3.OperationalError as error:
            if self._is_patient or code_of(error) != sqlite3.SQLITE_BUSY:
                raise
            raise BusyError from error
        return began

    def _set_timeout(self, connection: sqlite3.Connection) -> None:
        seconds = self._busy_seconds if self._is_patient else 0
        if seconds != self._timeout_seconds:
            connection.execute(f"PRAGMA busy_timeout = {round(seconds * 1000)}")
            self._timeout_seconds = seconds

    def _commit(self, connection: sqlite3.Connection) -> None:
        connection.execute("COMMIT")
        self._refuse_written()

    def _roll_back(self) -> None:
        try:
            if self._connection:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:  # letting go of the connection takes it back too
            self.close()

    def _doubt(self, error: sqlite3.Error) -> None:
        """After a fault of the disc neither what stands in the log nor in the pages is taken on trust."""
        if code_of(error) == sqlite3.SQLITE_IOERR:
            self._log_is_doubtful, self._looked_through = True, None

    def _opened(self) -> sqlite3.Connection:
        if self._connection and (self._connection.in_transaction or self._is_written()):
            self.close()  # one that a signal's exception left behind, or that would not see what is new
        if self._connection:
            if place.identity(self.path) == self._identity:
                return self._connection
            raise StoreError(f"{self.path}: the database was moved or replaced while in use: put it back")
        try:
            return self._connected(str(place.made(self.path)))
        except sqlite3.OperationalError as error:
            if code_of(error) not in opening.NO_LOG_CAN_BE_MADE or not place.is_read_only(self.path):
                raise
        return self._connected_as_it_stands()

    def _connected(self, database: str) -> sqlite3.Connection:
        self._connection = opening.connected(database, self._busy_seconds)
        self._timeout_seconds = self._busy_seconds
        self._identity = place.identity(self.path)
        self._prepare(self._connection)
        return self._connection

    def _connected_as_it_stands(self) -> sqlite3.Connection:
        """Where nothing can be made beside the file: to be read as long as nobody else writes to it."""
        self.close()
        self._as_it_stood = AsItStood(self.path, place.state(self.path))
        return self._connected(place.as_it_stands(self.path))

    def _is_written(self) -> bool:
        return self._as_it_stood is not None and self._as_it_stood.is_written

    def _refuse_written(self) -> None:
        if self._as_it_stood is not None:
            self._as_it_stood.refuse_written()

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA cell_size_check = ON")
        version = opening.looked_over(connection, self.path)
        if self._log_is_doubtful:
            self._log_is_doubtful = not opening.log_begun_anew(connection, self.path, self._busy_seconds)
        else:
            opening.take_over_log(connection)
        # Busy here means that another process is just switching; the mode is the file's, not ours.
        with suppress(sqlite3.OperationalError):
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        if version < SCHEMA_VERSION:
            opening.migrate(connection, self.path)

    def _look_through(self, connection: sqlite3.Connection) -> None:
        """Before the first write to this file."""
        if self._looked_through != self._identity:
            opening.look_through(connection, self.path)
            self._looked_through = self._identity
