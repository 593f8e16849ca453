"""Durable runs in queues: which are done when and by whom, whose they are, and orders that are refused."""

import asyncio
from itertools import pairwise
from typing import Any

import psycopg
import pytest

from agentloop import Agent, UsageError
from agentloop.durable import QueueLimits, Rate, RunQueue, Worker
from agentloop.events import Described
from agentloop.stores import SessionStore
from agentloop.testing import ScriptedModel, calls
from tests import durable_work_kit
from tests.durable_work_kit import Gate, answers, at_work, over
from tests.kit import until

url, queue, store = durable_work_kit.url, durable_work_kit.queue, durable_work_kit.store
no_run_is_left = durable_work_kit.no_run_is_left
in_a_folder_of_its_own = durable_work_kit.in_a_folder_of_its_own


@pytest.mark.deep
async def test_a_queue_begins_no_more_than_its_rate_and_runs_no_more_than_its_limit(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    ids = [await queue.submit(f"question {n}", queue="slow") for n in range(3)]
    limits = QueueLimits(name="slow", most=1, each=4, rate=Rate(runs=2, seconds=1.0))
    async with at_work(Agent(ScriptedModel(answers(3))), url, queues=[limits]):
        runs = [await over(queue, run_id) for run_id in ids]
    started = sorted(run.started or 0.0 for run in runs)
    assert round(started[2] - started[0], 3) >= 1.0
    logs = [await store.read(run.session_id) for run in runs]
    spans = sorted((log[0].event.time, log[-1].event.time) for log in logs)
    assert all(first[1] <= second[0] for first, second in pairwise(spans))
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT concurrency, worker_concurrency, partition_concurrency, rate_limit_max,"
            " rate_limit_period_sec FROM dbos.queues WHERE name = 'slow'"
        ).fetchone()
    assert row == (1, 1, 1, 2, 1.0)


@pytest.mark.deep
async def test_a_worker_takes_runs_of_its_own_queues_alone(url: str, queue: RunQueue) -> None:
    elsewhere = await queue.submit("not here", queue="elsewhere")
    here = await queue.submit("here", queue="here")
    async with at_work(Agent(ScriptedModel(["done"])), url, queues=["here"]):
        assert (await over(queue, here)).state == "answered"
    assert (await queue.run(elsewhere)).state == "queued"
    assert (await queue.cancel(elsewhere)).state == "cancelled"


@pytest.mark.deep
async def test_who_works_for_an_owner_sees_that_owners_runs_alone(url: str, store: SessionStore) -> None:
    async with RunQueue(url, owner="ann") as anns, RunQueue(url, owner="bob") as bobs:
        run_id = await anns.submit("Mine.", session_id="anns")
        async with at_work(Agent(ScriptedModel(["yours"])), url):
            assert (await over(anns, run_id)).state == "answered"
        assert [run.id for run in await anns.runs()] == [run_id]
        assert list(await bobs.runs()) == []
        with pytest.raises(UsageError, match="there is no run"):
            await bobs.cancel(run_id)
        with pytest.raises(UsageError, match="is taken"):
            await bobs.submit("Mine too.", session_id="anns")
    info = await store.info("anns")
    assert info is not None
    assert info.owner == "ann"


async def test_a_session_is_that_of_the_owner_whose_run_is_to_begin_it(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    async with RunQueue(url, owner="cleo") as cleos, RunQueue(url, owner="dan") as dans:
        first = await cleos.submit("Mine.", session_id="promised", queue="nobodys")
        with pytest.raises(UsageError, match="'promised' is taken by a run in the queue"):
            await dans.submit("Mine!", session_id="promised", queue="another")
        for waiting in (cleos, queue):
            await waiting.submit("More.", session_id="promised", queue="nobodys")
        await cleos.cancel(first)
        await cleos.submit("Still mine.", session_id="promised", queue="nobodys")
        await queue.submit("Somebody's.", session_id="dans", queue="nobodys")
        with pytest.raises(UsageError, match="'dans' is taken by a run in the queue"):
            await dans.submit("Mine?", session_id="dans")
        await store.append("dans", [Described(owner="dan")], expect=0)
        await dans.submit("Mine.", session_id="dans", queue="nobodys")
    for run in await queue.runs(only_open=True):
        await queue.cancel(run.id)


@pytest.mark.deep
async def test_a_run_that_is_cancelled_in_its_midst_says_when_it_began(url: str, queue: RunQueue) -> None:
    gate = Gate()
    agent = Agent(ScriptedModel([calls(("wait", {}))]), tools=[gate.wait])
    run_id = await queue.submit("Go through.")
    async with at_work(agent, url):
        await until(gate.entered)
        await queue.cancel(run_id)
    run = await queue.run(run_id)
    assert run.state == "cancelled"
    assert run.started is not None
    assert run.ended is not None
    assert run.submitted <= run.started <= run.ended


@pytest.mark.deep
async def test_a_session_that_begins_with_a_run_lives_as_long_as_that_says(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    with pytest.raises(UsageError, match="ttl_seconds"):
        await queue.submit("x", ttl_seconds=0)
    async with at_work(Agent(ScriptedModel(["one", "two"])), url):
        await over(queue, await queue.submit("First.", session_id="short-lived", ttl_seconds=60))
        await over(queue, await queue.submit("Second.", session_id="short-lived", ttl_seconds=3600))
    described = [r.event for r in await store.read("short-lived") if isinstance(r.event, Described)]
    assert [event.ttl_seconds for event in described] == [60.0]


async def test_one_process_has_one_worker(url: str, queue: RunQueue) -> None:
    run_id = await queue.submit("Are you at work?")
    async with at_work(Agent(ScriptedModel(["yes"])), url):
        await over(queue, run_id)
        with pytest.raises(UsageError, match="a worker runs in this process already"):
            await Worker(Agent(ScriptedModel([])), url).run()


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (lambda: RunQueue("sqlite:///x.db"), "durable runs need a PostgreSQL store, not 'sqlite'"),
        (lambda: RunQueue("memory:"), "durable runs need a PostgreSQL store"),
        (lambda: RunQueue("postgresql://h/d", owner=""), "bad owner"),
        (lambda: Worker(Agent(ScriptedModel([])), "memory:"), "durable runs need a PostgreSQL store"),
        (lambda: Worker(Agent(ScriptedModel([])), "postgresql://h/d", concurrency=0), "concurrency"),
        (lambda: Worker(Agent(ScriptedModel([])), "postgresql://h/d", look_seconds=0), "look_seconds"),
        (lambda: Worker(Agent(ScriptedModel([])), "postgresql://h/d", queues=[]), "queues is empty"),
        (lambda: Worker(Agent(ScriptedModel([])), "postgresql://h/d", queues=5), "queues must be a list"),  # type: ignore[arg-type]
        (lambda: Worker(Agent(ScriptedModel([])), "postgresql://h/d", callbacks=[5]), "callbacks must be"),  # type: ignore[list-item]
        (lambda: Worker("agent", "postgresql://h/d"), "agent must be an Agent"),  # type: ignore[arg-type]
        (lambda: QueueLimits(name="a b"), "queue must be a name"),
        (lambda: QueueLimits(name="q", most=0), "most"),
        (lambda: Rate(runs=0, seconds=1), "runs"),
        (lambda: Rate(runs=1, seconds=0), "seconds"),
    ],
)
def test_bad_arguments_are_refused_by_name(bad: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        bad()


@pytest.mark.deep
async def test_many_submit_at_once_to_a_database_where_nothing_is_yet(database: str) -> None:
    async with RunQueue(database) as one, RunQueue(database) as other:
        ids = await asyncio.gather(*(queue.submit("x") for queue in (one, other) * 5))
        assert {run.id for run in await one.runs()} == set(ids)


async def test_bad_orders_are_refused_before_anything_is_stored(queue: RunQueue) -> None:
    before = len(await queue.runs(most=None))
    for bad, words in (
        (queue.submit(" "), "the prompt is empty"),
        (queue.submit("x", session_id="../x"), "bad session id"),
        (queue.submit("x", queue="_dbos_internal_queue"), "queue must be a name"),
        (queue.run("nope"), "there is no run 'nope'"),
        (queue.answer("nope"), "there is no run 'nope'"),
    ):
        with pytest.raises(UsageError, match=words):
            await bad
    assert len(await queue.runs(most=None)) == before
