"""The stored sessions: listed, shown, renamed, exported, imported, deleted, compacted, undone."""

import email
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli_kit import Finished, agentloop, terminal


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one long session, `long`, whose folder is the email package, and a short one."""
    folder = tmp_path_factory.mktemp("sessions")
    job = "Read every Python file in this folder and say what each one does."
    work = str(Path(email.__file__).parent)
    assert agentloop("-p", job, "--workdir", work, "--session", "long", cwd=folder).status == 0
    assert agentloop("-p", "hello there", "--session", "short", cwd=folder).status == 0
    return folder


def sessions(*arguments: str, cwd: Path, stdin: str | None = None) -> Finished:
    """A call of `sessions` that must do."""
    done = agentloop("sessions", *arguments, cwd=cwd, stdin=stdin)
    assert done.status == 0, done.err
    return done


def test_the_list_holds_this_folder_and_all_of_them_when_asked(place: Path) -> None:
    own = [line.split("\t")[0] for line in sessions("list", cwd=place).out.splitlines()]
    everywhere = [line.split("\t")[0] for line in sessions("list", "--all", cwd=place).out.splitlines()]
    assert "short" in own
    assert "long" not in own
    assert {"long", "short"} <= set(everywhere)


def test_the_list_for_scripts_is_json(place: Path) -> None:
    listed = json.loads(sessions("list", "--all", "--json", cwd=place).out)
    infos = {info["id"]: info for info in listed}
    assert infos["short"]["title"] == "hello there"
    assert infos["short"]["length"] > 0


def test_an_empty_list_says_so_on_standard_error(tmp_path: Path) -> None:
    done = sessions("list", cwd=tmp_path)
    assert done.out == ""
    assert "no sessions" in done.err


def test_show_has_every_word(place: Path) -> None:
    assert "hello there" in sessions("show", "sho", cwd=place).out


def test_a_new_title_names_the_session(place: Path) -> None:
    sessions("rename", "short", "A talk", cwd=place)
    assert sessions("show", "A talk", cwd=place).out.startswith("short\t")


@pytest.mark.parametrize("shape", ["openai", "events"])
def test_an_export_comes_back_in_as_it_was(shape: str, place: Path) -> None:
    text = sessions("export", "long", "--format", shape, cwd=place).out
    new = sessions("import", "-", "--session", f"copy-{shape}", cwd=place, stdin=text).out.strip()
    assert new == f"copy-{shape}"
    again = sessions("export", new, cwd=place).out
    assert json.loads(again) == json.loads(sessions("export", "long", cwd=place).out)


def test_an_export_into_a_file_is_whole(place: Path) -> None:
    done = sessions("export", "long", "--format", "markdown", "-o", "long.md", cwd=place)
    assert done.out == ""
    assert (place / "long.md").read_text() == sessions(
        "export", "long", "--format", "markdown", cwd=place
    ).out
    assert not list(place.glob(".*.part"))


def test_an_import_never_writes_into_a_session_that_exists(place: Path) -> None:
    (place / "one.json").write_text('[{"role": "user", "content": "hi"}]')
    done = agentloop("sessions", "import", "one.json", "--session", "long", cwd=place)
    assert done.status == 2
    assert "exists already" in done.complaint()


def test_an_imported_session_goes_on(place: Path) -> None:
    (place / "talk.jsonl").write_text(
        '{"role":"user","content":"hi"}\n{"role":"assistant","content":"hello"}\n'
    )
    new = sessions("import", "talk.jsonl", cwd=place).out.strip()
    assert agentloop("-p", "and now?", "-r", new, cwd=place).status == 0


def test_delete_needs_a_yes_where_nobody_can_be_asked(place: Path) -> None:
    sessions("import", "-", "--session", "doomed", cwd=place, stdin='{"role":"user","content":"x"}')
    refused = agentloop("sessions", "delete", "doomed", cwd=place)
    assert refused.status == 2
    assert "--yes" in refused.complaint()
    sessions("delete", "doomed", "--yes", cwd=place)
    assert agentloop("sessions", "show", "doomed", cwd=place).status == 2


@pytest.mark.parametrize(("answer", "stays"), [("n\n", True), ("y\n", False)])
def test_delete_asks_in_a_terminal(answer: str, stays: bool, place: Path) -> None:
    name = f"asked-{stays}"
    sessions("import", "-", "--session", name, cwd=place, stdin='{"role":"user","content":"x"}')
    with terminal("sessions", "delete", name, cwd=place) as screen:
        screen.wait_for("whole log?")
        screen.type(answer)
        assert screen.end() == 0
    assert (agentloop("sessions", "show", name, cwd=place).status == 0) is stays


def test_compact_preview_compact_and_undo(place: Path) -> None:
    text = sessions("export", "long", "--format", "events", cwd=place).out
    sessions("import", "-", "--session", "work", cwd=place, stdin=text)
    preview = agentloop("compact", "work", "--preview", cwd=place)
    assert "would compact positions" in preview.out
    assert sessions("export", "work", "--format", "events", cwd=place).out.count("\n") == text.count("\n") + 1
    done = agentloop("compact", "work", "--focus", "the parsers", cwd=place)
    assert done.status == 0, done.out + done.err
    assert done.out.startswith("compacted: ")
    kinds = [
        json.loads(line)["kind"]
        for line in sessions("export", "work", "--format", "events", cwd=place).out.splitlines()
    ]
    assert "compacted" in kinds
    assert "taken back" in agentloop("undo", "work", cwd=place).out
    assert "no compaction" in agentloop("undo", "work", cwd=place).out


def test_what_is_stored_is_for_its_owner_alone(place: Path) -> None:
    folder = place / "agentloop"
    assert folder.stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.glob("*.db"))


@pytest.mark.parametrize("name", ["", ".", "/", "x" * 300])
def test_an_export_to_what_is_no_file_is_refused(name: str, place: Path) -> None:
    done = agentloop("sessions", "export", "short", "-o", name, cwd=place)
    assert done.status == 2, done.err
    assert done.complaint()


def test_an_export_may_have_the_longest_name(place: Path) -> None:
    sessions("export", "short", "-o", "x" * 250, cwd=place)
    assert json.loads((place / ("x" * 250)).read_text())


def test_an_import_that_is_not_in_utf8_is_refused_with_its_line(place: Path) -> None:
    (place / "latin.jsonl").write_bytes(b'{"role":"user","content":"a"}\n{"role":"user","content":"\xe9"}\n')
    done = agentloop("sessions", "import", "latin.jsonl", cwd=place)
    assert done.status == 2
    assert "line 2" in done.complaint()


def test_a_list_survives_a_date_that_no_calendar_has(place: Path) -> None:
    sessions("import", "-", "--session", "late", cwd=place, stdin='{"role":"user","content":"x"}')
    with closing(sqlite3.connect(place / "agentloop" / "sessions.db")) as connection, connection:
        connection.execute("UPDATE sessions SET updated = 1e300 WHERE id = 'late'")
    assert "late\t-\t" in sessions("list", "--all", cwd=place).out
    sessions("delete", "late", "--yes", cwd=place)
