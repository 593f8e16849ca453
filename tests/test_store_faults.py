"""What a store does with sessions that are worked on, bad values, damaged records and connections that failed."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agentloop import Agent, Runner, tool
from agentloop.errors import ConflictError, SessionBusyError
from agentloop.events import Described, Event, MessageAdded
from agentloop.messages import Message
from agentloop.stores import InMemoryStore, PostgresStore, SQLiteStore
from agentloop.stores.base import Lease
from agentloop.testing import ScriptedModel, calls
from tests.cli_kit import Finished, agentloop

AnyStore = InMemoryStore | SQLiteStore | PostgresStore


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AnyStore]:
    """Each store of the package, empty."""
    made = made_store(request, tmp_path)
    yield made
    await made.close()


def made_store(request: pytest.FixtureRequest, tmp_path: Path) -> AnyStore:
    match request.param:
        case "memory":
            return InMemoryStore()
        case "sqlite":
            return SQLiteStore(tmp_path / "sessions.db")
        case _:
            return PostgresStore(request.getfixturevalue("database"), retry_seconds=5)


def said(text: str, time: float = 1.0) -> MessageAdded:
    return MessageAdded(message=Message.user(text), tokens=1, time=time)


def lease(holder: str = "h", **fields: Any) -> Lease:
    return Lease(**({"holder": holder, "place": "p", "pid": 1, "started": "1", "since": 1.0} | fields))


async def test_no_run_writes_into_a_session_that_was_begun_again_under_its_id(store: AnyStore) -> None:
    at_work, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def look_up() -> str:
        """Look the balance up."""
        at_work.set()
        await go_on.wait()
        return "ann's balance: 100"

    anns_model = ScriptedModel([calls(("look_up", {})), "done"])
    anns = Runner(Agent(anns_model, tools=[look_up]), store=store, owner="ann", transcripts=None)
    bobs = Runner(Agent(ScriptedModel(["hello bob"])), store=store, owner="bob", transcripts=None)
    run = asyncio.create_task(anns.run("go", session_id="main"))
    await at_work.wait()
    assert await store.delete("main")
    with pytest.raises(SessionBusyError):
        await bobs.run("hi", session_id="main")
    go_on.set()
    with pytest.raises(ConflictError):
        await run
    assert (await bobs.run("hi", session_id="main")).output == "hello bob"
    assert "balance" not in str(await store.read("main"))


async def test_a_sweep_leaves_a_session_under_its_run(store: AnyStore) -> None:
    swept: list[object] = []

    @tool
    async def look_up() -> str:
        """Look the balance up."""
        swept.extend(await store.sweep(now=1e12))
        return "100"

    model = ScriptedModel([calls(("look_up", {})), "done"])
    runner = Runner(Agent(model, tools=[look_up]), store=store, ttl_seconds=0.001, transcripts=None)
    result = await runner.run("go", session_id="s")
    assert (result.output, swept) == ("done", [])
    assert [info.id for info in await store.sweep(now=1e12)] == ["s"]


async def test_a_lease_that_ran_out_goes_with_a_sweep(store: AnyStore) -> None:
    long_ago: list[Event] = [Described(ttl_seconds=1.0, time=1.0)]
    await store.append("s", long_ago, expect=0)
    await store.take_lease("s", lease(), seconds=1e-6)
    assert [info.id for info in await store.sweep(now=7.0)] == ["s"]


async def test_delete_leaves_a_session_under_its_run_unless_it_is_forced(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "agentloop" / "sessions.db")

    @tool
    async def call_delete(force: bool) -> str:
        """Delete this session and another from outside."""
        forced = ["--force"] if force else []
        ended = await asyncio.to_thread(
            agentloop, "sessions", "delete", "free", "held", "--yes", *forced, cwd=tmp_path
        )
        tried.append(ended)
        return "tried"

    tried: list[Finished] = []
    await store.append("free", [said("one")], expect=0)
    model = ScriptedModel([calls(("call_delete", {"force": force})) for force in (False, True)])
    with pytest.raises(ConflictError):
        await Runner(Agent(model, tools=[call_delete]), store=store, transcripts=None).run(
            "go", session_id="held"
        )
    refused, forced = tried
    assert refused.status not in (0, 2)
    assert "session 'held' is busy: process" in refused.complaint()
    assert "--force" in refused.complaint()
    assert len(forced.err.splitlines()) == 2, forced.err
    assert await store.list() == ()
    await store.close()
