"""A run and its session as one execution of the run knows them: opened from the log, held by a lease.

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
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from agentloop.context import RunTools, Step, next_step
from agentloop.durable.backwards import began_at, has_ended, has_said
from agentloop.durable.behind import Behind, found_behind, says_prompt
from agentloop.durable.holding import ElsewhereError, is_of_run, leases_of
from agentloop.durable.orders import Order
from agentloop.durable.replaying import spend_again
from agentloop.emitter import Sink
from agentloop.errors import ConflictError, TakenOverError
from agentloop.events import Record, RunStarted
from agentloop.messages import ToolCall, Usage
from agentloop.run import Limits, Run, Setting, begin, settle_and_say
from agentloop.sessions import Hold, Session, has_begun, kept_up, part_of
from agentloop.stores.base import SessionStore
from agentloop.stream import RunEnded as RunEndedShown
from agentloop.stream import RunStatus

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a worker's runs are done: with which agent, store and limits, and who is told of them."""

    setting: Setting
    limits: Limits
    sink: Sink

    @property
    def store(self) -> SessionStore:
        """Where the sessions live."""
        return self.setting.store


@dataclass(slots=True, kw_only=True)
class Live:
    """The run and its session, kept in memory between steps so that a step costs what is new.

    `since` is the position of the run's beginning, 0 until that is known.
    """

    place: Place
    order: Order
    run_id: str
    submitted: float
    since: int = 0
    run: Run | None = None
    session: Session | None = None
    _held: tuple[contextlib.AsyncExitStack, Hold] | None = None
    """The session's lease, and what lets go of it; None until it is taken."""
    _is_distrusted: bool = False
    """Whether what is known of the session may be out of date."""
    _behind: Behind = field(default_factory=Behind)
    """Whether others had the session since the run spoke."""
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    """The calls of a batch are steps side by side: one of them opens the session, the others find it open."""

    async def opened(self) -> tuple[Run, Session]:
        """The run and its session to go on with, from the log where it is not known or not trusted.

        Where others had the session before this execution came to it, the prompt is said again behind them.

        Raises:
            TakenOverError: another run has begun in the session since it came to it.
        """
        async with self._opening:
            run, session = await self._known()
            if self._behind.speaks_again:
                # What others left in flight is settled, and the prompt said behind it.
                self.session = session = await settle_and_say(run, session, self.order.prompt)
                self._behind = Behind()
            return run, session

    async def reread(self) -> tuple[Run, Session]:
        """The run and its session as the log has them now; nothing is said in it.

        Raises:
            TakenOverError: see `opened`.
        """
        async with self._opening:
            self.distrust()
            return await self._known()

    async def done(self, work: Callable[[], Awaitable[T]]) -> T:
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

    async def hold(self) -> Hold:
        """Take the session's lease, over from an earlier execution of the run; what it is held by.

        It is waited for while a run of anybody else has it, for as long as that lives.
        """
        if self._held is None:
            stack = contextlib.AsyncExitStack()
            leases = leases_of(self.run_id)
            hold = await stack.enter_async_context(leases.held(self.order.session_id, self.place.store))
            self._held = stack, hold
        return self._held[1]

    async def hand_over(self) -> None:
        """Work on the session no more, but keep it from all but the run's next execution."""
        if self._held is not None:
            await self._held[1].leave()

    async def let_go(self) -> None:
        """Let go of the session and of whoever watches."""
        if self.run is not None:
            self.run.watch.callback_list.close()
        if self._held is not None:
            await self._held[0].aclose()

    def distrust(self) -> None:
        """What is known of the session may be out of date: before the next step, what is newer is read."""
        self._is_distrusted = True

    async def begin(self) -> None:
        """Store that the run began, with its prompt."""
        order = self.order
        session = await Session.open(order.session_id, self.place.store)
        setting = replace(self.place.setting, owner=order.owner, ttl_seconds=order.ttl_seconds)
        self.run = run = await self._new_run()
        self.session = await begin(setting, run, session, order.prompt)
        # Asked of the log, since others may have written just before it.
        await self.has_begun()

    def say_end(self, status: RunStatus, error: str | None) -> None:
        """Tell the worker's own listener the end of a run that never came to its beginning here."""
        ended = RunEndedShown(
            session_id=self.order.session_id,
            run_id=self.run_id,
            time=time.time(),
            status=status,
            output="",
            usage=Usage(),
            cost=None,
            error=error,
        )
        self.place.sink(ended)

    async def has_begun(self) -> bool:
        """Whether the log has this run's beginning."""
        if not self.since:
            order, store = self.order, self.place.store
            self.since = await began_at(store, order.session_id, self.run_id, submitted=self.submitted)
        return self.since > 0

    async def has_said(self) -> bool:
        """Whether the log has the run's prompt."""
        return await has_said(self.place.store, self.order.session_id, self.run_id)

    async def has_ended(self, status: RunStatus) -> bool:
        """Whether the log says that the run ended so."""
        return await has_ended(self.place.store, self.order.session_id, self.run_id, status)

    async def caught_up(self, session: Session) -> Session:
        """The session with what was written since.

        Raises:
            TakenOverError: another run has begun in it.
            ConflictError: it was deleted meanwhile; `BegunAnewError` where its id is another's now.
        """
        newer = await session.newer()
        if has_begun(newer, other_than=self.run_id):
            raise TakenOverError(session.id)
        # Nobody else began; but the prompt may stand there though its write failed.
        if self._behind.speaks_again and says_prompt(newer, self.run_id):
            self._behind = Behind()
        return await session.having(newer)

    def step(self) -> Step:
        """The one thing to do next; a run that others came behind has its own answer."""
        return self._behind.answer or next_step(self.session.context.messages if self.session else ())

    def open_calls(self) -> tuple[ToolCall, ...]:
        """The calls that have no result yet, in call order."""
        step = self.step()
        return step.calls if isinstance(step, RunTools) else ()

    async def _known(self) -> tuple[Run, Session]:
        await self.hold()
        if self.run is None or self.session is None:
            self.run, self.session = await self._resumed()
        elif self._is_distrusted:
            self.session = await self.caught_up(self.session)
        self._is_distrusted = False
        return self.run, self.session

    async def _resumed(self) -> tuple[Run, Session]:
        session = await Session.open(self.order.session_id, self.place.store)
        records = await self.place.store.read(self.order.session_id, after=self.since - 1)
        if not (records and self._is_begin(records[0])):
            raise ConflictError(session.id, expected=self.since, actual=0)
        self._behind = found_behind(records, self.run_id)
        run = await self._new_run()
        run.session = session
        spend_again(run, records)
        return run, session

    async def _new_run(self) -> Run:
        place = self.place
        run = await place.setting.new_run(
            self.order.session_id, place.sink, run_id=self.run_id, catch_up=kept_up, limits=place.limits
        )
        run.has_lapsed = (await self.hold()).has_lapsed
        return run

    def _is_begin(self, record: Record) -> bool:
        return isinstance(record.event, RunStarted) and record.event.run_id == self.run_id

    async def _check_alone(self) -> None:
        """That no other run has begun in the session, once there is a run to ask."""
        if self.run is not None:
            await self.run.check_alone()
