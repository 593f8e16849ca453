"""The files that sessions leave in the folder of transcripts: which go with a session, and which stay."""

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from agentloop import Agent, Compaction, Runner
from agentloop.cli.sessions.command import Opened
from agentloop.cli.settings import settings_for
from agentloop.events import Compacted, Event, MessageRecord, Noted
from agentloop.messages import Message, ToolCall
from agentloop.prompts import summary_message
from agentloop.stores import SQLiteStore
from agentloop.testing import ScriptedModel
from agentloop.tools import spill
from tests.cli_kit import Finished, agentloop, environment, terminal
from tests.kit import lines
from tests.store_kit import CountingStore


def read() -> str:
    """Read what is too long to show."""
    return lines("word 🙂", 3_000)


async def begun(folder: Path, name: str = "orig") -> None:
    """A session with a compaction and two long results, in the database that calls from the folder use."""
    twice = [ToolCall(id=f"call_{at}", name="read", arguments="{}") for at in (1, 2)]
    answers = [twice, "read", *["so far"] * 9]
    agent = Agent(ScriptedModel(answers, window=8_000), tools=[read], compaction=Compaction())
    store = SQLiteStore(folder / "agentloop" / "sessions.db")
    async with Runner(agent, store=store, transcripts=folder / ".transcripts") as runner:
        await runner.run("Read it twice.", session_id=name)
        await runner.run("And now?", session_id=name)
        assert await runner.compact(name)


def files(folder: Path) -> dict[str, list[str]]:
    """The names of the transcripts and of the long results that lie there."""
    there = sorted(path.name for path in (folder / ".transcripts").iterdir())
    return {what: [name for name in there if name.startswith(what)] for what in ("transcript", "result")}


def sessions(*arguments: str, cwd: Path) -> Finished:
    done = agentloop("sessions", *arguments, cwd=cwd)
    assert done.status == 0, done.err
    return done


def copied(folder: Path, name: str = "copy") -> None:
    sessions("export", "orig", "--format", "events", "-o", "log", cwd=folder)
    sessions("import", "log", "--session", name, cwd=folder)


async def test_all_files_of_a_session_go_with_it_and_are_named(tmp_path: Path) -> None:
    await begun(tmp_path)
    there = files(tmp_path)
    assert list(map(len, there.values())) == [1, 2]
    other = spill(tmp_path / ".transcripts", "other_call_1", "of another session")
    with terminal("sessions", "delete", "orig", cwd=tmp_path) as screen:
        asked = " ".join(screen.wait_for("not looked at)?").split())
        assert "and its whole log, with the files that no other session of this store names" in asked
        assert f"transcripts go: {there['transcript'][0]}" in asked
        assert f"long results go: {', '.join(there['result'])}" in asked
        screen.type("n\n")
        assert screen.end() == 0
    assert sessions("delete", "orig", "--yes", cwd=tmp_path).complaint().count(" go: ") == 2
    assert files(tmp_path) == {"transcript": [], "result": [other.name]}


KILLED = """
import os, signal, sys
left = int(sys.argv[1])
def kill(event, _):
    global left
    if event == "os.remove":
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(kill)
sys.argv = ["agentloop", *sys.argv[2:]]
from agentloop.cli.main import main
sys.exit(main())
"""
"""The program, killed right before it removes a file for the time after so many."""


@pytest.mark.parametrize(
    "removed", [pytest.param(0, marks=pytest.mark.deep), 1, pytest.param(2, marks=pytest.mark.deep)]
)
async def test_a_deletion_that_is_killed_can_be_repeated(tmp_path: Path, removed: int) -> None:
    await begun(tmp_path)
    call = ("sessions", "delete", "orig", "--yes")
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(removed), *call],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
    )
    assert killed.returncode == -signal.SIGKILL
    assert sum(map(len, files(tmp_path).values())) == 3 - removed
    done = sessions(*call[1:], cwd=tmp_path)
    assert "deleted: orig" in done.err
    assert files(tmp_path) == {"transcript": [], "result": []}
    assert agentloop("sessions", "show", "orig", cwd=tmp_path).status == 2


async def test_they_stay_where_that_is_asked_for_and_that_is_said(tmp_path: Path) -> None:
    await begun(tmp_path)
    there = files(tmp_path)
    done = sessions("delete", "orig", "--keep-files", "--yes", cwd=tmp_path)
    assert done.complaint().endswith("; transcripts and long results stay")
    assert files(tmp_path) == there


@pytest.mark.deep
async def test_what_the_original_names_stays_when_a_copy_goes_and_the_other_way_round(tmp_path: Path) -> None:
    await begun(tmp_path)
    copied(tmp_path)
    there = files(tmp_path)
    for gone in ("copy", "orig"):
        done = sessions("delete", gone, "--yes", cwd=tmp_path)
        named = ", ".join(there["result"] + there["transcript"])
        assert f"agentloop: what other sessions name, too, stays: {named}\n" in done.err
        assert f"long results stay: {', '.join(there['result'])}" in done.err
        assert files(tmp_path) == there
        if gone == "copy":
            copied(tmp_path, "second")
    sessions("delete", "second", "--yes", cwd=tmp_path)
    assert files(tmp_path) == {"transcript": [], "result": []}


@pytest.mark.deep
async def test_long_results_that_a_copy_reads_of_in_its_messages_stay(tmp_path: Path) -> None:
    await begun(tmp_path)
    sessions("export", "orig", "-o", "list", cwd=tmp_path)
    sessions("import", "list", "--session", "copy", cwd=tmp_path)
    there = files(tmp_path)
    done = sessions("delete", "orig", "--yes", cwd=tmp_path)
    assert f"what other sessions name, too, stays: {', '.join(there['result'])}\n" in done.err
    assert files(tmp_path) == there | {"transcript": []}
    sessions("delete", "copy", "--yes", cwd=tmp_path)
    assert files(tmp_path)["result"] == there["result"], "texts alone make no file a session's own"


@pytest.mark.parametrize("imported", [True, False], ids=["imported", "said again"])
async def test_a_transcript_that_a_summary_of_another_session_names_stays(
    imported: bool, tmp_path: Path
) -> None:
    await begun(tmp_path)
    there = files(tmp_path)
    summary = summary_message("They read it.", there["transcript"][0])
    said = MessageRecord(message=Message.user(summary), tokens=9)
    instead = Compacted(covers=((1, 1),), replacement=summary, at=1, tokens=9)
    await stored(tmp_path, [Noted(source="earlier record"), instead] if imported else [said])
    sessions("delete", "orig", "--yes", cwd=tmp_path)
    assert files(tmp_path) == there | {"result": []}


@pytest.mark.deep
async def test_what_only_sessions_name_that_go_together_goes(tmp_path: Path) -> None:
    await begun(tmp_path)
    copied(tmp_path)
    done = sessions("delete", "copy", "orig", "--yes", cwd=tmp_path)
    assert [line.split(";")[0] for line in done.err.splitlines()] == [
        "agentloop: deleted: copy 'Read it twice.'",
        "agentloop: deleted: orig 'Read it twice.'",
    ]
    assert "stay" not in done.err
    assert files(tmp_path) == {"transcript": [], "result": []}


async def test_a_long_result_of_another_folder_is_not_taken_for_the_sessions(tmp_path: Path) -> None:
    await begun(tmp_path)
    there = files(tmp_path)
    first, second = (tmp_path / ".transcripts" / name for name in there["result"])
    first.write_text("what a tool said elsewhere")
    mine = second.rename(tmp_path / "mine")
    second.symlink_to("../mine")
    done = sessions("delete", "orig", "--yes", "--transcripts", ".transcripts", cwd=tmp_path)
    assert f"long result {first.name} in .transcripts is not known to be this session's: it stays" in done.err
    assert f"long result {second.name} is not in .transcripts" in done.err
    assert mine.exists()
    assert files(tmp_path) == there | {"transcript": []}


async def test_a_long_result_that_is_not_where_it_should_be_is_named(tmp_path: Path) -> None:
    await begun(tmp_path)
    lost = files(tmp_path)["result"][0]
    (tmp_path / ".transcripts" / lost).unlink()
    done = sessions("delete", "orig", "--yes", cwd=tmp_path)
    assert f"long result {lost} is not in .transcripts" in done.err
    assert files(tmp_path) == {"transcript": [], "result": []}


@pytest.mark.parametrize("path", ["../mine.txt", "/etc/hostname", "..", ".", "result_x.txt/..", "mine.txt"])
async def test_a_path_in_a_log_reaches_no_other_file(path: str, tmp_path: Path) -> None:
    shown = f"be\n... [9 of 11 characters left out; the whole is in {path}] ...\nd\n"
    await stored(tmp_path, [MessageRecord(message=Message.tool("c", shown), tokens=9, spilled=path)])
    (tmp_path / ".transcripts").mkdir()
    for place in (tmp_path, tmp_path / ".transcripts"):
        (place / "mine.txt").write_text("be mine, d\n")
    done = sessions("delete", "s", "--yes", "--transcripts", ".transcripts", cwd=tmp_path)
    assert "is not in .transcripts" in done.err
    assert (tmp_path / "mine.txt").exists()
    assert (tmp_path / ".transcripts" / "mine.txt").exists()


@pytest.mark.deep
async def test_a_log_of_somebody_else_takes_no_file_of_another_session(tmp_path: Path) -> None:
    await begun(tmp_path)
    there = files(tmp_path)
    path = tmp_path / ".transcripts" / there["result"][0]
    whole = path.read_text()
    marks = [
        f"... [5 characters the whole is in {path}] ...",
        f"... [5 of 9 characters left out; the whole is in {path}] ...",
    ]
    marks += [f"... [5 of {len(whole):,} characters left out; the whole is in {path}] ..."]
    for mark in marks:
        said = Message.tool("c", f"{whole[:1]}\n{mark}\n{whole[-1:]}")
        store = SQLiteStore(tmp_path / "elsewhere" / "sessions.db")
        await store.append(
            "s", [MessageRecord(message=said, tokens=9, spilled=str(path), time=9e9)], expect=0
        )
        await store.close()
        place = ("--store", f"sqlite:///{tmp_path}/elsewhere/sessions.db", "--transcripts", ".transcripts")
        sessions("delete", "s", "--yes", *place, cwd=tmp_path)
    await stored(tmp_path, [MessageRecord(message=said, tokens=9, spilled=str(path), time=9e9)])
    sessions("delete", "s", "--yes", cwd=tmp_path)
    assert files(tmp_path) == there


async def stored(folder: Path, events: Sequence[Event]) -> None:
    store = SQLiteStore(folder / "agentloop" / "sessions.db")
    await store.append("s", events, expect=0)
    await store.close()


async def test_a_log_of_somebody_else_forges_no_lines_and_fills_no_memory(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "agentloop" / "sessions.db")
    long = "word " * 20
    named = ("transcript_1.jsonl", "x\nagentloop: all is well", "result_1.txt")
    left_out = f"\n... [9 of {10**12:,} characters left out; the whole is in {named[-1]}] ...\n"
    for name in ("s", "other"):
        compacted = [
            Compacted(covers=((1, 1),), replacement="short", at=1, tokens=1, transcript=each)
            for each in named
        ]
        said = MessageRecord(message=Message.user(f"{long}{left_out}{long}"), tokens=1, spilled=named[-1])
        await store.append(name, [said, *compacted], expect=0)
    await store.close()
    folder = tmp_path / ".transcripts"
    folder.mkdir()
    for each in (named[0], named[-1]):
        with (folder / each).open("wb") as file:
            file.truncate(10**12)
    for name in ("s", "other"):
        told = sessions("delete", name, "--yes", cwd=tmp_path).err
        assert "agentloop: all is well" in told
        assert all(line.startswith("agentloop: ") for line in told.splitlines())
        assert "agentloop: all is well" not in told.splitlines()
    assert len([*folder.iterdir()]) == 2


async def test_only_logs_that_may_name_the_files_are_read(tmp_path: Path) -> None:
    name, store = "transcript_7.jsonl", CountingStore()
    opened = Opened(store=store, settings=settings_for({}, {"AGENTLOOP_HOME": str(tmp_path)}))
    names = Compacted(covers=((1, 1),), replacement="x", at=2, tokens=1, transcript=name, time=7)
    said = MessageRecord(message=Message.user("task"), tokens=1, time=6)
    for session, events in {"s": [said, names], "copy": [said, names], "old": [said] * 50}.items():
        await store.append(session, events, expect=0)
    info = await store.info("s")
    assert info
    history = await opened.sessions.deletion().history_of(info)
    read = len(store.moved)
    (found,) = await opened.sessions.deletion().mark_shared([history])
    assert (list(found.files), found.own) == ([name], [])
    assert [count for verb, count in store.moved[read:] if verb == "read"] == [2]
