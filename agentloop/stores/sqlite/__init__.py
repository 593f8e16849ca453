"""Sessions in one SQLite file."""

from agentloop.stores.sqlite.store import SQLiteStore

__all__ = ["SQLiteStore"]
