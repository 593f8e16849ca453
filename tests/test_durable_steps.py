"""Each step of a durable run done twice, cut off, or done by another worker: the log is as if done once."""

import asyncio
import json
from collections.abc import Coroutine
from dataclasses import replace
from itertools import pairwise, repeat
from traceback import walk_stack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import Agent, Compaction, Limits
from agentloop.context import Context, wire_messages
from agentloop.context.guard import STRIKES
from agentloop.durable.held_run import HeldRun, WorkPlace
from agentloop.durable.run_log import partial_in
from agentloop.durable.workflow import Execution, StepResult, StepWork, Workflow
from agentloop.events import Described, MessageRecord, ModelCalled, RunEndRecord, RunStartRecord
from agentloop.messages import Message
from agentloop.prompts import INTERRUPTED
from agentloop.run import Run, loop
from agentloop.runner import Runner, config_of
from agentloop.stores import InMemoryStore
from agentloop.stream import AnyStreamEvent, CompactionStarted, RunEnded
from agentloop.testing import ScriptedModel, calls
from agentloop.triggers import TokenCount, WindowFraction
from tests.durable_steps_kit import BATCHES, FATES, ORDER, RUN, World, unseen
from tests.kit import read
from tests.strict_rules import violations


@pytest.mark.many(60)
@given(st.lists(st.sampled_from(FATES), max_size=14))
def test_the_log_is_that_of_one_run_whatever_becomes_of_its_steps(fates: list[str]) -> None:
    async def whole() -> None:
        world = World(iter([*fates, *repeat("well", 99)]))
        await world.store.append("s", [Described(title="Before")], expect=0)
        ended = await world.run()
        log = await world.store.read("s")
        said = [record.event for record in log if isinstance(record.event, MessageRecord)]
        asked = [call for event in said for call in event.message.tool_calls]
        results = {event.message.tool_call_id: event.message.text for event in said}
        assert ended["status"] == "answered"
        edges = [type(r.event) for r in log if isinstance(r.event, RunStartRecord | RunEndRecord)]
        assert edges == [RunStartRecord, RunEndRecord]
        roles = [event.message.role for event in said]
        assert roles == ["user", *["assistant", "tool", "tool"] * BATCHES, "assistant"]
        assert len(world.model.requests) == sum(isinstance(r.event, ModelCalled) for r in log) == BATCHES + 1
        for call in asked:
            times = world.done[f"{call.name} {call.id}"]
            if call.name == "often":
                assert (times >= 1, results[call.id]) == (True, "often")
            else:
                assert (times, results[call.id]) in [(1, "once"), (1, INTERRUPTED), (0, INTERRUPTED)]
        sent = list(wire_messages(Context.of(log).messages, instructions=None))
        assert violations({"model": "m", "messages": sent}) == []
        used = [r.event.usage for r in log if isinstance(r.event, ModelCalled) and r.event.usage]
        assert ended["usage"]["input"] == sum(usage.input_tokens for usage in used)

    asyncio.run(whole())


async def test_each_step_is_begun_by_the_loop_of_all_runs() -> None:
    begun: dict[str, bool] = {}

    def record(name: str, work: StepWork, /) -> Coroutine[Any, Any, StepResult]:
        begun[name.split()[0]] = any(frame.f_code is loop.__code__ for frame, _ in walk_stack(None))
        return work()  # type: ignore[return-value]

    world = World(repeat("well"))
    order = ORDER.to_text()
    await Workflow(place_of=lambda _: world.place, record=record).run(RUN, order)
    assert begun == dict.fromkeys(("begin", "ask", "tool", "end"), True)


async def test_steps_are_called_and_kept_as_older_workers_did_and_replayed() -> None:
    kept: list[tuple[str, StepResult]] = []

    def record(name: str, work: StepWork, /) -> Coroutine[Any, Any, StepResult]:
        async def done() -> StepResult:
            kept.append((name, json.loads(json.dumps(await work()))))
            return kept[-1][1]

        return done()

    world = World(repeat("well"))
    order = ORDER.to_text()
    ended = await Workflow(place_of=lambda _: world.place, record=record).run(RUN, order)
    by = kept[1][1]["by"]
    batches = [kept[at][1]["calls"] for at in (1, 4)]
    older: list[tuple[str, StepResult]] = [("begin", {"do": "ask", "since": 1})]
    for batch in batches:
        older += [("ask", {"do": "tools", "by": by, "calls": batch, "compact": []})]
        older += [(f"tool {call_id}", {}) for call_id in batch]
    older += [("ask", {"do": "end", "status": "answered"}), ("end", ended)]
    assert kept == older

    def replay(name: str, work: StepWork, /) -> Coroutine[Any, Any, StepResult]:
        async def done() -> StepResult:
            assert name == older[0][0]
            return older.pop(0)[1]

        return done()

    length = len(await world.store.read("s"))
    assert await Workflow(place_of=lambda _: world.place, record=replay).run(RUN, order) == ended
    assert (older, len(await world.store.read("s"))) == ([], length)


async def test_a_begin_that_was_cut_off_before_the_prompt_settles_what_was_in_flight_and_says_it() -> None:
    world = World(repeat("well"))
    pending = Message.assistant(None, calls(once={}, often={}))
    events = [
        MessageRecord(message=Message.user("before"), tokens=1, run_id="earlier"),
        MessageRecord(message=pending, tokens=1, run_id="earlier"),
        RunStartRecord(run_id=RUN, prompt=Message.user("Do it.")),
    ]
    await world.store.append("s", events, expect=0)
    for _ in range(2):
        execution = world.execution()
        await execution.begin()
        await execution.held.let_go()
    said = [r.event.message for r in await world.store.read("s") if isinstance(r.event, MessageRecord)]
    assert [message.text for message in said[2:]] == [INTERRUPTED, "often", "Do it."]
    assert [type(r.event) for r in await world.store.read("s")].count(RunStartRecord) == 1


async def test_a_run_whose_steps_cannot_be_kept_has_its_end_in_the_log_and_tells_it() -> None:
    told: list[AnyStreamEvent] = []

    async def steps(name: str, work: StepWork, /) -> StepResult:
        todo = await work()
        if name.startswith("tool"):
            raise RuntimeError("it cannot be kept")
        return todo

    world = World(repeat("well"))
    place = replace(world.place, sink=told.append)
    order = ORDER.to_text()
    with pytest.raises(RuntimeError):
        await Workflow(place_of=lambda _: place, record=steps).run(RUN, order)
    last = (await world.store.read("s"))[-1].event
    assert isinstance(last, RunEndRecord)
    assert isinstance(told[-1], RunEnded)
    assert (last.status, told[-1].status, told[-1].error) == ("failed", "failed", "it cannot be kept")


async def test_compaction_that_is_paused_costs_no_steps_and_none_falls_into_the_asking() -> None:
    done: list[str] = []

    def steps(name: str, work: StepWork, /) -> Coroutine[Any, Any, StepResult]:
        done.append(name.split()[0])
        return work()  # type: ignore[return-value]

    def heard(event: AnyStreamEvent) -> None:
        if isinstance(event, CompactionStarted):
            done.append("compaction")

    model = ScriptedModel([*[calls(often={})] * 12, "done"], window=100_000)
    policy = Compaction(trigger=TokenCount(60), micro=None)
    agent = Agent(model, tools=World(repeat("well")).tools(), compaction=policy)
    config = config_of(Runner(agent, transcripts=None))
    place = WorkPlace(config=config, limits=Limits(steps=20), sink=heard)
    order = ORDER.to_text()
    await Workflow(place_of=lambda _: place, record=steps).run(RUN, order)
    started = [before for before, name in pairwise(done) if name == "compaction"]
    assert started
    assert set(started) == {"make_room"}
    assert done.count("make_room") <= STRIKES + 1
    asked = [request for request in model.requests if request.purpose == "agent"]
    assert done.count("ask") == len(asked) + done.count("make_room")


async def test_at_a_limit_one_text_is_told_and_found_in_the_log_though_a_compaction_hid_it() -> None:
    told: list[AnyStreamEvent] = []
    half = Message.assistant("Half of it.", calls(read={"name": "file_0", "words": 300}))
    reads = [calls(read={"name": f"file_{n}", "words": 300}) for n in range(1, 9)]
    policy = Compaction(trigger=WindowFraction(0.5), micro=None)
    agent = Agent(ScriptedModel([half, *reads], window=4000), tools=[read], compaction=policy)
    store = InMemoryStore()
    config = config_of(Runner(agent, store=store, transcripts=None))
    place = WorkPlace(config=config, limits=Limits(steps=8), sink=told.append)
    order = ORDER.to_text()
    await Workflow(place_of=lambda _: place, record=lambda _, work: work()).run(RUN, order)  # type: ignore[arg-type, return-value]
    visible = Context.of(await store.read("s")).visible
    assert not any("Half of it." in entry.message.text for entry in visible if entry.kind == "said")
    assert isinstance(told[-1], RunEnded)
    assert (told[-1].status, told[-1].output) == ("limit", "Half of it.")
    assert partial_in(await store.read("s"), RUN) == told[-1].output


async def test_who_goes_on_with_a_run_knows_all_that_it_used_summaries_that_report_nothing_too() -> None:
    summary = "In short: " + "all of it was read. " * 20
    reads = [calls(("read", {"name": f"file_{n}", "words": 300})) for n in range(6)]
    model = ScriptedModel([*reads, "all read"], window=4000, usage=False, summary=summary)
    policy = Compaction(trigger=WindowFraction(0.5), micro=None)
    store = InMemoryStore()
    config = config_of(Runner(Agent(model, tools=[read], compaction=policy), store=store, transcripts=None))
    place = WorkPlace(config=config, limits=Limits(steps=9), sink=unseen)

    def held() -> HeldRun:
        return HeldRun(place=place, order=ORDER, run_id=RUN, since=1)

    before, after = held(), held()
    await before.begin()
    execution = Execution(held=before)
    while True:
        todo = await execution.ask(execution.id)
        if todo["do"] == "end":
            break
        if todo["do"] == "tools":
            for call_id in todo["calls"]:
                await execution.call(call_id, 1, todo["by"])
        await execution.make_room()
    await before.let_go()
    run, _ = await after.open()
    await after.let_go()
    assert before.run
    assert before.run.keeper.outcomes
    assert (run.spending.steps, _used(run)) == (7, _used(before.run))


def _used(run: Run) -> int:
    """Tokens of all kinds."""
    outcomes = sum(
        (outcome.unreported for outcome in run.keeper.outcomes),
        run.spending.usage + run.spending.answered.unreported,
    )
    return outcomes.input_tokens + outcomes.output_tokens
