"""Damage done to a SQLite file: right data or one clear line, never other data, nothing overwritten."""

import asyncio
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agentloop.codec import encode
from agentloop.context import Context
from agentloop.errors import ConflictError, DamagedError, StoreError
from agentloop.events import Described
from agentloop.sessions.checkpoint import checkpoint_of, context_in
from agentloop.stores import SQLiteStore
from agentloop.stores.sqlite import file as limits
from agentloop.stores.sqlite.schema import MIGRATIONS, SCHEMA_VERSION
from tests.store_kit import said

SESSIONS = ("a", "b", "c")
PAGE = 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


async def fill(path: Path) -> tuple[SQLiteStore, dict[str, list[str]]]:
    """A store with short and long records in three sessions, searched once; and all that it holds."""
    store = SQLiteStore(path)
    for name in SESSIONS:
        await store.append(name, [Described(title=f"session {name}", owner="me")], expect=0)
        for number in range(1, 25):
            text = f"{name} {number} " + "some words " * (1_500 if number % 8 == 0 else 30)
            await store.append(name, [said(text)], expect=number)
    await store.search("words", most=1)
    return store, {name: await held(store, name) for name in SESSIONS}


async def held(store: SQLiteStore, name: str) -> list[str]:
    return [encode(record.event) for record in await store.read(name)]


async def held_or_refused(path: Path, name: str) -> list[str] | None:
    """What a store opened anew reads of the session; None where it refuses in one line."""
    store = SQLiteStore(path)
    try:
        return await held(store, name)
    except StoreError as error:
        said_so = str(error)
    finally:
        await store.close()
    assert said_so.startswith(f"{path}: ")
    assert "\n" not in said_so
    return None


def cut(content: bytes, draw: random.Random) -> bytes:
    return content[: draw.randrange(1, len(content))]


def page_of_garbage(content: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(content) // PAGE) * PAGE
    return content[:start] + draw.randbytes(PAGE) + content[start + PAGE :]


def page_of_zeros(content: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(content) // PAGE) * PAGE
    return content[:start] + bytes(PAGE) + content[start + PAGE :]


def another_page(content: bytes, draw: random.Random) -> bytes:
    start, other = (draw.randrange(len(content) // PAGE) * PAGE for _ in range(2))
    return content[:start] + content[other : other + PAGE] + content[start + PAGE :]


def changed_letters(content: bytes, draw: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(draw.randrange(1, 20)):
        changed[draw.randrange(len(content))] = draw.randrange(32, 127)
    return bytes(changed)


@pytest.mark.deep
@pytest.mark.parametrize("harm", [cut, page_of_garbage, page_of_zeros, another_page, changed_letters])
@pytest.mark.parametrize("most_checked", [limits.MOST_CHECKED_BYTES, 0])
async def test_a_damaged_file_gives_right_data_or_one_line_and_stays_as_it_is(
    path: Path,
    tmp_path: Path,
    harm: Callable[[bytes, random.Random], bytes],
    most_checked: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "MOST_CHECKED_BYTES", most_checked)
    store, written = await fill(path)
    await store.close()
    whole, refused = path.read_bytes(), 0
    for seed in range(25):
        harmed = tmp_path / f"harmed{seed}.db"
        content = harm(whole, random.Random(seed))
        harmed.write_bytes(content)
        for name in SESSIONS:
            found = await held_or_refused(harmed, name)
            assert found in (None, written[name]), f"seed {seed}"
            refused += found is None
        if found is None:
            assert harmed.read_bytes() == content, f"seed {seed}"
    assert refused


@pytest.mark.deep
async def test_a_damaged_log_beside_the_file_gives_what_was_written_before(
    path: Path, tmp_path: Path
) -> None:
    store, written = await fill(path)
    log = path.with_name(f"{path.name}-wal").read_bytes()
    for seed, harm in enumerate([cut, page_of_garbage, page_of_zeros, changed_letters] * 6):
        harmed = tmp_path / f"harmed{seed}.db"
        shutil.copy(path, harmed)
        harmed.with_name(f"{harmed.name}-wal").write_bytes(harm(log, random.Random(seed)))
        for name in SESSIONS:
            found = await held_or_refused(harmed, name)
            assert found is None or found == written[name][: len(found)], f"seed {seed}"
    await store.close()


async def test_a_log_whose_database_is_empty_is_left_alone(path: Path, tmp_path: Path) -> None:
    store, _ = await fill(path)
    harmed, log = tmp_path / "harmed.db", tmp_path / "harmed.db-wal"
    shutil.copy(path.with_name(f"{path.name}-wal"), log)
    before = log.read_bytes()
    opened = SQLiteStore(harmed)
    for make_empty in (None, harmed.touch):
        if make_empty:
            make_empty()
        with pytest.raises(StoreError, match=rf"^{harmed}: the database is gone or empty, [^\n]+$"):
            await opened.append("a", [said("new")], expect=0)
    assert log.read_bytes() == before
    await store.close()


async def test_reading_an_empty_file_leaves_it_empty(path: Path) -> None:
    path.touch()
    store = SQLiteStore(path)
    assert (list(await store.read("s")), list(await store.list()), await store.info("s")) == ([], [], None)
    assert (await store.search("word"), await store.sweep(), await store.check()) == ((), (), ())
    assert path.stat().st_size == 0
    await store.close()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("DELETE FROM events WHERE session_id = 'b' AND seq = 7", "records are missing before 8"),
        ("DELETE FROM events WHERE session_id = 'b' AND seq > 20", "its line in the list says what its log"),
        ("UPDATE events SET body = replace(body, 'b 3', 'b 4') WHERE seq = 4", "record 4: damaged record"),
        ("UPDATE events SET body = 'x', sum = NULL WHERE seq = 5", "record 5: damaged record"),
        ("DELETE FROM sessions WHERE id = 'b'", "its line in the list says what its log"),
        ("UPDATE sessions SET owner = 'you' WHERE id = 'b'", "its line in the list says what its log"),
        ("UPDATE sessions SET title = x'ff' WHERE id = 'b'", "entry of session 'b' is damaged"),
        ("INSERT INTO sessions (id, created, updated, length) VALUES ('d', 1.0, 1.0, 0)", "'d': its line"),
    ],
)
async def test_the_whole_check_names_what_is_wrong(path: Path, change: str, says: str) -> None:
    store, _ = await fill(path)
    assert await store.check() == ()
    with closing(sqlite3.connect(path)) as other:
        other.execute(change)
        other.commit()
    findings = await store.check()
    assert findings
    assert all(line.startswith(f"{path}: ") for line in findings)
    assert [line for line in findings if says in line], findings
    await store.close()


async def test_the_whole_check_says_why_it_cannot_be_made(path: Path) -> None:
    store, _ = await fill(path)
    await store.close()
    path.write_bytes(path.read_bytes()[:PAGE] + b"\xff" * 10 * PAGE)
    (finding,) = await store.check()
    assert finding.startswith(f"{path}: the database is damaged: ")
    await store.close()


async def test_a_log_that_is_not_whole_is_read_in_no_part(path: Path) -> None:
    store, _ = await fill(path)
    with closing(sqlite3.connect(path)) as other:
        other.execute("DELETE FROM events WHERE session_id = 'b' AND seq > 20")
        other.commit()
    for call in (
        store.read("b"),
        store.read("b", after=3),
        store.read("b", most=24),
        store.read("b", after=20),
    ):
        with pytest.raises(DamagedError, match=rf"^{path}: the log of session 'b' is damaged: [^\n]+$"):
            await call
    with pytest.raises(ConflictError, match="has 25 records, not 20"):
        await store.append("b", [Described(title="x")], expect=20)
    assert len(await store.read("b", most=20)) == 20
    await store.close()


@pytest.mark.parametrize(
    "change", ["seq = 'x'", "event_id = 5", "body = 5", "body = x'ff'", "body = replace(body, 'b', 'c')"]
)
async def test_a_damaged_checkpoint_is_none(path: Path, change: str) -> None:
    store, _ = await fill(path)
    kept = checkpoint_of(Context(), "b")
    await store.keep_checkpoint("a", kept)
    assert await store.checkpoint("a") == kept
    with closing(sqlite3.connect(path)) as other:
        other.execute(f"UPDATE checkpoints SET {change}")
        other.commit()
    found = await store.checkpoint("a")
    assert found is None or context_in(found) is None
    await store.close()


async def test_a_file_that_another_process_brings_up_to_date_meanwhile_is_in_order(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version and the tables are read in one state of the file, whatever happens between both."""
    with closing(sqlite3.connect(path, isolation_level=None)) as old:
        for statement in ("PRAGMA journal_mode = WAL", *MIGRATIONS[0], "PRAGMA user_version = 1"):
            old.execute(statement)
    connect, tried = sqlite3.connect, []

    def meanwhile(statement: str) -> None:
        tried.append(statement)
        if len(tried) > 1 and tried[-2] == "SELECT name FROM sqlite_schema":
            monkeypatch.setattr(sqlite3, "connect", connect)
            with closing(connect(path, isolation_level=None)) as other:
                for step in (*MIGRATIONS[1], f"PRAGMA user_version = {SCHEMA_VERSION}"):
                    other.execute(step)

    def traced(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **kwargs)
        connection.set_trace_callback(meanwhile)
        return connection

    monkeypatch.setattr(sqlite3, "connect", traced)
    store = SQLiteStore(path)
    assert await store.append("a", [said("one")], expect=0) == 1
    assert "SELECT name FROM sqlite_schema" in tried
    assert await store.check() == ()
    await store.close()


async def test_a_file_just_being_switched_by_another_process_is_opened(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        first = SQLiteStore(path)
        await first.append("s", [said("one")], expect=0)
        await first.close()
        other.execute("PRAGMA journal_mode = DELETE")
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM events").fetchone()
        store = SQLiteStore(path, busy_seconds=0.05)
        assert len(await store.read("s")) == 1
        other.execute("COMMIT")
        assert await store.append("s", [said("two")], expect=1) == 2
        await store.close()


async def test_a_new_file_locked_by_another_process_is_one_clear_line(path: Path) -> None:
    store = SQLiteStore(path, busy_seconds=0.05)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(
            StoreError, match=rf"^{path}: the database is locked .* over 0.05 seconds: [^\n]+$"
        ):
            await asyncio.wait_for(store.append("s", [said("one")], expect=0), timeout=60)
        other.execute("COMMIT")
    assert await store.append("s", [said("one")], expect=0) == 1
    await store.close()
