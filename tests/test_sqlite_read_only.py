"""A SQLite file that cannot be written where it lies: all of it is read, or one line says why not."""

import asyncio
import ctypes
import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from agentloop.context import Context
from agentloop.events import Described
from agentloop.sessions import checkpoint_of
from agentloop.stores import SQLiteStore
from agentloop.stores.sqlite.schema import MIGRATIONS
from tests.store_kit import said

LOOKS = """
import asyncio, json, sys
from pathlib import Path
from agentloop.errors import StoreError
from agentloop.events import Described
from agentloop.stores import SQLiteStore
from agentloop.stores.sqlite.file import SQLiteFile

SEARCHES = {"all": {}, "one": {"session_id": "a"}, "mine": {"owner": "me"}, "two": {"most": 2}}

async def seen(call, shown=lambda found: found):
    try:
        return shown(await call)
    except StoreError as error:
        return str(error)

def located(found):
    return [(each.session_id, each.record.seq) for each in found]

async def look(store):
    return {
        "list": await seen(store.list(), lambda infos: [info.id for info in infos]),
        "info": await seen(store.info("a"), lambda info: info.id),
        "read": await seen(store.read("a"), len),
        "checkpoint": await seen(store.checkpoint("a"), lambda kept: kept.seq),
        "check": await seen(store.check()),
        "append": await seen(store.append("a", [Described(title="new")], expect=3)),
    } | {
        name: await seen(store.search("zebra", **asked), located)
        for name, asked in SEARCHES.items()
    }

async def hold(path):
    def work(connection):
        print("reading", flush=True)
        sys.stdin.readline()
        return connection.execute("SELECT count(*) FROM events").fetchone()

    async def held():
        return SQLiteFile(Path(path), busy_seconds=1).read(work, None)

    return await seen(held())

async def main(path):
    store = SQLiteStore(path)
    while line := sys.stdin.readline():
        print(json.dumps(await (look(store) if line == "look\\n" else hold(path))), flush=True)
    await store.close()

asyncio.run(main(sys.argv[1]))
"""
"""Looks into the store at a path, or reads the file slowly, at each line that it is given."""

ALL = {
    "list": ["c", "b", "a"], "info": "a", "read": 3, "checkpoint": 0, "check": [],
    "all": [["c", 1], ["b", 1], ["a", 3], ["a", 2]], "one": [["a", 3], ["a", 2]],
    "mine": [["a", 3], ["a", 2]], "two": [["c", 1], ["b", 1]],
}  # fmt: skip
READ_ONLY = "the database is read-only: change its rights or choose another store"
_DROP_FROM_BOUNDS = 24
_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH = 1, 2


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where the database lies; what a test takes of its rights comes back."""
    folder = tmp_path / "kept"
    folder.mkdir()
    yield folder
    folder.chmod(0o700)


async def filled(path: Path) -> SQLiteStore:
    """A store with three sessions, a checkpoint, and nothing in its full-text index."""
    store = SQLiteStore(path)
    await store.append("a", [Described(owner="me"), said("zebra"), said("a zebra")], expect=0)
    await store.keep_checkpoint("a", checkpoint_of(Context(), "x"))
    for name in "bc":
        await store.append(name, [said(f"zebra {name}"), said("horse")], expect=0)
    return store


def unwritable(folder: Path) -> None:
    """Take the rights to write in the folder, and to its files."""
    for file in folder.iterdir():
        file.chmod(0o400)
    folder.chmod(0o500)


def _heed_rights() -> None:
    """Root, too, is to be kept out by rights: what it runs from here on has no power over them."""
    libc = ctypes.CDLL(None)
    for power in (_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH):
        libc.prctl(_DROP_FROM_BOUNDS, power, 0, 0, 0)


class Reader:
    """Another process, which heeds the rights of files; it answers each line with one."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def asked(self, line: str) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{line}\n".encode())
        return (await self._process.stdout.readline()).decode()

    async def looked(self) -> Any:
        return json.loads(await self.asked("look"))


@asynccontextmanager
async def reader(path: Path) -> AsyncIterator[Reader]:
    """A process that reads that file, until the end of the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", "-c", LOOKS, str(path),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=_heed_rights,
    )  # fmt: skip
    try:
        yield Reader(process)
    finally:
        await process.communicate(b"")
    assert process.returncode == 0


async def test_a_store_in_a_place_that_cannot_be_written_is_read_searched_and_checked(folder: Path) -> None:
    path = folder / "of it? 100%.db"
    await (await filled(path)).close()
    unwritable(folder)
    before = path.read_bytes()
    async with reader(path) as other:
        assert await other.looked() == ALL | {"append": f"{path}: {READ_ONLY}"}
    assert path.read_bytes() == before
    assert [file.name for file in folder.iterdir()] == [path.name]


async def test_a_file_that_cannot_be_written_is_searched(folder: Path) -> None:
    path = folder / "sessions.db"
    await (await filled(path)).close()
    path.chmod(0o400)
    async with reader(path) as other:
        assert await other.looked() == ALL | {"append": f"{path}: {READ_ONLY}"}


async def test_a_search_that_reads_the_logs_finds_what_the_index_does(tmp_path: Path) -> None:
    store = await filled(tmp_path / "sessions.db")
    found = [
        [[each.session_id, each.record.seq] for each in await store.search("zebra", **asked)]
        for asked in ({}, {"session_id": "a"}, {"owner": "me"}, {"most": 2})
    ]
    assert found == [ALL[name] for name in ("all", "one", "mine", "two")]
    await store.close()


async def test_what_stands_in_a_log_alone_is_read_or_its_lack_is_told(folder: Path, tmp_path: Path) -> None:
    """A copy taken of a store in use: with the index of its log, and without."""
    store = await filled(tmp_path / "sessions.db")
    for suffix in ("", "-wal", "-shm"):
        shutil.copy(tmp_path / f"sessions.db{suffix}", folder)
    path = folder / "sessions.db"
    unwritable(folder)
    async with reader(path) as other:
        assert await other.looked() == ALL | {"append": f"{path}: {READ_ONLY}"}
    folder.chmod(0o700)
    (folder / "sessions.db-shm").unlink()
    unwritable(folder)
    says = f"{path}: its log {path}-wal cannot be taken over, as nothing can be written beside it: "
    async with reader(path) as other:
        assert set((await other.looked()).values()) == {says + "copy both to a folder that can be written"}
    await store.close()


async def test_what_somebody_writes_meanwhile_is_never_missed(folder: Path) -> None:
    path = folder / "sessions.db"
    await (await filled(path)).close()
    folder.chmod(0o500)
    async with reader(path) as other:
        assert (await other.looked())["read"] == 3
        folder.chmod(0o700)
        writer = SQLiteStore(path)
        await writer.append("a", [said("fourth")], expect=3)
        folder.chmod(0o500)
        assert (await other.looked())["read"] == 4
        folder.chmod(0o700)
        await writer.close()
        folder.chmod(0o500)
        assert (await other.looked())["read"] == 4


async def test_what_somebody_writes_while_it_is_read_is_mixed_with_nothing(folder: Path) -> None:
    path = folder / "sessions.db"
    await (await filled(path)).close()
    folder.chmod(0o500)
    async with reader(path) as other:
        assert await other.asked("hold") == "reading\n"
        folder.chmod(0o700)
        writer = SQLiteStore(path)
        await writer.append("a", [said("fourth")], expect=3)
        await writer.close()
        says = f"{path}: another process wrote to the database meanwhile: try again"
        assert json.loads(await other.asked("go on")) == says


async def test_an_old_file_that_cannot_be_brought_up_to_date_says_so(folder: Path) -> None:
    path = folder / "sessions.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as old:
        for statement in ("PRAGMA journal_mode = WAL", *MIGRATIONS[0], "PRAGMA user_version = 1"):
            old.execute(statement)
    unwritable(folder)
    says = f"{path}: an older agentloop made this database, and it cannot be brought up to date where it is "
    async with reader(path) as other:
        said_so = set((await other.looked()).values())
    assert said_so == {f"{says}read-only: copy it to a folder that can be written"}
