"""Transcripts are whole or not there, overwrite nothing, and are read back whatever became of them."""

import errno
import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from agentloop import Agent, Compaction, MicroCompact, Runner
from agentloop.context import count_request, counter_for
from agentloop.context.guard import STRIKES
from agentloop.errors import ContextOverflowError, StoreError, UsageError
from agentloop.events import Compacted, Described, MessageRecord, Record
from agentloop.messages import Message, ToolCall
from agentloop.sessions.transcripts import DEAD_AFTER_SECONDS, grow, load, save, transcripts_in
from agentloop.strategies import RecursiveSummary
from agentloop.stream import CompactionEnded, RunEnded
from agentloop.testing import ScriptedModel
from agentloop.triggers import On
from tests.kit import added, every_fact, read, reading, watched

TALK = (
    Message(role="system", content="Be brief."),
    Message.user("Wie groß ist das? 🙂"),
    Message.assistant(None, [ToolCall(id="c1", name="size", arguments='{"path": "a"}')]),
    Message.tool("c1", "12\n\0\ud800\u2028\x85"),
    Message.from_openai({"role": "assistant", "content": "12", "reasoning_content": "hm", "refusal": None}),
)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def is_well_formed(text: str) -> bool:
    """JSON cannot tell the two halves of a character from the character."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass") == text


def test_one_chat_completions_message_a_line(tmp_path: Path) -> None:
    path = save(tmp_path, TALK, epoch=1_767_225_600)
    assert path == tmp_path / "transcript_1767225600.jsonl"
    text = path.read_text(encoding="utf-8")
    assert text.endswith("\n")
    assert [json.loads(line) for line in text.splitlines()] == [message.to_openai() for message in TALK]
    assert "Wie groß ist das? 🙂" in text
    assert load(path).messages == TALK


@given(st.lists(st.text(st.characters(exclude_categories=()), max_size=5).filter(is_well_formed), max_size=4))
def test_any_text_comes_back(tmp_path_factory: pytest.TempPathFactory, said: list[str]) -> None:
    messages = tuple(map(Message.user, said))
    path = save(tmp_path_factory.mktemp("any"), messages, epoch=1)
    found = load(path)
    assert (found.messages, found.damaged, found.warning) == (messages, 0, None)
    assert len(path.read_text(encoding="utf-8").splitlines()) == len(messages)


def test_fifty_in_one_second_are_fifty_files(tmp_path: Path) -> None:
    said = [(Message.user(f"number {number}"),) for number in range(50)]
    paths = [save(tmp_path, messages, epoch=7) for messages in said]
    assert [path.name for path in paths[:3]] == [
        "transcript_7.jsonl",
        "transcript_7-2.jsonl",
        "transcript_7-3.jsonl",
    ]
    assert [load(path).messages for path in paths] == said
    assert transcripts_in(tmp_path) == tuple(paths)


def test_the_list_is_in_order_of_time_and_holds_transcripts_alone(tmp_path: Path) -> None:
    paths = [save(tmp_path, TALK, epoch=epoch) for epoch in (1000, 999, 1000, 99_999)]
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "transcript_5.jsonl").mkdir()
    (tmp_path / "transcript_6.jsonl").symlink_to(paths[0])
    assert transcripts_in(tmp_path) == (paths[1], paths[0], paths[2], paths[3])
    assert transcripts_in(tmp_path / "nothing") == ()


def test_nothing_but_the_transcript_is_left(tmp_path: Path) -> None:
    save(tmp_path, TALK, epoch=7)
    assert names(tmp_path) == ["transcript_7.jsonl"]


def test_what_a_killed_writer_left_goes_with_a_later_save(tmp_path: Path) -> None:
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from agentloop.messages import Message\n"
        "from agentloop.sessions.transcripts import save\n"
        "def said():\n"
        "    yield Message.user('one')\n"
        "    os.kill(os.getpid(), 9)\n"
        "save(Path(sys.argv[1]), said(), epoch=7)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    (left,) = tmp_path.iterdir()
    mine = tmp_path / ".transcript_notes.tmp"
    mine.touch()
    assert transcripts_in(tmp_path) == ()
    save(tmp_path, TALK, epoch=8)
    assert left.exists(), "it may be another's who is writing still"
    for old in (left, mine):
        os.utime(old, (0, time.time() - DEAD_AFTER_SECONDS - 60))
    save(tmp_path, TALK, epoch=9)
    assert sorted(names(tmp_path)) == [mine.name, "transcript_8.jsonl", "transcript_9.jsonl"]


def test_files_and_folders_are_their_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        path = save(tmp_path / "deep" / "transcripts", TALK, epoch=7)
        (tmp_path / "mine").mkdir(mode=0o755)
        save(tmp_path / "mine", TALK, epoch=7)
    finally:
        os.umask(before)
    assert (mode(path), mode(path.parent), mode(tmp_path / "mine")) == (0o600, 0o700, 0o755)


def test_it_is_written_beside_synced_and_put_in_place_and_so_are_the_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, link = os.fsync, os.link

    def synced(descriptor: int) -> None:
        place = Path(f"/proc/self/fd/{descriptor}").readlink()
        held = place.read_text().count("\n") if place.is_file() else sorted(names(place))
        name = "beside" if place.name.startswith(".transcript_7.") else str(place.relative_to(tmp_path))
        steps.append(f"sync {name}: {held}")
        fsync(descriptor)

    def linked(source: Path, target: Path, **options: bool) -> None:
        steps.append(f"place {target.name}")
        link(source, target, **options)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "link", linked)
    save(tmp_path / "a" / "b", TALK, epoch=7)
    assert steps == [
        "sync a: ['b']",
        "sync .: ['a']",
        f"sync beside: {len(TALK)}",
        "place transcript_7.jsonl",
        "sync a/b: ['.gitignore', 'transcript_7.jsonl']",
    ]


def test_messages_are_written_as_they_come(tmp_path: Path) -> None:
    held: list[int] = []

    def said() -> Iterator[Message]:
        for number in range(40):
            yield Message.user(f"{number} " + "x" * 100_000)
            held.append(sum(path.stat().st_size for path in tmp_path.iterdir()))

    path = save(tmp_path, said(), epoch=7)
    assert held == sorted(held)
    assert 0 < held[1] < held[20] < path.stat().st_size
    assert len(load(path).messages) == 40


GROWN = (*TALK, Message.user("and then?"), Message.assistant("nothing"))


def test_it_grows_by_what_is_new(tmp_path: Path) -> None:
    path = save(tmp_path, TALK, epoch=7)
    before = path.read_bytes()
    assert grow(tmp_path, path.name, GROWN)
    assert path.read_bytes().startswith(before)
    assert load(path).messages == GROWN
    assert grow(tmp_path, path.name, GROWN)
    assert load(path).messages == GROWN
    assert mode(path) == 0o600


def test_a_torn_end_is_completed(tmp_path: Path) -> None:
    whole = save(tmp_path / "whole", GROWN, epoch=7).read_bytes()
    path = save(tmp_path / "torn", TALK, epoch=7)
    for cut in range(path.stat().st_size, len(whole)):
        path.write_bytes(whole[:cut])
        assert grow(path.parent, path.name, GROWN)
        assert path.read_bytes() == whole


def test_what_holds_anything_else_stays_as_it_is(tmp_path: Path) -> None:
    path = save(tmp_path, GROWN, epoch=7)
    whole = path.read_bytes()
    for other in (TALK, GROWN[1:], (Message.user("hi"),), ()):
        assert not grow(tmp_path, path.name, other)
    for spoilt in (whole[:-9] + b"\0" * 8, b"\0" * 8, b" " + whole, whole + b"\n"):
        path.write_bytes(spoilt)
        assert not grow(tmp_path, path.name, GROWN)
        assert path.read_bytes() == spoilt


def test_l18_nothing_but_a_transcript_grows(tmp_path: Path) -> None:
    path = save(tmp_path, TALK, epoch=7)
    (tmp_path / "notes.jsonl").write_bytes(path.read_bytes())
    (tmp_path / "transcript_8.jsonl").symlink_to(tmp_path / "notes.jsonl")
    (tmp_path / "transcript_9.jsonl").mkdir()
    os.mkfifo(tmp_path / "transcript_10.jsonl")
    (tmp_path / "linked").symlink_to(tmp_path)
    outside = save(tmp_path / "other", TALK, epoch=7)
    names = ["notes.jsonl", "transcript_8.jsonl", "transcript_9.jsonl", "transcript_10.jsonl", "none"]
    for name in (*names, f"other/{outside.name}", f"../{tmp_path.name}/{path.name}", str(outside)):
        assert not grow(tmp_path, name, GROWN)
    assert not grow(tmp_path / "linked", path.name, GROWN)
    assert all(load(each).messages == TALK for each in (path, outside, tmp_path / "notes.jsonl"))


def test_of_two_who_append_one_does(tmp_path: Path) -> None:
    path = save(tmp_path, TALK, epoch=7)

    def meanwhile() -> Iterator[Message]:
        yield from TALK
        assert not grow(tmp_path, path.name, GROWN)
        yield from GROWN[len(TALK) :]

    assert grow(tmp_path, path.name, meanwhile())
    assert load(path).messages == GROWN


def test_a_disc_that_is_full_in_its_middle_takes_nothing_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(tmp_path, TALK, epoch=7)
    before = path.read_bytes()
    tries: list[str] = []
    full_disc(monkeypatch, tries)
    assert not grow(tmp_path, path.name, GROWN)
    assert (len(tries), path.read_bytes()) == (1, before)


def test_l5_what_a_killed_writer_left_whole_is_synced_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(tmp_path, GROWN, epoch=7)
    before, tries = path.read_bytes(), list[str]()
    full_disc(monkeypatch, tries)
    assert not grow(tmp_path, path.name, GROWN)
    assert (len(tries), path.read_bytes()) == (1, before)


async def test_one_that_cannot_be_opened_keeps_no_session_from_compactions(tmp_path: Path) -> None:
    model = ScriptedModel(reading(40), window=8_000, summary=every_fact)
    runner = runner_for(model, tmp_path)
    path = tmp_path / "transcripts" / "transcript_7.jsonl"
    path.parent.mkdir()
    path.mkdir()
    for name in (path.name, "transcript_" + "9" * 260 + ".jsonl"):
        assert not grow(path.parent, name, GROWN)
    events = await watched(runner, "Read it all.")
    assert {event.status for event in events if isinstance(event, CompactionEnded)} == {"done"}


async def test_l5_a_session_has_one_that_is_whole_before_each_compaction(tmp_path: Path) -> None:
    model = ScriptedModel(reading(40), window=8_000, summary=every_fact)
    runner = runner_for(model, tmp_path)
    events = await watched(runner, "Read it all.")
    done = [event for event in events if isinstance(event, CompactionEnded)]
    assert len(done) > STRIKES
    (path,) = transcripts_in(tmp_path / "transcripts")
    assert {event.transcript for event in done} == {path.name}
    said = await history(runner)
    held = load(path).messages
    assert held == tuple(said[: len(held)])
    newest = max(record.seq for record in await runner.store.read("s") if is_compaction(record))
    before = [record for record in await runner.store.read("s", most=newest) if is_message(record)]
    assert len(held) == len(before)
    assert (tmp_path / "transcripts" / ".gitignore").read_text() == "*\n"


async def test_l5_it_stays_the_one_when_a_compaction_is_taken_back(tmp_path: Path) -> None:
    runner = runner_for(ScriptedModel(reading(6), window=64_000), tmp_path)
    await runner.run("Read it all.", session_id="s")
    first = await runner.compact("s")
    await runner.undo("s")
    second = await runner.compact("s")
    assert (first.status, second.status) == ("done", "done")
    assert (
        [path.name for path in transcripts_in(tmp_path / "transcripts")]
        == [first.transcript]
        == [second.transcript]
    )


async def test_l5_failed_compactions_too_grow_the_one(tmp_path: Path) -> None:
    model = ScriptedModel([*reading(6), "and more", "at last"], window=64_000, summary="")
    runner = runner_for(model, tmp_path, strategy=RecursiveSummary())
    results = []
    for prompt in ("Read it all.", "More?", "At last?"):
        await runner.run(prompt, session_id="s")
        results.append(await runner.compact("s"))
    (path,) = transcripts_in(tmp_path / "transcripts")
    assert [(result.status, result.transcript) for result in results] == [("failed", path.name)] * 3
    assert load(path).messages == tuple(await history(runner))


async def test_l18_a_copy_of_a_session_leaves_its_transcript_alone(tmp_path: Path) -> None:
    """A copy is an import: the events of the other, and where the new one lies."""
    runner = runner_for(ScriptedModel(reading(12), window=64_000), tmp_path)
    await runner.run("Read it all.", session_id="s")
    first = await runner.compact("s")
    events = [record.event for record in await runner.store.read("s")]
    said = [added(Message.user("more")), added(Message.assistant("word " * 400))] * 4
    await runner.store.append("copy", [*events, Described(folder=str(tmp_path)), *said], expect=0)
    path = tmp_path / "transcripts" / str(first.transcript)
    before = path.read_bytes()
    for _ in range(2):
        await runner.store.append("copy", said, expect=len(await runner.store.read("copy")))
        result = await runner.compact("copy")
        assert result.status == "done"
    assert path.read_bytes() == before
    assert {each.name for each in transcripts_in(tmp_path / "transcripts")} == {
        first.transcript,
        result.transcript,
    }


def is_message(record: Record) -> bool:
    return isinstance(record.event, MessageRecord)


def test_a_planted_link_for_the_file_is_stepped_over(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "transcript_7.jsonl").symlink_to(victim)
    (tmp_path / "transcript_7-2.jsonl").symlink_to(tmp_path / "dangling")
    path = save(tmp_path, TALK, epoch=7)
    assert path.name == "transcript_7-3.jsonl"
    assert victim.read_text() == "precious"
    assert not (tmp_path / "dangling").exists()
    assert not path.is_symlink()


@pytest.mark.parametrize("exists", [True, False])
def test_a_planted_link_for_the_folder_is_refused(tmp_path: Path, exists: bool) -> None:
    elsewhere = tmp_path / "elsewhere"
    if exists:
        elsewhere.mkdir()
    folder = tmp_path / "transcripts"
    folder.symlink_to(elsewhere)
    with pytest.raises(StoreError, match="transcripts: "):
        save(folder, TALK, epoch=7)
    assert not exists or not names(elsewhere)


@pytest.mark.parametrize("folder", ["/proc/agentloop", "/proc/self/status/x", "/dev/null", "x" * 300])
def test_a_folder_that_cannot_be_is_one_clear_line(folder: str) -> None:
    with pytest.raises(StoreError, match=rf"^{folder}: [^\n]+: [^\n]+$"):
        save(Path(folder), TALK, epoch=7)


def test_a_message_that_json_cannot_say_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="role 'user' cannot be written as JSON"):
        save(tmp_path, [*TALK, Message(role="user", extra={"x": {1, 2}})], epoch=7)
    assert names(tmp_path) == []


def test_a_disc_that_refuses_leaves_nothing_behind(tmp_path: Path) -> None:
    script = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from agentloop.messages import Message\n"
        "from agentloop.sessions.transcripts import save\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n"
        "save(Path(sys.argv[1]), [Message.user('x' * 20_000)], epoch=7)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert ran.stderr.splitlines()[-1].startswith(f"agentloop.errors.StoreError: {tmp_path}: File too large")
    assert names(tmp_path) == []


@pytest.mark.parametrize("taken", [0, 2])
def test_a_file_system_without_links_keeps_the_promise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: int
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    older = [save(tmp_path, [Message.user(str(number))], epoch=7) for number in range(taken)]
    kept = [path.read_bytes() for path in older]
    monkeypatch.setattr(os, "link", refuse)
    path = save(tmp_path, TALK, epoch=7)
    assert load(path).messages == TALK
    assert mode(path) == 0o600
    assert [path.read_bytes() for path in older] == kept
    assert len(names(tmp_path)) == taken + 1


def test_a_file_system_without_links_that_fails_leaves_no_name_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    def fail(*_: object, **__: object) -> None:
        taken.extend(names(tmp_path / "t"))
        raise OSError(errno.EIO, "Input/output error")

    taken: list[str] = []
    monkeypatch.setattr(os, "link", refuse)
    for function in ("rename", "replace"):
        monkeypatch.setattr(os, function, fail)
    with pytest.raises(StoreError):
        save(tmp_path / "t", TALK, epoch=7)
    assert "transcript_7.jsonl" in taken, "the name is taken before the file is moved"
    assert names(tmp_path / "t") == [".gitignore"]
    monkeypatch.undo()
    assert save(tmp_path / "t", TALK, epoch=7).name == "transcript_7.jsonl"


def test_reading_what_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"transcript_1\.jsonl: it is not there"):
        load(tmp_path / "transcript_1.jsonl")
    with pytest.raises(StoreError, match="it is a folder"):
        load(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="no folder"):
        transcripts_in(tmp_path / "file")


ONE, TWO = b'{"role": "user", "content": "one"}', b'{"role": "assistant", "content": "two"}'


@pytest.mark.parametrize(
    ("data", "texts", "damaged"),
    [
        (b"", [], 0),
        (b"\n\n \n", [], 0),
        (ONE + b"\n" + TWO, ["one", "two"], 0),
        (ONE + b"\r\n" + TWO + b"\r\n", ["one", "two"], 0),
        (b"\xef\xbb\xbf" + ONE + b"\n", ["one"], 0),
        (ONE + TWO + b"\n" + ONE, ["one"], 1),
        (b"\0" * 4096, [], 1),
        (ONE + b"\n" + b"\0" * 4096, ["one"], 1),
        (ONE + b"\n%$\xff\xfe garbage\n" + TWO + b"\n", ["one", "two"], 1),
        (ONE + b"garbage\n" + TWO + b"\n", ["two"], 1),
        (ONE.replace(b"n", b"\xff") + b"\n" + TWO, ["two"], 1),
        (ONE + b"\n[1]\n3\nnull\n{}\n" + b'{"role": 5}\n' + TWO, ["one", "two"], 5),
        (ONE + b'\n{"type": "checkpoint", "version": 9}\n' + TWO, ["one", "two"], 1),
        (b"[" * 100_000 + b"\n" + ONE, ["one"], 1),
        (b"9" * 5_000 + b"\n" + ONE, ["one"], 1),
    ],
)
def test_good_lines_are_read_from_damaged_files(
    tmp_path: Path, data: bytes, texts: list[str], damaged: int
) -> None:
    path = tmp_path / "transcript_1.jsonl"
    path.write_bytes(data)
    found = load(path)
    assert [message.text for message in found.messages] == texts
    assert found.damaged == damaged
    assert (found.warning is None) == (damaged == 0)
    assert path.read_bytes() == data


NESTED = b'{"role": "assistant", "content": "outside", "x": [%b, %b]}' % (ONE, ONE)


def test_the_inside_of_a_torn_line_is_never_a_message(tmp_path: Path) -> None:
    torn = [NESTED[:cut] for cut in range(1, len(NESTED))]
    path = tmp_path / "transcript_1.jsonl"
    path.write_bytes(b"\n".join((*torn, *(each + ONE for each in torn), TWO)))
    found = load(path)
    assert ([message.text for message in found.messages], found.damaged) == (["two"], 2 * len(torn))


def test_a_file_that_may_only_be_read_is_read_and_left_alone(tmp_path: Path) -> None:
    path = save(tmp_path, TALK, epoch=7)
    before = path.read_bytes()
    path.chmod(0o400)
    tmp_path.chmod(0o500)
    try:
        assert load(path).messages == TALK
        assert transcripts_in(tmp_path) == (path,)
    finally:
        tmp_path.chmod(0o700)
    assert (path.read_bytes(), mode(path), names(tmp_path)) == (before, 0o400, [path.name])


def test_a_last_line_cut_at_any_byte_costs_that_line_alone(tmp_path: Path) -> None:
    last = '{"role": "assistant", "content": "zwölf 🙂"}'.encode()
    path = tmp_path / "transcript_1.jsonl"
    for cut in range(1, len(last)):
        path.write_bytes(ONE + b"\n" + last[:cut])
        found = load(path)
        assert [message.text for message in found.messages] == ["one"]
        assert found.warning == f"{path}: 1 damaged line was passed over, 1 read"
    path.write_bytes(ONE + b"\n" + last)
    assert load(path).damaged == 0


FULL = "the disc is full: free some space and try again"


def full_disc(monkeypatch: pytest.MonkeyPatch, tries: list[str], *, after: int = 0) -> None:
    """From now on nothing more of a transcript comes to the disc, but for the first `after`."""
    fsync = os.fsync

    def refuse(descriptor: int) -> None:
        name = Path(f"/proc/self/fd/{descriptor}").readlink().name
        if name.removeprefix(".").startswith("transcript_"):
            tries.append(name)
            if len(tries) > after:
                raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse)


def runner_for(model: ScriptedModel, tmp_path: Path, **options: Any) -> Runner:
    agent = Agent(model, tools=[read], compaction=Compaction(**{"micro": None, **options}))
    return Runner(agent, transcripts=tmp_path / "transcripts")


async def test_a_failing_disc_stops_the_compaction_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[str] = []
    full_disc(monkeypatch, tries)
    model = ScriptedModel(reading(40, words=60), window=64_000)
    runner = runner_for(model, tmp_path, trigger=On("result"))
    with structlog.testing.capture_logs() as logs:
        events = await watched(runner, "Read it all.")
    assert isinstance(events[-1], RunEnded)
    assert (events[-1].status, events[-1].output) == ("answered", "all read")
    ended = [event for event in events if isinstance(event, CompactionEnded)]
    says = f"the transcript could not be saved: {tmp_path / 'transcripts'}: {FULL}"
    assert {(event.status, event.error, event.transcript) for event in ended} == {("failed", says, None)}
    said = {(line["log_level"], line["error"]) for line in logs if line["event"] == "compaction_ended"}
    assert said == {("warning", says)}
    assert 1 <= len(tries) == len(ended) <= STRIKES, "no storm of tries"
    assert not any(isinstance(record.event, Compacted) for record in await runner.store.read("s"))
    assert [request.purpose for request in model.requests] == ["agent"] * 41, "no summary was paid for"
    assert names(tmp_path / "transcripts") == [".gitignore"]


@pytest.mark.deep
@pytest.mark.parametrize("micro", [None, MicroCompact(min_gain_tokens=10**9)])
@pytest.mark.parametrize("after", [0, 1])
async def test_a_request_that_does_not_fit_without_it_is_never_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int, micro: MicroCompact | None
) -> None:
    tries: list[str] = []
    full_disc(monkeypatch, tries, after=after)
    model = ScriptedModel(reading(40, words=900), window=8_000, max_output_tokens=500)
    runner = runner_for(model, tmp_path, micro=micro)
    with pytest.raises(ContextOverflowError) as caught:
        await runner.run("Read it all.", session_id="s")
    assert FULL in str(caught.value)
    assert "the transcript could not be saved" in str(caught.value)
    assert "transcript_failure='go_on'" in str(caught.value)
    assert "\n" not in str(caught.value)
    sizes = [count_request(request, counter_for(model.name)) for request in model.requests]
    assert max(sizes) <= 8_000 - 500
    ways = 1 + after  # to append to the one that is there, and to write a new one
    assert len(tries) <= after + 2 * ways, "one at the threshold, one where it does not fit"
    assert len([record for record in await runner.store.read("s") if is_compaction(record)]) == after
    monkeypatch.undo()
    result = await runner.resume("s")
    assert result.output == "all read"


def is_compaction(record: Record) -> bool:
    return isinstance(record.event, Compacted)


async def test_a_policy_may_let_it_go_on_without_a_transcript(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[str] = []
    full_disc(monkeypatch, tries)
    model = ScriptedModel(reading(40), window=8_000, summary=every_fact)
    runner = runner_for(model, tmp_path, transcript_failure="go_on")
    events = await watched(runner, "Read it all.")
    assert isinstance(events[-1], RunEnded)
    assert events[-1].output == "all read"
    ended = [event for event in events if isinstance(event, CompactionEnded)]
    assert len(ended) == len(tries) > STRIKES, "it is no strike"
    says = f"the transcript could not be saved: {tmp_path / 'transcripts'}: {FULL}"
    assert {(event.status, event.error, event.transcript) for event in ended} == {("done", says, None)}
    records = await runner.store.read("s")
    done = [record.event for record in records if isinstance(record.event, Compacted)]
    assert len(done) == len(ended)
    assert {event.transcript for event in done} == {None}
    assert all(event.replacement.startswith("[Conversation compressed") for event in done)
    assert not any("transcript_" in event.replacement for event in done), "no file is named that is not there"
    assert "Read it all." in {
        record.event.message.text for record in records if isinstance(record.event, MessageRecord)
    }


async def test_asked_for_by_hand_it_fails_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedModel(reading(6), window=64_000)
    runner = runner_for(model, tmp_path)
    await runner.run("Read it all.", session_id="s")
    before = await runner.store.read("s")
    tries: list[str] = []
    full_disc(monkeypatch, tries)
    result = await runner.compact("s")
    assert result is not None
    assert (result.status, len(tries)) == ("failed", 1)
    assert (
        result.error == result.unsaved == f"the transcript could not be saved: {tmp_path}/transcripts: {FULL}"
    )
    assert (await runner.store.read("s"))[:-1] == before


@pytest.mark.parametrize("bad", ["", "stop ", True, None, "skip"])
def test_the_policy_knows_two_words(bad: Any) -> None:
    with pytest.raises(UsageError, match=r"transcript_failure must be 'stop' or 'go_on', not "):
        Compaction(transcript_failure=bad)


async def test_none_switches_transcripts_and_files_of_results_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = ScriptedModel(reading(8, words=9_000), window=8_000, summary=every_fact)
    runner = Runner(Agent(model, tools=[read], compaction=Compaction(micro=None)), transcripts=None)
    result = await runner.run("Read it all.", session_id="s")
    assert {(each.status, each.transcript) for each in result.compactions} == {("done", None)}
    results = [message.text for message in await history(runner) if message.role == "tool"]
    assert len(results) == 8
    assert all("call the tool again for the rest" in text for text in results)
    assert names(tmp_path) == []


async def history(runner: Runner) -> list[Message]:
    records = await runner.store.read("s")
    return [record.event.message for record in records if isinstance(record.event, MessageRecord)]
