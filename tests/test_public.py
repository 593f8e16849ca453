"""What users hold in their hands: the names of the package, and the README's own words."""

import subprocess
import sys
from importlib import import_module
from inspect import isclass, isfunction
from pathlib import Path
from pkgutil import walk_packages
from typing import Any, get_type_hints

import pytest

import agentloop
from agentloop import Agent, OfflineModel, Runner, SyncRunner
from agentloop.extras import installing
from agentloop.sessions import Session
from agentloop.testing import FailingModel, ScriptedModel
from tests.nets.frozen import FREEZE, frozen
from tests.nets.surface import FILE, FRAMEWORKS, MODULES, given_on_by

pytestmark = pytest.mark.whole

ROOT = Path(__file__).parent.parent
LATER = ["agentloop", "agentloop.compaction", "agentloop.stores", "agentloop.strategies"]
"""The public faces that load what a name needs when it is first used."""


def test_every_public_name_is_there_and_listed_once() -> None:
    assert len(set(agentloop.__all__)) == len(agentloop.__all__)
    assert all(getattr(agentloop, name) is not None for name in agentloop.__all__)
    assert set(dir(agentloop)) >= set(agentloop.__all__)


@pytest.mark.parametrize("module", MODULES)
def test_a_star_gives_the_public_names_and_no_others(module: str) -> None:
    given: dict[str, Any] = {}
    exec(f"from {module} import *", given)
    assert sorted(given.keys() - {"__builtins__"}) == sorted(frozen(FILE)[module]), FREEZE


@pytest.mark.parametrize("module", MODULES)
def test_a_listing_has_all_public_names(module: str) -> None:
    assert set(frozen(FILE)[module]) <= set(dir(import_module(module)))


@pytest.mark.parametrize(
    "module", ["agentloop", *(f"agentloop.{name}" for name in ("compaction", "stores", "strategies"))]
)
def test_type_checkers_see_the_same_names(module: str) -> None:
    assert sorted(given_on_by(import_module(module))) == sorted(frozen(FILE)[module])


@pytest.mark.parametrize(
    "module",
    [name for _, name, _ in walk_packages(agentloop.__path__, "agentloop.") if name not in FRAMEWORKS],
)
def test_all_type_hints_can_be_resolved(module: str) -> None:
    if module.endswith("__main__"):
        return
    for name, value in vars(import_module(module)).items():
        if getattr(value, "__module__", None) == module and not name.startswith("_"):
            for each in (value, *(vars(value).values() if isclass(value) else ())):
                if isclass(each) or isfunction(each):
                    get_type_hints(each)


async def test_what_users_print_is_short_and_says_what_it_is() -> None:
    model = ScriptedModel(["word " * 999], window="128k")
    runner = Runner(Agent(model), transcripts=None)
    result = await runner.run("Say it. " * 99, session_id="s")
    session = await Session.open("s", runner.store)
    with SyncRunner(Agent(OfflineModel()), transcripts=None) as sync_runner:
        assert repr(sync_runner) == "SyncRunner(model='offline', store=InMemoryStore)"
    assert repr(runner) == "Runner(model='scripted', store=InMemoryStore)"
    assert repr(session) == "Session('s', 6 records, store=InMemoryStore)"
    assert repr(model) == "ScriptedModel('scripted', window=128000)"
    assert repr(OfflineModel(window="8k")) == "OfflineModel(window=8000)"
    assert repr(FailingModel(ValueError("no"))) == "FailingModel(ValueError, window=None)"
    assert repr(result).startswith("RunResult(status='answered', output='word word")
    assert repr(result).endswith("…', session_id='s', 2 messages, 0 compactions)")
    assert len(repr(result)) < 160


def test_an_unknown_name_is_an_attribute_error() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from agentloop import Nothing"], capture_output=True, text=True
    )
    assert "cannot import name 'Nothing'" in done.stderr


def test_importing_loads_nothing_but_what_loads_the_rest_later() -> None:
    script = "import sys, agentloop; print(sorted(name for name in sys.modules if 'agentloop' in name))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['agentloop', 'agentloop._plumbing', 'agentloop._plumbing.faces']"


def test_a_door_without_its_extra_says_which_it_needs() -> None:
    script = """
import importlib, sys
doors = {"pydantic_ai": "", "agents": "openai_agents", "langchain": "", "strands": ""}
doors |= {"opentelemetry": "otel"}
for vendor, name in doors.items():
    sys.modules[vendor] = None
    try:
        importlib.import_module(f"agentloop.integrations.{name or vendor}")
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        f"UsageError: {whose} needs the extra {extra!r}: {installing(extra)}"
        for whose, extra in [
            ("pydantic-ai", "pydantic-ai"),
            ("openai-agents", "openai-agents"),
            ("langchain", "langchain"),
            ("strands", "strands"),
            ("OpenTelemetry", "otel"),
        ]
    ]
