"""The database of a store for other clients than ours: found usable, and its faults in the same words."""

from collections.abc import Mapping

from psycopg import AsyncConnection, Error
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from agentloop.errors import StoreError
from agentloop.plain_values import first_line
from agentloop.stores.postgres.address import address_of
from agentloop.stores.postgres.faults import fault, is_lost, state_of
from agentloop.stores.postgres.link import Link
from agentloop.stores.postgres.schema import prepare

_PLACE = ("host", "hostaddr", "port")
_OF_TABLES = "42"
"""The class of errors that speak of tables and names; the store's words for them are of its own tables."""


async def reached(url: str, *, connect_seconds: float, statement_seconds: float) -> Mapping[str, str]:
    """What `psycopg.connect` is to be told to come to the database of the URL, once a store can use it.

    `user` and `dbname` always stand there, as the server knows them, and what is said is in UTF-8, as a
    store's is. Where the server is stands in `conninfo`, as libpq read it: other readers have rules of their
    own for several hosts.

    Raises:
        UsageError: it is no URL of a PostgreSQL database.
        StoreError: it cannot be reached, or cannot hold a store.
    """
    address = address_of(url, statement_seconds=statement_seconds, connect_seconds=connect_seconds)
    link = Link(address, prepare, connections=1, longest_wait=connect_seconds, retry=0)
    try:
        known = await link.run(_known)
    finally:
        link.close()
    told = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    place = {name: told.pop(name) for name in _PLACE if name in told}
    return {**told, **known, "client_encoding": "utf8", "conninfo": make_conninfo("", **place)}


def fault_of(label: str, error: BaseException) -> StoreError:
    """The fault that another client met with; chain it with `raise … from`."""
    if isinstance(error, Error) and state_of(error)[:2] != _OF_TABLES:
        return fault(label, error)
    return StoreError(f"{label}: {first_line(error)}")


def is_away(error: BaseException | None) -> bool:
    """Whether that is a server which is not there for now."""
    return isinstance(error, Error) and is_lost(error)


async def _known(connection: AsyncConnection) -> Mapping[str, str]:
    return {"user": connection.info.user, "dbname": connection.info.dbname}
