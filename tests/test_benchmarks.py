"""The benchmarks can be begun: each can be loaded, and what they run in other processes too."""

from importlib import import_module

import pytest

from tests.benchmarks import bench_import
from tests.cli_kit import ROOT

BENCHMARKS = sorted(path.stem for path in (ROOT / "tests" / "benchmarks").glob("bench_*.py"))

pytestmark = pytest.mark.whole


@pytest.mark.parametrize("name", BENCHMARKS)
def test_it_can_be_loaded_and_says_what_it_prints(name: str) -> None:
    module = import_module(f"tests.benchmarks.{name}")
    assert callable(module.main)
    assert f"tests.benchmarks.{name}" in (module.__doc__ or "")


@pytest.mark.deep
@pytest.mark.parametrize("title", bench_import.CASES)
def test_what_an_import_is_measured_by_runs(title: str) -> None:
    loaded = bench_import.loaded(bench_import.CASES[title]).split()
    assert ("openai" in loaded) == ("openai" in title.lower())
