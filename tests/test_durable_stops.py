"""Durable runs that are cancelled, or whose worker stops, at any moment: each has one end, and soon."""

import asyncio
import random
from collections.abc import MutableMapping
from itertools import repeat
from typing import Any

import pytest

from agentloop import Agent, UsageError, tool
from agentloop.durable import RunQueue
from agentloop.errors import ModelUnavailableError
from agentloop.events import MessageRecord, RunEndRecord
from agentloop.messages import ToolCall
from agentloop.stores import SessionStore
from agentloop.stream import AnyStreamEvent, RunEnded
from agentloop.testing import FailingModel, ScriptedModel, calls
from tests import durable_work_kit
from tests.durable_work_kit import Gate, at_work, over, said
from tests.kit import until

pytestmark = pytest.mark.deep

url, queue, store = durable_work_kit.url, durable_work_kit.queue, durable_work_kit.store
no_run_is_left = durable_work_kit.no_run_is_left
configured = durable_work_kit.configured


class Ends:
    """Hears the ends of runs until so many are there."""

    def __init__(self, awaited: int = 1) -> None:
        self.heard: list[RunEnded] = []
        self.are_there = asyncio.Event()
        self._awaited = awaited

    def __call__(self, event: AnyStreamEvent) -> None:
        if isinstance(event, RunEnded):
            self.heard.append(event)
            if len(self.heard) == self._awaited:
                self.are_there.set()


class Away(FailingModel):
    """A model whose server is away, and says when it was asked first."""

    def __init__(self, error: Exception, **options: Any) -> None:
        super().__init__(error, **options)
        self.asked = asyncio.Event()

    async def stream(self, request: Any) -> Any:
        self.asked.set()
        async for event in super().stream(request):
            yield event


async def ends_in(store: SessionStore, session_id: str) -> list[str]:
    """The ends of runs that the log holds."""
    return [r.event.status for r in await store.read(session_id) if isinstance(r.event, RunEndRecord)]


@tool
async def short() -> str:
    """Take a moment."""
    await asyncio.sleep(0.05)
    return "done"


async def test_runs_cancelled_between_short_steps_have_their_end_and_tell_it(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    ends, draw = Ends(awaited=4), random.Random(7)
    agent = Agent(ScriptedModel(repeat(lambda _: calls(short={}))), tools=[short])
    ids = [await queue.submit("Go on.", session_id=f"short-{n}") for n in range(4)]
    async with at_work(agent, url, on_event=ends):
        for n, run_id in enumerate(ids):
            async with asyncio.timeout(60):
                while len(await store.read(f"short-{n}")) < 6:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            await asyncio.sleep(draw.random() * 0.1)
            await queue.cancel(run_id)
        await until(ends.are_there)
    assert {end.run_id for end in ends.heard} == set(ids)
    assert {end.status for end in ends.heard} == {"interrupted"}
    assert [await ends_in(store, f"short-{n}") for n in range(4)] == [["interrupted"]] * 4


async def test_a_run_cancelled_again_after_it_was_resumed_has_an_end_behind_what_it_did_since(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    gate, first, both = Gate(), Ends(), Ends(awaited=2)

    def heard(event: AnyStreamEvent) -> None:
        first(event)
        both(event)

    model = ScriptedModel([calls(("wait", {})), calls(("wait", {})), "done"])
    run_id = await queue.submit("Go through.", session_id="twice")
    async with at_work(Agent(model, tools=[gate.wait]), url, on_event=heard):
        await until(gate.entered)
        await queue.cancel(run_id)
        await until(first.are_there)
        gate.entered.clear()
        await queue.resume(run_id)
        await until(gate.entered)
        await queue.cancel(run_id)
        await until(both.are_there)
    *_, asked, end = [record.event for record in await store.read("twice")]
    assert isinstance(asked, MessageRecord)
    assert isinstance(end, RunEndRecord)
    assert (end.run_id, await ends_in(store, "twice")) == (run_id, ["interrupted"] * 2)


async def test_a_run_cancelled_while_it_waits_for_its_next_try_ends_and_gives_its_place_up(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    model, ends = Away(ModelUnavailableError("no connection")), Ends()
    run_id = await queue.submit("Are you there?", session_id="away")
    async with at_work(Agent(model), url, retry_seconds=600, on_event=ends):
        await until(model.asked)
        await queue.cancel(run_id)
        await until(ends.are_there)
    assert (ends.heard[0].status, len(model.requests)) == ("interrupted", 1)
    assert await ends_in(store, "away") == ["interrupted"]
    await queue.delete(run_id)


async def test_a_worker_that_stops_does_not_wait_for_the_next_try(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    model = Away(ModelUnavailableError("no connection"), times=1, then=ScriptedModel(["back"]))
    run_id = await queue.submit("Are you there?", session_id="stops")
    async with asyncio.timeout(60):
        async with at_work(Agent(model), url, retry_seconds=600, grace_seconds=600):
            await until(model.asked)
    assert (await queue.run(run_id)).state == "queued"
    async with at_work(Agent(model), url):
        assert (await over(queue, run_id)).state == "answered"
    assert await ends_in(store, "stops") == ["answered"]


async def test_a_step_is_tried_again_when_the_server_says_so_unless_that_is_too_long(
    url: str, queue: RunQueue, configured: list[MutableMapping[str, Any]]
) -> None:
    soon = ModelUnavailableError("too many requests", retry_after_seconds=0.3)
    model = FailingModel(soon, times=1, then=ScriptedModel(["back"]))
    async with at_work(Agent(model), url, retry_seconds=0.01):
        assert (await over(queue, await queue.submit("Hello."))).state == "answered"
    [told] = [entry for entry in configured if entry["event"] == "step_to_be_tried_again"]
    assert (told["after_seconds"], told["error"]) == (0.3, "too many requests")
    much_later = FailingModel(ModelUnavailableError("come back", retry_after_seconds=3600))
    async with at_work(Agent(much_later), url, retry_seconds=0.01):
        run = await over(queue, await queue.submit("Hello."))
    assert (run.state, run.error, len(much_later.requests)) == ("try_later", "come back", 1)
    with pytest.raises(UsageError, match=f"agentloop submit --session {run.session_id}"):
        await queue.resume(run.id)


@pytest.mark.parametrize("odd", ["a\0b", "a\ud800b", "a\nb"])
async def test_a_call_whose_id_no_column_takes_runs_once_and_is_answered(
    url: str, queue: RunQueue, store: SessionStore, odd: str
) -> None:
    called = ToolCall(id=odd, name="short", arguments="{}")
    session_id = f"odd-{ord(odd[1])}"
    run_id = await queue.submit("Go.", session_id=session_id)
    async with at_work(Agent(ScriptedModel([[called], "well"]), tools=[short]), url):
        run = await over(queue, run_id)
    assert (run.state, run.error) == ("answered", None)
    assert [text for _, text in await said(store, session_id)] == ["Go.", "", "done", "well"]
    assert sum(isinstance(r.event, MessageRecord) for r in await store.read(session_id)) == 4
