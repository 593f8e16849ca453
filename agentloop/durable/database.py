"""DBOS's tables in the database of the sessions: how it is reached, and whose errors come of it."""

import contextlib
import logging
from collections.abc import Iterator

from dbos import DBOS
from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError, OperationalError

from agentloop.errors import AgentLoopError, StoreError
from agentloop.plain_values import first_line
from agentloop.threads import in_thread

CONNECT_SECONDS = 10
"""How long a connection may take where the URL does not say it: `connect_timeout`, in seconds."""

ANSWER_SECONDS = 30
"""How long a server may leave what it was sent unacknowledged, before its connection counts as lost."""


def limited(url: str) -> str:
    """The URL with these limits where it has none of its own: a silent server would hang its client."""
    parsed = make_url(url)
    ours = {"connect_timeout": str(CONNECT_SECONDS), "tcp_user_timeout": str(ANSWER_SECONDS * 1000)}
    added = {name: value for name, value in ours.items() if name not in parsed.query}
    return parsed.update_query_dict(added).render_as_string(hide_password=False)


def quiet() -> None:
    """Leave DBOS's log to the host: without a handler of ours it would write to standard error itself."""
    logger = logging.getLogger("dbos")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())


async def migrated(url: str) -> None:
    """Make DBOS's tables, where they are not there or are an older version's.

    Raises:
        StoreError: the database cannot be reached, or does not allow it.
    """
    with faults_told():
        await in_thread(lambda: DBOS.migrate(url))


@contextlib.contextmanager
def faults_told() -> Iterator[None]:
    """Whatever DBOS raises in the block comes out as a `StoreError`."""
    try:
        yield
    except AgentLoopError:
        raise
    except Exception as error:  # DBOS has no tree of errors for a database that it cannot use
        behind = error.orig if isinstance(error, DBAPIError) and error.orig else error
        raise StoreError(f"the queue cannot be used: {first_line(behind)}{_advice(error)}") from error


def _advice(error: Exception) -> str:
    """What to do about it: a server that was never reached gives no SQLSTATE."""
    is_away = isinstance(error, OperationalError) and getattr(error.orig, "sqlstate", None) is None
    return ": check the address, and that the server runs" if is_away else ""


@contextlib.contextmanager
def not_lost(run_id: str) -> Iterator[None]:
    """A fault of the database in the block says that the run does not end by it."""
    try:
        yield
    except StoreError as error:
        text = f"{error}; run {run_id} stays in its queue: `agentloop runs {run_id}` says how it stands"
        raise StoreError(text) from error
