"""The address of a PostgreSQL database, read from a store's URL: no password stands in a text of ours."""

import math
import os
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from agentloop.errors import UsageError

_FORM = "use postgresql://user:password@host:port/database?option=value, other characters as %XX"
_LEAST_CONNECT_SECONDS = 2
"""Less is taken as this by libpq: https://www.postgresql.org/docs/current/libpq-connect.html."""
_MOST_SECONDS = 1_000_000
"""The server counts in milliseconds, in 32 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A database: what libpq is told, and how it is called where a password must not stand."""

    conninfo: str = field(repr=False)
    label: str


def address_of(url: str, *, statement_seconds: float, connect_seconds: float) -> Address:
    """The database that the URL names, with these limits where it has none of its own.

    Everything else in the URL reaches libpq as it stands. What the server is told (`options`) begins with our
    limits, so that the user's own, which come behind, win.

    Raises:
        UsageError: it is no URL of a PostgreSQL database; the text repeats nothing of it.
    """
    given = _parameters(url)
    milliseconds = max(1, math.ceil(min(statement_seconds, _MOST_SECONDS) * 1000))
    limits = f"-c statement_timeout={milliseconds} -c lock_timeout={milliseconds}"
    theirs = given.get("options") or os.environ.get("PGOPTIONS", "")
    ours = {
        "connect_timeout": max(_LEAST_CONNECT_SECONDS, math.ceil(min(connect_seconds, _MOST_SECONDS))),
        "tcp_user_timeout": milliseconds,
        "fallback_application_name": "agentloop",
        **given,
        "options": f"{limits} {theirs}".strip(),
        "client_encoding": "utf8",
    }
    return Address(conninfo=make_conninfo("", **ours), label=_label(given))


def _parameters(url: str) -> dict[str, Any]:
    if not isinstance(url, str) or not url.startswith(("postgresql://", "postgres://")):
        raise _bad("it begins with neither postgresql:// nor postgres://")
    if "\0" in url:
        raise _bad("a NUL stands in it")
    before_query = url.partition("?")[0].partition("//")[2]
    # A bare @ or / of a password would make libpq take some of it for the host, and say so in its errors.
    if before_query.count("@") > 1 or "@" in before_query.partition("/")[2]:
        raise _bad("a bare @ or / stands before the host: write %40 or %2F")
    parameters: dict[str, Any] | None = None
    with suppress(psycopg.Error, UnicodeError):  # whose words repeat parts of the URL
        parameters = conninfo_to_dict(url)
    if parameters is None:
        raise _bad("libpq cannot read it: an option is unknown or has no value, or a % stands alone")
    if not set(str(parameters.get("port") or "")) <= set("0123456789,"):
        raise _bad("the port is no number")
    # A URL within: its password would stand in our texts, and in the server's.
    for name in ("dbname", "user", "host", "hostaddr"):
        if "://" in str(parameters.get(name) or ""):
            raise _bad(f"a URL within it stands for {name}")
    return parameters


def _bad(fault: str) -> UsageError:
    return UsageError(f"bad PostgreSQL URL: {fault}; {_FORM}")


def _label(given: dict[str, Any]) -> str:
    name = given.get("dbname") or given.get("user") or "of the user's name"
    host = given.get("host") or given.get("hostaddr") or os.environ.get("PGHOST") or "the local socket"
    port = f":{given['port']}" if given.get("port") else ""
    return f"PostgreSQL database {name!r} at {host}{port}"
