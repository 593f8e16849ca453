"""Sessions in a PostgreSQL database; imports psycopg."""

from agentloop.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
