"""What stores do with sessions that are worked on, bad values, damaged records and connections that fail."""

import asyncio
import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from hashlib import blake2b
from math import inf, nan
from pathlib import Path
from random import Random
from typing import Any

import pytest

from agentloop import Agent, Runner, tool
from agentloop.codec import encode
from agentloop.errors import ConflictError, DamagedError, SessionBusyError, StoreError, UsageError
from agentloop.events import Compacted, Described, Event, MessageRecord, Unknown
from agentloop.messages import Message
from agentloop.sessions import Session
from agentloop.sessions.checkpoint import FOLD, checkpoint_of
from agentloop.stores import InMemoryStore, PostgresStore, SQLiteStore, open_store
from agentloop.testing import ScriptedModel, calls
from tests import store_kit
from tests.cli_kit import Finished, agentloop
from tests.postgres_kit import other_program
from tests.store_kit import AnyStore, CheckpointingStore, changed_behind_its_back, lease

store = store_kit.store


def said(text: str, time: float = 1.0) -> MessageRecord:
    return MessageRecord(message=Message.user(text), tokens=1, time=time)


async def test_no_run_writes_into_a_session_that_was_begun_again_under_its_id(store: AnyStore) -> None:
    at_work, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def look_up() -> str:
        """Look the balance up."""
        at_work.set()
        await go_on.wait()
        return "ann's balance: 100"

    anns_model = ScriptedModel([calls(("look_up", {})), "done"])
    anns = Runner(Agent(anns_model, tools=[look_up]), store=store, owner="ann", transcripts=None)
    bobs = Runner(Agent(ScriptedModel(["hello bob"])), store=store, owner="bob", transcripts=None)
    run = asyncio.create_task(anns.run("go", session_id="main"))
    await at_work.wait()
    assert await store.delete("main")
    with pytest.raises(SessionBusyError):
        await bobs.run("hi", session_id="main")
    go_on.set()
    with pytest.raises(ConflictError):
        await run
    assert (await bobs.run("hi", session_id="main")).output == "hello bob"
    assert "balance" not in str(await store.read("main"))


async def test_a_sweep_leaves_a_session_under_its_run(store: AnyStore) -> None:
    swept: list[object] = []

    @tool
    async def look_up() -> str:
        """Look the balance up."""
        swept.extend(await store.sweep(now=1e12))
        return "100"

    model = ScriptedModel([calls(("look_up", {})), "done"])
    runner = Runner(Agent(model, tools=[look_up]), store=store, ttl_seconds=0.001, transcripts=None)
    result = await runner.run("go", session_id="s")
    assert (result.output, swept) == ("done", [])
    assert [info.id for info in await store.sweep(now=1e12)] == ["s"]


async def test_a_lease_that_ran_out_goes_with_a_sweep(store: AnyStore) -> None:
    long_ago: list[Event] = [Described(ttl_seconds=1.0, time=1.0)]
    await store.append("s", long_ago, expect=0)
    await store.take_lease("s", lease(), seconds=1e-6)
    assert [info.id for info in await store.sweep(now=7.0)] == ["s"]


async def test_delete_leaves_a_session_under_its_run_unless_it_is_forced(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "agentloop" / "sessions.db")

    @tool
    async def call_delete(force: bool) -> str:
        """Delete this session and another from outside."""
        forced = ["--force"] if force else []
        ended = await asyncio.to_thread(
            agentloop, "sessions", "delete", "free", "held", "--yes", *forced, cwd=tmp_path
        )
        tried.append(ended)
        return "tried"

    tried: list[Finished] = []
    await store.append("free", [said("one")], expect=0)
    model = ScriptedModel([calls(("call_delete", {"force": force})) for force in (False, True)])
    with pytest.raises(ConflictError):
        await Runner(Agent(model, tools=[call_delete]), store=store, transcripts=None).run(
            "go", session_id="held"
        )
    refused, forced = tried
    assert refused.status not in (0, 2)
    assert "session 'held' is busy: process" in refused.complaint()
    assert "--force" in refused.complaint()
    assert [line.split()[1] for line in forced.err.splitlines()] == ["deleted:", "deleted:"], forced.err
    assert await store.list() == ()
    await store.close()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://me:s3cr3t@db.example/agents",
        "Postgresql://me:s3cr3t@db/agents",
        " postgresql://me:s3cr3t@db/agents",
        "pgsql://me:s3cr3t@db/x",
        "me:s3cr3t@db/x",
        "host=db password=s3cr3t",
        "postgres ql://db/x?PASSWORD=s3cr3t",
        "mysql://me:s3cr3t%40db/x",
        "postgresql:/me:s3cr3t@db/x",
        "postgresql:///?dbname=postgresql%3A%2F%2Fme%3As3cr3t%40h%2Fd",
        "postgresql:///d?host=postgresql%3A%2F%2Fme%3As3cr3t%40h%2Fd",
        "sqlite://me:s3cr3t@x",
        "sqlite:///me:s3cr3t@x?y",
    ],
)
def test_no_password_of_a_refused_url_is_told(url: str) -> None:
    with pytest.raises(UsageError) as refused:
        open_store(url)
    assert "s3cr3t" not in str(refused.value)
    assert "s3cr3t" not in repr(refused.value.__context__)


@pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)
async def test_a_record_damaged_since_it_was_indexed_hides_no_other(
    store: AnyStore, request: pytest.FixtureRequest
) -> None:
    for name in ("bad", "good"):
        await store.append(name, [said("needle")], expect=0)
    assert len(await store.search("needle")) == 2
    await changed_behind_its_back(store, "events", "body = '{bad' WHERE session_id = 'bad'", request)
    assert [found.session_id for found in await store.search("needle")] == ["good"]
    assert list(await store.search("needle", session_id="bad")) == []
    with pytest.raises(DamagedError, match="session 'bad', record 1"):
        await store.read("bad")


NO_TIMES = [nan, inf, -inf, 10**400, True, "1"]


@pytest.mark.parametrize("now", NO_TIMES, ids=lambda now: ascii(now)[:8])
async def test_a_sweep_takes_finite_times_alone(now: Any, store: AnyStore) -> None:
    await store.append("s", [Described(ttl_seconds=1.0, time=1.0)], expect=0)
    with pytest.raises(UsageError, match="now must be a finite number, not"):
        await store.sweep(now=now)
    assert await store.sweep(now=-1e300) == ()
    assert len(await store.list()) == 1
    assert len(await store.sweep(now=10**200)) == 1


async def test_numbers_beyond_those_of_a_database_are_taken(store: AnyStore) -> None:
    await store.append("s", [said("needle", time=10**30), said("needle", time=2**64)], expect=0)
    assert [info.updated for info in await store.list()] == [float(10**30)]
    assert [record.event.time for record in await store.read("s")] == [10**30, 2**64]
    assert len(await store.search("needle", most=2**70)) == 2


@pytest.mark.parametrize("text", ["\udcff\0", "\ud83d", "é\u202e", ""])
async def test_a_lease_comes_back_as_it_was_taken(text: str, store: AnyStore) -> None:
    mine = lease(f"mine{text}", place=text, started=text, since=7, pid=2**31 - 1)
    assert await store.take_lease("s", mine, seconds=1e300) == mine
    assert await store.take_lease("s", lease("theirs"), seconds=600) == mine
    assert await store.take_lease("s", lease("theirs"), seconds=600, over=f"mine{text}") == lease("theirs")
    await store.free_lease("s", f"mine{text}")
    assert await store.take_lease("s", mine, seconds=600) == lease("theirs")
    await store.free_lease("s", "theirs")
    assert await store.take_lease("s", mine, seconds=600) == mine


async def test_the_longest_folders_and_owners_are_listed(store: AnyStore) -> None:
    drawn = Random(1)  # nothing that could be made smaller
    names = ("".join(chr(drawn.randrange(0x4E00, 0x9FFF)) for _ in range(80)) for _ in range(16))
    folder = "/" + "/".join(names) + "/\udcff"
    assert 3_800 < len(folder.encode("utf-8", "surrogatepass")) <= 4_096
    owner = "".join(chr(0x4E00 + 97 * at) for at in range(200))
    await store.append("s", [Described(folder=folder, owner=owner)], expect=0)
    await store.append("other", [Described(folder=folder[:-1], owner=owner[:-1])], expect=0)
    for given in ({"folder": folder}, {"owner": owner}, {"folder": folder, "owner": owner}):
        assert [info.id for info in await store.list(**given)] == ["s"]


@pytest.mark.parametrize("seconds", [nan, inf, -1, True, "1"])
def test_a_wait_for_writers_is_a_finite_number(seconds: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="busy_seconds must be a number of at least 0"):
        SQLiteStore(tmp_path / "sessions.db", busy_seconds=seconds)
    for name in ("statement_seconds", "connect_seconds", "retry_seconds"):
        with pytest.raises(UsageError, match=f"{name} must be a number"):
            PostgresStore("postgresql://h/d", **{name: seconds})


async def test_a_very_long_wait_for_writers_is_waited_for(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "sessions.db", busy_seconds=3e9)
    await store.append("s", [said("one")], expect=0)
    with closing(sqlite3.connect(tmp_path / "sessions.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        appending = asyncio.create_task(store.append("s", [said("two")], expect=1))
        done, _ = await asyncio.wait({appending}, timeout=0.2)
        assert not done
        other.execute("COMMIT")
    assert await appending == 2
    await store.close()


async def test_very_long_limits_of_a_postgres_store_are_taken(database: str) -> None:
    store = PostgresStore(database, statement_seconds=1e12, connect_seconds=1e12, retry_seconds=1e12)
    assert await store.append("s", [said("one")], expect=0) == 1
    await store.close()


async def test_a_setting_that_the_server_refuses_is_called_one(database: str) -> None:
    store = PostgresStore(f"{database}&options=-cstatement_timeout%3Dnever", retry_seconds=0)
    with pytest.raises(StoreError, match='invalid value for parameter "statement_timeout"') as refused:
        await store.list()
    assert "check the address" not in str(refused.value)


FORGETS = (
    """CREATE FUNCTION forget() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN EXECUTE 'DEALLOCATE ALL'; RETURN NULL; END $$""",
    "CREATE TRIGGER forget AFTER INSERT ON agentloop_events EXECUTE FUNCTION forget()",
)
"""From now on the server does what a pooler does behind each transaction."""


async def test_what_a_pooler_clears_behind_a_transaction_is_not_relied_on(database: str) -> None:
    store = PostgresStore(database, connections=1, retry_seconds=5)
    for at in range(3):
        await store.append("s", [said("one")], expect=at)
        await store.read("s")
    async with other_program(database) as other:
        for statement in FORGETS:
            await other.execute(statement)
    for at in range(3, 6):
        assert await store.append("s", [said("one")], expect=at) == at + 1
        assert len(await store.read("s")) == at + 1
    await store.close()


@pytest.mark.parametrize(
    "body",
    [
        "not json",
        "[]",
        "{}",
        '{"v":1,"kind":"k","x":"\0"}',
        '{"v":1,"kind":"k","x":"\ud800"}',
        '{"v":1,"kind":"other"}',
        '{"v":1,"kind":"described","title":"T"}',
        "[" * 100_000,
    ],
    ids=lambda body: ascii(body)[:30],
)
async def test_no_store_takes_a_record_that_could_not_be_read_again(body: str, store: AnyStore) -> None:
    with pytest.raises(UsageError, match="'k' cannot be stored"):
        await store.append("s", [said("one"), Unknown(kind="k", body=body)], expect=0)
    kept = Unknown(kind="k", body='{"v": 9, "kind":"k", "é":"\\ud800"}', id="", time=0.0)
    assert await store.append("s", [said("one"), kept], expect=0) == 2
    assert (await store.read("s"))[1].event == kept
    if not isinstance(store, InMemoryStore):
        assert await store.check() == ()


async def test_a_checkpoint_that_this_version_cannot_read_is_passed_over() -> None:
    store = CheckpointingStore()
    covered = Compacted(covers=((1, 9),), replacement="so far", at=60, tokens=1)
    await store.append("s", [*(said(f"text {at}") for at in range(60)), covered], expect=0)
    whole = (await Session.open("s", store)).context
    kept = checkpoint_of(whole, covered.id)
    newer = encode(covered).replace('"covers":[[1,9]]', '"covers":"all"')
    assert newer != encode(covered)
    _, _, data = kept.body.partition("\n")
    other = json.dumps(json.loads(data) | {"compactions": [[61, newer]]})
    signed = "\n".join((str(kept.seq), kept.event_id, other)).encode()
    heading = f"{FOLD} {blake2b(signed, digest_size=16).hexdigest()}"
    await store.keep_checkpoint("s", replace(kept, body=f"{heading}\n{other}"))
    assert [message.content for message in (await Session.open("s", store)).context.messages] == [
        message.content for message in whole.messages
    ]


def test_no_stored_text_turns_the_direction_of_writing(tmp_path: Path) -> None:
    async def store_it() -> None:
        store = SQLiteStore(tmp_path / "agentloop" / "sessions.db")
        await store.append("s", [Described(title="a\u202etxt.exe\u2066b\x1b[31m", folder="/f")], expect=0)
        await store.close()

    asyncio.run(store_it())
    listed = agentloop("sessions", "list", "--all", cwd=tmp_path)
    assert "a�txt.exe�b�[31m" in listed.out
