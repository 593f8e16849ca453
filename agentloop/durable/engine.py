"""DBOS as workers and queues use it: its tables, its client, which workers are dead, and its life here."""

import asyncio
import contextlib
import re
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, ContextVar
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, TypeAlias, TypeVar

from dbos import DBOS, DBOSClient, DBOSConfig, DBOSPortableJSONSerializer, StepReservation
from dbos import error as dbos_error
from dbos._serialization import DBOSDefaultSerializer, DefaultSerializer
from sqlalchemy import URL
from sqlalchemy.exc import DBAPIError

from agentloop._plumbing.aio import in_thread
from agentloop._plumbing.host_logging import leave_to_host
from agentloop.durable.orders import APPLICATION, WORKFLOW, QueuedRun, QueueLimits
from agentloop.durable.workflow import RETRY_SECONDS, RunCancelledError, StepResult, StepWork, retry_pause
from agentloop.errors import AgentLoopError, StoreError, UsageError
from agentloop.stores.postgres import fault_of, found_at, held_among, is_away

T = TypeVar("T")

CONNECT_SECONDS = 10
"""How long a connection may take where the URL does not say it: `connect_timeout`, in seconds."""

ANSWER_SECONDS = 30
"""How long a server may leave what it was sent unacknowledged, before its connection counts as lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DbosTables:
    """Where DBOS's tables are: the database's URL as DBOS reads it, and the schema there."""

    url: str
    schema: str


async def find_tables(url: str) -> DbosTables:
    """Where DBOS's tables are to be, once a store can use the database.

    Its URL has these limits where it has none of its own: a silent server would hang its client.

    Raises:
        StoreError: it cannot be reached or used.
    """
    told, schema = await found_at(url, connect_seconds=CONNECT_SECONDS, statement_seconds=ANSWER_SECONDS)
    limits = {"connect_timeout": str(CONNECT_SECONDS), "tcp_user_timeout": str(ANSWER_SECONDS * 1000)}
    # DBOS hides a password that stands in its place. The name stands also in the query, where it holds for
    # DBOS's own look for the database too, which is otherwise made in the database `postgres`.
    place = URL.create("postgresql", told["user"], told.get("password"), database=told["dbname"])
    query = {name: value for name, value in (limits | dict(told)).items() if name not in ("user", "password")}
    written = place.set(query=query).render_as_string(hide_password=False)
    return DbosTables(url=written, schema=schema_name(schema))


_OF_PUBLIC = "dbos"
"""DBOS's own name, which the databases that know no other schema than `public` have."""

_LONGEST = 63
"""Bytes of a name in PostgreSQL: https://www.postgresql.org/docs/current/sql-syntax-lexical.html"""

_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,57}")
"""What is taken over as it is; with what stands before it, it stays shorter than every hashed name."""


def schema_name(sessions: str) -> str:
    """The schema for DBOS's tables where the sessions' stand in that one; no two have the same.

    >>> schema_name("public"), schema_name("tenant_a")
    ('dbos', 'dbos_tenant_a')
    >>> len(schema_name("a" * 63))
    63
    """
    if sessions == "public":
        return _OF_PUBLIC
    if _PLAIN.fullmatch(sessions):
        return f"{_OF_PUBLIC}_{sessions}"
    return f"{_OF_PUBLIC}_{sha256(sessions.encode()).hexdigest()}"[:_LONGEST]


_REFUSES_PICKLES: ContextVar[bool] = ContextVar("refuses_pickles", default=False)


def _have_pickles_refused() -> None:
    """Make DBOS's reader of pickles refuse them where they are ours to read; reading one may run any code.

    DBOS reads a row as the row says that it is written, whatever serializer DBOS itself is given: who could
    write to its tables would have the rights of whoever reads them.
    """
    DBOSDefaultSerializer.deserialize = _unpickled  # type: ignore[assignment]


def _unpickled(data: str) -> Any:
    if _REFUSES_PICKLES.get() or _ONE_AT_A_TIME.locked():
        raise StoreError("the queue holds a pickle, which may run any code: it is not read")
    return DefaultSerializer().deserialize(data)


@contextlib.contextmanager
def as_store_errors() -> Iterator[None]:
    """Whatever DBOS raises in the block comes out as a `StoreError`."""
    try:
        yield
    except AgentLoopError:
        raise
    except Exception as error:  # DBOS has no tree of errors for a database that it cannot use
        behind = error.orig if isinstance(error, DBAPIError) and error.orig else error
        raise fault_of("the queue cannot be used", behind) from error


async def retry_while_away(look: Callable[[], Awaitable[T]]) -> T:
    """What the look gives; a server that was reached before and is away is asked again, as in a step.

    Raises:
        StoreError: it stayed away, or refuses.
    """
    tries = 0
    while True:
        try:
            return await look()
        except StoreError as error:
            tries += 1
            pause = retry_pause(tries, error, retry_seconds=RETRY_SECONDS)
            if pause is None or not _is_away(error):
                raise
        await asyncio.sleep(pause)


@contextlib.contextmanager
def not_lost(run_id: str) -> Iterator[None]:
    """A fault of the database in the block says that the run does not end by it."""
    try:
        yield
    except StoreError as error:
        text = f"{error}; run {run_id} stays in the queue: `agentloop runs {run_id}` shows it"
        raise StoreError(text) from error


class QueueClient:
    """A client of the database at that URL, made when it is first asked."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client: DBOSClient | None = None
        self._opening = threading.Lock()

    async def ask(self, question: Callable[[DBOSClient], T]) -> T:
        """What the database says to that.

        Raises:
            StoreError: it could not be reached or used.
        """
        with as_store_errors():
            client = self._client
            if client is None:
                client = await in_thread(self._open, await find_tables(self._url))
            return await in_thread(lambda: _ask_without_pickles(client, question))

    async def close(self) -> None:
        """Let go of the database; harmless when called again."""
        client, self._client = self._client, None
        if client is not None:
            await in_thread(client.destroy)

    def _open(self, tables: DbosTables) -> DBOSClient:
        """The client; DBOS's tables are made where they are not there, since no worker may have started."""
        with self._opening:
            if self._client is None:
                leave_to_host("dbos")
                _have_pickles_refused()
                client = DBOSClient(
                    system_database_url=tables.url,
                    dbos_system_schema=tables.schema,
                    serializer=DBOSPortableJSONSerializer(),
                    application_name=APPLICATION,
                    system_database_pool_size=1,
                    retry_connection_errors=False,
                )
                try:
                    DBOS.migrate(tables.url, schema=tables.schema)
                except BaseException:  # whatever keeps it from that, nobody else would close it; raised again
                    client.destroy()
                    raise
                self._client = client
            return self._client


def _ask_without_pickles(client: DBOSClient, question: Callable[[DBOSClient], T]) -> T:
    """What it says. Meanwhile no pickle is read in this thread; while a worker is at work none is in any."""
    token = _REFUSES_PICKLES.set(True)
    try:
        return question(client)
    finally:
        _REFUSES_PICKLES.reset(token)


def _is_away(error: StoreError) -> bool:
    """Whether DBOS, which has a connection only to what was reached, lost it and gets no other."""
    cause = error.__cause__
    return isinstance(cause, DBAPIError) and is_away(cause.orig)


LOOKS = 3
"""A living worker that lost its connection takes its lock again within one look: it is dead where the lock is
free in so many looks in a row, which this worker made on one and the same connection. A server that restarts
frees the locks of all."""


class Missing:
    """In how many looks in a row each worker was missing.

    >>> missing = Missing()
    >>> [missing.is_dead("w", is_free=is_free) for is_free in (True, True, False, True, True, True)]
    [False, False, False, False, False, True]
    """

    def __init__(self) -> None:
        self._looks: dict[str, int] = {}

    def is_dead(self, worker: str, *, is_free: bool) -> bool:
        """Whether that makes the worker a dead one; `is_free` is what this look says of its lock."""
        looks = self._looks.pop(worker, 0) + 1
        if is_free and looks < LOOKS:
            self._looks[worker] = looks
        return is_free and looks >= LOOKS

    def forget(self) -> None:
        """Begin anew: looks from before one's own connection was lost tell nothing."""
        self._looks.clear()


def sign_of(worker: str) -> str:
    """The name of the lock that a worker holds for as long as it lives."""
    return f"agentloop worker {worker}"


async def with_missing(url: str, runs: Sequence[QueuedRun]) -> Sequence[QueuedRun]:
    """These runs; the error of one that goes on nowhere, since its worker is missing, says that.

    Raises:
        StoreError: the database cannot be reached.
    """
    signs = {sign_of(run.worker) for run in runs if run.state == "running" and run.worker}
    missing = signs - await held_among(url, signs) if signs else signs
    why = "its worker gives no sign of life: one of the same version is to go on with it"
    return [replace(run, error=why) if run.worker and sign_of(run.worker) in missing else run for run in runs]


SHAPE = "1"
"""The order of a run's steps, as a number. It changes when that does: a worker replays no run of another."""

MOST_TRIES = 100
"""A run that was begun or taken over so often is given up: it may be what kills its workers."""

IDLE_SECONDS = 10.0
"""A transaction of DBOS's that stands still for so long is ended by the server: a worker that hangs in the
middle of one keeps the others from its runs until then. DBOS's own figure is 60 s."""


RunWork: TypeAlias = Callable[[str, str], Awaitable[Mapping[str, Any]]]
"""What is done with a run, by its id and its order; what it came to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineChoice:
    """How DBOS runs in this process."""

    url: str
    worker: str
    version: str
    queues: Sequence[QueueLimits]
    connections: int
    poll_seconds: float


async def start_dbos(choice: EngineChoice, work: RunWork) -> DBOS:
    """DBOS at work: it takes runs from these queues and does `work` with each, on this event loop.

    A process has one DBOS, so nothing else in it may use another.

    Raises:
        UsageError: a worker runs in this process already.
        StoreError: the database cannot be used.
    """
    if not _ONE_AT_A_TIME.acquire(blocking=False):
        raise UsageError("a worker runs in this process already: DBOS allows one, start another process")
    try:
        leave_to_host("dbos")
        _have_pickles_refused()
        tables = await find_tables(choice.url)
        with as_store_errors():
            # Beside the event loop, since it takes a while; what `launch` asks, on this loop, is short.
            await in_thread(lambda: DBOS.migrate(tables.url, schema=tables.schema))
        dbos = DBOS(config=_config(choice, tables))
        _declare(work)
        DBOS.listen_queues([queue.name for queue in choice.queues])
        with as_store_errors():
            DBOS.launch()
            # New runs go to the version that DBOS has as the latest, though nobody may work with it any more.
            await DBOS.set_latest_application_version_async(choice.version)
            for queue in choice.queues:
                await _register(queue, choice.poll_seconds)
    except BaseException:  # whatever keeps it from starting, nothing of it is left; raised again
        await stop_dbos()
        raise
    return dbos


def record_step(name: str, work: StepWork, /) -> Coroutine[Any, Any, StepResult]:
    """A step of the workflow that calls: its result, from DBOS's tables where it stands there."""
    return _run_step(DBOS.reserve_step(), name, work)


async def _run_step(place: StepReservation, name: str, work: StepWork) -> StepResult:
    async def done() -> StepResult:
        return await work()

    try:
        return await place.run_async({"name": name, "preemptible": name != "end"}, done)
    except dbos_error.DBOSWorkflowCancelledError as error:
        raise RunCancelledError from error
    except dbos_error.DBOSWorkflowConflictIDError as error:
        # So a step ends that was done before DBOS saw that the run is cancelled, or that another has it now.
        if await _is_cancelled():
            raise RunCancelledError from error
        raise


async def _is_cancelled() -> bool:
    """Whether somebody has cancelled the run that calls.

    Asked outside of the workflow, in which the question would be a step of its own.
    """
    run_id = DBOS.workflow_id
    assert run_id is not None
    asking = DBOS.list_workflows_async(
        workflow_ids=[run_id], status="CANCELLED", load_input=False, load_output=False
    )
    return bool(await Context().run(asyncio.create_task, asking))


def take_no_more(dbos: DBOS) -> None:
    """Begin no further run."""
    for event in dbos.background_thread_stop_events:
        event.set()


async def wait_for_takers() -> None:
    """Wait until nothing takes a run any more that it saw before it was told to begin none."""
    for taker in [each for each in threading.enumerate() if each.name.startswith(_TAKER)]:
        await in_thread(taker.join)


def abandon_all(dbos: DBOS) -> None:
    """Cancel what is left of its tasks, those too that wait for what another worker makes of a run."""
    for task in list(dbos._workflow_tasks):
        task.cancel()


async def busy_workers(version: str) -> Sequence[str]:
    """The workers, dead ones too, that have runs of this version."""
    found = await DBOS.list_workflows_async(
        status="PENDING", app_version=version, load_input=False, load_output=False
    )
    return sorted({each.executor_id for each in found if each.executor_id})


async def deleted_runs(runs: Sequence[str]) -> Sequence[str]:
    """Those of these runs that somebody has deleted."""
    known = await DBOS.list_workflows_async(workflow_ids=list(runs), load_input=False, load_output=False)
    return sorted(set(runs) - {each.workflow_id for each in known})


async def newest_version() -> str:
    """The version that new runs go to: that of the worker that started last."""
    return str((await DBOS.get_latest_application_version_async())["version_name"])


async def hand_back(dbos: DBOS, worker: str) -> int:
    """Put the runs that this worker has back in their queues; how many there were."""
    return len(await in_thread(lambda: dbos._recover_pending_workflows([worker])))


async def stop_dbos() -> None:
    """End DBOS in this process."""
    try:
        # In a thread: DBOS waits for threads of its own that wait for this event loop.
        await in_thread(lambda: DBOS.destroy(destroy_registry=True))
    finally:
        # DBOS had put its own in this place, which takes no more work.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(thread_name_prefix="asyncio"))
        _ONE_AT_A_TIME.release()


_ONE_AT_A_TIME = threading.Lock()

_TAKER = "queue-worker-"
"""What DBOS's threads are called that take runs from a queue."""


def _declare(work: RunWork) -> None:
    @DBOS.workflow(name=WORKFLOW, max_recovery_attempts=MOST_TRIES)
    async def agentloop_run(order: str) -> Mapping[str, Any]:
        run_id = DBOS.workflow_id
        assert run_id is not None
        try:
            return await work(run_id, order)
        except RunCancelledError as error:
            # DBOS is told of it by its own error.
            raise error.__cause__ or error from None


def _config(choice: EngineChoice, tables: DbosTables) -> DBOSConfig:
    return {
        "name": APPLICATION,
        "system_database_url": tables.url,
        "dbos_system_schema": tables.schema,
        "run_migrations": False,
        "application_version": choice.version,
        "executor_id": choice.worker,
        "serializer": DBOSPortableJSONSerializer(),
        "sys_db_pool_size": choice.connections,
        "sys_db_idle_transaction_timeout_sec": IDLE_SECONDS,
        "enable_otlp": False,
        "log_level": "WARNING",
    }


async def _register(queue: QueueLimits, poll_seconds: float) -> None:
    each = queue.each if queue.most is None or queue.each is None else min(queue.each, queue.most)
    await DBOS.register_queue_async(
        queue.name,
        worker_concurrency=each,
        global_concurrency=queue.most,
        limiter={"limit": queue.rate.runs, "period": queue.rate.seconds} if queue.rate else None,
        partition_concurrency=1,
        polling_interval_sec=poll_seconds,
        on_conflict="always_update",
    )
