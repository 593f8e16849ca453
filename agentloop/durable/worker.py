"""A worker: takes runs from the queue, does them, and takes over those of workers that died."""

import asyncio
import contextlib
import os
import socket
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path

from dbos import DBOS

from agentloop.agent import Agent
from agentloop.callbacks import Callbacks
from agentloop.checks import above_zero, shown, whole_or_none
from agentloop.durable import engine
from agentloop.durable.engine import EngineChoice, QueueLimits
from agentloop.durable.flow import RETRY_SECONDS, Flow
from agentloop.durable.live import Place
from agentloop.durable.orders import QUEUE, checked_url
from agentloop.errors import UsageError
from agentloop.host_logger import host_logger
from agentloop.limits import Limits, check_priced, limited
from agentloop.openings import folder_of, instances, transcripts_folder
from agentloop.redaction import Redact, checked_redaction
from agentloop.setting import Setting
from agentloop.stores import open_store
from agentloop.stores.postgres.locks import HeldLock
from agentloop.watch import Sink, unseen

CONCURRENCY = 4
GRACE_SECONDS = 5.0
LOOK_SECONDS = 2.0
POLL_SECONDS = 1.0
_OWN_CONNECTIONS = 4


class Worker:
    """Does the runs that are submitted to a PostgreSQL database, `concurrency` of each queue at a time.

    `queues` are names, or `QueueLimits` for limits of their own. A worker asked to stop begins nothing more,
    gives what is in flight `grace_seconds` to end, and hands its runs back for others to go on with. It looks
    for dead workers every `look_seconds`, and into its queues every `poll_seconds`. A step whose server or
    database is away is tried again after `retry_seconds`, then after twice as long, five times in all: then
    the run ends as `try_later`. A run stays with the workers of the `version` that began it; new ones go to
    the newest: give another where an agent is so changed that it must not go on with what the old one began.
    The other arguments are those of `Runner` and of `Runner.run`; `on_event` gets each event of each run. A
    worker is run once, and alone in its process.

    Raises:
        UsageError: the store is no PostgreSQL database, or an argument is not what it must be.
    """

    def __init__(
        self,
        agent: Agent,
        store: str,
        *,
        queues: Iterable[str | QueueLimits] = (QUEUE,),
        concurrency: int = CONCURRENCY,
        version: str = "",
        limits: Limits | None = None,
        callbacks: Iterable[Callbacks] = (),
        transcripts: Path | str | None = Path(".transcripts"),
        folder: str | None = None,
        redact: Redact | None = None,
        on_event: Sink = unseen,
        grace_seconds: float = GRACE_SECONDS,
        look_seconds: float = LOOK_SECONDS,
        poll_seconds: float = POLL_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        above_zero("grace_seconds", grace_seconds)
        above_zero("look_seconds", look_seconds)
        above_zero("poll_seconds", poll_seconds)
        above_zero("retry_seconds", retry_seconds)
        whole_or_none("concurrency", concurrency, 1)
        if not isinstance(agent, Agent):
            raise UsageError(f"agent must be an Agent(model, …), not {shown(agent)}")
        limits = limited(limits, agent.max_steps)
        self._url = checked_url(store)
        self._store = open_store(self._url)
        setting = Setting(
            agent=agent,
            store=self._store,
            callbacks=instances(callbacks),
            transcripts=transcripts_folder(transcripts),
            folder=folder_of(folder),
            redact=None if redact is None else checked_redaction(redact),
        )
        check_priced(limits, *setting.models)
        self.id = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._flow = Flow(
            place=Place(setting=setting, limits=limits, sink=on_event),
            retry_seconds=retry_seconds,
        )
        self._choice = EngineChoice(
            url=self._url,
            worker=self.id,
            version=f"{engine.SHAPE} {version}".strip(),
            queues=_with_limits(queues, concurrency),
            connections=min(20, concurrency + _OWN_CONNECTIONS),
            poll_seconds=poll_seconds,
        )
        self._life = HeldLock(self._url, _sign_of(self.id))
        self._grace_seconds = grace_seconds
        self._look_seconds = look_seconds
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Ask it to stop; called in its event loop. `run` returns when all is handed back."""
        self._stop.set()

    async def run(self) -> None:
        """Work until `stop` is called; cancelled it stops in the same way.

        Raises:
            UsageError: another worker runs in this process.
            StoreError: the database cannot be reached.
        """
        try:
            await self._life.keep()
            dbos = await engine.started(self._choice, self._flow.run)
        except BaseException:  # whatever keeps it from starting, nothing stays open; raised again
            await self._close()
            raise
        looking = asyncio.create_task(self._look_after_others(dbos))
        try:
            await self._stop.wait()
        finally:
            looking.cancel()
            await self._wind_up(dbos)

    async def _look_after_others(self, dbos: DBOS) -> None:
        while True:
            try:
                await self._life.keep()
                await self._take_over_from_dead(dbos)
            except Exception as error:  # noqa: BLE001 — whatever it is, dead workers are looked for again
                if (logger := host_logger()) is not None:
                    logger.warning("dead_workers_not_looked_for", worker=self.id, error=str(error))
            await asyncio.sleep(self._look_seconds)

    async def _take_over_from_dead(self, dbos: DBOS) -> None:
        for worker in await engine.busy_workers(self._choice.version):
            if worker == self.id:
                continue
            async with self._life.is_free(_sign_of(worker)) as is_dead:
                if is_dead:
                    await engine.handed_back(dbos, worker)

    async def _wind_up(self, dbos: DBOS) -> None:
        self._flow.stopping = True
        engine.take_no_more(dbos)
        tasks = list(self._flow.under_way.values())
        if tasks:
            await asyncio.wait(tasks, timeout=self._grace_seconds)
        engine.abandon_all(dbos)
        if tasks:
            await asyncio.wait(tasks, timeout=self._grace_seconds)
        # DBOS waits for a database that is away; then whoever looks for dead workers finds these runs.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(engine.handed_back(dbos, self.id), self._grace_seconds)
        await engine.stopped()
        await self._close()

    async def _close(self) -> None:
        await self._life.free()
        await self._store.close()


def _with_limits(queues: Iterable[str | QueueLimits], concurrency: int) -> Sequence[QueueLimits]:
    if isinstance(queues, str | QueueLimits):
        queues = (queues,)
    found = [
        queue if isinstance(queue, QueueLimits) else QueueLimits(name=queue, each=concurrency)
        for queue in queues
    ]
    if not found:
        raise UsageError("queues is empty: name one, e.g. 'agentloop'")
    return found


def _sign_of(worker: str) -> str:
    """The name of the lock that a worker holds for as long as it lives."""
    return f"agentloop worker {worker}"
