"""What an import of the main names leaves for later: vendors, providers, the files of stores, patterns."""

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.forks import environment
from tests.warm_kit import ROOT

pytestmark = pytest.mark.whole

THREE_NAMES = "from agentloop import Agent, Runner, tool"
LATER = ["openai", "httpx2", "pydantic", "tiktoken", "genai_prices", "structlog", "tenacity", "sqlite3"]
"""Vendors, each loaded behind its door when it is first needed."""
EXTRAS = {
    "postgres": "psycopg",
    "durable": "dbos",
    "mcp": "mcp",
    "llama": "xllamacpp",
    "otel": "opentelemetry",
    "pydantic-ai": "pydantic_ai",
    "openai-agents": "agents",
    "langchain": "langchain",
    "strands": "strands",
}
"""The module of each extra, which nothing loads that does not use it."""
PLAIN = {
    "an import": "import agentloop",
    "a run": """
from agentloop import Agent, OfflineModel, SyncRunner, tool
def look(number: int) -> str:
    "Look at a number."
    return "seen"
with SyncRunner(Agent(OfflineModel(), tools=[look]), store="sqlite:///x.db") as runner:
    runner.run("Use look on 7.", session_id="s")
    runner.compact("s")
""",
    "a command line": """
from agentloop.cli.app import status_of_call
for words in (["-m", "offline", "--store", "sqlite:///y.db", "-p", "Hi."], ["doctor"], ["config"], ["paths"]):
    assert status_of_call(words) == 0
""",
}
"""What a user does who has no use for any extra."""
KEEP = """
import pathlib, sys
pathlib.Path("modules").write_text("\\n".join(sys.modules))
"""

COMPILED = f"""
import re, sys

def called(frame, event, argument):
    caller = frame.f_back and frame.f_back.f_globals.get("__name__", "")
    compiles = frame.f_globals.get("__name__") == "re" and frame.f_code.co_name != "escape"
    if event == "call" and compiles and caller.startswith("agentloop"):
        print(caller, frame.f_back.f_lineno)

sys.setprofile(called)
{THREE_NAMES}
"""


def printed(code: str, **more: Any) -> list[str]:
    """The lines that this code prints in an interpreter of its own."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def loaded() -> list[str]:
    """The modules that the main names load."""
    return printed(f"{THREE_NAMES}\nimport sys\nprint(*sys.modules, sep='\\n')")


def test_the_main_names_load_no_vendor(loaded: list[str]) -> None:
    assert {name.partition(".")[0] for name in loaded}.isdisjoint([*LATER, *EXTRAS.values()])


def test_each_extra_has_its_module_here() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(EXTRAS) == extras.keys() - {"integrations", "test", "dev"}


@pytest.mark.parametrize("what", PLAIN)
def test_no_extra_is_loaded_by_what_does_not_use_it(what: str, tmp_path: Path) -> None:
    printed(f"{PLAIN[what]}{KEEP}", cwd=tmp_path, env=environment(tmp_path))
    names = (tmp_path / "modules").read_text().splitlines()
    assert "agentloop" in names
    assert {name.partition(".")[0] for name in names}.isdisjoint(EXTRAS.values())


def test_the_main_names_load_no_provider(loaded: list[str]) -> None:
    assert [
        name for name in loaded if name.startswith(("agentloop.providers", "agentloop.stores.sqlite"))
    ] == []


def test_no_pattern_is_compiled_by_an_import() -> None:
    assert printed(COMPILED) == []


def test_what_reads_stored_sessions_is_loaded_when_asked_for(loaded: list[str]) -> None:
    later = {"deletion", "export", "importing", "pages", "stored_sessions", "transcripts"}
    assert {f"agentloop.sessions.{name}" for name in later}.isdisjoint(loaded)


def test_what_makes_room_is_loaded_by_the_first_run(loaded: list[str]) -> None:
    compaction = {name.split(".")[2] for name in loaded if name.startswith("agentloop.compaction.")}
    assert compaction == {"policy", "tool"}


def test_help_loads_nothing_that_runs() -> None:
    shown = "from agentloop.cli.app import program\nprogram(['--help'], standalone_mode=False)"
    names = printed(f"{shown}\nimport sys\nprint(*sys.modules, sep='\\n')")
    assert {"agentloop.run.execute", "agentloop.strategies", "agentloop.compaction"}.isdisjoint(names)
    assert {name.partition(".")[0] for name in names}.isdisjoint(LATER)
