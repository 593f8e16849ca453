"""Sessions of which a record is damaged: what is good of them can still be taken away."""

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from agentloop.cli.sessions.command import Opened
from agentloop.cli.sessions.show import faults_of
from agentloop.cli.settings import settings_for
from agentloop.errors import StoreError
from agentloop.events import Compacted, Described, Event, EventFilter, MessageRecord, Record, Restored
from agentloop.messages import Message
from agentloop.sessions.pages import PAGE_RECORDS, read_good_pages, read_pages
from agentloop.stores import PostgresStore, SQLiteStore
from tests.cli_kit import Finished, agentloop
from tests.postgres_kit import other_program
from tests.store_kit import CountingStore

COUNT, DAMAGED, MISSING = 2 * PAGE_RECORDS + 20, PAGE_RECORDS + 50, PAGE_RECORDS + 60


def said(position: int) -> MessageRecord:
    branch = "scout" if position == COUNT - 5 else None
    return MessageRecord(message=Message.user(f"number {position}"), tokens=1, branch=branch)


async def stored(folder: Path, events: list[Event], name: str = "s") -> None:
    """A session in the database that calls from that folder use."""
    store = SQLiteStore(folder / "agentloop" / "sessions.db")
    await store.append(name, events, expect=0)
    await store.close()


def changed(folder: Path, statement: str) -> None:
    """What the disc did to the file."""
    with closing(sqlite3.connect(folder / "agentloop" / "sessions.db")) as connection, connection:
        connection.execute(statement)


@pytest.fixture
async def place(tmp_path: Path) -> Path:
    """A folder whose store holds a session `s` with one record damaged and one missing."""
    await stored(tmp_path, [said(position) for position in range(1, COUNT + 1)])
    changed(tmp_path, f"UPDATE events SET body = replace(body, 'number', 'numbxr') WHERE seq = {DAMAGED}")
    changed(tmp_path, f"DELETE FROM events WHERE seq = {MISSING}")
    return tmp_path


def export(place: Path, *options: str) -> Finished:
    return agentloop("sessions", "export", "s", *options, cwd=place)


def positions(done: Finished) -> list[int]:
    return [json.loads(line)["position"] for line in done.out.splitlines()]


@pytest.mark.deep
@pytest.mark.parametrize(
    ("asked", "first", "last"),
    [
        (f"1-{PAGE_RECORDS}", 1, PAGE_RECORDS),
        (f"{DAMAGED - 60}-{DAMAGED - 1}", DAMAGED - 60, DAMAGED - 1),
        (f"{DAMAGED + 1}-{MISSING - 1}", DAMAGED + 1, MISSING - 1),
        (f"{MISSING + 1}-", MISSING + 1, COUNT),
    ],
)
def test_a_range_that_leaves_the_damage_out_is_exported(
    asked: str, first: int, last: int, place: Path
) -> None:
    done = export(place, "--format", "events", "--range", asked)
    assert (done.status, done.err) == (0, "")
    assert positions(done) == list(range(first, last + 1))
    assert export(place, "--range", asked, "--format", "markdown", "-o", "out").status == 0
    assert (place / "out").read_text().count("number ") == last - first + 1


@pytest.mark.deep
@pytest.mark.parametrize("shape", ["events", "markdown", "openai"])
def test_a_damaged_record_of_what_is_asked_for_is_one_line_and_no_file(shape: str, place: Path) -> None:
    for options in ((), ("--range", f"{DAMAGED}-"), ("--range", f"{MISSING}"), ("--branch", "scout")):
        done = export(place, "--format", shape, *options, "-o", "out")
        assert done.status == 1
        assert "damaged" in done.complaint()
        assert not (place / "out").exists()


@pytest.mark.deep
def test_with_skip_the_good_records_come_out_each_damaged_one_told_once(place: Path) -> None:
    done = export(place, "--format", "events", "--damaged", "skip")
    assert done.status == 0
    assert positions(done) == [at for at in range(1, COUNT + 1) if at not in (DAMAGED, MISSING)]
    told = done.err.splitlines()
    assert [line.split(":")[1] for line in told] == [
        f" record {DAMAGED} is left out",
        f" record {MISSING} is left out",
    ]
    messages = json.loads(export(place, "--damaged", "skip").out)
    assert len(messages) == COUNT - 3
    shown = agentloop("sessions", "show", "s", "--damaged", "skip", cwd=place)
    assert (shown.status, shown.out.count("number "), shown.err) == (0, COUNT - 2, done.err)


@pytest.mark.deep
def test_skip_and_a_filter_go_together(place: Path) -> None:
    done = export(place, "--branch", "scout", "--damaged", "skip")
    assert [message["content"] for message in json.loads(done.out)] == [f"number {COUNT - 5}"]
    assert len(done.err.splitlines()) == 2
    ranged = export(
        place, "--format", "events", "--range", f"{DAMAGED - 1}-{DAMAGED + 1}", "--damaged", "skip"
    )
    assert positions(ranged) == [DAMAGED - 1, DAMAGED + 1]
    assert f"record {DAMAGED} is left out" in ranged.complaint()
    beyond = export(place, "--run", "none", "--damaged", "skip")
    assert beyond.status == 2
    assert "--run: the session has no 'none'" in beyond.complaint()


def test_a_name_that_lies_outside_of_the_range_is_known(place: Path) -> None:
    early = export(place, "--range", "1-9", "--branch", "scout", "--damaged", "skip")
    assert (early.status, json.loads(early.out)) == (0, [])
    assert "nothing in the session is all of what was asked for" in early.complaint()


@pytest.mark.deep
async def test_what_points_at_a_damaged_record_is_left_out_with_it_and_the_rest_comes_back_in(
    tmp_path: Path,
) -> None:
    covering = Compacted(covers=((2, 3),), replacement="so far", at=4, tokens=1)
    kept = replace(covering, covers=((3, 4),))
    await stored(tmp_path, [*map(said, range(1, 5)), covering, Restored(seq=5), kept])
    changed(tmp_path, "UPDATE events SET body = 'x' WHERE seq = 2")
    done = export(tmp_path, "--format", "events", "--damaged", "skip")
    assert (done.status, positions(done)) == (0, [1, 3, 4, 7])
    assert [line.split(": ", 1)[1] for line in done.err.splitlines()][1:] == [
        "record 5 is left out: it points at record 2, which is left out",
        "record 6 is left out: it points at record 5, which is left out",
    ]
    (tmp_path / "out").write_text(done.out)
    assert agentloop("sessions", "import", "out", "--session", "again", cwd=tmp_path).status == 0
    texts = [
        message["content"]
        for message in json.loads(agentloop("sessions", "export", "again", cwd=tmp_path).out)
    ]
    assert texts == ["number 1", "number 3", "number 4"]
    assert export(tmp_path, "--format", "events", "--range", "3-4", "-o", "part").status == 0
    assert agentloop("sessions", "import", "part", cwd=tmp_path).status == 0


class Unreadable(CountingStore):
    """A store that cannot be reached any more."""

    async def read(self, session_id: str, *, after: int = 0, most: int | None = None) -> Sequence[Record]:
        raise StoreError("the server is gone")

    async def info(self, session_id: str) -> None:
        raise StoreError("the server is gone")


@pytest.mark.deep
@pytest.mark.parametrize("words", [("s",), ("--owner", "ann")], ids=["id", "owner"])
async def test_a_check_calls_nothing_damaged_that_it_could_not_read(
    words: tuple[str, ...], database: str, tmp_path: Path
) -> None:
    store = PostgresStore(database)
    await store.append("s", [Described(owner="ann"), said(1)], expect=0)
    await store.close()
    check = ("sessions", "check", *words, "--store", f"{database}&options=-clock_timeout%3D50ms")
    async with other_program(database) as other, other.transaction():
        await other.execute("LOCK TABLE agentloop_events")
        done = agentloop(*check, cwd=tmp_path)
        assert (done.status, done.out) == (1, "")
        assert "another writer held a lock for too long: try again" in done.complaint()
        assert "restore" not in done.err
    assert agentloop(*check, cwd=tmp_path).complaint() == "agentloop: all is well"


class GoneMeanwhile(CountingStore):
    """A store from which a session is deleted once it was found."""

    async def read(self, session_id: str, *, after: int = 0, most: int | None = None) -> Sequence[Record]:
        await self.delete(session_id)
        return await super().read(session_id, after=after, most=most)


async def test_a_check_passes_over_what_is_deleted_meanwhile(tmp_path: Path) -> None:
    settings = settings_for({}, {"AGENTLOOP_HOME": str(tmp_path)})
    gone = GoneMeanwhile()
    await gone.append("s", [said(1)], expect=0)
    assert await faults_of(Opened(store=gone, settings=settings), await gone.list()) == []


async def test_a_check_of_some_sessions_names_what_is_damaged(place: Path) -> None:
    await stored(place, [Described(owner="ann"), said(2)], "anns")
    changed(place, "UPDATE events SET body = 'x' WHERE session_id = 'anns' AND seq = 2")
    for words, name in (
        (("s",), "the log of session 's' is damaged"),
        (("--owner", "ann"), "'anns', record 2"),
    ):
        done = agentloop("sessions", "check", *words, cwd=place)
        assert (done.status, len(done.out.splitlines())) == (1, 1)
        assert name in done.out
        assert done.complaint().endswith("1 fault found: restore a copy of what is damaged")


async def test_a_store_that_cannot_be_read_has_no_damaged_records() -> None:
    store, told = CountingStore(), list[str]()
    await store.append("s", [said(1), said(2)], expect=0)
    info = await store.info("s")
    assert info
    with pytest.raises(StoreError, match="the server is gone"):
        [page async for page in read_good_pages(Unreadable(), info, tell=told.append)]
    await store.delete("s")
    with pytest.raises(StoreError, match="'s' ends at record 0 of 2"):
        [page async for page in read_good_pages(store, info, tell=told.append)]
    assert told == []


async def test_of_a_range_nothing_else_is_read() -> None:
    store = CountingStore()
    await store.append("s", [said(at) for at in range(1, COUNT + 1)], expect=0)
    info = await store.info("s")
    assert info
    only = EventFilter(first=7, last=PAGE_RECORDS + 7)
    read = [record.seq async for page in read_pages(store, info, only) for record in page]
    assert read == list(range(7, PAGE_RECORDS + 8))
    assert [count for verb, count in store.moved if verb == "read"] == [PAGE_RECORDS, 1]
