"""Callbacks at every point: called once, with what is about to go, and never able to end a run."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentloop.agent import Agent
from agentloop.callbacks import CallbackList, Callbacks, Focus, Replace, Veto
from agentloop.compaction import Compaction
from agentloop.compactions import CompactionRequest, CompactionResult
from agentloop.errors import ContextOverflowError
from agentloop.events import Compacted, MessageAdded
from agentloop.messages import Message
from agentloop.runner import Runner
from agentloop.stream import (
    CallbackFailed,
    CompactionEnded,
    RunEnded,
    StreamEvent,
    ToolEnded,
    ToolProgress,
    event_type,
)
from agentloop.testing import ScriptedModel, calls
from agentloop.threads import in_thread
from agentloop.tools import RunContext, tool
from tests.kit import every_fact, read, reading, until, watched


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
    assert all(log[each.seq] == each.message for each in seen)
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


def raising(point: str, raised: BaseException, *, later: bool) -> Callbacks:
    """A callback that raises at one point, as a plain function or, `later`, as a coroutine."""

    def now(self: Callbacks, argument: Any) -> None:
        raise raised

    async def awaited(self: Callbacks, argument: Any) -> None:
        raise raised

    callback: Callbacks = type("Wild", (Callbacks,), {point: awaited if later else now})()
    return callback


async def outcome_of(tmp_path: Path, callback: Callbacks) -> tuple[list[str], list[str]]:
    """How a run with one compaction and this callback went: what was reported, and the endings."""
    model = ScriptedModel(reading(15), window=8_000, summary=every_fact)
    events = await watched(runner_for(model, tmp_path, callback), "Read")
    failed = [event.error for event in events if isinstance(event, CallbackFailed)]
    ends = [str(event.status) for event in events if isinstance(event, CompactionEnded | RunEnded)]
    assert asyncio.all_tasks() == {asyncio.current_task()}
    return failed, ends


@pytest.mark.parametrize("later", [False, True], ids=["plain", "coroutine"])
@pytest.mark.parametrize("point", ["before_compaction", "after_compaction", "on_event"])
@pytest.mark.parametrize(
    "raised", [SystemExit("no"), GeneratorExit(), asyncio.CancelledError(), StopIteration()], ids=repr
)
async def test_l16_whatever_a_callback_raises_is_an_event(
    tmp_path: Path, point: str, raised: BaseException, later: bool
) -> None:
    failed, ends = await outcome_of(tmp_path, raising(point, raised, later=later))
    assert len(failed) == 1
    assert ends == ["done", "answered"]


async def test_l16_an_interrupt_in_a_callbacks_own_thread_is_an_event(tmp_path: Path) -> None:
    callback = raising("before_compaction", KeyboardInterrupt(), later=False)
    failed, ends = await outcome_of(tmp_path, callback)
    assert (failed, ends) == (["KeyboardInterrupt (without a text)"], ["done", "answered"])


async def test_an_interrupt_on_the_main_thread_passes() -> None:
    callbacks = CallbackList(
        callbacks=(raising("on_event", KeyboardInterrupt(), later=False),), limit_seconds=1, failed=_never
    )
    with pytest.raises(KeyboardInterrupt):
        await callbacks.on_event(StreamEvent())


async def _never(callback: str, point: str, error: str) -> None:
    raise AssertionError(error)


async def test_cancelling_a_run_inside_a_callback_is_the_runs_own(tmp_path: Path) -> None:
    reached = asyncio.Event()

    class Waiting(Callbacks):
        async def on_event(self, event: StreamEvent) -> None:
            if event_type(event) == "message_added":
                reached.set()
                await asyncio.Event().wait()

    task = asyncio.create_task(runner_for(ScriptedModel(["one"]), tmp_path, Waiting()).run("Go"))
    await until(reached)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == {asyncio.current_task()}


WRONG_REPLIES: list[tuple[Callable[[Any], Any], Any, str]] = [
    (Veto, None, "Veto takes a text, not NoneType"),
    (Focus, 5, "Focus takes a text, not int"),
    (Focus, "x" * 4_001, "Focus takes at most 4,000 characters, not 4,001"),
    (Replace, b"text", "Replace takes a text, not bytes"),
    (Replace, " \n", "Replace takes a summary that says something"),
]


@pytest.mark.parametrize(("kind", "value", "says"), WRONG_REPLIES)
async def test_a_wrong_reply_is_an_event_and_loses_nothing(
    tmp_path: Path, kind: Callable[[Any], Any], value: Any, says: str
) -> None:
    class Wrong(Callbacks):
        def before_compaction(self, request: CompactionRequest) -> Any:
            return kind(value)

    failed, ends = await outcome_of(tmp_path, Wrong())
    assert ends == ["done", "answered"]
    assert [says in error for error in failed] == [True]


async def test_l3_a_callback_that_changes_what_it_is_shown_changes_nothing_else(tmp_path: Path) -> None:
    class Scribbling(Callbacks):
        def before_compaction(self, request: CompactionRequest) -> None:
            for each in request.messages:
                if isinstance(each.message.content, tuple):
                    scribbled: Any = each.message.content[0]
                    scribbled["text"] = "SCRIBBLED"

    model = ScriptedModel(["one", "two", "three"], summary="what was")
    runner = runner_for(model, tmp_path, Scribbling())
    parts = Message(role="user", content=({"type": "text", "text": "ORIGINAL " + "b " * 600},))
    for prompt in ("a", parts, "c"):
        await runner.run(prompt, session_id="s")
    result = await runner.compact("s")
    assert result is not None
    assert result.status == "done"
    assert result.transcript is not None
    transcript = (tmp_path / result.transcript).read_text()
    for seen in (str(await runner.store.read("s")), str(model.requests[-1].messages), transcript):
        assert "ORIGINAL" in seen
        assert "SCRIBBLED" not in seen


class Slow(Callbacks):
    """Takes its time over progress, and notes when it is through with an event."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.seen: list[str] = []

    async def on_event(self, event: StreamEvent) -> None:
        if isinstance(event, ToolProgress):
            await self.release.wait()
        if isinstance(event, ToolEnded):
            self.release.set()
        self.seen.append(event_type(event))


async def test_progress_is_shown_before_the_run_ends_and_leaves_no_task(tmp_path: Path) -> None:
    async def work(context: RunContext[None]) -> str:
        """Work."""
        context.progress("one")
        context.progress("two")
        return "done"

    slow = Slow()
    agent = Agent(ScriptedModel([calls(work={}), "ok"]), tools=[work])
    runner = Runner(agent, transcripts=tmp_path, callbacks=[slow])
    shown = [event_type(event) for event in await watched(runner, "Go")]
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert slow.seen.count("tool_progress") == shown.count("tool_progress") == 2
    assert slow.seen[-1] == shown[-1] == "run_ended"


async def test_progress_after_the_run_is_dropped(tmp_path: Path) -> None:
    release = threading.Event()
    threads: list[threading.Thread] = []

    @tool(timeout_seconds=0.01)
    def stuck(context: RunContext[None]) -> None:
        """Work on and on."""
        threads.append(threading.current_thread())
        release.wait(30)
        context.progress("late")

    recorder = Recorder()
    agent = Agent(ScriptedModel([calls(stuck={}), "ok"]), tools=[stuck])
    await Runner(agent, transcripts=tmp_path, callbacks=[recorder]).run("Go", session_id="s")
    release.set()
    await in_thread(threads[0].join, 30)
    await asyncio.sleep(0)
    assert recorder.events[-1] == "run_ended"
    assert "tool_progress" not in recorder.events


async def test_cancelling_ends_what_callbacks_still_do_with_progress(tmp_path: Path) -> None:
    async def work(context: RunContext[None]) -> None:
        """Work on and on."""
        context.progress("one")
        await asyncio.Event().wait()

    started = asyncio.Event()

    class Endless(Callbacks):
        async def on_event(self, event: StreamEvent) -> None:
            if isinstance(event, ToolProgress):
                started.set()
                await asyncio.Event().wait()

    agent = Agent(ScriptedModel([calls(work={})]), tools=[work])
    runner = Runner(agent, transcripts=tmp_path, callbacks=[Endless()])
    task = asyncio.create_task(runner.run("Go", session_id="s"))
    await until(started)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == {asyncio.current_task()}


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
