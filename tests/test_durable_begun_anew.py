"""The session of a durable run, deleted and begun anew by others: nothing of the run is written to theirs."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from agentloop import Agent
from agentloop.durable import RunQueue, leases
from agentloop.errors import StoreError
from agentloop.events import Described, Event
from agentloop.sessions import new_lease
from agentloop.stores import PostgresStore, SessionStore
from agentloop.stores.base import GrantsLeases, Lease
from agentloop.testing import ScriptedModel, calls
from tests import durable_work_kit
from tests.durable_work_kit import Gate, at_work, over
from tests.kit import until

url, queue, store = durable_work_kit.url, durable_work_kit.queue, durable_work_kit.store
no_run_is_left = durable_work_kit.no_run_is_left
in_a_folder_of_its_own = durable_work_kit.in_a_folder_of_its_own


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Keeps the executions of a run from renewing their lease."""
    parted = [""]
    take_lease = PostgresStore.take_lease

    async def taken(self: PostgresStore, session_id: str, lease: Lease, **options: Any) -> Lease:
        if parted[0] and lease.holder.startswith(parted[0]):
            raise StoreError("out of reach")
        return await take_lease(self, session_id, lease, **options)

    monkeypatch.setattr(PostgresStore, "take_lease", taken)
    return lambda run_id: parted.__setitem__(0, run_id)


async def begun_anew(store: SessionStore, session_id: str, *, longer: int = 0) -> list[Event]:
    """What others have in the session, which they have deleted: so many records more than there were."""
    length = len(await store.read(session_id)) + longer
    theirs: list[Event] = [Described(title=f"theirs {n}") for n in range(length)]
    await store.delete(session_id)
    await store.append(session_id, theirs, expect=0)
    return theirs


@pytest.mark.deep
async def test_a_run_whose_lease_ran_out_writes_nothing_to_a_log_begun_anew(
    url: str,
    queue: RunQueue,
    store: SessionStore,
    part: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert isinstance(store, GrantsLeases)
    monkeypatch.setattr(leases, "LEASE_SECONDS", 1.0)
    gate, model, other = Gate(), ScriptedModel([calls(("wait", {})), "Ann's answer"]), new_lease()
    run_id = await queue.submit("Ann asks", session_id="lapsed")
    async with at_work(Agent(model, tools=[gate.wait]), url):
        await until(gate.entered)
        part(run_id)
        while (await store.take_lease("lapsed", other, seconds=60.0)) != other:  # noqa: ASYNC110 — it runs out
            await asyncio.sleep(0.02)
        await store.free_lease("lapsed", other.holder)
        theirs = await begun_anew(store, "lapsed")
        gate.leave.set()
        run = await over(queue, run_id)
    assert (run.state, len(model.requests)) == ("failed", 1)
    assert "deleted" in str(run.error)
    assert [record.event for record in await store.read("lapsed")] == theirs


@pytest.mark.deep
@pytest.mark.parametrize("longer", [-2, 0, 2])
async def test_a_run_that_another_worker_goes_on_with_writes_nothing_to_a_log_begun_anew(
    url: str, queue: RunQueue, store: SessionStore, longer: int
) -> None:
    gate, model, name = Gate(), ScriptedModel([calls(("wait", {})), "Ann's answer"]), f"handed{longer}"
    run_id = await queue.submit("Ann asks", session_id=name)
    async with at_work(Agent(model, tools=[gate.wait]), url, grace_seconds=0.05):
        await until(gate.entered)
    assert (await queue.run(run_id)).state == "queued"
    theirs = await begun_anew(store, name, longer=longer)
    async with at_work(Agent(model, tools=[gate.wait]), url):
        run = await over(queue, run_id)
    assert (run.state, len(model.requests)) == ("failed", 1)
    assert "deleted" in str(run.error)
    assert [record.event for record in await store.read(name)] == theirs
