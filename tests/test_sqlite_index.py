"""A damaged full-text index of a SQLite file stands in nobody's way: nothing is in it that no log has."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from agentloop.events import Described
from agentloop.stores import SQLiteStore
from agentloop.stores.sqlite.file import is_of_index
from tests.store_kit import said

DAMAGES = (
    "UPDATE words_data SET block = x'00' WHERE id = 10",
    "UPDATE words_data SET block = x'ffffffffffffff' WHERE id > 100",
    "UPDATE words_data SET block = 'x'",
    "DELETE FROM words_data",
    "DELETE FROM words_content",
    "DELETE FROM words_config",
    "UPDATE words_config SET v = 99",
    "DROP TABLE words_data",
    "DROP TABLE words",
    """PRAGMA writable_schema = ON; UPDATE sqlite_schema
        SET sql = replace(sql, 'ascii', 'asciJ') WHERE name = 'words'""",
    "UPDATE sessions SET number = 'x' WHERE id = 'b'",
    "UPDATE sessions SET number = 9e18 WHERE id = 'b'",
    "UPDATE sessions SET number = -7 WHERE id = 'b'",
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


async def damaged(path: Path, how: str) -> SQLiteStore:
    """A store of three sessions that were searched, its index damaged since."""
    store = SQLiteStore(path)
    for name in "abc":
        events = [Described(ttl_seconds=1.0, time=1.0), said(f"needle {name} " * 20)]
        await store.append(name, events, expect=0)
    assert len(await store.search("needle")) == 3
    await store.close()
    with closing(sqlite3.connect(path)) as other, other:
        other.executescript(how)
    return store


async def found_in(store: SQLiteStore) -> list[str]:
    """The sessions in which a search finds the word of all of them."""
    return sorted(found.session_id for found in await store.search("needle"))


async def left(store: SQLiteStore, *names: str) -> None:
    """These sessions are there, and their words found, before a check mends the index as behind it."""
    assert sorted(info.id for info in await store.list()) == sorted(names)
    assert await found_in(store) == sorted(names)
    await store.check()
    assert await found_in(store) == sorted(names)
    assert await store.check() == ()
    await store.close()


@pytest.mark.parametrize("how", DAMAGES)
async def test_a_damaged_index_keeps_no_session_from_being_deleted(how: str, path: Path) -> None:
    store = await damaged(path, how)
    assert await store.delete("b")
    await left(store, "a", "c")


@pytest.mark.parametrize("how", DAMAGES)
async def test_a_damaged_index_keeps_no_session_from_a_sweep(how: str, path: Path) -> None:
    store = await damaged(path, how)
    await store.append("kept", [said("needle")], expect=0)
    assert sorted(info.id for info in await store.sweep(now=1e12)) == ["a", "b", "c"]
    await left(store, "kept")


@pytest.mark.parametrize("how", DAMAGES)
async def test_a_damaged_index_is_told_of_once_and_is_whole_then(how: str, path: Path) -> None:
    store = await damaged(path, how)
    (fault,) = await store.check()
    assert fault.startswith(f"{path}: the full-text index was damaged: ")
    assert await store.check() == ()
    await left(store, "a", "b", "c")


@pytest.mark.parametrize("how", [how for how in DAMAGES if how.startswith(("D", "UPDATE words_config"))])
async def test_a_search_that_fails_for_a_damaged_index_is_made_again(how: str, path: Path) -> None:
    store = await damaged(path, how)
    assert await found_in(store) == ["a", "b", "c"]
    await left(store, "a", "b", "c")


async def test_words_that_were_left_behind_are_in_no_later_sessions_way(path: Path) -> None:
    store = await damaged(path, "UPDATE sessions SET number = NULL WHERE id = 'c'")
    assert await store.delete("c")
    await store.append("d", [Described(time=1.0), said("needle d")], expect=0)
    await left(store, "a", "b", "d")


def test_what_newer_versions_of_sqlite_say_of_the_index_is_no_damage_of_a_log() -> None:
    assert is_of_index("malformed inverted index for FTS5 table main.words")
    assert not is_of_index("row 7 missing from index sessions_owner")
