"""The steps of durable runs on a store in memory, with what goes wrong with each drawn by a test.

DBOS promises that a step runs at least once. Here a small stand-in for it does the steps of a run and draws
what goes wrong with each: nothing; the record of the step is lost, and the same or another execution does it
again; the worker ends in the middle of a tool; or somebody gives the session another title in the middle of
it. Or the worker ends and others have the session before another goes on with the run: theirs is answered, is
cancelled in a tool, or only begins.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from itertools import repeat
from typing import Any

from agentloop import Agent, Limits, RunContext, Runner, tool
from agentloop.context import Context, RunTools, next_step
from agentloop.durable.held_run import HeldRun, WorkPlace
from agentloop.durable.orders import Order
from agentloop.durable.workflow import Execution, StepResult, StepWork, Workflow
from agentloop.events import Described, Event, MessageRecord, RunStartRecord
from agentloop.messages import Message
from agentloop.models import ModelRequest
from agentloop.runner import config_of
from agentloop.stores import InMemoryStore
from agentloop.stream import AnyStreamEvent
from agentloop.testing import Reply, ScriptedModel, calls

BATCHES = 2
FATES = ("well", "record lost", "taken over", "cut off", "renamed", "crossed")
PASSED = ("passed before", "passed after", "passed in flight", "left open", "left unsaid")
RUN = "the-run"
THEIRS = "I do well."
ORDER = Order(session_id="s", prompt=Message.user("Do it."), submitted=0.0)


class TakenOver(BaseException):
    """The worker is gone; another goes on with the run."""


class FatedSteps:
    """Does steps, keeps what they came to, and draws what goes wrong with each."""

    def __init__(self, world: "World", fates: Iterator[str]) -> None:
        self._world, self._fates = world, fates
        self._kept: dict[int, tuple[str, StepResult]] = {}
        self.next = 0

    def __call__(self, name: str, work: StepWork, /) -> Coroutine[Any, Any, StepResult]:
        place, self.next = self.next, self.next + 1
        return self._done(place, name, work)

    async def _done(self, place: int, name: str, work: StepWork) -> StepResult:
        if place in self._kept:
            kept, todo = self._kept[place]
            assert kept == name
            return todo
        await self._fated(next(self._fates), name, work)
        todo = await work()
        self._kept[place] = (name, todo)
        return todo

    async def _fated(self, fate: str, name: str, work: StepWork) -> None:
        match fate:
            case "record lost":
                await work()
            case "taken over":
                await work()
                raise TakenOver
            case "cut off":
                await self._world.cut_off(name, work())
                raise TakenOver
            case "passed before":
                raise self._world.passed_by(self._world.answered)
            case "passed after":
                await work()
                raise self._world.passed_by(self._world.answered)
            case "passed in flight":
                await self._world.cut_off(name, work())
                raise self._world.passed_by(self._world.answered)
            case "left open":
                await work()
                raise self._world.passed_by(self._world.cancelled)
            case "left unsaid":
                await self._world.cut_off(name, work())
                raise self._world.passed_by(self._world.only_begun)
            case "renamed":
                self._world.is_renamed = True
            case "crossed":
                self._world.store.is_crossed = True


class CrossedStore(InMemoryStore):
    """Where it `is_crossed`, somebody's rename lands just before what is appended next."""

    is_crossed = False

    async def append(self, session_id: str, events: Sequence[Event], *, expect: int) -> int:
        if self.is_crossed and expect:
            self.is_crossed = False
            await self.rename(session_id)
        return await super().append(session_id, events, expect=expect)

    async def rename(self, session_id: str) -> None:
        """What somebody else does."""
        length = len(await self.read(session_id))
        await super().append(session_id, [Described(title="Another")], expect=length)


class World:
    """A store, an agent whose tools count what they did, and whoever has the run just now."""

    def __init__(self, fates: Iterator[str], **model: Any) -> None:
        self.store = CrossedStore()
        self.done: Counter[str] = Counter()
        self.is_renamed = False
        self._cut_off: dict[str, asyncio.Event] = {}
        self._others: list[Callable[[], Awaitable[None]]] = []
        self.model = ScriptedModel(repeat(self._reply), **model)
        config = config_of(Runner(Agent(self.model, tools=self.tools()), store=self.store, transcripts=None))
        self.place = WorkPlace(config=config, limits=Limits(steps=9), sink=unseen)
        self._steps = FatedSteps(self, fates)

    def execution(self, *, since: int = 0) -> Execution:
        """What another worker begins with."""
        return Execution(held=HeldRun(place=self.place, order=ORDER, run_id=RUN, since=since))

    async def cut_off(self, name: str, work: Awaitable[StepResult]) -> None:
        """End the step where it is in a tool; one without a tool is done to its end."""
        call_id = name.removeprefix("tool ")
        entered = self._cut_off[call_id] = asyncio.Event()
        step, waiting = asyncio.ensure_future(work), asyncio.create_task(entered.wait())
        await asyncio.wait({step, waiting}, return_when=asyncio.FIRST_COMPLETED)
        for task in (step, waiting):
            task.cancel()
        await asyncio.wait({step, waiting})
        del self._cut_off[call_id]

    async def run(self) -> StepResult:
        """The whole run, by as many workers as it takes."""
        order = ORDER.to_text()
        while True:
            self._steps.next = 0
            with contextlib.suppress(TakenOver):
                return await Workflow(place_of=lambda _: self.place, record=self._steps).run(RUN, order)
            while self._others:
                await self._others.pop(0)()

    def passed_by(self, other: Callable[[], Awaitable[None]]) -> TakenOver:
        """The end of a worker, after which this other run has the session."""
        self._others.append(other)
        return TakenOver()

    async def answered(self) -> None:
        """Another's run, from its prompt to its answer."""
        runner = Runner(Agent(ScriptedModel([THEIRS])), store=self.store, transcripts=None)
        await runner.run("And you?", session_id="s")

    async def cancelled(self) -> None:
        """Another's run that is cancelled in a tool: a call of it has no result."""
        entered = asyncio.Event()

        async def hang() -> None:
            """Never end."""
            entered.set()
            await asyncio.Event().wait()

        agent = Agent(ScriptedModel([calls(hang={})]), tools=[hang])
        runner = Runner(agent, store=self.store, transcripts=None)
        running = asyncio.create_task(runner.run("And you?", session_id="s"))
        await asyncio.wait({running, asyncio.create_task(entered.wait())}, return_when="FIRST_COMPLETED")
        running.cancel()
        await asyncio.wait({running})

    async def only_begun(self) -> None:
        """Another's run that is killed as it begins, its prompt behind the results of calls in flight."""
        records = await self.store.read("s")
        is_open = isinstance(next_step(Context.of(records).messages), RunTools)
        asked = Message.user("And you?")
        begun = RunStartRecord(run_id="killed", prompt=asked if is_open else None)
        said = [] if is_open else [MessageRecord(message=asked, tokens=1, run_id="killed")]
        await self.store.append("s", [begun, *said], expect=len(records))

    def tools(self) -> list[Any]:
        """One that must run once, one that may run again."""

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
        await self._rename()
        if entered := self._cut_off.get(context.call_id):
            entered.set()
            await asyncio.Event().wait()
        return name

    async def _reply(self, request: ModelRequest) -> Reply:
        await self._rename()
        return _reply(request)

    async def _rename(self) -> None:
        if self.is_renamed:
            self.is_renamed = False
            await self.store.rename("s")


def _reply(request: ModelRequest) -> Reply:
    """So many batches of two calls, then the answer."""
    asked = sum(message["role"] == "assistant" for message in request.messages)
    return "done" if asked >= BATCHES else calls(once={}, often={})


def unseen(event: AnyStreamEvent) -> None:
    """Nobody watches."""
