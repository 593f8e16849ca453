"""One fuzzed conversation through the front door: the runner with its tools, cut off and gone on with."""

import asyncio
import contextlib
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any

from agentloop.callbacks import Callbacks
from agentloop.compaction import Compaction, CompactionResult
from agentloop.context import count_message, counter_for
from agentloop.events import Cleared, Compacted, MessageRecord, Record, Restored
from agentloop.models import RetryPolicy
from agentloop.providers.openai import OpenAIChat, OpenAIResponses
from agentloop.results import RunResult
from agentloop.run import Agent
from agentloop.runner import Runner
from agentloop.stores import open_store
from agentloop.stores.base import SessionStore
from agentloop.stream import CompactionEnded, ResultsCleared, RunEnded, StreamEvent
from agentloop.toolsets import Background, Todo
from tests.fuzz_application import Application
from tests.fuzz_brain import FuzzedServer, Seen
from tests.fuzz_faults import DyingStore, OddCallback
from tests.fuzz_plan import Cut, Plan, Turn, cut_of
from tests.fuzz_sub_agents import SubAgents
from tests.fuzz_texts import history, ordered, text
from tests.fuzz_tools import Effects, FuzzedPins, FuzzedTools, pause

SESSION = "fuzzed"
LONGEST_ACT_SECONDS = 30


@dataclass(kw_only=True)
class Act:
    """One call of the runner: what was asked, what was shown meanwhile, how it ended, the log around it."""

    number: int
    kind: str
    prompt: str | None = None
    answers: Mapping[str, Any] = field(default_factory=dict)
    cut: bool = False
    shown: list[StreamEvent] = field(default_factory=list)
    read: list[StreamEvent] = field(default_factory=list)
    before: Sequence[Record] = ()
    after: Sequence[Record] = ()
    error: BaseException | None = None
    result: Any = None


@dataclass(kw_only=True)
class Story:
    """All that happened in one conversation."""

    plan: Plan
    folder: Path
    acts: list[Act] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    offered: dict[int, str] = field(default_factory=dict)
    effects: Effects = field(default_factory=Effects)
    compacted: dict[str, CompactionResult] = field(default_factory=dict)
    application: Application
    subs: SubAgents | None = None
    branches: dict[str, Sequence[Record]] = field(default_factory=dict)
    failures: list[BaseException] = field(default_factory=list)
    tasks_left: list[str] = field(default_factory=list)


async def told(plan: Plan, folder: Path) -> Story:
    """The story of the plan, with files in the folder."""
    story = Story(plan=plan, folder=folder, application=Application(seed=plan.seed, wants=plan.wants))
    with FuzzedServer(plan, story.application) as server:
        await _World(story, server).play()
        story.seen, story.offered, story.failures = server.seen, server.offered, server.failures
    return story


class _World:
    """The client's side while it goes on."""

    def __init__(self, story: Story, server: FuzzedServer) -> None:
        self.story, self.plan, self.server = story, story.plan, server
        self.draw = Random(f"{self.plan.seed} acts")
        url = f"sqlite:///{story.folder}/s.db" if self.plan.store == "sqlite" else "memory:"
        self.inner: SessionStore = open_store(url)
        self.store = DyingStore(self.inner, on_death=self._cut_off)
        self.cut = asyncio.Event()
        self.cuts: Cut | None = None
        self.countdown = 0
        self.act = Act(number=0, kind="")
        self.models: list[OpenAIChat | OpenAIResponses] = []
        self.loop = asyncio.get_running_loop()
        if self.plan.seed % 4 == 2:
            story.subs = SubAgents(plan=self.plan, is_cut=lambda: self._counts("tool"))

    async def play(self) -> None:
        await self._import()
        runner = self._runner()
        try:
            for turn in self.plan.turns:
                runner = await self._turn(runner, turn)
        finally:
            for line in await self.inner.list(branches_of=SESSION):
                self.story.branches[line.id] = await self.inner.read(line.id)
            for model in self.models:
                await model.close()
            await self.inner.close()

    async def _import(self) -> None:
        count = counter_for("fuzzed")
        draw, length, order = Random(f"{self.plan.seed} history"), self.plan.history, self.plan.order
        said = ordered(draw, order, length) if order else history(draw, length)
        events = [MessageRecord(message=message, tokens=count_message(message, count)) for message in said]
        if events:
            await self.inner.append(SESSION, events, expect=0)

    async def _turn(self, runner: Runner, turn: Turn) -> Runner:
        prompt = None
        if turn.kind == "say":
            number = len(self.story.acts)
            prompt = text(turn.script, turn.words, f"FACT-{0xB00000 + number:06x}")
            self.server.left = list(turn.batches)
        await self._act(runner, turn.kind, prompt, turn)
        act = self.story.acts[-1]
        if act.cut:
            runner = self._runner()
        if turn.kind == "say" and ((act.cut and self.draw.random() < 0.7) or self._may_resume(act)):
            await self._act(runner, "resume", None, Turn(watched=turn.watched))
        wants = self.plan.wants
        return await self._answered(runner) if wants.asks or wants.below or wants.rules else runner

    async def _answered(self, runner: Runner) -> Runner:
        """Go on with answers to what waits, now and then in another runner, or cut off too."""
        draw = Random(f"{self.plan.seed} answered {len(self.story.acts)}")
        for _ in range(draw.choice([0, 1, 3])):
            self.store.lives()
            if not await self.inner.info(SESSION) or not (pending := await runner.pending(SESSION)):
                break
            if draw.random() < 0.5:
                runner = self._runner()
            cut = cut_of(draw) if draw.random() < 0.3 else None
            answers = self.story.application.answers(pending)
            await self._act(runner, "resume", None, Turn(watched=draw.random() < 0.5, cut=cut), answers)
            if self.story.acts[-1].cut:
                runner = self._runner()
        return runner

    def _may_resume(self, act: Act) -> bool:
        return act.error is not None and self.draw.random() < 0.4

    async def _act(
        self,
        runner: Runner,
        kind: str,
        prompt: str | None,
        turn: Turn,
        answers: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        act = self.act = Act(number=len(self.story.acts), kind=kind, prompt=prompt, answers=answers)
        self.story.acts.append(act)
        self._arm(turn.cut)
        act.before = tuple(await self.inner.read(SESSION))
        try:
            async with asyncio.timeout(LONGEST_ACT_SECONDS):
                await self._done(runner, turn)
        # Whatever comes is judged afterwards; only a developer's Ctrl-C is no finding.
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001
            act.error = error
        self.server.hang_at, self.cuts = 0, None
        act.after = tuple(await self.inner.read(SESSION))
        rewriting = (isinstance(record.event, Cleared | Compacted | Restored) for record in act.after)
        self.server.rewrites = sum(rewriting)
        self._note_tasks()

    def _arm(self, cut: Cut | None) -> None:
        self.server.act = self.act.number
        self.cut.clear()
        self.cuts, self.countdown = cut, cut.at if cut else 0
        self.server.on_hang = functools.partial(self.loop.call_soon_threadsafe, self._cut_off)
        self.server.hang_at = cut.at if cut and cut.where == "request" else 0
        self.store.lives()
        if cut and cut.where == "append":
            self.store.dies(cut.at, writes_last=cut.closes)

    def _cut_off(self) -> None:
        self.act.cut = True
        self.cut.set()

    async def _done(self, runner: Runner, turn: Turn) -> None:
        act = self.act
        match act.kind:
            case "say" | "resume":
                await self._until_cut(self._watched(runner, turn) if turn.watched else self._run(runner))
            case "undo":
                act.result = await runner.undo(SESSION)
            case "due":
                policy = runner.agent.compaction
                act.result = await runner.compact(SESSION, trigger=policy and policy.trigger)
            case "preview":
                await runner.preview(SESSION)
                await runner.status(SESSION)
            case "compact" | "compact-undo":
                act.result = await runner.compact(SESSION, focus=self.draw.choice([None, "the numbers"]))
                if act.kind == "compact-undo" and act.result and act.result.status == "done":
                    await runner.undo(SESSION)

    async def _run(self, runner: Runner) -> RunResult:
        if self.act.prompt is None:
            return await runner.resume(SESSION, answers=self.act.answers)
        return await runner.run(self._prompt(), session_id=SESSION)

    def _prompt(self) -> Any:
        said, number = self.act.prompt, self.act.number
        return said if said is None else self.story.application.prompt(said, number)

    async def _watched(self, runner: Runner, turn: Turn) -> None:
        act = self.act
        shown = runner.stream(self._prompt(), session_id=SESSION, answers=act.answers or None)
        async with contextlib.aclosing(shown) as stream:
            async for event in stream:
                act.read.append(event)
                if turn.cut and turn.cut.closes and turn.cut.where == "event" and self.cut.is_set():
                    return

    async def _until_cut(self, work: Any) -> None:
        task, cut = asyncio.create_task(work), asyncio.create_task(self.cut.wait())
        try:
            await asyncio.wait({task, cut}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done() and self.cuts and self.cuts.where != "append":
                if self.cuts.closes and self.cuts.where == "event":
                    await asyncio.sleep(0)
                task.cancel()
            self.act.result = await task
        finally:
            cut.cancel()
            task.cancel()
            await asyncio.wait({task, cut})

    def _note_tasks(self) -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        self.story.tasks_left += [str(task.get_coro()) for task in left if not task.done()]

    def _runner(self) -> Runner:
        plan = self.plan
        api = plan.apis[len(self.models) % len(plan.apis)]
        model = (OpenAIChat if api == "chat" else OpenAIResponses)(
            "fuzzed",
            base_url=self.server.url,
            api_key="key",
            window=plan.told,
            max_output_tokens=plan.max_output_tokens,
            stream=plan.streams,
            retry=RetryPolicy(attempts=plan.attempts, sleep=_no_wait),
            timeout_seconds=20,
        )
        self.models.append(model)
        policy = Compaction(
            micro=plan.micro,
            trigger=plan.trigger,
            strategy=plan.strategy,
        )
        pins = [FuzzedPins(10 ** (plan.seed % 4))] if plan.seed % 3 else []
        sets: list[Any] = [pause, Todo(), Background(agent_tools=["pause"])] if plan.seed % 4 == 1 else []
        sets += self.story.subs.tools() if self.story.subs else []
        tools = FuzzedTools(self.story.effects, lambda: self._counts("tool"))
        agent = Agent(
            model,
            tools=[*tools.all(), *self.story.application.tools(tools), *pins, *sets],
            instructions=plan.instructions,
            compaction=policy,
            max_steps=plan.max_steps,
            output=plan.wants.output,
        )
        callbacks: list[Callbacks] = [_Watcher(self)]
        if plan.odd_callback:
            callbacks.append(OddCallback(plan.odd_callback, self.draw))
        return Runner(
            agent,
            store=self.store,
            transcripts=self.story.folder / "t",
            callbacks=callbacks,
            approver=self.story.application.approver if plan.wants.at_once else None,
            rules=plan.wants.rules,
        )

    async def on_event(self, event: StreamEvent) -> None:
        if event.session_id != SESSION:  # of a sub-agent, in which the run may be cut off too
            if self._counts("event") and not isinstance(event, RunEnded):
                await asyncio.Event().wait()
            return
        self.act.shown.append(event)
        if isinstance(event, ResultsCleared) or (
            isinstance(event, CompactionEnded) and event.status == "done"
        ):
            self.server.rewrites += 1
        if self._counts("event") and not isinstance(event, RunEnded):
            await asyncio.Event().wait()

    def _counts(self, where: str) -> bool:
        """Count one of these down; whether the run is cut off at it."""
        if self.cuts is None or self.cuts.where != where or not self.countdown:
            return False
        self.countdown -= 1
        if not self.countdown:
            self._cut_off()
        return not self.countdown


class _Watcher(Callbacks):
    """Tells the world what is shown."""

    def __init__(self, world: _World) -> None:
        self._world = world

    async def on_event(self, event: StreamEvent) -> None:
        await self._world.on_event(event)

    async def after_compaction(self, result: CompactionResult) -> None:
        if result.seq is not None:
            self._world.story.compacted[result.compaction_id] = result


async def _no_wait(seconds: float) -> None:
    await asyncio.sleep(0)
