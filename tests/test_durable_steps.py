"""Each step of a durable run done twice, cut off, or done by another worker: the log is as if done once.

DBOS promises that a step runs at least once. Here a small stand-in for it does the steps of a run on a store
in memory and draws what goes wrong with each: nothing; the record of the step is lost, and the same or
another execution does it again; or the worker ends in the middle of a tool.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from itertools import repeat
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop import Agent, Limits, RunContext, tool
from agentloop.context import Context
from agentloop.durable.execution import Execution, Todo
from agentloop.durable.live import Live, Place
from agentloop.durable.orders import Order
from agentloop.events import MessageAdded, ModelCalled, RunEnded, RunStarted
from agentloop.messages import Message
from agentloop.models import ModelRequest
from agentloop.prompts import INTERRUPTED
from agentloop.setting import Setting
from agentloop.stores import InMemoryStore
from agentloop.stream import AnyStreamEvent
from agentloop.testing import Reply, ScriptedModel, calls
from agentloop.wire import wire_messages
from tests.strict_rules import violations

BATCHES = 2
FATES = ("well", "record lost", "taken over", "cut off")
RUN = "the-run"


class World:
    """A store, an agent whose tools count what they did, and whoever has the run just now."""

    def __init__(self, fates: Iterator[str]) -> None:
        self.store = InMemoryStore()
        self.done: Counter[str] = Counter()
        self.is_cut_off = False
        self.entered = asyncio.Event()
        self._fates = fates
        self.model = ScriptedModel(repeat(_reply))
        setting = Setting(agent=Agent(self.model, tools=self._tools()), store=self.store)
        self._place = Place(setting=setting, limits=Limits(steps=9), sink=_unseen)
        self._since = 0
        self.execution = self._new()

    def _new(self) -> Execution:
        order = Order(session_id="s", prompt=Message.user("Do it."))
        return Execution(
            live=Live(place=self._place, order=order, run_id=RUN, submitted=0.0, since=self._since)
        )

    async def take_over(self) -> None:
        """Another worker goes on."""
        await self.execution.live.let_go()
        self.execution = self._new()

    async def step(self, work: Callable[[], Awaitable[Todo]]) -> Todo:
        """What the step says in the end, whatever goes wrong with it."""
        match next(self._fates):
            case "record lost":
                await work()
            case "taken over":
                await work()
                await self.take_over()
            case "cut off":
                await self._cut_off(work)
                await self.take_over()
        return await work()

    async def _cut_off(self, work: Callable[[], Awaitable[Todo]]) -> None:
        """End the step where it is in a tool; one without a tool is done to its end."""
        self.is_cut_off = True
        self.entered.clear()
        step, entered = asyncio.ensure_future(work()), asyncio.create_task(self.entered.wait())
        await asyncio.wait({step, entered}, return_when=asyncio.FIRST_COMPLETED)
        self.is_cut_off = False
        for task in (step, entered):
            task.cancel()
        await asyncio.wait({step, entered})

    async def run(self) -> Todo:
        """The steps of a run, in the order of the workflow."""
        todo = await self.step(lambda: self.execution.begin())
        self._since = todo["since"]
        while todo["do"] != "end":
            if todo["do"] == "tools":
                for call_id in todo["calls"]:
                    await self.step(self._call(call_id, todo))
                todo = {"do": "ask"}
            else:
                todo = await self.step(lambda: self.execution.ask(False))
        ended = await self.step(lambda: self.execution.end({"status": "answered"}))
        await self.execution.live.let_go()
        return ended

    def _call(self, call_id: str, todo: Todo) -> Callable[[], Awaitable[Todo]]:
        return lambda: self.execution.call(call_id, len(todo["calls"]), todo["by"])

    def _tools(self) -> list[Any]:
        @tool
        async def once(context: RunContext[Any]) -> str:
            """Do what must be done once."""
            return await self._does("once", context)

        @tool(idempotent=True)
        async def often(context: RunContext[Any]) -> str:
            """Do what may be done again."""
            return await self._does("often", context)

        return [once, often]

    async def _does(self, name: str, context: RunContext[Any]) -> str:
        self.done[f"{name} {context.call_id}"] += 1
        if self.is_cut_off:
            self.entered.set()
            await asyncio.Event().wait()
        return name


def _reply(request: ModelRequest) -> Reply:
    """So many batches of two calls, then the answer."""
    asked = sum(message["role"] == "assistant" for message in request.messages)
    return "done" if asked >= BATCHES else calls(once={}, often={})


def _unseen(event: AnyStreamEvent) -> None:
    """Nobody watches."""


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(FATES), max_size=14))
def test_the_log_is_that_of_one_run_whatever_becomes_of_its_steps(fates: list[str]) -> None:
    async def whole() -> None:
        world = World(iter([*fates, *repeat("well", 50)]))
        ended = await world.run()
        log = await world.store.read("s")
        said = [record.event for record in log if isinstance(record.event, MessageAdded)]
        asked = [call for event in said for call in event.message.tool_calls]
        results = {event.message.tool_call_id: event.message.text for event in said}
        assert ended["status"] == "answered"
        edges = [type(r.event) for r in log if isinstance(r.event, RunStarted | RunEnded)]
        assert edges == [RunStarted, RunEnded]
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


async def test_a_begin_that_was_cut_off_before_the_prompt_settles_what_was_in_flight_and_says_it() -> None:
    world = World(repeat("well"))
    pending = Message.assistant(None, calls(once={}, often={}))
    events = [
        MessageAdded(message=Message.user("before"), tokens=1, run_id="earlier"),
        MessageAdded(message=pending, tokens=1, run_id="earlier"),
        RunStarted(run_id=RUN),
    ]
    await world.store.append("s", events, expect=0)
    await world.execution.begin()
    await world.take_over()
    await world.execution.begin()
    said = [r.event.message for r in await world.store.read("s") if isinstance(r.event, MessageAdded)]
    assert [message.text for message in said[2:]] == [INTERRUPTED, "often", "Do it."]
    assert [type(r.event) for r in await world.store.read("s")].count(RunStarted) == 1
    await world.execution.live.let_go()
