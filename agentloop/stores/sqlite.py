"""Sessions in one SQLite file, for any number of processes on one machine.

The log is the table `events`, whose primary key (session, position) is the compare-and-swap: no second
writer can take a position. `sessions` is the index for lists, kept in the same transaction. WAL lets readers
go on while one writes. `synchronous = FULL` syncs the WAL at every commit: a record that `append` has
returned for survives a power cut, so no finished tool call is ever run again; that costs one fsync an
append, little beside a model call.
"""

import asyncio
import math
import sqlite3
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from agentloop.codec import decode, encode
from agentloop.errors import ConflictError, StoreError
from agentloop.events import Event, Record
from agentloop.stores.base import SessionInfo, checked_session_id
from agentloop.stores.index import described
from agentloop.stores.sqlite_file import SQLiteFile
from agentloop.threads import WorkThread

T = TypeVar("T")


class SQLiteStore:
    """A `SessionStore` in the SQLite file at `path`.

    Making one touches nothing; the first append makes the file (0600, its folder 0700 where that is
    missing), reading what is not there makes nothing. A writer waits at most `busy_seconds` for the
    writers of other processes, on a thread of its own, so no event loop is ever blocked; the store may be
    used from several loops. An append that is cancelled while it is awaited is still written whole. A
    store that is used after `close` opens again.
    """

    def __init__(self, path: str | Path, *, busy_seconds: float = 10.0) -> None:
        self._path = Path(path).absolute()
        self._busy_seconds = busy_seconds
        self._lock = threading.Lock()
        self._open: _Open | None = None

    async def append(self, session_id: str, events: Sequence[Event], *, expect: int) -> int:
        """Write all events after record `expect`, or none; see `SessionStore`."""
        checked_session_id(session_id)
        return await self._run(partial(_append, session_id, tuple(events), expect))

    async def read(self, session_id: str, *, after: int = 0) -> Sequence[Record]:
        """The records behind position `after`, in order; none for a session that does not exist."""
        checked_session_id(session_id)
        return await self._run(partial(_read, session_id, after))

    async def list(self, *, folder: str | None = None) -> Sequence[SessionInfo]:
        """The sessions, newest update first; with `folder`, those described by it."""
        return await self._run(partial(_list, folder))

    async def delete(self, session_id: str) -> bool:
        """Remove a session and its log; False where there was none."""
        checked_session_id(session_id)
        return await self._run(partial(_delete, session_id))

    async def close(self) -> None:
        """Let go of the file and end the thread; harmless when called again."""
        with self._lock:
            was_open, self._open = self._open, None
        if was_open:
            await asyncio.wrap_future(was_open.let_go())

    async def _run(self, work: Callable[[SQLiteFile], T]) -> T:
        with self._lock:
            if self._open is None:
                self._open = _Open(SQLiteFile(self._path, busy_seconds=self._busy_seconds))
                weakref.finalize(self, self._open.let_go).atexit = False
            running = self._open.hand_in(work)
        return await asyncio.wrap_future(running)


class _Open:
    """A file and the one thread that works on it."""

    def __init__(self, file: SQLiteFile) -> None:
        self._file = file
        self._thread = WorkThread(f"sqlite {file.path.name}")

    def hand_in(self, work: Callable[[SQLiteFile], T]) -> "Future[T]":
        return self._thread.hand_in(partial(work, self._file))

    def let_go(self) -> "Future[None]":
        closed = self._thread.hand_in(self._file.close)
        self._thread.stop()
        return closed


def _append(session_id: str, events: tuple[Event, ...], expect: int, file: SQLiteFile) -> int:
    rows = [(session_id, seq, encode(event)) for seq, event in enumerate(events, start=expect + 1)]
    with file.transaction() as connection:
        length = _length(connection, session_id)
        if length != expect:
            _check_written(connection, session_id, rows, expect=expect, length=length)
        elif rows:
            connection.executemany("INSERT INTO events VALUES (?, ?, ?)", rows)
            before = _info(connection, session_id, file.path)
            _put_info(connection, described(before, session_id, events))
    return expect + len(rows)


def _check_written(
    connection: sqlite3.Connection,
    session_id: str,
    rows: Sequence[tuple[str, int, str]],
    *,
    expect: int,
    length: int,
) -> None:
    """A repeated append whose first answer was lost finds the very rows that it sends."""
    there = connection.execute(
        "SELECT session_id, seq, body FROM events WHERE session_id = ? AND seq > ? AND seq <= ? ORDER BY seq",
        (session_id, expect, expect + len(rows)),
    ).fetchall()
    if not rows or there != rows:
        raise ConflictError(session_id, expected=expect, actual=length)


def _read(session_id: str, after: int, file: SQLiteFile) -> tuple[Record, ...]:
    if not file.exists():
        return ()
    with file.transaction("BEGIN") as connection:
        rows = connection.execute(
            "SELECT seq, body FROM events WHERE session_id = ? AND seq > ? ORDER BY seq", (session_id, after)
        ).fetchall()
    return tuple(_record(file.path, session_id, seq, body) for seq, body in rows)


def _record(path: Path, session_id: str, seq: int, body: object) -> Record:
    try:
        if not isinstance(body, str):
            raise StoreError("damaged record: it is no text")
        return Record(seq=seq, event=decode(body))
    except StoreError as error:
        raise StoreError(f"{path}: session {session_id!r}, record {seq}: {error}") from error


def _list(folder: str | None, file: SQLiteFile) -> tuple[SessionInfo, ...]:
    if not file.exists():
        return ()
    where, values = ("", ()) if folder is None else ("WHERE folder = ?", (_to_column(folder),))
    with file.transaction("BEGIN") as connection:
        rows = connection.execute(
            f"SELECT {_COLUMNS} FROM sessions {where} ORDER BY updated DESC, id", values
        ).fetchall()
    return tuple(_from_row(row, file.path) for row in rows)


def _delete(session_id: str, file: SQLiteFile) -> bool:
    if not file.exists():
        return False
    with file.transaction() as connection:
        connection.execute("DELETE FROM events WHERE session_id = ?", (session_id,))
        return connection.execute("DELETE FROM sessions WHERE id = ?", (session_id,)).rowcount > 0


def _length(connection: sqlite3.Connection, session_id: str) -> int:
    rows = connection.execute("SELECT max(seq) FROM events WHERE session_id = ?", (session_id,))
    return rows.fetchone()[0] or 0


def _info(connection: sqlite3.Connection, session_id: str, path: Path) -> SessionInfo | None:
    row = connection.execute(f"SELECT {_COLUMNS} FROM sessions WHERE id = ?", (session_id,)).fetchone()
    return _from_row(row, path) if row else None


def _put_info(connection: sqlite3.Connection, info: SessionInfo) -> None:
    title, folder = _to_column(info.title), _to_column(info.folder)
    connection.execute(
        f"INSERT OR REPLACE INTO sessions ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)",
        (info.id, title, folder, info.created, info.updated, info.length),
    )


def _from_row(row: Sequence[Any], path: Path) -> SessionInfo:
    """What the row says.

    Raises:
        StoreError: somebody else wrote into it what this program never does.
    """
    name, title, folder, created, updated, length = row
    try:
        texts = [name, _from_column(title) or "", _from_column(folder) or ""]
    except UnicodeDecodeError:
        texts = [None]
    whole = all(isinstance(text, str) for text in texts) and isinstance(length, int)
    if not whole or not all(isinstance(at, float) and math.isfinite(at) for at in (created, updated)):
        shown = ascii(name)[:60]
        raise StoreError(f"{path}: the entry of session {shown} is damaged: restore a copy")
    return SessionInfo(
        id=name,
        title=_from_column(title),
        folder=_from_column(folder),
        created=created,
        updated=updated,
        length=length,
    )


def _to_column(text: str | None) -> str | bytes | None:
    """Text; bytes where it holds lone surrogates, as the names of folders may that are not in UTF-8."""
    if text is None:
        return None
    data = text.encode("utf-8", "surrogatepass")
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _from_column(value: Any) -> Any:
    return value.decode("utf-8", "surrogatepass") if isinstance(value, bytes) else value


_COLUMNS = "id, title, folder, created, updated, length"
