"""What was written is read: the same messages, context and bytes, and runs go on with it."""

import json
from pathlib import Path

import pytest

from agentloop import Agent, Runner
from agentloop.codec import decode, encode
from agentloop.testing import ScriptedModel
from tests.nets.commands import called
from tests.nets.frozen import frozen, hold
from tests.nets.logs import (
    FORMATS,
    LOGS,
    READ,
    SESSIONS,
    Looking,
    listed,
    records,
    rewritten,
    sent_next,
    unpacked,
)

pytestmark = pytest.mark.whole


def test_every_record_is_read_and_written_as_ever() -> None:
    hold(frozen(READ)["records"], rewritten(records()), "what records are written as")


def test_a_record_keeps_its_id_its_time_and_its_kind() -> None:
    for line in records():
        data, back = json.loads(line), json.loads(encode(decode(line)))
        assert all(back.get(name) == data.get(name) for name in ("id", "time", "kind")), line


@pytest.mark.parametrize("session", SESSIONS)
async def test_a_session_of_an_old_file_goes_on_with_the_same_context(session: str, tmp_path: Path) -> None:
    sent = await sent_next(unpacked("store.db", tmp_path), session)
    hold(frozen(READ)["sent"][session], sent, f"what a model is sent for {session}")


@pytest.mark.parametrize("session", frozen(READ)["undone"])
async def test_a_compaction_of_an_old_file_is_taken_back(session: str, tmp_path: Path) -> None:
    sent = await sent_next(unpacked("store.db", tmp_path), session, undo=True)
    hold(frozen(READ)["undone"][session], sent, f"what a model is sent for {session} after undo")


async def test_an_old_file_is_listed_searched_and_sound(tmp_path: Path) -> None:
    hold(frozen(READ)["listed"], await listed(unpacked("store.db", tmp_path)), "the list")


@pytest.mark.parametrize("kept", [True, False], ids=["with an old checkpoint", "without one"])
async def test_a_long_log_goes_on(tmp_path: Path, kept: bool) -> None:
    path = unpacked("long.db", tmp_path)
    if not kept:
        store = Looking(path)
        await store.drop_checkpoint("long")
        await store.close()
    hold(frozen(READ)["sent"]["long"], await sent_next(path, "long"), "what a model is sent for long")


async def test_an_old_checkpoint_is_made_anew(tmp_path: Path) -> None:
    store = Looking(unpacked("long.db", tmp_path))
    async with Runner(Agent(ScriptedModel(["On.", "On."])), store=store, transcripts=None) as runner:
        await runner.run("And now?", session_id="long")
        assert min(store.read_after) == 0
        store.read_after.clear()
        await runner.run("And now?", session_id="long")
    assert min(store.read_after) > 1_000


@pytest.mark.parametrize("form", FORMATS)
def test_an_old_file_is_exported_to_the_same_bytes(form: str, tmp_path: Path) -> None:
    store = f"sqlite:///{unpacked('store.db', tmp_path)}"
    done = called(("sessions", "export", "job", "--format", form, "--store", store), str(tmp_path))
    assert (done.status, done.err) == (0, "")
    hold((LOGS / FORMATS[form]).read_text("utf-8"), done.out, f"the export as {form}")


@pytest.mark.parametrize(("name", "form"), [(FORMATS["events"], "events"), (FORMATS["openai"], "openai")])
def test_an_old_export_is_taken_in_and_comes_out_the_same(name: str, form: str, tmp_path: Path) -> None:
    taken = called(("sessions", "import", str(LOGS / name)), str(tmp_path))
    assert taken.status == 0, taken.err
    done = called(("sessions", "export", taken.out.strip(), "--format", form), str(tmp_path))
    wanted = (LOGS / name).read_text("utf-8")
    hold(wanted, done.out[: len(wanted)], f"what {name} comes out as")


def test_an_old_transcript_is_taken_in(tmp_path: Path) -> None:
    path = LOGS / "transcript_1.jsonl"
    taken = called(("sessions", "import", str(path)), str(tmp_path))
    assert taken.status == 0, taken.err
    done = called(("sessions", "export", taken.out.strip()), str(tmp_path))
    hold([json.loads(line) for line in path.read_text("utf-8").splitlines()], json.loads(done.out), "it")
