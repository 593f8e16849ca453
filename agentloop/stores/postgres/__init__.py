"""The store in a PostgreSQL database, and what others need to come to that database themselves."""

from agentloop.extras import missing_extra

try:
    import psycopg  # it, and a libpq for it, can be loaded
except ImportError as error:
    raise missing_extra("a PostgreSQL store needs", "postgres") from error

from agentloop.stores.postgres.connection import found_at
from agentloop.stores.postgres.faults import fault_of, is_away
from agentloop.stores.postgres.locks import HeldLock, held_among
from agentloop.stores.postgres.store import PostgresStore
