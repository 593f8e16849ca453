"""A cancellation that nobody asked for, raised by what a run awaits, is a failure and no cancelled run."""

import asyncio

import pytest

from agentloop import Agent, AgentLoopError, Runner
from agentloop.events import RunEndRecord
from agentloop.models import ModelRequest
from agentloop.testing import ScriptedModel


def leaks(_: ModelRequest) -> str:
    """What a client does whose own task group was cancelled."""
    raise asyncio.CancelledError


async def test_a_model_that_raises_a_cancellation_fails_its_run() -> None:
    runner = Runner(Agent(ScriptedModel([leaks])), transcripts=None)
    with pytest.raises(AgentLoopError, match=r"CancelledError.*, which nobody here asked for"):
        await runner.run("Hello.", session_id="s")
    ended = (await runner.events("s"))[-1].event
    assert isinstance(ended, RunEndRecord)
    assert ended.status == "failed"


async def test_a_task_group_hears_of_it() -> None:
    runner = Runner(Agent(ScriptedModel([leaks])), transcripts=None)
    with pytest.raises(ExceptionGroup) as raised:
        async with asyncio.TaskGroup() as group:
            group.create_task(runner.run("Hello."))
    assert "which nobody here asked for" in str(raised.value.exceptions[0])
