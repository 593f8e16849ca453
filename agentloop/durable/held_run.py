"""A run that workers do: its lease, its log and its session, held from one step to the next.

Who may write to the session, and when:

- Who has its lease: an execution puts an earlier one of its run out, and waits for anybody else.
- Only behind what it knows: where the log says more, it distrusts that and reads on before it writes.
- Others began before it came: its prompt again, behind them; where it had answered by then, its end alone.
- Another run began since: nothing more (`TakenOverError`).
- Another execution of its run put it out: nothing more, and no end (`ElsewhereError`).
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from agentloop.context import Step, calls_of, next_step
from agentloop.durable.leases import ElsewhereError, is_of_run, leases_of
from agentloop.durable.orders import Order
from agentloop.durable.run_log import (
    OvertakenRun,
    begins,
    found_overtaken,
    of_run,
    records_of_run,
    says_prompt,
)
from agentloop.emitter import Emitter, Hides, Sink
from agentloop.errors import ConflictError, TakenOverError
from agentloop.events import Compacted, MessageRecord, ModelCalled, Record
from agentloop.messages import ToolCall, Usage
from agentloop.models import Answer, used_by
from agentloop.run import (
    Limits,
    Run,
    RunConfig,
    RunInput,
    came_to_nothing,
    settle_and_say,
    start_run,
)
from agentloop.sessions import Holder, Session, Sessions, has_begun, part_of, rebase_same_run
from agentloop.stores.base import SessionStore
from agentloop.stream import RunEnded, RunStatus
from agentloop.tools import RunThread

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkPlace:
    """Where a worker's runs are done: with which agent, store and limits, and who is told of them."""

    config: RunConfig
    limits: Limits
    sink: Sink


@dataclass(slots=True, kw_only=True)
class HeldRun:
    """The run and its session, kept in memory between steps so that a step costs what is new.

    `since` is the position of the run's beginning, 0 until that is known.
    """

    place: WorkPlace
    order: Order
    run_id: str
    since: int = 0
    run: Run | None = None
    session: Session | None = None
    _held: tuple[contextlib.AsyncExitStack, Holder] | None = None
    """The session's lease, and what lets go of it; None until it is taken."""
    _is_distrusted: bool = False
    """Whether what is known of the session may be out of date."""
    _thread: RunThread = field(default_factory=RunThread)
    """The one of the run here, however often what is known of it is read anew."""
    _overtaken: OvertakenRun = field(default_factory=OvertakenRun)
    """Whether others had the session since the run spoke."""
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    """The calls of a batch are steps side by side: one of them opens the session, the others find it open."""

    @property
    def sessions(self) -> Sessions:
        """The sessions as the run's owner sees them, held for all executions of the run."""
        return replace(
            self.place.config.sessions,
            leases=leases_of(self.run_id),
            owner=self.order.owner,
            ttl_seconds=self.order.ttl_seconds,
        )

    @property
    def store(self) -> SessionStore:
        """Where the session lives."""
        return self.place.config.sessions.store

    @property
    def redaction(self) -> Hides:
        """What takes secrets out of all that is said."""
        return self.place.config.redaction

    async def open(self) -> tuple[Run, Session]:
        """The run and its session to go on with, from the log where it is not known or not trusted.

        Where others had the session before this execution came to it, the prompt is said again behind them.

        Raises:
            TakenOverError: another run has begun in the session since it came to it.
        """
        async with self._opening:
            run, session = await self._current()
            if self._overtaken.speaks_again:
                # What others left in flight is settled, and the prompt said behind it.
                self.session = session = await settle_and_say(
                    run, session, *filter(None, [self.order.prompt])
                )
                self._overtaken = OvertakenRun()
            return run, session

    async def reread(self) -> tuple[Run, Session]:
        """The run and its session as the log has them now; nothing is said in it.

        Raises:
            TakenOverError: see `open`.
        """
        async with self._opening:
            self.distrust()
            return await self._current()

    async def do(self, work: Callable[[], Awaitable[T]]) -> T:
        """What this work comes to, done as a part of who holds the session, and ended when that is put out.

        Raises:
            TakenOverError: another run has put this one out.
            ElsewhereError: another execution of it has.
        """
        async with self._opening:
            hold = await self.hold()
        known = contextlib.nullcontext() if hold.lease is None else part_of(hold.lease)
        try:
            with known, hold.working(self._check_alone):
                return await work()
        except TakenOverError:
            if hold.put_out_by is not None and is_of_run(hold.put_out_by, self.run_id):
                raise ElsewhereError from None
            raise

    async def hold(self) -> Holder:
        """Take the session's lease, over from an earlier execution of the run; what it is held by.

        It is waited for while a run of anybody else has it, for as long as that lives.
        """
        if self._held is None:
            stack = contextlib.AsyncExitStack()
            hold = await stack.enter_async_context(self.sessions.held(self.order.session_id))
            self._held = stack, hold
        return self._held[1]

    async def hand_over(self) -> None:
        """Work on the session no more, but keep it from all but the run's next execution."""
        if self._held is not None:
            await self._held[1].leave()

    async def let_go(self) -> None:
        """Let go of the session, of the run's thread, of what tool sets hold and of whoever watches."""
        self._thread.stop()
        if self.run is not None:
            await self.run.put_away()
            self.run.emitter.callback_list.close()
        if self._held is not None:
            await self._held[0].aclose()

    def distrust(self) -> None:
        """What is known of the session may be out of date: before the next step, what is newer is read."""
        self._is_distrusted = True

    async def begin(self) -> None:
        """Store that the run began, with its prompt."""
        session = await self.sessions.open(self.order.session_id)
        self.run = run = await self._new_run()
        self.session = await start_run(run, session)
        # Asked of the log, since others may have written just before it.
        await self.has_begun()

    def emitter(self) -> Emitter:
        """What shows this worker's part in the run, before and behind what the run itself shows."""
        return self.place.config.emitter(self.order.session_id, self.place.sink, run_id=self.run_id)

    def say_end(self, status: RunStatus, error: str | None) -> None:
        """Tell the worker's own listener the end of a run that never came to its beginning here."""
        self.place.sink(self.ended(status, Usage(), None, error))

    def ended(self, status: RunStatus, usage: Usage, cost: float | None, error: str | None) -> RunEnded:
        """The event of the run's end, as far as this worker knows of it."""
        return RunEnded(
            session_id=self.order.session_id,
            run_id=self.run_id,
            time=time.time(),
            status=status,
            output="",
            usage=usage,
            cost=cost,
            error=error,
        )

    async def has_begun(self) -> bool:
        """Whether the log has this run's beginning."""
        return self.since > 0 or bool(await self.records())

    async def records(self) -> Sequence[Record]:
        """The log from the run's beginning on, also where it was not known; none where it has none."""
        session_id = self.order.session_id
        if self.since:
            records = await self.store.read(session_id, after=self.since - 1)
            return records if records and begins(records[0], self.run_id) else ()
        records = await records_of_run(self.store, session_id, self.run_id, submitted=self.order.submitted)
        self.since = records[0].seq if records else 0
        return records

    async def catch_up(self, session: Session) -> Session:
        """The session with what was written since.

        Raises:
            TakenOverError: another run has begun in it.
            ConflictError: it was deleted meanwhile; `BegunAnewError` where its id is another's now.
        """
        newer = await session.newer()
        if has_begun(newer, other_than=self.run_id):
            raise TakenOverError(session.id)
        # Nobody else began; but the prompt may stand there though its write failed.
        if self._overtaken.speaks_again and says_prompt(newer, self.run_id):
            self._overtaken = OvertakenRun()
        return await session.with_newer(newer)

    def step(self) -> Step:
        """The one thing to do next; a run that others came behind has its own answer."""
        return self._overtaken.answer or next_step(self.session.context.messages if self.session else ())

    def open_calls(self) -> tuple[ToolCall, ...]:
        """The calls that have no result yet, in call order."""
        return calls_of(self.step())

    async def _current(self) -> tuple[Run, Session]:
        await self.hold()
        if self.run is None or self.session is None:
            self.run, self.session = await self._resume()
        elif self._is_distrusted:
            self.session = await self.catch_up(self.session)
        self._is_distrusted = False
        return self.run, self.session

    async def _resume(self) -> tuple[Run, Session]:
        session = await self.sessions.open(self.order.session_id)
        records = await self.records()
        if not records:
            raise ConflictError(session.id, expected=self.since, actual=0)
        self._overtaken = found_overtaken(records, self.run_id)
        run = await self._new_run()
        run.session = session
        spend_again(run, records)
        return run, session

    async def _new_run(self) -> Run:
        config, hold = replace(self.place.config, sessions=self.sessions), await self.hold()
        run = await Run.of(
            config,
            RunInput(
                session_id=self.order.session_id,
                message=self.order.prompt,
                sink=self.place.sink,
                limits=self.place.limits,
                answers=self.order.answers or {},
            ),
            run_id=self.run_id,
            rebase=rebase_same_run,
            has_lapsed=hold.has_lapsed,
        )
        run.thread = self._thread
        return run

    async def _check_alone(self) -> None:
        """That no other run has begun in the session, once there is a run to ask."""
        if self.run is not None:
            await self.run.check_alone()


def spend_again(run: Run, records: Sequence[Record]) -> None:
    """Add what the run's requests in these records used; the first record is its beginning.

    Its seconds are counted from there too, by the clock on the wall, also those that others had the session.
    """
    if records:
        run.spending.started -= max(0.0, time.time() - records[0].event.time)
    asked: ModelCalled | None = None
    beside: list[ModelCalled] = []
    for record in of_run(records, run.id):
        match record.event:
            case ModelCalled(purpose="agent") as called:
                asked = called
            case ModelCalled() as called:
                beside.append(called)
            case Compacted(tokens=tokens):
                run.spending.add_beside(used_by(beside, tokens))
                beside = []
            case MessageRecord() as said if asked and said.message.role == "assistant":
                answer = Answer(message=said.message, usage=asked.usage, finish=said.finish, cost=asked.cost)
                run.spend(answer, asked.counted)
                run.in_vain = run.in_vain + 1 if came_to_nothing(said.message, said.finish) else 0
                asked = None
    run.spending.add_beside(used_by(beside, 0))
