"""Plain tools of a run that share one thread."""

import asyncio
import json
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from agentloop import Agent, Runner, SyncRunner, Tool, tool
from agentloop.errors import ToolDefinitionError
from agentloop.messages import ToolCall
from agentloop.testing import ScriptedModel, calls
from agentloop.tools import RunThread, ToolRegistry
from tests.kit import until
from tests.test_tools import CONTEXT

held = threading.local()


@tool(thread="own")
def store(name: str) -> str:
    """Store a name in a database that takes no other thread's calls."""
    if not hasattr(held, "database"):
        held.database = sqlite3.connect(":memory:")
        held.database.execute("CREATE TABLE names (name)")
    held.database.execute("INSERT INTO names VALUES (?)", (name,))
    [(count,)] = held.database.execute("SELECT count(*) FROM names").fetchall()
    return f"{count} in {threading.current_thread().name}"


def two(first: str, second: str) -> Any:
    """An answer with two calls of the tool."""
    return calls(("store", {"name": first}), ("store", {"name": second}))


def results(result: Any) -> list[str]:
    """What the tools said."""
    return [message.text for message in result.messages if message.role == "tool"]


def runner_of(*script: Any, tools: Any = (store,)) -> Runner:
    """A runner of a model that says these."""
    return Runner(Agent(ScriptedModel(list(script)), tools=tools), transcripts=None)


async def test_the_calls_of_a_run_share_a_thread_and_those_of_another_run_another() -> None:
    runner = runner_of(two("a", "b"), calls(store={"name": "c"}), "done", calls(store={"name": "d"}), "done")
    first = await runner.run("go")
    assert results(first) == [f"{count} in agentloop-run" for count in (1, 2, 3)]
    second = await runner.run("go")
    assert results(second) == ["1 in agentloop-run"]


async def test_the_thread_begins_with_a_call_and_ends_with_the_run() -> None:
    seen: list[threading.Thread] = []

    @tool(thread="own")
    def look() -> str:
        """Look."""
        seen.append(threading.current_thread())
        return "seen"

    before = threading.enumerate()
    await runner_of("hello", tools=[look]).run("go")
    begun = [each for each in threading.enumerate() if each not in before]
    assert not [each for each in begun if each.name == "agentloop-run"]
    await runner_of(calls(look={}), calls(look={}), "done", tools=[look]).run("go")
    assert seen[0] is seen[1]
    await asyncio.to_thread(seen[0].join)


async def test_two_of_one_step_run_one_after_the_other_beside_the_others() -> None:
    under_way, most, free = 0, 0, threading.Event()

    @tool(thread="own")
    def alone(last: bool) -> str:
        """Wait for the tool that has a thread of its own."""
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        assert free.wait(120)
        under_way -= 1
        return str(last)

    def beside() -> str:
        """Let the others go on."""
        free.set()
        return "beside"

    both = calls(("alone", {"last": False}), ("alone", {"last": True}), ("beside", {}))
    result = await runner_of(both, "done", tools=[alone, beside]).run("go")
    assert results(result) == ["False", "True", "beside"]
    assert most == 1


async def test_a_tool_that_runs_an_agent_of_its_own_waits_for_no_thread() -> None:
    @tool(thread="own")
    def ask(name: str) -> str:
        """Ask another agent, which has the same tools."""
        with SyncRunner(Agent(ScriptedModel([calls(store={"name": name}), "ok"]), tools=[store])) as inner:
            [said] = results(inner.run("go"))
        return f"inner {said}"

    result = await runner_of(calls(ask={"name": "a"}), "done", tools=[ask, store]).run("go")
    assert results(result) == ["inner 1 in agentloop-run"]


async def test_an_agent_that_is_a_tool_has_a_thread_of_its_own() -> None:
    below = Agent(ScriptedModel([two("a", "b"), calls(store={"name": "c"}), "below"]), tools=[store])
    scout = below.as_tool("scout", "Stores names of its own.")
    script = (calls(store={"name": "a"}), calls(scout={"task": "go"}), calls(store={"name": "b"}), "done")
    async with runner_of(*script, tools=[scout, store]) as runner:
        result = await runner.run("go", session_id="s")
    assert results(result) == ["1 in agentloop-run", "below", "2 in agentloop-run"]
    model = below.model
    assert isinstance(model, ScriptedModel)
    said = [each["content"] for each in model.requests[-1].messages if each["role"] == "tool"]
    assert said == [f"{count} in agentloop-run" for count in (1, 2, 3)]


async def test_what_nobody_waits_for_any_more_is_not_begun() -> None:
    begun: list[tuple[int, threading.Thread]] = []
    is_in, free = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @tool(thread="own")
    def stuck(number: int) -> str:
        """Hold the thread."""
        begun.append((number, threading.current_thread()))
        loop.call_soon_threadsafe(is_in.set)
        assert free.wait(120)
        return "free"

    runner = runner_of(calls(("stuck", {"number": 1}), ("stuck", {"number": 2})), "done", tools=[stuck])
    task = asyncio.create_task(runner.run("go", session_id="s"))
    await until(is_in)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    free.set()
    await asyncio.to_thread(begun[0][1].join)
    assert [number for number, _ in begun] == [1]
    assert len(results(await runner.resume("s"))) == 2


async def test_a_call_behind_one_that_never_ends_times_out_and_is_not_run() -> None:
    begun: list[int] = []
    free, thread = threading.Event(), RunThread()

    def stuck(number: int) -> str:
        """Hold the thread."""
        begun.append(number)
        assert free.wait(120)
        return "free"

    registry = ToolRegistry([tool(thread="own", timeout_seconds=0.5)(stuck)])
    asked = [
        ToolCall(id=f"c{number}", name="stuck", arguments=json.dumps({"number": number})) for number in (1, 2)
    ]
    first, second = await asyncio.gather(*(registry.answer(call, CONTEXT, thread) for call in asked))
    assert (first.status, "timed out after 0.5 s" in first.text) == ("timeout", True)
    assert (second.status, "was not run: a call before it" in second.text) == ("timeout", True)
    free.set()
    assert await thread.call(lambda: begun) == [1]
    thread.stop()


async def test_what_is_raised_there_is_an_answer_and_the_thread_lives_on() -> None:
    @tool(thread="own")
    def leave(name: str) -> str:
        """Leave."""
        if name == "a":
            raise SystemExit("left")
        return name

    result = await runner_of(
        calls(leave={"name": "a"}), calls(leave={"name": "b"}), "done", tools=[leave]
    ).run("go")
    assert results(result) == ["leave failed: SystemExit: left", "b"]


async def asynchronous() -> str:
    """Async."""
    return ""


async def yields() -> AsyncIterator[str]:
    """Yield."""
    yield ""


class Called:
    """An object that is called."""

    async def __call__(self) -> str:
        """Async."""
        return ""


@pytest.mark.parametrize("function", [asynchronous, yields, Called()])
def test_an_async_tool_has_no_thread(function: Callable[..., Any]) -> None:
    with pytest.raises(ToolDefinitionError, match="leave thread out"):
        Tool(name="t", description="", parameters={}, function=function, thread="own")


@pytest.mark.parametrize("wrong", ["shared", True, 1, ""])
def test_there_is_one_kind_of_thread(wrong: Any) -> None:
    def look() -> str:
        """Look."""
        return ""

    with pytest.raises(ToolDefinitionError, match='thread must be "own" or None'):
        Tool.of(tool(thread=wrong)(look))
