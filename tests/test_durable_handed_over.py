"""Durable runs that are handed over: they keep their session, or go on behind whoever had it all the same."""

import asyncio
import subprocess
import sys
from dataclasses import replace

import pytest

from agentloop import Agent, Limits, Runner
from agentloop._plumbing.processes import this_process
from agentloop.durable import RunQueue
from agentloop.errors import SessionBusyError
from agentloop.events import RunEndRecord, RunStartRecord
from agentloop.models import ModelRequest
from agentloop.prompts import INTERRUPTED
from agentloop.sessions import new_lease
from agentloop.stores import SessionStore
from agentloop.stores.base import GrantsLeases, Lease
from agentloop.stream import RunStarted
from agentloop.testing import ScriptedModel, calls
from tests import durable_work_kit
from tests.durable_work_kit import Gate, Heard, at_work, looked_at, over, said
from tests.kit import assert_valid, until

pytestmark = pytest.mark.deep

url, queue, store = durable_work_kit.url, durable_work_kit.queue, durable_work_kit.store
no_run_is_left = durable_work_kit.no_run_is_left
in_a_folder_of_its_own = durable_work_kit.in_a_folder_of_its_own


async def handed_back(url: str, queue: RunQueue, session_id: str, model: ScriptedModel) -> str:
    """A run whose worker was told to stop while a tool of it, `wait`, was in flight.

    It keeps its session for 30 seconds, which is more than a test takes from here to its next look.
    """
    gate = Gate()
    run_id = await queue.submit("Go through.", session_id=session_id)
    async with at_work(Agent(model, tools=[gate.wait]), url, grace_seconds=0.05):
        await until(gate.entered)
    assert (await queue.run(run_id)).state == "queued"
    return run_id


async def held(store: SessionStore, session_id: str) -> Lease:
    """The lease that is left on the session."""
    assert isinstance(store, GrantsLeases)
    mine = new_lease()
    left = await store.take_lease(session_id, mine, seconds=60.0)
    assert left != mine
    return left


async def run_out(store: SessionStore, session_id: str) -> None:
    """As if the time of the lease were over."""
    assert isinstance(store, GrantsLeases)
    await store.free_lease(session_id, (await held(store, session_id)).holder)


def gone() -> int:
    """The id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


async def other(store: SessionStore, session_id: str) -> None:
    """Somebody else's run, from its prompt to its answer."""
    theirs = Runner(Agent(ScriptedModel(["theirs"])), store=store, transcripts=None)
    assert (await theirs.run("How far are you?", session_id=session_id)).output == "theirs"


async def test_a_run_that_is_handed_back_keeps_its_session_from_runs_of_other_queues(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    model, begun = ScriptedModel([calls(("wait", {})), "done", "by night"]), Heard(RunStarted)
    run_id = await handed_back(url, queue, "two-queues", model)
    waits = await queue.submit("By night.", session_id="two-queues", queue="night")
    agent = Agent(model, tools=[Gate().wait])
    async with at_work(agent, url, queues=["night"], on_event=begun, grace_seconds=0.05):
        for _ in range(2):
            await looked_at(url, "two-queues")
    assert not begun.is_heard.is_set()
    async with at_work(agent, url, queues=["agentloop", "night"]):
        assert [(await over(queue, each)).state for each in (run_id, waits)] == ["answered"] * 2
    asked = [text for role, text in await said(store, "two-queues") if role != "tool" and text]
    assert asked == ["Go through.", "done", "By night.", "by night"]


async def test_a_run_that_is_handed_over_keeps_its_session_though_its_process_is_gone(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    assert isinstance(store, GrantsLeases)
    model = ScriptedModel([calls(("wait", {})), "done"])
    run_id = await handed_back(url, queue, "killed", model)
    left = await held(store, "killed")
    dead = replace(left, pid=gone(), started="")
    assert await store.take_lease("killed", dead, seconds=60.0, over=left.holder) == dead
    theirs = Runner(Agent(ScriptedModel(["theirs"])), store=store, transcripts=None)
    with pytest.raises(SessionBusyError, match=f"process {dead.pid} on {this_process().host} works on it"):
        await theirs.run("How far are you?", session_id="killed")
    patient = Runner(Agent(ScriptedModel(["theirs"])), store=store, transcripts=None, when_busy="wait")
    waiting = asyncio.create_task(patient.run("How far are you?", session_id="killed"))
    await looked_at(url, "killed")
    async with at_work(Agent(model, tools=[Gate().wait]), url):
        assert (await over(queue, run_id)).state == "answered"
        await asyncio.wait_for(waiting, timeout=60)
    asked = [text for role, text in await said(store, "killed") if role != "tool" and text]
    assert asked == ["Go through.", "done", "How far are you?", "theirs"]


async def test_a_run_whose_lease_ran_out_goes_on_behind_whoever_had_its_session_then(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    gate, model = Gate(), ScriptedModel([calls(("wait", {})), "done"])
    run_id = await handed_back(url, queue, "behind", model)
    await run_out(store, "behind")
    await other(store, "behind")
    async with at_work(Agent(model, tools=[gate.wait]), url):
        run = await over(queue, run_id)
    assert (run.state, run.error, gate.times) == ("answered", None, 0)
    assert await queue.answer(run_id) == "done"
    assert [text for _, text in await said(store, "behind")] == [
        "Go through.",
        "",
        INTERRUPTED,
        "How far are you?",
        "theirs",
        "Go through.",
        "done",
    ]
    edges = [
        r.event for r in await store.read("behind") if isinstance(r.event, RunStartRecord | RunEndRecord)
    ]
    assert [edge.run_id == run_id for edge in edges] == [True, False, False, True]
    assert_valid(model.requests)


async def test_a_run_that_another_went_on_with_has_that_answer_and_is_not_done_again(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    gate, model = Gate(), ScriptedModel([calls(("wait", {})), "never asked"])
    run_id = await handed_back(url, queue, "finished", model)
    await run_out(store, "finished")
    theirs = Runner(Agent(ScriptedModel(["done by hand"]), tools=[gate.wait]), store=store, transcripts=None)
    assert (await theirs.resume("finished")).output == "done by hand"
    async with at_work(Agent(model, tools=[gate.wait]), url):
        run = await over(queue, run_id)
    assert (run.state, run.error, len(model.requests)) == ("answered", None, 1)
    assert await queue.answer(run_id) == "done by hand"
    await other(store, "finished")
    assert await queue.answer(run_id) == "done by hand"
    asked = [text for role, text in await said(store, "finished") if role == "user"]
    assert asked == ["Go through.", "How far are you?"]


async def test_each_run_that_comes_in_between_has_the_prompt_said_once_more_and_limits_count_all(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    gate = Gate()

    def once_more(request: ModelRequest) -> list[object]:
        assert request.messages[-1]["content"] == "Go through."
        return list(calls(("wait", {})))

    model = ScriptedModel([calls(("wait", {})), once_more, once_more, "never asked"])  # type: ignore[list-item]
    agent, limits = Agent(model, tools=[gate.wait]), Limits(steps=3)
    run_id = await handed_back(url, queue, "again", model)
    for _ in range(2):
        await run_out(store, "again")
        await other(store, "again")
        gate.entered.clear()
        async with at_work(agent, url, grace_seconds=0.05, limits=limits):
            await until(gate.entered)
    gate.leave.set()
    async with at_work(agent, url, limits=limits):
        run = await over(queue, run_id)
    assert (run.state, run.error, len(model.requests)) == (
        "limit",
        "the limit of 3 model calls is reached",
        3,
    )
    asked = [text for role, text in await said(store, "again") if role == "user"]
    assert asked == ["Go through.", "How far are you?"] * 2 + ["Go through."]
    assert_valid(model.requests)


async def test_a_run_cancelled_and_resumed_goes_on_behind_what_was_said_meanwhile(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    gate = Gate()
    run_id = await queue.submit("Go through.", session_id="went-on")
    model = ScriptedModel([calls(("wait", {})), "of the other run", "done"])
    async with at_work(Agent(model, tools=[gate.wait]), url):
        await until(gate.entered)
        await queue.cancel(run_id)
        another = await queue.submit("Something else.", session_id="went-on")
        assert (await over(queue, another)).state == "answered"
        await queue.resume(run_id)
        run = await over(queue, run_id)
    assert (run.state, run.error, gate.times) == ("answered", None, 1)
    assert [text for _, text in await said(store, "went-on")] == [
        "Go through.",
        "",
        INTERRUPTED,
        "Something else.",
        "of the other run",
        "Go through.",
        "done",
    ]
    assert [await queue.answer(each) for each in (another, run_id)] == ["of the other run", "done"]
    assert_valid(model.requests)


async def test_a_run_that_is_deleted_after_its_hand_over_gives_its_session_up(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    run_id = await handed_back(url, queue, "given-up", ScriptedModel([calls(("wait", {}))]))
    await queue.cancel(run_id)
    await queue.delete(run_id)
    await other(store, "given-up")
