"""The README's Python runs, with the offline model and a real database in place of what others have."""

import asyncio
import os
import re
import signal
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agentloop import Agent, OfflineModel
from agentloop.testing import store_contract

ROOT = Path(__file__).parent.parent
BLOCKS: list[str] = re.findall(
    r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL
)


def test_every_block_is_run_here() -> None:
    tried = (
        "def word_count",
        "policy = Compaction(",
        "compact_messages(messages",
        "class DictStore",
        "RunQueue(",
    )
    assert sorted(map(block_with, tried)) == sorted(BLOCKS)


def block_with(words: str) -> str:
    """The one block that holds these words."""
    (found,) = (block for block in BLOCKS if words in block)
    return found


@contextmanager
def harmless(number: signal.Signals) -> Iterator[None]:
    """The signal ends no process of tests where the block that is to hear it does not."""
    before = signal.signal(number, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(number, before)


async def ran(block: str, **names: Any) -> dict[str, Any]:
    """Its names, once it has run inside an `async def`."""
    body = textwrap.indent(block, "    ")
    exec(f"async def main():\n{body}\n    return locals()", names)
    result: dict[str, Any] = await names["main"]()
    return result


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "README.md").write_text("one two three")
    (tmp_path / "pyproject.toml").write_text("four five")


async def test_a_tool_of_ones_own_is_run_and_streamed() -> None:
    block = block_with("def word_count").replace("import Agent, OpenAIChat", "import Agent, OfflineModel")
    there = await ran(block.replace('OpenAIChat("gpt-5-mini")', "OfflineModel()"))
    assert "3" in there["result"].output
    assert "2" in there["event"].output


async def test_a_policy_is_put_together() -> None:
    agent = (await ran(block_with("policy = Compaction(")))["agent"]
    assert isinstance(agent, Agent)


def test_a_plain_list_is_made_shorter(capsys: pytest.CaptureFixture[str]) -> None:
    there: dict[str, Any] = {}
    exec(block_with("compact_messages(messages"), there)
    assert capsys.readouterr().out == f"60 became {len(there['short'])} by TurnWindow\n"
    assert len(there["short"]) < 12


async def test_the_smallest_store_keeps_the_contract() -> None:
    there: dict[str, Any] = {}
    exec(block_with("class DictStore"), there)
    await store_contract(there["DictStore"])


async def test_durable_runs_are_submitted_and_worked_off(
    database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    block = block_with("RunQueue(").replace("postgresql://db.example/agents", database)
    asking, worker = re.split(r"^(?=worker = Worker)", block, flags=re.MULTILINE)
    imports = asking.partition("\n\n")[0]
    with harmless(signal.SIGTERM):
        working = asyncio.create_task(ran(f"{imports}\n{worker}", agent=Agent(OfflineModel())))
        try:
            await asyncio.wait_for(ran(asking), timeout=60)
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(working, timeout=60)
        finally:
            working.cancel()
            await asyncio.wait({working})
    assert capsys.readouterr().out.startswith("answered ")
