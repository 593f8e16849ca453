"""Where sessions live: in memory, in one SQLite file, or in a PostgreSQL database (extra `postgres`)."""

from typing import TYPE_CHECKING

from agentloop._plumbing.faces import loaded_later
from agentloop.stores.base import SessionInfo as SessionInfo, SessionStore as SessionStore
from agentloop.stores.base import checked_session_id as checked_session_id
from agentloop.stores.memory import InMemoryStore as InMemoryStore
from agentloop.stores.urls import open_store as open_store
from agentloop.stores.words import Query, excerpt, found_among, searchable

if TYPE_CHECKING:
    from agentloop.stores.postgres import PostgresStore as PostgresStore
    from agentloop.stores.sqlite import SQLiteStore as SQLiteStore
else:
    __all__, __getattr__, __dir__ = loaded_later(
        __name__,
        {"postgres": "PostgresStore", "sqlite": "SQLiteStore"},
        public="InMemoryStore PostgresStore SQLiteStore SessionInfo SessionStore checked_session_id "
        "open_store",
    )
