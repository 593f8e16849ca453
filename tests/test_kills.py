"""L7: a session whose processes are killed at any moment loads, is never half, and goes on to its end."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentloop.stores import SQLiteStore
from tests.kill_checks import faults
from tests.kill_kit import Warm, warm
from tests.kill_world import World

KILLS = 25
"""So many processes are killed in each of the eight parts."""

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
    with warm() as process:
        yield process


@pytest.fixture(scope="module")
def once_through(workshop: Warm, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a run that nobody kills comes to: how long it takes, and how often it comes to each point."""
    folder = tmp_path_factory.mktemp("whole")
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


async def test_a_session_that_nobody_kills_comes_to_every_point(
    workshop: Warm, once_through: dict[str, Any], tmp_path: Path
) -> None:
    done = workshop(folder=str(tmp_path), moments=[])
    assert await judged(tmp_path, done) == []
    assert set(done["ended"]["reached"]) == set(POINTS)


@pytest.mark.parametrize("seed", range(4))
async def test_l7_killed_at_any_time(
    seed: int, workshop: Warm, once_through: dict[str, Any], tmp_path: Path
) -> None:
    def drawn(chance: random.Random) -> float:
        return chance.uniform(0, once_through["seconds"])

    await killed_and_judged(workshop, tmp_path, random.Random(seed), drawn)


@pytest.mark.parametrize("seed", range(4))
async def test_l7_killed_at_every_point(
    seed: int, workshop: Warm, once_through: dict[str, Any], tmp_path: Path
) -> None:
    counts = once_through["ended"]["reached"]

    def drawn(chance: random.Random) -> list[Any]:
        label = chance.choice(sorted(counts))
        return [label, chance.randint(1, counts[label])]

    await killed_and_judged(workshop, tmp_path, random.Random(seed), drawn)


async def killed_and_judged(workshop: Warm, folder: Path, chance: random.Random, drawn: Any) -> None:
    """Sessions whose processes are killed up to three times each, until enough were."""
    killed = 0
    while killed < KILLS:
        moments = [drawn(chance) for _ in range(min(3, KILLS - killed))]
        place = folder / str(killed)
        place.mkdir(exist_ok=True)
        done = workshop(folder=str(place), moments=moments)
        wrong = await judged(place, done)
        assert wrong == [], f"moments {moments}, killed {done['killed']}"
        killed += len(done["killed"])
