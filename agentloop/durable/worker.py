"""Worker: does the runs of a database's queues, and takes over those of dead workers."""

import asyncio
import os
import socket
import uuid
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from dbos import DBOS

from agentloop._plumbing.aio import CANCEL_GRACE_SECONDS, ENDING_SECONDS, to_its_end
from agentloop._plumbing.checks import MOST_COUNT, called, shown, up_to, whole
from agentloop._plumbing.host_logging import warn
from agentloop._plumbing.to_text import first_line, words_of
from agentloop.callbacks import Callbacks, checked_callbacks
from agentloop.durable import engine
from agentloop.durable.engine import EngineChoice, Missing, as_store_errors, sign_of
from agentloop.durable.held_run import WorkPlace
from agentloop.durable.notices import Hears, Listener, Notices, drop_line
from agentloop.durable.orders import QUEUE, QueueLimits, checked_url, with_limits
from agentloop.durable.workflow import RETRY_SECONDS, Workflow
from agentloop.emitter import Sink, drop_event
from agentloop.errors import UsageError
from agentloop.redaction import Redact, Redaction, checked_redaction
from agentloop.rules import Rules
from agentloop.run import Agent, Limits, check_priced, with_step_limit
from agentloop.runner import Runner, config_of
from agentloop.stores import open_store
from agentloop.stores.base import SessionStore
from agentloop.stores.postgres import HeldLock
from agentloop.team import Team

CONCURRENCY = 4
GRACE_SECONDS = 5.0
LOOK_SECONDS = 2.0
POLL_SECONDS = 1.0
HAND_BACK_SECONDS = 10.0
"""How long the database may take to put the runs back in their queues, on top of the grace. Where it takes
longer, whoever looks for dead workers finds them. Our own figure."""

_NOT_HANDED_BACK = "stopped: the database did not take its runs back: another worker finds those that it had"
_OWN_CONNECTIONS = 4
_DAY_SECONDS = 86_400.0
_LONGEST_VERSION = 200
_SILENT_SECONDS = 10.0
"""A look for dead workers that takes longer is a database that does not answer."""


class Worker:
    """Does the runs that are submitted to a PostgreSQL database, `concurrency` of each queue at a time.

    `queues` are names, or `QueueLimits` for limits of their own. In place of an agent it takes a `Team`: then
    it does the turns of its members, which `Team.run(queue)` submits, and its queue is the one that is called
    like the team where none is named. The other arguments are those of `Runner` and of `Runner.run`;
    `on_event` gets each event of each run, and `on_notice` one line when the worker is connected, when its
    database cannot be used, when it can again, when new runs go to another version, and when it is stopped:
    whether its runs are handed back. A worker is run once, and alone in its process.

    A worker asked to stop begins nothing more, gives what is in flight `grace_seconds` to end and what it
    then cuts off `ENDING_SECONDS` to leave its session in order, and hands its runs back for others to go on
    with, for which the database has `HAND_BACK_SECONDS`. It looks for dead workers every `look_seconds` (one
    is dead where it is missing three times in a row, so give all workers the same), and into its queues every
    `poll_seconds`.

    A run whose session somebody else works on waits as long as that lasts, and is one of the `concurrency`
    meanwhile. A step whose server or database is away is tried again after `retry_seconds`, then after twice
    as long, or as the server asks, five times in all: then the run ends as `try_later`. A run that meets a
    call which needs a yes ends as `needs_approval`: `RunQueue.approve` goes on with its session. A run stays
    with the workers of the `version` that began it; new ones go to that of the worker that started last: give
    another where an agent is so changed that it must not go on with what the old one began.

    Raises:
        UsageError: the store is no PostgreSQL database, or an argument is not what it must be.
    """

    def __init__(
        self,
        agent: Agent | Team,
        store: str,
        *,
        queues: Iterable[str | QueueLimits] | None = None,
        concurrency: int = CONCURRENCY,
        version: str = "",
        limits: Limits | None = None,
        callbacks: Iterable[Callbacks] = (),
        transcripts: Path | str | None = Path(".transcripts"),
        folder: str | None = None,
        redact: Redact | None = None,
        rules: Rules | None = None,
        on_event: Sink = drop_event,
        on_notice: Hears = drop_line,
        grace_seconds: float = GRACE_SECONDS,
        look_seconds: float = LOOK_SECONDS,
        poll_seconds: float = POLL_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        _check_seconds(grace=grace_seconds, look=look_seconds, poll=poll_seconds, retry=retry_seconds)
        whole("concurrency", concurrency, 1, most=MOST_COUNT)
        called("on_event", on_event, "a function of an event")
        called("on_notice", on_notice, "a function of a text")
        url = checked_url(store)
        self.id = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._store = open_store(url)
        place_for = partial(
            _place,
            store=self._store,
            limits=limits,
            sink=on_event,
            callbacks=checked_callbacks(callbacks),
            transcripts=transcripts,
            folder=folder,
            redact=redact,
            rules=rules,
        )
        if queues is None:
            queues = (agent.name if isinstance(agent, Team) else QUEUE,)
        self._workflow = Workflow(
            place_of=_places(agent, place_for),
            record=engine.record_step,
            redaction=Redaction(None if redact is None else checked_redaction(redact)),
            retry_seconds=retry_seconds,
        )
        self._choice = EngineChoice(
            url=url,
            worker=self.id,
            version=f"{engine.SHAPE} {_checked_version(version)}".strip(),
            queues=with_limits(queues, concurrency),
            connections=min(20, concurrency + _OWN_CONNECTIONS),
            poll_seconds=poll_seconds,
        )
        self._life = HeldLock(url, sign_of(self.id))
        self._missing = Missing()
        self._grace_seconds = grace_seconds
        self._look_seconds = look_seconds
        self._stop = asyncio.Event()
        self._notices = Notices(worker=self.id, hears=on_notice)
        self._was_run = False

    def stop(self) -> None:
        """Ask it to stop; called in its event loop. `run` returns when all is handed back."""
        self._stop.set()

    async def run(self) -> None:
        """Work until `stop` is called; cancelled it stops in the same way, however often.

        Raises:
            UsageError: another worker runs in this process, or this one was run before.
            StoreError: the database cannot be used.
        """
        if self._was_run:
            raise UsageError("a worker is run once: make another one")
        self._was_run = True
        try:
            await self._life.keep()
            dbos = await engine.start_dbos(self._choice, self._workflow.run)
        except BaseException:  # whatever keeps it from starting, nothing stays open; raised again
            await self._close()
            raise
        self._notices.say(f"worker {self.id} waits for runs")
        looking = asyncio.create_task(self._look_after_others(dbos))
        try:
            await self._stop.wait()
        finally:
            longest = self._grace_seconds + ENDING_SECONDS + 2 * HAND_BACK_SECONDS + CANCEL_GRACE_SECONDS
            await to_its_end(self._wind_up(dbos, looking), grace_seconds=longest)

    async def _look_after_others(self, dbos: DBOS) -> None:
        while True:
            with self._notices.of_silence(_SILENT_SECONDS):
                await self._look(dbos)
            await asyncio.sleep(self._look_seconds)

    async def _look(self, dbos: DBOS) -> None:
        try:
            if not await self._life.keep():
                self._missing.forget()
            with as_store_errors():
                await self._take_over_from_dead(dbos)
                await self._stop_forgotten()
                self._notices.new_runs_go_to(await engine.newest_version(), self._choice.version)
        except Exception as error:  # noqa: BLE001 — whatever it is, dead workers are looked for again
            self._warn("dead_workers_not_looked_for", error)
            self._notices.trouble(first_line(error))
        else:
            self._notices.over()

    async def _take_over_from_dead(self, dbos: DBOS) -> None:
        # DBOS alone never learns that a worker died: without a service of its own it recovers the runs of
        # one that starts again under the same name.
        for worker in await engine.busy_workers(self._choice.version):
            if worker == self.id:
                continue
            async with self._life.is_free(sign_of(worker)) as is_free:
                if self._missing.is_dead(worker, is_free=is_free):
                    await engine.hand_back(dbos, worker)

    async def _stop_forgotten(self) -> None:
        """Stop runs that were deleted before they had a session: of those DBOS tells nothing."""
        if runs := list(self._workflow.under_way):
            self._workflow.stop(await engine.deleted_runs(runs))

    async def _wind_up(self, dbos: DBOS, looking: "asyncio.Task[None]") -> None:
        self._workflow.begin_no_more()
        engine.take_no_more(dbos)
        looking.cancel()
        try:
            await self._let_end(dbos)
            await self._hand_back(dbos)
            await asyncio.wait({looking}, timeout=HAND_BACK_SECONDS)
        finally:
            try:
                await engine.stop_dbos()
            finally:
                await self._close()

    async def _let_end(self, dbos: DBOS) -> None:
        tasks = list(self._workflow.under_way.values())
        if tasks:
            await asyncio.wait(tasks, timeout=self._grace_seconds)
        engine.abandon_all(dbos)
        if tasks:
            await asyncio.wait(tasks, timeout=ENDING_SECONDS)

    async def _hand_back(self, dbos: DBOS) -> None:
        """Put its runs back in their queues; DBOS itself would wait for ever for a database that is away."""
        try:
            async with asyncio.timeout(HAND_BACK_SECONDS):
                await engine.wait_for_takers()  # what is taken behind the hand-back is left with nobody
                await engine.hand_back(dbos, self.id)
        except Exception as error:  # noqa: BLE001 — whatever it is, who looks for dead workers finds them
            self._warn("runs_not_handed_back", error)
            self._notices.say(_NOT_HANDED_BACK)
        else:
            self._notices.say("stopped: its runs are handed back")

    def _warn(self, event: str, error: Exception) -> None:
        warn(event, worker=self.id, error=words_of(error))

    async def _close(self) -> None:
        await self._life.free()
        await self._store.close()


def _check_seconds(**seconds: float) -> None:
    for name, each in seconds.items():
        up_to(f"{name}_seconds", each, _DAY_SECONDS)


def _checked_version(version: str) -> str:
    if isinstance(version, str) and version.isprintable() and len(version) <= _LONGEST_VERSION:
        return version
    wanted = f"a printable text of at most {_LONGEST_VERSION} characters"
    raise UsageError(f"version must be {wanted}, not {shown(version)}")


def _place(agent: Agent, store: SessionStore, limits: Limits | None, sink: Sink, **given: Any) -> WorkPlace:
    config = config_of(Runner(agent, store=store, **given))
    limits = with_step_limit(limits, agent.max_steps)
    check_priced(limits, *agent.all_models)
    return WorkPlace(config=config, limits=limits, sink=Listener(on_event=sink, redaction=config.redaction))


def _places(agent: Agent | Team, place_for: Callable[[Agent], WorkPlace]) -> Callable[[str], WorkPlace]:
    """Where the runs of a session are done, by its id."""
    if not isinstance(agent, Team):
        place = place_for(agent)
        return lambda session_id: place
    members = {session_id: place_for(each) for session_id, each in agent.members.items()}

    def place_of(session_id: str) -> WorkPlace:
        if session_id in members:
            return members[session_id]
        raise UsageError(f"no member of the team {agent.name!r} has the session {session_id!r}")

    return place_of
