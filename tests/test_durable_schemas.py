"""Who is parted from others by schema has runs of their own; an answer that is not in the store is told."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import sql

from agentloop import Agent
from agentloop.durable import RunQueue
from agentloop.durable.engine import schema_name
from agentloop.errors import StoreError
from agentloop.stores import PostgresStore, SessionStore
from agentloop.stream import AnyStreamEvent, RunEnded
from agentloop.testing import ScriptedModel
from tests import durable_work_kit
from tests.cli_kit import LONGEST_SECONDS, agentloop, line_of, started
from tests.durable_work_kit import at_work, over, said
from tests.postgres_kit import Server
from tests.store_kit import said as user

pytestmark = pytest.mark.deep

url, queue, store = durable_work_kit.url, durable_work_kit.queue, durable_work_kit.store
in_a_folder_of_its_own = durable_work_kit.in_a_folder_of_its_own

TENANTS = ("a", 'B: c"% [d]')


@pytest.fixture(scope="module")
def parted(postgres: Server) -> Iterator[tuple[str, ...]]:
    """The URLs of tenants that are parted by schema, and that of one without a schema of its own."""
    with postgres.database() as url:
        with psycopg.connect(url, autocommit=True) as connection:
            for name in TENANTS:
                connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))
        yield *(behind(url, name) for name in TENANTS), url


def behind(url: str, schema: str) -> str:
    """The URL of that database with this schema before the others."""
    name = schema.replace('"', '""').replace(" ", "\\ ")
    path = quote(f'"{name}",public', safe="")
    return f"{url}&options=-csearch_path%3D{path}"


@asynccontextmanager
async def queues(urls: tuple[str, ...]) -> AsyncIterator[list[RunQueue]]:
    """A queue at each of these."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(RunQueue(url)) for url in urls]


async def test_a_worker_does_the_runs_of_its_own_schema_alone(parted: tuple[str, ...]) -> None:
    async with queues(parted) as each:
        ids = [await queue.submit(f"secret {n}", session_id="s") for n, queue in enumerate(each)]
        for n, (queue, url) in enumerate(zip(each, parted, strict=True)):
            async with at_work(Agent(ScriptedModel([f"answer {n}"])), url):
                assert (await over(queue, ids[n])).state == "answered"
            states = [[(run.id, run.state) for run in await other.runs()] for other in each]
            assert states == [[(ids[m], "answered" if m <= n else "queued")] for m in range(len(each))]
        assert [await queue.answer(run_id) for queue, run_id in zip(each, ids, strict=True)] == [
            f"answer {n}" for n in range(len(each))
        ]
    for n, url in enumerate(parted):
        store = PostgresStore(url)
        assert await said(store, "s") == [("user", f"secret {n}"), ("assistant", f"answer {n}")]
        await store.close()


async def test_a_database_without_schemas_keeps_the_name_that_dbos_gives(url: str, queue: RunQueue) -> None:
    await queue.cancel(await queue.submit("Hello."))
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'dbos%'").fetchall()
    assert found == [("dbos",)]


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1).filter(
    lambda name: len(name.encode()) <= 63
)


@given(NAMES | st.from_regex(r"[a-z_-]{50,63}", fullmatch=True), NAMES)
def test_no_two_schemas_share_one_of_dbos(one: str, other: str) -> None:
    made = schema_name(one)
    assert len(made.encode()) <= 63
    for each in (other, made.removeprefix("dbos_")):
        assert (made == schema_name(each)) == (one == each)


async def refused(queue: RunQueue, run_id: str) -> None:
    """Who asks for the answer, or waits for it, is told that it is lost."""
    for call in (queue.answer(run_id), queue.wait(run_id)):
        with pytest.raises(StoreError, match="has nothing of it in the session 'gone': that was deleted"):
            await call


async def test_an_answer_whose_session_is_gone_is_an_error_and_the_run_is_shown(
    url: str, queue: RunQueue, store: SessionStore, tmp_path: Path
) -> None:
    run_id = await queue.submit("Hello.", session_id="gone")
    async with at_work(Agent(ScriptedModel(["hi"])), url):
        assert (await over(queue, run_id)).state == "answered"
    await store.delete("gone")
    await refused(queue, run_id)
    # Another session of that id has nothing of the run either.
    await store.append("gone", [user("another")], expect=0)
    await refused(queue, run_id)
    shown = agentloop("runs", run_id, "--store", url, cwd=tmp_path)
    assert (shown.status, "state: answered" in shown.out) == (0, True)
    assert "has nothing of it in the session 'gone'" in shown.err


async def test_who_waits_for_an_answer_that_is_lost_is_told_so(url: str, tmp_path: Path) -> None:
    def lose(event: AnyStreamEvent) -> None:
        if isinstance(event, RunEnded):
            with psycopg.connect(url) as connection:
                connection.execute("DELETE FROM agentloop_sessions WHERE id = %s", [event.session_id])
                connection.execute("DELETE FROM agentloop_events WHERE session_id = %s", [event.session_id])

    with started("submit", "Hi", "--wait", "--store", url, cwd=tmp_path) as waiting:
        run_id = line_of(waiting.stderr).split()[2]
        async with at_work(Agent(ScriptedModel(["hi"])), url, on_event=lose):
            out, err = await asyncio.to_thread(waiting.communicate, timeout=LONGEST_SECONDS)
    assert (waiting.returncode, out) == (1, "")
    assert f"run {run_id} was answered, but this store has nothing of it" in err
