"""What becomes of stored sessions: deleted, swept, renamed, given a time to live; and who sees which."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agentloop import Agent, Runner
from agentloop.cli.sessions.command import Opened
from agentloop.cli.settings import settings_for
from agentloop.codec import encode
from agentloop.errors import ConflictError, SessionNotFoundError, StoreError
from agentloop.events import Compacted, Described, Event, MessageRecord, NotCompacted
from agentloop.messages import Message
from agentloop.sessions import Sessions, StoredSessions, new_lease, save
from agentloop.stores import InMemoryStore, SQLiteStore
from agentloop.stores.base import Lease
from agentloop.testing import ScriptedModel, calls
from tests.cli_kit import Finished, agentloop, terminal
from tests.store_kit import LogAlone

LONG_AGO = 1_000_000_000.0


def said(text: str) -> MessageRecord:
    return MessageRecord(message=Message.user(text), tokens=1, time=LONG_AGO)


def life(title: str, ttl_seconds: float | None = None, owner: str | None = None) -> Described:
    return Described(title=title, ttl_seconds=ttl_seconds, owner=owner, folder="/f", time=LONG_AGO)


def sessions(*arguments: str, cwd: Path, **env: str) -> Finished:
    """A call of `sessions` that must do."""
    done = agentloop("sessions", *arguments, cwd=cwd, env=env)
    assert done.status == 0, done.err
    return done


def listed(cwd: Path, *options: str, **env: str) -> dict[str, dict[str, Any]]:
    """The sessions by their ids."""
    infos = json.loads(sessions("list", "--all", "--json", *options, cwd=cwd, **env).out)
    return {info["id"]: info for info in infos}


async def stored(folder: Path, logs: dict[str, Sequence[Event]]) -> None:
    """These logs in the database that calls from the folder use."""
    store = SQLiteStore(folder / "agentloop" / "sessions.db")
    for name, events in logs.items():
        await store.append(name, events, expect=0)
    await store.close()


@pytest.fixture
async def place(tmp_path: Path) -> Path:
    """A folder whose store holds sessions of two owners, some of them expired."""
    await stored(
        tmp_path,
        {
            "anns-old": [said("a"), life("Ann's old", 60, "ann")],
            "anns-new": [said("b"), life("Ann's new", 1e12, "ann")],
            "bobs-old": [said("c"), life("Bob's old", 60, "bob")],
            "for-ever": [said("d"), life("For ever")],
        },
    )
    return tmp_path


def test_the_list_has_owners_and_ends(place: Path) -> None:
    rows = [line.split("\t") for line in sessions("list", "--all", cwd=place).out.splitlines()][1:]
    ends = {row[0]: row[-2:] for row in rows}
    assert ends["for-ever"] == ["-", "-"]
    assert ends["anns-old"][0] == "ann"
    assert ends["anns-old"][1].startswith("expires 2001-09-")
    infos = listed(place)
    assert (infos["bobs-old"]["owner"], infos["bobs-old"]["ttl_seconds"]) == ("bob", 60)
    assert infos["bobs-old"]["expires"] == LONG_AGO + 60
    assert infos["for-ever"]["expires"] is None


def test_an_owner_sees_their_own(place: Path) -> None:
    assert set(listed(place, "--owner", "ann")) == {"anns-old", "anns-new"}
    assert set(listed(place, AGENTLOOP_OWNER="bob")) == {"bobs-old"}
    assert set(listed(place, "--owner", "ann", AGENTLOOP_OWNER="bob")) == {"anns-old", "anns-new"}


@pytest.mark.deep
@pytest.mark.parametrize(
    "words",
    [("show",), ("export",), ("rename", "Mine now"), ("expire", "1s"), ("delete", "--yes"), ("check",)],
    ids=lambda words: words[0],
)
def test_an_owner_cannot_name_what_is_of_others(words: tuple[str, ...], place: Path) -> None:
    command, *rest = words
    done = agentloop("sessions", command, "bobs-old", *rest, "--owner", "ann", cwd=place)
    assert done.status == 2
    assert "bobs-old" in done.complaint()
    assert listed(place)["bobs-old"]["title"] == "Bob's old"


@pytest.mark.deep
def test_an_import_is_of_who_imports_it_and_of_whom_it_says_otherwise(place: Path) -> None:
    sessions("export", "anns-new", "--format", "events", "-o", "log", cwd=place)
    sessions("import", "log", "--session", "same", cwd=place)
    sessions("import", "log", "--session", "mine", "--owner", "cy", "--ttl", "30d", cwd=place)
    infos = listed(place)
    assert [(infos[name]["owner"], infos[name]["ttl_seconds"]) for name in ("same", "mine")] == [
        ("ann", 1e12),
        ("cy", 30 * 86_400),
    ]
    assert infos["mine"]["title"] == "Ann's new"


@pytest.mark.deep
@pytest.mark.parametrize(("owner", "gone"), [(None, {"anns-old", "bobs-old"}), ("ann", {"anns-old"})])
def test_a_sweep_says_what_goes_before_and_behind(owner: str | None, gone: set[str], place: Path) -> None:
    options = [] if owner is None else ["--owner", owner]
    before = set(listed(place))
    would = json.loads(sessions("sweep", "--dry-run", "--json", *options, cwd=place).out)
    assert {info["id"] for info in would} == gone
    assert set(listed(place)) == before
    refused = agentloop("sessions", "sweep", *options, cwd=place)
    assert refused.status == 2
    assert "say --yes" in refused.complaint()
    assert set(listed(place)) == before
    went = sessions("sweep", "--yes", *options, cwd=place).out
    assert {line.split("\t")[0] for line in went.splitlines()[1:]} == gone
    assert set(listed(place)) == before - gone
    again = sessions("sweep", "--yes", *options, cwd=place)
    assert (again.out, again.complaint()) == ("", "agentloop: nothing has expired")
    unasked = sessions("sweep", *options, cwd=place)
    assert (unasked.out, unasked.complaint()) == ("", "agentloop: nothing has expired")


@pytest.mark.deep
async def test_what_a_run_works_on_is_in_no_list_of_what_a_sweep_would_take(place: Path) -> None:
    store, lease = SQLiteStore(place / "agentloop" / "sessions.db"), new_lease()
    assert await store.take_lease("anns-old", lease, seconds=60) == lease
    would = json.loads(sessions("sweep", "--dry-run", "--json", cwd=place).out)
    assert [info["id"] for info in would] == ["bobs-old"]
    for name, by in (("anns-old", lease), ("bobs-old", other := new_lease())):
        assert await store.take_lease(name, other, seconds=60) == by
    nothing = sessions("sweep", "--dry-run", cwd=place)
    assert (nothing.out, nothing.complaint()) == ("", "agentloop: nothing has expired")
    assert sessions("sweep", "--yes", cwd=place).out == ""
    await store.close()


async def test_who_looks_what_a_sweep_would_take_asks_for_no_session(tmp_path: Path) -> None:
    class OnlyRead(InMemoryStore):
        async def take_lease(self, *_: object, **__: object) -> Lease:  # type: ignore[override]
            raise StoreError("the database is read-only")

    store = OnlyRead()
    for name in ("s", "held"):
        await store.append(name, [said("a"), life("Old", 60)], expect=0)
    await InMemoryStore.take_lease(store, "held", new_lease(), seconds=60)
    opened = Opened(store=store, settings=settings_for({}, {"AGENTLOOP_HOME": str(tmp_path)}))
    assert [info.id for info in await opened.sessions.expired(LONG_AGO + 61)] == ["s"]
    assert await opened.sessions.expired(LONG_AGO + 59) == []


async def test_a_look_at_what_a_sweep_would_take_writes_nothing(place: Path) -> None:
    database = place / "agentloop" / "sessions.db"
    before = database.read_bytes()
    assert "anns-old" in sessions("sweep", "--dry-run", cwd=place).out
    assert database.read_bytes() == before


async def test_of_a_store_that_tells_of_no_leases_all_that_has_expired_is_listed(tmp_path: Path) -> None:
    store = LogAlone()
    await store.append("s", [said("a"), life("Old", 60)], expect=0)
    opened = Opened(store=store, settings=settings_for({}, {"AGENTLOOP_HOME": str(tmp_path)}))
    assert [info.id for info in await opened.sessions.expired(LONG_AGO + 61)] == ["s"]
    assert await opened.sessions.expired(LONG_AGO + 59) == []


@pytest.mark.parametrize(("answer", "goes"), [("n\n", False), ("y\n", True)])
def test_a_sweep_asks_in_a_terminal(answer: str, goes: bool, place: Path) -> None:
    with terminal("sessions", "sweep", cwd=place) as screen:
        asked = screen.wait_for("Delete these 2 sessions and their whole logs?")
        assert 'anns-old "Ann\'s old"' in asked
        assert "owner bob" in asked
        screen.type(answer)
        assert screen.end() == 0
    assert ("anns-old" not in listed(place)) is goes


@pytest.mark.deep
def test_a_time_to_live_is_given_and_taken_off(place: Path) -> None:
    done = sessions("expire", "for-ever", "15m", cwd=place)
    assert done.complaint().startswith("agentloop: for-ever expires on 20")
    info = listed(place)["for-ever"]
    assert info["expires"] == info["updated"] + 900
    assert json.loads(sessions("sweep", "--dry-run", "--json", "--owner", "nobody", cwd=place).out) == []
    assert (
        sessions("expire", "anns-old", "NEVER", cwd=place).complaint() == "agentloop: anns-old expires never"
    )
    infos = listed(place)
    assert (infos["anns-old"]["expires"], infos["anns-old"]["ttl_seconds"]) == (None, None)


def test_a_time_to_live_longer_than_any_calendar_is_said_in_words(place: Path) -> None:
    done = sessions("expire", "for-ever", "9999999999999999d", cwd=place)
    assert done.complaint() == "agentloop: for-ever expires later than any date, unless it goes on before"
    assert "\texpires later than any date\n" in sessions("list", "--all", cwd=place).out
    with terminal("sessions", "sweep", "--dry-run", cwd=place) as screen:
        assert screen.end() == 0


@pytest.mark.deep
@pytest.mark.parametrize("time", ["", "0", "-5", "soon", "1e5", "9" * 400])
def test_what_is_no_time_to_live_is_one_line(time: str, place: Path) -> None:
    done = agentloop("sessions", "expire", "for-ever", "--", time, cwd=place)
    assert done.status == 2
    assert done.complaint()
    assert listed(place)["for-ever"]["length"] == 2


@pytest.mark.deep
def test_a_delete_of_several_is_of_all_or_of_none(place: Path) -> None:
    done = agentloop("sessions", "delete", "anns-old", "nobody", "bobs-old", "--yes", cwd=place)
    assert done.status == 2
    assert "'nobody'" in done.complaint()
    assert len(listed(place)) == 4
    gone = sessions("delete", "anns-o", "Ann's old", "bobs-old", "--yes", cwd=place).err.splitlines()
    assert set(listed(place)) == {"anns-new", "for-ever"}
    assert len(gone) == 2
    for part in (
        'deleted: anns-old "Ann\'s old"',
        "2 records",
        "folder /f",
        "owner ann",
    ):
        assert part in gone[0]


SAID = [Message.user("task"), Message.assistant("answer ✓"), Message.user("more")]


async def compacted(folder: Path, **names: str) -> dict[str, Path]:
    """Sessions that name these transcripts, which lie in the folder's `.transcripts`."""
    paths = {name: save(folder / ".transcripts", SAID, epoch=int(name[-1])) for name in names}
    messages = [MessageRecord(message=message, tokens=1, time=LONG_AGO) for message in SAID]
    logs = {
        name: [*messages, Compacted(covers=((1, 2),), replacement="so far", at=3, tokens=2, transcript=path)]
        for name, path in names.items()
    }
    await stored(folder, logs)
    return paths


@pytest.mark.deep
async def test_transcripts_go_and_are_named_unless_they_are_to_stay(tmp_path: Path) -> None:
    paths = await compacted(tmp_path, s1="transcript_1.jsonl", s2="transcript_2.jsonl")
    with terminal("sessions", "delete", "s1", "--keep-files", cwd=tmp_path) as screen:
        asked = screen.wait_for("Delete session s1 and its whole log?")
        assert "4 records, 3 messages" in asked
        assert "transcripts stay: transcript_1.jsonl" in asked
        screen.type("y\n")
        assert screen.end() == 0
    assert paths["s1"].exists()
    done = sessions("delete", "s2", "--yes", cwd=tmp_path)
    assert "transcripts go: transcript_2.jsonl" in done.complaint()
    assert (paths["s1"].exists(), paths["s2"].exists()) == (True, False)
    assert listed(tmp_path) == {}


async def test_a_transcript_of_a_compaction_that_failed_goes_too(tmp_path: Path) -> None:
    path = save(tmp_path / ".transcripts", SAID, epoch=1)
    messages = [MessageRecord(message=message, tokens=1, time=LONG_AGO) for message in SAID]
    await stored(tmp_path, {"s1": [*messages, NotCompacted(status="failed", transcript=path.name)]})
    done = sessions("delete", "s1", "--yes", cwd=tmp_path)
    assert f"transcripts go: {path.name}" in done.complaint()
    assert not path.exists()


@pytest.mark.parametrize(
    "name", ["../s1.jsonl", "/etc/hostname", "../.transcripts/transcript_1.jsonl", "x", "."]
)
async def test_a_name_in_a_log_reaches_no_other_file(name: str, tmp_path: Path) -> None:
    paths = await compacted(tmp_path, s1=name)
    (tmp_path / "s1.jsonl").write_text("mine")
    (tmp_path / ".transcripts" / "x").write_text("mine")
    where = ("--transcripts", ".transcripts")
    done = sessions("delete", "s1", *where, "--yes", cwd=tmp_path)
    assert f"transcript {name} is not in .transcripts" in done.err
    assert (tmp_path / "s1.jsonl").read_text() == (tmp_path / ".transcripts" / "x").read_text() == "mine"
    assert paths["s1"].exists()


async def test_a_transcript_of_another_session_stays_and_so_does_what_a_link_names(tmp_path: Path) -> None:
    await compacted(tmp_path, s1="transcript_9.jsonl", s2="transcript_8.jsonl")
    other = save(tmp_path / ".transcripts", [*SAID, Message.user("of another folder")], epoch=9)
    (tmp_path / "target").write_text("mine")
    (tmp_path / ".transcripts" / "transcript_8.jsonl").symlink_to("../target")
    where = ("--transcripts", ".transcripts")
    done = sessions("delete", "s1", "s2", *where, "--yes", cwd=tmp_path)
    assert "transcript_9.jsonl in .transcripts is not known to be this session's: it stays" in done.err
    assert "transcript_8.jsonl is not in .transcripts" in done.err
    assert other.exists()
    assert (tmp_path / "target").read_text() == "mine"


@pytest.mark.parametrize("text", ["", "damaged\n", '{"role": "user", "content": "task"}\n{"role": "us'])
async def test_a_damaged_transcript_is_not_taken_for_the_sessions(text: str, tmp_path: Path) -> None:
    (path,) = (await compacted(tmp_path, s1="transcript_1.jsonl")).values()
    path.write_text(text)
    sessions("delete", "s1", "--yes", cwd=tmp_path)
    assert path.read_text() == text


async def test_transcripts_are_taken_from_the_folder_that_is_named(tmp_path: Path) -> None:
    (path,) = (await compacted(tmp_path, s1="transcript_1.jsonl")).values()
    path.parent.rename(tmp_path / "kept")
    sessions("delete", "s1", "--transcripts", "kept", "--yes", cwd=tmp_path)
    assert [left.name for left in (tmp_path / "kept").iterdir()] == [".gitignore"]


class Growing(InMemoryStore):
    """A log that somebody else writes to before each of the first so many appends."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    async def append(self, session_id: str, events: Sequence[Event], *, expect: int) -> int:
        if expect and self.times:
            self.times -= 1
            length = len(await self.read(session_id))
            await super().append(session_id, [said("meanwhile")], expect=length)
        return await super().append(session_id, events, expect=expect)


async def renamed(store: InMemoryStore) -> str | None:
    await store.append("s", [said("task")], expect=0)
    info = await store.info("s")
    assert info
    await StoredSessions(sessions=Sessions(store=store)).describe(info, Described(title="A new one"))
    after = await store.info("s")
    return after.title if after else None


async def test_a_session_is_renamed_while_it_runs() -> None:
    store = Growing(3)
    assert await renamed(store) == "A new one"
    kinds = [type(record.event).__name__ for record in await store.read("s")]
    assert kinds == ["MessageRecord"] * 4 + ["Described"]


async def test_a_run_goes_on_with_the_title_that_it_was_given_meanwhile() -> None:
    store = InMemoryStore()

    async def look() -> str:
        """Look."""
        info = await store.info("s")
        assert info
        await StoredSessions(sessions=Sessions(store=store)).describe(info, Described(title="Looking around"))
        return "seen"

    agent = Agent(ScriptedModel([calls(("look", {})), "done"]), tools=[look])
    result = await Runner(agent, store=store).run("task", session_id="s")
    info = await store.info("s")
    assert info
    assert (result.output, info.title) == ("done", "Looking around")
    assert [message.text for message in result.messages if message.role != "tool"] == ["task", "", "done"]


async def test_a_log_that_never_stops_growing_is_a_conflict() -> None:
    with pytest.raises(ConflictError):
        await renamed(Growing(1_000))


class Gone(Growing):
    """A session that is deleted before it is written to again."""

    async def append(self, session_id: str, events: Sequence[Event], *, expect: int) -> int:
        if expect:
            await self.delete(session_id)
        return await InMemoryStore.append(self, session_id, events, expect=expect)


async def test_a_session_that_is_gone_is_not_begun_by_its_title() -> None:
    store = Gone(0)
    with pytest.raises(SessionNotFoundError, match="'s' was deleted meanwhile"):
        await renamed(store)
    assert await store.list() == ()


@pytest.mark.deep
def test_a_session_lives_and_ends_on_postgresql(database: str, tmp_path: Path) -> None:
    def on(*words: str) -> Finished:
        return sessions(*words, "--store", database, cwd=tmp_path)

    (tmp_path / "talk.jsonl").write_text(f"{encode(said('a blue whale'))}\n{encode(said('and a fox'))}\n")
    on("import", "talk.jsonl", "--session", "s", "--owner", "ann", "--ttl", "30d")
    on("rename", "s", "Animals")
    assert on("list", "--owner", "ann").out.splitlines()[1].split("\t")[::3][:2] == ["s", "Animals"]
    assert on("list", "--owner", "bob").out == ""
    assert "\ns\t1\tuser\t" in on("search", "whale").out
    assert on("check").complaint() == "agentloop: all is well"
    assert on("export", "s", "--format", "events").out.startswith((tmp_path / "talk.jsonl").read_text())
    on("expire", "s", ".01s")
    assert on("sweep", "--yes").out.splitlines()[1].startswith("s\t")
    assert on("list").out == ""
    on("import", "talk.jsonl", "--session", "t")
    assert "deleted: t 'a blue whale'; 3 records" in on("delete", "t", "--yes").complaint()
