"""Workers that cannot start, or cannot work for a while: what their caller and people are told."""

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from agentloop import Agent, Runner, UsageError
from agentloop.durable import QueueLimits, Rate, RunQueue, Worker
from agentloop.durable.orders import with_limits
from agentloop.errors import StoreError
from agentloop.testing import ScriptedModel
from tests.durable_work_kit import at_work, over
from tests.kit import until

TOO_MANY = 10**20


def worker(url: str = "postgresql://h/d", **options: Any) -> Worker:
    """A worker that does nothing yet."""
    return Worker(Agent(ScriptedModel([])), url, transcripts=None, **options)


class Lines:
    """Hears a worker's lines, and says when one of them holds these words."""

    def __init__(self, words: str) -> None:
        self.said: list[str] = []
        self.is_heard = asyncio.Event()
        self._words = words

    def __call__(self, line: str) -> None:
        self.said.append(line)
        if self._words in line:
            self.is_heard.set()

    async def next(self, words: str) -> None:
        """Wait for the first line from now on that holds other words."""
        self._words = words
        self.is_heard.clear()
        if not any(words in line for line in self.said):
            await until(self.is_heard)

    def only(self, words: str) -> str:
        """The one line that holds these words."""
        (line,) = (each for each in self.said if words in each)
        return line


async def refused(url: str) -> str:
    """What a worker says that cannot start."""
    lines = Lines("waits")
    with pytest.raises(StoreError) as raised:
        await worker(url, on_notice=lines).run()
    assert lines.said == []
    text = str(raised.value)
    assert "\n" not in text
    assert "SQL:" not in text
    return text


async def test_a_user_without_the_right_to_make_tables_is_told_so(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS poor")
        connection.execute("CREATE ROLE poor LOGIN")
    assert "permission denied" in await refused(database.replace("postgres@", "poor@"))


async def test_another_programs_schema_of_that_name_is_told_in_one_line(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA dbos")
        connection.execute("CREATE TABLE dbos.workflow_status (note text)")
    assert "the queue cannot be used" in await refused(database)


async def test_a_database_that_is_away_is_told_and_nobody_waits_for_runs() -> None:
    await refused("postgresql://me@127.0.0.1:1/x")


@pytest.mark.deep
async def test_tables_that_cannot_be_used_are_told_once_and_once_that_they_can_again(
    database_with_tables: str,
) -> None:
    lines = Lines("waits for runs")
    async with at_work(
        Agent(ScriptedModel([])), database_with_tables, look_seconds=0.02, on_notice=lines
    ) as at:
        await until(lines.is_heard)
        with psycopg.connect(database_with_tables, autocommit=True) as connection:
            connection.execute("ALTER TABLE dbos.workflow_status RENAME TO elsewhere")
            await lines.next("tries again")
            connection.execute("ALTER TABLE dbos.elsewhere RENAME TO workflow_status")
        await lines.next("can do its work again")
    assert lines.said[0] == f"worker {at.id} waits for runs"
    fails = lines.only("tries again")
    assert "the queue cannot be used" in fails
    assert "workflow_status" in fails
    assert "\n" not in fails
    assert lines.only("can do its work again") == "the worker can do its work again"
    assert lines.said.index(fails) < lines.said.index("the worker can do its work again")
    assert lines.said[-1] == "stopped: its runs are handed back"


@pytest.mark.deep
async def test_new_runs_go_to_the_version_of_the_worker_that_started_last(database_with_tables: str) -> None:
    async with RunQueue(database_with_tables) as queue:
        for version in ("1", "2", "1"):
            async with at_work(Agent(ScriptedModel(["well"])), database_with_tables, version=version):
                assert (await over(queue, await queue.submit("Hello."))).state == "answered"


@pytest.mark.deep
async def test_a_worker_says_that_new_runs_go_to_another_version(database_with_tables: str) -> None:
    lines = Lines("waits for runs")
    async with at_work(
        Agent(ScriptedModel([])), database_with_tables, version="old", look_seconds=0.02, on_notice=lines
    ):
        await until(lines.is_heard)
        with psycopg.connect(database_with_tables, autocommit=True) as connection:
            connection.execute(
                "INSERT INTO dbos.application_versions (version_id, version_name, version_timestamp)"
                " VALUES ('later', '1 new', (extract(epoch FROM now()) * 1000 + 60000)::bigint)"
            )
        await lines.next("new runs go to")
    told = lines.only("new runs go to")
    assert "version '1 new'" in told
    assert "'1 old'" in told


@pytest.mark.deep
async def test_a_listener_of_lines_that_raises_ends_no_worker(database_with_tables: str) -> None:
    heard = asyncio.Event()

    def on_notice(line: str) -> None:
        heard.set()
        raise RuntimeError(line)

    async with at_work(Agent(ScriptedModel([])), database_with_tables, on_notice=on_notice):
        await until(heard)


@pytest.mark.deep
async def test_a_worker_is_run_once(database_with_tables: str) -> None:
    once = worker(database_with_tables)
    once.stop()
    await once.run()
    with pytest.raises(UsageError, match="a worker is run once"):
        await once.run()


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (lambda: worker(version="x\0y"), "version must be a printable text"),
        (lambda: worker(version="x" * 201), "version must be a printable text of at most 200 characters"),
        (lambda: worker(version=5), "version must be a printable text"),
        (lambda: worker(concurrency=TOO_MANY), "concurrency must be a whole number from 1 to 2147483647"),
        (lambda: worker(concurrency=None), "concurrency must be a whole number"),
        (lambda: worker(poll_seconds=1e300), "poll_seconds must be above 0 and at most 86400"),
        (lambda: worker(look_seconds=10**400), "look_seconds must be above 0"),
        (lambda: worker(on_event=5), "on_event must be a function of an event"),
        (lambda: worker(on_notice=asyncio.sleep), "on_notice must be a function of a text"),
        (lambda: worker(queues=["a", QueueLimits(name="a", most=3)]), "queue 'a' is named twice"),
        (lambda: QueueLimits(name="q", most=TOO_MANY), "most must be a whole number from 1 to 2147483647"),
        (lambda: QueueLimits(name="q", each=10**5000), "each must be a whole number from 1 to 2147483647"),
        (lambda: QueueLimits(name="q", rate=5), "rate must be a Rate"),  # type: ignore[arg-type]
        (lambda: Rate(runs=TOO_MANY, seconds=1), "runs must be a whole number from 1 to 2147483647"),
        (lambda: Rate(runs=None, seconds=1), "runs must be a whole number"),  # type: ignore[arg-type]
        (lambda: Rate(runs=1, seconds=float("inf")), "seconds must be above 0 and at most"),
        (lambda: Runner(Agent(ScriptedModel([])), ttl_seconds=10**400), "ttl_seconds must be a finite"),
    ],
)
def test_what_is_out_of_range_is_refused_by_name(bad: Callable[[], object], words: str) -> None:
    with pytest.raises(UsageError, match=words) as raised:
        bad()
    assert len(str(raised.value)) < 200


def test_a_queue_named_twice_in_the_same_way_is_one() -> None:
    assert worker(queues=["a", "a", QueueLimits(name="b")])
    found = with_limits(["a", "a", QueueLimits(name="b"), QueueLimits(name="a", each=3)], 3)
    assert [(queue.name, queue.each) for queue in found] == [("a", 3), ("b", None)]
