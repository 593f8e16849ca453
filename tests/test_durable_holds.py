"""The session of a durable run: who puts the run out, and what of it is known as a part of it."""

import asyncio
from dataclasses import replace

import pytest

from agentloop import Agent, Runner, tool
from agentloop.durable import RunQueue, leases
from agentloop.errors import SessionBusyError
from agentloop.prompts import INTERRUPTED
from agentloop.sessions import WhenBusy, new_lease
from agentloop.stores import SessionStore
from agentloop.stores.base import GrantsLeases
from agentloop.testing import ScriptedModel, calls
from tests import durable_work_kit
from tests.durable_work_kit import at_work, over, said
from tests.kit import until

pytestmark = pytest.mark.deep

url, queue, store = durable_work_kit.url, durable_work_kit.queue, durable_work_kit.store
no_run_is_left = durable_work_kit.no_run_is_left
in_a_folder_of_its_own = durable_work_kit.in_a_folder_of_its_own


class Endless:
    """A tool that ends only when it is cancelled; two of its calls go on side by side."""

    def __init__(self) -> None:
        self.both_entered = asyncio.Event()
        self.both_cancelled = asyncio.Event()
        self.cancelled = 0
        self._entered = 0

    async def wait(self) -> str:
        """Wait for ever."""
        self._entered += 1
        if self._entered == 2:
            self.both_entered.set()
        try:
            return str(await asyncio.Event().wait())
        except asyncio.CancelledError:
            self.cancelled += 1
            if self.cancelled == 2:
                self.both_cancelled.set()
            raise


async def test_a_plain_run_that_takes_over_ends_a_durable_one_with_its_tools(
    url: str, queue: RunQueue, store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "LEASE_SECONDS", 3.0)
    endless = Endless()
    model = ScriptedModel([calls(("wait", {}), ("wait", {})), "never asked"])
    run_id = await queue.submit("Wait.", session_id="taken")
    async with at_work(Agent(model, tools=[endless.wait]), url):
        await until(endless.both_entered)
        async with Runner(Agent(ScriptedModel(["theirs"])), store=url, when_busy="take_over") as theirs:
            assert (await theirs.run("Mine now.", session_id="taken")).output == "theirs"
        run = await over(queue, run_id)
    assert (run.state, endless.cancelled, len(model.requests)) == ("interrupted", 2, 1)
    assert "taken over by another run" in str(run.error)
    assert (await said(store, "taken"))[-1] == ("assistant", "theirs")


async def test_a_worker_whose_run_another_worker_has_stops_it_and_says_nothing_of_its_end(
    url: str, queue: RunQueue, store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(store, GrantsLeases)
    monkeypatch.setattr(leases, "LEASE_SECONDS", 3.0)
    endless = Endless()
    run_id = await queue.submit("Wait.", session_id="elsewhere")
    async with at_work(Agent(ScriptedModel([calls(("wait", {}), ("wait", {}))]), tools=[endless.wait]), url):
        await until(endless.both_entered)
        others = replace(new_lease(), holder=f"{run_id}.another")
        held = await store.take_lease("elsewhere", others, seconds=60.0)
        await store.take_lease("elsewhere", others, seconds=60.0, over=held.holder)
        await until(endless.both_cancelled)
    assert (await queue.run(run_id)).state == "queued"
    await store.free_lease("elsewhere", others.holder)
    async with at_work(Agent(ScriptedModel(["done"]), tools=[endless.wait]), url):
        assert (await over(queue, run_id)).state == "answered"
    assert [text for role, text in await said(store, "elsewhere") if role == "tool"] == [INTERRUPTED] * 2


@pytest.mark.parametrize("when_busy", ["refuse", "wait", "take_over"])
async def test_a_tool_that_runs_the_session_it_is_called_in_is_told_so(
    url: str, queue: RunQueue, store: SessionStore, when_busy: WhenBusy
) -> None:
    inner, session_id = ScriptedModel(["never asked"]), f"own-{when_busy}"

    @tool
    async def nest() -> str:
        """Run the session that this is a part of."""
        async with Runner(Agent(inner), store=url, when_busy=when_busy) as runner:
            return (await runner.run("Inside.", session_id=session_id)).output

    model = ScriptedModel([calls(("nest", {})), "done"])
    run_id = await queue.submit("Nest.", session_id=session_id)
    async with at_work(Agent(model, tools=[nest]), url):
        assert (await over(queue, run_id)).state == "answered"
    [told] = [text for role, text in await said(store, session_id) if role == "tool"]
    assert SessionBusyError.__name__ in told
    assert "held by the very run that asks for it" in told
    assert inner.requests == []
