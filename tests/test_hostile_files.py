"""Folders and files that somebody made to do harm: their code does not run, and they change nothing."""

import asyncio
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import StoreError
from agentloop._plumbing.strict_json import Nesting
from agentloop.bounds import MOST_RECORD_BYTES
from agentloop.errors import UsageError
from agentloop.events import Described, Unknown
from agentloop.messages import Message
from agentloop.sessions import importing
from agentloop.sessions.importing import parse
from agentloop.stores.sqlite import SQLiteStore
from agentloop.stores.sqlite.file import SQLiteFile
from agentloop.stores.sqlite.thread import OpenedFile
from agentloop.workspace import workspace_tools
from tests.cli_kit import ROOT, agentloop, environment, terminal
from tests.kit import added
from tests.strict_provider import StrictProvider
from tests.strict_replies import Reply, calling

OURS = (
    *("aiohttp", "anyio", "certifi", "click", "distro", "genai_prices", "h11", "httpx", "httpx2", "httpcore"),
    *("idna", "jiter", "numpy", "openai", "orjson", "platformdirs", "prompt_toolkit", "pydantic", "regex"),
    *(
        "requests",
        "rich",
        "sniffio",
        "socksio",
        "sqlite_utils",
        "structlog",
        "tenacity",
        "tiktoken",
        "tiktoken_ext",
    ),
    *("tqdm", "trio", "typing_extensions", "uvloop", "sitecustomize_of_ours"),
)
"""What the program imports, or looks whether it is there."""


def entry(kind: str) -> Sequence[str]:
    """How the program is called."""
    script = "import sys; sys.argv[0] = 'agentloop'; from agentloop.cli.main import main; main()"
    return (sys.executable, "-m", "agentloop") if kind == "module" else (sys.executable, "-P", "-c", script)


@pytest.mark.parametrize(
    ("kind", "path"), [("module", ROOT), pytest.param("script", f":{ROOT}:", marks=pytest.mark.deep)]
)
def test_nothing_in_the_folder_of_the_call_is_imported(tmp_path: Path, kind: str, path: object) -> None:
    for name in OURS:
        (tmp_path / f"{name}.py").write_text(f"open({name!r} + ' was run', 'w').close()\n")
    done = subprocess.run(
        [*entry(kind), "-p", "hello"],
        cwd=tmp_path,
        env=environment(tmp_path, PYTHONPATH=str(path)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not [*tmp_path.glob("* was run")]


def test_a_module_named_for_tools_is_looked_for_there_after_what_is_installed(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("NAME = 'beside'\n")
    (tmp_path / "mine.py").write_text(
        "import beside, os, sys\nfrom agentloop import tool\nopen(beside.NAME, 'w').close()\n"
        "@tool\ndef look() -> str:\n    '''Look.'''\n    return str(os.getcwd() in sys.path)\n"
    )
    (tmp_path / "click.py").write_text("open('run', 'w').close()\n")
    with StrictProvider([Reply(calls=(calling("look"),)), "done"]) as provider:
        own = ("--tools", "mine", "--base-url", provider.url)
        assert agentloop("-p", "go", *own, cwd=tmp_path).status == 0
    assert provider.bodies[-1]["messages"][-1]["content"] == "False"
    assert (tmp_path / "beside").exists()
    refused = agentloop("-p", "x", "--tools", "click", cwd=tmp_path)
    assert "holds no tool" in refused.complaint()
    assert not (tmp_path / "run").exists()


async def test_a_command_sees_no_secret_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = {
        "OPENAI_API_KEY": "of-the-server-1",
        "GITHUB_TOKEN": "of-the-forge-1",
        "DATABASE_URL": "postgresql://ann:hid3den@host/database",
    }
    shown = {"EDITOR": "a-plain-editor", "TOKENIZERS_PARALLELISM": "false", "KEYBOARD": "of-a-hundred-keys"}
    for name, value in (hidden | shown).items():
        monkeypatch.setenv(name, value)
    seen = await workspace_tools(tmp_path, allow=["shell"])[-1]("env")
    assert not [value for value in hidden.values() if value in seen]
    assert all(value in seen for value in shown.values())
    passed = workspace_tools(tmp_path, allow=["shell"], pass_env=["GITHUB_TOKEN"])[-1]
    assert hidden["GITHUB_TOKEN"] in await passed("env")
    assert hidden["OPENAI_API_KEY"] not in await passed("env")


def test_the_command_line_passes_what_is_named(tmp_path: Path) -> None:
    env = {"GITHUB_TOKEN": "of-the-forge-1"}
    for named in ((), ("--pass-env", "GITHUB_TOKEN")):
        turns = [Reply(calls=(calling("run_command", command="echo It is $GITHUB_TOKEN"),)), "done"]
        with StrictProvider(turns) as provider:
            own = ("--allow", "shell", "--redact", "off", "--no-session", "--base-url", provider.url, *named)
            assert agentloop("-p", "go", *own, cwd=tmp_path, env=env).status == 0
        told = str(provider.bodies[-1]["messages"][-1]["content"])
        assert told.startswith("It is")
        assert ("of-the-forge-1" in told) == bool(named)
    wrong = agentloop("-p", "go", "--pass-env", "A=B", cwd=tmp_path)
    assert "no name of a variable" in wrong.complaint()


json_texts = st.builds(
    json.dumps,
    st.recursive(
        st.text(alphabet='\\"[]{},a', max_size=5) | st.integers(0, 9),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text('\\"{,', max_size=3), inner, max_size=3)
        ),
    ),
)


def depth_of(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth_of, inner), default=0)


def values_of(value: object) -> int:
    """What stands in lists and objects, where an empty one counts as one value."""
    if not isinstance(value, list | dict):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return max(len(value), 1) + sum(map(values_of, inner))


FOREIGN = {
    "trigger": "CREATE TRIGGER t AFTER INSERT ON events BEGIN DELETE FROM events; END",
    "view": "CREATE VIEW v AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n) SELECT x FROM n",
    "index": "CREATE UNIQUE INDEX i ON events (1) WHERE seq > 1",
    "table": "ALTER TABLE events ADD COLUMN y AS (replace(body, 'a', 'b'))",
}


@pytest.mark.parametrize("kind", FOREIGN)
async def test_a_store_with_what_is_not_ours_is_refused_and_stays_as_it_is(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "sessions.db"
    store = SQLiteStore(path)
    await store.append("s", [added(Message.user("Hello"))], expect=0)
    await store.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(FOREIGN[kind])
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = path.read_bytes()
    with pytest.raises(StoreError, match=f"the {kind} .* is not agentloop's"):
        await store.append("s", [added(Message.user("More"))], expect=1)
    for call in (("sessions", "list"), ("sessions", "check"), ("sessions", "show", "s")):
        assert f"the {kind}" in agentloop(*call, "--store", f"sqlite:///{path}", cwd=tmp_path).complaint()
    assert path.read_bytes() == before


@pytest.mark.parametrize("kind", FOREIGN)
async def test_what_is_made_while_a_store_is_open_is_refused_too(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "sessions.db"
    store = SQLiteStore(path)
    await store.append("s", [added(Message.user("Hello"))], expect=0)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(FOREIGN[kind])
    with pytest.raises(StoreError, match=f"the {kind} .* is not agentloop's"):
        await store.append("s", [added(Message.user("More"))], expect=1)
    with pytest.raises(StoreError, match=f"the {kind} .* is not agentloop's"):
        await store.read("s")
    await store.close()


OTHERWISE = {
    "a rule for what stands twice": ("events", "seq))", "seq) ON CONFLICT REPLACE)"),
    "a rule for values": ("events", "PRIMARY", "CHECK (length(body) < 9), PRIMARY"),
    "a value made for each row": ("sessions", "id TEXT", "y DEFAULT (zeroblob(300000000)), id TEXT"),
    "an order of its own": ("leases", "id TEXT", "id TEXT COLLATE NOCASE"),
    "no key": ("leases", "", "CREATE TABLE leases (session_id, holder, place, pid, started, since, until)"),
    "a virtual table": ("leases", "", "CREATE VIRTUAL TABLE leases USING fts5 (session_id, holder, until)"),
}


@pytest.mark.whole
@pytest.mark.parametrize("kind", OTHERWISE)
async def test_a_table_that_is_made_otherwise_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "sessions.db"
    store = SQLiteStore(path)
    await store.append("s", [added(Message.user("Hello"))], expect=0)
    await store.close()
    name, ours, theirs = OTHERWISE[kind]
    with closing(sqlite3.connect(path)) as connection:
        (made,) = connection.execute("SELECT sql FROM sqlite_schema WHERE name = ?", [name]).fetchone()
        connection.execute(f"DROP TABLE {name}")
        connection.execute(made.replace(ours, theirs) if ours else theirs)
    for _ in range(2):
        with pytest.raises(StoreError, match=f"the table '{name}' .* is not agentloop's"):
            await store.info("s")
    await store.close()


@pytest.mark.whole
@pytest.mark.parametrize("ending", ["-journal", "-wal", "-shm"])
@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
async def test_what_stands_beside_a_store_and_is_no_file_is_refused(
    tmp_path: Path, ending: str, kind: str
) -> None:
    path, aim = tmp_path / "sessions.db", tmp_path / "aim"
    store = SQLiteStore(path)
    await store.append("s", [added(Message.user("Hello"))], expect=0)
    await store.close()
    aim.write_text("mine")
    beside = Path(f"{path}{ending}")
    match kind:
        case "pipe":
            os.mkfifo(beside)
        case "link":
            beside.symlink_to(aim)
        case _:
            beside.mkdir()
    for call in (store.read("s"), store.append("s", [added(Message.user("More"))], expect=1)):
        with pytest.raises(StoreError, match=f"{beside} is no file: move it away"):
            await call
    beside.rmdir() if kind == "folder" else beside.unlink()
    assert len(await store.read("s")) == 1
    assert aim.read_text() == "mine"
    await store.close()


@pytest.mark.deep
async def test_a_record_that_would_fill_the_memory_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    store = SQLiteStore(path)
    await store.append("s", [added(Message.user("Hello"))], expect=0)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE events SET body = zeroblob(?)", [MOST_RECORD_BYTES + 1])
        connection.commit()
    for call in (("show", "s"), ("check", "s"), ("search", "hello", "--all"), ("export", "s")):
        done = agentloop("sessions", *call, "--store", f"sqlite:///{path}", cwd=tmp_path)
        assert "a record holds more than 200 MB" in done.out + done.err
        assert done.status == 1
    await store.close()


async def test_a_read_that_nobody_waits_for_is_broken_off_and_a_write_is_not(tmp_path: Path) -> None:
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
    long = endless.replace("FROM n)", "FROM n WHERE x < 1000000)")
    opened = OpenedFile(tmp_path / "sessions.db", busy_seconds=1)

    def write(file: SQLiteFile) -> None:
        with file.transaction() as connection:
            connection.execute(long)
            connection.execute("INSERT INTO checkpoints VALUES ('s', 1, 'x', '')")

    await opened.begin(lambda file: file.change(lambda connection: None, None))
    writing = opened.begin(write)
    reading = opened.begin(lambda file: file.rows(endless))
    writing.cancel()
    reading.cancel()
    (count,) = (await opened.begin(lambda file: file.rows("SELECT count(*) FROM checkpoints")))()
    assert count == (1,)
    closing_it = opened.let_go()
    assert closing_it
    await asyncio.wrap_future(closing_it)


async def test_a_view_in_the_place_of_a_table_hangs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    store = SQLiteStore(path)
    await store.append("s", [added(Message.user("Hello"))], expect=0)
    await store.close()
    with closing(sqlite3.connect(path)) as connection:
        columns = [name for (_, name, *_) in connection.execute("PRAGMA table_info(sessions)")]
        connection.execute("DROP TABLE sessions")
        one = ", ".join(f"x AS {name}" for name in columns)
        endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n)"
        connection.execute(f"CREATE VIEW sessions AS {endless} SELECT {one} FROM n")
    for call in (("sessions", "list"), ("sessions", "check")):
        assert "the view" in agentloop(*call, "--store", f"sqlite:///{path}", cwd=tmp_path).complaint()
    assert os.access(path, os.R_OK)


HI = '{"role":"user","content":"hi"}\n'


def test_only_a_file_with_an_end_is_imported(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        for name in ("pipe", "link", "socket", "/dev/zero", "/dev/tty", "."):
            done = agentloop("sessions", "import", name, cwd=tmp_path)
            assert done.status == 2
            assert f"'{name}'" in done.complaint()
    (tmp_path / "hi").write_text(HI)
    (tmp_path / "to-hi").symlink_to("hi")
    assert agentloop("sessions", "import", "to-hi", cwd=tmp_path).status == 0
    assert agentloop("sessions", "import", "-", cwd=tmp_path, stdin=HI).status == 0


def test_an_export_is_written_to_no_link_and_waits_for_no_reader(tmp_path: Path) -> None:
    (tmp_path / "hi").write_text(HI)
    assert agentloop("sessions", "import", "hi", "--session", "s", cwd=tmp_path).status == 0
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "aim").write_text("mine")
    (tmp_path / "link").symlink_to("aim")
    (tmp_path / "circle").symlink_to("circle")
    says = {"pipe": "no file", "/dev/zero": "no file", ".": "no file", "circle": "it is a link"}
    for name, why in (says | {"link": f"it is a link: name '{tmp_path / 'aim'}' itself"}).items():
        done = agentloop("sessions", "export", "s", "-o", name, cwd=tmp_path)
        assert done.status == 2
        assert why in done.complaint()
    assert (tmp_path / "aim").read_text() == "mine"
    assert not [*tmp_path.glob(".agentloop-*")]


def test_a_file_that_is_too_large_is_not_read_whole(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(10**12)
    done = agentloop("sessions", "import", "sparse", cwd=tmp_path)
    assert done.complaint() == "agentloop: 'sparse' holds more than 200 MB: name a smaller one"


def many(text: str, number: int) -> str:
    return ",".join([text] * number)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda: f"[{many('[]', 4_000_000)}]", "the list: over 4,000,000 values"),
        (
            lambda: HI + f'{{"role":"user","content":"","x":[{many("1", 4_000_000)}]}}',
            "line 2: over 4,000,000 values",
        ),
        (lambda: "[" * 10_000_000, "the list: nested over"),
        (
            lambda: "{" + ",".join(f'"{n}":0' for n in range(1_000_000)) + "}",
            "line 1: an object has 1,000,000 keys",
        ),
        (
            lambda: f'{{"a":0,{many(chr(34) + "b" + chr(34) + ":0", 9_000)}}}',
            "line 1: the key 'b' stands twice",
        ),
        (lambda: '{"role":"user","content":"' + '\\"' * 5_000_000, "line 1: this is no JSON"),
    ],
    ids=["lists", "numbers", "depth", "keys", "one key", "quotes"],
)
def test_a_file_made_to_fill_the_memory_is_refused_with_its_place(made: Callable[[], str], says: str) -> None:
    with pytest.raises(UsageError, match=f"^nothing imported: {says}"):
        parse(made(), count=lambda message: 1)


def test_a_file_of_too_many_records_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "MOST_IMPORT_RECORDS", 10)
    assert len(parse(HI * 10, count=lambda message: 1)) == 10
    with pytest.raises(UsageError, match=r"^nothing imported: over 10 records"):
        parse(HI * 11, count=lambda message: 1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_long_import_says_how_far_it_is_and_a_signal_ends_it(
    tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "long").write_text(HI * 450_000)
    with terminal("sessions", "import", "long", "--session", "s", cwd=tmp_path) as chat:
        chat.wait_for("reading: ")
        chat.signal(number)
        assert chat.end() == 130
        assert "interrupted" in chat.screen
    assert agentloop("sessions", "list", "--all", cwd=tmp_path).out == ""


@pytest.mark.many(100)
@given(json_texts, st.data())
def test_pieces_of_a_text_are_nested_as_the_whole(text: str, data: st.DataObject) -> None:
    whole, pieces, at = Nesting(), Nesting(), 0
    whole.feed(text)
    while at < len(text):
        size = data.draw(st.integers(1, 5))
        pieces.feed(text[at : at + size])
        at += size
    seen = [(each.closed, each.deepest, each.values) for each in (whole, pieces)]
    value = json.loads(text)
    assert seen[0] == seen[1] == (isinstance(value, list | dict), depth_of(value), values_of(value))


STEERING = "\x1b]0;mine\x07 \x1b[2J\x9b1m\x7f \u202efdp.exe\u2066"


async def test_what_lists_and_shows_is_cleaned_on_a_pipe_too(tmp_path: Path) -> None:
    said = Message.user(f"Hello {STEERING}")
    store = SQLiteStore(tmp_path / "agentloop" / "sessions.db")
    newer = Unknown(kind="dreamt", body=f'{{"v":9,"kind":"dreamt","of":"{STEERING[-10:]}\x9b"}}')
    titled = Described(title=f"Mine {STEERING}", folder=str(tmp_path), owner="ann")
    await store.append("s", [titled, added(said), newer], expect=0)
    await store.close()
    for call in (("show", "s"), ("list",), ("search", "hello")):
        for as_json in ((), ("--json",)):
            done = agentloop("sessions", *call, *as_json, cwd=tmp_path)
            assert done.status == 0, done.err
            assert not set(done.out) & (set(STEERING) - set(" 0;mine2J1fdp.exe[]m")), call
    shown = json.loads(agentloop("sessions", "show", "s", "--json", cwd=tmp_path).out)
    assert shown[1]["message"]["content"] == f"Hello {STEERING}"
    assert shown[2]["of"] == f"{STEERING[-10:]}\x9b"
    exported = json.loads(agentloop("sessions", "export", "s", cwd=tmp_path).out)
    assert exported[0]["content"] == f"Hello {STEERING}"
