"""DBOS in this process, set up so that it does our runs and nothing else: no port, no service, no log."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeAlias

from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer

from agentloop._plumbing.aio import in_thread
from agentloop.durable.database import DbosTables, faults_told, migrated, quiet, reached
from agentloop.durable.orders import APPLICATION, WORKFLOW, RunCancelledError
from agentloop.durable.queues import QueueLimits
from agentloop.errors import UsageError

SHAPE = "1"
"""The order of a run's steps, as a number. It changes when that does: a worker replays no run of another."""

MOST_TRIES = 100
"""A run that was begun or taken over so often is given up: it may be what kills its workers."""

IDLE_SECONDS = 10.0
"""A transaction of DBOS's that stands still for so long is ended by the server: a worker that hangs in the
middle of one keeps the others from its runs until then. DBOS's own figure is 60 s."""


Work: TypeAlias = Callable[[str, str], Awaitable[dict[str, Any]]]
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


async def started(choice: EngineChoice, work: Work) -> DBOS:
    """DBOS at work: it takes runs from these queues and does `work` with each, on this event loop.

    A process has one DBOS, so nothing else in it may use another.

    Raises:
        UsageError: a worker runs in this process already.
        StoreError: the database cannot be used.
    """
    if not _ONE_AT_A_TIME.acquire(blocking=False):
        raise UsageError("a worker runs in this process already: DBOS allows one, start another process")
    try:
        quiet()
        tables = await reached(choice.url)
        # Beside the event loop, since it takes a while; what `launch` asks, on this loop, is short.
        await migrated(tables)
        dbos = DBOS(config=_config(choice, tables))
        _declare(work)
        DBOS.listen_queues([queue.name for queue in choice.queues])
        with faults_told():
            DBOS.launch()
            # New runs go to the version that DBOS has as the latest, though nobody may work with it any more.
            await DBOS.set_latest_application_version_async(choice.version)
            for queue in choice.queues:
                await _register(queue, choice.poll_seconds)
    except BaseException:  # whatever keeps it from starting, nothing of it is left; raised again
        await stopped()
        raise
    return dbos


def take_no_more(dbos: DBOS) -> None:
    """Begin no further run."""
    for event in dbos.background_thread_stop_events:
        event.set()


async def last_taken() -> None:
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


async def forgotten(runs: Sequence[str]) -> Sequence[str]:
    """Those of these runs that somebody has deleted."""
    known = await DBOS.list_workflows_async(workflow_ids=list(runs), load_input=False, load_output=False)
    return sorted(set(runs) - {each.workflow_id for each in known})


async def cancelled(run_id: str) -> bool:
    """Whether somebody has cancelled that run."""
    found = await DBOS.list_workflows_async(
        workflow_ids=[run_id], status="CANCELLED", load_input=False, load_output=False
    )
    return bool(found)


async def newest_version() -> str:
    """The version that new runs go to: that of the worker that started last."""
    return str((await DBOS.get_latest_application_version_async())["version_name"])


async def handed_back(dbos: DBOS, worker: str) -> int:
    """Put the runs that this worker has back in their queues; how many there were."""
    return len(await in_thread(lambda: dbos._recover_pending_workflows([worker])))


async def stopped() -> None:
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


def _declare(work: Work) -> None:
    @DBOS.workflow(name=WORKFLOW, max_recovery_attempts=MOST_TRIES)
    async def agentloop_run(order: str) -> dict[str, Any]:
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
