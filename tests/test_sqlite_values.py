"""A damaged value of one row in a SQLite file: one clear line, and every other session as it was."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agentloop.errors import StoreError
from agentloop.events import Described
from agentloop.sessions import Session, checkpoint_of, describe
from agentloop.stores import SQLiteStore
from agentloop.stores.base import Lease
from tests.store_kit import said

COLUMNS: dict[str, tuple[str, ...]] = {
    "sessions": (
        *("id", "title", "folder", "created", "updated", "length", "owner", "ttl_seconds"),
        *("number", "indexed"),
    ),
    "events": ("session_id", "seq", "body", "sum"),
    "checkpoints": ("session_id", "seq", "event_id", "body"),
    "leases": ("holder", "place", "pid", "started", "since", "until"),
}
TOLD = (*COLUMNS["sessions"][:8], "session_id", "seq", "body")
"""What `check` tells of; the rest can be lost without losing anything."""
ODD = (
    "NULL",
    "x'ff'",
    "-1",
    "0",
    "1e308",
    "9e999",
    "9223372036854775807",
    "'abc'",
    "1.5",
    "CAST(x'e161' AS TEXT)",
)
"""The last is what one turned bit makes of a text: no UTF-8, in a column of text."""


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteStore]:
    """Sessions a, b and c, indexed; with a checkpoint each, and one held by a lease."""
    store = SQLiteStore(tmp_path / "sessions.db")
    for name in "abc":
        described = Described(title=name, folder="/f", owner="o", ttl_seconds=1e6, time=time.time())
        await store.append(name, [described, said("needle one"), said("two")], expect=0)
        last = (await store.read(name))[-1].event.id
        await store.keep_checkpoint(name, checkpoint_of((await Session.open(name, store)).context, last))
    await store.search("needle")
    await store.take_lease("a", lease("theirs"), seconds=3_600)
    yield store
    await store.close()


def lease(holder: str) -> Lease:
    return Lease(holder=holder, place="elsewhere", pid=1, started="", since=1.0)


def changed(path: Path, table: str, column: str, odd: str) -> bool:
    """Put that value into session a's row; False where the table itself takes no such thing."""
    where = "id = 'a'" if table == "sessions" else "session_id = 'a'"
    where += " AND seq = 2" if table == "events" else ""
    with closing(sqlite3.connect(path)) as other, other:
        try:
            other.execute(f"UPDATE {table} SET {column} = {odd} WHERE {where}")
        except sqlite3.IntegrityError:
            return False
    return True


def calls_on_it(store: SQLiteStore) -> Sequence[Callable[[], Awaitable[Any]]]:
    return (
        lambda: store.info("a"),
        lambda: store.read("a"),
        lambda: Session.open("a", store),
        lambda: store.search("needle", session_id="a"),
        lambda: store.append("a", [said("three")], expect=3),
        lambda: store.append("a", [Described(title="new")], expect=4),
        lambda: store.take_lease("a", lease("mine"), seconds=1),
        lambda: store.take_lease("a", lease("mine"), seconds=1, over="theirs"),
        lambda: store.delete("a"),
    )


async def outcome(call: Callable[[], Awaitable[Any]]) -> str:
    """What the call says, or the fault that it raised, in words."""
    try:
        found = await call()
    except StoreError as fault:
        return str(fault)
    return describe(found) if isinstance(found, Lease) else ""


CASES = [(table, column) for table, columns in COLUMNS.items() for column in columns]


@pytest.mark.deep
@pytest.mark.parametrize(("table", "column"), CASES)
async def test_a_damaged_value_harms_no_other_session(
    table: str, column: str, store: SQLiteStore, tmp_path: Path
) -> None:
    await store.close()
    path = tmp_path / "sessions.db"
    whole = path.read_bytes()
    for odd in ODD:
        path.write_bytes(whole)
        if not changed(path, table, column, odd):
            continue
        listed = [info.id for info in await store.list() if info.id in ("b", "c")]
        assert listed == ["c", "b"], odd
        assert {found.session_id for found in await store.search("needle")} >= {"b", "c"}, odd
        assert len(await store.read("b")) == 3
        if column in TOLD and table in ("sessions", "events"):
            assert await store.check(), odd
        for call in calls_on_it(store):
            assert "\n" not in await outcome(call), odd
        swept = [info.id for info in await store.sweep(now=1e12)]
        assert {"b", "c"} <= set(swept), odd
        await store.close()


async def test_a_schema_whose_fault_sqlite_cannot_tell_in_utf8_is_one_clear_line(
    store: SQLiteStore, tmp_path: Path
) -> None:
    """SQLite's own text names what it could not make sense of, by the bytes that stand there."""
    await store.close()
    path = tmp_path / "sessions.db"
    content = path.read_bytes()
    path.write_bytes(content.replace(b"CREATE INDEX sessions_folder", b"CREATE INDEX sess\xe9ons\xe9folde "))
    for call in (store.list(), store.read("a"), store.append("a", [said("x")], expect=3)):
        with pytest.raises(StoreError, match=rf"^{path}: the database is damaged: [^\n]+$"):
            await call
    (fault,) = await store.check()
    assert "the database is damaged" in fault


@pytest.mark.parametrize("odd", ["x'ff'", "CAST(x'e161' AS TEXT)", "5"])
async def test_a_search_ends_that_has_a_damaged_record_to_index(
    odd: str, store: SQLiteStore, tmp_path: Path
) -> None:
    """Also where it is the last that one transaction takes, by which the session is known again."""
    await store.append("a", [said("needle again"), said("spoilt")], expect=3)
    with closing(sqlite3.connect(tmp_path / "sessions.db")) as other, other:
        other.execute(f"UPDATE events SET body = {odd} WHERE session_id = 'a' AND seq = 5")
    async with asyncio.timeout(60):
        found = await store.search("needle", session_id="a")
    assert [each.record.seq for each in found] == [4, 2]


@pytest.mark.parametrize("until", ["1e308", "9e999", "unixepoch() + 4e8"])
async def test_a_lease_that_ends_later_than_it_can_keeps_nobody_from_the_session(
    until: str, store: SQLiteStore, tmp_path: Path
) -> None:
    for name in "ab":
        await store.take_lease(name, lease("theirs"), seconds=1e12)
    assert (await store.take_lease("a", lease("mine"), seconds=1)).holder == "theirs"
    with closing(sqlite3.connect(tmp_path / "sessions.db")) as other, other:
        assert other.execute(f"UPDATE leases SET until = {until}").rowcount == 2
    assert (await store.take_lease("a", lease("mine"), seconds=60)).holder == "mine"
    assert {info.id for info in await store.sweep(now=1e12)} == {"b", "c"}
