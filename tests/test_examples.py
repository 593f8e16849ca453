"""The examples in the docstrings of the package are true, and every public part of the engine shows one."""

import doctest
import importlib
from pathlib import Path
from types import ModuleType

import pytest

import agentloop
from agentloop import compaction, strategies, triggers
from agentloop.context import tokens
from agentloop.events import MessageRecord, Record
from agentloop.messages import Message, ToolCall
from agentloop.testing import context_of
from tests.nets.surface import names_of

pytestmark = pytest.mark.whole

PACKAGE = Path(agentloop.__file__).parent

WITHOUT = {
    *("Budget", "Context", "Guard"),  # what a run makes and hands on; the parts that take them show them
    *("Instead", "Trim"),  # a union and a protocol; each of their kinds shows one
    "CompactedMessages",  # shown by `compact_messages`
    *("trimmed", "left_unread"),  # what summaries do with trims; nothing to configure
    *("estimate_tokens", "fits", "fitted"),  # what the parts beside them are made with
}


GIVEN = {
    "Message": Message,
    "MessageRecord": MessageRecord,
    "Record": Record,
    "ToolCall": ToolCall,
    "context_of": context_of,
}
"""What examples need not import: what everybody who reads them knows."""


def modules() -> list[str]:
    """Every module of the package that shows an example; none is imported to find out."""
    shown = (path for path in sorted(PACKAGE.rglob("*.py")) if ">>> " in path.read_text())
    names = (path.relative_to(PACKAGE.parent).with_suffix("").parts for path in shown)
    return [".".join(parts).removesuffix(".__init__") for parts in names]


def public(module: ModuleType) -> list[str]:
    """What may be called or composed of the names of a module."""
    return [name for name in names_of(module.__name__) if callable(getattr(module, name))]


@pytest.mark.parametrize("name", modules())
def test_every_example_gives_what_it_shows(name: str) -> None:
    said: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    for test in doctest.DocTestFinder().find(importlib.import_module(name)):
        test.globs = GIVEN | test.globs
        runner.run(test, out=said.append)
    assert runner.failures == 0, "".join(said)
    assert runner.tries > 0


@pytest.mark.parametrize("module", [strategies, triggers, compaction, tokens], ids=lambda m: m.__name__)
def test_every_public_part_shows_an_example(module: ModuleType) -> None:
    silent = {name for name in public(module) if ">>> " not in str(getattr(module, name).__doc__)}
    assert silent - WITHOUT == set()


def test_what_is_exempt_shows_none() -> None:
    faces = (compaction, strategies, tokens)
    parts = {name: getattr(module, name) for module in faces for name in dir(module)}
    assert {name for name in WITHOUT if ">>> " in str(parts[name].__doc__)} == set()
