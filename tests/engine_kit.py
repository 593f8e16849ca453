"""Every strategy, trigger and way into a compaction, on any log: a scene is one log and what came of it."""

import random
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

from agentloop import (
    Agent,
    Callbacks,
    Compaction,
    MicroCompact,
    RunContext,
    Runner,
    strategies,
    tool,
    triggers,
)
from agentloop.codec import encode
from agentloop.context import Budget, Context, count_request
from agentloop.errors import ContextOverflowError, ContextTooLongError, ModelUnavailableError
from agentloop.events import Event, ModelCalled, Noted, Record, RunEndRecord, RunStartRecord
from agentloop.messages import Message, ToolCall, Usage
from agentloop.models import Answer, ModelPart, ModelRequest
from agentloop.results import RunResult
from agentloop.stores import InMemoryStore
from agentloop.strategies import Cut, Digest, Note, Strategy, replaced_by
from agentloop.stream import CompactionResult, CompactionStarted, StreamEvent
from agentloop.testing import calls
from agentloop.triggers import Fired, Trigger
from tests.kit import COUNTER, added, every_fact, histories, orderly

INSTRUCTIONS = "Work with care; SYSTEM-PROMPT-7."
ID = "s"

LEAST_REFUSED = 900
"""Smaller requests are not refused as too long: there would be nothing left to make smaller."""


def everything(context: Context, budget: Budget) -> Cut | None:
    """A strategy of somebody's own that knows nothing of what must stay."""
    return Cut(covers=((1, context.length),), at=context.length + 1) if context.length else None


def each_other(context: Context, budget: Budget) -> Cut | None:
    """One that tears exchanges apart."""
    odd = tuple((seq, seq) for seq in range(1, context.length + 1, 2))
    return Cut(covers=odd, at=1) if odd else None


STRATEGIES: dict[str, Strategy] = {
    "SlidingWindow": strategies.SlidingWindow(6),
    "TurnWindow": strategies.TurnWindow(1),
    "TokenWindow": strategies.TokenWindow(500),
    "RecursiveSummary": strategies.RecursiveSummary(keep=4, overlap=1),
    "RecursiveSummary with a way out": strategies.RecursiveSummary(keep=3, overlap=0, on_failure=Digest()),
    "KeepUserMessages": strategies.KeepUserMessages(200),
    "KeepRecentFraction": strategies.KeepRecentFraction(0.3),
    "KeepRecentTurns": strategies.KeepRecentTurns(1, share=0.2, least_tokens=100),
    "Blocks": strategies.Blocks(1, 1, max_summary_tokens=200, scope=strategies.Scope.fixed(2)),
    "Blocks by budget": strategies.Blocks(0, 2, scope=strategies.Scope.token_budget(600, 200)),
    "Tiered": strategies.Tiered(),
    "Reduce": strategies.Reduce(tool_output_max_lines=1, keep_turns=1),
    "ClearResults": strategies.ClearResults(keep_tokens=100, least_tokens=50),
    "then": strategies.then(strategies.TurnWindow(3), strategies.KeepRecentFraction(0.1), target=0.3),
    "first_of": strategies.first_of(strategies.TurnWindow(3), strategies.SlidingWindow(4)),
    "replaced_by a digest": replaced_by(strategies.SlidingWindow(6), Digest()),
    "replaced_by a note": replaced_by(strategies.KeepRecentFraction(0.2), Note()),
    "everything": everything,
    "each other": each_other,
}


def _every_third(context: Context, budget: Budget) -> Fired | None:
    return Fired("three more") if len(context.said) % 3 == 0 else None


def _later() -> float:
    """Later than any message: some time in the year 2100."""
    return 4_102_444_800.0


TRIGGERS: dict[str, Trigger] = {
    "TurnCount": triggers.TurnCount(2),
    "TokenCount": triggers.TokenCount(600),
    "WindowFraction": triggers.WindowFraction(0.4),
    "Headroom": triggers.Headroom(at=0.5, below=0.2),
    "Buffer": triggers.Buffer(share=0.6),
    "Overflow": triggers.Overflow(),
    "On message": triggers.On("message"),
    "On result": triggers.On("result"),
    "On compaction": triggers.On("compaction"),
    "On request": triggers.On("request"),
    "NeedsFollowUp": triggers.NeedsFollowUp(),
    "Every": triggers.Every(60, clock=_later),
    "Idle": triggers.Idle(60, clock=_later),
    "any_of": triggers.any_of(triggers.TurnCount(3), triggers.TokenCount(900)),
    "all_of": triggers.all_of(triggers.TokenCount(300), triggers.NeedsFollowUp()),
    "not_": triggers.not_(triggers.On("result")),
    "a function": _every_third,
}

SUMMARIES = ("good", "blank", "long", "error", "call", "cut", "down", "broken")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is drawn: a log, and how the world behaves."""

    history: tuple[Message, ...]
    seed: int
    window: int
    micro: MicroCompact | None
    summaries: tuple[str, ...]
    widths: tuple[int, ...]
    words: int
    counts: float
    before: str | None
    overflows: int
    names: bool


cases = st.builds(
    Case,
    history=st.one_of(orderly(), histories, orderly(most_turns=3)).map(tuple),
    seed=st.integers(0, 2**16),
    window=st.sampled_from([3_000, 2_000, 6_000]),
    micro=st.sampled_from([None, MicroCompact(), MicroCompact(keep_messages=2, min_gain_tokens=0)]),
    summaries=st.lists(st.sampled_from((*["good"] * 6, *SUMMARIES)), min_size=1, max_size=3).map(tuple),
    widths=st.lists(st.integers(1, 3), max_size=2).map(tuple),
    words=st.sampled_from([20, 200, 500]),
    counts=st.sampled_from([1.0, 1.3, 0.0]),
    before=st.sampled_from([None, None, "replaced_by a digest", "KeepRecentTurns", "RecursiveSummary"]),
    overflows=st.integers(1, 3),
    names=st.booleans(),
)


def events_of(case: Case) -> list[Event]:
    """The history as a log: in several runs, some of it said by others, with records that say nothing."""
    chance = random.Random(case.seed)
    events: list[Event] = [RunStartRecord(run_id="r0")]
    run = 0
    for message in case.history:
        if message.role == "user" and chance.random() < 0.3:
            events += [
                RunEndRecord(run_id=f"r{run}", status="answered"),
                RunStartRecord(run_id=f"r{run + 1}"),
            ]
            run += 1
        if chance.random() < 0.1:
            events.append(Noted(source="test", data={"at": len(events)}))
        if message.role == "assistant" and chance.random() < 0.2:
            events.append(ModelCalled(purpose="agent", model="other", counted=9, usage=Usage(input_tokens=9)))
        branch = "sub" if chance.random() < 0.05 else None
        event = replace(added(message), run_id=f"r{run}", branch=branch, keep=chance.random() < 0.05)
        events.append(event)
    return events


@tool
async def read(context: RunContext[list[str]], name: str, words: int = 1) -> str:
    """Read a file."""
    context.deps.append(name)
    return f"{name}: FACT-{len(context.deps):06x} " + "word\n" * words


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A request, its size in tokens, and how long the log was when it was sent."""

    request: ModelRequest
    length: int
    size: int


@dataclass(slots=True, kw_only=True)
class Scene:
    """One log in a store, a runner on it, and all that came of it."""

    case: Case
    strategy: Strategy
    trigger: Trigger
    overflows: int = 0
    refused: list[int] = field(default_factory=list)
    store: InMemoryStore = field(default_factory=InMemoryStore)
    sent: list[Sent] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    read_for: dict[int, list[str]] = field(default_factory=dict)
    watched: list[StreamEvent] = field(default_factory=list)
    done: list[CompactionResult] = field(default_factory=list)
    overflowed: ContextOverflowError | None = None
    ran: list[str] = field(default_factory=list)
    given: Iterator[Any] = field(default_factory=lambda: iter(()))
    before: list[str] = field(init=False)
    runner: Runner = field(init=False)

    def __post_init__(self) -> None:
        policy = Compaction(micro=self.case.micro, trigger=self.trigger, strategy=self.strategy)
        agent = Agent(Scripted(self), tools=[read], instructions=INSTRUCTIONS, compaction=policy)
        self.runner = Runner(agent, store=self.store, callbacks=[Watching(self)], transcripts=None)

    async def begin(self, events: Sequence[Event]) -> None:
        """Put these into the log."""
        await self.store.append(ID, events, expect=0)
        self.before = [encode(event) for event in events]

    async def records(self) -> list[Record]:
        """The log."""
        return list(await self.store.read(ID))

    async def run(self, prompt: str | None, *replies: Any) -> RunResult | None:
        """One run to its end; None where the context cannot be made to fit."""
        self.given = iter(replies)
        try:
            if prompt is None:
                return await self.runner.resume(ID, deps=self.ran)
            return await self.runner.run(prompt, session_id=ID, deps=self.ran)
        except ContextOverflowError as error:
            self.overflowed = error
            return None

    def reading(self) -> list[Any]:
        """Answers that read a few files, then end."""
        return [*(self.batch(width) for width in self.case.widths), "all read"]

    def batch(self, width: int) -> list[ToolCall]:
        """Calls that read so many files."""
        words = self.case.words
        return calls(*(("read", {"name": f"file {at}", "words": words}) for at in range(width)))


class Scripted:
    """Answers from the scene's script, says of it what it wants, and overflows while it is told to."""

    name = "scripted"
    max_output_tokens: int | None = None

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.window: int | None = scene.case.window

    async def stream(self, request: ModelRequest, /) -> AsyncGenerator[ModelPart, None]:
        size = count_request(request, COUNTER)
        length = len(await self.scene.store.read(ID))
        self.scene.sent.append(Sent(request=request, length=length, size=size))
        wanted = size + (request.max_output_tokens or 0)
        if wanted > self.scene.case.window:
            raise ContextTooLongError("too long", window=self.scene.case.window, tokens=wanted)
        yield self.summary(request, size) if request.purpose == "summary" else self.answer(size)

    def answer(self, size: int) -> Answer:
        """The next of the script, with as many tokens as this provider says."""
        scene = self.scene
        if scene.overflows and size > LEAST_REFUSED:
            scene.overflows -= 1
            scene.refused.append(size)
            known = int(size * 0.9) if scene.case.names else None
            raise ContextTooLongError("too long", window=known, tokens=size)
        reply = next(scene.given)
        message = Message.assistant(reply) if isinstance(reply, str) else Message.assistant(None, reply)
        counted = int(size * scene.case.counts)
        return Answer(message=message, usage=Usage(input_tokens=counted) if counted else None)

    def summary(self, request: ModelRequest, size: int) -> Answer:
        """A summary of the next kind; the last kind is repeated."""
        scene = self.scene
        kinds = scene.case.summaries
        kind = kinds[min(len(scene.asked), len(kinds) - 1)]
        scene.asked.append(kind)
        usage, finish, told = Usage(input_tokens=size), "stop", []
        match kind:
            case "blank":
                text = "  \n"
            case "error":
                text = "Error: 503 service unavailable"
            case "call":
                text, finish, told = "", "tool_calls", calls(read={"name": "more"})
            case "cut":
                text, finish = "Facts so far: they spoke of", "length"
            case "down":
                raise ModelUnavailableError("the summariser is down")
            case "broken":
                raise KeyError("summariser")
            case _:
                text = self.record(request, kind)
        return Answer(message=Message.assistant(text, told), usage=usage, finish=finish)

    def record(self, request: ModelRequest, kind: str) -> str:
        """What stands for what is read, or a longer text, which may still stand for one part of it."""
        material = str(request.messages[-1]["content"])
        self.scene.reads.append(material)
        if kind == "long":
            return "-".join(material.split())
        return f"{every_fact(request)} ({len(self.scene.asked)})"


class Watching(Callbacks):
    """Keeps what is shown of a scene."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    def on_event(self, event: StreamEvent) -> None:
        self.scene.watched.append(event)
        if isinstance(event, CompactionStarted):
            self.scene.reads.clear()

    async def after_compaction(self, result: CompactionResult) -> None:
        if result.status != "done":
            return
        self.scene.done.append(result)
        self.scene.read_for[result.seq or 0] = list(self.scene.reads)
