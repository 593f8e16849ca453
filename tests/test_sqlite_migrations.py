"""Each step of the schema of a SQLite file: from a real file of the version before, nothing is lost."""

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest

from agentloop.codec import encode
from agentloop.errors import StoreError
from agentloop.events import Described, Event, MessageRecord
from agentloop.messages import Message
from agentloop.stores import SQLiteStore
from agentloop.stores.sqlite.schema import MIGRATIONS, SCHEMA_VERSION, TABLES
from agentloop.stores.sqlite.tables import EXPIRED, LISTS

VERSION_1 = (
    """CREATE TABLE events (
        session_id TEXT NOT NULL, seq INTEGER NOT NULL, body TEXT NOT NULL,
        PRIMARY KEY (session_id, seq)) WITHOUT ROWID""",
    """CREATE TABLE sessions (
        id TEXT PRIMARY KEY NOT NULL, title, folder,
        created REAL NOT NULL, updated REAL NOT NULL, length INTEGER NOT NULL) WITHOUT ROWID""",
    "PRAGMA application_id = 0x61676C70",
    "PRAGMA user_version = 1",
    "PRAGMA journal_mode = WAL",
)
"""The statements by which version 1 made a file; they stay as they were."""

DIGESTS = ["e0b7ae3bc8f1d994", "0c2704e9b28c6a1e"]
"""The first half of the SHA-256 of each step's statements: a step that files have gone stays as it was."""

OPENER = """
import asyncio, sys
from agentloop.stores import SQLiteStore

async def main():
    store = SQLiteStore(sys.argv[1])
    print(len(await store.read("a")), len(await store.list()))
    await store.close()

sys.stdin.readline()
asyncio.run(main())
"""


def said(text: str) -> MessageRecord:
    return MessageRecord(message=Message.user(text), tokens=1, time=2.0)


LOGS: dict[str, list[Event]] = {
    "a": [Described(title="Alpha \ud800", folder="/here", time=1.0), said("one"), said("two\0 日本")],
    "b": [said("long " * 100_000)],
}


def of_version_1(path: Path) -> None:
    """A file as version 1 left it, with two sessions."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in VERSION_1:
            connection.execute(statement)
        for name, events in LOGS.items():
            rows = [(name, seq, encode(event)) for seq, event in enumerate(events, 1)]
            connection.executemany("INSERT INTO events VALUES (?, ?, ?)", rows)
            title = "Alpha \ud800".encode("utf-8", "surrogatepass") if name == "a" else None
            line = (name, title, "/here" if name == "a" else None, events[0].time, 2.0, len(events))
            connection.execute("INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?)", line)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


def dumped(path: Path) -> list[object]:
    """All that stands in the file, with its version."""
    with closing(sqlite3.connect(path)) as connection:
        schema = connection.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall()
        tables = [(name, " ".join((statement or "").split())) for name, statement in schema]
        rows = [connection.execute(f"SELECT * FROM {name}").fetchall() for name in ("events", "sessions")]
        return [connection.execute("PRAGMA user_version").fetchone(), tables, rows]


def test_a_step_that_files_have_gone_is_never_changed() -> None:
    found = [sha256("\0".join(step).encode()).hexdigest()[:16] for step in MIGRATIONS]
    assert found == DIGESTS, "add a step of its own instead, and its digest here"
    assert len(MIGRATIONS) == SCHEMA_VERSION == len(TABLES) - 1


async def test_step_1_to_2_loses_nothing(path: Path) -> None:
    of_version_1(path)
    store = SQLiteStore(path)
    for name, events in LOGS.items():
        assert [encode(record.event) for record in await store.read(name)] == list(map(encode, events))
    lines = [(i.id, i.title, i.folder, i.created, i.updated, i.length, i.owner) for i in await store.list()]
    assert lines == [("a", "Alpha \ud800", "/here", 1.0, 2.0, 3, None), ("b", None, None, 2.0, 2.0, 1, None)]
    assert [(found.session_id, found.record.seq) for found in await store.search("日本")] == [("a", 3)]
    assert await store.append("a", [Described(owner="me", ttl_seconds=1.0, time=3.0)], expect=3) == 4
    assert [info.id for info in await store.list(owner="me")] == ["a"]
    assert await store.check() == ()
    await store.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)


async def test_a_file_brought_up_to_date_has_the_tables_of_a_new_one(path: Path, tmp_path: Path) -> None:
    of_version_1(path)
    new = tmp_path / "new.db"
    for each in (path, new):
        store = SQLiteStore(each)
        await store.append("c", [said("one")], expect=0)
        await store.close()
    assert dumped(path)[:2] == dumped(new)[:2]


async def test_a_step_that_fails_leaves_the_file_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_version_1(path)
    before, connect = dumped(path), sqlite3.connect
    (pages,) = connect(path).execute("PRAGMA page_count").fetchone()

    def on_a_full_disc(*args: object, **kwargs: object) -> sqlite3.Connection:
        connection = connect(*args, **kwargs)  # type: ignore[call-overload]
        connection.execute(f"PRAGMA max_page_count = {pages + 4}")
        return connection  # type: ignore[no-any-return]

    monkeypatch.setattr(sqlite3, "connect", on_a_full_disc)
    store = SQLiteStore(path)
    with pytest.raises(StoreError, match=rf"^{path}: the disc is full: [^\n]+$"):
        await store.read("a")
    monkeypatch.undo()
    assert dumped(path) == before
    assert len(await store.read("a")) == 3
    await store.close()


@pytest.mark.deep
@pytest.mark.parametrize("statement", range(len(MIGRATIONS[1])))
def test_a_process_killed_in_the_middle_of_a_step_leaves_the_file_as_it_was(
    path: Path, statement: int
) -> None:
    of_version_1(path)
    before = dumped(path)
    script = (
        "import os, sys, sqlite3\n"
        "connection = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "from agentloop.stores.sqlite.schema import MIGRATIONS\n"
        "connection.execute('PRAGMA cache_size = 1')\n"
        "connection.execute('BEGIN IMMEDIATE')\n"
        "for each in MIGRATIONS[1][: int(sys.argv[2]) + 1]:\n"
        "    connection.execute(each)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(path), str(statement)], check=False, timeout=60)
    assert dumped(path) == before


async def test_processes_that_open_an_old_file_at_once_go_the_steps_once(path: Path) -> None:
    of_version_1(path)
    pipe = asyncio.subprocess.PIPE
    openers = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", OPENER, str(path), stdin=pipe, stdout=pipe)
        for _ in range(4)
    ]
    said_so = await asyncio.gather(*(opener.communicate(b"go\n") for opener in openers))
    assert [out for out, _ in said_so] == [b"3 2\n"] * 4
    store = SQLiteStore(path)
    assert await store.check() == ()
    await store.close()


@pytest.mark.parametrize(
    ("statement", "plan"),
    [
        (LISTS[False, False], "SCAN sessions"),
        (LISTS[True, False], "SEARCH sessions USING INDEX sessions_folder (folder=?)"),
        (LISTS[False, True], "SEARCH sessions USING INDEX sessions_owner (owner=?)"),
        (EXPIRED, "SEARCH sessions USING INDEX sessions_expires (expires<?)"),
    ],
)
async def test_lists_and_sweeps_find_sessions_by_an_index(path: Path, statement: str, plan: str) -> None:
    store = SQLiteStore(path)
    await store.append("s", [said("one")], expect=0)
    await store.close()
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}", ["x"] * statement.count("?")).fetchall()
    assert rows[0][3] == plan
