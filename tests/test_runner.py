"""The loop through the runner: tools side by side, limits, interruption, and going on after it."""

import asyncio
import os
import signal
import textwrap
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agentloop.callbacks import Callbacks
from agentloop.compaction import Compaction
from agentloop.context import Finish, count_request, counter_for, next_step
from agentloop.errors import (
    BadAnswerError,
    ConflictError,
    ContextTooLongError,
    ModelRefusedError,
    ModelUnavailableError,
    RetryTool,
    SessionNotFoundError,
    TakenOverError,
    ToolDefinitionError,
    UsageError,
)
from agentloop.events import MessageRecord, RunEndRecord, RunStartRecord
from agentloop.messages import Message, ToolCall
from agentloop.models import Answer, ModelRequest
from agentloop.prompts import INTERRUPTED, NOT_RUN
from agentloop.run import Agent
from agentloop.runner import Runner
from agentloop.stores import InMemoryStore
from agentloop.stores.sqlite import SQLiteStore
from agentloop.stream import (
    AnyStreamEvent,
    MessageAdded,
    StreamEvent,
    TextDelta,
    ToolEnded,
    ToolProgress,
    event_type,
    to_json,
)
from agentloop.testing import FailingModel, ScriptedModel, calls
from agentloop.tools import RunContext, tool
from tests.cli_kit import program
from tests.kit import assert_valid, until, watched


def runner_for(model: Any, tmp_path: Path, *tools: Any, **options: Any) -> Runner:
    agent_options = {name: options.pop(name) for name in ("max_steps", "compaction") if name in options}
    agent = Agent(model, tools=tools, instructions="Be brief.", **agent_options)
    return Runner(agent, transcripts=tmp_path, **options)


def results(request: ModelRequest) -> list[str]:
    """The results in a request, in order."""
    return [str(message["content"]) for message in request.messages if message["role"] == "tool"]


async def said(runner: Runner, session_id: str = "s") -> list[Message]:
    records = await runner.store.read(session_id)
    return [record.event.message for record in records if isinstance(record.event, MessageRecord)]


async def test_an_answer_comes_back_with_what_it_took(tmp_path: Path) -> None:
    model = ScriptedModel(["forty-two"])
    result = await runner_for(model, tmp_path).run("What is it?", session_id="s")
    assert (result.output, result.status, result.session_id) == ("forty-two", "answered", "s")
    assert result.usage.input_tokens > 0
    assert [message.text for message in result.messages] == ["What is it?", "forty-two"]
    assert result.compactions == ()


async def test_a_session_goes_on_where_it_was(tmp_path: Path) -> None:
    model = ScriptedModel(["one", "two"])
    runner = runner_for(model, tmp_path, store=f"sqlite:///{tmp_path}/s.db")
    await runner.run("a", session_id="s")
    await runner.close()
    again = runner_for(model, tmp_path, store=f"sqlite:///{tmp_path}/s.db")
    await again.run("b", session_id="s")
    await again.close()
    assert [m["content"] for m in model.requests[-1].messages] == ["Be brief.", "a", "one", "b"]


async def test_calls_run_side_by_side_and_results_stand_in_call_order(tmp_path: Path) -> None:
    arrived = [asyncio.Event(), asyncio.Event()]

    async def meet(place: int) -> str:
        """Wait until the other one is there too."""
        arrived[place].set()
        await until(arrived[1 - place])
        return f"place {place}"

    model = ScriptedModel([calls(("meet", {"place": 1}), ("meet", {"place": 0})), "met"])
    result = await runner_for(model, tmp_path, meet).run("Meet", session_id="s")
    assert result.output == "met"
    assert results(model.requests[-1]) == ["place 1", "place 0"]


async def test_siblings_of_every_kind_each_get_their_answer(tmp_path: Path) -> None:
    never = threading.Event()

    @tool(timeout_seconds=0.2)
    def hang() -> str:
        """Hang."""
        never.wait(60)
        return "late"

    def fine() -> str:
        """Work."""
        return "fine"

    def broken() -> str:
        """Fail without a word."""
        raise KeyError

    def picky() -> str:
        """Ask for another try."""
        raise RetryTool("use a smaller number")

    async def cancelled() -> str:
        """Cancel itself."""
        raise asyncio.CancelledError

    def odd() -> Any:
        """Return what is no text."""
        loop: dict[str, Any] = {}
        loop["self"] = loop
        return loop

    names = ["fine", "broken", "picky", "cancelled", "hang", "odd", "unknown"]
    model = ScriptedModel([calls(*((name, {}) for name in names)), "done"])
    events = await watched(
        runner_for(model, tmp_path, fine, broken, picky, cancelled, hang, odd), "Go", session_id="s"
    )
    never.set()
    assert_valid(model.requests)
    shown = dict(zip(names, results(model.requests[-1]), strict=True))
    assert shown["fine"] == "fine"
    assert "KeyError" in shown["broken"]
    assert "use a smaller number" in shown["picky"]
    assert "no tool 'unknown'" in shown["unknown"]
    ended = {event.name: event.status for event in events if isinstance(event, ToolEnded)}
    assert ended == dict.fromkeys(names, "error") | {"fine": "ok", "odd": "ok", "hang": "timeout"}


async def test_a_tool_sees_its_run_and_says_how_far_it_is(tmp_path: Path) -> None:
    seen: list[RunContext[Any]] = []

    def look(context: RunContext[dict[str, int]], path: str) -> str:
        """Look at a path."""
        seen.append(context)
        context.progress("half way")
        return str(context.deps["x"])

    model = ScriptedModel([calls(("look", {"path": "p"})), "done"])
    runner = runner_for(model, tmp_path, look)
    events = [event async for event in runner.stream("Go", session_id="s", deps={"x": 7})]
    assert results(model.requests[-1]) == ["7"]
    assert seen[0].session_id == "s"
    assert seen[0].usage.input_tokens > 0
    assert [event.text for event in events if isinstance(event, ToolProgress)] == ["half way"]
    schema = model.requests[0].tools[0]["function"]["parameters"]
    assert list(schema["properties"]) == ["path"]


async def test_the_limit_on_steps_ends_the_run_in_order(tmp_path: Path) -> None:
    def work() -> str:
        """Work."""
        return "ok"

    script = [Message.assistant(f"step {at}", calls(("work", {}))) for at in range(5)]
    model = ScriptedModel([*script, "done"])
    runner = runner_for(model, tmp_path, work, max_steps=3)
    result = await runner.run("Go", session_id="s")
    assert (result.status, result.output) == ("limit", "step 0\n\nstep 1\n\nstep 2")
    assert len(model.requests) == 3
    assert (await said(runner))[-1].role == "tool"
    more = await runner.resume("s")
    assert (more.status, more.output) == ("answered", "done")
    assert_valid(model.requests)


async def test_a_run_that_was_answered_is_resumed_with_its_answer(tmp_path: Path) -> None:
    model = ScriptedModel(["done"])
    runner = runner_for(model, tmp_path)
    await runner.run("Go", session_id="s")
    assert (await runner.resume("s")).output == "done"
    assert len(model.requests) == 1


async def test_what_is_not_there_cannot_be_resumed(tmp_path: Path) -> None:
    runner = runner_for(ScriptedModel([]), tmp_path)
    looks = (runner.preview("no"), runner.status("no"), runner.events("no"))
    for work in (runner.resume("no"), runner.compact("no"), runner.undo("no"), *looks):
        with pytest.raises(SessionNotFoundError, match="no session 'no'"):
            await work


@pytest.mark.parametrize("session_id", ["../x", "/etc/x", "..", "", "x" * 300, "a\x00b", "a\nb", ".hidden"])
async def test_l18_bad_ids_are_refused_before_anything_is_touched(tmp_path: Path, session_id: str) -> None:
    runner = runner_for(ScriptedModel(["one"]), tmp_path / "t", store=f"sqlite:///{tmp_path}/s.db")
    with pytest.raises(UsageError, match="bad session id"):
        await runner.run("Go", session_id=session_id)
    assert list(tmp_path.iterdir()) == []


NOTHING = Message(role="user", content=({"type": "text", "text": " "},))
CALLING = Message(role="user", content="x", tool_calls=(ToolCall(id="1", name="a"),))


@pytest.mark.parametrize("prompt", ["", "  \n", Message.assistant("x"), 5, NOTHING, CALLING])
async def test_what_is_no_prompt_is_refused(tmp_path: Path, prompt: Any) -> None:
    with pytest.raises(UsageError, match=r"the prompt (is empty|must be text)"):
        await runner_for(ScriptedModel([]), tmp_path).run(prompt, session_id="s")


async def test_calls_cut_off_by_the_output_limit_do_not_run(tmp_path: Path) -> None:
    ran: list[str] = []

    def write(path: str) -> str:
        """Write."""
        ran.append(path)
        return "ok"

    def cut(arguments: str) -> Answer:
        call = ToolCall(id=f"id{len(arguments)}", name="write", arguments=arguments)
        return Answer(message=Message.assistant("", [call]), finish="length")

    model = ScriptedModel([cut('{"path": "a'), cut('{"path": "ab"}'), "done"])
    result = await runner_for(model, tmp_path, write).run("Go", session_id="s")
    assert result.output == "done"
    assert ran == []
    assert results(model.requests[-1]) == [NOT_RUN["length"], NOT_RUN["length"]]
    assert_valid(model.requests)
    model = ScriptedModel([cut('{"path": "' + "a" * at) for at in range(5)])
    with pytest.raises(BadAnswerError, match="cut off by the output limit"):
        await runner_for(model, tmp_path, write).run("Go", session_id="t")
    assert len(model.requests) == 3


async def test_a_failed_run_says_so_and_leaves_the_session_usable(tmp_path: Path) -> None:
    model = FailingModel(ModelUnavailableError("no connection"), times=1, then=ScriptedModel(["here I am"]))
    runner = runner_for(model, tmp_path)
    events: list[AnyStreamEvent] = []
    with pytest.raises(ModelUnavailableError):
        async for event in runner.stream("Go", session_id="s"):
            events.append(event)
    assert to_json(events[-1])["status"] == "try_later"
    assert to_json(events[-1])["error"] == "no connection"
    ended = [r.event for r in await runner.store.read("s") if isinstance(r.event, RunEndRecord)]
    assert [event.status for event in ended] == ["try_later"]
    assert (await runner.resume("s")).output == "here I am"
    assert_valid(model.requests)


async def test_a_refused_request_is_sent_once(tmp_path: Path) -> None:
    model = FailingModel(ModelRefusedError("the key is wrong", status=401))
    with pytest.raises(ModelRefusedError):
        await runner_for(model, tmp_path).run("Go", session_id="s")
    assert len(model.requests) == 1


async def test_every_event_is_named_and_is_json(tmp_path: Path) -> None:
    def work() -> str:
        """Work."""
        return "ok"

    model = ScriptedModel([calls(("work", {})), "all done"])
    events = await watched(runner_for(model, tmp_path, work), "Go")
    kinds = [event_type(event) for event in events]
    assert kinds[0] == "run_started"
    assert kinds[-1] == "run_ended"
    assert [kind for kind in kinds if kind != "text_delta"] == [
        "run_started",
        "message_added",
        "message_added",
        "tool_started",
        "tool_ended",
        "message_added",
        "message_added",
        "run_ended",
    ]
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "all done"
    assert all(to_json(event)["session_id"] == "s" for event in events)


class Stopping(ScriptedModel):
    """Says when it was asked for the nth time, and then answers nothing until it is cancelled."""

    def __init__(self, answers: list[Any], *, at: int) -> None:
        super().__init__(answers)
        self.at, self.reached, self.closed = at, asyncio.Event(), False

    async def stream(self, request: ModelRequest, /) -> Any:
        if len(self.requests) == self.at:
            self.reached.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.closed = True
        async for part in super().stream(request):
            yield part


async def test_cancelling_during_the_model_call_reaches_the_caller_and_leaves_nothing(tmp_path: Path) -> None:
    model = Stopping([], at=0)
    runner = runner_for(model, tmp_path)
    task = asyncio.create_task(runner.run("Go", session_id="s"))
    await until(model.reached)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert model.closed
    assert asyncio.all_tasks() == {asyncio.current_task()}
    ended = [r.event for r in await runner.store.read("s") if isinstance(r.event, RunEndRecord)]
    assert [event.status for event in ended] == ["interrupted"]
    later = ScriptedModel(["here"])
    assert (await runner_for(later, tmp_path, store=runner.store).resume("s")).output == "here"


async def test_leaving_a_stream_early_cancels_its_run(tmp_path: Path) -> None:
    model = Stopping([], at=0)
    runner = runner_for(model, tmp_path)
    events = runner.stream("Go", session_id="s")
    assert event_type(await anext(events)) == "run_started"
    await until(model.reached)
    await events.aclose()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_cancelling_between_parallel_tools_keeps_what_is_done(tmp_path: Path) -> None:
    ran: Counter[str] = Counter()
    done, stopped = asyncio.Event(), asyncio.Event()

    async def quick(name: str) -> str:
        """Return at once."""
        ran[name] += 1
        return f"{name} done"

    async def slow(name: str) -> str:
        """Never return."""
        ran[name] += 1
        done.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "never"

    batch = calls(("slow", {"name": "b"}), ("quick", {"name": "a"}), ("slow", {"name": "c"}))
    model = ScriptedModel([batch, "went on"])
    runner = runner_for(model, tmp_path, quick, slow)
    seen = asyncio.Event()

    async def watch() -> None:
        async for event in runner.stream("Go", session_id="s"):
            if event_type(event) == "message_added" and to_json(event)["message"]["role"] == "tool":
                seen.set()

    task = asyncio.create_task(watch())
    await until(seen)
    await until(done)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stopped.is_set()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    result = await runner.resume("s")
    assert result.output == "went on"
    assert ran == {"a": 1, "b": 1, "c": 1}
    assert results(model.requests[-1]) == [INTERRUPTED, "a done", INTERRUPTED]
    assert_valid(model.requests)


@pytest.mark.parametrize("how", ["resume", "run"])
async def test_calls_in_flight_run_again_where_they_are_idempotent(tmp_path: Path, how: str) -> None:
    ran: Counter[str] = Counter()

    @tool(idempotent=True)
    def look(name: str) -> str:
        """Look."""
        ran[name] += 1
        return f"saw {name}"

    def act(name: str) -> str:
        """Act."""
        ran[name] += 1
        return f"did {name}"

    store = InMemoryStore()
    batch = calls(("look", {"name": "a"}), ("act", {"name": "b"}), ("act", {"name": "c"}))
    log = [Message.user("Go"), Message.assistant("", batch), Message.tool(batch[2].id, "did c")]
    await store.append("s", [MessageRecord(message=message, tokens=9) for message in log], expect=0)
    model = ScriptedModel(["went on"])
    runner = runner_for(model, tmp_path, look, act, store=store)
    await (runner.resume("s") if how == "resume" else runner.run("And?", session_id="s"))
    assert ran == {"a": 1}
    assert results(model.requests[0]) == ["saw a", INTERRUPTED, "did c"]
    assert_valid(model.requests)


async def test_two_writers_never_interleave(tmp_path: Path) -> None:
    store = InMemoryStore()
    inside, go_on = asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        """Wait."""
        inside.set()
        await until(go_on)
        return "waited"

    first = runner_for(ScriptedModel([calls(("wait", {})), "first"]), tmp_path, wait, store=store)
    second = runner_for(ScriptedModel(["second"]), tmp_path, store=store, when_busy="take_over")
    task = asyncio.create_task(first.run("Go", session_id="s"))
    await until(inside)
    assert (await second.run("Me too", session_id="s")).output == "second"
    go_on.set()
    with pytest.raises(TakenOverError, match="taken over by another run"):
        await task
    assert isinstance(next_step(await said(first)), Finish)


async def test_a_tool_called_compact_must_make_way(tmp_path: Path) -> None:
    def compact() -> str:
        """Mine."""
        return ""

    with pytest.raises(ToolDefinitionError, match="taken by compaction"):
        Agent(ScriptedModel([]), tools=[compact])
    assert Agent(ScriptedModel([]), tools=[compact], compaction=Compaction(tool=False)).registry["compact"]


CHILD = """
    import asyncio, json, os, sys, time
    from pathlib import Path
    from agentloop.run import Agent
    from agentloop.runner import Runner
    from agentloop.testing.models import ScriptedModel
    from agentloop.messages import Message, ToolCall

    folder = Path(sys.argv[1])

    def act(name: str) -> str:
        '''Leave a mark.'''
        with open(folder / "marks", "a") as marks:
            marks.write(name + "\\n")
        print("acted", flush=True)
        return "did " + name + " word" * 300

    script = [
        Message.assistant("", [
            ToolCall(id=f"c{at}_{n}", name="act", arguments=json.dumps({"name": f"{at}_{n}"}))
            for n in range(2)
        ])
        for at in range(60)
    ]
    model = ScriptedModel([*script, "done"], window=6000, name="scripted")
    runner = Runner(Agent(model, tools=[act]), store=f"sqlite:///{folder}/s.db", transcripts=folder / "t")
    asyncio.run(runner.run("Go", session_id="s"))
"""


@pytest.mark.parametrize(
    "acts", [7, *(pytest.param(acts, marks=pytest.mark.deep) for acts in (1, 2, 30, 61))]
)
async def test_l7_killed_and_resumed_no_finished_tool_runs_again(tmp_path: Path, acts: int) -> None:
    with program(textwrap.dedent(CHILD), tmp_path, cwd=tmp_path) as child:
        for _ in range(acts):
            child.stdout.readline()
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    store = SQLiteStore(tmp_path / "s.db")
    finished = [
        record.event.message.tool_call_id
        for record in await store.read("s")
        if isinstance(record.event, MessageRecord) and record.event.message.role == "tool"
    ]
    before = Counter((tmp_path / "marks").read_text().split())

    def act(name: str) -> str:
        """Leave a mark."""
        with (tmp_path / "marks").open("a") as marks:
            marks.write(name + "\n")
        return "did " + name

    model = ScriptedModel(["went on"], window=6_000)
    runner = runner_for(model, tmp_path, act, store=store)
    assert (await runner.resume("s")).output == "went on"
    assert Counter((tmp_path / "marks").read_text().split()) == before
    assert len(before) - len(finished) <= 2
    assert_valid(model.requests)
    records = await store.read("s")
    assert sum(isinstance(record.event, RunStartRecord) for record in records) == 2
    await store.close()


async def test_a_conflict_at_the_very_end_still_ends_the_stream(tmp_path: Path) -> None:
    store = InMemoryStore()

    async def answer(request: ModelRequest) -> str:
        return "done"

    class Intruder(Callbacks):
        async def on_event(self, event: StreamEvent) -> None:
            if isinstance(event, MessageAdded) and event.message.role == "assistant":
                length = len(await store.read("s"))
                late = MessageRecord(message=Message.user("me too"), tokens=4)
                await store.append("s", [late], expect=length)

    runner = runner_for(ScriptedModel([answer]), tmp_path, store=store, callbacks=[Intruder()])
    events: list[AnyStreamEvent] = []
    with pytest.raises(ConflictError):
        async for event in runner.stream("Go", session_id="s"):
            events.append(event)
    assert event_type(events[-1]) == "run_ended"
    assert to_json(events[-1])["status"] == "failed"


async def test_arguments_that_are_no_json_do_not_run(tmp_path: Path) -> None:
    ran: list[float] = []

    def add(x: float) -> str:
        """Add."""
        ran.append(x)
        return "ok"

    batch = [ToolCall(id="1", name="add", arguments='{"x": NaN}')]
    model = ScriptedModel([batch, "done"])
    await runner_for(model, tmp_path, add).run("Go", session_id="s")
    assert ran == []
    assert "not valid JSON" in results(model.requests[-1])[0]
    assert_valid(model.requests)


async def test_what_one_run_learnt_of_the_window_stays_known(tmp_path: Path) -> None:
    class Narrow(ScriptedModel):
        """A server of 9,000 tokens that does not say so beforehand."""

        refused = 0

        async def stream(self, request: ModelRequest, /) -> Any:
            tokens = count_request(request, counter_for(self.name))
            if tokens > 9_000:
                self.refused += 1
                raise ContextTooLongError("too long", window=9_000, tokens=tokens)
            async for part in super().stream(request):
                yield part

    model = Narrow(["so " * 3_000 for _ in range(12)])
    runner = runner_for(model, tmp_path)
    slow = asyncio.create_task(runner.run("first of another session", session_id="other"))
    for turn in range(6):
        await runner.run(f"turn {turn}", session_id="s")
    await slow
    for turn in range(4):
        await runner.run(f"turn {turn}", session_id="t")
    assert model.refused == 1
    assert (await runner.status("t")).window == 9_000


async def test_a_class_in_place_of_a_callback_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"give Callbacks\(\) instead"):
        runner_for(ScriptedModel([]), tmp_path, callbacks=[Callbacks])


async def test_what_is_no_callback_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="callbacks must be a list of Callbacks objects, with no 5 in it"):
        runner_for(ScriptedModel([]), tmp_path, callbacks=[5])


async def test_finished_results_are_stored_before_anybody_is_told(tmp_path: Path) -> None:
    ran: list[str] = []
    stored: list[int] = []

    class Looking(Callbacks):
        async def on_event(self, event: StreamEvent) -> None:
            if isinstance(event, ToolEnded):
                stored.append(sum(message.role == "tool" for message in await said(runner)))

    def work(name: str) -> str:
        """Work."""
        ran.append(name)
        return f"{name} paid"

    batch = calls(*(("work", {"name": name}) for name in "abc"))
    runner = runner_for(ScriptedModel([batch, "done"]), tmp_path, work, callbacks=[Looking()])
    await runner.run("Go", session_id="s")
    assert all(there >= number for number, there in enumerate(stored, 1))
    assert sorted(ran) == ["a", "b", "c"]


async def test_the_prompt_is_stored_before_anybody_is_told_that_the_run_began(tmp_path: Path) -> None:
    stored: list[list[str]] = []

    class Looking(Callbacks):
        async def on_event(self, event: StreamEvent) -> None:
            if event_type(event) == "run_started":
                stored.append([message.text for message in await said(runner)])

    runner = runner_for(ScriptedModel(["one"]), tmp_path, callbacks=[Looking()])
    await runner.run("Remember me", session_id="s")
    assert stored == [["Remember me"]]


async def test_a_session_in_which_nobody_spoke_cannot_be_resumed(tmp_path: Path) -> None:
    model = ScriptedModel([])
    runner = runner_for(model, tmp_path)
    await runner.store.append("s", [RunStartRecord(run_id="r")], expect=0)
    with pytest.raises(UsageError, match="nobody has said anything"):
        await runner.resume("s")
    assert model.requests == []
