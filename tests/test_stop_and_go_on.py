"""A run stopped at every point and in every way, then resumed in a new process.

The scene is a folder with a module of tools and callbacks, in which whatever is to hang says so through one
pipe and waits on another: so nothing here waits for a clock, but for the user who presses Ctrl-C
again every tenth of a second until the program ends.
"""

import asyncio
import gc
import importlib.util
import json
import os
import select
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from agentloop import Agent, Compaction, Limits, Runner, SyncRunner
from agentloop._plumbing.aio import in_thread
from agentloop.events import Compacted, MessageRecord, RunEndRecord
from agentloop.prompts import INTERRUPTED
from agentloop.providers.openai import OpenAIChat
from agentloop.stores import SQLiteStore
from agentloop.stream import event_type
from tests.cli_kit import LONGEST_SECONDS, Finished, agentloop, started
from tests.strict_bodies import Body
from tests.strict_provider import StrictProvider
from tests.strict_replies import Answered, Fault, Hang, Raw, Reply, asks_for_summary, calling

pytestmark = pytest.mark.deep

ACTS = '''
import os
from pathlib import Path
import agentloop.compaction.compactor
from agentloop import Callbacks, tool
from agentloop.events import MessageRecord
from agentloop.stores import SQLiteStore
from agentloop.stores import SQLiteStore
from agentloop.stream import event_type
from agentloop._plumbing.aio import in_thread

HERE = Path(__file__).parent
POINT = (HERE / "point").read_text()
save, append = agentloop.compaction.compactor.save, SQLiteStore.append


def arrive():
    with (HERE / "reached").open("w") as pipe:
        pipe.write("x")


def hang():
    arrive()
    descriptor = os.open(HERE / "go", os.O_RDONLY)
    os.read(descriptor, 1)
    os.close(descriptor)


def mark(name):
    with (HERE / "marks").open("a") as marks:
        marks.write(name + "\\n")


@tool
def act(name: str, words: int = 1) -> str:
    """Act."""
    mark(name)
    return f"{name} done" + " word" * words


@tool(idempotent=True)
def look(name: str) -> str:
    """Look."""
    mark(name)
    if POINT in ("tools", "no tool yet"):
        hang()
    return f"{name} seen"


@tool
async def wait(name: str) -> str:
    """Wait."""
    mark(name)
    await in_thread(hang)
    return f"{name} waited"


@tool
def stuck(name: str) -> str:
    """Be stuck."""
    mark(name)
    hang()
    return f"{name} came loose"


def saved_slowly(*arguments, **named):
    hang()
    return save(*arguments, **named)


async def appended_slowly(self, session_id, events, *, expect):
    if any(isinstance(each, MessageRecord) and each.message.role == "tool" for each in events):
        await in_thread(hang)
    return await append(self, session_id, events, expect=expect)


class Hooks(Callbacks):
    def before_compaction(self, request):
        if POINT == "before":
            hang()

    async def after_compaction(self, result):
        if POINT == "after":
            await in_thread(hang)

    def on_event(self, event):
        if POINT == event_type(event) == "retrying":
            arrive()
        if POINT == "tools" and event_type(event) == "tool_ended" and event.name == "act":
            arrive()
        if POINT == event_type(event) == "tool_ended":
            hang()
'''

ARRIVALS = {"tools": 5, "no tool yet": 3}
"""How many things are to happen before a point is reached, where it is more than one."""

AT_THE_SERVER = ("no byte", "half text", "half call", "summary")
IN_A_COMPACTION = ("summary", "save", "before", "after")
IN_THE_TOOLS = ("tools", "no tool yet")
HELD_OPEN = ("save", "append", "tool_ended")
"""What is under way is awaited, so it has to come to its end."""
POINTS = (*AT_THE_SERVER, *IN_THE_TOOLS, "save", "before", "after", "append", "tool_ended", "retrying")

BATCH = (
    calling("act", "a", name="a"),
    calling("wait", "b", name="b"),
    calling("stuck", "c", name="c"),
    calling("look", "d", name="d"),
)


class Scene:
    """A folder, a strict provider, and a point at which the run hangs."""

    def __init__(self, folder: Path, point: str) -> None:
        self.folder, self.point = folder, point
        self.stopped = False
        (folder / "acts.py").write_text(ACTS)
        (folder / "point").write_text(point)
        for name in ("reached", "go"):
            os.mkfifo(folder / name)
        self._pipes = {name: os.open(folder / name, os.O_RDWR) for name in ("reached", "go")}
        self.provider = StrictProvider(self.answer)

    def answer(self, body: Body) -> Answered | str:
        """What the provider says: one exchange, then what belongs to the point, and once stopped the end."""
        if asks_for_summary(body):
            return "They acted." if self.stopped or self.point != "summary" else Hang()
        if self.stopped:
            return "went on"
        number = len(self.provider.requests)
        if self.point in IN_A_COMPACTION:
            return Reply(calls=(calling("act", f"call_{number}", name=f"act {number}", words=1500),))
        return Reply(calls=(calling("act", "first", name="first"),)) if number == 1 else self._at_the_point()

    def _at_the_point(self) -> Answered:
        match self.point:
            case "no byte":
                return Hang()
            case "half text":
                return _half({"content": "half an ans"})
            case "half call":
                function = {"name": "act", "arguments": '{"name": "never'}
                return _half(
                    {"tool_calls": [{"index": 0, "id": "n", "type": "function", "function": function}]}
                )
            case "retrying":
                return Fault(status=503, body={"error": {"message": "busy"}}, headers={"retry-after": "50"})
            case "tools":
                return Reply(calls=BATCH)
            case "no tool yet":
                return Reply(calls=BATCH[1:])
            case _:
                return Reply(calls=BATCH[:1])

    def reached(self) -> None:
        """Wait until the run hangs at the point."""
        if self.point in AT_THE_SERVER:
            assert self.provider.hanging.wait(LONGEST_SECONDS)
            return
        for _ in range(ARRIVALS.get(self.point, 1)):
            ready, _, _ = select.select([self._pipes["reached"]], [], [], LONGEST_SECONDS)
            assert ready, f"{self.point!r} was never reached"
            os.read(self._pipes["reached"], 1)

    def let_go(self) -> None:
        """Let what hangs go on, and nothing hang again."""
        self.stopped = True
        (self.folder / "point").write_text("none")
        os.write(self._pipes["go"], b"x" * 20)

    def close(self) -> None:
        """Close the pipes."""
        for descriptor in self._pipes.values():
            os.close(descriptor)

    def acts(self, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
        """The module of tools and callbacks, loaded here; what it makes slow is so for this test."""
        spec = importlib.util.spec_from_file_location("acts", self.folder / "acts.py")
        assert spec
        assert spec.loader
        acts = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(acts)
        if self.point == "save":
            monkeypatch.setattr("agentloop.compaction.compactor.save", acts.saved_slowly)
        if self.point == "append":
            monkeypatch.setattr("agentloop.stores.SQLiteStore.append", acts.appended_slowly)
        return acts

    def options(self) -> tuple[str, ...]:
        """Those of the command line."""
        server = ("--base-url", self.provider.url, "-m", "strict", "--window", "8k")
        store = ("--store", f"sqlite:///{self.folder}/s.db", "--transcripts", str(self.folder / "t"))
        return (*server, *store, "--tools", "acts", "--callbacks", "acts:Hooks")

    def runner(self, kind: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
        """A runner here that is set up as the command line sets up its own."""
        acts = self.acts(monkeypatch)
        model = OpenAIChat("strict", base_url=self.provider.url, window="8k")
        agent = Agent(
            model, tools=[acts.act, acts.look, acts.wait, acts.stuck], compaction=Compaction(micro=None)
        )
        store, transcripts = f"sqlite:///{self.folder}/s.db", self.folder / "t"
        return kind(agent, store=store, transcripts=transcripts, callbacks=[acts.Hooks()])

    def marks(self) -> Counter[str]:
        """How often each tool has done what it does."""
        path = self.folder / "marks"
        return Counter(path.read_text().splitlines() if path.exists() else ())

    def log(self) -> list[Any]:
        """The session's records."""
        store = SQLiteStore(self.folder / "s.db")
        return [record.event for record in asyncio.run(store.read("s"))]

    def resumed(self) -> Finished:
        """The run resumed in a new process, where nothing hangs any more."""
        return agentloop("-r", "s", *self.options(), cwd=self.folder)


def _half(delta: dict[str, Any]) -> Raw:
    """A stream that begins so and never goes on."""
    chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "strict"}
    choice = {"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": None}
    return Raw(pieces=(f"data: {json.dumps(chunk | {'choices': [choice]})}\n\n".encode(),), left_open=True)


@pytest.fixture
def scene(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """The scene of a test's point, its provider listening."""
    scene = Scene(tmp_path, request.param)
    with scene.provider:
        yield scene
    scene.close()


def check(scene: Scene, *, in_order: bool = True) -> None:
    """After the stop: what is done is kept, and the run goes on in a new process and ends well."""
    marks, log = scene.marks(), scene.log()
    said = [each.message for each in log if isinstance(each, MessageRecord)]
    assert [each.status for each in log if isinstance(each, RunEndRecord)] == ["interrupted"] * in_order
    compacted = [each for each in log if isinstance(each, Compacted)]
    if scene.point == "after":
        assert len(compacted) == 1
    else:  # results may have been shown shortened by then; nothing was covered
        assert not any(each.covers for each in compacted)
    assert set(marks.values()) == {1}
    resumed = scene.resumed()
    assert (resumed.status, resumed.out) == (0, "went on\n"), resumed.err
    assert scene.provider.refusals == []
    in_the_tools = scene.point in IN_THE_TOOLS
    assert scene.marks() == marks + Counter({"d": 1} if in_the_tools else {})
    sent = scene.provider.bodies[-1]["messages"]
    results = {each["tool_call_id"]: each["content"] for each in sent if each["role"] == "tool"}
    if scene.point not in IN_A_COMPACTION:
        assert results["first"] == "first done word"
        assert (
            results.items() >= {each.tool_call_id: each.text for each in said if each.role == "tool"}.items()
        )
    if in_the_tools:
        assert [results.get(name) for name in "bcd"] == [INTERRUPTED, INTERRUPTED, "d seen"]
        assert results.get("a") == ("a done word" if scene.point == "tools" else None)


@pytest.mark.parametrize("scene", POINTS, indirect=True)
async def test_l7_l16_cancelled_here_it_goes_on_in_a_new_process(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = scene.runner(Runner, monkeypatch)
    with nothing_left():
        task = asyncio.create_task(runner.run("Go", session_id="s"))
        await in_thread(scene.reached)
        task.cancel()
        if scene.point in HELD_OPEN:
            scene.let_go()
        with pytest.raises(asyncio.CancelledError):
            await task
        await runner.close()
    scene.let_go()
    monkeypatch.undo()
    await in_thread(check, scene)


@pytest.mark.parametrize("scene", ["half text", "tools", "before", "append"], indirect=True)
async def test_l7_l16_a_stream_left_here_goes_on_in_a_new_process(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = scene.runner(Runner, monkeypatch)
    with nothing_left():
        events = runner.stream("Go", session_id="s")
        assert event_type(await anext(events)) == "run_started"
        await in_thread(scene.reached)
        if scene.point in HELD_OPEN:
            asyncio.get_running_loop().call_soon(scene.let_go)
        await events.aclose()
        await runner.close()
    scene.let_go()
    monkeypatch.undo()
    await in_thread(check, scene)


@contextmanager
def nothing_left() -> Iterator[None]:
    """Sees that what is done within leaves no task, and no fault that only the event loop is told of."""
    faults: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: faults.append(context))
    yield
    assert asyncio.all_tasks() == {asyncio.current_task()}
    gc.collect()
    assert faults == []


@pytest.mark.parametrize("scene", ["no byte", "tools", "summary"], indirect=True)
def test_l16_ctrl_c_in_a_sync_runner(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    main = threading.get_ident()

    def press() -> None:
        scene.reached()
        signal.pthread_kill(main, signal.SIGINT)

    presser = threading.Thread(target=press)
    with scene.runner(SyncRunner, monkeypatch) as runner:
        presser.start()
        with pytest.raises(KeyboardInterrupt):
            runner.run("Go", session_id="s")
        scene.let_go()
    presser.join()
    check(scene)


SIGNALS = [
    ("half call", signal.SIGHUP),
    ("before", signal.SIGINT),
    ("retrying", signal.SIGTERM),
    *((point, signal.SIGKILL) for point in ("tools", "summary", "after", "tool_ended")),
]


@pytest.mark.parametrize(("scene", "number"), SIGNALS, indirect=["scene"])
def test_l7_a_signal_here_and_then_a_new_process(scene: Scene, number: signal.Signals) -> None:
    with started("-p", "Go", "--session", "s", "--json", *scene.options(), cwd=scene.folder) as process:
        scene.reached()
        process.send_signal(number)
        out, err = process.communicate(timeout=LONGEST_SECONDS)
    assert "Traceback" not in err
    if number != signal.SIGKILL:
        assert process.returncode == 130
        ended = json.loads(out.splitlines()[-1])
        assert (ended["type"], ended["status"]) == ("run_ended", "interrupted")
    scene.let_go()
    check(scene, in_order=number != signal.SIGKILL)


async def test_a_step_limit_with_a_call_pending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path, "none")
    with scene.provider:
        runner = scene.runner(Runner, monkeypatch)
        result = await runner.run("Go", session_id="s", limits=Limits(steps=1))
        await runner.close()
        assert (result.status, scene.marks()) == ("limit", {"first": 1})
        scene.let_go()
        resumed = await in_thread(scene.resumed)
    scene.close()
    assert (resumed.status, resumed.out) == (0, "went on\n")
    assert scene.marks() == {"first": 1}
    assert scene.provider.refusals == []


HOLDS = '''
import time
from pathlib import Path
from agentloop import tool
from agentloop._plumbing.aio import in_thread


@tool
async def holds() -> str:
    """Hold up everything, once it may."""
    if (go := Path(__file__).parent / "go").exists():
        await in_thread(go.read_text)
    with (Path(__file__).parent / "reached").open("w") as pipe:
        pipe.write("x")
    time.sleep(600)
    return ""
'''


@pytest.mark.parametrize("shape", ["stream-json", "json"])
def test_a_second_ctrl_c_still_says_how_it_ended(tmp_path: Path, shape: str) -> None:
    (tmp_path / "acts.py").write_text(HOLDS)
    os.mkfifo(tmp_path / "reached")
    with StrictProvider([Reply(calls=(calling("holds"),))]) as provider:
        options = ("--base-url", provider.url, "--window", "8k", "--tools", "acts", "--output-format", shape)
        with started("-p", "Go", "--session", "s", *options, cwd=tmp_path) as process:
            (tmp_path / "reached").read_text()
            out = _pressed_until_it_ends(process)
    assert process.returncode == 130
    ended = json.loads(out.splitlines()[-1])
    assert (ended["status"], ended["session_id"]) == ("interrupted", "s")
    assert [json.loads(line)["status"] for line in out.splitlines() if '"status":"interrupted"' in line] == [
        "interrupted"
    ]


def test_a_second_ctrl_c_leaves_no_command_running(tmp_path: Path) -> None:
    (tmp_path / "acts.py").write_text(HOLDS)
    for name in ("reached", "go"):
        os.mkfifo(tmp_path / name)
    detached = "setsid sh -c 'echo $$ > pid; echo > go; exec sleep 1000' & sleep 1000"
    batch = (calling("run_command", command=detached, timeout_seconds=500), calling("holds"))
    with StrictProvider([Reply(calls=batch)]) as provider:
        options = ("--base-url", provider.url, "--window", "8k", "--allow", "shell", "--tools", "acts")
        with started("-p", "Go", "--json", *options, cwd=tmp_path) as process:
            (tmp_path / "reached").read_text()
            pid = int((tmp_path / "pid").read_text())
            assert _is_running(pid)
            _pressed_until_it_ends(process)
    assert process.returncode == 130
    until = time.monotonic() + LONGEST_SECONDS
    while _is_running(pid):  # it was killed, and needs its turn to end
        assert time.monotonic() < until, "it was left"
        os.sched_yield()


def _is_running(pid: int) -> bool:
    """Whether there is such a process, of which more is left than its exit status."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _pressed_until_it_ends(process: Any) -> str:
    process.send_signal(signal.SIGINT)
    while True:
        try:
            return str(process.communicate(timeout=0.1)[0])
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)


def test_a_reader_that_wakes_up_after_the_signal_gets_whole_lines(tmp_path: Path) -> None:
    with StrictProvider([Reply(text="words " * 40_000, piece_chars=100_000)]) as provider:
        options = ("--base-url", provider.url, "--window", "200k", "--json", "--session", "s")
        with started("-p", "Go", *options, cwd=tmp_path) as process:
            process.stdout.readline()
            process.send_signal(signal.SIGINT)
            lines = process.stdout.read().splitlines()
            assert process.wait(LONGEST_SECONDS) in (0, 130)
    assert json.loads(lines[-1])["type"] == "run_ended"
    assert all(json.loads(line)["session_id"] == "s" for line in lines)
