"""The store that a URL names; each is loaded when it is first asked for."""

import re
from pathlib import Path

from agentloop._plumbing.checks import shown
from agentloop._plumbing.files import read_path
from agentloop._plumbing.patterns import pattern
from agentloop.errors import UsageError
from agentloop.stores.base import SessionStore
from agentloop.stores.memory import InMemoryStore

_SCHEME = pattern(r"\s*([a-z][a-z0-9+.-]{0,20}):", re.IGNORECASE)
_FORMS = "use memory:, sqlite:///relative.db, sqlite:////absolute/path.db or postgresql://host/database"


def open_store(store: str | SessionStore) -> SessionStore:
    """The store that a URL names, or the store itself; nothing is touched or connected to yet.

    URLs are `memory:`, `sqlite:///relative.db`, `sqlite:////absolute.db` and `sqlite:///~/in/home.db`, whose
    path is taken without escapes, and `postgresql://user:password@host:port/database?option=value`.

    Raises:
        UsageError: no store has that URL, or the store of that URL needs an extra that is not installed.
    """
    if not isinstance(store, str):
        if isinstance(store, type) or not callable(getattr(store, "append", None)):
            raise UsageError(f"store must be a URL or a store, not {shown(store)}: {_FORMS}")
        return store
    if store == "memory:":
        return InMemoryStore()
    if store.startswith("sqlite:"):
        from agentloop.stores.sqlite import SQLiteStore  # most programs open one store

        return SQLiteStore(_sqlite_path(store))
    if store.startswith(("postgresql:", "postgres:")):
        from agentloop.stores.postgres import PostgresStore  # psycopg takes a while, and need not be there

        return PostgresStore(store)
    raise UsageError(f"{_safe_url(store)} is no store URL: {_FORMS}")


def _safe_url(url: str) -> str:
    """The URL, for a message; no more than its scheme where a password may stand in it."""
    if "@" not in url and "%40" not in url and "passw" not in url.lower():
        return repr(url[:60])
    scheme = _SCHEME.match(url)
    return f"{scheme[1]}:…" if scheme else "what is given"


def _sqlite_path(url: str) -> Path:
    path = url.removeprefix("sqlite:///")
    if path == url or not path.strip("/") or "\0" in path or path == ":memory:":
        raise UsageError(f"bad store URL {_safe_url(url)}: {_FORMS}")
    if "?" in path:
        raise UsageError(
            f"bad store URL {_safe_url(url)}: a query string (?…) means nothing here, leave it out"
        )
    return read_path(path, f"bad store URL {_safe_url(url)}: it")
