"""Callbacks at every point: called once, with what is about to go, and never able to end a run."""

import asyncio
import contextvars
import re
import signal
import threading
import warnings
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest

from agentloop import triggers
from agentloop._plumbing.aio import in_thread
from agentloop._plumbing.checks import shown
from agentloop.callbacks import Callbacks, Focus, Replace, Veto
from agentloop.compaction import Compaction, compact_messages
from agentloop.errors import ContextOverflowError, ContextTooLongError, UsageError
from agentloop.events import Compacted, MessageRecord, NotCompacted
from agentloop.events import RunEndRecord as EndOfRun
from agentloop.messages import Message
from agentloop.models import ModelPart, ModelRequest
from agentloop.run import Agent
from agentloop.runner import Runner
from agentloop.stores import InMemoryStore
from agentloop.strategies import MicroCompact
from agentloop.stream import (
    CallbackFailed,
    CompactionEnded,
    CompactionRequest,
    CompactionResult,
    CompactionStarted,
    RunEnded,
    StreamEvent,
    ToolEnded,
    ToolProgress,
    event_type,
)
from agentloop.testing import ScriptedModel, calls
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


class OnTheLoop(Recorder):
    """A recorder without a thread: what it does is done in the turn in which it is begun, never too late."""

    async def on_event(self, event: StreamEvent) -> None:
        super().on_event(event)


def runner_for(model: Any, tmp_path: Path, *callbacks: Callbacks, **options: Any) -> Runner:
    agent = Agent(model, tools=[read], compaction=Compaction(micro=None))
    return Runner(agent, transcripts=tmp_path, callbacks=callbacks, **options)


async def test_memory_sees_each_message_about_to_go_once_with_its_position(tmp_path: Path) -> None:
    model = ScriptedModel(reading(40), window=8_000, summary=every_fact)
    recorder = Recorder()
    runner = runner_for(model, tmp_path, recorder)
    result = await runner.run("Read", session_id="s")
    records = await runner.store.read("s")
    log = {r.seq: r.event.message for r in records if isinstance(r.event, MessageRecord)}
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


@pytest.mark.parametrize("reply", [None, Veto("not now")])
async def test_callback_event_and_caller_are_given_the_same_result(tmp_path: Path, reply: Any) -> None:
    recorder, ended = Recorder(reply), list[CompactionEnded]()
    model = ScriptedModel(["one", "two", "three"], summary="what was")

    class Listener(Callbacks):
        def on_event(self, event: StreamEvent) -> None:
            if isinstance(event, CompactionEnded):
                ended.append(event)

    runner = runner_for(model, tmp_path, recorder, Listener())
    await filled(runner)
    result = await runner.compact("s")
    assert recorder.after == [result]
    assert [(each.compaction_id, each.duration_seconds) for each in ended] == [
        (result.compaction_id, result.duration_seconds)
    ]


async def test_a_veto_is_noted_and_hides_nothing(tmp_path: Path) -> None:
    model = ScriptedModel(["one", "two", "three"])
    runner = runner_for(model, tmp_path, Recorder(Veto("not now")))
    await filled(runner)
    before = await runner.store.read("s")
    result = await runner.compact("s")
    assert result is not None
    assert (result.status, result.error) == ("vetoed", "not now")
    *records, noted = await runner.store.read("s")
    assert records == list(before)
    assert isinstance(noted.event, NotCompacted)
    assert (noted.event.status, noted.event.error) == ("vetoed", "not now")
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
        self.released.wait(120)

    async def after_compaction(self, result: CompactionResult) -> None:
        await asyncio.Event().wait()


class Confused(Callbacks):
    """Answers what is no reply."""

    def before_compaction(self, request: CompactionRequest) -> Any:
        return "yes"


@pytest.mark.parametrize(
    ("callback", "seconds", "points"),
    [
        (Raising(), 30.0, {"before_compaction", "after_compaction", "on_event"}),
        (Hanging(), 0.1, {"before_compaction", "after_compaction"}),
        (Confused(), 30.0, {"before_compaction"}),
    ],
    ids=["raising", "hanging", "confused"],
)
async def test_l16_a_callbacks_failure_is_an_event_and_loses_nothing(
    tmp_path: Path, callback: Callbacks, seconds: float, points: set[str]
) -> None:
    model = ScriptedModel(reading(15), window=8_000, summary=every_fact)
    runner = runner_for(model, tmp_path, callback, callback_seconds=seconds)
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
    "raised",
    [SystemExit("no"), GeneratorExit(), asyncio.CancelledError(), StopIteration()],
    ids=repr,
)
async def test_l16_whatever_a_callback_raises_is_an_event(
    tmp_path: Path, point: str, raised: BaseException, later: bool
) -> None:
    failed, ends = await outcome_of(tmp_path, raising(point, raised, later=later))
    assert len(failed) == 1
    assert ends == ["done", "answered"]


def by_asyncio() -> None:
    """asyncio answers the first Ctrl-C by cancelling; the second one is raised."""
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)


def by_default() -> None:
    """Without a handler it is raised at once."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("press", [by_asyncio, by_default])
def test_a_real_ctrl_c_in_a_callback_ends_the_program(tmp_path: Path, press: Callable[[], None]) -> None:
    class Pressing(Callbacks):
        async def on_event(self, event: StreamEvent) -> None:
            press()

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(runner_for(ScriptedModel(["one"]), tmp_path, Pressing()).run("Go"))


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
    entered, release = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    @tool(timeout_seconds=0.01)
    def stuck(context: RunContext[None]) -> None:
        """Work on and on."""
        threads.append(threading.current_thread())
        entered.set()
        release.wait(120)
        context.progress("late")

    recorder = Recorder()
    agent = Agent(ScriptedModel([calls(stuck={}), "ok"]), tools=[stuck])
    await Runner(agent, transcripts=tmp_path, callbacks=[recorder]).run("Go", session_id="s")
    assert await in_thread(entered.wait, 120)
    release.set()
    await in_thread(threads[0].join, 120)
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


class StuckOnEvents(Callbacks):
    """Hangs in its first event, as a plain function in a thread or as a coroutine on the loop."""

    def __init__(self) -> None:
        self.released, self.reached = threading.Event(), threading.Event()
        self.events: list[str] = []
        self.compactions: list[str] = []

    async def before_compaction(self, request: CompactionRequest) -> None:
        self.compactions.append("before")

    async def after_compaction(self, result: CompactionResult) -> None:
        self.compactions.append("after")


class StuckInAThread(StuckOnEvents):
    def on_event(self, event: StreamEvent) -> None:
        self.events.append(event_type(event))
        self.reached.set()
        self.released.wait(120)


class StuckOnTheLoop(StuckOnEvents):
    async def on_event(self, event: StreamEvent) -> None:
        self.events.append(event_type(event))
        self.reached.set()
        await asyncio.Event().wait()


@pytest.mark.parametrize("kind", [StuckInAThread, StuckOnTheLoop])
async def test_l16_a_listener_that_hangs_is_cut_off_and_told_once(
    tmp_path: Path, kind: type[StuckOnEvents]
) -> None:
    stuck, recorder = kind(), OnTheLoop()
    model = ScriptedModel(reading(15), window=8_000, summary=every_fact)
    events = await watched(runner_for(model, tmp_path, stuck, recorder, callback_seconds=0.1), "Read")
    failed = [event for event in events if isinstance(event, CallbackFailed)]
    assert [(each.callback, each.point) for each in failed] == [(kind.__name__, "on_event")]
    assert "took longer than 0.1 s: it is shown no more events of this run" in failed[0].error
    assert stuck.reached.wait(120)
    assert stuck.events == ["run_started"]
    assert stuck.compactions == ["before", "after"]
    assert [event_type(event) for event in events if event not in failed] == recorder.events
    assert asyncio.all_tasks() == {asyncio.current_task()}
    stuck.released.set()
    assert listening() == []


def listening() -> list[threading.Thread]:
    """The threads that listen to events still, once those that are to end have had the time for it."""
    threads = [each for each in threading.enumerate() if each.name == "agentloop-callback"]
    for each in threads:
        each.join(20)
    return [each for each in threads if each.is_alive()]


async def test_a_plain_listener_hears_all_in_order_in_one_thread_that_ends_with_the_run(
    tmp_path: Path,
) -> None:
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="")
    heard: list[tuple[str, int, str]] = []

    class Plain(Callbacks):
        def on_event(self, event: StreamEvent) -> None:
            heard.append((event_type(event), threading.get_ident(), name.get()))

    def tell(context: RunContext[None]) -> str:
        """Tell."""
        for _ in range(20):
            context.progress("on it")
        return "told"

    name.set("of the caller")
    agent = Agent(ScriptedModel([calls(tell={}), "done"]), tools=[tell])
    events = await watched(Runner(agent, transcripts=tmp_path, callbacks=[Plain(), Recorder()]), "Go")
    assert [kind for kind, _, _ in heard] == [event_type(event) for event in events]
    assert len({thread for _, thread, _ in heard} - {threading.get_ident()}) == 1
    assert {whose for _, _, whose in heard} == {"of the caller"}
    assert listening() == []


@pytest.mark.parametrize("callback_seconds", [0.1, 30.0])
async def test_cancelling_in_a_plain_listener_that_hangs_ends_the_run(
    tmp_path: Path, callback_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentloop.callbacks.CANCEL_GRACE_SECONDS", 0.1)
    stuck, store = StuckInAThread(), InMemoryStore()
    runner = runner_for(
        ScriptedModel(["one"]), tmp_path, stuck, store=store, callback_seconds=callback_seconds
    )
    task = asyncio.create_task(runner.run("Go", session_id="s"))
    assert await in_thread(stuck.reached.wait, 120)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == {asyncio.current_task()}
    ended = [record.event.status for record in await store.read("s") if isinstance(record.event, EndOfRun)]
    assert ended == ["interrupted"]
    stuck.released.set()
    assert listening() == []


PATHS = ("threshold", "tool", "manual", "overflow", "idle")


async def compacted_by(
    path: str, tmp_path: Path, *callbacks: Callbacks, seconds: float = 30.0
) -> tuple[Runner, list[StreamEvent]]:
    """A session with one compaction that came about in this way, its runner, and what was shown of it."""
    shown: list[StreamEvent] = []

    class Showing(Callbacks):
        async def on_event(self, event: StreamEvent) -> None:
            shown.append(event)

    turns = 10 if path == "threshold" else 8
    said = [f"answer {at} " + "so " * 300 for at in range(turns)]
    later = triggers.Idle(60, clock=lambda: 4_102_444_800.0)
    trigger = later if path == "idle" else triggers.WindowFraction(0.8)
    model = Overflowing([*said, *([calls(compact={})] if path == "tool" else []), "done"], window=8_000)
    agent = Agent(model, compaction=Compaction(micro=None, trigger=trigger))
    watching = (*callbacks, Showing())
    filling = Runner(Agent(model, compaction=None), store=InMemoryStore(), transcripts=tmp_path)
    runner = Runner(
        agent, store=filling.store, transcripts=tmp_path, callbacks=watching, callback_seconds=seconds
    )
    for at in range(turns):
        await filling.run(f"question {at} " + "please " * 350, session_id="s")
    if path == "manual":
        await runner.compact("s")
    else:
        model.refusals = int(path == "overflow")
        await runner.run("go on", session_id="s")
    return runner, shown


class Overflowing(ScriptedModel):
    """Says that a request is too long as often as it is told to."""

    refusals = 0

    async def stream(self, request: ModelRequest, /) -> AsyncGenerator[ModelPart, None]:
        if self.refusals:
            self.refusals -= 1
            raise ContextTooLongError("too long", window=6_000, tokens=7_000)
        async for part in super().stream(request):
            yield part


@pytest.mark.parametrize("path", PATHS)
async def test_memory_sees_all_that_goes_once_on_every_path(tmp_path: Path, path: str) -> None:
    memory = Recorder()
    runner, shown = await compacted_by(path, tmp_path, memory)
    log = await runner.store.read("s")
    done = [(record.seq, record.event) for record in log if isinstance(record.event, Compacted)]
    assert [request.reason for request in memory.before] == [path] * len(done) != []
    assert [result.status for result in memory.after] == ["done"] * len(done)
    hidden = {seq for _, event in done for first, last in event.covers for seq in range(first, last + 1)}
    messages = {r.seq: r.event.message for r in log if isinstance(r.event, MessageRecord) and r.seq in hidden}
    assert {each.seq: each.message for request in memory.before for each in request.messages} == messages
    assert sum(len(request.messages) for request in memory.before) == len(messages)
    assert [event.reason for event in shown if isinstance(event, CompactionStarted)] == [path] * len(done)


class Silent(Hanging):
    """Hangs at every point, each in a way of its own."""

    def on_event(self, event: StreamEvent) -> None:
        self.released.wait(120)


@pytest.mark.parametrize("kind", [Raising, Silent])
@pytest.mark.parametrize("path", PATHS)
async def test_l16_a_callback_that_fails_everywhere_loses_no_compaction_on_any_path(
    tmp_path: Path, path: str, kind: type[Callbacks]
) -> None:
    callback = kind()
    seconds = 0.1 if kind is Silent else 30.0
    runner, shown = await compacted_by(path, tmp_path, callback, seconds=seconds)
    log = await runner.store.read("s")
    assert any(isinstance(record.event, Compacted) for record in log)
    failed = Counter(event.point for event in shown if isinstance(event, CallbackFailed))
    ended = [event for event in shown if isinstance(event, CompactionEnded)]
    assert [event.status for event in ended] == ["done"] * len(ended) != []
    assert failed == {"before_compaction": len(ended), "after_compaction": len(ended)}
    if isinstance(callback, Silent):
        callback.released.set()
    assert listening() == []


async def test_layer_one_asks_no_callback_and_is_told_of_by_its_event(tmp_path: Path) -> None:
    watching = Recorder(Veto("no"))
    model = ScriptedModel(reading(9, words=900))
    policy = Compaction(micro=MicroCompact(min_gain_tokens=0))
    runner = Runner(Agent(model, tools=[read], compaction=policy), transcripts=tmp_path, callbacks=[watching])
    await watched(runner, "Read.")
    assert "results_cleared" in watching.events
    assert watching.before == watching.after == []


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("later", [False, True], ids=["plain", "coroutine"])
async def test_the_line_is_named_too_of_what_would_end_the_program(tmp_path: Path, later: bool) -> None:
    callback = raising("on_event", SystemExit(3), later=later)
    result = await runner_for(ScriptedModel(["one"]), tmp_path, callback).run("Go")
    (failed,) = result.callback_failures
    assert failed.where.startswith(f"{__file__}:")


async def test_what_failed_stands_in_the_result_and_is_an_event_a_line_and_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runner = runner_for(ScriptedModel(["one", "two"]), tmp_path, Raising())
    with pytest.warns(RuntimeWarning) as warned:
        result = await runner.run("Go", session_id="s")
    shown = [(each.callback, each.point, each.error) for each in result.callback_failures]
    assert shown == [("Raising", "on_event", "ValueError: event")]
    (failed,) = result.callback_failures
    file, _, line = failed.where.rpartition(":")
    assert (file, Path(file).read_text().splitlines()[int(line) - 1].strip()) == (
        __file__,
        'raise ValueError("event")',
    )
    says = f"the callback Raising failed in on_event at {failed.where}: ValueError: event"
    assert [str(each.message) for each in warned] == [says]
    lines = [record for record in caplog.records if "callback_failed" in record.getMessage()]
    assert [record.levelname for record in lines] == ["WARNING"]
    with pytest.warns(RuntimeWarning):
        events = await watched(runner, "Go on", session_id="s")
    told = [event for event in events if isinstance(event, CallbackFailed)]
    assert [(each.point, each.error) for each in told] == [("on_event", "ValueError: event")]


async def test_a_compaction_of_a_run_names_the_callbacks_that_failed_in_it(tmp_path: Path) -> None:
    model = ScriptedModel(["word " * 900] * 9, window=4_000, summary="What was said before.")
    runner = runner_for(model, tmp_path, Raising())
    with pytest.warns(RuntimeWarning):
        results = [await runner.run(f"Go {n}. " + "word " * 400, session_id="s") for n in range(4)]
    compacted = next(each for each in results if each.compactions)
    assert compacted.compactions[0].status == "done"
    points = {each.point for each in compacted.callback_failures}
    assert points == {"before_compaction", "after_compaction", "on_event"}
    assert {each.session_id for each in compacted.callback_failures} == {"s"}


async def test_a_failed_callback_ends_no_run_where_warnings_are_errors(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = await runner_for(ScriptedModel(["one"]), tmp_path, Raising()).run("Go")
    assert (result.output, len(result.callback_failures)) == ("one", 1)


class Nothing(Callbacks):
    """Overrides nothing."""

    def helper(self) -> None:
        """Nobody calls it."""


class Nearly(Callbacks):
    """Has a method by nearly the right name, beside one by the right one."""

    def before_compact(self, request: CompactionRequest) -> None:
        """Nobody calls it."""

    def on_event(self, event: StreamEvent) -> None:
        """Looks away."""


class Heir(Raising):
    """Inherits the right one, and has one by nearly its name."""

    def before_compact(self, request: CompactionRequest) -> None:
        """Nobody calls it."""


class TooFew(Callbacks):
    """Takes nothing."""

    def on_event(self) -> None:  # type: ignore[override]
        """Cannot be called with an event."""


class TooMany(Callbacks):
    """Takes one too many."""

    async def before_compaction(self, request: CompactionRequest, more: int) -> None:  # type: ignore[override]
        """Cannot be called with a request alone."""


class Camel:
    """No subclass, and named as elsewhere."""

    def onEvent(self, event: StreamEvent) -> None:  # noqa: N802
        """Nobody calls it."""


class Both(Callbacks):
    """A helper that is nearly called like the method that it helps."""

    def on_event(self, event: StreamEvent) -> None:
        self.on_events([event])

    def on_events(self, events: list[StreamEvent]) -> None:
        """Looks away."""


@pytest.mark.whole
@pytest.mark.parametrize(
    ("callback", "says"),
    [
        (Callbacks(), "Callbacks overrides none of before_model, after_model, before_tool"),
        (Nothing(), "Nothing overrides none of before_model, after_model, before_tool"),
        (Nearly(), "a method 'before_compact', which nobody calls: did you mean 'before_compaction'?"),
        (Heir(), "a method 'before_compact', which nobody calls: did you mean 'before_compaction'?"),
        (TooFew(), "TooFew.on_event() -> None must take one argument: write def on_event(self, event)"),
        (TooMany(), "must take one argument: write def before_compaction(self, request)"),
        (
            Callbacks(after_tool=lambda call: None),
            "the function for after_tool must take two arguments, (call, result), not (call)",
        ),
        (Camel(), "Camel has a method 'onEvent', which nobody calls: did you mean 'on_event'?"),
        (object(), "callbacks must be a list of Callbacks objects"),
    ],
)
def test_a_callback_that_nobody_would_call_is_refused(callback: Any, says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        Runner(Agent(ScriptedModel([])), callbacks=[callback])
    with pytest.raises(UsageError, match=re.escape(says)):
        compact_messages([{"role": "user", "content": "hi"}], window="8k", callbacks=[callback])


async def test_a_helper_beside_the_method_itself_is_no_slip(tmp_path: Path) -> None:
    assert (await runner_for(ScriptedModel(["one"]), tmp_path, Both()).run("Go")).callback_failures == ()


@pytest.mark.parametrize("reply", ["keep the ids", True, Veto, {"focus": "ids"}], ids=str)
async def test_what_is_no_reply_is_named_with_what_may_be_one(reply: Any, tmp_path: Path) -> None:
    class Wrong(Callbacks):
        def before_compaction(self, request: CompactionRequest) -> Any:
            return reply

    failed, ends = await outcome_of(tmp_path, Wrong())
    assert set(failed) == {f"returned {shown(reply)}: return Veto(…), Focus(…), Replace(…) or None"}
    assert ends[-1] == "answered"
