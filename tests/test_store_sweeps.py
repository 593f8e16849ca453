"""A sweep deletes what has expired and tells it, whatever stands beside it or comes between."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import LiteralString

import pytest

from agentloop.errors import StoreError
from agentloop.events import Described, MessageRecord
from agentloop.messages import Message
from agentloop.stores import SQLiteStore
from agentloop.stores.sqlite import tables
from tests.store_kit import AnyStore, changed_behind_its_back, made_store


def said(text: str) -> MessageRecord:
    return MessageRecord(message=Message.user(text), tokens=1, time=1.0)


@pytest.fixture(params=["sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AnyStore]:
    """A store on disc that holds three sessions which have expired."""
    made = made_store(request.param, tmp_path / "sessions.db", lambda: request.getfixturevalue("database"))
    for at, name in enumerate("abc"):
        await made.append(name, [Described(ttl_seconds=1.0, time=1.0 + at)], expect=0)
    yield made
    await made.close()


async def spoil_the_line(store: AnyStore, names: str, request: pytest.FixtureRequest) -> None:
    """Make the title of these sessions what no store writes."""
    damaged = "7" if isinstance(store, SQLiteStore) else r"'\xff'"
    await changed_behind_its_back(store, "sessions", f"title = {damaged} WHERE id LIKE '{names}'", request)


async def spoil_the_log(store: AnyStore, names: str, request: pytest.FixtureRequest) -> None:
    """Make the records of these sessions what no store writes."""
    await changed_behind_its_back(store, "events", f"body = '{{' WHERE session_id LIKE '{names}'", request)


async def test_a_damaged_line_is_made_anew_from_its_log(
    store: AnyStore, request: pytest.FixtureRequest
) -> None:
    lines = await store.list()
    await spoil_the_line(store, "b", request)
    assert await store.list() == lines
    assert await store.info("b") == lines[1]
    (fault,) = await store.check()
    assert "session 'b' is damaged" in fault
    assert sorted(info.id for info in await store.sweep(now=3.5)) == ["a", "b"]
    assert [info.id for info in await store.list()] == ["c"]


async def test_a_session_of_which_nothing_is_whole_hides_no_other(
    store: AnyStore, request: pytest.FixtureRequest
) -> None:
    await spoil_the_line(store, "b", request)
    await spoil_the_log(store, "b", request)
    assert [info.id for info in await store.list()] == ["c", "a"]
    with pytest.raises(StoreError, match="session 'b'"):
        await store.info("b")
    assert sorted(info.id for info in await store.sweep(now=9.0)) == ["a", "c"]
    assert await store.sweep(now=9.0) == ()
    assert len(await store.check()) == 1
    assert await store.delete("b")
    assert await store.check() == ()


async def test_many_damaged_sessions_hide_nothing_that_stands_behind_them(
    store: AnyStore, request: pytest.FixtureRequest
) -> None:
    for number in range(120):
        await store.append(f"n{number}", [Described(ttl_seconds=1.0, time=5.0)], expect=0)
    await spoil_the_line(store, "n%", request)
    await spoil_the_log(store, "n%", request)
    assert sorted(info.id for info in await store.sweep(now=9.0)) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("title = x'ff'", [2]),
        ("folder = 5", [2]),
        ("created = 'x'", [2]),
        ("updated = 9e999", [2]),
        ("length = 'x'", []),
    ],
)
async def test_whatever_of_a_line_is_damaged_the_log_says_it(
    change: LiteralString, found: list[int], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """A search goes by the length in the line: where that is damaged, nothing is found until it is mended."""
    store = SQLiteStore(tmp_path / "sessions.db")
    await store.append("s", [Described(title="T", folder="/f"), said("one")], expect=0)
    before, events = await store.info("s"), await store.read("s")
    await changed_behind_its_back(store, "sessions", change, request)
    assert await store.info("s") == before
    assert await store.list() == (before,)
    assert await store.read("s") == events
    assert [each.record.seq for each in await store.search("one")] == found
    assert await store.append("s", [Described(owner="me")], expect=2) == 3
    assert [each.record.seq for each in await store.search("one")] == [2]
    assert await store.check() == ()
    await store.close()


async def test_what_went_before_a_fault_is_told_by_the_sweep_that_met_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SQLiteStore(tmp_path / "sessions.db")
    for at, name in enumerate("abc"):
        await store.append(name, [Described(ttl_seconds=1.0, time=1.0 + at)], expect=0)
    sweep, left = tables.sweep, ["a"]

    def failing(*arguments: object) -> object:
        if not left:
            raise StoreError("the disc is full")
        left.pop()
        return sweep(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(tables, "MOST_SWEPT_AT_ONCE", 1)
    monkeypatch.setattr(tables, "sweep", failing)
    assert [info.id for info in await store.sweep(now=9.0)] == ["a"]
    with pytest.raises(StoreError, match="the disc is full"):
        await store.sweep(now=9.0)
    assert [info.id for info in await store.list()] == ["c", "b"]
    await store.close()
