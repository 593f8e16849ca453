"""A damaged full-text index of a SQLite file: the logs are read, and one line says what cannot be done."""

import sqlite3
from collections.abc import Awaitable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agentloop.errors import DamagedError
from agentloop.stores import SQLiteStore
from tests.store_kit import said

DAMAGES = (
    "UPDATE words_data SET block = x'ffffffffffffff' WHERE id > 100",
    "DELETE FROM words_data",
    "DELETE FROM words_content",
    "UPDATE words_config SET v = 99",
    "DROP TABLE words_data",
    "DROP TABLE words",
    "UPDATE sessions SET number = 'x', indexed = 'x' WHERE id = 'b'",
    "UPDATE sessions SET number = 9e18 WHERE id = 'b'",
    "UPDATE sessions SET number = -7, indexed = -7 WHERE id = 'b'",
)


async def damaged(path: Path, how: str) -> SQLiteStore:
    """A store of three sessions that were searched, its index damaged since."""
    store = SQLiteStore(path)
    for name in "abc":
        await store.append(name, [said(f"needle {name} " * 20)], expect=0)
    assert len(await store.search("needle")) == 3
    await store.close()
    with closing(sqlite3.connect(path)) as other, other:
        other.executescript(how)
    return store


async def fault_of(call: Awaitable[Any]) -> str | None:
    """What the call says is damaged; None where it does its work."""
    try:
        await call
    except DamagedError as error:
        return str(error)
    return None


@pytest.mark.parametrize("how", DAMAGES)
async def test_a_damaged_index_is_one_clear_line_for_who_needs_it(how: str, tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    store = await damaged(path, how)
    faults = [await fault_of(call) for call in (store.search("needle"), store.delete("b"))]
    assert all(fault is None or (fault.startswith(f"{path}: ") and "\n" not in fault) for fault in faults)
    await store.close()


@pytest.mark.parametrize("how", DAMAGES[:4])
async def test_a_damaged_index_keeps_nobody_from_a_log(how: str, tmp_path: Path) -> None:
    store = await damaged(tmp_path / "sessions.db", how)
    assert [len(await store.read(name)) for name in "abc"] == [1, 1, 1]
    assert await store.append("a", [said("more")], expect=1) == 2
    await store.close()
