"""Where sessions live: in memory, or in one SQLite file."""

from pathlib import Path

from agentloop.checks import shown
from agentloop.errors import UsageError
from agentloop.stores.base import SessionInfo, SessionStore, checked_session_id
from agentloop.stores.memory import InMemoryStore
from agentloop.stores.sqlite import SQLiteStore

__all__ = [
    "InMemoryStore",
    "SQLiteStore",
    "SessionInfo",
    "SessionStore",
    "checked_session_id",
    "open_store",
]

_FORMS = "use memory:, sqlite:///relative.db or sqlite:////absolute/path.db"


def open_store(store: str | SessionStore) -> SessionStore:
    """The store that a URL names, or the store itself; nothing on disc is touched yet.

    URLs are `memory:`, `sqlite:///relative.db` and `sqlite:////absolute/path.db`; the path is taken as it
    stands, without escapes. Raises:
        UsageError: no store has that URL.
    """
    if not isinstance(store, str):
        if isinstance(store, type) or not callable(getattr(store, "append", None)):
            raise UsageError(f"store must be a URL or a store, not {shown(store)}: {_FORMS}")
        return store
    if store == "memory:":
        return InMemoryStore()
    if store.startswith("sqlite:"):
        return SQLiteStore(_sqlite_path(store))
    if store.startswith(("postgresql:", "postgres:")):
        raise UsageError(f"a PostgreSQL store needs the extra 'postgres', not in this version yet: {_FORMS}")
    raise UsageError(f"{store[:60]!r} is no store URL: {_FORMS}")


def _sqlite_path(url: str) -> Path:
    path = url.removeprefix("sqlite:///")
    if path == url or not path.strip("/") or "\0" in path or path == ":memory:":
        raise UsageError(f"bad store URL {url[:60]!r}: {_FORMS}")
    if "?" in path:
        raise UsageError(f"bad store URL {url[:60]!r}: a query string (?…) means nothing here, leave it out")
    return Path(path)
