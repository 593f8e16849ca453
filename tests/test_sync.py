"""The runner without await."""

import threading
from pathlib import Path

import pytest

from agentloop.agent import Agent
from agentloop.errors import ContextOverflowError
from agentloop.stream import event_type
from agentloop.sync import SyncRunner
from agentloop.testing import ScriptedModel, calls


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def runner_for(tmp_path: Path, *answers: object) -> SyncRunner:
    model = ScriptedModel(answers, window=8_000)  # type: ignore[arg-type]
    return SyncRunner(
        Agent(model, tools=[add]), store=f"sqlite:///{tmp_path}/s.db", transcripts=tmp_path / "t"
    )


def test_everything_works_without_await(tmp_path: Path) -> None:
    with runner_for(tmp_path, calls(add={"a": 1, "b": 2}), "3", "x", "y") as runner:
        assert runner.run("Add", session_id="s").output == "3"
        kinds = [event_type(event) for event in runner.stream("b " * 600, session_id="s")]
        assert (kinds[0], kinds[-1]) == ("run_started", "run_ended")
        assert runner.run("c", session_id="s").output == "y"
        assert runner.preview("s") is not None
        result = runner.compact("s")
        assert result is not None
        assert result.status == "done"
        assert runner.undo("s") == result.seq
        assert runner.status("s").window == 8_000
        assert runner.resume("s").output == "y"
    names = {thread.name for thread in threading.enumerate()}
    assert "agentloop-portal" not in names


def test_errors_come_through_as_they_are(tmp_path: Path) -> None:
    with runner_for(tmp_path) as runner, pytest.raises(ContextOverflowError):
        runner.run("word " * 20_000, session_id="s")


def test_leaving_a_stream_early_ends_its_run(tmp_path: Path) -> None:
    with runner_for(tmp_path, calls(add={"a": 1, "b": 2}), "3") as runner:
        for event in runner.stream("Add", session_id="s"):
            if event_type(event) == "tool_started":
                break
        assert runner.resume("s").status == "answered"
