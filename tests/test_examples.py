"""The examples in the docstrings of what composes are true."""

import doctest
import importlib
import pkgutil
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

import agentloop
from agentloop import triggers

WITH_EXAMPLES = frozenset({"triggers", "strategies", "instead", "trims", "micro", "compaction", "limits"})
WITHOUT = frozenset({"Budget", "Context"})
"""Names that `triggers` passes on from elsewhere."""


def modules() -> list[str]:
    """Every module of the package that may show examples, those inside folders too; none is imported."""
    found = (module.name for module in pkgutil.iter_modules(agentloop.__path__, "agentloop."))
    return [
        inner for name in found if name.removeprefix("agentloop.") in WITH_EXAMPLES for inner in within(name)
    ]


def within(name: str) -> Iterator[str]:
    """A module and, where it is a folder, what is in it."""
    yield name
    spec = find_spec(name)
    places = (spec and spec.submodule_search_locations) or []
    yield from (module.name for module in pkgutil.iter_modules(places, f"{name}."))


def examples(name: str) -> list[doctest.DocTest]:
    """The docstrings of a module that hold examples."""
    found = doctest.DocTestFinder().find(importlib.import_module(name))
    return [test for test in found if test.examples]


@pytest.mark.parametrize("name", modules())
def test_every_example_gives_what_it_shows(name: str) -> None:
    said: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    for test in examples(name):
        runner.run(test, out=said.append)
    assert runner.failures == 0, "".join(said)


def test_every_public_trigger_shows_an_example() -> None:
    shown = {test.name.rpartition(".")[2] for name in modules() for test in examples(name)}
    assert set(triggers.__all__) - WITHOUT <= shown
