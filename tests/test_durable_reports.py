"""What is told of durable runs: why one failed, the faults of a database, and no secrets anywhere."""

import asyncio
import logging
import socket

import psycopg
import pytest
from psycopg import sql

from agentloop import Agent, Secrets
from agentloop.durable import RunQueue
from agentloop.durable import engine as durable_database
from agentloop.errors import ModelRefusedError, ModelUnavailableError, StoreError
from agentloop.events import RunEndRecord
from agentloop.stores import SessionStore
from agentloop.testing import FailingModel, ScriptedModel, calls
from tests import durable_work_kit
from tests.durable_work_kit import Gate, at_work, echo, over
from tests.kit import until
from tests.postgres_kit import Server

pytestmark = pytest.mark.deep

url, queue, store = durable_work_kit.url, durable_work_kit.queue, durable_work_kit.store
no_run_is_left = durable_work_kit.no_run_is_left
in_a_folder_of_its_own = durable_work_kit.in_a_folder_of_its_own
SECRET = "sk-proj-" + "a1B2" * 12


def all_of_dbos(url: str) -> str:
    """All that stands in any of DBOS's tables."""
    with psycopg.connect(url) as connection:
        names = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'dbos'").fetchall()
        queries = [sql.SQL("SELECT * FROM dbos.{}").format(sql.Identifier(name)) for (name,) in names]
        return "\n".join(str(connection.execute(query).fetchall()) for query in queries)


@pytest.mark.parametrize(
    ("error", "state", "requests"),
    [
        (ModelUnavailableError("no connection"), "try_later", 5),
        (ModelRefusedError(f"bad key {SECRET}", status=401), "failed", 1),
    ],
)
async def test_a_run_that_fails_says_why_and_the_log_tells_its_end(
    url: str, queue: RunQueue, store: SessionStore, error: Exception, state: str, requests: int
) -> None:
    model = FailingModel(error)
    run_id = await queue.submit("Are you there?", session_id=f"fails-{state}")
    async with at_work(Agent(model), url, retry_seconds=0.01, redact=Secrets()):
        run = await over(queue, run_id)
    assert (run.state, len(model.requests)) == (state, requests)
    assert run.error is not None
    assert SECRET not in run.error
    ends = [r.event.status for r in await store.read(f"fails-{state}") if isinstance(r.event, RunEndRecord)]
    assert ends == [state]


async def test_no_secret_and_no_text_of_a_run_stands_in_the_tables_of_dbos(url: str) -> None:
    model = ScriptedModel([calls(("echo", {"text": f"tool {SECRET}"})), "the whole answer"])
    async with RunQueue(url, redact=Secrets()) as queue:
        run_id = await queue.submit(f"My key is {SECRET}.")
        async with at_work(Agent(model, tools=[echo]), url, redact=Secrets()):
            assert (await over(queue, run_id)).state == "answered"
    tables = all_of_dbos(url)
    assert "My key is" in tables
    assert SECRET not in tables
    assert "heard tool" not in tables
    assert "the whole answer" not in tables


async def test_a_database_that_allows_no_tables_is_told_as_every_fault_of_a_store(
    postgres: Server, database: str
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS weak")
        connection.execute("CREATE ROLE weak LOGIN")
        weak = postgres.url_of(connection.info.dbname, user="weak")
    async with RunQueue(weak) as queue:
        with pytest.raises(StoreError, match="permission denied"):
            await queue.runs()


async def test_a_server_that_accepts_and_says_nothing_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(durable_database, "CONNECT_SECONDS", 2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        async with RunQueue(f"postgresql://me@127.0.0.1:{server.getsockname()[1]}/x") as queue:
            with pytest.raises(StoreError, match="timeout"):
                await asyncio.wait_for(queue.runs(), timeout=60)


async def test_a_worker_that_could_not_hand_its_runs_back_does_not_say_that_it_did(
    url: str, queue: RunQueue
) -> None:
    gate, lines = Gate(), list[str]()
    agent = Agent(ScriptedModel([calls(("wait", {})), "done"]), tools=[gate.wait])
    run_id = await queue.submit("Go through.", session_id="kept")
    with psycopg.connect(url, autocommit=True) as connection:
        try:
            async with at_work(agent, url, grace_seconds=0.05, on_notice=lines.append):
                await until(gate.entered)
                connection.execute("ALTER TABLE dbos.workflow_status RENAME TO elsewhere")
        finally:
            connection.execute("ALTER TABLE dbos.elsewhere RENAME TO workflow_status")
    assert (await queue.run(run_id)).state == "running"
    assert lines[-1].startswith("stopped: the database did not take its runs back")
    assert not any("handed back" in line for line in lines)
    await queue.cancel(run_id)


async def test_nothing_is_printed_and_no_logging_of_the_host_is_touched(
    url: str, queue: RunQueue, capfd: pytest.CaptureFixture[str]
) -> None:
    before = (list(logging.root.handlers), logging.root.level)
    run_id = await queue.submit("Quiet.")
    async with at_work(Agent(ScriptedModel(["…"])), url):
        await over(queue, run_id)
    assert (list(logging.root.handlers), logging.root.level) == before
    assert capfd.readouterr() == ("", "")
