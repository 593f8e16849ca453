"""What an import of the main names leaves for later: vendors, providers, the files of stores, patterns."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.whole

THREE_NAMES = "from agentloop import Agent, Runner, tool"
LATER = ["openai", "httpx2", "pydantic", "tiktoken", "genai_prices", "structlog", "tenacity", "sqlite3"]
LATER += ["opentelemetry", "pydantic_ai", "langchain", "agents", "strands"]
"""Vendors, each loaded behind its door when it is first needed."""

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


def printed(code: str) -> list[str]:
    """The lines that this code prints in an interpreter of its own."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def loaded() -> list[str]:
    """The modules that the main names load."""
    return printed(f"{THREE_NAMES}\nimport sys\nprint(*sys.modules, sep='\\n')")


def test_the_main_names_load_no_vendor(loaded: list[str]) -> None:
    assert {name.partition(".")[0] for name in loaded}.isdisjoint(LATER)


def test_the_main_names_load_no_provider(loaded: list[str]) -> None:
    assert [
        name for name in loaded if name.startswith(("agentloop.providers", "agentloop.stores.sqlite"))
    ] == []


def test_no_pattern_is_compiled_by_an_import() -> None:
    assert printed(COMPILED) == []


def test_what_makes_room_is_loaded_by_the_first_run(loaded: list[str]) -> None:
    compaction = {name.split(".")[2] for name in loaded if name.startswith("agentloop.compaction.")}
    assert compaction == {"policy", "tool"}


def test_help_loads_nothing_that_runs() -> None:
    shown = "from agentloop.cli.app import program\nprogram(['--help'], standalone_mode=False)"
    names = printed(f"{shown}\nimport sys\nprint(*sys.modules, sep='\\n')")
    assert {"agentloop.run.execute", "agentloop.strategies", "agentloop.compaction"}.isdisjoint(names)
    assert {name.partition(".")[0] for name in names}.isdisjoint(LATER)
