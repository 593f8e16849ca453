"""SQLiteStore: sessions in one SQLite file, for any number of processes on one machine.

The log is the table `events`, whose primary key (session, position) is the compare-and-swap: no second
writer can take a position. `sessions` is the index for lists, kept in the same transaction. WAL lets readers
go on while one writes. `synchronous = FULL` syncs the WAL at every commit: a record that `append` has
returned for survives a power cut, so no finished tool call is ever run again; that costs one fsync an
append, little beside a model call.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from agentloop._plumbing.aio import in_thread
from agentloop._plumbing.checks import at_least
from agentloop.errors import DamagedError, StoreError
from agentloop.events import Event, Record
from agentloop.stores.base import (
    Checkpoint,
    ChecksItself,
    FindsWords,
    Found,
    GrantsLeases,
    KeepsCheckpoints,
    Lease,
    SessionInfo,
    SessionScope,
    SessionStore,
    TellsLeases,
    checked_append,
    checked_holder,
    checked_lease_seconds,
    checked_now,
    checked_page,
    checked_search,
    checked_session_id,
)
from agentloop.stores.lines import of_trunk
from agentloop.stores.sqlite import search, tables
from agentloop.stores.sqlite.file import SQLiteFile
from agentloop.stores.sqlite.thread import OpenedFile
from agentloop.stores.words import Query

T = TypeVar("T")

_MOST_BUSY_SECONDS = 1_000_000.0
"""SQLite counts in milliseconds, in a C int, and waits for nothing where one does not hold them."""
_MOST_ENCODED_HERE = 16
"""So many events, or fewer, are made text where the loop runs: no thread would do it beside it."""


class SQLiteStore(SessionStore, ChecksItself, FindsWords, KeepsCheckpoints, GrantsLeases, TellsLeases):
    """A store in the SQLite file at `path`, with all that a store may have beside.

    Making one touches nothing; the first append makes the file (0600, its folder 0700 where that is
    missing), reading what is not there makes nothing. A writer waits at most `busy_seconds` for the
    writers of other processes. Work is done on a thread of its own, so the event loop goes on meanwhile. The
    store may be used from several loops, and on both sides of a fork: the process forks once the work that
    has begun on the file is done. An append that is cancelled while it is awaited is still written whole. A
    store that is used after `close` opens again.

    Raises:
        UsageError: `busy_seconds` is no finite number of at least 0.
    """

    def __init__(self, path: str | Path, *, busy_seconds: float = 10.0) -> None:
        at_least("busy_seconds", busy_seconds, 0)
        self._opened = OpenedFile(Path(path).absolute(), busy_seconds=min(busy_seconds, _MOST_BUSY_SECONDS))

    async def append(self, session_id: str, events: Sequence[Event], *, expect: int) -> int:
        written = checked_append(session_id, events, expect)
        if len(written) > _MOST_ENCODED_HERE:
            encode = partial(tables.addition_of, session_id, written, expect)
            return await self._run(lambda file: tables.append(encode(), file))
        new = tables.addition_of(session_id, written, expect)
        return await self._run(partial(tables.append, new))

    async def read(self, session_id: str, *, after: int = 0, most: int | None = None) -> Sequence[Record]:
        after, most = checked_page(session_id, after, most)
        return await self._run(partial(tables.read, session_id, after, most))

    async def info(self, session_id: str) -> SessionInfo | None:
        checked_session_id(session_id)
        return await self._run(partial(tables.info, session_id))

    async def list(
        self, *, folder: str | None = None, owner: str | None = None, branches_of: str | None = None
    ) -> Sequence[SessionInfo]:
        scope = SessionScope(folder=folder, owner=owner)
        return of_trunk(await self._run(partial(tables.listed, scope)), branches_of)

    async def delete(self, session_id: str) -> bool:
        checked_session_id(session_id)
        return await self._mending(partial(self._run, partial(tables.delete, session_id)))

    async def sweep(self, *, owner: str | None = None, now: float | None = None) -> Sequence[SessionInfo]:
        whose = SessionScope(owner=owner)
        moment = time.time() if now is None else checked_now(now)
        gone: list[SessionInfo] = []
        sweep = partial(self._run, partial(tables.sweep, whose, moment))
        try:
            while swept := await self._mending(sweep):
                gone += swept
        except StoreError:
            if not gone:
                raise
        return tuple(gone)  # after a fault, the next sweep meets it again

    async def search(
        self,
        text: str,
        *,
        session_id: str | None = None,
        folder: str | None = None,
        owner: str | None = None,
        most: int = 50,
    ) -> Sequence[Found]:
        """The records that hold all these words; see `FindsWords`. What is not yet indexed is so first."""
        scope, most = checked_search(session_id, folder, owner, most)
        query = await in_thread(Query.of, text)
        return await self._mending(partial(self._searched, query, scope, most))

    async def checkpoint(self, session_id: str) -> Checkpoint | None:
        checked_session_id(session_id)
        return await self._run(partial(tables.checkpoint, session_id))

    async def keep_checkpoint(self, session_id: str, checkpoint: Checkpoint) -> None:
        checked_session_id(session_id)
        await self._run(partial(tables.keep_checkpoint, session_id, checkpoint))

    async def drop_checkpoint(self, session_id: str) -> None:
        checked_session_id(session_id)
        await self._run(partial(tables.drop_checkpoint, session_id))

    async def take_lease(
        self, session_id: str, lease: Lease, *, seconds: float, over: str | None = None
    ) -> Lease:
        seconds = checked_lease_seconds(session_id, seconds, over)
        return await self._run(partial(tables.take_lease, session_id, lease, seconds, over))

    async def free_lease(self, session_id: str, holder: str) -> None:
        checked_holder(session_id, holder)
        await self._run(partial(tables.free_lease, session_id, holder))

    async def lease(self, session_id: str) -> Lease | None:
        checked_session_id(session_id)
        return await self._run(partial(tables.lease, session_id))

    async def check(self) -> Sequence[str]:
        """What is wrong with the pages, tables and indexes, then with the records, then with the list.

        See `ChecksItself`. A damaged full-text index is begun anew.
        """
        findings: list[str] = []
        try:
            for look in (tables.check_form, search.check_index):
                findings += await self._run(look)
            for name in await self._run(tables.names):
                findings += await self._run(partial(tables.check_session, name))
        except DamagedError as error:
            findings.append(str(error))
        return tuple(findings)

    async def close(self) -> None:
        """Let go of the file and end the thread; harmless when called again."""
        closing = self._opened.let_go()
        if closing:
            await asyncio.wrap_future(closing)

    async def _searched(self, query: Query, scope: SessionScope, most: int) -> Sequence[Found]:
        names = await self._run(partial(search.to_index, scope))
        while names:
            names = await self._run(partial(search.catch_up, names))
        return await self._run(partial(search.search, query, scope, most))

    async def _mending(self, call: Callable[[], Awaitable[T]]) -> T:
        """What the call returns; made again where it failed for a damaged index, which is begun anew."""
        try:
            return await call()
        except StoreError as fault:
            if not await self._run(partial(search.mended_for, fault)):
                raise
        return await call()

    async def _run(self, work: Callable[[SQLiteFile], T]) -> T:
        """What the work returns, done in the file's own thread."""
        return (await self._opened.begin(work))()
