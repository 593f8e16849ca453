"""PostgreSQL's server killed while a session goes on running: it goes on, or says so and is resumed."""

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentloop.stores import PostgresStore
from tests.kill_checks import faults
from tests.kill_kit import Warm, warm
from tests.kill_world import ID, Json, World
from tests.postgres_kit import Server

KILLS = 5
"""So often the server is killed in each of the four parts."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server to be killed, in a folder that its own user can reach: not in pytest's, which no other may."""
    server = Server(Path(tempfile.mkdtemp(prefix="agentloop-pg-")))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def workshop() -> Iterator[Warm]:
    """The process that forks the workers."""
    with warm("tests.kill_postgres") as process:
        yield process


@pytest.fixture(scope="module")
def once_through(workshop: Warm, server: Server, tmp_path_factory: pytest.TempPathFactory) -> Json:
    """What a run through which the server lives comes to."""
    with server.database() as url:
        folder = str(tmp_path_factory.mktemp("whole"))
        workshop(folder=folder, url=url, retry_seconds=1)
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
    at: str, back: str, server: Server, workshop: Warm, once_through: Json, tmp_path: Path
) -> None:
    chance = random.Random(f"{at} {back}")
    counts, errors = once_through["ended"]["reached"], []
    with server.database() as url:
        for number in range(KILLS):
            label = chance.choice(sorted(counts))
            point = [label, chance.randint(1, counts[label])]
            moment: Any = point if at == "a point" else chance.uniform(0, 0.3)
            folder = tmp_path / str(number)
            folder.mkdir()
            ended = killed_once(server, workshop, back, folder=str(folder), url=url, moment=moment)
            if "error" in ended:
                errors.append(ended)
                workshop(folder=str(folder), url=url, retry_seconds=10)
                ended = workshop()["ended"]
            assert await judged(folder, url, ended) == [], f"moment {moment}"
    assert {(each["error"], each["text"].count("\n")) for each in errors} <= {("StoreError", 0)}
    assert bool(errors) == (back == "later")


def killed_once(server: Server, workshop: Warm, back: str, **asked: Any) -> Json:
    """How a run ends that the server is killed under; it is back at once, or when the run has ended."""
    workshop(retry_seconds=20 if back == "at once" else 0.2, **asked)
    server.kill()
    try:
        if back == "at once":
            server.start()
        return dict(workshop()["ended"])
    finally:
        if back != "at once":
            server.start()
