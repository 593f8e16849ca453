"""The runner without await."""

import asyncio
import gc
import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentloop.callbacks import Callbacks
from agentloop.errors import AgentLoopError, ContextOverflowError, UsageError
from agentloop.events import MessageRecord, RunEndRecord
from agentloop.messages import Message
from agentloop.models import ModelRequest
from agentloop.run import Agent
from agentloop.stores import SQLiteStore
from agentloop.stream import CallbackFailed, StreamEvent, event_type
from agentloop.sync import SyncRunner
from agentloop.testing import ScriptedModel, calls


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def runner_for(tmp_path: Path, *answers: object) -> SyncRunner:
    model = ScriptedModel(answers, window=8_000)  # type: ignore[arg-type]
    return SyncRunner(
        Agent(model, tools=[add]), store=f"sqlite:///{tmp_path}/s.db", transcripts=tmp_path / "t"
    )


def test_everything_works_without_await(tmp_path: Path) -> None:
    with runner_for(tmp_path, calls(add={"a": 1, "b": 2}), "3", "x", "y") as runner:
        assert runner.run("Add", session_id="s").output == "3"
        kinds = [event_type(event) for event in runner.stream("b " * 600, session_id="s")]
        assert (kinds[0], kinds[-1]) == ("run_started", "run_ended")
        assert runner.run("c", session_id="s").output == "y"
        assert runner.preview("s") is not None
        result = runner.compact("s")
        assert result is not None
        assert result.status == "done"
        assert runner.undo("s") == result.seq
        assert runner.status("s").window == 8_000
        assert runner.resume("s").output == "y"
    names = {thread.name for thread in threading.enumerate()}
    assert "agentloop-portal" not in names


def test_errors_come_through_as_they_are(tmp_path: Path) -> None:
    with runner_for(tmp_path) as runner, pytest.raises(ContextOverflowError):
        runner.run("word " * 20_000, session_id="s")


def test_leaving_a_stream_early_ends_its_run(tmp_path: Path) -> None:
    with runner_for(tmp_path, calls(add={"a": 1, "b": 2}), "3") as runner:
        for event in runner.stream("Add", session_id="s"):
            if event_type(event) == "tool_started":
                break
        assert runner.resume("s").status == "answered"


class Elsewhere:
    """Work in a thread of its own, and what came of it."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.outcome: Any = None
        self._work = work
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.outcome = self._work()
        except AgentLoopError as error:
            self.outcome = error

    def ended(self) -> Any:
        self._thread.join(20)
        assert not self._thread.is_alive()
        return self.outcome


def test_an_interrupt_ends_its_own_run_and_waits_for_no_other(tmp_path: Path) -> None:
    started, release = threading.Event(), threading.Event()

    def wait() -> str:
        """Wait for the other."""
        started.set()
        release.wait(120)
        return "waited"

    def interrupt() -> None:
        """Press Ctrl-C."""
        os.kill(os.getpid(), signal.SIGINT)
        release.wait(120)

    model = ScriptedModel([calls(wait={}), calls(interrupt={}), "the other's answer", "again"])
    agent = Agent(model, tools=[wait, interrupt])
    with SyncRunner(agent, store=f"sqlite:///{tmp_path}/s.db", transcripts=tmp_path) as runner:
        other = Elsewhere(lambda: runner.run("a", session_id="a").output)
        assert started.wait(120)
        with pytest.raises(KeyboardInterrupt):
            runner.run("b", session_id="b")
        assert not release.is_set()
        release.set()
        assert other.ended() == "the other's answer"
        assert runner.resume("b").output == "again"


def test_closing_ends_what_other_threads_run(tmp_path: Path) -> None:
    started = threading.Event()

    async def hang() -> None:
        """Never end."""
        started.set()
        await asyncio.Event().wait()

    store = SQLiteStore(tmp_path / "s.db")
    runner = SyncRunner(Agent(ScriptedModel([calls(hang={})]), tools=[hang]), store=store, transcripts=None)
    other = Elsewhere(lambda: runner.run("a", session_id="a"))
    assert started.wait(120)
    runner.close()
    error = other.ended()
    assert type(error) is AgentLoopError
    assert "closing" in str(error)
    last = asyncio.run(SQLiteStore(tmp_path / "s.db").read("a"))[-1].event
    assert isinstance(last, RunEndRecord)
    assert last.status == "interrupted"


def test_a_closed_runner_says_so(tmp_path: Path) -> None:
    runner = runner_for(tmp_path, "one", "two")
    events = runner.stream("Go", session_id="s")
    assert event_type(next(events)) == "run_started"
    runner.close()
    runner.close()
    with pytest.raises(UsageError, match="this SyncRunner is closed"):
        runner.run("Go")
    with pytest.raises(UsageError, match="this SyncRunner is closed"):
        next(events)


def add_or_collect(request: ModelRequest) -> Message | str:
    text = str(request.messages[-1]["content"])
    return calls(add={"a": 1, "b": 2}) if text == "Add" else calls(collect={}) if text == "Go" else "done"


def test_a_stream_that_is_collected_on_the_runners_own_loop_ends_its_run(tmp_path: Path) -> None:
    """Which thread collects a cycle is chance."""
    left: list[object] = []

    async def collect() -> str:
        """Let go of the stream."""
        left.clear()
        return "collected"

    agent = Agent(ScriptedModel(itertools.repeat(add_or_collect)), tools=[add, collect])
    runner = SyncRunner(agent, store=f"sqlite:///{tmp_path}/s.db", transcripts=None)
    events = runner.stream("Add", session_id="s")
    while event_type(next(events)) != "tool_started":
        pass
    left.append(events)
    del events
    assert Elsewhere(lambda: runner.run("Go", session_id="other").output).ended() == "done"
    assert Elsewhere(lambda: runner.resume("s").status).ended() == "answered"
    runner.close()


class Cycle:
    """Holds itself, so that a collection alone lets go of what it reads."""

    def __init__(self, reads: object) -> None:
        self.held = (self, reads)


def test_a_stream_in_a_cycle_is_closed_once_by_a_collection_on_the_runners_own_loop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def collect() -> str:
        """Collect what is dropped."""
        gc.collect()
        return "collected"

    agent = Agent(ScriptedModel(itertools.repeat(add_or_collect)), tools=[add, collect])
    with SyncRunner(agent, store=f"sqlite:///{tmp_path}/s.db", transcripts=None) as runner:
        events = runner.stream("Add", session_id="s")
        while event_type(next(events)) != "tool_started":
            pass
        gc.disable()
        try:
            Cycle(events)
            del events
            assert Elsewhere(lambda: runner.run("Go", session_id="other").output).ended() == "done"
        finally:
            gc.enable()
        assert runner.resume("s").status == "answered"
    assert [record.getMessage() for record in caplog.records] == []


def test_a_stream_may_be_collected_while_a_store_is_read_that_its_run_waits_for(tmp_path: Path) -> None:
    script = """
import asyncio, gc
from agentloop import Agent, SyncRunner
from agentloop.events import MessageRecord
from agentloop.messages import Message
from agentloop.stores import InMemoryStore
from agentloop.stream import event_type
from agentloop.testing import ScriptedModel, calls

class Collecting(Message):
    def __getattribute__(self, name):
        if name == "content":
            gc.collect()
        return super().__getattribute__(name)

class Cycle:
    def __init__(self, reads):
        self.held = (self, reads)

async def hang() -> str:
    "Never end."
    await asyncio.Event().wait()

gc.disable()
store = InMemoryStore()
said = MessageRecord(message=Collecting(role="user", content="Hello"), tokens=5)
asyncio.run(store.append("other", [said], expect=0))
with SyncRunner(Agent(ScriptedModel([calls(hang={}), "done"]), tools=[hang]), store=store) as runner:
    events = runner.stream("Go", session_id="s")
    assert any(event_type(event) == "tool_started" for event in events)
    Cycle(events)
    del events
    assert len(asyncio.run(store.read("other"))) == 1
    assert runner.resume("s").output == "done"
"""
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_a_stream_may_be_collected_in_the_midst_of_any_call_of_its_runner() -> None:
    runner = SyncRunner(Agent(ScriptedModel(["a"] * 200)), transcripts=None)
    runner.run("Go", session_id="other")

    def calls_made(let_go_at: int) -> int:
        left, number = [runner.stream("Go", session_id="s")], 0
        next(left[0])

        def count(_: object, what: str, __: object) -> None:
            nonlocal number
            number += what == "call"
            if number == let_go_at:
                left.clear()

        sys.setprofile(count)
        try:
            runner.status("other")
        finally:
            sys.setprofile(None)
        return number

    count = Elsewhere(lambda: calls_made(0)).ended()
    for position in range(1, count):
        assert Elsewhere(lambda at=position: calls_made(at)).ended() > 0  # type: ignore[misc]
        assert Elsewhere(lambda: runner.status("other")).ended() is not None
    runner.close()


@pytest.mark.deep
def test_a_runner_works_on_both_sides_of_a_fork(tmp_path: Path) -> None:
    script = """
import os, signal, sys
from agentloop import Agent, SyncRunner, UsageError
from agentloop.testing.models import ScriptedModel
signal.alarm(20)
def refused(events):
    try:
        return next(events)
    except UsageError as error:
        assert list(events) == []
        return str(error)
used, unused = (SyncRunner(Agent(ScriptedModel([*"abcdef"])), store=sys.argv[1]) for _ in range(2))
assert used.run("one", session_id="used").output == "a"
left, lost, read = (used.stream("two", session_id=name) for name in ("left", "lost", "read"))
for events in (left, lost, read):
    next(events)
pid = os.fork()
if not pid:
    try:
        left.close()
        assert "before the process forked" in refused(read)
        assert used.run("three", session_id="used").output in "bcdef"
        assert "before the process forked" in refused(lost)
        assert unused.run("four", session_id="unused").output == "a"
        used.close()
    except BaseException as error:
        print(repr(error), flush=True)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
for events in (left, lost, read):
    assert [type(event).__name__ for event in events][-1] == "RunEnded"
assert used.run("five", session_id="used").output in "bcdef"
used.close()
"""
    store = f"sqlite:///{tmp_path}/s.db"
    ran = subprocess.run(
        [sys.executable, "-c", script, store], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    with SyncRunner(Agent(ScriptedModel([])), store=store) as runner:
        said = [record.event for record in runner.events("used")]
        texts = [event.message.text for event in said if isinstance(event, MessageRecord)]
        assert texts[::2] == ["one", "three", "five"]
        assert runner.resume("left").status == "answered"


def test_leaving_a_stream_after_closing_is_quiet(tmp_path: Path) -> None:
    with runner_for(tmp_path, "one") as runner:
        events = runner.stream("Go", session_id="s")
        next(events)
    events.close()  # type: ignore[attr-defined]
    with runner_for(tmp_path, "one") as runner:
        assert runner.resume("s").output == "one"


class Asking(Callbacks):
    """Asks the very runner that waits for it."""

    def __init__(self) -> None:
        self.ask: Callable[[], object] = list
        self.failed: list[str] = []

    async def on_event(self, event: StreamEvent) -> None:
        if isinstance(event, CallbackFailed):
            self.failed.append(event.error)
        elif event_type(event) == "run_started":
            self.ask()


@pytest.mark.parametrize("what", ["status", "close", "stream"])
def test_a_call_from_its_own_loop_is_refused(tmp_path: Path, what: str) -> None:
    asking = Asking()
    agent = Agent(ScriptedModel(["one"]))
    runner = SyncRunner(agent, callbacks=[asking], transcripts=None)
    asks = {
        "status": lambda: runner.status("s"),
        "close": runner.close,
        "stream": lambda: list(runner.stream("Go")),
    }
    asking.ask = asks[what]
    events = Elsewhere(lambda: list(runner.stream("Go", session_id="s"))).ended()
    failed = [event.error for event in events if isinstance(event, CallbackFailed)]
    assert len(failed) == 1
    assert "on its own event loop" in failed[0]
    assert event_type(events[-1]) == "run_ended"
    runner.close()


def test_a_plain_tool_may_use_the_runner_that_runs_it(tmp_path: Path) -> None:
    model = ScriptedModel([calls(ask={}), "inner", "outer"])

    def ask() -> str:
        """Ask another session."""
        return runner.run("inner", session_id="other").output

    with SyncRunner(Agent(model, tools=[ask]), transcripts=None) as runner:
        result = runner.run("outer", session_id="s")
    assert (result.output, result.messages[2].text) == ("outer", "inner")


async def _nobodys_ctrl_c() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("wait_for", [_nobodys_ctrl_c, lambda: asyncio.create_task(_nobodys_ctrl_c())])
def test_l16_an_interrupt_raised_on_the_loop_is_an_answer_and_leaves_the_loop(
    tmp_path: Path, wait_for: Callable[[], Any]
) -> None:
    async def interrupt() -> None:
        """Raise what is nobody's Ctrl-C."""
        await wait_for()

    agent = Agent(ScriptedModel([calls(interrupt={}), "went on", "still here"]), tools=[interrupt])
    with SyncRunner(agent, transcripts=None) as runner:
        result = runner.run("Go", session_id="s")
        assert "interrupt failed: KeyboardInterrupt" in result.messages[2].text
        assert (result.output, runner.run("And?", session_id="s").output) == ("went on", "still here")
