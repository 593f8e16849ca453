"""PostgreSQL's server killed while a session goes on running: it goes on, or says so and is resumed."""

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentloop.stores import PostgresStore
from tests.kill_checks import faults
from tests.kill_world import ID, Json, World
from tests.postgres_kit import Server
from tests.warm_kit import Warm, warm

pytestmark = pytest.mark.deep

KILLS = 4
"""So often the server is killed under a run, in each of the four parts."""

MOST_TRIALS = 3
"""So many trials a kill: a run may end before its moment comes, but hardly two in three do, since the moments
follow what runs take."""

RETRY_SECONDS = {"at once": 100.0, "later": 0.2}
"""So long a store tries again: longer than a server takes to start, or less than one that stays down."""

SURE = ["agent, asked", 2]
"""Behind this point a run has things to write, whatever else the machine does."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server to be killed, in a folder that its own user can reach: not in pytest's, which no other may.

    It does not wait for the disc: what a killed process wrote is the kernel's.
    """
    server = Server(Path(tempfile.mkdtemp(prefix="agentloop-pg-")), {"fsync": "off"})
    yield server
    server.stop()


@pytest.fixture(scope="module")
def workshop() -> Iterator[Warm]:
    """The process that forks the workers."""
    with warm("tests.kill_postgres") as process:
        yield process


@pytest.fixture(scope="module")
def once_through(workshop: Warm, server: Server, tmp_path_factory: pytest.TempPathFactory) -> Json:
    """What a run through which the server lives comes to, and its seconds."""
    with server.database() as url:
        folder = str(tmp_path_factory.mktemp("whole"))
        workshop(folder=folder, url=url, retry_seconds=10)
        return workshop()


async def judged(folder: Path, url: str, ended: Json) -> list[str]:
    """What does not hold after the last run."""
    if (ended.get("status"), ended.get("output")) != ("answered", "all done"):
        return [f"the last run did not end well: {ended}"]
    store = PostgresStore(url)
    try:
        return await faults(World(folder), store)
    finally:
        await store.delete(ID)
        await store.close()


@pytest.mark.parametrize("at", ["any time", "a point"])
@pytest.mark.parametrize("back", ["at once", "later"])
async def test_l7_the_server_is_killed(
    at: str,
    back: str,
    first_seed: int,
    server: Server,
    workshop: Warm,
    once_through: Json,
    tmp_path: Path,
) -> None:
    chance = random.Random(f"{at} {back} {first_seed}")
    counts, seconds, errors = once_through["ended"]["reached"], once_through["seconds"], []
    killed = trials = 0
    with server.database() as url:
        while killed < KILLS:
            label = chance.choice(sorted(counts))
            point = [label, chance.randint(1, counts[label])]
            moment: Any = point if at == "a point" else chance.uniform(0, seconds)
            moment = moment if trials else SURE
            folder = tmp_path / str(trials)
            folder.mkdir()
            asked = {"folder": str(folder), "url": url}
            is_killed, done = killed_once(server, workshop, back, moment, asked)
            seconds, ended = seconds if is_killed else done["seconds"], done["ended"]
            if "error" in ended:
                errors.append(ended)
                workshop(retry_seconds=10, **asked)
                ended = workshop()["ended"]
            assert await judged(folder, url, ended) == [], f"moment {moment}"
            killed, trials = killed + is_killed, trials + 1
            assert trials <= MOST_TRIALS * KILLS, f"{killed} kills only"
    assert {(each["error"], each["text"].count("\n")) for each in errors} <= {("StoreError", 0)}
    assert bool(errors) == (back == "later")


def killed_once(server: Server, workshop: Warm, back: str, moment: Any, asked: Json) -> tuple[bool, Json]:
    """Whether the server is killed under a run, and how that run ends: it is back at once, or then."""
    said = workshop(moment=moment, retry_seconds=RETRY_SECONDS[back], **asked)
    if "ended" in said:
        return False, workshop()
    server.kill()
    try:
        if back == "at once":
            server.start()
        return True, workshop()
    finally:
        if back != "at once":
            server.start()
