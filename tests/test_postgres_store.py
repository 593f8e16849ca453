"""The PostgreSQL store: the contract, its tables, many writers, loops, processes, search, and whole runs."""

import asyncio
import gc
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from agentloop import Agent, Runner, SyncRunner, UsageError
from agentloop.errors import ConflictError, StoreError
from agentloop.events import Described, Unknown
from agentloop.extras import installing
from agentloop.stores import PostgresStore, open_store
from agentloop.stores.base import FindsWords, GrantsLeases, KeepsCheckpoints, Lease
from agentloop.stores.postgres.schema import MIGRATIONS, prepare
from agentloop.stores.postgres.search import OVERLAP, vectors
from agentloop.testing import ScriptedModel
from tests.many_writers_kit import check_nothing_is_lost, written_by_all
from tests.postgres_kit import connections_of, other_program, until_connected
from tests.store_kit import ran, said, texts


@pytest.fixture
async def store(database: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(database)
    yield store
    await store.close()


def test_it_has_all_that_a_store_may_have() -> None:
    store = open_store("postgresql://me:secret@db.example:5433/agents?sslmode=verify-full")
    assert isinstance(store, PostgresStore)
    assert isinstance(store, FindsWords)
    assert isinstance(store, KeepsCheckpoints)
    assert isinstance(store, GrantsLeases)
    assert repr(store) == "PostgresStore(\"PostgreSQL database 'agents' at db.example:5433\")"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:sec@ret@host/db",
        "postgresql://me:sec/ret@host/db",
        "postgresql://me:12/ret@host/db",
        "postgresql://me:sec%zzret@host/db",
        "postgresql://host/db?nothing=ret",
        "postgresql://me:secret@host/db\0",
        "host=x password=secret",
        "mysql://me:secret@host",
    ],
)
def test_a_bad_url_is_one_line_that_repeats_nothing_of_it(url: str) -> None:
    with pytest.raises(
        UsageError, match=r"^bad PostgreSQL URL: .+; use postgresql://user:password@host"
    ) as caught:
        PostgresStore(url)
    assert "ret" not in str(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    "arguments",
    [{"statement_seconds": 0}, {"connect_seconds": -1}, {"connections": 0}, {"retry_seconds": -1}],
)
def test_numbers_out_of_range_are_named(arguments: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=f"^{next(iter(arguments))} must be"):
        PostgresStore("postgresql://host/db", **arguments)  # type: ignore[arg-type]


def test_psycopg_is_loaded_late_and_may_be_missing() -> None:
    script = (
        "import sys, agentloop, agentloop.stores as stores\n"
        "assert not [name for name in sys.modules if name.startswith('psycopg')]\n"
        "sys.modules['psycopg'] = None\n"
        "for use in (lambda: stores.open_store('postgres://host/db'), lambda: stores.PostgresStore):\n"
        "    try:\n"
        "        use()\n"
        "    except agentloop.UsageError as error:\n"
        "        print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    says = f"a PostgreSQL store needs the extra 'postgres': {installing('postgres')}\n"
    assert done.stdout == says * 2


@pytest.mark.parametrize("steps", range(len(MIGRATIONS) + 1))
async def test_tables_of_each_step_are_brought_up_to_date(
    steps: int, database: str, store: PostgresStore
) -> None:
    async with other_program(database) as other:
        await prepare(other, MIGRATIONS[:steps])
        if steps:
            body = '{"v":1,"kind":"noted","id":"n","time":5.0,"source":"old","data":{"words":"kept"}}'
            await other.execute("INSERT INTO agentloop_events VALUES ('old', 1, %s)", (body,))
            await other.execute(
                "INSERT INTO agentloop_sessions (id, created, updated, length) VALUES ('old', 5, 5, 1)"
            )
    assert len(await store.read("old")) == (1 if steps else 0)
    length = await store.append(
        "old", [Described(owner="me", ttl_seconds=5), said("new")], expect=min(steps, 1)
    )
    (info,) = await store.list(owner="me")
    assert (info.length, info.ttl_seconds) == (length, 5.0)
    assert [found.record.seq for found in await store.search("kept")] == ([1] if steps else [])
    lease = Lease(holder="h", place="p", pid=1, started="s", since=1.0)
    assert await store.take_lease("old", lease, seconds=5) == lease
    assert await store.checkpoint("old") is None
    assert await store.check() == ()


async def test_newer_tables_are_refused_and_left_alone(database: str, store: PostgresStore) -> None:
    await store.append("s", [said()], expect=0)
    await store.close()
    async with other_program(database) as other:
        await other.execute("UPDATE agentloop_schema SET version = 99")
        for call in (store.append("s", [said()], expect=1), store.read("s")):
            with pytest.raises(
                StoreError, match=r"^PostgreSQL database .*: a newer agentloop made .*: update"
            ):
                await call
        found = await other.execute("SELECT count(*) FROM agentloop_events")
        assert await found.fetchone() == (1,)


@pytest.mark.deep
async def test_l15_many_writers_one_of_which_compacts_make_the_tables_and_lose_nothing(database: str) -> None:
    store = PostgresStore(database)
    await written_by_all(database, store)
    await check_nothing_is_lost(store)
    assert await store.check() == ()
    await store.close()


async def test_a_deleted_session_leaves_nothing_to_an_append_that_raced(store: PostgresStore) -> None:
    await store.append("s", [said()], expect=0)

    async def write() -> None:
        for _ in range(30):
            length = len(await store.read("s"))
            try:
                await store.append("s", [said()], expect=length)
            except ConflictError:
                continue

    async def delete() -> None:
        for _ in range(30):
            await store.delete("s")

    async def check() -> None:
        for _ in range(10):
            assert await store.check() == ()

    await asyncio.gather(write(), write(), delete(), delete(), check())
    assert await store.check() == ()


HOSTILE = "'); DROP TABLE agentloop_events; -- %s %(id)s {} $1 \\ \0 \ud800 \" : & | ! <-> \n"


async def test_hostile_texts_do_nothing_but_stand_there(store: PostgresStore) -> None:
    described = Described(title=HOSTILE, folder=HOSTILE, owner="'; DROP TABLE agentloop_sessions; --")
    await store.append("s", [described, said(HOSTILE)], expect=0)
    (info,) = await store.list(folder=HOSTILE, owner=described.owner)
    assert (info.title, info.folder, info.owner) == (HOSTILE, HOSTILE, described.owner)
    assert [found.record.seq for found in await store.search(HOSTILE, owner=described.owner)] == [2, 1]
    assert await store.search("'drop' <-> 'table' | 'x':1A", owner=described.owner) == ()
    lease = Lease(holder=HOSTILE[:40], place="'", pid=1, started='"', since=0.0)
    assert await store.take_lease("s", lease, seconds=1, over="' OR true --") == lease
    for bad in ("'; --", "s' OR '1'='1"):
        with pytest.raises(UsageError, match="bad session id"):
            await store.read(bad)
    assert await texts(store) == [HOSTILE]
    assert await store.check() == ()


async def test_half_a_character_outside_our_own_records_is_refused(store: PostgresStore) -> None:
    body = '{"v":1,"kind":"dreamt","of":"\ud800"}'
    with pytest.raises(UsageError, match="surrogates not allowed"):
        await store.append("s", [Unknown(kind="dreamt", body=body)], expect=0)
    assert await store.list() == ()


@pytest.mark.deep
async def test_each_loop_has_its_own_connections_and_closed_loops_let_theirs_go(database: str) -> None:
    store = PostgresStore(f"{database}&application_name=loops")

    def in_other_loops() -> None:
        for number in range(3):
            asyncio.run(store.append("s", [said(str(number))], expect=number))

    await asyncio.to_thread(in_other_loops)
    assert await texts(store) == ["0", "1", "2"]
    async with other_program(database) as watcher:
        await until_connected(watcher, "loops", 1)
        await asyncio.gather(*(store.read("s") for _ in range(50)))
        assert 1 <= await connections_of(watcher, "loops") <= 8
        await store.close()
        await store.close()
        await until_connected(watcher, "loops", 0)
    assert await store.append("s", [said("3")], expect=3) == 4
    await store.close()
    gc.collect()


async def test_a_program_that_never_closes_ends_quietly(database: str) -> None:
    script = (
        "import asyncio, sys\n"
        "from agentloop.stores import PostgresStore\n"
        "store = PostgresStore(sys.argv[1])\n"
        "asyncio.run(store.read('s'))\n"
        "loop = asyncio.new_event_loop()\n"
        "loop.run_until_complete(store.read('s'))\n"
    )
    status, output = await ran(script + "loop.close()\n", database)
    assert (status, output) == (0, "")


async def test_long_texts_are_found_to_their_end(store: PostgresStore) -> None:
    words = " ".join(f"w{number} the" for number in range(12_000))
    await store.append("s", [said(f"alpha {words} connection refused omega"), said("the same the")], expect=0)
    for text in (
        "alpha",
        "omega",
        "alpha omega",
        '"connection refused"',
        "w254 w11999",
        '"w254 the w255 the"',
    ):
        assert [found.record.seq for found in await store.search(text)] == [1], text
    assert [found.record.seq for found in await store.search("the")] == [2, 1]
    for text in ('"refused connection"', '"alpha omega"', "alpha nowhere"):
        assert await store.search(text) == (), text
    long_phrase = " ".join(f"w{number} the" for number in range(240, 280))
    assert [found.record.seq for found in await store.search(f'"{long_phrase}"')] == [1]
    assert await store.search(" ".join(f"w{number}" for number in range(2_000))) != ()


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ([], 0),
        (["a"] * 255, 1),
        (["a"] * 256, 2),
        ([*map(str, range(16_000))], 1),
        ([f"{n:01000}" for n in range(450)], 2),
    ],
)
def test_a_text_is_cut_only_where_a_vector_would_not_take_it(words: list[str], parts: int) -> None:
    assert len(vectors(words)) == parts


@pytest.mark.deep
async def test_long_records_are_indexed_a_few_at_a_time(store: PostgresStore) -> None:
    texts = [f"word {'hay ' * 200_000} end{number}" for number in range(7)]
    await store.append("s", [*map(said, texts), *(said("a word") for _ in range(300))], expect=0)
    found = await store.search("word", most=1_000)
    assert [each.record.seq for each in found] == list(range(307, 0, -1))
    assert [[each.record.seq for each in await store.search(f"end{number}")] for number in range(7)] == [
        [number + 1] for number in range(7)
    ]


def test_a_phrase_stands_whole_in_one_part() -> None:
    words = [f"w{number % 7}" for number in range(5_000)]
    parts = vectors(words)
    assert len(parts) > 2
    assert all(len(part) < 1_000_000 for part in parts)
    lengths = [part.count(",") + part.count(":") for part in parts]
    assert sum(lengths) == len(words) + OVERLAP * (len(parts) - 1)


async def test_one_owner_never_finds_what_another_said(store: PostgresStore) -> None:
    await store.append("mine", [Described(owner="me"), said("the plan")], expect=0)
    await store.append("yours", [Described(owner="you"), said("the plan")], expect=0)
    assert [found.session_id for found in await store.search("plan", owner="me")] == ["mine"]
    assert await store.search("plan", owner="me", session_id="yours") == ()
    assert len(await store.search("plan")) == 2


@pytest.mark.deep
async def test_a_run_goes_on_in_another_process(database: str) -> None:
    model = ScriptedModel(["first answer"])
    with SyncRunner(Agent(model), store=database, transcripts=None) as runner:
        assert runner.run("first question", session_id="s").output == "first answer"
    script = (
        "import asyncio, sys\n"
        "from agentloop import Agent, Runner\n"
        "from agentloop.testing.models import ScriptedModel\n"
        "async def main():\n"
        "    model = ScriptedModel(['second answer'])\n"
        "    async with Runner(Agent(model), store=sys.argv[1], transcripts=None) as runner:\n"
        "        await runner.run('second question', session_id='s')\n"
        "        print([message['content'] for message in model.requests[-1].messages])\n"
        "asyncio.run(main())\n"
    )
    status, output = await ran(script, database)
    assert (status, output) == (0, "['first question', 'first answer', 'second question']\n")
    async with Runner(Agent(ScriptedModel(["third"])), store=database, transcripts=None) as runner:
        await runner.run("third question", session_id="s")
        kinds = [type(record.event).__name__ for record in await runner.events("s")]
    assert kinds.count("MessageRecord") == 6
