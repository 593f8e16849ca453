"""Where sessions live: in memory, in one SQLite file, or in a PostgreSQL database (extra `postgres`)."""

from typing import TYPE_CHECKING, Any

from agentloop.stores.base import SessionInfo, SessionStore, checked_session_id
from agentloop.stores.memory import InMemoryStore
from agentloop.stores.urls import open_store, postgres_store, sqlite_store
from agentloop.stores.words import Query, excerpt, searchable

if TYPE_CHECKING:
    from agentloop.stores.postgres import PostgresStore
    from agentloop.stores.sqlite import SQLiteStore

__all__ = [
    "InMemoryStore",
    "PostgresStore",
    "SQLiteStore",
    "SessionInfo",
    "SessionStore",
    "checked_session_id",
    "open_store",
]

_LOADED_WHEN_ASKED_FOR = {"PostgresStore": postgres_store, "SQLiteStore": sqlite_store}


def __getattr__(name: str) -> Any:
    if name in _LOADED_WHEN_ASKED_FOR:
        return _LOADED_WHEN_ASKED_FOR[name]()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
