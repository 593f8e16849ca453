"""The store in a PostgreSQL database, and what others need to come to that database themselves."""

from agentloop.stores.postgres.connection import HeldLock, fault_of, found_at, held_among, is_away
from agentloop.stores.postgres.store import PostgresStore
