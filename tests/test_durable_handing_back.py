"""Workers that are told to stop: what is in flight has its grace, and the runs are handed back."""

import asyncio
import threading

import psycopg
import pytest

from agentloop import Agent, tool
from agentloop.durable import RunQueue, Worker
from agentloop.events import RunStartRecord
from agentloop.prompts import INTERRUPTED
from agentloop.stores import SessionStore
from agentloop.testing import ScriptedModel, calls
from tests import durable_work_kit
from tests.durable_work_kit import Gate, at_work, over, said
from tests.kit import until

pytestmark = pytest.mark.deep

url, queue, store = durable_work_kit.url, durable_work_kit.queue, durable_work_kit.store
no_run_is_left = durable_work_kit.no_run_is_left


async def test_a_worker_told_to_stop_lets_what_is_in_flight_end_and_hands_the_run_back(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    gate = Gate()
    model = ScriptedModel([calls(("wait", {})), "done"])
    agent = Agent(model, tools=[gate.wait])
    run_id = await queue.submit("Go through.", session_id="handed-back")
    async with at_work(agent, url, grace_seconds=20.0) as worker:
        await until(gate.entered)
        worker.stop()
        gate.leave.set()
    assert (await queue.run(run_id)).state == "queued"
    async with at_work(agent, url):
        run = await over(queue, run_id)
    assert (run.state, run.tries, gate.times) == ("answered", 2, 1)
    assert ("tool", "through") in await said(store, "handed-back")
    assert [type(r.event) for r in await store.read("handed-back")].count(RunStartRecord) == 1


async def test_a_tool_that_outlasts_the_grace_is_cut_off_and_told_as_interrupted(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    gate, tries = Gate(), []

    @tool(idempotent=True)
    async def again() -> str:
        """Wait at the gate the first time."""
        tries.append(1)
        return await gate.wait() if len(tries) == 1 else "through"

    model = ScriptedModel([calls(("wait", {}), ("again", {})), "done"])
    run_id = await queue.submit("Go through.", session_id="cut-off")
    async with at_work(Agent(model, tools=[gate.wait, again]), url, grace_seconds=0.05):
        await until(gate.entered)
    assert (await queue.run(run_id)).state == "queued"
    async with at_work(Agent(model, tools=[gate.wait, again]), url):
        assert (await over(queue, run_id)).state == "answered"
    results = [text for role, text in await said(store, "cut-off") if role == "tool"]
    assert sorted(results) == sorted([INTERRUPTED, "through"])
    assert (len(tries), gate.times) == (2, 2)


async def test_a_hand_back_has_time_of_its_own_however_short_the_grace_is(url: str, queue: RunQueue) -> None:
    gate = Gate()
    agent = Agent(ScriptedModel([calls(("wait", {}))]), tools=[gate.wait])
    run_id = await queue.submit("Go through.", session_id="slowly")
    worker = Worker(agent, url, transcripts=None, poll_seconds=0.05, grace_seconds=0.05)
    working = asyncio.create_task(worker.run())
    await until(gate.entered)
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute("LOCK TABLE dbos.workflow_status IN ACCESS EXCLUSIVE MODE")
        worker.stop()
        await asyncio.wait({working}, timeout=0.5)
    await asyncio.wait_for(working, timeout=60)
    assert (await queue.run(run_id)).state == "queued"
    await queue.cancel(run_id)


async def test_a_hand_back_that_fails_leaves_nothing_of_the_worker_behind(url: str, queue: RunQueue) -> None:
    gate = Gate()
    agent = Agent(ScriptedModel([calls(("wait", {})), "done"]), tools=[gate.wait])
    run_id = await queue.submit("Go through.", session_id="not-handed-back")
    threads = set(threading.enumerate())
    with psycopg.connect(url, autocommit=True) as connection:
        try:
            async with at_work(agent, url, grace_seconds=0.05):
                await until(gate.entered)
                connection.execute("ALTER TABLE dbos.workflow_status RENAME TO elsewhere")
        finally:
            connection.execute("ALTER TABLE dbos.elsewhere RENAME TO workflow_status")
    assert [each.name for each in threading.enumerate() if each not in threads and "dbos" in each.name] == []
    assert (await queue.run(run_id)).state == "running"
    async with at_work(agent, url):
        assert (await over(queue, run_id)).state == "answered"


async def test_a_worker_stopped_again_and_again_still_gives_its_runs_the_whole_grace(
    url: str, queue: RunQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    agent = Agent(ScriptedModel([calls(("wait", {})), "done"]), tools=[gate.wait])
    run_id = await queue.submit("Go through.", session_id="stopped-again")
    worker = Worker(agent, url, transcripts=None, poll_seconds=0.05, grace_seconds=60)
    working = asyncio.create_task(worker.run())
    await until(gate.entered)
    for _ in range(3):
        working.cancel()
        await asyncio.wait({working}, timeout=0.05)
    loop = asyncio.get_running_loop()
    now = loop.time
    monkeypatch.setattr(loop, "time", lambda: now() + 30)
    await asyncio.wait({working}, timeout=0.3)
    gate.leave.set()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(working, timeout=60)
    assert (await queue.run(run_id)).state == "queued"
    async with at_work(agent, url):
        assert (await over(queue, run_id)).state == "answered"
    assert gate.times == 1
