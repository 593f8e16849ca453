"""Which schema of a PostgreSQL database the tables stand in: the first of the search_path, or none."""

import re
from typing import LiteralString
from urllib.parse import quote

import pytest
from psycopg import sql

from agentloop.errors import StoreError
from agentloop.events import Described
from agentloop.stores import PostgresStore
from agentloop.stores.base import Checkpoint, Lease
from agentloop.stores.postgres import HeldLock, held_among
from tests.postgres_kit import other_program
from tests.store_kit import said, texts

TENANTS = ("a", '"B c"')
IN_PUBLIC = (
    r"^Post[^\n]*: its agentloop tables are in the schema public, but the search_path begins with [^\n]+$"
)
OPTION = re.compile(r"options=\S+")


def with_path(url: str, path: str) -> PostgresStore:
    """A store whose connections look into these schemas, in this order."""
    return PostgresStore(with_options(url, path))


def with_options(url: str, path: str) -> str:
    """The URL of connections that look into these schemas, in this order."""
    escaped = path.replace(" ", "\\ ")
    return f"{url}&options=-csearch_path%3D{quote(escaped)}"


async def test_users_parted_by_schema_share_nothing_though_public_has_tables_too(database: str) -> None:
    public = PostgresStore(database)
    await public.append("s", [said("public")], expect=0)
    async with other_program(database) as other:
        await other.execute('CREATE SCHEMA a; CREATE SCHEMA "B c"')
    for name in TENANTS:
        alone, behind = with_path(database, name), with_path(database, f"{name},public")
        await alone.append("s", [said(f"of {name}")], expect=0)
        assert await behind.append("t", [said(name)], expect=0) == 1
        await alone.close()
        await behind.close()
    for name in TENANTS:
        store = with_path(database, f"{name},public")
        assert {info.id for info in await store.list()} == {"s", "t"}
        assert (await texts(store), await texts(store, "t")) == ([f"of {name}"], [name])
        await store.close()
    assert [info.id for info in await public.list()] == ["s"]
    await public.close()


@pytest.mark.parametrize("name", TENANTS)
async def test_tables_behind_the_first_schema_are_neither_shared_nor_hidden(name: str, database: str) -> None:
    """As where the schema of the user's own name is made later: `"$user", public` is the default."""
    public = PostgresStore(database)
    await public.append("s", [said("public")], expect=0)
    await public.close()
    both = with_path(database, f"{name},public")
    assert await texts(both) == ["public"]
    await both.close()
    async with other_program(database) as other:
        await other.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name.strip('"'))))
    for call in (both.list(), both.append("s", [said("new")], expect=1)):
        with pytest.raises(StoreError, match=IN_PUBLIC) as caught:
            await call
    use_them, make_new = [PostgresStore(f"{database}&{each}") for each in OPTION.findall(str(caught.value))]
    assert await texts(use_them) == ["public"]
    assert await make_new.list() == ()
    assert await both.append("s", [said("new")], expect=0) == 1
    assert await texts(make_new) == ["new"]
    for store in (both, use_them, make_new):
        await store.close()


FUNCTION = """CREATE FUNCTION public.mine(%s) RETURNS %s LANGUAGE plpgsql IMMUTABLE AS
    $$ BEGIN RAISE EXCEPTION 'ran as %%', current_user; END $$"""
FOREIGN = {
    "trigger": "CREATE TRIGGER t BEFORE INSERT ON agentloop_events EXECUTE FUNCTION public.mine()",
    "rule": "CREATE RULE t AS ON INSERT TO agentloop_events DO INSTEAD NOTHING",
    "policy": "CREATE POLICY t ON agentloop_events USING (public.mine(1))",
    "constraint": "ALTER TABLE agentloop_events ADD CONSTRAINT t CHECK (public.mine(1)) NOT VALID",
    "default of the column": "ALTER TABLE agentloop_leases ALTER pid SET DEFAULT public.mine(1)::int",
    "type of the column": "CREATE DOMAIN t AS int8; ALTER TABLE agentloop_checkpoints ALTER seq TYPE t",
    "index": "CREATE INDEX t ON agentloop_leases (abs(pid))",
    "row security": "ALTER TABLE agentloop_events ENABLE ROW LEVEL SECURITY",
    "child": "CREATE TABLE t () INHERITS (agentloop_events)",
    "relation": "DROP TABLE agentloop_leases; CREATE VIEW agentloop_leases AS SELECT 1",
}


MALLORY: LiteralString = """DO $$ BEGIN CREATE ROLE %s LOGIN;
    EXCEPTION WHEN duplicate_object OR unique_violation THEN END $$"""


@pytest.mark.whole
@pytest.mark.parametrize("kind", FOREIGN)
async def test_code_of_another_who_owns_the_tables_is_not_run(kind: str, database: str) -> None:
    store = PostgresStore(database)
    await store.append("s", [said("one")], expect=0)
    await store.close()
    async with other_program(database) as other:
        await other.execute(FUNCTION % (("", "trigger") if kind == "trigger" else ("int", "boolean")))
        await other.execute(FOREIGN[kind])
    assert [info.id for info in await store.list()] == ["s"]  # what the user's own tables do is theirs
    await store.close()
    async with other_program(database) as other:
        await other.execute(MALLORY % "mallory")
        for table in ("events", "leases", "checkpoints"):
            await other.execute(f"ALTER TABLE agentloop_{table} OWNER TO mallory".encode())
    for call in (store.list, lambda: store.append("s", [said("two")], expect=1)):
        with pytest.raises(StoreError, match=rf"the {kind} '\w+' on agentloop_\w+ is not agentloop's"):
            await call()
    await store.close()


LOOT = """CREATE TABLE shared.loot (what text);
    GRANT INSERT ON shared.loot TO PUBLIC;
    CREATE FUNCTION shared.stolen(text) RETURNS void LANGUAGE sql AS
        'INSERT INTO shared.loot VALUES (current_user || $1)'"""
IN_PLACE = {
    "unnest(text[])": "SETOF text",
    "make_interval(secs float8)": "interval",
    "quote_ident(name)": "text",
    "cardinality(text[])": "int4",
    "hashtextextended(text, int4)": "int8",
    "equals(float8, int4)": "boolean",
    "differs(oid, regnamespace)": "boolean",
}
"""Functions of the names of PostgreSQL's own, and of operators, which fit what is given better than those."""
OPERATORS = {
    "=": "equals, LEFTARG = float8, RIGHTARG = int4",
    "<>": "differs, LEFTARG = oid, RIGHTARG = regnamespace",
}


async def in_shared(url: str) -> PostgresStore:
    """Ann's store in a schema in which Mallory may make things too."""
    async with other_program(url) as other:
        for role in ("ann", "mallory"):
            await other.execute(MALLORY % role)
        await other.execute("CREATE SCHEMA shared; GRANT ALL ON SCHEMA shared TO ann, mallory")
    return with_path(as_user(url, "ann"), "shared")


def as_user(url: str, name: str) -> str:
    """The URL for that user of the database."""
    return url.replace("postgres@", f"{name}@", 1)


@pytest.mark.whole
async def test_a_function_of_another_is_not_called_in_place_of_postgres_own(database: str) -> None:
    store = await in_shared(database)
    async with other_program(as_user(database, "mallory")) as other:
        await other.execute(LOOT)
        for signature, result in IN_PLACE.items():
            await other.execute(
                f"""CREATE FUNCTION shared.{signature} RETURNS {result} LANGUAGE plpgsql AS
                $$ BEGIN PERFORM shared.stolen('{signature}'); RETURN{"" if "SETOF" in result else " NULL"};
                END $$""".encode()
            )
        for sign, rest in OPERATORS.items():
            await other.execute(f"CREATE OPERATOR shared.{sign} (FUNCTION = shared.{rest})".encode())
    assert (
        await store.append("s", [Described(owner="ann", folder="f", ttl_seconds=9.0), said("one")], expect=0)
        == 2
    )
    assert await store.append("s", [said("two")], expect=2) == 3
    assert await texts(store) == ["one", "two"]
    assert [found.record.seq for found in await store.search("one", owner="ann", folder="f")] == [2]
    lease = Lease(holder="h", place="p", pid=1, started="", since=0.0)
    assert await store.take_lease("s", lease, seconds=9.0) == await store.lease("s") == lease
    assert await store.sweep(owner="ann", now=1e12) == ()
    await store.free_lease("s", "h")
    await store.keep_checkpoint("s", Checkpoint(seq=1, event_id="e", body="{}"))
    assert await store.check() == ()
    lock = HeldLock(with_options(as_user(database, "ann"), "shared"), "a worker")
    await lock.keep()
    assert await held_among(with_options(as_user(database, "ann"), "shared"), {"a worker", "b"}) == {
        "a worker"
    }
    await lock.free()
    assert [info.id for info in await store.sweep(owner="ann", now=1e12)] == ["s"]
    assert not await store.delete("s")
    async with other_program(as_user(database, "mallory")) as other:
        assert await (await other.execute("SELECT what FROM shared.loot")).fetchall() == []
    await store.close()


@pytest.mark.whole
async def test_a_trigger_of_another_on_ones_own_table_is_not_run(database: str) -> None:
    store = await in_shared(database)
    await store.append("s", [said("one")], expect=0)
    await store.close()
    async with other_program(as_user(database, "ann")) as ann:
        await ann.execute("GRANT ALL ON ALL TABLES IN SCHEMA shared TO mallory")
    async with other_program(as_user(database, "mallory")) as other:
        await other.execute(
            """CREATE FUNCTION shared.mine() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
            CREATE TRIGGER t BEFORE INSERT ON shared.agentloop_events EXECUTE FUNCTION shared.mine()"""
        )
    with pytest.raises(StoreError, match="the trigger 't' on agentloop_events is not agentloop's"):
        await store.append("s", [said("two")], expect=1)
    await store.close()


async def test_tables_of_another_that_a_later_schema_has_are_looked_at_too(database: str) -> None:
    store = await in_shared(database)
    mallorys = with_path(as_user(database, "mallory"), "shared")
    await mallorys.append("s", [said("one")], expect=0)
    await mallorys.close()
    async with other_program(database) as other:
        await other.execute("CREATE SCHEMA first; GRANT ALL ON SCHEMA first TO ann, mallory")
    async with other_program(as_user(database, "mallory")) as other:
        await other.execute("GRANT ALL ON ALL TABLES IN SCHEMA shared TO ann")
        await other.execute("CREATE TABLE first.agentloop_schema AS TABLE shared.agentloop_schema")
        await other.execute("GRANT SELECT ON first.agentloop_schema TO ann")
        await other.execute("CREATE RULE t AS ON INSERT TO shared.agentloop_events DO INSTEAD NOTHING")
    both = with_path(as_user(database, "ann"), "first,shared")
    with pytest.raises(StoreError, match="the rule 't' on agentloop_events is not agentloop's"):
        await both.append("t", [said("two")], expect=0)
    await both.close()
    await store.close()
