"""A durable run whose session others have between two of its executions goes on behind them."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop.context import Context, wire_messages
from agentloop.durable.run_log import answer_in
from agentloop.events import MessageRecord, ModelCalled, Record, RunEndRecord, RunStartRecord
from agentloop.messages import Message
from agentloop.stream import AnyStreamEvent, RunEnded
from tests.durable_steps_kit import BATCHES, FATES, ORDER, PASSED, RUN, THEIRS, World
from tests.kit import assert_valid
from tests.strict_rules import violations


def edges(log: Sequence[Record]) -> list[str]:
    """What of the log says whose turn it is: another run's beginning, the run's prompt, its answer."""
    found = []
    for event in (record.event for record in log):
        match event:
            case RunStartRecord() if event.run_id != RUN:
                found.append("another")
            case MessageRecord(run_id="the-run", message=message) if message == ORDER.prompt:
                found.append("prompt")
            case MessageRecord(run_id="the-run", message=Message(role="assistant", tool_calls=())):
                found.append("answer")
    return found


def used(log: Sequence[Record]) -> int:
    """The tokens that the run's own requests took in."""
    return sum(
        called.event.usage.input_tokens
        for called, said in pairwise(log)
        if isinstance(called.event, ModelCalled) and called.event.usage
        if isinstance(said.event, MessageRecord) and said.event.run_id == RUN
    )


@pytest.mark.many(30)
@given(st.lists(st.sampled_from([*FATES, *PASSED, *PASSED]), max_size=14))
def test_a_run_goes_on_behind_others_whatever_becomes_of_its_steps(fates: list[str]) -> None:
    async def whole() -> None:
        told: list[AnyStreamEvent] = []
        world = World(iter([*fates, *repeat("well", 99)]))
        world.place = replace(world.place, sink=told.append)
        ended = await world.run()
        log = await world.store.read("s")
        assert ended["status"] == "answered"
        assert [type(r.event) for r in log if getattr(r.event, "run_id", "") == RUN].count(
            RunStartRecord
        ) == 1
        assert [r.event.run_id for r in log if isinstance(r.event, RunEndRecord)].count(RUN) == 1
        assert isinstance(told[-1], RunEnded)
        assert told[-1].output == answer_in(log, RUN) == "done"
        turns = edges(log)
        assert turns.count("answer") == 1
        assert ("prompt", "prompt") not in pairwise(turns)
        assert ("another", "answer") not in pairwise(turns)
        assert "prompt" not in turns[turns.index("answer") :]
        said = [record.event.message for record in log if isinstance(record.event, MessageRecord)]
        results = Counter(message.tool_call_id for message in said if message.role == "tool")
        asked = Counter(call.id for message in said for call in message.tool_calls)
        assert results == asked or (results < asked and turns[-1] == "another")
        assert all(times == 1 for call, times in world.done.items() if call.startswith("once"))
        assert_valid(world.model.requests)
        sent = list(wire_messages(Context.of(log).messages, instructions=None))
        assert violations({"model": "m", "messages": sent}) == []
        assert ended["usage"]["input"] == used(log)

    asyncio.run(whole())


@pytest.mark.parametrize("step", ["recorded", "lost"])
async def test_a_run_that_had_answered_ends_behind_others_with_its_own_answer(step: str) -> None:
    told: list[AnyStreamEvent] = []
    steps = ["begin", *["ask", "once", "often"] * BATCHES]
    asked = ["well"] * len(steps)
    fates = {"recorded": [*asked, "well", "passed before"], "lost": [*asked, "passed after"]}
    world = World(iter([*fates[step], *repeat("well", 99)]))
    world.place = replace(world.place, sink=told.append)
    assert (await world.run())["status"] == "answered"
    log = await world.store.read("s")
    texts = [record.event.message.text for record in log if isinstance(record.event, MessageRecord)]
    assert texts[-3:] == ["done", "And you?", THEIRS]
    assert edges(log) == ["prompt", "answer", "another"]
    assert isinstance(log[-1].event, RunEndRecord)
    assert log[-1].event.run_id == RUN
    assert isinstance(told[-1], RunEnded)
    assert told[-1].output == "done"


async def test_room_is_made_again_where_others_have_said_much_since_it_was_made() -> None:
    world = World(repeat("well"), window=4000)
    first = world.execution()
    await first.begin()
    made = (await first.make_room())["made"]
    await first.held.let_go()
    length = len(await world.store.read("s"))
    much = MessageRecord(message=Message.user("And you? " * 2000), tokens=4000, run_id="theirs")
    await world.store.append("s", [RunStartRecord(run_id="theirs"), much], expect=length)
    second = world.execution(since=first.held.since)
    assert await second.ask(made) == {"do": "make_room"}
    await second.held.let_go()
    assert world.model.requests == []
