"""Which schema DBOS's tables stand in: who is parted from others by schema has runs of their own too."""

import re
from hashlib import sha256

_OF_PUBLIC = "dbos"
"""DBOS's own name, which the databases that know no other schema than `public` have."""

_LONGEST = 63
"""Bytes of a name in PostgreSQL: https://www.postgresql.org/docs/current/sql-syntax-lexical.html"""

_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,57}")
"""What is taken over as it is; with what stands before it, it stays shorter than every hashed name."""


def dbos_schema(sessions: str) -> str:
    """The schema for DBOS's tables where the sessions' stand in that one; no two have the same.

    >>> dbos_schema("public"), dbos_schema("tenant_a")
    ('dbos', 'dbos_tenant_a')
    >>> len(dbos_schema("a" * 63))
    63
    """
    if sessions == "public":
        return _OF_PUBLIC
    if _PLAIN.fullmatch(sessions):
        return f"{_OF_PUBLIC}_{sessions}"
    return f"{_OF_PUBLIC}_{sha256(sessions.encode()).hexdigest()}"[:_LONGEST]
