"""What was said to a session whose earlier run was cut off is kept, however long that takes to settle."""

import asyncio

import pytest

from agentloop import Agent, Runner, Tool, tool
from agentloop.compaction import Compaction
from agentloop.events import MessageRecord, RunStartRecord
from agentloop.messages import Message, ToolCall
from agentloop.strategies import (
    Digest,
    KeepRecentTurns,
    SlidingWindow,
    TokenWindow,
    TurnWindow,
    replaced_by,
)
from agentloop.stream import MessageAdded
from agentloop.testing import ScriptedModel, calls
from tests.kit import added, assert_valid, until


class Slow:
    """An idempotent tool that is entered again and again and ends once it is let out."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.leave = asyncio.Event()

    @property
    def look(self) -> Tool:
        """The tool."""

        @tool(idempotent=True)
        async def look(far: str = "") -> str:
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
    messages = [event.message for event in records if isinstance(event, MessageRecord)]
    return [message.text for message in messages if message.role == "user"]


async def test_prompts_are_kept_while_calls_in_flight_run_again_and_said_behind_their_results() -> None:
    slow, model = Slow(), ScriptedModel([calls(look={}), "all said"])
    runner = Runner(Agent(model, tools=[slow.look]), transcripts=None)
    for prompt in ("First.", "Second.", "Third."):
        await slow.cut_off_in(asyncio.create_task(runner.run(prompt, session_id="s")))
    await slow.cut_off_in(asyncio.create_task(runner.resume("s")))
    assert await said(runner) == ["First."]
    slow.leave.set()
    assert (await runner.run("Fourth.", session_id="s")).output == "all said"
    assert texts_sent(model, "user") == ["First.", "Second.", "Third.", "Fourth."] == await said(runner)
    assert texts_sent(model, "tool") == ["seen"]
    assert_valid(model.requests)


async def test_a_prompt_whose_results_are_there_is_said_by_whoever_goes_on() -> None:
    """The run died between the last result and its prompt."""
    model = ScriptedModel(["well", "again"])
    runner = Runner(Agent(model, tools=[Slow().look]), transcripts=None)
    asked = Message.assistant("", [ToolCall(id="c1", name="look", arguments="{}")])
    began = RunStartRecord(run_id="died", prompt=Message.user("Second."))
    events = [
        RunStartRecord(run_id="first"),
        *map(added, [Message.user("First."), asked]),
        began,
        added(Message.tool("c1", "seen")),
    ]
    await runner.store.append("s", events, expect=0)
    assert (await runner.resume("s")).output == "well"
    assert texts_sent(model, "user") == ["First.", "Second."]
    assert (await runner.run("Third.", session_id="s")).output == "again"
    assert texts_sent(model, "user") == ["First.", "Second.", "Third."] == await said(runner)
    assert_valid(model.requests)


async def test_what_compacts_beside_such_a_run_leaves_its_calls_in_sight() -> None:
    slow, model = Slow(), ScriptedModel([*["word " * 300] * 6, calls(look={"far": "x" * 4_000}), "well"])
    runner = Runner(Agent(model, tools=[slow.look], compaction=Compaction(trigger=None)), transcripts=None)
    for number in range(6):
        await runner.run(f"{number}: {'word ' * 300}", session_id="s")
    await slow.cut_off_in(asyncio.create_task(runner.run("First.", session_id="s")))
    second = asyncio.create_task(runner.run("Second.", session_id="s"))
    await until(slow.entered)
    for strategy in (
        SlidingWindow(1),
        TurnWindow(1),
        TokenWindow(10),
        KeepRecentTurns(1),
        replaced_by(TokenWindow(10), Digest()),
    ):
        by_hand = Runner(
            Agent(ScriptedModel([]), compaction=Compaction(strategy=strategy)),
            store=runner.store,
            transcripts=None,
        )
        await by_hand.compact("s")
    slow.leave.set()
    assert (await second).output == "well"
    assert texts_sent(model, "tool") == ["seen"]
    assert texts_sent(model, "user")[-2:] == ["First.", "Second."]
    assert_valid(model.requests)


async def test_the_model_sees_the_result_of_such_a_call_before_the_prompt() -> None:
    slow, model = Slow(), ScriptedModel([calls(look={}), "well"])
    runner = Runner(Agent(model, tools=[slow.look]), transcripts=None)
    await slow.cut_off_in(asyncio.create_task(runner.run("First.", session_id="s")))
    slow.leave.set()
    events = [event async for event in runner.stream("Second.", session_id="s")]
    shown = [event.message.role for event in events if isinstance(event, MessageAdded)]
    assert shown == ["tool", "user", "assistant"]
    assert texts_sent(model, "tool") == ["seen"]
    assert model.requests[-1].messages[-1] == {"role": "user", "content": "Second."}
    assert_valid(model.requests)


def texts_sent(model: ScriptedModel, role: str) -> list[str]:
    """What the newest request holds of that role."""
    return [message["content"] for message in model.requests[-1].messages if message["role"] == role]
