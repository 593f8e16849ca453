"""Durable runs with one worker in this process: what stands in the log, in the queue and in DBOS's tables."""

import asyncio
import logging
import socket
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from agentloop import Agent, Compaction, Limits, Runner, Secrets, UsageError
from agentloop.durable import QueueLimits, Rate, RunQueue, Worker
from agentloop.durable import database as durable_database
from agentloop.errors import ModelRefusedError, ModelUnavailableError, StoreError
from agentloop.events import Compacted, Described, ModelCalled, RunEnded, RunStarted
from agentloop.messages import Message
from agentloop.models import ModelRequest
from agentloop.prompts import INTERRUPTED
from agentloop.stores import SessionStore
from agentloop.stream import AnyStreamEvent
from agentloop.stream import RunEnded as RunEndedShown
from agentloop.stream import RunStarted as RunStartedShown
from agentloop.testing import FailingModel, Reply, ScriptedModel, calls
from agentloop.triggers import WindowFraction
from tests import durable_work_kit
from tests.durable_work_kit import Gate, Heard, at_work, become, locked_out, messages, over, said
from tests.kit import assert_valid, read, until
from tests.postgres_kit import Server

SECRET = "sk-proj-" + "a1B2" * 12


url, queue, store = durable_work_kit.url, durable_work_kit.queue, durable_work_kit.store


def steps_of(url: str, run_id: str) -> list[str]:
    """The names of the steps that DBOS holds of a run."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT function_name FROM dbos.operation_outputs WHERE workflow_uuid = %s ORDER BY function_id",
            [run_id],
        )
        return [name for (name,) in rows]


def all_of_dbos(url: str) -> str:
    """All that stands in any of DBOS's tables."""
    with psycopg.connect(url) as connection:
        names = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'dbos'").fetchall()
        queries = [sql.SQL("SELECT * FROM dbos.{}").format(sql.Identifier(name)) for (name,) in names]
        return "\n".join(str(connection.execute(query).fetchall()) for query in queries)


def echo(text: str) -> str:
    """Say it again."""
    return f"heard {text}"


async def looked_at(url: str, session_id: str) -> None:
    """Hold the lease on a session for as long as nobody else wants to take it."""
    with psycopg.connect(url, autocommit=True) as watching:
        await become(lambda: not locked_out(watching, "agentloop_leases"))
        async with await psycopg.AsyncConnection.connect(url) as holding:
            await holding.execute(
                "SELECT FROM agentloop_leases WHERE session_id = %s FOR UPDATE", [session_id]
            )
            await become(lambda: locked_out(watching, "agentloop_leases"))


async def test_each_model_and_tool_call_is_a_step_and_the_log_is_that_of_any_run(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    model = ScriptedModel([calls(("echo", {"text": "a"}), ("echo", {"text": "b"})), "both heard"])
    run_id = await queue.submit("Say a and b.", session_id="first")
    async with at_work(Agent(model, tools=[echo]), url):
        run = await over(queue, run_id)
    assert (run.state, run.tries, run.session_id, run.error) == ("answered", 1, "first", None)
    assert run.usage is not None
    assert await queue.answer(run_id) == "both heard"
    first, second = (call.id for call in messages(await store.read("first"))[1].message.tool_calls)
    wanted = ["begin", "ask", f"tool {first}", f"tool {second}", "ask", "end"]
    assert steps_of(url, run_id) == wanted
    assert (await queue.run(run_id)).doing == "end"
    lines = await said(store, "first")
    assert lines[0] == ("user", "Say a and b.")
    assert sorted(lines[2:4]) == [("tool", "heard a"), ("tool", "heard b")]
    assert lines[4] == ("assistant", "both heard")
    edges = [r.event for r in await store.read("first") if isinstance(r.event, RunStarted | RunEnded)]
    assert edges == [
        RunStarted(run_id=run_id, model="scripted"),
        RunEnded(run_id=run_id, status="answered", usage=run.usage),
    ]
    assert_valid(model.requests)


async def test_runs_of_a_session_are_done_one_after_the_other_in_the_order_submitted(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    ids = [await queue.submit(f"question {n}", session_id="line") for n in range(4)]
    async with at_work(Agent(ScriptedModel(lambda_answers(4))), url):
        assert {(await over(queue, run_id)).state for run_id in ids} == {"answered"}
    assert [text for role, text in await said(store, "line") if role == "user"] == [
        f"question {n}" for n in range(4)
    ]
    edges = [type(r.event) for r in await store.read("line") if isinstance(r.event, RunStarted | RunEnded)]
    assert edges == [RunStarted, RunEnded] * 4


def lambda_answers(count: int) -> list[str]:
    """So many different answers."""
    return [f"answer {n}" for n in range(count)]


async def test_a_run_cancelled_in_a_tool_goes_on_when_resumed_and_the_tool_is_told_as_interrupted(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    gate = Gate()
    model = ScriptedModel([calls(("wait", {})), "it may have happened"])
    run_id = await queue.submit("Go through.", session_id="cancelled")
    cancelled = Heard(RunEndedShown)
    async with at_work(Agent(model, tools=[gate.wait]), url, on_event=cancelled):
        await until(gate.entered)
        assert (await queue.cancel(run_id)).state == "cancelled"
        await until(cancelled.is_heard)
        assert not (await queue.resume(run_id)).is_over
        run = await over(queue, run_id)
    assert (run.state, run.error, gate.times) == ("answered", None, 1)
    assert ("tool", INTERRUPTED) in await said(store, "cancelled")
    ends = [r.event.status for r in await store.read("cancelled") if isinstance(r.event, RunEnded)]
    assert ends == ["interrupted", "answered"]
    assert_valid(model.requests)


async def test_limits_hold_across_executions_and_there_is_what_there_is_of_an_answer(
    url: str, queue: RunQueue
) -> None:
    gate, ends, cancelled = Gate(), list[RunEndedShown](), asyncio.Event()

    def heard(event: AnyStreamEvent) -> None:
        if isinstance(event, RunEndedShown):
            ends.append(event)
            cancelled.set()

    half = Message.assistant("Half of it: A.", calls(("wait", {})))
    model = ScriptedModel([calls(echo={"text": "1"}), half, calls(echo={"text": "2"})])
    run_id = await queue.submit("Never end.", session_id="limited")
    agent = Agent(model, tools=[gate.wait, echo])
    async with at_work(agent, url, limits=Limits(steps=3), on_event=heard):
        await until(gate.entered)
        await queue.cancel(run_id)
        await until(cancelled)
        await queue.resume(run_id)
        run = await over(queue, run_id)
    assert (run.state, run.error) == ("limit", "the limit of 3 model calls is reached")
    assert len(model.requests) == 3
    assert await queue.answer(run_id) == ends[-1].output == "Half of it: A."


async def test_a_run_whose_session_went_on_without_it_stops(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    gate = Gate()
    run_id = await queue.submit("Go through.", session_id="went-on")
    agent = Agent(ScriptedModel([calls(("wait", {})), "of the other run"]), tools=[gate.wait])
    async with at_work(agent, url):
        await until(gate.entered)
        await queue.cancel(run_id)
        other = await queue.submit("Something else.", session_id="went-on")
        assert (await over(queue, other)).state == "answered"
        await queue.resume(run_id)
        run = await over(queue, run_id)
    assert (run.state, len(agent.model.requests)) == ("interrupted", 2)  # type: ignore[attr-defined]
    assert "taken over by another run" in str(run.error)
    assert (await said(store, "went-on"))[-1] == ("assistant", "of the other run")


async def test_a_step_whose_server_is_away_is_tried_again(url: str, queue: RunQueue) -> None:
    away = ModelUnavailableError("no connection")
    model = FailingModel(away, times=2, then=ScriptedModel(["back"]))
    run_id = await queue.submit("Are you there?")
    async with at_work(Agent(model), url, retry_seconds=0.01):
        assert (await over(queue, run_id)).state == "answered"
    assert len(model.requests) == 3


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
    ends = [r.event.status for r in await store.read(f"fails-{state}") if isinstance(r.event, RunEnded)]
    assert ends == [state]


async def test_a_compaction_is_a_step_of_its_own(url: str, queue: RunQueue, store: SessionStore) -> None:
    reads = [calls(("read", {"name": f"file_{n}", "words": 300})) for n in range(6)]
    model = ScriptedModel([*reads, "all read"], window=4000)
    agent = Agent(model, tools=[read], compaction=Compaction(trigger=WindowFraction(0.5), micro=None))
    run_id = await queue.submit("Read all files.", session_id="long")
    async with at_work(agent, url):
        run = await over(queue, run_id)
    assert run.state == "answered"
    assert "make_room" in steps_of(url, run_id)
    assert any(isinstance(r.event, Compacted) for r in await store.read("long"))
    assert_valid(model.requests)


class Renames:
    """Answers as it is given, once somebody has given the session another title meanwhile."""

    def __init__(self, store: SessionStore, session_id: str) -> None:
        self._store, self._session_id = store, session_id
        self.times = 0

    def then(self, reply: Reply) -> Reply:
        """The reply, which comes when the rename stands in the log."""

        async def renamed(_: ModelRequest) -> Reply:
            self.times += 1
            length = len(await self._store.read(self._session_id))
            await self._store.append(self._session_id, [Described(title="Another")], expect=length)
            return reply

        return renamed


async def test_a_rename_while_the_model_answers_throws_no_answer_away(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    renames = Renames(store, "renamed")
    model = ScriptedModel([renames.then(calls(echo={"text": "a"})), renames.then("done")])
    run_id = await queue.submit("Say a.", session_id="renamed")
    async with at_work(Agent(model, tools=[echo]), url):
        assert (await over(queue, run_id)).state == "answered"
    records = await store.read("renamed")
    called = [record for record in records if isinstance(record.event, ModelCalled)]
    assert (len(model.requests), len(called), renames.times) == (2, 2, 2)
    assert [text for _, text in await said(store, "renamed")] == ["Say a.", "", "heard a", "done"]


async def test_a_rename_while_a_summary_is_written_throws_none_away(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    renames = Renames(store, "summed-up")
    reads = [calls(("read", {"name": f"file_{n}", "words": 300})) for n in range(6)]
    summary = renames.then("In short: all files were read, and each holds what it should.")
    model = ScriptedModel([*reads, "all read"], window=4000, summary=summary)
    agent = Agent(model, tools=[read], compaction=Compaction(trigger=WindowFraction(0.5), micro=None))
    run_id = await queue.submit("Read all files.", session_id="summed-up")
    async with at_work(agent, url):
        assert (await over(queue, run_id)).state == "answered"
    records = await store.read("summed-up")
    summaries = [r for r in records if isinstance(r.event, ModelCalled) and r.event.purpose != "agent"]
    compacted = [r for r in records if isinstance(r.event, Compacted)]
    assert renames.times == len(summaries) == len(compacted) > 0


async def test_the_compact_tool_is_answered_after_the_others(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    model = ScriptedModel([calls(("compact", {"focus": "all"}), ("echo", {"text": "a"})), "done"])
    run_id = await queue.submit("Compact.", session_id="compacting")
    async with at_work(Agent(model, tools=[echo]), url):
        assert (await over(queue, run_id)).state == "answered"
    assert [name.split()[0] for name in steps_of(url, run_id)] == [
        "begin",
        "ask",
        "tool",
        "compact",
        "ask",
        "end",
    ]
    results = [text for role, text in await said(store, "compacting") if role == "tool"]
    assert results[0] == "heard a"
    assert len(results) == 2


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


async def test_a_queue_begins_no_more_than_its_rate_and_runs_no_more_than_its_limit(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    ids = [await queue.submit(f"question {n}", queue="slow") for n in range(3)]
    limits = QueueLimits(name="slow", most=1, each=4, rate=Rate(runs=2, seconds=1.0))
    async with at_work(Agent(ScriptedModel(lambda_answers(3))), url, queues=[limits]):
        runs = [await over(queue, run_id) for run_id in ids]
    started = sorted(run.started or 0.0 for run in runs)
    assert started[2] - started[0] >= 1.0
    logs = [await store.read(run.session_id) for run in runs]
    spans = sorted((log[0].event.time, log[-1].event.time) for log in logs)
    assert all(first[1] <= second[0] for first, second in pairwise(spans))
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT concurrency, worker_concurrency, partition_concurrency, rate_limit_max,"
            " rate_limit_period_sec FROM dbos.queues WHERE name = 'slow'"
        ).fetchone()
    assert row == (1, 1, 1, 2, 1.0)


async def test_a_worker_takes_runs_of_its_own_queues_alone(url: str, queue: RunQueue) -> None:
    elsewhere = await queue.submit("not here", queue="elsewhere")
    here = await queue.submit("here", queue="here")
    async with at_work(Agent(ScriptedModel(["done"])), url, queues=["here"]):
        assert (await over(queue, here)).state == "answered"
    assert (await queue.run(elsewhere)).state == "queued"
    assert (await queue.cancel(elsewhere)).state == "cancelled"


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


async def test_a_run_waits_for_a_session_that_somebody_else_works_on(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    gate = Gate()
    theirs = Runner(Agent(ScriptedModel([calls(("wait", {})), "theirs"]), tools=[gate.wait]), store=store)
    working = asyncio.create_task(theirs.run("First.", session_id="shared"))
    await until(gate.entered)
    run_id = await queue.submit("Second.", session_id="shared")
    begun = Heard(RunStartedShown)
    async with at_work(Agent(ScriptedModel(["ours"])), url, on_event=begun):
        for _ in range(2):
            await looked_at(url, "shared")
        assert not begun.is_heard.is_set()
        gate.leave.set()
        assert (await working).output == "theirs"
        assert (await over(queue, run_id)).state == "answered"
    assert [text for _, text in await said(store, "shared")] == [
        "First.",
        "",
        "through",
        "theirs",
        "Second.",
        "ours",
    ]


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


async def test_nothing_is_printed_and_no_logging_of_the_host_is_touched(
    url: str, queue: RunQueue, capfd: pytest.CaptureFixture[str]
) -> None:
    before = (list(logging.root.handlers), logging.root.level)
    run_id = await queue.submit("Quiet.")
    async with at_work(Agent(ScriptedModel(["…"])), url):
        await over(queue, run_id)
    assert (list(logging.root.handlers), logging.root.level) == before
    assert capfd.readouterr() == ("", "")


async def test_one_process_has_one_worker(url: str, queue: RunQueue) -> None:
    run_id = await queue.submit("Are you at work?")
    async with at_work(Agent(ScriptedModel(["yes"])), url):
        await over(queue, run_id)
        with pytest.raises(UsageError, match="a worker runs in this process already"):
            await Worker(Agent(ScriptedModel([])), url).run()


async def test_a_long_session_is_found_to_have_begun_from_its_end(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    model = ScriptedModel(answered_by_number())
    for number in range(3):
        run_id = await queue.submit(f"question {number}", session_id="again")
        async with at_work(Agent(model), url):
            assert (await over(queue, run_id)).state == "answered"
        assert await queue.answer(run_id) == f"answer {number}"
    assert [run.session_id for run in await queue.runs(session_id="again")] == ["again"] * 3


def answered_by_number() -> Iterator[Any]:
    """Each request is answered by the number of its newest question."""

    def reply(request: ModelRequest) -> str:
        return str(request.messages[-1]["content"]).replace("question", "answer")

    while True:
        yield reply


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
        (lambda: Worker("agent", "postgresql://h/d"), "agent must be an Agent"),  # type: ignore[arg-type]
        (lambda: QueueLimits(name="a b"), "bad queue"),
        (lambda: QueueLimits(name="q", most=0), "most"),
        (lambda: Rate(runs=0, seconds=1), "runs"),
        (lambda: Rate(runs=1, seconds=0), "seconds"),
    ],
)
def test_bad_arguments_are_refused_by_name(bad: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        bad()


async def test_many_submit_at_once_to_a_database_where_nothing_is_yet(database: str) -> None:
    async with RunQueue(database) as one, RunQueue(database) as other:
        ids = await asyncio.gather(*(queue.submit("x") for queue in (one, other) * 5))
        assert {run.id for run in await one.runs()} == set(ids)


async def test_bad_orders_are_refused_before_anything_is_stored(queue: RunQueue) -> None:
    before = len(await queue.runs(most=None))
    for bad, words in (
        (queue.submit(" "), "the prompt is empty"),
        (queue.submit("x", session_id="../x"), "bad session id"),
        (queue.submit("x", queue="_dbos_internal_queue"), "bad queue"),
        (queue.run("nope"), "there is no run 'nope'"),
        (queue.answer("nope"), "there is no run 'nope'"),
    ):
        with pytest.raises(UsageError, match=words):
            await bad
    assert len(await queue.runs(most=None)) == before


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
