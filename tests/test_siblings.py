"""A batch of calls in one answer, of which each ends in a way of its own; what tools may raise and return."""

import asyncio
import gc
import textwrap
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import Agent, Callbacks, Compaction, Runner, tool
from agentloop._plumbing.aio import in_thread
from agentloop.codec import encode
from agentloop.events import Compacted, MessageRecord
from agentloop.providers.openai import OpenAIChat
from agentloop.stores import SQLiteStore
from agentloop.stream import (
    CompactionEnded,
    MessageAdded,
    RunEnded,
    StreamEvent,
    ToolEnded,
    ToolProgress,
)
from agentloop.testing import ScriptedModel, calls
from agentloop.tools import RunContext
from agentloop.tools.registry import DEFAULT_TIMEOUT_SECONDS, Tool
from tests.cli_kit import program
from tests.kit import watched
from tests.strict_bodies import Body
from tests.strict_provider import StrictProvider
from tests.strict_replies import Reply, calling

RAISED: dict[str, Callable[[], BaseException]] = {
    "ValueError: wrong": lambda: ValueError("wrong"),
    "KeyError": KeyError,
    "RuntimeError (without a text)": RuntimeError,
    "SystemExit": lambda: SystemExit(3),
    "BaseExceptionGroup": lambda: BaseExceptionGroup("two", [ValueError("a"), KeyboardInterrupt()]),
    "StopIteration": StopIteration,
    "MemoryError": MemoryError,
    "RecursionError": RecursionError,
    "": GeneratorExit,
    "ancelled": asyncio.CancelledError,
}
"""What may be raised, by what the answer says of it: the last two are told in two ways."""


def _circle() -> Any:
    circle: dict[str, Any] = {"name": "round"}
    circle["again"] = circle
    return circle


RETURNED: dict[str, Callable[[], Any]] = {
    "fine": lambda: "fine",
    "[1, 2]": lambda: {2, 1},
    "bytes": lambda: b"\xff\x00",
    "2026-01-02": lambda: datetime(2026, 1, 2, tzinfo=UTC),
    "NaN": lambda: float("nan"),
    "(no result)": lambda: None,
    "'again': {...}": _circle,
}
"""What may be returned, by what the answer says of it."""


class Odd:
    """One of the calls: how it ends, on the event loop or in a thread, and what the model is to be told."""

    def __init__(self, kind: str, says: str, *, later: bool) -> None:
        self.kind, self.says, self.later = kind, says, later
        self.status = {"returns": "ok", "hangs": "timeout"}.get(kind, "error")

    def tool(self, name: str, release: threading.Event) -> Tool | None:
        """The tool of that name which ends so; None for one that is not there."""

        def now() -> Any:
            """End."""
            if self.kind == "hangs":
                release.wait(120)
            return self._end()

        async def later() -> Any:
            """End."""
            await asyncio.sleep(0)
            if self.kind == "hangs":
                await asyncio.Event().wait()
            return self._end()

        if self.kind == "unknown":
            return None
        seconds = 0.02 if self.kind == "hangs" else DEFAULT_TIMEOUT_SECONDS
        return Tool.of(tool(name=name, timeout_seconds=seconds)(later if self.later else now))

    def _end(self) -> Any:
        if self.kind == "raises":
            raise RAISED[self.says]()
        return RETURNED[self.says]() if self.kind == "returns" else None


def odd(kind: str, says: st.SearchStrategy[str]) -> st.SearchStrategy[Odd]:
    """A call that ends so."""
    return st.builds(Odd, st.just(kind), says, later=st.booleans())


returns, raises = (
    odd("returns", st.sampled_from(list(RETURNED))),
    odd("raises", st.sampled_from(list(RAISED))),
)
the_seven = st.tuples(
    odd("returns", st.just("fine")),
    odd("raises", st.just("ValueError: wrong")),
    odd("raises", st.just("RuntimeError (without a text)")),
    odd("raises", st.just("ancelled")),
    odd("hangs", st.just("timed out after 0.02 s")),
    odd("returns", st.sampled_from(list(RETURNED)[1:])),
    odd("unknown", st.just("There is no tool")),
)
any_seven = st.tuples(*[returns | raises] * 7)
batches = (the_seven | any_seven).flatmap(lambda seven: st.permutations(seven))


@pytest.mark.deep
@given(batches)
@pytest.mark.many(6)
def test_l16_each_of_seven_siblings_gets_its_result_and_the_run_goes_on(seven: list[Odd]) -> None:
    asyncio.run(_seven_siblings(seven))
    gc.collect()


async def _seven_siblings(seven: list[Odd]) -> None:
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    release = threading.Event()
    batch = tuple(calling(f"tool_{at}", f"id_{at}") for at in range(7))
    tools = [made for at, each in enumerate(seven) if (made := each.tool(f"tool_{at}", release))]
    with StrictProvider([Reply(calls=batch), "went on"]) as provider:
        model = OpenAIChat("m", base_url=provider.url, window="32k")
        events = await watched(Runner(Agent(model, tools=tools), transcripts=None), "Go")
    release.set()
    assert provider.refusals == []
    told = [(each["tool_call_id"], each["content"]) for each in _results(provider.bodies[1])]
    assert [name for name, _ in told] == [f"id_{at}" for at in range(7)]
    for each, (_, text) in zip(seven, told, strict=True):
        assert each.says in text
    assert [event.output for event in events if isinstance(event, RunEnded)] == ["went on"]
    ended = {event.call_id: event.status for event in events if isinstance(event, ToolEnded)}
    assert ended == {f"id_{at}": each.status for at, each in enumerate(seven)}
    assert sum(isinstance(event, ToolEnded) for event in events) == 7
    assert asyncio.all_tasks() == {asyncio.current_task()}
    gc.collect()
    assert faults == []


def _results(body: Body) -> list[dict[str, Any]]:
    return [message for message in body["messages"] if message["role"] == "tool"]


async def test_the_time_limit_counts_for_generators_and_their_cleaning_up_is_done(tmp_path: Path) -> None:
    closed: list[str] = []

    async def endless() -> AsyncIterator[int]:
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            closed.append("endless")

    async def many() -> AsyncIterator[int]:
        try:
            for number in range(20_000):
                yield number
        finally:
            closed.append("many")

    tools = [Tool.of(tool(timeout_seconds=0.05)(endless)), Tool.of(many)]
    model = ScriptedModel([calls(endless={}, many={}), "done"])
    events = await watched(Runner(Agent(model, tools=tools), transcripts=tmp_path), "Go")
    assert {event.name: event.status for event in events if isinstance(event, ToolEnded)} == {
        "endless": "timeout",
        "many": "ok",
    }
    assert sorted(closed) == ["endless", "many"]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_tool_has_a_time_limit_and_its_end_says_what_to_do(tmp_path: Path) -> None:
    @tool(timeout_seconds=0.01)
    async def slow() -> None:
        """Take long."""
        await asyncio.Event().wait()

    assert Tool.of(_quick).timeout_seconds == DEFAULT_TIMEOUT_SECONDS == 120
    model = ScriptedModel([calls(slow={}), "done"])
    await Runner(Agent(model, tools=[slow]), transcripts=tmp_path).run("Go")
    text = str(model.requests[1].messages[-1]["content"])
    assert "slow timed out after 0.01 s" in text
    assert "ask for less at a time" in text


def _quick() -> str:
    """Be quick."""
    return "quick"


async def test_a_tool_that_outlives_its_time_never_speaks_into_a_later_call(tmp_path: Path) -> None:
    release, through = threading.Event(), threading.Event()

    @tool(timeout_seconds=0.02)
    def stuck(context: RunContext[None]) -> str:
        """Be stuck the first time."""
        release.wait(120)
        context.progress("late progress")
        through.set()
        return "late result"

    @tool
    async def second() -> str:
        """Let the first one go on, and see it through."""
        release.set()
        await in_thread(through.wait, 120)
        await asyncio.sleep(0)
        return "own result"

    model = ScriptedModel([calls(stuck={}), calls(second={}), "done"])
    events = await watched(Runner(Agent(model, tools=[stuck, second]), transcripts=tmp_path), "Go")
    assert through.is_set()
    assert not [event for event in events if isinstance(event, ToolProgress)]
    said = str([request.messages for request in model.requests])
    assert ("late" in said, "own result" in said) == (False, True)


# Stored first, told afterwards


class LookingUp(Callbacks):
    """Opens the store anew at each event, and says which records were missing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seen: Counter[str] = Counter()
        self.missing: list[StreamEvent] = []

    async def on_event(self, event: StreamEvent) -> None:
        stored = [record.event for record in await SQLiteStore(self.path).read("s")]
        match event:
            case MessageAdded():
                there = event.message in [each.message for each in stored if isinstance(each, MessageRecord)]
            case ToolEnded():
                ids = [each.message.tool_call_id for each in stored if isinstance(each, MessageRecord)]
                there = event.call_id in ids
            case CompactionEnded(status="done"):
                there = isinstance(stored[-1], Compacted)
            case _:
                return
        self.seen[type(event).__name__] += 1
        self.missing += [] if there else [event]

    async def after_compaction(self, result: Any) -> None:
        stored = [record.event for record in await SQLiteStore(self.path).read("s")]
        self.seen["after_compaction"] += isinstance(stored[-1], Compacted)


async def test_whoever_is_told_finds_it_in_the_store(tmp_path: Path) -> None:
    looking = LookingUp(tmp_path / "s.db")

    async def read(name: str) -> str:
        """Read."""
        return f"{name} " + "word " * 900

    script = [calls(*(("read", {"name": f"{at}_{n}"}) for n in range(2))) for at in range(4)]
    model = ScriptedModel([*script, calls(compact={}), "done"], window=8_000, summary="They read files.")
    agent = Agent(model, tools=[read], compaction=Compaction(micro=None))
    store = f"sqlite:///{tmp_path}/s.db"
    runner = Runner(agent, store=store, callbacks=[looking], transcripts=tmp_path / "t")
    result = await runner.run("Read", session_id="s")
    assert result.output == "done"
    assert looking.missing == []
    assert looking.seen["ToolEnded"] == 9
    done = [each for each in result.compactions if each.status == "done"]
    assert looking.seen["after_compaction"] == looking.seen["CompactionEnded"] == len(done) >= 1


KILLED = """
    import asyncio, os, sys
    from agentloop import Agent, Callbacks, Compaction, Runner
    from agentloop.stream import event_type
    from agentloop.testing.models import ScriptedModel, calls

    point, folder = sys.argv[1], sys.argv[2]

    class Killing(Callbacks):
        def on_event(self, event):
            role = getattr(getattr(event, "message", None), "role", "")
            if point in (event_type(event), f"{event_type(event)}:{role}"):
                os._exit(7)
        def after_compaction(self, result):
            if point == "after_compaction":
                os._exit(7)

    async def act(name: str) -> str:
        '''Leave a mark.'''
        with open(folder + "/marks", "a") as marks:
            marks.write(name + chr(10))
        return name + " done" + " word" * 900

    script = [calls(("act", {"name": f"n{at}"})) for at in range(6)]
    model = ScriptedModel([*script, "done"], window=8000, summary="They acted.")
    agent = Agent(model, tools=[act], compaction=Compaction(micro=None))
    runner = Runner(agent, store=f"sqlite:///{folder}/s.db", callbacks=[Killing()], transcripts=folder + "/t")
    asyncio.run(runner.run("Go", session_id="s"))
"""


@pytest.mark.parametrize(
    ("point", "kept"),
    [
        ("tool_ended", "tool"),
        ("compaction_ended", "compacted"),
        *(
            pytest.param(*each, marks=pytest.mark.deep)
            for each in (
                ("message_added:tool", "tool"),
                ("message_added:assistant", "assistant"),
                ("after_compaction", "compacted"),
            )
        ),
    ],
)
async def test_l7_a_callback_that_kills_the_process_loses_nothing(
    tmp_path: Path, point: str, kept: str
) -> None:
    with program(textwrap.dedent(KILLED), point, tmp_path, cwd=tmp_path) as child:
        child.communicate()
        assert child.returncode == 7
    store = SQLiteStore(tmp_path / "s.db")
    events = [record.event for record in await store.read("s")]
    kinds = [each.message.role if isinstance(each, MessageRecord) else "" for each in events]
    assert isinstance(events[-1], Compacted) if kept == "compacted" else kinds[-1] == kept, encode(events[-1])
    marks = (tmp_path / "marks").read_text().split() if (tmp_path / "marks").exists() else []
    assert kinds.count("tool") == len(marks)
