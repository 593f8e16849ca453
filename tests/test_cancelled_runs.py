"""Each start among the events of a run has its end, wherever the run is cancelled (L16)."""

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


async def test_a_run_has_all_kinds_of_ends(tmp_path: Path) -> None:
    events: list[AnyStreamEvent] = []
    async with runner_of(tmp_path) as runner:
        await runner.run("Go", on_event=events.append)
    assert unpaired(events) == []
    assert {"CompactionEnded", "ToolEnded", "RunEnded"} <= {type(event).__name__ for event in events}


@given(st.integers(0, 400))
@pytest.mark.many(60)
async def test_l16_each_start_has_its_end_where_the_run_is_cancelled(turns: int) -> None:
    events: list[AnyStreamEvent] = []
    async with runner_of() as runner:
        reading = asyncio.create_task(runner.run("Go", on_event=events.append))
        await wait(turns)
        is_cancelled = reading.cancel()
        done = (await asyncio.gather(reading, return_exceptions=True))[0]
    assert isinstance(done, asyncio.CancelledError) == is_cancelled
    assert unpaired(events) == []
    if events:
        assert isinstance(events[-1], RunEnded)
        assert events[-1].status in (("interrupted", "answered") if is_cancelled else ("answered",))


async def test_who_is_cancelled_while_reading_is_cancelled_at_once() -> None:
    async with runner_of() as runner:
        seen: list[AnyStreamEvent] = []

        async def reads() -> None:
            async with asyncio.timeout(0):
                async with aclosing(runner.stream("Go")) as stream:
                    async for event in stream:
                        seen.append(event)

        with pytest.raises(TimeoutError):
            await reads()
        assert not any(isinstance(event, RunEnded) for event in seen)
