"""What a run writes lies beside where its runner was made, wherever a tool goes."""

import os
from pathlib import Path

import pytest

from agentloop import Agent, Compaction, Runner
from agentloop.testing import ScriptedModel, calls
from tests.kit import lines


async def test_transcripts_and_long_results_stay_where_the_runner_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)

    def move() -> str:
        """Go elsewhere and say much."""
        os.chdir(elsewhere)
        return lines("moved", words=40_000)

    model = ScriptedModel([calls(("move", {})), *["on " * 300] * 4], window="16k", summary="They moved.")
    runner = Runner(Agent(model, tools=[move], compaction=Compaction(micro=None)))
    for prompt in ("Move.", "And?", "And?", "And?"):
        await runner.run(prompt, session_id="s")
    await runner.compact("s")
    written = {path.name.partition("_")[0] for path in (tmp_path / ".transcripts").glob("[!.]*")}
    assert written == {"result", "transcript"}
    assert list(elsewhere.iterdir()) == []
