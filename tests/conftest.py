"""What tests get by the name of an argument, and how many examples those draw that draw some.

The environment variable `AGENTLOOP_DEEP` asks for all examples, drawn from its text: each text draws others,
and one text always the same. Without it a test draws a twelfth of its examples, the same ones each time.
"""

import asyncio
import gc
import os
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from zlib import crc32

import pytest
import structlog
from hypothesis import HealthCheck, Phase, is_hypothesis_test, seed, settings

from tests.forks import fork_server

if TYPE_CHECKING:
    from tests.postgres_kit import Server

DRAWN_FROM = os.environ.get("AGENTLOOP_DEEP", "")
EXAMPLES = 100
"""So many a test draws that does not say `many(n)`."""
FEWER = 12
CASES = 2
"""So many of a table the fast tests look at."""
A_FEW = 3
"""A table of no more cases than this, such as the stores, is looked at whole."""
LEAST = 5
"""The first example is always the simplest one: fewer than these would be no draw."""

# The first count loads a vocabulary, and the machine may be busy: no test is judged by its clock.
settings.register_profile(
    "untimed",
    deadline=None,
    derandomize=not DRAWN_FROM,
    database=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,
    ],
)
settings.load_profile("untimed")

# A client for HTTP loads all certificates that the machine trusts, which takes longer than most tests. Here
# it loads one, which it does not need; the few tests of the variable set it themselves.
os.environ["SSL_CERT_FILE"] = str(Path(__file__).parent / "certificate.pem")


# Ten thousand tests are collected and stay: no search for garbage goes through them.
gc.disable()


def pytest_configure(config: pytest.Config) -> None:
    """Let all processes of the tests have forks of one, which loads the program once."""
    if not hasattr(config, "workerinput"):
        until_the_end = ExitStack()
        until_the_end.enter_context(fork_server())
        config.add_cleanup(until_the_end.close)


def pytest_collection_finish() -> None:
    """Search for garbage from now on, in what the tests make."""
    gc.freeze()
    gc.enable()


def pytest_xdist_auto_num_workers() -> int:
    """One process more than there are cores: what a test starts, it waits for."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Settle how many examples each property test draws, and which cases of a long table are deep."""
    thin(items)
    settled = set()
    for item in items:
        test: Any = getattr(item, "obj", None)
        if not is_hypothesis_test(test):
            continue
        if DRAWN_FROM:
            item.add_marker("deep")
        if test not in settled:
            settled.add(test)
            marker = item.get_closest_marker("many")
            settle(test, *(marker.args if marker else [EXAMPLES]))
    if DRAWN_FROM:
        items.sort(key=turn_of, reverse=True)


def turn_of(item: pytest.Item) -> tuple[bool, int]:
    """Who waits for a PostgreSQL server begins first, in one process: one server is enough, and others work.

    Then comes who draws most examples, so that no process waits for it in the end.
    """
    marker = item.get_closest_marker("many")
    waits = "postgres" in getattr(item, "fixturenames", ())
    return waits, int(marker.args[0]) if marker else 0


def thin(items: Sequence[pytest.Item]) -> None:
    """Of a table of more than `A_FEW` cases leave `CASES`, evenly spread; the others are deep.

    A test that is marked `whole` keeps them all: a table of public names, commands, stores or strategies.
    """
    tables: dict[str, list[pytest.Item]] = {}
    for item in items:
        if not any(item.iter_markers("deep")):
            tables.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in tables.values():
        if len(cases) > A_FEW and not any(cases[0].iter_markers("whole")):
            kept = {len(cases) * each // CASES for each in range(CASES)}
            for number, case in enumerate(cases):
                if number not in kept:
                    case.add_marker("deep")


def settle(test: Callable[..., None], examples: int, few: int | None = None) -> None:
    """Let it draw so many examples, or a few."""
    if DRAWN_FROM:
        settings(max_examples=examples)(test)
        seed(crc32(f"{DRAWN_FROM} {test.__qualname__}".encode()))(test)
    else:
        settings(max_examples=few or max(examples // FEWER, min(examples, LEAST)))(test)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what examples were drawn from, so that whatever they found can be found again."""
    if DRAWN_FROM:
        terminalreporter.write_line(f"examples were drawn from AGENTLOOP_DEEP={DRAWN_FROM}")


@pytest.fixture(scope="session")
def first_seed() -> int:
    """Where deep tests with seeds of their own begin: drawn as examples are."""
    return crc32(DRAWN_FROM.encode())


@pytest.fixture(params=["same", pytest.param("new", marks=pytest.mark.deep)])
def chance(request: pytest.FixtureRequest) -> random.Random:
    """What a test draws from: the same each time, and once more, deep, drawn as examples are."""
    return random.Random(f"{request.node.name} {DRAWN_FROM}" if request.param == "new" else request.node.name)


@pytest.fixture(params=[True, False], ids=["streamed", "whole"])
def stream(request: pytest.FixtureRequest) -> bool:
    """Whether the model streams; the test runs both ways."""
    return bool(request.param)


@pytest.fixture(autouse=True)
def _logging_is_nobodys() -> Iterator[None]:
    """What a test sets up in structlog, or captures of it, holds for that test alone."""
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def postgres() -> Iterator["Server"]:
    """A PostgreSQL server, started when first asked for: one for each process of the tests.

    Whoever stops, restarts or kills a server takes one of its own. This one does not wait for the disc.
    """
    from tests.postgres_kit import Server

    server = Server(Path(tempfile.mkdtemp(prefix="agentloop-pg-")), {"fsync": "off"})
    yield server
    server.stop()


@pytest.fixture
def database(postgres: "Server") -> Iterator[str]:
    """The URL of a new PostgreSQL database of the test's own."""
    with postgres.database() as url:
        yield url


@pytest.fixture(scope="session")
def with_tables(postgres: "Server") -> Iterator[str]:
    """The name of a database with the tables of sessions and of durable runs: a copy is made much faster."""
    from agentloop.durable import RunQueue
    from agentloop.stores import open_store

    async def make(url: str) -> None:
        async with RunQueue(url) as queue:
            await queue.runs()
        store = open_store(url)
        await store.list()
        await store.close()

    with postgres.database() as url:
        asyncio.run(make(url))
        yield urlsplit(url).path[1:]


@pytest.fixture
def database_with_tables(postgres: "Server", with_tables: str) -> Iterator[str]:
    """The URL of a database of the test's own that has the tables of durable runs."""
    with postgres.database(like=with_tables) as url:
        yield url
