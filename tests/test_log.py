"""Logging listens where the host has set it up; elsewhere only warnings are told, to standard logging."""

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.testing import LogCapture

from agentloop.callbacks import Callbacks
from agentloop.emitter import log_event
from agentloop.providers.openai import OpenAIChat
from agentloop.run import Agent
from agentloop.runner import Runner
from agentloop.stream import CompactionRequest, ContextWarning, ToolProgress
from agentloop.testing import ScriptedModel
from tests.strict_provider import StrictProvider


@pytest.fixture
def lines() -> LogCapture:
    capture = LogCapture()
    structlog.configure(processors=[capture])
    return capture


async def test_a_host_that_set_structlog_up_gets_each_event_without_what_was_said(
    lines: LogCapture, tmp_path: Path
) -> None:
    await Runner(Agent(ScriptedModel(["my secret"])), transcripts=tmp_path).run("hush", session_id="s")
    assert [line["event"] for line in lines.entries] == [
        "run_started",
        "message_added",
        "message_added",
        "run_ended",
    ]
    assert lines.entries[-1]["log_level"] == "info"
    assert lines.entries[-1]["session_id"] == "s"
    assert "secret" not in str(lines.entries)
    assert "hush" not in str(lines.entries)


def test_what_a_running_tool_says_stays_out_and_a_warning_is_logged_whole(lines: LogCapture) -> None:
    about: dict[str, Any] = {"session_id": "s", "run_id": "r", "time": 1.0}
    log_event(ToolProgress(**about, call_id="c", text="my secret"))
    log_event(ContextWarning(**about, level="warning", tokens=8, window=10, text="80 % full"))
    progress, warning = lines.entries
    assert (progress["event"], progress["call_id"]) == ("tool_progress", "c")
    assert "secret" not in str(progress)
    assert warning["text"] == "80 % full"


@pytest.mark.deep
def test_a_host_that_did_not_sees_nothing_and_loads_nothing(tmp_path: Path) -> None:
    script = """
import asyncio, sys
from agentloop import Agent, Runner
from agentloop.testing.models import ScriptedModel
asyncio.run(Runner(Agent(ScriptedModel(["x"]))).run("y"))
assert "structlog" not in sys.modules
assert "openai" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("asked", [True, False])
def test_what_psycopg_logs_is_shown_only_where_the_host_asks_for_it(asked: bool, tmp_path: Path) -> None:
    script = f"""
import asyncio, contextlib, logging
from agentloop.stores import open_store
{"logging.basicConfig()" if asked else ""}
with contextlib.suppress(Exception):
    asyncio.run(open_store("postgresql://127.0.0.1:1/d").list())
logging.getLogger("psycopg").warning("error ignored in rollback")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, "error ignored in rollback" in done.stderr) == (0, asked)


class Failing(Callbacks):
    """Raises before each compaction."""

    def before_compaction(self, request: CompactionRequest) -> None:
        raise ValueError("no disc")


async def test_warnings_reach_standard_logging_where_nobody_set_structlog_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    model = ScriptedModel(["one"] * 3, window=8_000, summary="")
    runner = Runner(Agent(model), transcripts=None, callbacks=[Failing()])
    for number in range(3):
        await runner.run(f"Say it {number}. " + "It is long. " * 400, session_id="s")
    result = await runner.compact("s")
    assert result is not None
    assert result.status == "failed"
    lines = [record for record in caplog.records if record.name == "agentloop"]
    assert {record.levelname for record in lines} == {"WARNING"}
    assert "agentloop: callback_failed" in lines[0].getMessage()
    assert "callback='Failing' point='before_compaction' error='ValueError: no disc'" in lines[0].getMessage()
    assert "agentloop: compaction_ended" in lines[-1].getMessage()
    assert "status='failed'" in lines[-1].getMessage()
    assert "It is long" not in caplog.text


async def test_a_dropped_field_is_a_warning_too(caplog: pytest.LogCaptureFixture) -> None:
    with StrictProvider(["fine"], refuses=["stream_options"]) as server:
        await Runner(Agent(OpenAIChat("m", base_url=server.url)), transcripts=None).run("Say it")
    assert "agentloop: dialect_changed" in caplog.text
    assert "stream_options" in caplog.text


def test_a_host_that_set_structlog_up_gets_warnings_there_alone(
    lines: LogCapture, caplog: pytest.LogCaptureFixture
) -> None:
    log_event(ContextWarning(level="warning", tokens=8, window=10, text="80 % full"))
    assert [line["log_level"] for line in lines.entries] == ["warning"]
    assert caplog.records == []


def test_half_a_character_in_a_warning_is_written_by_any_handler(tmp_path: Path) -> None:
    script = (
        "import logging, sys\n"
        "from agentloop._plumbing.host_logging import warn\n"
        "logging.basicConfig(filename=sys.argv[1], encoding='utf-8')\n"
        "warn('half \\ud83d of it', error='and \\udc00 of that')\n"
    )
    file = tmp_path / "log"
    done = subprocess.run(
        [sys.executable, "-c", script, str(file)], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert "half ? of it" in file.read_text("utf-8")
