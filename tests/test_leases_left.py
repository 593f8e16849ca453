"""Who leaves a run and speaks on in its session: what is ending is waited for, what is at work is not."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from agentloop.errors import SessionBusyError
from agentloop.events import RunEndRecord
from agentloop.run import Agent
from agentloop.runner import Runner
from agentloop.stores import InMemoryStore, SessionStore, open_store
from agentloop.stream import RunEnded, event_type
from agentloop.sync import SyncRunner
from agentloop.testing import ScriptedModel, calls
from tests.kit import assert_valid, until
from tests.leases_kit import AtWork, Gate, log, runner_for


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SessionStore]:
    urls: dict[str, Callable[[], str]] = {
        "memory": lambda: "memory:",
        "sqlite": lambda: f"sqlite:///{tmp_path}/s.db",
        "postgresql": lambda: request.getfixturevalue("database"),
    }
    store = open_store(urls[request.param]())
    yield store
    await store.close()


def runner_on(store: SessionStore) -> Runner:
    """One whose run is in a tool that does not end until it is left; then it answers."""
    return runner_for([calls(wait={}), "two", "three"], Gate().wait, store=store)


async def leave(runner: Runner, at: str = "tool_started") -> None:
    """Begin to watch a run in a stream, and leave it there."""
    async for event in runner.stream("one", session_id="s"):
        if event_type(event) == at:
            break


async def run(runner: Runner, output: str = "two") -> None:
    assert (await runner.run("go on", session_id="s")).output == output


async def stream(runner: Runner) -> None:
    events = [event async for event in runner.stream("go on", session_id="s")]
    assert isinstance(events[-1], RunEnded)
    assert events[-1].output == "two"


async def resume(runner: Runner) -> None:
    assert (await runner.resume("s")).output == "two"


async def compact(runner: Runner) -> None:
    await runner.compact("s")


async def undo(runner: Runner) -> None:
    assert await runner.undo("s") is None


@pytest.mark.parametrize(
    ("go_on", "answers"),
    [
        (run, ["two", "three"]),
        (stream, ["two", "three"]),
        (resume, ["two", "three"]),
        (compact, ["two"]),
        (undo, ["two"]),
    ],
)
async def test_who_leaves_a_stream_can_go_on_at_once(
    go_on: Callable[[Runner], Awaitable[None]], answers: list[str], store: SessionStore
) -> None:
    runner = runner_on(store)
    await leave(runner)
    await go_on(runner)
    await run(runner, answers[-1])
    statuses = [event.status for event in await log(store) if isinstance(event, RunEndRecord)]
    assert statuses == ["interrupted", *["answered"] * len(answers)]
    assert_valid(runner.agent.model.requests)  # type: ignore[attr-defined]


@pytest.mark.parametrize("at", ["run_started", "message_added", "run_ended"])
async def test_it_is_the_same_wherever_the_stream_is_left(at: str) -> None:
    runner = runner_for(["one", "two", "three"], store=InMemoryStore())
    await leave(runner, at)
    await run(runner)


async def test_generators_around_the_stream_are_left_with_it() -> None:
    runner = runner_on(InMemoryStore())

    async def names() -> AsyncIterator[str]:
        async for event in runner.stream("one", session_id="s"):
            yield event_type(event)

    async def in_capitals() -> AsyncIterator[str]:
        async for name in names():
            yield name.upper()

    async for name in in_capitals():
        if name == "TOOL_STARTED":
            break
    await run(runner)


async def test_a_stream_that_is_kept_is_at_work_and_refuses_the_next_until_it_is_closed() -> None:
    runner = runner_on(InMemoryStore())
    kept = runner.stream("one", session_id="s")
    async for event in kept:
        if event_type(event) == "tool_started":
            break
    with pytest.raises(SessionBusyError):
        await run(runner)
    await kept.aclose()
    await run(runner)


@pytest.mark.parametrize("when_busy", ["refuse", "wait"])
async def test_a_run_that_is_being_cancelled_is_waited_for(when_busy: Any) -> None:
    store = InMemoryStore()
    second = runner_for(["second"], store=store, when_busy=when_busy)
    async with AtWork(store) as first:
        first.task.cancel()
        assert (await second.run("Me too", session_id="s")).output == "second"


async def test_one_that_does_not_let_go_is_waited_for_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentloop.sessions.lease.ENDING_SECONDS", 0.05)
    store, inside, may = InMemoryStore(), asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        """Wait, and take long to end."""
        inside.set()
        try:
            await asyncio.Event().wait()
        finally:
            await until(may)

    runner = runner_for([calls(wait={}), "second"], wait, store=store)
    task = asyncio.create_task(runner.run("Go", session_id="s"))
    await until(inside)
    task.cancel()
    with pytest.raises(SessionBusyError):
        await run(runner)
    monkeypatch.setattr("agentloop.sessions.lease.ENDING_SECONDS", 600)
    may.set()
    assert (await runner.run("Me too", session_id="s")).output == "second"
    assert task.cancelled()


async def test_a_run_of_a_task_that_outlived_a_cancellation_is_at_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agentloop.sessions.lease.ENDING_SECONDS", 600)
    store, gate, begun = InMemoryStore(), Gate(), asyncio.Event()
    runner = runner_for([calls(wait={}), "first"], gate.wait, store=store)

    async def stubborn() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            begun.set()
            await asyncio.Event().wait()
        await runner.run("Go", session_id="s")

    task = asyncio.create_task(stubborn())
    await until(begun)
    task.cancel()
    await until(gate.inside)
    async with asyncio.timeout(120):
        with pytest.raises(SessionBusyError):
            await runner_for(["second"], store=store).run("Me too", session_id="s")
    gate.go_on.set()
    await task


def test_a_run_on_another_loop_is_at_work_until_that_loop_has_closed_it() -> None:
    store, inside, go_on = InMemoryStore(), threading.Event(), threading.Event()

    def wait() -> str:
        """Wait."""
        inside.set()
        go_on.wait(120)
        return "waited"

    agent = Agent(ScriptedModel([calls(wait={}), "two"]), tools=[wait])
    with SyncRunner(agent, store=store, transcripts=None) as runner:
        for _ in runner.stream("one", session_id="s"):
            inside.wait(120)
            with pytest.raises(SessionBusyError):
                asyncio.run(runner_for(["never"], store=store).run("2", session_id="s"))
            go_on.set()
            break
        assert runner.run("go on", session_id="s").output == "two"
