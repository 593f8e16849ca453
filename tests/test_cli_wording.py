"""What the command line says of stores, sessions, runs and times is so, and enough to go on with."""

import json
import re
from pathlib import Path

import psycopg
import pytest

from agentloop.cli.resume import program_name, resume_hint
from agentloop.cli.settings import settings_for
from agentloop.errors import UsageError
from agentloop.events import MessageRecord
from agentloop.messages import Message, ToolCall
from agentloop.sessions import Leases
from agentloop.stores import open_store
from agentloop.stores.postgres.address import address_of
from tests.cli_kit import agentloop
from tests.test_cli_sessions_kept import compacted, life, listed, said, sessions, stored

PLACE = "postgresql://h/d"


@pytest.mark.parametrize("more", [(), ("--verbose",), ("--base-url", "")])
def test_a_worker_that_names_no_model_does_not_begin(more: tuple[str, ...], tmp_path: Path) -> None:
    done = agentloop("worker", "--store", PLACE, *more, cwd=tmp_path)
    assert done.status == 2
    assert ("-m offline" in done.complaint()) is (more != ("--base-url", ""))


async def test_a_transcript_that_is_elsewhere_is_named_and_goes_where_its_folder_is_named(
    tmp_path: Path,
) -> None:
    paths = await compacted(tmp_path, s1="transcript_1.jsonl", s2="transcript_2.jsonl")
    paths["s2"].parent.rename(tmp_path / "kept")
    done = agentloop("sessions", "delete", "s1", "--yes", cwd=tmp_path)
    assert done.status == 0, done.err
    assert "transcript transcript_1.jsonl is not in .transcripts" in done.err
    assert "transcripts stay: transcript_1.jsonl" in done.err
    named = agentloop("sessions", "delete", "s2", "--yes", "--transcripts", "kept", cwd=tmp_path)
    assert named.status == 0, named.err
    assert "transcripts go: transcript_2.jsonl" in named.err
    assert listed(tmp_path) == {}


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"store": "postgresql://h/d"}, "agentloop --store postgresql://h/d -r s"),
        ({"store": "postgresql://ann@h/d"}, "agentloop --store postgresql://ann@h/d -r s"),
        ({"store": "postgresql://ann:@h/d"}, "agentloop --store postgresql://ann:@h/d -r s"),
        ({"store": "postgresql://h/d", "when_busy": "take-over"}, "agentloop --store postgresql://h/d -r s"),
        ({"store": "postgresql://h/d", "when_busy": "take_over"}, "agentloop --store postgresql://h/d -r s"),
        ({"when_busy": "wait"}, "agentloop --when-busy wait -r s"),
        ({"system": "Write to a@b.example"}, "agentloop --system 'Write to a@b.example' -r s"),
        ({"base_url": "http://h/v1"}, "agentloop --base-url http://h/v1 -r s"),
    ],
)
def test_the_hint_repeats_what_a_session_needs(
    flags: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["agentloop"])
    assert resume_hint("s", settings_for(flags, {})) == f"go on with: {words}"


def test_the_hint_names_a_program_that_a_shell_finds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("python", "agentloop"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    calls = {"/x/agentloop/__main__.py": "python -m agentloop", str(tmp_path / "agentloop"): "agentloop"}
    for called, name in calls.items():
        monkeypatch.setattr("sys.argv", [called])
        monkeypatch.setenv("PATH", str(tmp_path))
        assert program_name() == name
        monkeypatch.setenv("PATH", "/nowhere")
        assert program_name() == f"{tmp_path}/{name}"


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("store", "postgresql://ann:hunter22@h/d"),
        ("store", "postgresql://ann@h/d?password=hunter22"),
        ("store", "postgresql://h/d?sslpassword=hunter22"),
        ("base_url", "http://ann:hunter22@h/v1"),
        ("base_url", "http://hunter22@h/v1"),
    ],
)
def test_the_hint_says_in_words_what_holds_a_password(
    name: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["agentloop"])
    hint = resume_hint("s", settings_for({name: url, "model": "m"}, {}))
    option, variable = (
        f"--{name.replace('_', '-')}",
        {"store": "AGENTLOOP_STORE"}.get(name, "OPENAI_BASE_URL"),
    )
    assert "hunter22" not in hint
    assert hint.startswith("go on with: agentloop --model m -r s")
    assert f"and the same {option} ({variable})" in hint


def test_a_run_whose_database_went_away_says_how_to_go_on(database: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import psycopg, agentloop\n"
        "class Cut(agentloop.Callbacks):\n"
        "    async def on_event(self, event):\n"
        "        if type(event).__name__ == 'RunStarted':\n"
        f"            with psycopg.connect({database!r}, autocommit=True) as link:\n"
        "                link.execute('ALTER TABLE agentloop_events RENAME TO gone')\n"
    )
    call = ("-p", "hi", "-m", "offline", "--session", "s", "--store", database, "--callbacks", "mine:Cut")
    done = agentloop(*call, cwd=tmp_path)
    assert done.status == 1, done.err
    assert "go on with: " in done.err
    assert "-r s" in done.err.splitlines()[-1]
    with psycopg.connect(database, autocommit=True) as link:
        link.execute("ALTER TABLE gone RENAME TO agentloop_events")
    assert agentloop("-r", "s", "-m", "offline", "--store", database, cwd=tmp_path).status == 0


_FULL = """
    CREATE FUNCTION full_now() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN IF NEW.seq > {most} THEN RAISE EXCEPTION 'full'; END IF; RETURN NEW; END $$;
    CREATE TRIGGER full_now BEFORE INSERT ON agentloop_events FOR EACH ROW EXECUTE FUNCTION full_now()"""


@pytest.mark.parametrize("most", [2, 3])
async def test_a_run_that_cannot_go_on_with_a_session_says_how_to_try_again(
    most: int, database: str, tmp_path: Path
) -> None:
    call = ToolCall(id="c", name="list_files", arguments="{}")
    pending = MessageRecord(message=Message.assistant("Looking.", tool_calls=(call,)), tokens=1)
    store = open_store(database)
    await store.append("s", [said("task"), pending], expect=0)
    await store.close()
    with psycopg.connect(database, autocommit=True) as link:
        link.execute(_FULL.format(most=most).encode())
    done = agentloop("-p", "more", "-r", "s", "-m", "offline", "--store", database, cwd=tmp_path)
    assert done.status == 1
    assert "-r s" in done.err.splitlines()[-1]
    with psycopg.connect(database, autocommit=True) as link:
        link.execute("DROP TRIGGER full_now ON agentloop_events")
        link.execute(b"DROP FUNCTION full_now")
        link.execute(_FULL.format(most=0).encode())
    new = agentloop("-p", "x", "--session", "new", "-m", "offline", "--store", database, cwd=tmp_path)
    assert (new.status, "go on with" in new.err) == (1, False)


@pytest.mark.deep
@pytest.mark.parametrize("options", [(), ("--store", "sqlite:///nothere.db")])
def test_a_store_that_is_not_there_is_not_well(options: tuple[str, ...], tmp_path: Path) -> None:
    done = agentloop("sessions", "check", *options, cwd=tmp_path)
    assert (done.status, done.out) == (2, "")
    assert "there is no store" in done.complaint()
    assert (options[-1:] or ("sessions.db",))[0].removeprefix("sqlite:///") in done.complaint()
    for words in (("list",), ("search", "x"), ("sweep", "--yes")):
        looked = sessions(*words, *options, cwd=tmp_path)
        assert "there is no store" in looked.complaint()
    assert not list(tmp_path.rglob("*.db"))


@pytest.mark.deep
async def test_a_store_that_is_empty_is_well(tmp_path: Path) -> None:
    await stored(tmp_path, {"s": [said("a")]})
    sessions("delete", "s", "--yes", cwd=tmp_path)
    assert sessions("check", cwd=tmp_path).complaint() == "agentloop: all is well"
    assert "there is no store" not in sessions("list", cwd=tmp_path).err


@pytest.mark.parametrize("command", ["submit", "worker", "runs"])
def test_the_help_of_a_queue_names_the_stores_that_it_takes(command: str, tmp_path: Path) -> None:
    shown = " ".join(agentloop(command, "--help", cwd=tmp_path).out.split())
    assert "postgresql://" in shown
    assert "sqlite:" not in shown
    assert "memory:" not in shown
    assert ("--owner" in shown) is (command != "worker")


@pytest.mark.parametrize("call", [(), ("sessions", "list"), ("compact",), ("undo",)])
def test_the_help_of_sessions_names_all_stores(call: tuple[str, ...], tmp_path: Path) -> None:
    shown = " ".join(agentloop(*call, "--help", cwd=tmp_path).out.split())
    assert all(scheme in shown for scheme in ("sqlite:///FILE", "memory:", "postgresql://"))


@pytest.mark.deep
def test_a_run_is_named_by_the_beginning_of_its_id(database: str, tmp_path: Path) -> None:
    at = ("--store", database)
    run_id, other = (
        agentloop("submit", "x", *at, *more, cwd=tmp_path).out.strip() for more in ((), ("--owner", "bob"))
    )
    short = run_id[:12]
    assert f"run: {run_id}" in agentloop("runs", short, *at, cwd=tmp_path).out
    for verb, state in (("cancel", "cancelled"), ("resume", "queued")):
        done = agentloop("runs", verb, short, "--json", *at, cwd=tmp_path)
        assert json.loads(done.out)["state"] == state
    for wrong in ("%", "_" * 32, f"{run_id}0", "", run_id[:8] + "%"):
        refused = agentloop("runs", "cancel", wrong, *at, cwd=tmp_path)
        assert refused.status == 2, wrong
    hidden = agentloop("runs", other[:12], *at, "--owner", "ann", cwd=tmp_path)
    assert (hidden.status, "there is no run" in hidden.complaint()) == (2, True)
    agentloop("runs", "cancel", short, *at, cwd=tmp_path)
    assert agentloop("runs", "delete", short, *at, cwd=tmp_path).status == 0
    assert run_id not in agentloop("runs", *at, cwd=tmp_path).out


@pytest.mark.deep
def test_a_beginning_of_several_ids_is_refused_with_them(database: str, tmp_path: Path) -> None:
    at = ("--store", database)
    ids = [agentloop("submit", "x", *at, cwd=tmp_path).out.strip() for _ in range(2)]
    with psycopg.connect(database, autocommit=True) as link:
        for number, run_id in enumerate(ids):
            link.execute(
                "UPDATE dbos.workflow_status SET workflow_uuid = %s WHERE workflow_uuid = %s",
                (f"abc{number}", run_id),
            )
    refused = agentloop("runs", "ab", *at, cwd=tmp_path)
    assert refused.status == 2
    assert "'ab' may be any of abc1, abc0" in refused.complaint()


@pytest.mark.parametrize("rule", ["take-over", "take_over", " Take_Over "])
def test_both_spellings_of_the_rule_are_taken(rule: str) -> None:
    assert settings_for({"when_busy": rule}, {}).when_busy == "take_over"
    assert settings_for({}, {"AGENTLOOP_WHEN_BUSY": rule}).when_busy == "take_over"


def test_a_rule_that_is_none_is_refused_with_the_words() -> None:
    with pytest.raises(UsageError, match="refuse, wait, take_over"):
        Leases(when_busy="take-over")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="refuse, wait or take-over"):
        settings_for({"when_busy": "takeover"}, {})


async def test_a_session_is_shown_under_the_title_that_it_has(tmp_path: Path) -> None:
    await stored(tmp_path, {"s": [life("An old one"), said("first words"), life("A middle one"), said("b")]})
    sessions("rename", "s", "A new one", cwd=tmp_path)
    for shown in (
        sessions("show", "s", cwd=tmp_path),
        sessions("export", "s", "--format", "markdown", cwd=tmp_path),
    ):
        assert [line for line in shown.out.splitlines() if line.startswith("# ")] == ["# A new one"]
        assert shown.out.index("# A new one") < shown.out.index("first words")


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("postgresql://me:hunter22@h/d?foo=hunter22", "libpq cannot read it"),
        ("postgresql://me:hunter22@h/d?hunter22", "libpq cannot read it"),
        ("postgresql://me:hunter22@h/d?a=hunter22=c", "libpq cannot read it"),
        ("postgresql://me:hunter22%zz@h/d", "libpq cannot read it"),
        ("postgresql://me:hunter22%00@h/d", "libpq cannot read it"),
        ("postgresql://me:hunter22@[::1/d", "libpq cannot read it"),
        ("postgresql://me:hunter22@[]/d", "libpq cannot read it"),
        ("postgresql://me:hunter22@[::1]x/d", "libpq cannot read it"),
        ("postgresql://me:hunter22@h:x/d", "port"),
        ("postgresql://me:hun@ter22@h/d", "@"),
        ("postgresql://h/d?us=x@hunter22", "libpq cannot read it"),
        ("postgresql://me:hunter22@h/postgresql:%2F%2Fx", "a URL within it"),
        ("host=h password=hunter22", "begins with neither"),
    ],
)
def test_a_bad_database_url_says_what_is_wrong_with_it(url: str, fault: str) -> None:
    with pytest.raises(UsageError, match=f"^bad PostgreSQL URL: .*{re.escape(fault)}") as caught:
        address_of(url, statement_seconds=1, connect_seconds=1)
    assert "hunter22" not in str(caught.value)
    assert "ter22" not in str(caught.value)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("ttl", "shape"), [("10s", r"\d\d:\d\d:\d\d"), ("59m", r"\d\d:\d\d:\d\d"), ("1h", r"\d\d:\d\d")]
)
async def test_an_end_within_the_hour_is_shown_to_the_second(ttl: str, shape: str, tmp_path: Path) -> None:
    await stored(tmp_path, {"s": [said("a")]})
    told = sessions("expire", "s", ttl, cwd=tmp_path).complaint()
    assert re.search(rf"expires on \d{{4}}-\d\d-\d\d {shape}, unless", told)
    row = sessions("list", "--all", cwd=tmp_path).out.splitlines()[1].split("\t")
    assert re.fullmatch(rf"expires \d{{4}}-\d\d-\d\d {shape}", row[-1])
