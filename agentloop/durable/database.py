"""DBOS's tables in the database of the sessions: how it is reached, and whose errors come of it."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from dbos import DBOS
from sqlalchemy import URL
from sqlalchemy.exc import DBAPIError

from agentloop._plumbing.aio import in_thread
from agentloop.durable.apart import dbos_schema
from agentloop.durable.tries import RETRY_SECONDS, pause_after
from agentloop.errors import AgentLoopError, StoreError
from agentloop.stores.postgres import fault_of, found_at, is_away

T = TypeVar("T")

CONNECT_SECONDS = 10
"""How long a connection may take where the URL does not say it: `connect_timeout`, in seconds."""

ANSWER_SECONDS = 30
"""How long a server may leave what it was sent unacknowledged, before its connection counts as lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DbosTables:
    """Where DBOS's tables are: the database's URL as DBOS reads it, and the schema there."""

    url: str
    schema: str


async def reached(url: str) -> DbosTables:
    """Where DBOS's tables are to be, once a store can use the database.

    Its URL has these limits where it has none of its own: a silent server would hang its client.

    Raises:
        StoreError: it cannot be reached or used.
    """
    found = await found_at(url, connect_seconds=CONNECT_SECONDS, statement_seconds=ANSWER_SECONDS)
    told = found.keywords
    limits = {"connect_timeout": str(CONNECT_SECONDS), "tcp_user_timeout": str(ANSWER_SECONDS * 1000)}
    # DBOS hides a password that stands in its place. The name stands also in the query, where it holds for
    # DBOS's own look for the database too, which is otherwise made in the database `postgres`.
    place = URL.create("postgresql", told["user"], told.get("password"), database=told["dbname"])
    query = {name: value for name, value in (limits | dict(told)).items() if name not in ("user", "password")}
    written = place.set(query=query).render_as_string(hide_password=False)
    return DbosTables(url=written, schema=dbos_schema(found.schema))


def quiet() -> None:
    """Leave DBOS's log to the host: without a handler of ours it would write to standard error itself."""
    logger = logging.getLogger("dbos")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())


async def migrated(tables: DbosTables) -> None:
    """Make DBOS's tables, where they are not there or are an older version's.

    Raises:
        StoreError: the database cannot be reached, or does not allow it.
    """
    with faults_told():
        await in_thread(lambda: DBOS.migrate(tables.url, schema=tables.schema))


@contextlib.contextmanager
def faults_told() -> Iterator[None]:
    """Whatever DBOS raises in the block comes out as a `StoreError`."""
    try:
        yield
    except AgentLoopError:
        raise
    except Exception as error:  # DBOS has no tree of errors for a database that it cannot use
        behind = error.orig if isinstance(error, DBAPIError) and error.orig else error
        raise fault_of("the queue cannot be used", behind) from error


async def over_a_gap(look: Callable[[], Awaitable[T]]) -> T:
    """What the look gives; a server that was reached before and is away is asked again, as in a step.

    Raises:
        StoreError: it stayed away, or refuses.
    """
    tries = 0
    while True:
        try:
            return await look()
        except StoreError as error:
            tries += 1
            pause = pause_after(tries, error, retry_seconds=RETRY_SECONDS)
            if pause is None or not _is_away(error):
                raise
        await asyncio.sleep(pause)


@contextlib.contextmanager
def not_lost(run_id: str) -> Iterator[None]:
    """A fault of the database in the block says that the run does not end by it."""
    try:
        yield
    except StoreError as error:
        text = f"{error}; run {run_id} stays in the queue: `agentloop runs {run_id}` shows it"
        raise StoreError(text) from error


def _is_away(error: StoreError) -> bool:
    """Whether DBOS, which has a connection only to what was reached, lost it and gets no other."""
    cause = error.__cause__
    return isinstance(cause, DBAPIError) and is_away(cause.orig)
