"""The tables of a PostgreSQL database, as a list of steps: each is done once, and never changed afterwards.

They stand in the first schema of the connection's search_path that is there, all named `agentloop_…`; a URL
with `options=-csearch_path%3Dmine` puts them elsewhere. Where that schema has none and a later one of the
path has, that is refused: to use those would share them among users that are parted by schema, and to make
new ones would hide what stands in them.

Functions are named with their schema, and what stands beside an operator has just its types. Who may make
functions in a schema of the path could else have theirs run in place of PostgreSQL's own, with the rights of
who calls it (https://wiki.postgresql.org/wiki/A_Guide_to_CVE-2018-1058).

Titles, folders, owners and who holds a lease are bytes in UTF-8, since they may hold what PostgreSQL's text
cannot: NUL and lone surrogates. Folders and owners are found by their hashes: an index takes no key over
2,704 bytes, and the name of a folder may have 4,096.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import quote

from psycopg import AsyncConnection

from agentloop.bounds import MOST_RECORD_BYTES
from agentloop.errors import StoreError

Values: TypeAlias = Mapping[str, Any] | Sequence[Any]


async def all_rows(connection: AsyncConnection, statement: str, values: Values) -> list[Any]:
    """All of its rows."""
    return await (await connection.execute(statement, values, binary=True)).fetchall()


async def one_row(connection: AsyncConnection, statement: str, values: Values) -> tuple[Any, ...] | None:
    """Its first row; None where there is none."""
    return await (await connection.execute(statement, values, binary=True)).fetchone()


BODY = f"CASE WHEN pg_catalog.octet_length(body) <= {MOST_RECORD_BYTES} THEN body END"
"""A record's text as it is read: none where that would fill the memory. The length is known without it."""

_LOCK = 0x61676C70
"""`aglp`: who makes or changes the tables of a database holds this advisory lock."""

MIGRATIONS: tuple[Sequence[str], ...] = (
    (
        """CREATE TABLE agentloop_sessions (
            id text COLLATE "C" PRIMARY KEY, title bytea, folder bytea,
            created float8 NOT NULL, updated float8 NOT NULL, length int8 NOT NULL) WITH (fillfactor = 80)""",
        """CREATE TABLE agentloop_events (
            session_id text COLLATE "C" NOT NULL, seq int8 NOT NULL, body text NOT NULL,
            PRIMARY KEY (session_id, seq))""",
        "CREATE INDEX agentloop_sessions_folder ON agentloop_sessions (sha256(folder))",
    ),
    (
        "ALTER TABLE agentloop_sessions ADD owner bytea, ADD ttl_seconds float8",
        """ALTER TABLE agentloop_sessions
            ADD expires float8 GENERATED ALWAYS AS (updated + ttl_seconds) STORED""",
        "CREATE INDEX agentloop_sessions_owner ON agentloop_sessions (sha256(owner))",
        """CREATE INDEX agentloop_sessions_expires ON agentloop_sessions (expires)
            WHERE expires IS NOT NULL""",
    ),
    (
        """CREATE TABLE agentloop_checkpoints (
            session_id text COLLATE "C" PRIMARY KEY, seq int8 NOT NULL,
            event_id bytea NOT NULL, body bytea NOT NULL)""",
        """CREATE TABLE agentloop_leases (
            session_id text COLLATE "C" PRIMARY KEY, holder bytea NOT NULL, place bytea NOT NULL,
            pid int8 NOT NULL, started bytea NOT NULL, since float8 NOT NULL, until timestamptz NOT NULL)""",
    ),
    (
        """CREATE TABLE agentloop_indexed (
            session_id text COLLATE "C" PRIMARY KEY, seq int8 NOT NULL)""",
        """CREATE TABLE agentloop_words (
            session_id text COLLATE "C" NOT NULL, seq int8 NOT NULL, part int4 NOT NULL,
            is_whole boolean NOT NULL, words tsvector NOT NULL, PRIMARY KEY (session_id, seq, part))""",
        "CREATE INDEX agentloop_words_words ON agentloop_words USING gin (words)",
    ),
)
_PLACE = """
    SELECT pg_catalog.quote_ident(pg_catalog.current_schema()), pg_catalog.quote_ident(nspname)
    FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE relname = 'agentloop_schema' AND pg_catalog.pg_table_is_visible(pg_class.oid)"""
"""The first schema of the search_path, and the first of it that has our tables; no row where none has.

Not by to_regclass: what it once did not find, it may not find when another process has made it.
"""
_FOREIGN = r"""
    WITH seen AS (
        SELECT named.oid AS id, relname, relkind, relrowsecurity, me.oid AS me,
            relowner <> me.oid AS is_theirs
        FROM pg_class AS named JOIN pg_roles AS me ON rolname = current_user
        WHERE pg_catalog.pg_table_is_visible(named.oid)
            AND relname IN ('agentloop_schema', 'agentloop_sessions', 'agentloop_events',
                'agentloop_checkpoints', 'agentloop_leases', 'agentloop_indexed', 'agentloop_words')),
    theirs AS (SELECT id, relname, relkind, relrowsecurity FROM seen WHERE is_theirs)
    SELECT 'relation', relname, relname FROM theirs WHERE relkind <> 'r'
    UNION ALL SELECT 'trigger', tgname, relname FROM pg_trigger JOIN seen ON tgrelid = id
        JOIN pg_proc ON pg_proc.oid = tgfoid JOIN pg_roles AS maker ON maker.oid = proowner
        WHERE NOT tgisinternal AND (is_theirs OR (proowner <> me AND NOT maker.rolsuper))
    UNION ALL SELECT 'rule', rulename, relname FROM pg_rewrite JOIN theirs ON ev_class = id
    UNION ALL SELECT 'row security', relname, relname FROM theirs WHERE relrowsecurity
    UNION ALL SELECT 'policy', polname, relname FROM pg_policy JOIN theirs ON polrelid = id
    UNION ALL SELECT 'child', child.relname, theirs.relname FROM pg_inherits JOIN theirs ON inhparent = id
        JOIN pg_class AS child ON child.oid = inhrelid
    UNION ALL SELECT 'constraint', conname, relname FROM pg_constraint JOIN theirs ON conrelid = id
        WHERE contype NOT IN ('p', 'n')
    UNION ALL SELECT 'default of the column', attname, relname FROM pg_attribute
        JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum JOIN theirs ON attrelid = id
        WHERE pg_catalog.pg_get_expr(adbin, adrelid) <> '(updated + ttl_seconds)'
    UNION ALL SELECT 'type of the column', attname, relname FROM pg_attribute
        JOIN pg_type ON pg_type.oid = atttypid JOIN theirs ON attrelid = id
        WHERE typnamespace <> 'pg_catalog'::regnamespace::oid AND NOT attisdropped
    UNION ALL SELECT 'index', named.relname, theirs.relname FROM pg_index
        JOIN pg_class AS named ON named.oid = indexrelid JOIN theirs ON indrelid = id
        WHERE pg_catalog.pg_get_expr(indexprs, indrelid) NOT IN ('sha256(folder)', 'sha256(owner)')
            OR pg_catalog.pg_get_expr(indpred, indrelid) <> '(expires IS NOT NULL)'"""
"""What would run code of another, with the rights of who reads or writes the tables, or hide rows from them.

Who owns a table can do all of that, who may only make triggers of it that alone.
"""
BESIDE = ("agentloop_checkpoints", "agentloop_indexed", "agentloop_words")
"""What can be lost without losing anything of a log."""


async def prepare(connection: AsyncConnection, steps: Sequence[Sequence[str]] = MIGRATIONS) -> None:
    """Do the steps that this database still lacks, all or none, while nobody else does.

    Raises:
        StoreError: a newer version made the tables, only a later schema of the search_path has them, or the
            database is not in UTF-8; nothing was changed.
        Error: as psycopg raises them.
    """
    if await _version(connection) == len(steps):
        return
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise StoreError(
            f"it is in {encoding}, which cannot hold every word: create one with ENCODING 'UTF8'"
        )
    async with connection.transaction():
        await connection.execute("SET LOCAL statement_timeout = 0")
        await connection.execute("SELECT pg_catalog.pg_advisory_xact_lock(%s::int8)", (_LOCK,))
        version = await _version(connection)
        if version > len(steps):
            raise StoreError(
                "a newer agentloop made these tables: update agentloop, or name another database"
            )
        if version == 0:
            await connection.execute("CREATE TABLE IF NOT EXISTS agentloop_schema (version int4 NOT NULL)")
            await connection.execute("INSERT INTO agentloop_schema VALUES (0)")
        for statement in (each for step in steps[version:] for each in step):
            await connection.execute(statement)
        await connection.execute("UPDATE agentloop_schema SET version = %s", (len(steps),))


async def _version(connection: AsyncConnection) -> int:
    """How many of the steps are done here; 0 where there is nothing of ours.

    Raises:
        StoreError: another schema than the first of the search_path has the tables, or something there is
            not ours.
    """
    place = await (await connection.execute(_PLACE)).fetchone()
    if place is None:
        return 0
    first, theirs = place
    if first != theirs:
        raise StoreError(
            f"its agentloop tables are in the schema {theirs}, but the search_path begins with {first}: "
            f"add {_option(theirs)} to the URL to use them, or {_option(first)} to make new ones"
        )
    for kind, name, table in await (await connection.execute(_FOREIGN)).fetchall():
        raise StoreError(
            f"the {kind} {name!r} on {table} is not agentloop's, and could change or hide records: "
            "remove it, or name another database"
        )
    row = await (await connection.execute("SELECT pg_catalog.max(version) FROM agentloop_schema")).fetchone()
    return int(row[0]) if row and row[0] is not None else 0


def _option(schema: str) -> str:
    """What a URL says to have this schema alone; a space ends an option but for a backslash before it."""
    escaped = schema.replace("\\", "\\\\").replace(" ", "\\ ")
    return f"options=-csearch_path%3D{quote(escaped, safe='')}"
