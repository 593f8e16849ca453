"""What tests get by the name of an argument."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import structlog
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.postgres_kit import Server

# The first count loads a vocabulary, and the machine may be busy: no test is judged by its clock.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


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
