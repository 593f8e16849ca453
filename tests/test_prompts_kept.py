"""What was said to a session whose earlier run was cut off is kept, however long that takes to settle."""

import asyncio

import pytest

from agentloop import Agent, Runner, tool
from agentloop.events import MessageAdded
from agentloop.prompts import INTERRUPTED
from agentloop.stream import MessageAdded as MessageShown
from agentloop.testing import ScriptedModel, calls
from tests.kit import assert_valid, until


class Slow:
    """An idempotent tool that is entered again and again and ends once it is let out."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.leave = asyncio.Event()

    @property
    def look(self) -> object:
        """The tool."""

        @tool(idempotent=True)
        async def look() -> str:
            """Look for long."""
            self.entered.set()
            await until(self.leave)
            return "seen"

        return look

    async def cut_off_in(self, run: "asyncio.Task[object]") -> None:
        """Cancel the run in the tool."""
        await until(self.entered)
        self.entered.clear()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run


async def said(runner: Runner) -> list[str]:
    """What users said in the log."""
    records = [record.event for record in await runner.events("s")]
    messages = [event.message for event in records if isinstance(event, MessageAdded)]
    return [message.text for message in messages if message.role == "user"]


async def test_a_prompt_is_in_the_log_before_calls_in_flight_run_again() -> None:
    slow, model = Slow(), ScriptedModel([calls(look={}), "all said"])
    runner = Runner(Agent(model, tools=[slow.look]), transcripts=None)
    await slow.cut_off_in(asyncio.create_task(runner.run("First.", session_id="s")))
    second = asyncio.create_task(runner.run("Second.", session_id="s"))
    await until(slow.entered)
    assert await said(runner) == ["First.", "Second."]
    await slow.cut_off_in(second)
    assert (await runner.run("Third.", session_id="s")).output == "all said"
    assert texts_sent(model, "user") == ["First.", "Second.", "Third."]
    assert texts_sent(model, "tool") == [INTERRUPTED]
    assert_valid(model.requests)


async def test_the_model_sees_the_result_of_such_a_call_before_the_prompt() -> None:
    slow, model = Slow(), ScriptedModel([calls(look={}), "well"])
    runner = Runner(Agent(model, tools=[slow.look]), transcripts=None)
    await slow.cut_off_in(asyncio.create_task(runner.run("First.", session_id="s")))
    slow.leave.set()
    events = [event async for event in runner.stream("Second.", session_id="s")]
    shown = [event.message.role for event in events if isinstance(event, MessageShown)]
    assert shown == ["user", "tool", "assistant"]
    assert texts_sent(model, "tool") == ["seen"]
    assert model.requests[-1].messages[-1] == {"role": "user", "content": "Second."}
    assert_valid(model.requests)


def texts_sent(model: ScriptedModel, role: str) -> list[str]:
    """What the newest request holds of that role."""
    return [message["content"] for message in model.requests[-1].messages if message["role"] == role]
