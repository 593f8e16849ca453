"""Durable runs whose workers die: every run ends, nothing is done twice, the logs are valid."""

import asyncio
import random
import signal
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest

from agentloop.context import Context, wire_messages
from agentloop.durable import QueuedRun, RunQueue
from agentloop.events import MessageRecord, Record, RunEndRecord, RunStartRecord
from agentloop.prompts import INTERRUPTED, first_given
from agentloop.stores import SessionStore, open_store
from tests.durable_kit import BATCHES, DONE, LONGEST_SECONDS, Fleet, marks, zygote
from tests.strict_rules import violations
from tests.warm_kit import Warm

pytestmark = pytest.mark.deep

RUNS, WORKERS, KILLS = 16, 3, 6


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    """The process that workers are forked from."""
    with zygote() as process:
        yield process


@pytest.fixture
def fleet(warm: Warm, database_with_tables: str, tmp_path: Path) -> Iterator[Fleet]:
    """Workers on a database of the test's own."""
    fleet = Fleet(warm, database_with_tables, tmp_path / "marks")
    yield fleet
    fleet.end()


@pytest.fixture
async def queue(database_with_tables: str) -> AsyncIterator[RunQueue]:
    """The queue from outside."""
    async with RunQueue(database_with_tables) as queue:
        yield queue


@pytest.fixture
async def store(database_with_tables: str) -> AsyncIterator[SessionStore]:
    """The sessions."""
    store = open_store(database_with_tables)
    yield store
    await store.close()


@dataclass(slots=True)
class Kills:
    """When a worker was killed, and which runs it had."""

    struck: list[tuple[float, frozenset[str]]] = field(default_factory=list)

    async def strike(self, fleet: Fleet, queue: RunQueue, draw: random.Random) -> bool:
        """Kill one worker that has runs and put another in its place; False where few runs are left."""
        left = await queue.runs(only_open=True, most=None)
        busy = [pid for pid in fleet.pids if _runs_of(pid, left)]
        if busy:
            victim = draw.choice(busy)
            fleet.kill(victim)
            self.struck.append((time.time(), _runs_of(victim, left)))
            fleet.start()
        return len(left) >= RUNS // 2

    def costs(self, logs: dict[str, Sequence[Record]]) -> list[float]:
        """For each run that was struck, the seconds until something was next stored of it."""
        times = {run_id: [record.event.time for record in log] for run_id, log in logs.items()}
        after = [
            next((time - struck for time in times[run_id] if time > struck), None)
            for struck, hit in self.struck
            for run_id in hit
        ]
        return [seconds for seconds in after if seconds is not None]


@pytest.mark.deep
async def test_every_run_ends_and_nothing_is_done_twice_though_workers_are_killed_at_random(
    fleet: Fleet,
    queue: RunQueue,
    store: SessionStore,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    first_seed: int,
) -> None:
    seed = first_seed
    draw, kills = random.Random(seed), Kills()
    ids = [await queue.submit(f"Stamp {number}.") for number in range(RUNS)]
    began = time.time()
    for _ in range(WORKERS):
        fleet.start()
    async with asyncio.timeout(LONGEST_SECONDS):
        # The moments are drawn: nothing tells when it would hurt most.
        while len(kills.struck) < KILLS:
            if not await kills.strike(fleet, queue, draw):
                ids += [await queue.submit("Stamp.") for _ in range(RUNS // 2)]
            await asyncio.sleep(draw.uniform(0.1, 0.5))
        runs = [await queue.wait(run_id, poll_seconds=0.05) for run_id in ids]
    logs = {run.id: await store.read(run.session_id) for run in runs}
    with capsys.disabled():
        seconds = max(run.ended or began for run in runs) - began
        print(f"\n{_figures(seed, len(runs) / seconds, kills.costs(logs), len(kills.struck))}")
    told = f"seed {seed}"
    assert Counter(run.state for run in runs) == {"answered": len(ids)}, told
    left = Counter((mark.tool, mark.run_id, mark.call_id) for mark in marks(tmp_path / "marks"))
    for run in runs:
        _check_log(run.id, logs[run.id], told)
        _check_marks(run.id, logs[run.id], left, told)
    assert any(run.tries > 1 for run in runs), told


async def test_a_worker_that_was_given_up_for_dead_and_wakes_up_again_changes_nothing(
    fleet: Fleet, queue: RunQueue, store: SessionStore, database_with_tables: str, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    run_id = await queue.submit("Stamp.")
    frozen = fleet.start(gate=str(gate), idle_seconds=1.0, grace_seconds=LONGEST_SECONDS)
    session_id = (await queue.run(run_id)).session_id
    async with asyncio.timeout(LONGEST_SECONDS):
        await _asked(store, session_id)
        fleet.signal(frozen, signal.SIGSTOP)
        _cut_locks(database_with_tables)
        fleet.start()
        run = await queue.wait(run_id, poll_seconds=0.05)
        before = [record.event for record in await store.read(session_id)]
        gate.touch()
        fleet.signal(frozen, signal.SIGCONT)
        other = await queue.submit("Stamp again.")
        await queue.wait(other, poll_seconds=0.05)
        fleet.signal(frozen, signal.SIGTERM)
        await fleet.gone(frozen)
    assert (run.state, run.tries) == ("answered", 2)
    log = await store.read(session_id)
    assert [record.event for record in log] == before
    _check_log(run_id, log, "")
    left = Counter((mark.tool, mark.run_id, mark.call_id) for mark in marks(tmp_path / "marks"))
    _check_marks(run_id, log, left, "")


CALM_LOOK_SECONDS = 0.7
"""Who misses three looks in a row is dead: a worker that lives must come to one in that time."""


async def test_living_workers_that_lose_their_connections_are_not_taken_for_dead(
    fleet: Fleet, queue: RunQueue, store: SessionStore, database_with_tables: str, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    ids = [await queue.submit(f"Stamp {number}.") for number in range(2)]
    for _ in range(2):
        fleet.start(gate=str(gate), look_seconds=CALM_LOOK_SECONDS)
    async with asyncio.timeout(LONGEST_SECONDS):
        for run_id in ids:
            await _asked(store, (await queue.run(run_id)).session_id)
        for _ in range(3):
            await _signs_of_life(database_with_tables, 2)
            _cut_locks(database_with_tables)
        await _signs_of_life(database_with_tables, 2)
        gate.touch()
        runs = [await queue.wait(run_id, poll_seconds=0.05) for run_id in ids]
    assert [(run.state, run.tries) for run in runs] == [("answered", 1)] * 2


async def test_a_worker_ends_in_order_when_it_is_told_to(
    fleet: Fleet, queue: RunQueue, store: SessionStore, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    ids = [await queue.submit(f"Stamp {number}.") for number in range(4)]
    first = fleet.start(gate=str(gate), grace_seconds=LONGEST_SECONDS)
    session_id = (await queue.run(ids[0])).session_id
    async with asyncio.timeout(LONGEST_SECONDS):
        await _asked(store, session_id)
        fleet.signal(first, signal.SIGTERM)
        gate.touch()
        await fleet.gone(first)
        assert [(await queue.run(run_id)).state for run_id in ids] == ["queued"] * 4
        fleet.start()
        runs = [await queue.wait(run_id, poll_seconds=0.05) for run_id in ids]
    left = Counter((mark.tool, mark.run_id, mark.call_id) for mark in marks(tmp_path / "marks"))
    assert set(left.values()) == {1}
    for run in runs:
        log = await store.read(run.session_id)
        _check_log(run.id, log, "")
        assert INTERRUPTED not in [event.message.text for event in _messages(log)]


async def test_a_run_whose_worker_was_killed_says_so_until_another_goes_on_with_it(
    fleet: Fleet, queue: RunQueue, store: SessionStore, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    run_id = await queue.submit("Stamp.")
    first = fleet.start(gate=str(gate))
    async with asyncio.timeout(LONGEST_SECONDS):
        await _asked(store, (await queue.run(run_id)).session_id)
        assert (await queue.run(run_id)).error is None
        fleet.kill(first)
        while not (left := (await queue.run(run_id)).error):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        assert "its worker gives no sign of life" in left
        assert [run.error for run in await queue.runs()] == [left]
        gate.touch()
        fleet.start()
        run = await queue.wait(run_id, poll_seconds=0.05)
    assert (run.state, run.error, run.tries) == ("answered", None, 2)


async def test_workers_end_with_the_process_that_they_were_forked_from(
    database_with_tables: str, queue: RunQueue, store: SessionStore, tmp_path: Path
) -> None:
    with zygote() as process:
        fleet = Fleet(process, database_with_tables, tmp_path / "marks", gate=str(tmp_path / "gate"))
        run_id = await queue.submit("Stamp.")
        pid = fleet.start()
        async with asyncio.timeout(LONGEST_SECONDS):
            await _asked(store, (await queue.run(run_id)).session_id)
        assert process.kill() == -signal.SIGKILL
        await fleet.gone(pid)


def _runs_of(pid: int, runs: Sequence[QueuedRun]) -> frozenset[str]:
    return frozenset(
        run.id for run in runs if run.state == "running" and run.worker and f"-{pid}-" in run.worker
    )


def _messages(log: Sequence[Record]) -> list[MessageRecord]:
    return [record.event for record in log if isinstance(record.event, MessageRecord)]


def _check_log(run_id: str, log: Sequence[Record], told: str) -> None:
    """It is that of one run: begun once, ended once, each call answered once, valid for a strict provider."""
    edges = [record.event for record in log if isinstance(record.event, RunStartRecord | RunEndRecord)]
    assert [(type(event), event.run_id) for event in edges] == [
        (RunStartRecord, run_id),
        (RunEndRecord, run_id),
    ], told
    asked = [call.id for event in _messages(log) for call in event.message.tool_calls]
    answered = [event.message.tool_call_id for event in _messages(log) if event.message.role == "tool"]
    assert sorted(asked) == sorted(map(str, answered)), told
    assert len(set(asked)) == len(asked) == 2 * BATCHES, told
    assert _messages(log)[-1].message.text == DONE, told
    sent = list(wire_messages(Context.of(log).messages, instructions=None))
    assert violations({"model": "m", "messages": sent}) == [], told


def _check_marks(run_id: str, log: Sequence[Record], left: Counter[tuple[str, str, str]], told: str) -> None:
    """What must be done once was, or is told as interrupted; what may be done again was done."""
    results = {event.message.tool_call_id: event.message.text for event in _messages(log)}
    for event in _messages(log):
        for call in event.message.tool_calls:
            times, result = left[call.name, run_id, call.id], results[call.id]
            if call.name == "look":
                assert (times >= 1, first_given(result)) == (True, "look left"), told
            elif result == INTERRUPTED:
                assert times <= 1, told
            else:
                assert (times, first_given(result)) == (1, "stamp left"), told


def _figures(seed: int, pace: float, costs: Sequence[float], kills: int) -> str:
    cost = f"median {statistics.median(costs):.1f} s, longest {max(costs):.1f} s" if costs else "-"
    return (
        f"durable: {pace:.1f} runs/s with {kills} workers killed; "
        f"a run that was struck went on after {cost}, the wait for a free worker included (seed {seed})"
    )


async def _asked(store: SessionStore, session_id: str) -> None:
    """Look into the log until tools are in flight: another process writes it."""
    while not any(event.message.tool_calls for event in _messages(await store.read(session_id))):  # noqa: ASYNC110
        await asyncio.sleep(0.005)


async def _signs_of_life(url: str, wanted: int) -> None:
    """Look until so many workers hold their locks, and each has looked for the others since."""
    query = (
        "SELECT FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory'"
        " AND datname = current_database() AND now() - backend_start > %s * interval '1 second'"
    )
    with psycopg.connect(url, autocommit=True) as connection:
        while connection.execute(query, [CALM_LOOK_SECONDS]).rowcount < wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def _cut_locks(url: str) -> None:
    """End the connections that hold a worker's sign of life, as a network does that is cut."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks"
            " WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database"
            " WHERE datname = current_database())"
        )
