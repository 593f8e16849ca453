"""How much of a SQLite file is checked, and when: what could not be looked at is not called damaged."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from agentloop.errors import DamagedError, StoreError
from agentloop.stores import SQLiteStore
from agentloop.stores.sqlite import file as limits
from tests.store_kit import said, texts

PAGE = 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


async def harmed(path: Path) -> bytes:
    """Make a file in whose middle pages are zeros: what it holds then."""
    store = SQLiteStore(path)
    for name in "abc":
        await store.append(
            name, [said(f"{name} {number} " + "word " * 600) for number in range(40)], expect=0
        )
    await store.close()
    pages = path.read_bytes()
    middle = len(pages) // PAGE // 2 * PAGE
    path.write_bytes(pages[:middle] + bytes(10 * PAGE) + pages[middle + 10 * PAGE :])
    return path.read_bytes()


async def test_a_store_that_another_process_holds_is_not_called_damaged(path: Path) -> None:
    store = SQLiteStore(path, busy_seconds=0.05)
    await store.append("s", [said("one")], expect=0)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(
            StoreError, match=rf"^{path}: the database is locked by another process"
        ) as caught:
            await store.check()
        assert not isinstance(caught.value, DamagedError)
        other.execute("ROLLBACK")
    assert await store.check() == ()
    await store.close()


async def test_a_newer_versions_file_and_another_programs_are_not_called_damaged(path: Path) -> None:
    for statement, says in {
        "PRAGMA application_id = 7": "belongs to another program",
        "PRAGMA application_id = 0x61676c70; PRAGMA user_version = 99": "a newer agentloop wrote",
    }.items():
        with closing(sqlite3.connect(path)) as other:
            other.executescript(statement)
        store = SQLiteStore(path)
        with pytest.raises(StoreError, match=f"^{path}: [^\n]*{says}") as caught:
            await store.check()
        assert not isinstance(caught.value, DamagedError)
        await store.close()


async def test_a_large_damaged_file_is_not_written_to(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = await harmed(path)
    monkeypatch.setattr(limits, "MOST_CHECKED_BYTES", PAGE)
    store = SQLiteStore(path)
    assert [info.id for info in await store.list()] == ["c", "b", "a"]
    assert len(await store.read("a")) == 40
    for call in (
        store.append("a", [said("new")], expect=40),
        store.append("new", [said("new")], expect=0),
        store.delete("c"),
        store.search("word"),
    ):
        with pytest.raises(DamagedError, match=rf"^{path}: the database is damaged: restore a copy[^\n]+$"):
            await call
    assert [line for line in await store.check() if line.startswith(f"{path}: ")]
    await store.close()
    assert path.read_bytes() == content


async def test_a_whole_file_is_looked_through_once_before_the_first_write(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, done = SQLiteStore(path, busy_seconds=0.05), list[str]()
    await store.append("s", [said("one"), said("x" * 3 * PAGE)], expect=0)
    await store.close()
    monkeypatch.setattr(limits, "MOST_CHECKED_BYTES", PAGE)
    connect = sqlite3.connect

    def traced(*args: object, **kwargs: object) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **kwargs)  # type: ignore[call-overload]
        connection.set_trace_callback(done.append)
        return connection

    monkeypatch.setattr(sqlite3, "connect", traced)
    assert len(await store.read("s")) == 2
    assert "PRAGMA quick_check(1)" not in done
    assert await store.append("s", [said("more")], expect=2) == 3
    with closing(connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked"):
            await store.append("s", [said("more")], expect=3)
    assert await store.append("s", [said("more")], expect=3) == 4
    assert (done.count("PRAGMA quick_check(sessions)"), done.count("PRAGMA quick_check(1)")) == (2, 1)
    await store.close()
    monkeypatch.setattr(limits, "MOST_CHECKED_TO_WRITE_BYTES", PAGE)
    done.clear()
    again = SQLiteStore(path)
    assert await again.append("s", [said("last")], expect=4) == 5
    assert "PRAGMA quick_check(1)" not in done
    assert (await texts(again))[-1] == "last"
    await again.close()
