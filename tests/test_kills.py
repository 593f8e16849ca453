"""L7: a session whose processes are killed at any moment loads, is never half, and goes on to its end."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentloop.stores import SQLiteStore
from tests.kill_checks import faults
from tests.kill_kit import HANGS, Worker, led, scratch
from tests.kill_world import World
from tests.warm_kit import Warm, warm

KILLS = 15
"""So many processes are killed in each of the four parts."""

MOST_TRIALS = 3
"""Nearly each trial kills one to three processes; more trials a kill than this would say that none is hit."""

POINTS = (
    *("append, asked", "append, returned", "commit, to come", "commit, done"),
    *("tool, before its effect", "tool, after its effect"),
    *("agent, asked", "agent, half said", "summary, asked", "summary, half said"),
    *("sync of a file, to come", "sync of a file, done"),
    *("placing of a file, to come", "placing of a file, done"),
    *("compaction, decided", "compaction, to be saved", "compaction, saved", "compaction, done"),
    *("checkpoint, to be kept", "checkpoint, kept"),
)


@pytest.fixture(scope="module")
def workshop() -> Iterator[Warm]:
    """The process that forks the workers, one for all tests of this file."""
    with warm("tests.kill_kit") as process:
        yield process


@pytest.fixture(scope="module")
def once_through(workshop: Warm) -> dict[str, Any]:
    """What a run that nobody kills comes to: how long it takes, and how often it comes to each point."""
    with scratch() as folder:
        return workshop(folder=str(folder), moments=[])


async def judged(folder: Path, done: dict[str, Any]) -> list[str]:
    """What does not hold after a trial."""
    ended = done["ended"]
    if (ended.get("status"), ended.get("output")) != ("answered", "all done"):
        return [f"the last run did not end well: {ended}"]
    world = World(folder)
    store = SQLiteStore(world.database)
    try:
        return await faults(world, store)
    finally:
        await store.close()


@pytest.mark.deep
async def test_a_session_that_nobody_kills_comes_to_every_point(workshop: Warm) -> None:
    with scratch() as folder:
        done = workshop(folder=str(folder), moments=[])
        assert await judged(folder, done) == []
    assert set(done["ended"]["reached"]) == set(POINTS)


@pytest.mark.deep
async def test_a_point_that_is_not_come_to_is_no_kill(workshop: Warm) -> None:
    with scratch() as folder:
        done = workshop(folder=str(folder), moments=[["agent, asked", 1_000]])
        assert await judged(folder, done) == []
    assert done["killed"] == []


class Saying(Worker):
    """A worker that says so much and then nothing, and leaves or does not."""

    def __init__(self, *said: dict[str, Any], has_left: bool) -> None:
        self._script, self.has_left = list(said), has_left

    def next(self, seconds: float = 0) -> dict[str, Any] | None:
        return self._script.pop(0) if self._script else None


@pytest.mark.parametrize("has_left", [True, False])
@pytest.mark.parametrize("moment", [0.5, None, ["agent, asked", 1]])
def test_a_worker_that_says_nothing_hangs_but_where_a_time_was_waited_for(
    moment: Any, has_left: bool
) -> None:
    assert led(Saying(has_left=has_left), moment)[0] == HANGS
    said, _ = led(Saying({"started": 0}, has_left=has_left), moment)
    assert said == (None if moment == 0.5 and not has_left else HANGS)


@pytest.mark.deep
@pytest.mark.parametrize("part", range(2))
async def test_l7_killed_at_any_time(
    part: int, first_seed: int, workshop: Warm, once_through: dict[str, Any]
) -> None:
    def drawn(chance: random.Random, seconds: float) -> float:
        return chance.uniform(0, seconds)

    await killed_and_judged(workshop, once_through, random.Random(first_seed + part), drawn)


@pytest.mark.deep
@pytest.mark.parametrize("part", range(2))
async def test_l7_killed_at_every_point(
    part: int, first_seed: int, workshop: Warm, once_through: dict[str, Any]
) -> None:
    counts = once_through["ended"]["reached"]

    def drawn(chance: random.Random, _: float) -> list[Any]:
        label = chance.choice(sorted(counts))
        return [label, chance.randint(1, counts[label])]

    await killed_and_judged(workshop, once_through, random.Random(first_seed + part), drawn)


async def killed_and_judged(
    workshop: Warm,
    done: dict[str, Any],
    chance: random.Random,
    drawn: Callable[[random.Random, float], Any],
) -> None:
    """Sessions whose processes are killed up to three times each, until enough were.

    Moments are drawn from the seconds that the last trial took: the machine may do something else by now.
    """
    killed = trials = 0
    while killed < KILLS:
        moments = [drawn(chance, done["seconds"]) for _ in range(min(3, KILLS - killed))]
        with scratch() as folder:
            done = workshop(folder=str(folder), moments=moments)
            wrong = await judged(folder, done)
        assert wrong == [], f"moments {moments}, killed {done['killed']}"
        killed, trials = killed + len(done["killed"]), trials + 1
        assert trials <= MOST_TRIALS * KILLS, f"{killed} kills only"
