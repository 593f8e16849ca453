"""The SQLite store on disc: rights, reopening, several processes and loops, faults and cancellation."""

import asyncio
import contextlib
import functools
import gc
import itertools
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from agentloop.errors import ConflictError, StoreError
from agentloop.events import Described
from agentloop.stores import SQLiteStore
from agentloop.stores.sqlite.file import writable_schema
from tests.many_writers_kit import check_nothing_is_lost, written_by_all
from tests.store_kit import WRITER, said, texts


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SQLiteStore]:
    store = SQLiteStore(path, busy_seconds=0.05)
    yield store
    await store.close()


@contextlib.contextmanager
def other_program(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        yield connection
    finally:
        connection.close()


async def test_nothing_is_made_before_the_first_append(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "sessions.db"
    store = SQLiteStore(path)
    assert (list(await store.read("s")), list(await store.list()), await store.delete("s")) == ([], [], False)
    await store.append("s", [said()], expect=0)
    assert path.is_file()
    await store.close()


async def test_files_are_their_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        store = SQLiteStore(tmp_path / "sub" / "sessions.db")
        await store.append("s", [said()], expect=0)
        found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "sub").iterdir()}
        await store.close()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "sub").stat().st_mode) == 0o700
    assert found == {"sessions.db": 0o600, "sessions.db-wal": 0o600, "sessions.db-shm": 0o600}


async def test_a_store_opened_again_holds_what_was_written(path: Path) -> None:
    first = SQLiteStore(path)
    await first.append("s", [Described(title="Mine", folder="/here"), said("one")], expect=0)
    await first.close()
    await first.append("s", [said("two")], expect=2)
    await first.close()
    second = SQLiteStore(path)
    assert await texts(second) == ["one", "two"]
    assert [(info.title, info.folder, info.length) for info in await second.list()] == [("Mine", "/here", 3)]
    await second.close()


async def test_the_form_of_the_file(path: Path, store: SQLiteStore) -> None:
    await store.append("s", [said()], expect=0)
    with other_program(path) as other:
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert other.execute("PRAGMA user_version").fetchone() == (2,)
        assert other.execute("PRAGMA table_list('events')").fetchone()[4] == 1, "without rowid"


async def test_a_log_that_was_never_closed_is_whole(path: Path, tmp_path: Path, store: SQLiteStore) -> None:
    await store.append("s", [said("one"), said("two")], expect=0)
    for file in list(tmp_path.iterdir()):
        shutil.copy(file, tmp_path / file.name.replace("sessions", "killed"))
    killed = SQLiteStore(tmp_path / "killed.db")
    assert await texts(killed) == ["one", "two"]
    await killed.close()


async def test_a_killed_writer_leaves_all_that_append_returned_for(path: Path, store: SQLiteStore) -> None:
    writer = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WRITER, f"sqlite:///{path}", "100000", "killed", stdout=asyncio.subprocess.PIPE
    )
    assert writer.stdout
    returned = 0
    while returned < 20:
        returned = int(await writer.stdout.readline())
    writer.kill()
    returned = max(returned, *map(int, (await writer.stdout.read()).split()), 0)
    await writer.wait()
    found = await texts(store, "shared")
    assert found == [f"killed {number}" for number in range(len(found))]
    assert len(found) in (returned, returned + 1)
    assert [info.length for info in await store.list()] == [len(found)]


@pytest.mark.deep
async def test_l15_many_writers_one_of_which_compacts_lose_nothing(path: Path) -> None:
    store = SQLiteStore(path)
    await written_by_all(f"sqlite:///{path}", store)
    await check_nothing_is_lost(store)
    assert await store.check() == ()
    await store.close()


async def test_many_may_make_the_same_file_at_once(tmp_path: Path) -> None:
    for number in range(5):
        stores = [SQLiteStore(tmp_path / f"{number}.db") for _ in range(8)]
        await asyncio.gather(*(store.append(f"s{at}", [said()], expect=0) for at, store in enumerate(stores)))
        assert len(await stores[0].list()) == 8
        await asyncio.gather(*(store.close() for store in stores))


def test_one_store_serves_several_event_loops(path: Path) -> None:
    store = SQLiteStore(path)
    for number in range(3):
        assert asyncio.run(store.append("s", [said(str(number))], expect=number)) == number + 1
    portal = threading.Thread(target=lambda: asyncio.run(store.append("s", [said("3")], expect=3)))
    portal.start()
    portal.join()
    assert asyncio.run(texts(store)) == ["0", "1", "2", "3"]
    asyncio.run(store.close())


def test_the_interpreter_ends_with_a_store_open_and_work_pending(path: Path) -> None:
    with other_program(path) as other:
        asyncio.run(SQLiteStore(path).append("s", [said("one")], expect=0))
        other.execute("BEGIN IMMEDIATE")
        script = (
            "import asyncio, sys\n"
            "from agentloop.stores import SQLiteStore\n"
            "from agentloop.events import Described\n"
            "store = SQLiteStore(sys.argv[1], busy_seconds=3600)\n"
            "async def main():\n"
            "    waiting = asyncio.create_task(store.append('s', [Described(title='x')], expect=1))\n"
            "    await asyncio.sleep(0)\n"
            "    waiting.cancel()\n"
            "asyncio.run(main())\n"
        )
        ran = subprocess.run(
            [sys.executable, "-c", script, str(path)], capture_output=True, timeout=60, check=False
        )
    assert (ran.returncode, ran.stderr) == (0, b"")


async def test_a_store_that_is_forgotten_ends_its_thread(path: Path) -> None:
    store = SQLiteStore(path)
    await store.append("s", [said()], expect=0)
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "sqlite sessions.db"]
    del store
    gc.collect()
    await asyncio.to_thread(thread.join)
    assert not path.with_name("sessions.db-wal").exists()


async def test_a_cancelled_append_is_written_whole_and_the_store_stays_usable(
    path: Path, store: SQLiteStore
) -> None:
    await store.append("s", [said("one")], expect=0)
    patient = SQLiteStore(path)
    with other_program(path) as other:
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.create_task(patient.append("s", [said("two"), said("three")], expect=1))
        behind = asyncio.create_task(patient.append("s", [said("four")], expect=3))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await texts(store) == ["one"], "reading goes on while a writer waits"
        other.execute("COMMIT")
    assert await behind == 4
    assert await texts(patient) == ["one", "two", "three", "four"]
    await patient.close()


async def test_the_loop_goes_on_while_an_append_waits_for_another_process(path: Path) -> None:
    patient = SQLiteStore(path, busy_seconds=60)
    for at in range(20):
        await patient.append("s", [said(str(at))], expect=at)
    with other_program(path) as other:
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.create_task(patient.append("s", [said("last")], expect=20))
        behind = asyncio.create_task(patient.append("other", [said("else")], expect=0))
        for _ in range(3):
            await asyncio.sleep(0)
        assert not waiting.done()
        assert not behind.done()
        other.execute("COMMIT")
    assert (await waiting, await behind) == (21, 1)
    assert await patient.append("s", [said("more")], expect=21) == 22
    assert (await texts(patient))[-3:] == ["19", "last", "more"]
    await patient.close()


async def test_appends_of_every_size_stand_in_the_order_they_were_made_in(path: Path) -> None:
    store = SQLiteStore(path)
    at = 0
    for size, many in itertools.product((1, 70_000), (1, 20)):
        for _ in range(3):
            expected, at = (
                at + many,
                await store.append("s", [said("x" * size) for _ in range(many)], expect=at),
            )
            assert at == expected
    assert [len(text) for text in await texts(store)] == [1] * 63 + [70_000] * 63
    assert await store.check() == ()
    await store.close()


def test_loops_that_append_at_once_to_one_store_lose_nothing(path: Path) -> None:
    store = SQLiteStore(path)

    async def appends(session_id: str) -> None:
        for at in range(100):
            assert await store.append(session_id, [said(f"{session_id} {at}")], expect=at) == at + 1

    threads = [threading.Thread(target=asyncio.run, args=(appends(name),)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in "abc":
        assert asyncio.run(texts(store, name)) == [f"{name} {at}" for at in range(100)]
    asyncio.run(store.close())


async def test_a_locked_database_is_one_clear_line_and_can_be_tried_again(
    path: Path, store: SQLiteStore
) -> None:
    await store.append("s", [said("one")], expect=0)
    with other_program(path) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(
            StoreError, match=rf"^{path}: the database is locked .* over 0.05 seconds: [^\n]+$"
        ):
            await store.append("s", [said("two")], expect=1)
    await store.append("s", [said("two")], expect=1)
    assert await texts(store) == ["one", "two"]


def _connections_with(monkeypatch: pytest.MonkeyPatch, pragma: str) -> Callable[[], None]:
    """From now on each new connection begins with this pragma, until the returned function is called."""
    connect = sqlite3.connect

    def connect_with(*args: object, **kwargs: object) -> sqlite3.Connection:
        connection = connect(*args, **kwargs)  # type: ignore[call-overload]
        connection.execute(pragma)
        return connection  # type: ignore[no-any-return]

    monkeypatch.setattr(sqlite3, "connect", connect_with)
    return functools.partial(monkeypatch.setattr, sqlite3, "connect", connect)


async def test_a_full_disc_keeps_what_was_written_and_can_be_tried_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = _connections_with(monkeypatch, "PRAGMA max_page_count = 16")
    store = SQLiteStore(path)
    await store.append("s", [said("one")], expect=0)
    with pytest.raises(StoreError, match=rf"^{path}: the disc is full: free some space and try again[^\n]*$"):
        await store.append("s", [said("two"), said("x" * 100_000)], expect=1)
    assert await texts(store) == ["one"]
    assert await store.append("s", [said("small")], expect=1) == 2
    free()
    await store.close()
    assert await store.append("s", [said("x" * 100_000)], expect=2) == 3
    await store.close()


async def test_a_read_only_database_is_read_and_refuses_to_be_written(
    path: Path, store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.append("s", [said("one")], expect=0)
    _connections_with(monkeypatch, "PRAGMA query_only = 1")
    reader = SQLiteStore(path)
    assert await texts(reader) == ["one"]
    with pytest.raises(StoreError, match=rf"^{path}: the database is read-only: [^\n]+$"):
        await reader.append("s", [said("two")], expect=1)
    assert await texts(reader) == ["one"]
    await reader.close()


@pytest.mark.parametrize("content", [b"dear diary, " * 500, b"my key", b"\0" * 8192])
async def test_another_file_is_refused_and_left_alone(path: Path, store: SQLiteStore, content: bytes) -> None:
    path.write_bytes(content)
    for call in (store.append("s", [said()], expect=0), store.read("s"), store.list()):
        with pytest.raises(StoreError, match=rf"^{path}: this is no SQLite database: [^\n]*$"):
            await call
    assert path.read_bytes() == content
    assert [found.name for found in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("statements", "says"),
    [
        (("CREATE TABLE mine (x)",), "belongs to another program"),
        (("CREATE TABLE events (x)", "PRAGMA user_version = 1"), "belongs to another program"),
        (("PRAGMA application_id = 7",), "belongs to another program"),
        (("PRAGMA application_id = 0x61676c70", "PRAGMA user_version = 3"), "a newer agentloop .*: update"),
    ],
)
async def test_another_programs_database_is_left_alone(
    path: Path, store: SQLiteStore, statements: tuple[str, ...], says: str
) -> None:
    with other_program(path) as other:
        for statement in statements:
            other.execute(statement)
    before = path.read_bytes()
    for call in (store.append("s", [said()], expect=0), store.read("s")):
        with pytest.raises(StoreError, match=rf"^{path}: [^\n]*{says}[^\n]*$"):
            await call
    assert path.read_bytes() == before


async def test_an_empty_file_becomes_a_database(path: Path, store: SQLiteStore) -> None:
    path.touch()
    assert await texts(store) == []
    assert await store.append("s", [said()], expect=0) == 1


async def test_a_damaged_database_is_one_clear_line(path: Path, store: SQLiteStore) -> None:
    await store.append("s", [said("x" * 20_000)], expect=0)
    await store.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    for call in (store.read("s"), store.append("s", [said()], expect=1)):
        with pytest.raises(StoreError, match=rf"^{path}: the database is damaged: [^\n]+$"):
            await call


async def test_a_damaged_record_names_its_place(path: Path, store: SQLiteStore) -> None:
    await store.append("s", [said("one"), said("two")], expect=0)
    with other_program(path) as other:
        other.execute("UPDATE events SET body = substr(body, 1, 40) WHERE seq = 2")
    with pytest.raises(StoreError, match=rf"^{path}: session 's', record 2: damaged record: [^\n]+$"):
        await store.read("s")
    assert await store.append("s", [said("three")], expect=2) == 3


@pytest.mark.parametrize(
    "place",
    [
        "/proc/agentloop/sessions.db",
        "/proc/self/status/sessions.db",
        "/dev/null",
        "/dev",
        "/tmp/" + "x" * 300,
    ],
)
async def test_a_place_that_cannot_be_is_one_clear_line(place: str) -> None:
    store = SQLiteStore(place)
    with pytest.raises(StoreError, match=rf"^{place}: [^\n]+: [^\n]+$"):
        await store.append("s", [said()], expect=0)
    await store.close()


async def test_a_folder_is_no_database(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path)
    with pytest.raises(StoreError, match=rf"^{tmp_path}: this is no file: [^\n]+$"):
        await store.read("s")
    await store.close()


async def test_a_disc_that_fails_to_write_leaves_the_log_as_it_was(path: Path, store: SQLiteStore) -> None:
    await store.append("s", [said("one")], expect=0)
    await store.close()
    script = (
        "import asyncio, resource, sys\n"
        "from agentloop.events import MessageRecord\n"
        "from agentloop.messages import Message\n"
        "from agentloop.stores import SQLiteStore\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))\n"
        "event = MessageRecord(message=Message.user('x' * 200_000), tokens=1)\n"
        "asyncio.run(SQLiteStore(sys.argv[1]).append('s', [event], expect=1))\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, str(path), stderr=asyncio.subprocess.PIPE
    )
    _, stderr = await process.communicate()
    last = stderr.decode().splitlines()[-1]
    assert last.startswith(f"agentloop.errors.StoreError: {path}: the disc "), last
    assert await texts(store) == ["one"]


async def test_a_database_moved_away_in_use_is_noticed(path: Path, store: SQLiteStore) -> None:
    await store.append("s", [said("one")], expect=0)
    moved = path.rename(path.with_name("moved.db"))
    with pytest.raises(StoreError, match="moved or replaced while in use: put it back"):
        await store.append("s", [said("two")], expect=1)
    moved.rename(path)
    assert await store.append("s", [said("two")], expect=1) == 2
    path.unlink()
    with pytest.raises(StoreError, match="moved or replaced"):
        await store.read("s")
    with pytest.raises(StoreError, match=rf"^{path}: [^\n]* not its log {path}-wal: put [^\n]+$"):
        await store.append("s", [said("three")], expect=2)
    path.with_name("sessions.db-wal").unlink()
    with pytest.raises(ConflictError):
        await store.append("s", [said("three")], expect=2)


class Unwilling(sqlite3.Connection):
    """A connection whose next such statement fails with that code of SQLite, done all the same."""

    fails: ClassVar[dict[str, int]] = {}

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        cursor = super().execute(sql, *args)
        if sql in self.fails:
            error = sqlite3.OperationalError(f"{sql} failed")
            error.sqlite_errorcode = self.fails.pop(sql)
            raise error
        return cursor


async def test_a_conflict_stays_one_when_it_cannot_be_rolled_back(
    path: Path, store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "connect", functools.partial(sqlite3.connect, factory=Unwilling))
    await store.append("s", [said("one")], expect=0)
    monkeypatch.setattr(Unwilling, "fails", {"ROLLBACK": sqlite3.SQLITE_IOERR})
    with pytest.raises(ConflictError):
        await store.append("s", [said("two")], expect=7)
    assert not Unwilling.fails
    assert await store.append("s", [said("two")], expect=1) == 2


@pytest.mark.parametrize("reads", [False, True])
async def test_after_a_failed_sync_nothing_rests_on_the_log(
    path: Path, store: SQLiteStore, monkeypatch: pytest.MonkeyPatch, reads: bool
) -> None:
    monkeypatch.setattr(sqlite3, "connect", functools.partial(sqlite3.connect, factory=Unwilling))
    await store.append("s", [said("one")], expect=0)
    log = path.with_name("sessions.db-wal")
    with other_program(path) as other:
        other.execute("SELECT * FROM events").fetchall()
        monkeypatch.setattr(Unwilling, "fails", {"COMMIT": sqlite3.SQLITE_IOERR | 4 << 8})
        with pytest.raises(StoreError, match="the disc failed"):
            await store.append("s", [said("two")], expect=1)
        assert log.stat().st_size
        if reads:
            other.execute("BEGIN")
            other.execute("SELECT * FROM events").fetchall()
            with pytest.raises(StoreError, match="locked by another process"):
                await store.append("s", [said("three")], expect=2)
            other.execute("COMMIT")
        assert await texts(store) == ["one", "two"], "an append whose commit failed is whole or absent"
        assert log.stat().st_size == 0
        assert await store.append("s", [said("three")], expect=2) == 3


async def test_what_another_process_left_in_the_log_is_in_the_database_before_more_is_appended(
    path: Path, tmp_path: Path, store: SQLiteStore
) -> None:
    await store.append("s", [said("one"), said("two")], expect=0)
    for name in ("db", "db-wal"):
        shutil.copy(tmp_path / f"sessions.{name}", tmp_path / f"killed.{name}")
    killed = SQLiteStore(tmp_path / "killed.db")
    assert await killed.append("s", [said("three")], expect=2) == 3
    shutil.copy(tmp_path / "killed.db", tmp_path / "alone.db")
    alone = SQLiteStore(tmp_path / "alone.db")
    assert await texts(alone) == ["one", "two"]
    for each in (killed, alone):
        await each.close()


async def test_a_broken_append_leaves_no_half_transaction(path: Path, store: SQLiteStore) -> None:
    await store.append("s", [said("one")], expect=0)
    with other_program(path) as other:
        other.execute("INSERT INTO events SELECT session_id, 3, body, sum FROM events")
    with pytest.raises(StoreError, match=rf"^{path}: UNIQUE constraint failed: [^\n]+$"):
        await store.append("s", [said("two"), said("three")], expect=1)
    with other_program(path) as other:
        other.execute("DELETE FROM events WHERE seq = 3")
    assert await texts(store) == ["one"]


async def test_a_record_that_is_no_text_is_one_clear_line(path: Path, store: SQLiteStore) -> None:
    await store.append("s", [said()], expect=0)
    with other_program(path) as connection:
        connection.execute("UPDATE events SET body = x'ff'")
    with pytest.raises(StoreError, match="record 1: damaged record"):
        await store.read("s")


def test_the_schema_can_be_written_within_its_mend_alone_also_where_that_fails() -> None:
    with other_program(Path(":memory:")) as connection:
        connection.execute("CREATE TABLE t (x)")
        with contextlib.suppress(sqlite3.OperationalError), writable_schema(connection):
            connection.execute("DELETE FROM sqlite_schema WHERE name = 'other'")
            connection.execute("DROP TABLE missing")
        with pytest.raises(sqlite3.OperationalError, match="may not be modified"):
            connection.execute("DELETE FROM sqlite_schema")
        if sys.version_info >= (3, 12):
            assert connection.getconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE)
