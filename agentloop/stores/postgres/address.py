"""Which PostgreSQL database a URL names, and how it is connected to."""

import math
import os
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
    if not isinstance(url, str) or not url.startswith(("postgresql://", "postgres://")) or "\0" in url:
        raise UsageError(f"bad PostgreSQL URL: {_FORM}")
    before_query = url.partition("?")[0].partition("//")[2]
    # A bare @ or / of a password would make libpq take some of it for the host, and say so in its errors.
    if before_query.count("@") > 1 or "@" in before_query.partition("/")[2]:
        raise UsageError(f"bad PostgreSQL URL: {_FORM}")
    try:
        parameters: dict[str, Any] | None = dict(conninfo_to_dict(url))
    except (psycopg.Error, UnicodeError):
        # Nothing of libpq's own words, nor a chain to them: they repeat parts of the URL.
        parameters = None
    if parameters is None or not set(str(parameters.get("port") or "")) <= set("0123456789,"):
        raise UsageError(f"bad PostgreSQL URL: {_FORM}")
    # A URL within: its password would stand in our texts, and in the server's.
    if any("://" in str(parameters.get(name) or "") for name in ("dbname", "user", "host", "hostaddr")):
        raise UsageError(f"bad PostgreSQL URL: {_FORM}")
    return parameters


def _label(given: dict[str, Any]) -> str:
    name = given.get("dbname") or given.get("user") or "of the user's name"
    host = given.get("host") or given.get("hostaddr") or os.environ.get("PGHOST") or "the local socket"
    port = f":{given['port']}" if given.get("port") else ""
    return f"PostgreSQL database {name!r} at {host}{port}"
