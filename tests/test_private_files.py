"""What is made on disc is its owner's alone, whatever the umask, and what stood there keeps its rights."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentloop import Agent, SyncRunner
from agentloop._plumbing.private_files import make_private_file, make_private_folder
from agentloop.testing import ScriptedModel, calls
from tests.cli_kit import agentloop, terminal

READY = "\x1b[?2004h"
"""What the prompt line switches on when it takes input."""


@pytest.fixture(params=[0o022, 0, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """A umask that would leave what is made open to others, or not."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    """The rights of all that stands below."""
    return {str(path.relative_to(folder)): mode(path) for path in folder.rglob("*")}


def mode(path: Path) -> int:
    """Its rights."""
    return stat.S_IMODE(path.lstat().st_mode)


def assert_private(folder: Path) -> None:
    """Files are 0600 and folders 0700, all the way down."""
    found = {name: oct(found) for name, found in modes(folder).items()}
    wanted = {name: "0o700" if (folder / name).is_dir() else "0o600" for name in found}
    assert found == wanted


def read(name: str) -> str:
    """Read a file."""
    return "word " * 60_000


def all_that_a_run_makes(folder: Path) -> dict[str, int]:
    """Let a run make a store, a spilled result and a transcript below; the rights of all while it is open."""
    answers = [calls(("read", {"name": "a"})), calls(("read", {"name": "b"})), "read both"]
    with SyncRunner(
        Agent(ScriptedModel(answers, window="8k"), tools=[read]),
        store=f"sqlite:///{folder / 'deep' / 'er' / 'sessions.db'}",
        transcripts=folder / "kept" / "per" / "day",
    ) as runner:
        runner.run("read both files", session_id="s")
        runner.compact("s")
        assert_private(folder)
        return modes(folder)


def test_all_that_a_run_makes_is_private(tmp_path: Path, umask: int) -> None:
    open_files = all_that_a_run_makes(tmp_path)
    assert {"deep/er/sessions.db", "deep/er/sessions.db-wal", "deep/er/sessions.db-shm"} <= set(open_files)
    assert any("result_" in name for name in open_files)
    assert any("transcript_" in name for name in open_files)


@pytest.mark.parametrize("taken", [0o277, 0o777], ids=oct)
def test_a_umask_that_takes_the_owners_rights_too_takes_none(tmp_path: Path, taken: int) -> None:
    before = os.umask(taken)
    try:
        all_that_a_run_makes(tmp_path)
        make_private_file(tmp_path / "made")
    finally:
        os.umask(before)
    (tmp_path / "made").chmod(0o640)
    make_private_file(tmp_path / "made")
    assert mode(tmp_path / "made") == 0o640
    (tmp_path / "made").unlink()
    assert_private(tmp_path)


def test_what_stood_there_keeps_its_rights(tmp_path: Path, umask: int) -> None:
    for name in ("data", "kept"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o755)
    (tmp_path / "data").chmod(0o750)
    with SyncRunner(
        Agent(ScriptedModel(["done"])),
        store=f"sqlite:///{tmp_path / 'data' / 'sessions.db'}",
        transcripts=tmp_path / "kept",
    ) as runner:
        runner.run("hello", session_id="s")
    make_private_folder(tmp_path / "data" / "new" / "newer")
    make_private_folder(tmp_path / "kept")
    assert [mode(tmp_path / name) for name in ("data", "kept")] == [0o750, 0o755]
    assert [mode(tmp_path / "data" / name) for name in ("new", "new/newer")] == [0o700, 0o700]


def test_a_folder_that_cannot_be_made_is_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    for name in ("file", "file/below", "gone"):
        with pytest.raises(OSError, match=name.partition("/")[0]):
            make_private_folder(tmp_path / name)


@pytest.mark.deep
def test_all_that_the_command_line_makes_is_private(tmp_path: Path, umask: int) -> None:
    work = tmp_path / "work"
    work.mkdir()
    own = {"AGENTLOOP_HOME": str(tmp_path / "home" / "of" / "it"), "HOME": str(tmp_path / "work")}
    done = agentloop("-m", "offline", "-p", "hello", "--session", "s", cwd=work, env=own)
    assert done.status == 0, done.err
    for shape in ("openai", "events", "markdown"):
        done = agentloop(
            "sessions", "export", "s", "--format", shape, "-o", f"new.{shape}", cwd=work, env=own
        )
        assert done.status == 0, done.err
    assert_private(tmp_path / "home")
    assert_private(work)


@pytest.mark.deep
def test_an_export_over_a_file_keeps_its_rights(tmp_path: Path, umask: int) -> None:
    assert agentloop("-p", "hello", "--session", "s", cwd=tmp_path).status == 0
    (tmp_path / "old.json").write_text("old")
    (tmp_path / "old.json").chmod(0o644)
    assert agentloop("sessions", "export", "s", "-o", "old.json", cwd=tmp_path).status == 0
    assert "hello" in (tmp_path / "old.json").read_text()
    assert mode(tmp_path / "old.json") == 0o644


@pytest.mark.deep
def test_the_history_of_the_chat_is_private_and_redacted(tmp_path: Path) -> None:
    secret = "sk-proj-" + "aB3" * 12
    home = tmp_path / "home" / "deep"
    before = os.umask(0)
    try:
        with terminal("-m", "offline", cwd=tmp_path, env={"AGENTLOOP_HOME": str(home)}) as chat:
            chat.wait_for(READY)
            chat.type(f"keep {secret} in mind\n")
            chat.wait_for(READY)
            chat.type("/quit\n")
            assert chat.end() == 0
    finally:
        os.umask(before)
    assert "keep [redacted: OpenAI key] in mind" in (home / "history").read_text()
    assert secret.encode() not in b"".join(path.read_bytes() for path in home.iterdir())
    assert_private(tmp_path / "home")
