"""PostgreSQL that is away, refuses, restarts or is killed: one clear line, or the call goes on."""

import asyncio
import contextlib
import gc
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest
import structlog

from agentloop.errors import DamagedError, StoreError
from agentloop.stores import PostgresStore
from tests.postgres_kit import PASSWORDED, Server, other_program
from tests.postgres_tls import CERTIFICATE, OTHER_CERTIFICATE, plain_in_front_of, tls_in_front_of
from tests.store_kit import said, texts


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One that may be stopped and killed; each test leaves it running."""
    server = Server(Path(tempfile.mkdtemp(prefix="agentloop-pg-")))
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {PASSWORDED} LOGIN PASSWORD 'right'")
        connection.execute("CREATE ROLE crowded LOGIN CONNECTION LIMIT 0")
        connection.execute("CREATE ROLE weak LOGIN")
        connection.execute("CREATE ROLE locked_out NOLOGIN")
    yield server
    server.stop()


@pytest.fixture
def url(server: Server) -> Iterator[str]:
    with server.database() as url:
        yield url


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url)
    yield store
    await store.close()


async def refused(store: PostgresStore) -> str:
    """The one line that a first use is refused with; the password is in nothing that hangs on it."""
    with pytest.raises(StoreError) as caught:
        await store.append("s", [said()], expect=0)
    return without_secrets(caught.value)


def without_secrets(fault: BaseException) -> str:
    """Its one line; neither it nor what hangs on it holds the password or what it was connected with."""
    error: BaseException | None = fault
    while error:
        assert "s3cret" not in f"{error!r} {vars(error)}"
        assert getattr(error, "pgconn", None) is None
        error = error.__cause__ or error.__context__
    assert "\n" not in str(fault)
    return str(fault)


@pytest.mark.parametrize(
    ("user", "database", "says"),
    [
        (f"{PASSWORDED}:s3cret", "postgres", "the user or the password was refused: check both"),
        (PASSWORDED, "postgres", "the user or the password was refused: check both"),
        ("stranger:s3cret", "postgres", "the user was refused: check the name, and pg_hba.conf"),
        ("locked_out", "postgres", "the user was refused: check the name, and pg_hba.conf"),
        ("postgres:s3cret", "nowhere", "there is no such database: create it, or name another"),
        ("crowded", "postgres", "the server takes no more connections: close some, raise max_connections"),
        ("weak", "postgres", "no rights (permission denied for schema public): grant the user CREATE"),
    ],
)
async def test_a_refused_connection_is_one_clear_line(
    user: str, database: str, says: str, server: Server
) -> None:
    store = PostgresStore(server.url_of(database, user=user))
    assert (await refused(store)).startswith(
        f"PostgreSQL database '{database}' at {server.socket.parent}: {says}"
    )
    assert "s3cret" not in repr(store)
    await store.close()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("postgresql://me:s3cret@127.0.0.1:1/db", "no connection (connection to server at"),
        ("postgresql://me:s3cret@nowhere.invalid/db", "no connection ("),
        ("postgresql:///db?host=/nowhere&password=s3cret", "no connection (connection to server on socket"),
    ],
)
async def test_a_server_that_is_not_there_is_asked_once(url: str, says: str) -> None:
    text = await refused(PostgresStore(url))
    assert says in text
    assert text.endswith("): check the address, and that the server runs")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("sslmode=require", "server does not support SSL"),
        ("sslmode=verify-full&sslrootcert=/nowhere/root.crt", "/nowhere/root.crt"),
        ("sslmode=verify-full&sslrootcert={here}", "certificate for"),
        ("sslmode=verify-full&sslrootcert={other}", "certificate verify failed"),
    ],
)
async def test_tls_that_is_asked_for_and_not_had_is_one_clear_line(
    options: str, says: str, server: Server, url: str, tmp_path: Path
) -> None:
    (tmp_path / "here.crt").write_text(CERTIFICATE)
    (tmp_path / "other.crt").write_text(OTHER_CERTIFICATE)
    told = options.format(here=tmp_path / "here.crt", other=tmp_path / "other.crt")
    if options == "sslmode=require":
        async with plain_in_front_of(server.socket) as port:
            text = await refused(PostgresStore(f"postgresql://postgres:s3cret@127.0.0.1:{port}/db?{told}"))
    else:
        async with tls_in_front_of(server.socket, tmp_path) as port:
            text = await refused(PostgresStore(f"postgresql://postgres:s3cret@127.0.0.1:{port}/db?{told}"))
    assert says in text


async def test_tls_that_is_verified_works(server: Server, url: str, tmp_path: Path) -> None:
    (tmp_path / "root.crt").write_text(CERTIFICATE)
    name = url.partition("@/")[2].partition("?")[0]
    async with tls_in_front_of(server.socket, tmp_path) as port:
        address = f"postgresql://postgres@localhost:{port}/{name}?hostaddr=127.0.0.1"
        store = PostgresStore(f"{address}&sslmode=verify-full&sslrootcert={tmp_path / 'root.crt'}")
        assert await store.append("s", [said("through TLS")], expect=0) == 1
        assert await texts(store) == ["through TLS"]
        await store.close()


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ("53100", "the server's disc is full: free some space there and try again; what was stored is safe"),
        ("53200", "the server is out of memory: try again, or give it more"),
        ("XX001", "the server says that its data is damaged: restore a copy"),
        ("P0001", "it refused the statement (no; SQLSTATE P0001)"),
    ],
)
async def test_a_refused_statement_is_one_clear_line_and_writes_nothing(
    state: str, says: str, url: str, store: PostgresStore
) -> None:
    await store.append("s", [said("one")], expect=0)
    async with other_program(url) as other:
        await other.execute(
            "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{state}'; END $$"
        )
        await other.execute("CREATE TRIGGER no BEFORE INSERT ON agentloop_events EXECUTE FUNCTION no()")
        with pytest.raises(StoreError) as caught:
            await store.append("s", [said("two")], expect=1)
        await other.execute("DROP TRIGGER no ON agentloop_events")
    assert str(caught.value).endswith(f": {says}")
    assert isinstance(caught.value, DamagedError) == (state == "XX001")
    assert await store.append("s", [said("three")], expect=1) == 2
    assert await texts(store) == ["one", "three"]


async def test_writers_that_come_between_are_tried_again(url: str, store: PostgresStore) -> None:
    await store.append("s", [said("one")], expect=0)
    async with other_program(url) as other:
        await other.execute("CREATE SEQUENCE tries")
        await other.execute(
            "CREATE FUNCTION twice() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " IF nextval('tries') < 3 THEN RAISE EXCEPTION 'raced' USING ERRCODE = '40001'; END IF;"
            " RETURN NULL; END $$"
        )
        await other.execute("CREATE TRIGGER twice AFTER INSERT ON agentloop_events EXECUTE FUNCTION twice()")
    assert await store.append("s", [said("two")], expect=1) == 2
    assert await texts(store) == ["one", "two"]


async def test_a_read_only_server_is_read_and_refuses_to_be_written(url: str, store: PostgresStore) -> None:
    await store.append("s", [said("one")], expect=0)
    reader = PostgresStore(f"{url}&options=-cdefault_transaction_read_only%3Don")
    assert await texts(reader) == ["one"]
    with pytest.raises(StoreError, match="it is read-only, as a standby is: name the primary"):
        await reader.append("s", [said("two")], expect=1)
    await reader.close()


@pytest.mark.parametrize("options", ["", "&options=-cstatement_timeout%3D100"])
async def test_a_statement_ends_in_time(options: str, url: str, store: PostgresStore) -> None:
    await store.append("s", [said("one")], expect=0)
    hasty = PostgresStore(url + options, statement_seconds=60 if options else 0.1)
    async with other_program(url) as other, other.transaction():
        await other.execute("SELECT FROM agentloop_sessions FOR UPDATE")
        with pytest.raises(StoreError, match=r"took longer than it may|held a lock for too long"):
            await hasty.append("s", [said("two")], expect=1)
    assert await hasty.append("s", [said("two")], expect=1) == 2
    await hasty.close()


async def test_a_database_that_cannot_hold_every_word_is_refused(server: Server) -> None:
    async with other_program(server.url) as other:
        await other.execute("CREATE DATABASE old ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    assert (await refused(PostgresStore(server.url_of("old")))).endswith(
        "it is in LATIN1, which cannot hold every word: create one with ENCODING 'UTF8'"
    )


async def test_tables_in_another_schema_and_no_schema_at_all(url: str) -> None:
    async with other_program(url) as other:
        await other.execute("CREATE SCHEMA mine")
        mine = PostgresStore(f"{url}&options=-csearch_path%3Dmine")
        await mine.append("s", [said("one")], expect=0)
        found = await other.execute("SELECT count(*) FROM mine.agentloop_events")
        assert await found.fetchone() == (1,)
        await mine.close()
    nowhere = PostgresStore(f"{url}&options=-csearch_path%3Dnowhere")
    assert "no schema of its search_path is there" in await refused(nowhere)


async def test_a_connection_that_was_ended_is_replaced(url: str, store: PostgresStore) -> None:
    for number in range(3):
        await store.append("s", [said(str(number))], expect=number)
        async with other_program(url) as other:
            await other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'agentloop' AND datname = current_database()"
            )
    assert await texts(store) == ["0", "1", "2"]


async def append_on(store: PostgresStore, session_id: str, written: list[str], stop: asyncio.Event) -> None:
    """Append until told to stop; `written` has the texts of the appends that returned."""
    while not stop.is_set():
        text = f"{session_id} {len(written)}"
        assert await store.append(session_id, [said(text)], expect=len(written)) == len(written) + 1
        written.append(text)


async def grown(logs: list[list[str]], least: int, writers: "asyncio.Future[list[None]]") -> None:
    """Wait until each log holds so many; a writer that failed ends the wait."""
    async with asyncio.timeout(60):
        while min(map(len, logs)) < least:
            if writers.done():
                await writers
            await asyncio.sleep(0.005)


@pytest.mark.deep
@pytest.mark.parametrize("ways", [("restart",), ("kill", "start")])
async def test_every_append_that_returned_is_there_once_and_in_order(
    ways: tuple[str, ...], server: Server, store: PostgresStore
) -> None:
    stop = asyncio.Event()
    logs: list[list[str]] = [[] for _ in range(6)]
    await store.append("first", [said()], expect=0)
    writers = [append_on(store, f"s{number}", written, stop) for number, written in enumerate(logs)]
    running = asyncio.gather(*writers)
    for turn in range(2):
        await grown(logs, 3 * (turn + 1), running)
        for way in ways:
            await asyncio.to_thread(getattr(server, way))
        assert await texts(store, "first") == ["hi"]
    await grown(logs, 9, running)
    stop.set()
    await running
    for number, written in enumerate(logs):
        assert await texts(store, f"s{number}") == written
    assert await store.check() == ()


@pytest.mark.deep
async def test_a_server_that_stays_away_is_told_in_the_end(
    server: Server, url: str, store: PostgresStore
) -> None:
    """Who waits for it can be cancelled; a store that never reached it does not wait."""
    hasty = PostgresStore(url, retry_seconds=0.3)
    assert await hasty.append("s", [said("one")], expect=0) == 1
    assert await texts(store) == ["one"]
    await asyncio.to_thread(server.halt)
    try:
        with pytest.raises(
            StoreError, match=r"no connection|stopped while it was asked|starting up or shutting"
        ):
            await hasty.append("s", [said("two")], expect=1)
        with pytest.raises(StoreError, match="no connection"):
            await PostgresStore(url, retry_seconds=600).read("s")
        waiting = asyncio.create_task(store.append("s", [said("two")], expect=1))
        await asyncio.wait([waiting], timeout=0.1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    finally:
        await asyncio.to_thread(server.start)
    assert await hasty.append("s", [said("two")], expect=1) == 2
    await hasty.close()


@pytest.mark.deep
async def test_a_server_that_is_away_is_told_to_the_host_at_once_and_once(
    server: Server, url: str, store: PostgresStore
) -> None:
    assert await texts(store) == []
    structlog.configure()
    try:
        with structlog.testing.capture_logs() as entries:
            await asyncio.to_thread(server.halt)
            waiting = asyncio.create_task(store.append("s", [said("one")], expect=0))
            try:
                async with asyncio.timeout(60):
                    while not entries:  # noqa: ASYNC110
                        await asyncio.sleep(0.01)
            finally:
                await asyncio.to_thread(server.start)
            assert await waiting == 1
            assert await texts(store) == ["one"]
    finally:
        structlog.reset_defaults()
    [told] = entries
    assert (told["event"], told["log_level"]) == ("database_away", "warning")
    assert told["error"]


async def cancelled_append(store: PostgresStore, length: int, moment: int) -> bool:
    """Whether an append of two records, cancelled at that moment, is there; nothing else may have changed."""
    two = [said(f"{moment}.{half}") for half in (1, 2)]
    task = asyncio.create_task(store.append("s", two, expect=length))
    for _ in range(moment):
        await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    found = await store.read("s", after=length)
    assert [record.event for record in found] in ([], two)
    return bool(found)


@pytest.mark.deep
async def test_an_append_cancelled_at_any_moment_is_whole_or_not_there(store: PostgresStore) -> None:
    """The next one finds a valid log and a connection that works."""
    length = await store.append("s", [said()], expect=0)
    for moment in range(14):
        length += 2 * await cancelled_append(store, length, moment)
        length = await store.append("s", [said(f"after {moment}")], expect=length)
    assert length > 15, "none was whole"
    assert await store.check() == ()


@pytest.mark.deep
async def test_an_append_cancelled_under_way_is_taken_back(url: str, store: PostgresStore) -> None:
    """The server has begun it, and waits for another writer's lock, when it is cancelled."""
    length = await store.append("s", [said()], expect=0)
    async with other_program(url) as other, other_program(url) as watcher:
        for moment in range(5):
            async with other.transaction():
                await other.execute("SELECT FROM agentloop_sessions FOR UPDATE")
                task = asyncio.create_task(store.append("s", [said("never")], expect=length))
                await waits_for_a_lock(watcher)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asyncio.wait_for(task, timeout=60)
            length = await store.append("s", [said(f"after {moment}")], expect=length)
    assert await texts(store) == ["hi", *(f"after {moment}" for moment in range(5))]
    assert await store.check() == ()


async def waits_for_a_lock(watcher: psycopg.AsyncConnection) -> None:
    """Return once a connection to this database does."""
    waiting = """SELECT FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'"""
    async with asyncio.timeout(60):
        while not (await watcher.execute(waiting)).rowcount:  # noqa: ASYNC110 — only the server knows
            await asyncio.sleep(0.005)


@pytest.mark.deep
async def test_who_waits_for_a_busy_store_can_be_cancelled(url: str) -> None:
    store = PostgresStore(url, connections=1)
    await store.append("s", [said()], expect=0)
    async with other_program(url) as other, other.transaction():
        await other.execute("SELECT FROM agentloop_sessions FOR UPDATE")
        waiting = [asyncio.create_task(store.append("s", [said()], expect=1)) for _ in range(3)]
        await asyncio.wait(waiting, timeout=0.05)
        for task in waiting:
            task.cancel()
        done = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), timeout=60)
    assert [type(each) for each in done] == [asyncio.CancelledError] * 3
    assert await store.append("s", [said()], expect=1) == 2
    await store.close()
    gc.collect()
