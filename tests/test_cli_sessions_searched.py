"""Stored sessions found again by their words, listed by the index alone, and looked through for faults."""

import asyncio
import json
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentloop.cli.resume import find_session
from agentloop.cli.sessions.command import Opened
from agentloop.cli.sessions.show import faults_of
from agentloop.cli.settings import settings_for
from agentloop.context import Context
from agentloop.errors import SessionNotFoundError, UsageError
from agentloop.events import Compacted, Described, Event, MessageRecord, Record
from agentloop.messages import Message, ToolCall
from agentloop.sessions import PAGE_RECORDS, checkpoint_of
from agentloop.stores import SQLiteStore
from agentloop.stores.base import Checkpoint, SessionInfo
from tests.cli_kit import Finished, agentloop
from tests.store_kit import CheckpointingStore

SECRET = "ghp_" + "a1B2" * 9
DATABASE = Path("agentloop") / "sessions.db"


def added(message: Message, time: float) -> MessageRecord:
    return MessageRecord(message=message, tokens=1, time=time)


def asked(path: str) -> Message:
    return Message.assistant(None, [ToolCall(id="1", name="read_file", arguments=json.dumps({"path": path}))])


def a_log(folder: Path, time: float, owner: str | None, *texts: str) -> Sequence[Event]:
    """User messages and, last, a compaction that hides the first."""
    said = [added(Message.user(text), time + n) for n, text in enumerate(texts)]
    hides = Compacted(covers=((1, 1),), replacement="of old times", at=2, tokens=1, time=time)
    return [*said, hides, Described(title="T", folder=str(folder), owner=owner, time=time + 50)]


async def stored(folder: Path) -> None:
    store = SQLiteStore(folder / DATABASE)
    logs = {
        "mine": a_log(folder, 100.0, "ann", "a blue whale", "the whale is here", f"whale key {SECRET} end"),
        "other": a_log(folder / "elsewhere", 200.0, "ann", "another whale", "and a fox"),
        "bobs": a_log(folder, 300.0, "bob", "Bob saw a whale", "nothing more"),
    }
    for name, events in logs.items():
        await store.append(name, events, expect=0)
    await store.append("mine", [added(asked("whales/orca.txt"), 160.0)], expect=5)
    await store.close()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two sessions of its own and one of another folder, of two owners."""
    folder = tmp_path_factory.mktemp("searched")
    asyncio.run(stored(folder))
    return folder


def search(*arguments: str, cwd: Path) -> Finished:
    done = agentloop("sessions", "search", *arguments, cwd=cwd)
    assert done.status == 0, done.err
    return done


def places(*arguments: str, cwd: Path) -> list[tuple[str, int]]:
    return [
        (each["session_id"], each["seq"]) for each in json.loads(search(*arguments, "--json", cwd=cwd).out)
    ]


def test_words_are_found_newest_first_hidden_ones_too(place: Path) -> None:
    assert places("whale", cwd=place) == [("bobs", 1), ("mine", 3), ("mine", 2), ("mine", 1)]
    assert places("blue WHALE", cwd=place) == [("mine", 1)]
    assert places('"whale is"', cwd=place) == [("mine", 2)]
    assert places("orca", cwd=place) == [("mine", 6)]
    assert places('"is whale"', cwd=place) == []


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (("--all",), {"bobs", "mine", "other"}),
        (("--owner", "ann"), {"mine"}),
        (("--owner", "ann", "--all"), {"mine", "other"}),
        (("--session", "oth"), {"other"}),
        (("-n", "1"), {"bobs"}),
        (("-n", "1", "--owner", "ann"), {"mine"}),
        (("--workdir-of-nobody",), None),
        (("-n", "0"), None),
        (("-n", "x"), None),
        (("--session", "nobody"), None),
        (("--session", "bobs", "--owner", "ann"), None),
    ],
)
def test_a_search_is_bound_to_what_is_asked_for(
    options: tuple[str, ...], wanted: set[str] | None, place: Path
) -> None:
    if wanted is None:
        done = agentloop("sessions", "search", "whale", *options, cwd=place)
        assert (done.status, done.out) == (2, "")
        assert done.complaint()
    else:
        assert {session_id for session_id, _ in places("whale", *options, cwd=place)} == wanted


def test_a_line_says_where_who_when_and_what(place: Path) -> None:
    _, line = search("blue", cwd=place).out.splitlines()
    session_id, seq, who, when, text = line.split("\t")
    assert (session_id, seq, who, text) == ("mine", "1", "user", "a blue whale")
    assert when.startswith(("1970-01-01", "1969-12-31"))
    kinds = [line.split("\t")[2] for line in search("times", "--all", cwd=place).out.splitlines()][1:]
    assert kinds == ["compacted"] * 3
    (found,) = json.loads(search("blue", "--json", cwd=place).out)
    assert found == {
        "session_id": "mine",
        "seq": 1,
        "kind": "message_added",
        "role": "user",
        "time": 100.0,
        "text": "a blue whale",
    }


@pytest.mark.deep
def test_a_secret_is_not_shown_where_it_is_cut(place: Path) -> None:
    for words in ("key end", "whale", SECRET):
        for options in ((), ("--json",)):
            out = search(words, *options, cwd=place).out
            assert SECRET[:12] not in out
            assert "whale key [redacted: GitHub token] end" in out
    assert SECRET in search("key end", "--redact", "off", cwd=place).out


def test_nothing_found_is_said_and_no_failure(place: Path) -> None:
    here = search("fox", cwd=place)
    assert (here.out, "in this folder; --all" in here.complaint()) == ("", True)
    everywhere = search("dragon", "--all", "--json", cwd=place)
    assert (everywhere.out, everywhere.complaint()) == ("[]\n", "agentloop: nothing found")


@pytest.mark.parametrize("text", ["", "  ", '""', "?!", "\u0301"])
def test_no_word_is_a_wrong_call(text: str, place: Path) -> None:
    done = agentloop("sessions", "search", "--", text, cwd=place)
    assert (done.status, done.out) == (2, "")
    assert "word" in done.complaint()


def test_a_store_that_is_not_there_finds_nothing_and_is_not_made(tmp_path: Path) -> None:
    assert search("whale", cwd=tmp_path).out == ""
    assert not (tmp_path / DATABASE).exists()


class Plain:
    """A store of somebody's own, which cannot be searched."""


def opened(store: Any, tmp_path: Path) -> Opened:
    settings = settings_for({"workdir": str(tmp_path)}, {"AGENTLOOP_HOME": str(tmp_path)})
    return Opened(store=store, settings=settings)


async def test_a_store_that_cannot_be_searched_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^a Plain cannot be searched: [^\n]*$"):
        await opened(Plain(), tmp_path).sessions.search("whale")


class Counting(CheckpointingStore):
    """Counts the records that are read, and the lists."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: Counter[tuple[str, int]] = Counter()
        self.lists = 0

    async def read(self, session_id: str, *, after: int = 0, most: int | None = None) -> Sequence[Record]:
        page = await super().read(session_id, after=after, most=most)
        self.reads.update((session_id, record.seq) for record in page)
        return page

    async def list(self, *, folder: str | None = None, owner: str | None = None) -> Sequence[SessionInfo]:
        self.lists += 1
        return await super().list(folder=folder, owner=owner)


async def test_a_check_reads_each_record_once_and_judges_the_checkpoint_by_that(tmp_path: Path) -> None:
    store = Counting()
    said = [added(Message.user(f"word {n}"), 1.0) for n in range(2 * PAGE_RECORDS)]
    for name in ("right", "wrong"):
        await store.append(name, said, expect=0)
    right = checkpoint_of(
        Context.of(await store.read("right", most=PAGE_RECORDS + 5)), said[PAGE_RECORDS + 4].id
    )
    await store.keep_checkpoint("right", right)
    await store.keep_checkpoint("wrong", replace(right, event_id=said[0].id))
    store.reads.clear()
    assert await faults_of(opened(store, tmp_path), await store.list()) == []
    assert set(store.reads.values()) == {1}
    assert len(store.reads) == 4 * PAGE_RECORDS
    assert [await store.checkpoint(name) for name in ("right", "wrong")] == [right, None]


async def test_an_id_is_looked_up_without_a_list(tmp_path: Path) -> None:
    store = Counting()
    for name, owner in (("mine", "ann"), ("bobs", "bob"), ("mine-too", "ann")):
        await store.append(name, [Described(title=f"of {owner}", owner=owner)], expect=0)
    await store.append("titled", [Described(title="bobs", owner="ann")], expect=0)
    for owner in (None, "ann"):
        assert (await find_session("mine", store, owner=owner)).id == "mine"
    assert store.lists == 0
    assert (await find_session("bobs", store, owner="bob")).id == "bobs"
    assert (await find_session("bobs", store, owner="ann")).id == "titled", "another's id, one's own title"
    assert (await find_session("of bob", store)).id == "bobs"
    with pytest.raises(SessionNotFoundError):
        await find_session("mine", store, owner="bob")


async def of_three(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / DATABASE)
    for name in ("one", "two", "three"):
        await store.append(name, a_log(tmp_path, 100.0, None, f"{name} a", f"{name} b"), expect=0)
    await store.close()


def damage(tmp_path: Path, statement: str, *values: Any) -> None:
    with closing(sqlite3.connect(tmp_path / DATABASE)) as connection, connection:
        connection.execute(statement, values)


async def test_a_list_reads_no_log(tmp_path: Path) -> None:
    await of_three(tmp_path)
    damage(tmp_path, "UPDATE events SET body = 'damaged'")
    done = agentloop("sessions", "list", cwd=tmp_path)
    assert (done.status, done.err, len(done.out.splitlines())) == (0, "", 4)
    assert agentloop("sessions", "show", "one", cwd=tmp_path).status == 1


@pytest.mark.deep
async def test_a_check_says_that_all_is_well_or_what_is_not(tmp_path: Path) -> None:
    await of_three(tmp_path)
    for words in ((), ("one",)):
        done = agentloop("sessions", "check", *words, cwd=tmp_path)
        assert (done.status, done.out, done.complaint()) == (0, "", "agentloop: all is well")
    damage(tmp_path, "UPDATE events SET body = 'damaged' WHERE session_id = 'one' AND seq = 2")
    damage(tmp_path, "DELETE FROM events WHERE session_id = 'two' AND seq = 3")
    for words, named in (((), ("'one', record 2", "'two'")), (("one",), ("'one', record 2",))):
        done = agentloop("sessions", "check", *words, cwd=tmp_path)
        assert done.status == 1
        assert "found: restore a copy" in done.complaint()
        assert all(name in done.out for name in named), done.out
    assert agentloop("sessions", "check", "three", cwd=tmp_path).status == 0
    assert agentloop("sessions", "check", "--owner", "ann", cwd=tmp_path).status == 0
    # A session that is damaged can still be deleted, and says that it is.
    gone = agentloop("sessions", "delete", "one", "--yes", cwd=tmp_path)
    assert gone.status == 0
    assert "its log cannot be read whole" in gone.complaint()


async def test_a_check_drops_a_checkpoint_that_the_log_does_not_come_to(tmp_path: Path) -> None:
    await of_three(tmp_path)
    store = SQLiteStore(tmp_path / DATABASE)
    last = (await store.read("one"))[-1]
    await store.keep_checkpoint("one", Checkpoint(seq=last.seq, event_id=last.event.id, body="made up"))
    done = agentloop("sessions", "check", cwd=tmp_path)
    assert done.status == 0
    assert "one: its checkpoint was not what its log comes to, and is dropped" in done.err
    assert await store.checkpoint("one") is None
    assert agentloop("sessions", "check", cwd=tmp_path).complaint() == "agentloop: all is well"
    await store.close()


def test_a_check_of_what_is_no_database_is_one_line(tmp_path: Path) -> None:
    (tmp_path / DATABASE).parent.mkdir()
    (tmp_path / DATABASE).write_text("this is no database, however long it may be" * 100)
    done = agentloop("sessions", "check", cwd=tmp_path)
    assert done.status == 1
    assert done.complaint()
