"""Damage done to a PostgreSQL database by others: right data or one clear line, and an end."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from agentloop.bounds import MOST_RECORD_BYTES
from agentloop.errors import ConflictError, DamagedError, StoreError
from agentloop.stores import PostgresStore
from agentloop.stores.base import Checkpoint, Lease
from tests.postgres_kit import other_program
from tests.store_kit import said, texts


@pytest.fixture
async def store(database: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(database)
    yield store
    await store.close()


@pytest.mark.deep
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("DELETE FROM agentloop_events WHERE seq = 2", "records are missing before 3"),
        ("DELETE FROM agentloop_events WHERE seq = 3", "what its log does not: updated, length"),
        (
            "DELETE FROM agentloop_sessions",
            "what its log does not: there is no line",
        ),
        ("DELETE FROM agentloop_events", "what its log does not: there is no log"),
        ("UPDATE agentloop_events SET body = left(body, 9) WHERE seq = 2", "record 2: damaged record"),
        ("UPDATE agentloop_sessions SET owner = 'you'", "what its log does not: owner"),
        ("UPDATE agentloop_sessions SET title = 'x', updated = 1", "what its log does not: title, updated"),
        ("UPDATE agentloop_sessions SET title = '\\xff'", "the entry of session 's' is damaged: restore"),
    ],
)
async def test_check_finds_what_is_damaged(
    change: str, says: str, database: str, store: PostgresStore
) -> None:
    await store.append("s", [said("one"), said("two"), said("three")], expect=0)
    assert await store.check() == ()
    async with other_program(database) as other:
        await other.execute(change)
    (fault,) = await store.check()
    assert fault.startswith("PostgreSQL database ")
    assert "session 's'" in fault
    assert says in fault


async def test_check_finds_what_the_server_calls_damaged(database: str, store: PostgresStore) -> None:
    await store.append("s", [said("one")], expect=0)
    async with other_program(database) as other:
        await other.execute("ALTER TABLE agentloop_events RENAME TO pages")
        await other.execute(
            "CREATE FUNCTION damaged() RETURNS text LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE EXCEPTION 'invalid page' USING ERRCODE = 'XX001'; END $$"
        )
        await other.execute(
            "CREATE VIEW agentloop_events AS SELECT session_id, seq, damaged() AS body FROM pages"
        )
    (fault,) = await store.check()
    assert fault.endswith(": the server says that its data is damaged: restore a copy")
    with pytest.raises(DamagedError, match="the server says that its data is damaged"):
        await store.read("s")


async def test_a_damaged_record_names_its_place(database: str, store: PostgresStore) -> None:
    await store.append("s", [said("one"), said("two")], expect=0)
    async with other_program(database) as other:
        await other.execute("UPDATE agentloop_events SET body = left(body, 40) WHERE seq = 2")
    with pytest.raises(DamagedError, match=r"^PostgreSQL .*: session 's', record 2: damaged record: [^\n]+$"):
        await store.read("s")
    assert [found.record.seq for found in await store.search("one")] == [1]


@pytest.mark.deep
async def test_a_record_that_would_fill_the_memory_is_not_read(database: str, store: PostgresStore) -> None:
    await store.append("s", [said("one"), said("two")], expect=0)
    async with other_program(database) as other:
        longer = f"UPDATE agentloop_events SET body = repeat('x', {MOST_RECORD_BYTES + 1}) WHERE seq = 2"
        await other.execute(longer.encode())
    with pytest.raises(DamagedError, match="session 's', record 2: a record holds more than 200 MB"):
        await store.read("s")
    (fault,) = await store.check()
    assert "record 2: a record holds more than 200 MB" in fault
    assert [found.record.seq for found in await store.search("one")] == [1]


@pytest.mark.deep
async def test_a_record_that_would_not_be_read_is_not_written(store: PostgresStore) -> None:
    with pytest.raises(StoreError, match=r"PostgreSQL .*: a record holds more than 200 MB: make it smaller$"):
        await store.append("s", [said("one"), said("é" * (MOST_RECORD_BYTES // 2))], expect=0)
    assert await store.append("s", [said("one")], expect=0) == 1


@pytest.mark.deep
async def test_a_checkpoint_that_would_fill_the_memory_is_none(database: str, store: PostgresStore) -> None:
    await store.append("s", [said("one")], expect=0)
    await store.keep_checkpoint("s", Checkpoint(seq=1, event_id="x", body="{}"))
    async with other_program(database) as other:
        longer = f"UPDATE agentloop_checkpoints SET body = repeat('x', {MOST_RECORD_BYTES + 1})::bytea"
        await other.execute(longer.encode())
    assert await store.checkpoint("s") is None


async def test_an_orphaned_record_is_no_place_to_write(database: str, store: PostgresStore) -> None:
    """The primary key alone keeps a second writer from a position, whatever the list says."""
    await store.append("s", [said("one"), said("two")], expect=0)
    async with other_program(database) as other:
        await other.execute("DELETE FROM agentloop_sessions")
        with pytest.raises(ConflictError, match="has 2 records, not 0"):
            await store.append("s", [said("mine")], expect=0)
        with pytest.raises(StoreError, match=r"disagree about its length: run check\(\)"):
            await store.append("s", [said("mine")], expect=2)
        await other.execute(
            "INSERT INTO agentloop_sessions (id, created, updated, length) VALUES ('s', 1, 1, 2)"
        )
    assert await texts(store) == ["one", "two"]


@pytest.mark.parametrize(
    ("change", "length", "whole"),
    [
        ("DELETE FROM agentloop_events WHERE seq = 2", 3, 1),
        ("DELETE FROM agentloop_events WHERE seq = 3", 3, 2),
        ("DELETE FROM agentloop_events", 3, 0),
        ("UPDATE agentloop_sessions SET length = 2", 2, 1),
        ("DELETE FROM agentloop_sessions", 0, 0),
    ],
)
async def test_a_log_that_is_not_whole_is_read_in_no_part(
    change: str, length: int, whole: int, database: str, store: PostgresStore
) -> None:
    await store.append("s", [said("one"), said("two"), said("three")], expect=0)
    async with other_program(database) as other:
        await other.execute(change)
    says = rf"^PostgreSQL .*: the log of session 's' is damaged: it does not hold the {length} records"
    for after, most in ((0, None), (whole, 5), (max(whole - 1, 0), None)):
        with pytest.raises(DamagedError, match=says):
            await store.read("s", after=after, most=most)
    assert [record.seq for record in await store.read("s", most=whole)] == [*range(1, whole + 1)]


async def test_a_damaged_record_is_passed_over_by_a_search_and_named_by_a_read(
    database: str, store: PostgresStore
) -> None:
    await store.append("s", [said("one"), said("two")], expect=0)
    assert len(await store.search("two")) == 1
    async with other_program(database) as other:
        await other.execute("UPDATE agentloop_events SET body = left(body, 40) WHERE seq = 2")
    assert await store.search("two") == ()
    with pytest.raises(
        StoreError, match=r"^PostgreSQL [^:]*: session 's', record 2: damaged record: [^\n]+$"
    ):
        await store.read("s")


@pytest.mark.deep
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE agentloop_sessions SET length = 9223372036854775807 WHERE id = 'bad'",
        "UPDATE agentloop_events SET seq = 9223372036854775807 WHERE session_id = 'bad' AND seq = 2",
        "DELETE FROM agentloop_events WHERE session_id = 'bad' AND seq < 1000",
        "DELETE FROM agentloop_events WHERE session_id = 'bad'",
    ],
)
async def test_a_search_ends_whatever_the_length_of_a_log_is_said_to_be(
    change: str, database: str, store: PostgresStore
) -> None:
    await store.append("good", [said("needle")], expect=0)
    await store.append("bad", [said(f"needle {number}") for number in range(1_001)], expect=0)
    async with other_program(database) as other:
        await other.execute(change)
    async with asyncio.timeout(60):
        found = {each.session_id for each in await store.search("needle", most=2_000)}
        assert "good" in found
        if "seq < 1000" in change:
            places = [each.record.seq for each in await store.search("needle", session_id="bad")]
            assert places == [1_001, 1_000]


@pytest.mark.parametrize(
    "change",
    [
        r"holder = '\xff'",
        r"place = '\xff'",
        r"started = '\xff'",
        "since = 'NaN'",
        "since = 1e300",
        "pid = 4611686018427387904",
        "pid = -5",
        "until = 'infinity'",
        "until = '294275-01-01'",
    ],
)
async def test_a_damaged_lease_keeps_nobody_from_a_session(
    change: str, database: str, store: PostgresStore
) -> None:
    theirs, mine = (Lease(holder=name, place="p", pid=1, started="1", since=1.0) for name in "ab")
    await store.take_lease("s", theirs, seconds=1e15)
    assert await store.take_lease("s", mine, seconds=600) == theirs
    async with other_program(database) as other:
        await other.execute(f"UPDATE agentloop_leases SET {change}".encode())
    assert await store.take_lease("s", mine, seconds=600) == mine
    assert await store.take_lease("s", theirs, seconds=600) == mine


async def test_a_damaged_checkpoint_is_none(database: str, store: PostgresStore) -> None:
    await store.append("s", [said("one")], expect=0)
    for change in (r"body = '\xff'", r"event_id = '\xff'", "seq = -1"):
        await store.drop_checkpoint("s")
        kept = Checkpoint(seq=1, event_id="e", body="{}")
        await store.keep_checkpoint("s", kept)
        assert await store.checkpoint("s") == kept
        async with other_program(database) as other:
            await other.execute(f"UPDATE agentloop_checkpoints SET {change}".encode())
        assert await store.checkpoint("s") is None


@pytest.mark.parametrize("seq", [-1, 0, 1, 9223372036854775807])
async def test_an_index_that_forgot_how_far_it_was_is_brought_up_to_date(
    seq: int, database: str, store: PostgresStore
) -> None:
    await store.append("s", [said("needle"), said("needle"), said("other")], expect=0)
    assert len(await store.search("needle")) == 2
    async with other_program(database) as other:
        await other.execute("UPDATE agentloop_indexed SET seq = %s", (seq,))
    await store.append("s", [said("needle")], expect=3)
    assert [each.record.seq for each in await store.search("needle")] == [4, 2, 1]
    assert len(await store.search("other")) == 1
