"""The database of a store for other clients than ours: found usable, and its faults in the same words."""

from collections.abc import Mapping
from dataclasses import dataclass

from psycopg import AsyncConnection, Error
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from agentloop._plumbing.to_text import first_line
from agentloop.errors import StoreError
from agentloop.stores.postgres.address import address_of
from agentloop.stores.postgres.faults import fault, is_lost, state_of
from agentloop.stores.postgres.link import Link
from agentloop.stores.postgres.rows import one_row
from agentloop.stores.postgres.schema import prepare

_PLACE = ("host", "hostaddr", "port")
_OF_TABLES = "42"
"""The class of errors that speak of tables and names; the store's words for them are of its own tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What `psycopg.connect` is to be told to come to a database, and the schema of a store's tables in it.

    `user` and `dbname` always stand there, as the server knows them, and what is said is in UTF-8, as a
    store's is. Where the server is stands in `conninfo`, as libpq read it: other readers have rules of their
    own for several hosts.
    """

    keywords: Mapping[str, str]
    schema: str


async def found_at(url: str, *, connect_seconds: float, statement_seconds: float) -> Found:
    """The database of the URL, once a store can use it.

    Raises:
        UsageError: it is no URL of a PostgreSQL database.
        StoreError: it cannot be reached, or cannot hold a store.
    """
    address = address_of(url, statement_seconds=statement_seconds, connect_seconds=connect_seconds)
    link = Link(address, prepare, connections=1, longest_wait=connect_seconds, retry=0)
    try:
        known, schema = await link.run(_known)
    finally:
        link.close()
    told = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    place = {name: told.pop(name) for name in _PLACE if name in told}
    told |= {**known, "client_encoding": "utf8", "conninfo": make_conninfo("", **place)}
    return Found(keywords=told, schema=schema)


def fault_of(label: str, error: BaseException) -> StoreError:
    """The fault that another client met with; chain it with `raise … from`."""
    if isinstance(error, Error) and state_of(error)[:2] != _OF_TABLES:
        return fault(label, error)
    return StoreError(f"{label}: {first_line(error)}")


def is_away(error: BaseException | None) -> bool:
    """Whether that is a server which is not there for now."""
    return isinstance(error, Error) and is_lost(error)


async def _known(connection: AsyncConnection) -> tuple[Mapping[str, str], str]:
    """What the server knows of the connection, and the schema that tables are made in."""
    [schema] = await one_row(connection, "SELECT current_schema()", ()) or [""]
    return {"user": connection.info.user, "dbname": connection.info.dbname}, schema
