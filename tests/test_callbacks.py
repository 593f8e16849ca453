"""Callbacks at every point: called once, with what is about to go, and never able to end a run."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from agentloop.agent import Agent
from agentloop.callbacks import (
    Callbacks,
    CompactionRequest,
    CompactionResult,
    Focus,
    Replace,
    Veto,
)
from agentloop.compaction import Compaction
from agentloop.errors import ContextOverflowError
from agentloop.events import Compacted, MessageAdded
from agentloop.runner import Runner
from agentloop.stream import CallbackFailed, CompactionEnded, RunEnded, StreamEvent, event_type
from agentloop.testing import ScriptedModel
from tests.kit import every_fact, read, reading, watched


class Recorder(Callbacks):
    """Notes every call; answers `before_compaction` with a given reply."""

    def __init__(self, reply: Any = None) -> None:
        self.reply = reply
        self.before: list[CompactionRequest] = []
        self.after: list[CompactionResult] = []
        self.events: list[str] = []

    def before_compaction(self, request: CompactionRequest) -> Any:
        self.before.append(request)
        return self.reply

    async def after_compaction(self, result: CompactionResult) -> None:
        self.after.append(result)

    def on_event(self, event: StreamEvent) -> None:
        self.events.append(event_type(event))


def runner_for(model: Any, tmp_path: Path, *callbacks: Callbacks, **options: Any) -> Runner:
    agent = Agent(model, tools=[read], compaction=Compaction(micro=None))
    return Runner(agent, transcripts=tmp_path, callbacks=callbacks, **options)


async def test_memory_sees_each_message_about_to_go_once_with_its_position(tmp_path: Path) -> None:
    model = ScriptedModel(reading(40), window=8_000, summary=every_fact)
    recorder = Recorder()
    runner = runner_for(model, tmp_path, recorder)
    result = await runner.run("Read", session_id="s")
    records = await runner.store.read("s")
    log = {r.seq: r.event.message for r in records if isinstance(r.event, MessageAdded)}
    seen = [each for request in recorder.before for each in request.messages]
    assert len(recorder.before) == len(recorder.after) == len(result.compactions) > 1
    assert len({each.seq for each in seen}) == len(seen)
    assert all(log[each.seq] is each.message for each in seen)
    assert [each.status for each in recorder.after] == ["done"] * len(recorder.after)
    assert recorder.events.count("compaction_started") == recorder.events.count("compaction_ended")


async def filled(runner: Runner) -> None:
    """A session with something to compact."""
    for prompt in ("a", "b " * 600, "c"):
        await runner.run(prompt, session_id="s")


async def test_a_veto_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    model = ScriptedModel(["one", "two", "three"])
    runner = runner_for(model, tmp_path, Recorder(Veto("not now")))
    await filled(runner)
    before = await runner.store.read("s")
    result = await runner.compact("s")
    assert result is not None
    assert (result.status, result.error) == ("vetoed", "not now")
    assert await runner.store.read("s") == before
    assert len(model.requests) == 3


async def test_focus_is_asked_of_the_summary(tmp_path: Path) -> None:
    model = ScriptedModel(["one", "two", "three"], summary="what was")
    runner = runner_for(model, tmp_path, Recorder(Focus("the colours")), Recorder(Focus("the sizes")))
    await filled(runner)
    await runner.compact("s", focus="the names")
    asked = str(model.requests[-1].messages[-1]["content"])
    assert "the names; the colours; the sizes" in asked


async def test_a_replacement_stands_without_asking_the_model(tmp_path: Path) -> None:
    model = ScriptedModel(["one", "two", "three"])
    runner = runner_for(model, tmp_path, Recorder(Replace("my own words")))
    await filled(runner)
    result = await runner.compact("s")
    assert result is not None
    assert result.status == "done"
    events = [r.event for r in await runner.store.read("s") if isinstance(r.event, Compacted)]
    assert "my own words" in events[0].replacement
    assert len(model.requests) == 3


class Raising(Callbacks):
    """Raises everywhere."""

    def before_compaction(self, request: CompactionRequest) -> None:
        raise ValueError("before")

    async def after_compaction(self, result: CompactionResult) -> None:
        raise ValueError("after")

    def on_event(self, event: StreamEvent) -> None:
        raise ValueError("event")


class Hanging(Callbacks):
    """Hangs before and after, in a thread and on the loop."""

    def __init__(self) -> None:
        self.released = threading.Event()

    def before_compaction(self, request: CompactionRequest) -> None:
        self.released.wait(30)

    async def after_compaction(self, result: CompactionResult) -> None:
        await asyncio.Event().wait()


class Confused(Callbacks):
    """Answers what is no reply."""

    def before_compaction(self, request: CompactionRequest) -> Any:
        return "yes"


@pytest.mark.parametrize(
    ("callback", "points"),
    [
        (Raising(), {"before_compaction", "after_compaction", "on_event"}),
        (Hanging(), {"before_compaction", "after_compaction"}),
        (Confused(), {"before_compaction"}),
    ],
    ids=["raising", "hanging", "confused"],
)
async def test_l16_a_callbacks_failure_is_an_event_and_loses_nothing(
    tmp_path: Path, callback: Callbacks, points: set[str]
) -> None:
    model = ScriptedModel(reading(15), window=8_000, summary=every_fact)
    runner = runner_for(model, tmp_path, callback, callback_seconds=0.1)
    events = await watched(runner, "Read")
    failed = [event for event in events if isinstance(event, CallbackFailed)]
    assert {event.point for event in failed} == points
    assert all(event.callback == type(callback).__name__ for event in failed)
    assert [event.status for event in events if isinstance(event, CompactionEnded)] == ["done"]
    assert isinstance(events[-1], RunEnded)
    assert events[-1].status == "answered"
    if isinstance(callback, Hanging):
        callback.released.set()


async def test_a_class_with_some_of_the_methods_will_do(tmp_path: Path) -> None:
    class Partial:
        def __init__(self) -> None:
            self.seen = 0

        def on_event(self, event: StreamEvent) -> None:
            self.seen += 1

    partial: Any = Partial()
    await runner_for(ScriptedModel(["one"]), tmp_path, partial).run("Go", session_id="s")
    assert partial.seen > 3


async def test_a_veto_that_leaves_no_room_is_named(tmp_path: Path) -> None:
    model = ScriptedModel([*(f"answer {at} " + "so " * 400 for at in range(30))], window=4_000)
    runner = runner_for(model, tmp_path, Recorder(Veto("I need it all")))
    with pytest.raises(ContextOverflowError, match=r"vetoed the compaction \(I need it all\)"):
        for turn in range(30):
            await runner.run(f"question {turn} " + "please " * 100, session_id="s")
