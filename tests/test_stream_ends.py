"""Each start in a stream has its end, wherever the reader is cancelled (L16)."""

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import Agent, Compaction, Runner
from agentloop.messages import Message
from agentloop.stream import (
    AnyStreamEvent,
    CompactionEnded,
    CompactionStarted,
    RunEnded,
    RunStarted,
    ToolEnded,
    ToolStarted,
)
from agentloop.testing import ScriptedModel, calls


async def wait(turns: int) -> str:
    """Wait for so many turns of the event loop."""
    for _ in range(turns):
        await asyncio.sleep(0)
    return "waited " * 300


def runner_of(folder: Path | None = None) -> Runner:
    """Its model calls tools side by side, asks for a compaction, and has to be compacted."""
    side_by_side = Message.assistant(None, calls(("wait", {"turns": 3}), ("wait", {"turns": 9})))
    wishes = Message.assistant(None, calls(("compact", {}), ("compact", {"focus": "all"})))
    model = ScriptedModel([*(side_by_side, side_by_side, wishes) * 2, "done"], window=6_000)
    agent = Agent(model, tools=[wait], compaction=Compaction(micro=None))
    return Runner(agent, transcripts=folder)


def unpaired(events: list[AnyStreamEvent]) -> list[str]:
    """What began and has not ended, or ended and has not begun."""
    open_ids: list[str] = []
    for event in events:
        match event:
            case RunStarted():
                open_ids.append(event.run_id)
            case ToolStarted():
                open_ids.append(event.call_id)
            case CompactionStarted():
                open_ids.append(event.compaction_id)
            case ToolEnded() | CompactionEnded() | RunEnded():
                of_one = getattr(event, "call_id", None) or getattr(event, "compaction_id", event.run_id)
                assert of_one in open_ids, event
                open_ids.remove(of_one)
    return open_ids


async def read(runner: Runner, events: list[AnyStreamEvent]) -> None:
    """Read a run to its end."""
    async with aclosing(runner.stream("Go", session_id="s")) as stream:
        async for event in stream:
            events.append(event)


async def test_a_run_has_all_kinds_of_ends(tmp_path: Path) -> None:
    events: list[AnyStreamEvent] = []
    async with runner_of(tmp_path) as runner:
        await read(runner, events)
    assert unpaired(events) == []
    assert {"CompactionEnded", "ToolEnded", "RunEnded"} <= {type(event).__name__ for event in events}


@given(st.integers(0, 400))
@pytest.mark.many(60)
async def test_l16_each_start_has_its_end_where_the_reader_is_cancelled(turns: int) -> None:
    events: list[AnyStreamEvent] = []
    async with runner_of() as runner:
        reading = asyncio.create_task(read(runner, events))
        await wait(turns)
        is_cancelled = reading.cancel()
        done = (await asyncio.gather(reading, return_exceptions=True))[0]
    assert isinstance(done, asyncio.CancelledError) == is_cancelled
    assert unpaired(events) == []
    if events:
        assert isinstance(events[-1], RunEnded)
        assert events[-1].status == ("interrupted" if is_cancelled else "answered")


async def test_who_leaves_while_it_is_cancelled_is_cancelled_all_the_same() -> None:
    async with runner_of() as runner:

        async def leaves() -> None:
            async with aclosing(runner.stream("Go")) as stream:
                async for event in stream:
                    if isinstance(event, ToolEnded):
                        break
            await asyncio.sleep(0)

        task = asyncio.create_task(leaves())
        async for event in runner.stream("Go"):
            if isinstance(event, ToolStarted):
                break
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
