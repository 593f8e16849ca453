"""agentloop/stores/sqlite."""

from agentloop.stores.sqlite.store import SQLiteStore
