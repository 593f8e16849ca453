"""Queues and workers reach the databases that stores reach, however their URLs are written."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from psycopg import sql

from agentloop import Agent
from agentloop.durable import RunQueue, Worker
from agentloop.errors import StoreError
from agentloop.testing import ScriptedModel
from tests import durable_work_kit
from tests.durable_work_kit import at_work, over
from tests.postgres_kit import PASSWORDED, Server

in_a_folder_of_its_own = durable_work_kit.in_a_folder_of_its_own

ODD = "half/full? 100%&so#on ü"
PASSWORD = "p@ss:w/rd%&?#+ é"


@contextmanager
def named(server: Server, name: str, options: str = "") -> Iterator[None]:
    """A database of that name for the block."""
    create, drop = "CREATE DATABASE {} " + options, "DROP DATABASE {} WITH (FORCE)"
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(sql.SQL(create).format(sql.Identifier(name)))  # type: ignore[arg-type]
        try:
            yield
        finally:
            connection.execute(sql.SQL(drop).format(sql.Identifier(name)))


@pytest.fixture(scope="module")
def odd(postgres: Server) -> Iterator[Server]:
    """A server with an oddly named database, of a user whose password is odd."""
    role = sql.Identifier(PASSWORDED)
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(role))
        connection.execute(sql.SQL("CREATE ROLE {} SUPERUSER LOGIN PASSWORD {}").format(role, PASSWORD))
        with named(postgres, ODD):
            yield postgres
        connection.execute(sql.SQL("DROP ROLE {}").format(role))


FORMS = [
    "postgresql://{user}:{password}@{folder}/{name}",
    "postgresql://{user}:{password}@{folder}:5432/{name}",
    "postgresql://{user}:{password}@{nowhere}:5431,{folder}:5432/{name}",
    "postgresql://{user}:{password}@{nowhere},{folder}/{name}?client_encoding=latin1&target_session_attrs=any",
    "postgresql://{user}:{password}@/{name}?host={nowhere},{folder}&port=5432",
    "postgres:///?user={user}&password={password}&dbname={name}&host={folder}&options=-csearch_path%3Dpublic",
]


def written(form: str, server: Server, tmp_path: Path) -> str:
    """The URL of the odd database in that form."""
    parts = {"user": PASSWORDED, "password": PASSWORD, "name": ODD, "folder": str(server.socket.parent)}
    parts["nowhere"] = str(tmp_path / "nowhere")
    return form.format(**{name: quote(part, safe="") for name, part in parts.items()})


@pytest.mark.parametrize("form", FORMS)
async def test_a_queue_reaches_what_a_store_reaches(form: str, odd: Server, tmp_path: Path) -> None:
    async with RunQueue(written(form, odd, tmp_path)) as queue:
        run_id = await queue.submit("日本語", queue="reached")
        assert (await queue.cancel(run_id)).prompt == "日本語"


@contextmanager
def heard(caplog: pytest.LogCaptureFixture, name: str) -> Iterator[None]:
    """All that this logger tells, which may keep it from others."""
    logger = logging.getLogger(name)
    logger.addHandler(caplog.handler)
    try:
        with caplog.at_level(logging.DEBUG, logger=name):
            yield
    finally:
        logger.removeHandler(caplog.handler)


@pytest.mark.deep
async def test_a_worker_reaches_what_a_store_reaches_and_no_log_has_the_password(
    odd: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = written(FORMS[2], odd, tmp_path)
    async with RunQueue(url) as queue:
        with heard(caplog, "dbos"):
            run_id = await queue.submit("Hello.")
        async with at_work(Agent(ScriptedModel(["hi"])), url):
            assert (await over(queue, run_id)).state == "answered"
    told = "\n".join(record.getMessage() for record in caplog.records)
    assert "system database" in told
    assert not any(password in told for password in (PASSWORD, quote(PASSWORD, safe=""), "p%40ss"))


async def refusals(url: str) -> list[str]:
    """What a queue and a worker say of a database that they cannot use."""
    said = []
    async with RunQueue(url) as queue:
        for call in (queue.submit("x"), Worker(Agent(ScriptedModel([])), url, transcripts=None).run()):
            with pytest.raises(StoreError) as raised:
                await call
            said.append(str(raised.value))
    return said


async def test_a_database_that_holds_no_store_is_told_as_a_store_tells_it(postgres: Server) -> None:
    with named(postgres, "ascii", "ENCODING 'SQL_ASCII' TEMPLATE template0 LOCALE 'C'"):
        for text in await refusals(postgres.url_of("ascii")):
            assert "it is in SQL_ASCII, which cannot hold every word: create one with ENCODING" in text


async def test_a_database_that_is_not_there_is_told_as_a_store_tells_it(postgres: Server) -> None:
    for text in await refusals(postgres.url_of("not_there")):
        assert "'not_there'" in text
        assert text.endswith("there is no such database: create it, or name another")
    with psycopg.connect(postgres.url) as connection:
        assert not connection.execute("SELECT FROM pg_database WHERE datname = 'not_there'").fetchall()
