"""Which schema of a PostgreSQL database the tables stand in: the first of the search_path, or none."""

import re
from urllib.parse import quote

import pytest
from psycopg import sql

from agentloop.errors import StoreError
from agentloop.stores import PostgresStore
from tests.postgres_kit import other_program
from tests.store_kit import said, texts

TENANTS = ("a", '"B c"')
IN_PUBLIC = (
    r"^Post[^\n]*: its agentloop tables are in the schema public, but the search_path begins with [^\n]+$"
)
OPTION = re.compile(r"options=\S+")


def with_path(url: str, path: str) -> PostgresStore:
    """A store whose connections look into these schemas, in this order."""
    escaped = path.replace(" ", "\\ ")
    return PostgresStore(f"{url}&options=-csearch_path%3D{quote(escaped)}")


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
    "relation": "DROP TABLE agentloop_leases; CREATE VIEW agentloop_leases AS SELECT 1",
}


MALLORY = (
    """DO $$ BEGIN CREATE ROLE mallory; EXCEPTION WHEN duplicate_object OR unique_violation THEN END $$"""
)


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
        await other.execute(MALLORY)
        for table in ("events", "leases", "checkpoints"):
            await other.execute(f"ALTER TABLE agentloop_{table} OWNER TO mallory".encode())
    for call in (store.list, lambda: store.append("s", [said("two")], expect=1)):
        with pytest.raises(StoreError, match=rf"the {kind} '\w+' on agentloop_\w+ is not agentloop's"):
            await call()
    await store.close()
