"""Folders and files that somebody made to do harm: their code does not run, and they change nothing."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from agentloop import StoreError
from agentloop.messages import Message
from agentloop.stores.sqlite import SQLiteStore
from agentloop.workspace import workspace_tools
from tests.cli_kit import ROOT, agentloop, environment
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


@pytest.mark.parametrize(("kind", "path"), [("module", ROOT), ("script", f":{ROOT}:")])
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


FOREIGN = {
    "trigger": "CREATE TRIGGER t AFTER INSERT ON events BEGIN DELETE FROM events; END",
    "view": "CREATE VIEW v AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n) SELECT x FROM n",
    "computed column": "ALTER TABLE events ADD COLUMN y AS (replace(body, 'a', 'b'))",
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
