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


def imported(text: str, name: str, *, cwd: Path) -> None:
    """The text as a session of that name, from a file: a call that reads a pipe takes half a second more."""
    (cwd / f"{name}.in").write_text(text)
    sessions("import", f"{name}.in", "--session", name, cwd=cwd)


@pytest.mark.deep
def test_the_list_holds_this_folder_and_all_of_them_when_asked(place: Path) -> None:
    own = [line.split("\t")[0] for line in sessions("list", cwd=place).out.splitlines()][1:]
    everywhere = [line.split("\t")[0] for line in sessions("list", "--all", cwd=place).out.splitlines()][1:]
    assert "short" in own
    assert "long" not in own
    assert {"long", "short"} <= set(everywhere)


def test_a_list_in_a_terminal_has_its_columns_under_their_heads(place: Path) -> None:
    with terminal("sessions", "list", cwd=place, env={"COLUMNS": "80"}) as screen:
        assert screen.end() == 0
    heading, *rows = screen.screen.splitlines()
    assert heading.split() == ["session", "updated", "length", "title", "folder"]
    assert all(len(row) <= 80 for row in rows)
    assert any(row.endswith("…") for row in rows)
    assert all(row[heading.index("length") :].split()[1] == "records" for row in rows)
    piped, *_ = sessions("list", cwd=place).out.splitlines()
    assert piped.split("\t") == [*heading.split(), "owner", "expires"]


@pytest.mark.deep
def test_the_list_ends_with_the_newest(place: Path) -> None:
    listed = [line.split("\t")[0] for line in sessions("list", "--all", cwd=place).out.splitlines()][1:]
    data = [info["id"] for info in json.loads(sessions("list", "--all", "--json", cwd=place).out)]
    assert listed == data[::-1]
    newest = sessions("list", "--all", "-n", "1", cwd=place).out.splitlines()[1:]
    assert [line.split("\t")[0] for line in newest] == listed[-1:]


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


@pytest.mark.deep
def test_the_newest_records_are_shown_alone_and_as_json(place: Path) -> None:
    lines = sessions("export", "long", "--format", "events", cwd=place).out.splitlines()
    assert json.loads(sessions("show", "long", "--json", cwd=place).out) == list(map(json.loads, lines))
    newest = json.loads(sessions("show", "long", "--json", "--tail", "2", cwd=place).out)
    assert [each["id"] for each in newest] == [json.loads(line)["id"] for line in lines[-2:]]
    whole = sessions("show", "long", cwd=place).out
    last = sessions("show", "long", "--tail", "1", cwd=place).out
    assert len(last) < len(whole)
    assert last.splitlines()[0] == whole.splitlines()[0]
    assert whole.endswith(last.splitlines()[-1] + "\n")


def test_a_new_title_names_the_session(tmp_path: Path) -> None:
    assert agentloop("-p", "hello there", "--session", "short", cwd=tmp_path).status == 0
    sessions("rename", "short", "A talk", cwd=tmp_path)
    assert sessions("show", "A talk", cwd=tmp_path).out.startswith("short\t")


@pytest.mark.parametrize("shape", ["openai", "events"])
def test_an_export_comes_back_in_as_it_was(shape: str, place: Path) -> None:
    text = sessions("export", "long", "--format", shape, cwd=place).out
    new = sessions("import", "-", "--session", f"copy-{shape}", cwd=place, stdin=text).out.strip()
    assert new == f"copy-{shape}"
    again = sessions("export", new, cwd=place).out
    assert json.loads(again) == json.loads(sessions("export", "long", cwd=place).out)


@pytest.mark.deep
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
    imported('{"role":"user","content":"x"}', "doomed", cwd=place)
    refused = agentloop("sessions", "delete", "doomed", cwd=place)
    assert refused.status == 2
    assert "--yes" in refused.complaint()
    sessions("delete", "doomed", "--yes", cwd=place)
    assert agentloop("sessions", "show", "doomed", cwd=place).status == 2


@pytest.mark.deep
@pytest.mark.parametrize(("answer", "stays"), [("n\n", True), ("y\n", False)])
def test_delete_asks_in_a_terminal(answer: str, stays: bool, place: Path) -> None:
    name = f"asked-{stays}"
    imported('{"role":"user","content":"x"}', name, cwd=place)
    with terminal("sessions", "delete", name, cwd=place) as screen:
        screen.wait_for("whole log?")
        screen.type(answer)
        assert screen.end() == 0
    assert (agentloop("sessions", "show", name, cwd=place).status == 0) is stays


def test_a_preview_says_where_nothing_would_be_saved(place: Path) -> None:
    agentloop("-m", "offline", "--session", "door", "-p", "My door is green.", cwd=place)
    agentloop("-m", "offline", "--session", "door", "-p", "What is my door?", cwd=place)
    preview = agentloop("compact", "door", "--preview", cwd=place)
    assert preview.out.startswith("nothing worth compacting yet: position 5 by KeepRecentFraction would save")
    assert ": 1 message, " in preview.out
    assert agentloop("compact", "door", cwd=place).out.startswith("nothing worth compacting yet: ")


def test_compact_preview_compact_and_undo(place: Path) -> None:
    text = sessions("export", "long", "--format", "events", cwd=place).out
    imported(text, "work", cwd=place)
    preview = agentloop("compact", "work", "--preview", cwd=place)
    assert "would compact positions" in preview.out
    assert "$" not in preview.out, "what is free costs nothing that is worth a word"
    other = agentloop("compact", "work", "--preview", "--strategy", "SlidingWindow(2)", cwd=place)
    assert "by SlidingWindow: " in other.out
    assert sessions("export", "work", "--format", "events", cwd=place).out.count("\n") == text.count("\n") + 1
    done = agentloop("compact", "work", "--focus", "the parsers", cwd=place)
    assert done.status == 0, done.out + done.err
    assert done.out.startswith("compacted: ")
    assert "the offline model wrote the summary, by rules" in done.err
    kinds = [
        json.loads(line)["kind"]
        for line in sessions("export", "work", "--format", "events", cwd=place).out.splitlines()
    ]
    assert "compacted" in kinds
    assert "what stands instead would still tell of it" in agentloop("rewind", "work", cwd=place).err
    assert "taken back: compaction" in agentloop("undo", "work", cwd=place).out
    assert "undo gives it back" in agentloop("rewind", "work", cwd=place).out
    assert "taken back: rewind" in agentloop("undo", "work", cwd=place).out
    assert "no compaction" in agentloop("undo", "work", cwd=place).out


@pytest.mark.parametrize("share", ["0", "0%", "0.3", "30%"])
def test_a_strategy_takes_the_shares_that_it_takes_in_python(share: str, place: Path) -> None:
    named = f"keep-recent-fraction:{share}"
    assert agentloop("compact", "long", "--preview", "--strategy", named, cwd=place).status == 0


def test_too_little_to_compact_is_no_failure_and_says_what_is_enough(place: Path) -> None:
    agentloop("-p", "hello there", "--session", "little", cwd=place)
    few = agentloop("compact", "little", "-m", "offline", cwd=place)
    assert (few.status, "nothing worth compacting yet: " in few.out) == (0, True)
    assert "more than a summary of it, some hundreds of tokens" in few.out
    for number in range(4):
        agentloop("-p", f"Message {number} of some words.", "--session", "small", cwd=place)
    some = agentloop("compact", "small", "-m", "offline", cwd=place)
    assert some.status == 0, some.err
    assert some.out.startswith("nothing worth compacting yet: ")
    assert "offline model wrote" not in some.err, "it wrote none that stands"


@pytest.mark.deep
def test_a_session_goes_with_the_transcripts_that_it_made(place: Path) -> None:
    imported(sessions("export", "long", cwd=place).out, "brief", cwd=place)
    before = set((place / ".transcripts").glob("[!.]*"))
    assert agentloop("compact", "brief", cwd=place).out.startswith("compacted: ")
    assert len(set((place / ".transcripts").glob("[!.]*")) - before) == 1
    sessions("delete", "brief", "--yes", cwd=place)
    assert set((place / ".transcripts").glob("[!.]*")) == before


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


@pytest.mark.deep
def test_a_list_survives_a_date_that_no_calendar_has(place: Path) -> None:
    imported('{"role":"user","content":"x"}', "late", cwd=place)
    with closing(sqlite3.connect(place / "agentloop" / "sessions.db")) as connection, connection:
        connection.execute("UPDATE sessions SET updated = 1e300 WHERE id = 'late'")
    assert "late\t-\t" in sessions("list", "--all", cwd=place).out
    sessions("delete", "late", "--yes", cwd=place)


MERGED = """\
{"v":1,"kind":"run_started","run_id":"r1"}
{"v":1,"kind":"message_added","message":{"role":"user","content":"task"},"tokens":3,"run_id":"r1"}
{"v":1,"kind":"message_added","message":{"role":"user","content":"aside"},"tokens":3,"branch":"scout"}
{"v":1,"kind":"message_added","message":{"role":"assistant","content":"done"},"tokens":3,"run_id":"r1"}
{"v":1,"kind":"run_ended","run_id":"r1","status":"answered"}
{"v":1,"kind":"message_added","message":{"role":"user","content":"more"},"tokens":3,"run_id":"r2"}
{"v":1,"kind":"compacted","covers":[[4,4]],"replacement":"it was done","at":6,"tokens":3}
"""


@pytest.fixture(scope="module")
def merged(place: Path) -> Path:
    """The same folder with a session `merged`, which holds two runs, a branch and a compaction."""
    imported(MERGED, "merged", cwd=place)
    return place


@pytest.mark.parametrize(
    ("options", "texts"),
    [
        (("--branch", "main"), ["task", "done", "more"]),
        (("--branch", "scout"), ["aside"]),
        (("--run", "r1"), ["task", "done"]),
        (("--range", "2-4"), ["task", "done"]),
        (("--range", "4-"), ["done", "more"]),
        (("--range", "-3"), ["task"]),
        (("--range=-3", "--branch", "scout"), ["aside"]),
        (("--range", "6"), ["more"]),
        (("--kind", "message_added", "--kind", "compacted", "--run", "r2"), ["more"]),
    ],
)
def test_an_export_holds_what_the_filter_takes(
    options: tuple[str, ...], texts: list[str], merged: Path
) -> None:
    exported = json.loads(sessions("export", "merged", *options, cwd=merged).out)
    assert [message["content"] for message in exported] == texts


@pytest.mark.deep
def test_filtered_events_keep_their_positions_and_filtered_text_its_branch(merged: Path) -> None:
    def export(shape: str, *options: str) -> str:
        return sessions("export", "merged", "--format", shape, *options, cwd=merged).out

    events = [json.loads(line) for line in export("events", "--kind", "compacted").splitlines()]
    assert [(event["position"], event["covers"]) for event in events] == [(7, [[4, 4]])]
    text = "# task\n\n## 3 User in scout\n\naside\n\n## 4 Assistant\n\ndone\n"
    assert export("markdown", "--range", "3-4") == text
    assert export("events").startswith('{"v":1,')


@pytest.mark.deep
def test_a_filtered_export_comes_back_in_where_nothing_is_missing_that_it_points_at(merged: Path) -> None:
    def export(*options: str) -> str:
        return sessions("export", "merged", "--format", "events", *options, cwd=merged).out

    imported(export("--range", "4-7"), "part", cwd=merged)
    assert "*4: 1–1 compacted" in sessions("show", "part", cwd=merged).out
    refused = agentloop("sessions", "import", "-", cwd=merged, stdin=export("--range", "5-7"))
    assert refused.status == 2
    assert "line 3: it points at position 4, which the export left out" in refused.complaint()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--range", "0"), "--range must be like 12-40, 12-, -40 or 7, positions from 1 on, not '0'"),
        (("--range", "4-2"), "--range must be like"),
        (("--range", "-"), "--range must be like"),
        (("--range", ""), "--range must be like"),
        (("--range", "1-2-3"), "--range must be like"),
        (("--range", "9" * 5_000), "--range must be like"),
        (("--range", "٣"), "--range must be like"),
        (("--kind", "dreamt"), "'dreamt' is not one of 'message_added', "),
        (("--kind", "compacted"), "--format openai holds messages alone"),
        (("--branch", "scuot"), "--branch: the session has no 'scuot'; it has 'scout', 'main'"),
        (("--branch", " "), "--branch is empty"),
        (("--run", "r3"), "--run: the session has no 'r3'; it has 'r2', 'r1'"),
        (("--run", ""), "--run is empty"),
    ],
)
def test_what_can_be_no_filter_of_an_export_is_one_line(
    options: tuple[str, ...], says: str, merged: Path
) -> None:
    done = agentloop("sessions", "export", "merged", *options, "-o", "never.json", cwd=merged)
    assert done.status == 2
    assert says in done.complaint()
    assert not (merged / "never.json").exists()


def test_an_export_that_takes_nothing_says_so(merged: Path) -> None:
    done = sessions("export", "merged", "--range", "90-", cwd=merged)
    assert json.loads(done.out) == []
    assert "nothing in the session is all of what was asked for" in done.complaint()


@pytest.mark.deep
def test_a_search_shows_a_place_once(place: Path) -> None:
    found = json.loads(sessions("search", "hello there", "--session", "short", "--json", cwd=place).out)
    assert [each["kind"] for each in found] == ["message_added", "message_added"]
    sessions("rename", "short", "hello to you and there", cwd=place)
    found = json.loads(sessions("search", "hello there", "--session", "short", "--json", cwd=place).out)
    assert [each["kind"] for each in found if each["kind"] == "described"] == ["described"]
    sessions("rename", "short", "hello there", cwd=place)
