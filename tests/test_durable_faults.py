"""Durable runs whose session, database, model or worker misbehaves: what the log says, and who is told."""

import asyncio
import contextlib
from collections.abc import MutableMapping
from typing import Any

import psycopg
import pytest

from agentloop import Agent, Runner, Secrets, UsageError
from agentloop.durable import RunQueue
from agentloop.errors import ModelRefusedError, ModelUnavailableError, SessionBusyError, StoreError
from agentloop.events import Described, MessageRecord, RunEndRecord
from agentloop.messages import Message, Usage
from agentloop.models import ModelRequest
from agentloop.stores import SessionStore
from agentloop.stream import AnyStreamEvent
from agentloop.testing import FailingModel, ScriptedModel, calls
from tests import durable_work_kit
from tests.durable_work_kit import Gate, at_work, become, locked_out, over, said
from tests.kit import until

pytestmark = pytest.mark.deep

SECRET = "sk-proj-" + "a1B2" * 12


url, queue, store = durable_work_kit.url, durable_work_kit.queue, durable_work_kit.store
no_run_is_left = durable_work_kit.no_run_is_left
in_a_folder_of_its_own = durable_work_kit.in_a_folder_of_its_own
configured = durable_work_kit.configured


async def ends(store: SessionStore, session_id: str) -> list[RunEndRecord]:
    """The ends of runs that the log holds."""
    return [r.event for r in await store.read(session_id) if isinstance(r.event, RunEndRecord)]


def refuse_records(url: str, session_id: str, times: int) -> None:
    """Have the database refuse so many records of a session, as a full disc does."""
    refusal = """
        CREATE SEQUENCE refusals;
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
          IF nextval('refusals') <= TG_ARGV[0]::int THEN
            RAISE EXCEPTION 'no space left on device' USING ERRCODE = '53100';
          END IF;
          RETURN NEW;
        END $$;
    """
    trigger = (
        "CREATE TRIGGER refuse BEFORE INSERT ON agentloop_events FOR EACH ROW"
        f" WHEN (NEW.session_id = '{session_id}') EXECUTE FUNCTION refuse({times})"
    )
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(refusal)
        connection.execute(trigger)


async def test_a_tool_whose_result_cannot_be_stored_is_not_run_again(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    gate = Gate()
    agent = Agent(ScriptedModel([calls(("wait", {})), "done"]), tools=[gate.wait])
    run_id = await queue.submit("Go through.", session_id="refused")
    async with at_work(agent, url, retry_seconds=0.01):
        await until(gate.entered)
        refuse_records(url, "refused", times=3)
        gate.leave.set()
        run = await over(queue, run_id)
    assert (run.state, gate.times) == ("answered", 1)
    assert ("tool", "through") in await said(store, "refused")


async def test_a_run_whose_session_is_deleted_runs_no_tool_again_and_writes_nothing(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    gate = Gate()
    model = ScriptedModel([calls(("wait", {})), "done"])
    run_id = await queue.submit("Go through.", session_id="deleted")
    async with at_work(Agent(model, tools=[gate.wait]), url, retry_seconds=0.01):
        await until(gate.entered)
        await store.delete("deleted")
        gate.leave.set()
        run = await over(queue, run_id)
    assert (run.state, gate.times, len(model.requests)) == ("failed", 1, 1)
    assert "it was deleted meanwhile" in str(run.error)
    assert not await store.read("deleted")


async def test_a_run_whose_session_was_deleted_and_begun_anew_by_others_writes_nothing_to_theirs(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    theirs: list[Described] = []

    async def begun_anew(_: ModelRequest) -> str:
        length = len(await store.read("anew"))
        await store.delete("anew")
        theirs.extend(Described(title=f"theirs {n}") for n in range(length))
        await store.append("anew", theirs, expect=0)
        raise ModelUnavailableError("no connection")

    model = ScriptedModel([begun_anew, "never asked"])
    run_id = await queue.submit("Hello.", session_id="anew")
    async with at_work(Agent(model), url, retry_seconds=0.01):
        run = await over(queue, run_id)
    assert (run.state, len(model.requests)) == ("failed", 1)
    assert [record.event for record in await store.read("anew")] == theirs


async def test_a_run_that_is_refused_a_session_leaves_nothing_in_its_owners_log(
    url: str, store: SessionStore
) -> None:
    async with RunQueue(url, owner="bob") as bobs:
        run_id = await bobs.submit("Let me in.", session_id="of-ann")
        anns = [Described(owner="ann"), MessageRecord(message=Message.user("private"), tokens=1)]
        await store.append("of-ann", anns, expect=0)
        model = ScriptedModel(["never asked"])
        async with at_work(Agent(model), url):
            run = await over(bobs, run_id)
        assert (run.state, len(model.requests)) == ("usage", 0)
        assert await bobs.answer(run_id) == ""
    assert [record.event for record in await store.read("of-ann")] == anns


async def test_the_end_of_another_run_is_not_taken_for_ones_own(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    gate = Gate()
    run_id = await queue.submit("Go through.", session_id="two-ends")
    async with at_work(Agent(ScriptedModel([calls(("wait", {})), "done"]), tools=[gate.wait]), url):
        await until(gate.entered)
        other = RunEndRecord(run_id="another", status="answered", usage=Usage())
        await store.append("two-ends", [other], expect=len(await store.read("two-ends")))
        gate.leave.set()
        assert (await over(queue, run_id)).state == "answered"
    assert [end.run_id for end in await ends(store, "two-ends")] == ["another", run_id]


def refused_end(url: str) -> psycopg.Connection:
    """A connection that keeps everybody from writing to a log until it is closed."""
    connection = psycopg.connect(url)
    connection.execute("LOCK TABLE agentloop_events IN EXCLUSIVE MODE")
    return connection


async def deleted(queue: RunQueue, run_id: str) -> None:
    """Delete the run once its worker has let go of it."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(SessionBusyError):
                return await queue.delete(run_id)
            await asyncio.sleep(0.02)


async def test_a_run_that_its_worker_has_not_let_go_of_is_not_deleted(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    gate = Gate()
    agent = Agent(ScriptedModel([calls(("wait", {})), "never asked"]), tools=[gate.wait])
    run_id = await queue.submit("Go through.", session_id="still-held")
    async with at_work(agent, url):
        await until(gate.entered)
        with refused_end(url):
            assert (await queue.cancel(run_id)).state == "cancelled"
            with pytest.raises(SessionBusyError, match="its worker still stops it"):
                await queue.delete(run_id)
        await deleted(queue, run_id)
        with pytest.raises(UsageError, match="there is no run"):
            await queue.run(run_id)
    assert ("tool", "through") not in await said(store, "still-held")
    assert [end.status for end in await ends(store, "still-held")] == ["interrupted"]


async def test_a_run_whose_session_another_run_works_on_is_deleted(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    gate = Gate()
    agent = Agent(ScriptedModel([calls(("wait", {})), "theirs"]), tools=[gate.wait])
    theirs = asyncio.create_task(Runner(agent, store=store).run("First.", session_id="anothers"))
    await until(gate.entered)
    run_id = await queue.submit("Second.", session_id="anothers")
    await queue.cancel(run_id)
    await queue.delete(run_id)
    gate.leave.set()
    assert (await theirs).output == "theirs"


async def test_nobody_works_on_a_session_while_a_run_of_it_is_deleted(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    run_id = await queue.submit("Hello.", session_id="deleting")
    await queue.cancel(run_id)
    chat = Runner(Agent(ScriptedModel(["hi"])), store=store)
    with psycopg.connect(url) as holding, psycopg.connect(url, autocommit=True) as watching:
        holding.execute("LOCK TABLE dbos.workflow_status IN EXCLUSIVE MODE")
        deleting = asyncio.create_task(queue.delete(run_id))
        await become(lambda: locked_out(watching, "workflow_status"))
        with pytest.raises(SessionBusyError, match="is busy"):
            await chat.run("Me too.", session_id="deleting")
    await asyncio.wait_for(deleting, timeout=60)
    assert (await chat.run("Me now.", session_id="deleting")).output == "hi"


async def test_a_run_deleted_while_its_worker_waits_for_the_session_gives_its_place_up(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    gate = Gate()
    chat = Runner(Agent(ScriptedModel([calls(("wait", {})), "theirs"]), tools=[gate.wait]), store=store)
    theirs = asyncio.create_task(chat.run("First.", session_id="waited-for"))
    await until(gate.entered)
    run_id = await queue.submit("Second.", session_id="waited-for")
    async with at_work(Agent(ScriptedModel(["elsewhere", "here"])), url, concurrency=1):
        async with asyncio.timeout(60):
            while (await queue.run(run_id)).state == "queued":  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        await queue.cancel(run_id)
        await queue.delete(run_id)
        assert (await over(queue, await queue.submit("Third."))).state == "answered"
        gate.leave.set()
        assert (await theirs).output == "theirs"
        assert (await over(queue, await queue.submit("Fourth.", session_id="waited-for"))).state == "answered"
    asked = [text for role, text in await said(store, "waited-for") if role == "user"]
    assert asked == ["First.", "Fourth."]


@pytest.mark.parametrize("error", [asyncio.CancelledError, GeneratorExit, SystemExit])
async def test_a_model_that_raises_what_ends_programs_fails_its_run(
    url: str, queue: RunQueue, store: SessionStore, error: type[BaseException]
) -> None:
    def reply(_: ModelRequest) -> str:
        raise error

    session_id = f"ends-{error.__name__}"
    run_id = await queue.submit("Are you there?", session_id=session_id)
    async with at_work(Agent(ScriptedModel([reply])), url):
        run = await over(queue, run_id)
    assert (run.state, error.__name__ in str(run.error)) == ("failed", True)
    assert [end.status for end in await ends(store, session_id)] == ["failed"]


async def test_who_is_told_of_events_and_raises_is_reported_and_the_run_goes_on(
    url: str, queue: RunQueue, configured: list[MutableMapping[str, Any]]
) -> None:
    def on_event(_: AnyStreamEvent) -> None:
        raise RuntimeError(f"nobody listens, {SECRET}")

    run_id = await queue.submit("Hello.", session_id="unheard")
    async with at_work(Agent(ScriptedModel(["hi"])), url, on_event=on_event, redact=Secrets()):
        run = await over(queue, run_id)
    assert (run.state, run.error) == ("answered", None)
    [told] = [entry for entry in configured if entry["event"] == "callback_failed"]
    assert (told["callback"], told["run_id"]) == ("on_event", run_id)
    assert "RuntimeError: nobody listens" in told["error"]
    assert SECRET not in str(configured)


async def test_errors_of_runs_are_shown_redacted(url: str, queue: RunQueue) -> None:
    model = FailingModel(ModelRefusedError(f"bad key {SECRET}", status=401))
    run_id = await queue.submit("Are you there?", session_id="leaks")
    async with at_work(Agent(model), url):
        assert SECRET in str((await over(queue, run_id)).error)
    async with RunQueue(url, redact=Secrets()) as careful:
        [listed] = await careful.runs(session_id="leaks")
        for seen in (listed, await careful.run(run_id), await over(careful, run_id)):
            assert "bad key" in str(seen.error)
            assert SECRET not in str(seen)


async def test_who_loses_the_database_while_waiting_is_told_that_the_run_is_not_lost(
    url: str, queue: RunQueue
) -> None:
    run_id = await queue.submit("Hello.")
    for asking in (queue.wait, queue.answer):
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("ALTER TABLE dbos.workflow_status RENAME TO elsewhere")
            try:
                with pytest.raises(StoreError, match=f"the queue cannot be used: .*; run {run_id} stays in"):
                    await asyncio.wait_for(asking(run_id), timeout=60)
            finally:
                connection.execute("ALTER TABLE dbos.elsewhere RENAME TO workflow_status")
    assert (await queue.cancel(run_id)).state == "cancelled"
