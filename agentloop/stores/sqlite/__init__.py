"""The store in a SQLite file."""

from agentloop.stores.sqlite.store import SQLiteStore
