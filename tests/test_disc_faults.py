"""A disc that is full, or fails, at a drawn byte: one clear line, nothing half, and the session goes on."""

import errno
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentloop.stores import SQLiteStore
from tests.disc_faults_kit import built
from tests.kill_checks import faults
from tests.kill_kit import scratch
from tests.kill_world import Json, World
from tests.warm_kit import Warm, warm

pytestmark = pytest.mark.deep

ERRORS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO}
PLACES = ("", ".db-wal", "sessions.db", "transcripts/.transcript", "transcripts/result")
"""Where the disc fails: everywhere, or only below what is named so."""

ENDS = {"StoreError", "ContextOverflowError"}


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    """The process that forks the workers, on a disc that can be made to fail."""
    library = built(tmp_path_factory.mktemp("library"))
    with warm("tests.disc_faults_kit", LD_PRELOAD=str(library)) as process:
        yield process


@pytest.fixture(scope="module")
def written(workshop: Warm) -> dict[str, Json]:
    """What a run writes and syncs in each place while nothing fails."""
    return {only: _written(workshop, only) for only in PLACES}


def _written(workshop: Warm, only: str) -> Json:
    fault = {"only": only, "byte": 10**12, "error": errno.EIO}
    with scratch() as folder:
        return dict(workshop(folder=str(folder), fault=fault)["faulty"]["ended"])


async def judged(folder: Path, done: Json) -> list[str]:
    """What does not hold after a run with a fault, and one after it without."""
    first, after = done["faulty"]["ended"], done["after"]["ended"]
    if "error" in first and (first["error"] not in ENDS or "\n" in first["text"]):
        return [f"the error is not one clear line: {first}"]
    if "error" in first and not first["failed"]:
        return [f"nothing was refused, and the run failed: {first}"]
    if (after.get("status"), after.get("output")) != ("answered", "all done"):
        return [f"the run that went on did not end well: {after}, after {first}"]
    world = World(folder)
    left = [path.name for path in world.transcripts.iterdir() if path.name.startswith(".tr")]
    store = SQLiteStore(world.database)
    try:
        return [*(f"{name} was left behind" for name in left), *await faults(world, store)]
    finally:
        await store.close()


async def swept(workshop: Warm, drawn: list[Json]) -> list[Json]:
    """The ends of the first runs, each with a fault of its own; all of them were judged."""
    ends = []
    for fault in drawn:
        with scratch() as folder:
            done = workshop(folder=str(folder), fault=fault)
            assert await judged(folder, done) == [], f"fault {fault}"
        ends.append(done["faulty"]["ended"])
    return ends


@pytest.mark.parametrize("error", ERRORS)
async def test_a_disc_that_fails_at_any_byte(
    error: str, first_seed: int, workshop: Warm, written: dict[str, Json]
) -> None:
    chance = random.Random(f"{error} {first_seed}")
    drawn = [
        {
            "only": only,
            "byte": chance.randint(1, written[only]["bytes"] * 9 // 10),
            "error": ERRORS[error],
            "failing": chance.choice([-1, -1, 1, 2, 5]),
        }
        for only in (*PLACES, "") * 2
    ]
    ends = await swept(workshop, drawn)
    assert [fault for fault, end in zip(drawn, ends, strict=True) if not end["failed"]] == []
    assert {"StoreError"} <= {end.get("error") for end in ends}


async def test_a_sync_that_fails_is_no_write(workshop: Warm, written: dict[str, Json]) -> None:
    chance = random.Random("sync")
    drawn = [
        {
            "only": only,
            "sync": chance.randint(1, max(1, written[only]["syncs"] * 8 // 10)),
            "error": errno.EIO,
            "failing": chance.choice([-1, 1]),
        }
        for only in PLACES * 2
    ]
    ends = await swept(workshop, drawn)
    assert [fault for fault, end in zip(drawn, ends, strict=True) if not end["failed"]] == []


async def test_the_command_line_says_it_in_one_line(workshop: Warm, tmp_path: Path) -> None:
    for number in range(4):
        text = f'"""File {number} counts to {number}."""\n' + f"count = {number}  # word\n" * 300
        (tmp_path / f"file_{number}.py").write_text(text)
    with scratch() as folder:
        assert commands(workshop, folder, tmp_path, byte=0)["faulty"]["status"] == 0
        most = sum(path.stat().st_size for path in (folder / "disc").rglob("*") if path.is_file())
    chance = random.Random("command line")
    statuses = []
    for error in [*ERRORS.values()] * 3:
        with scratch() as folder:
            byte = chance.randint(1, most * 9 // 10)
            done = commands(workshop, folder, tmp_path, byte=byte, error=error)
        status, said = done["faulty"]["status"], done["faulty"]["error"]
        assert "Traceback" not in said
        assert "internal error" not in said
        if status:
            assert len([line for line in said.splitlines() if "the disc" in line]) == 1, said
        assert done["after"]["status"] == 0, done["after"]["error"]
        statuses.append(status)
    assert {*statuses} <= {0, 1, 5}
    assert {*statuses} != {0}, "what is written behind the byte is lost for good, so some run must fail"


def commands(workshop: Warm, folder: Path, reading: Path, **fault: int) -> Json:
    """The calls of the command line, the first one on a disc with that fault."""
    return workshop(folder=str(folder), command=str(reading), fault=fault)
