"""Who works on a session: one run at a time, by a lease that it renews for as long as it lives.

`Leases.held` takes the lease: it refuses, waits, or takes over where another run has it. The `Holder` renews
it, and lets go of it at the end. What a holder does that is put out is cancelled, in all its tasks, and that
comes out of it as an error of its own.

The log does not rest on leases. Whoever writes to it without one, or after it ran out, meets the log's
compare-and-swap. They look first whether it is the same log still: one that was begun anew may be as long.
"""

import asyncio
import contextlib
import random
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from time import monotonic, time
from typing import Any, Literal, TypeAlias, get_args

from agentloop._plumbing.aio import ENDING_SECONDS, is_cancelled, to_its_end
from agentloop._plumbing.checks import finite_above_zero, shown
from agentloop._plumbing.processes import Process, this_process
from agentloop.errors import ConflictError, SessionBusyError, StoreError, TakenOverError, UsageError
from agentloop.stores.base import GrantsLeases, Lease, SessionStore

_MINE: ContextVar[frozenset[str]] = ContextVar("agentloop_leases", default=frozenset())
"""The leases of the runs that this code is a part of."""

TURNS = 10
"""So many turns of the event loop it takes, at most, until a stream that its reader has left is being closed:
two, and two more for each generator around it. Our own figure."""


@dataclass(frozen=True, slots=True)
class _Work:
    """What a holder of this process does: in which task, and `over` once it has let go.

    `cancelled` counts how often the task had been cancelled when the work began.
    """

    loop: asyncio.AbstractEventLoop
    task: asyncio.Task[Any] | None
    cancelled: int
    over: asyncio.Event

    @classmethod
    def of_this_task(cls) -> "_Work":
        task = asyncio.current_task()
        return cls(asyncio.get_running_loop(), task, task.cancelling() if task else 0, asyncio.Event())

    @property
    def is_ending(self) -> bool:
        """Whether it was cancelled and puts things in order, or has let go."""
        is_cancelled = bool(self.task and not self.task.done() and self.task.cancelling() > self.cancelled)
        return is_cancelled or self.over.is_set()


_WORK: dict[str, _Work] = {}
"""What the holders of this process's leases do."""


def new_lease() -> Lease:
    """A lease for what this process begins now."""
    process = this_process()
    return Lease(
        holder=uuid.uuid4().hex,
        place=process.place,
        pid=process.pid,
        started=process.started,
        since=time(),
    )


@contextlib.contextmanager
def working_for(lease: Lease) -> Iterator[None]:
    """What is done in the block is known as the work of that lease's holder, on this event loop."""
    work = _WORK[lease.holder] = _Work.of_this_task()
    try:
        with part_of(lease):
            yield
    finally:
        del _WORK[lease.holder]
        work.over.set()


@contextlib.contextmanager
def part_of(lease: Lease) -> Iterator[None]:
    """What is done in the block is a part of that lease's work, in whatever task."""
    token = _MINE.set(_MINE.get() | {lease.holder})
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # it is thrown away, in whatever context that happens
            _MINE.reset(token)


def is_dead(lease: Lease) -> bool:
    """Whether it is known that its holder works no more: the process, or the event loop, is gone."""
    process = _process_of(lease)
    if process != this_process():
        return process.is_gone()
    work = _WORK.get(lease.holder)
    return work is None or work.loop.is_closed()


async def lets_go(lease: Lease) -> bool:
    """Whether its holder, which is being cancelled on this event loop, has let go; waits for that.

    A stream that its reader has left is one: the loop closes it in its next turns. One that is at work still
    after these, or that runs elsewhere, is not waited for.
    """
    work = _WORK.get(lease.holder)
    if work is None or work.loop is not asyncio.get_running_loop():
        return False
    for _ in range(TURNS):
        if work.is_ending:
            break
        await asyncio.sleep(0)
    if work.is_ending:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ENDING_SECONDS):
                await work.over.wait()
    return work.over.is_set()


def describe(lease: Lease) -> str:
    """Who holds it, in words."""
    since = datetime.fromtimestamp(lease.since, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f"process {lease.pid} on {_process_of(lease).host} works on it since {since}"


def busy(session_id: str, lease: Lease) -> SessionBusyError:
    """The refusal of a session that somebody else holds."""
    return SessionBusyError(
        f"session {session_id!r} is busy: {describe(lease)}; try later, or let it wait or take over "
        "(when_busy=, --when-busy)"
    )


def _process_of(lease: Lease) -> Process:
    return Process(place=lease.place, pid=lease.pid, started=lease.started)


LEASE_SECONDS = 30.0
"""How long a lease lasts that nobody renews: longer than a busy machine stands still, and no longer than a
person waits for a session whose machine has died. Our own figure."""

RENEWALS = 3
"""So many renewals fall due in the time of one lease: two may fail before it runs out."""


@dataclass(frozen=True, slots=True)
class Instant:
    """A moment by two clocks: one may stand still while the machine sleeps, the other may be set."""

    steady: float = field(default_factory=monotonic)
    wall: float = field(default_factory=time)

    @property
    def seconds_ago(self) -> float:
        """How long ago it was, by the clock that says more."""
        return max(monotonic() - self.steady, time() - self.wall)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A lease on a session, and the store that grants it for so many seconds at a time.

    `asked` is when it was made: a lease that it is granted runs out no earlier than `seconds` later.
    """

    session_id: str
    store: GrantsLeases
    lease: Lease
    seconds: float = LEASE_SECONDS
    asked: Instant = field(default_factory=Instant)

    async def taken(self, over: str | None = None) -> Lease | None:
        """Take the lease, or renew it; whoever holds it instead. The holder `over` is put out.

        Raises:
            StoreError: the store could not be asked.
        """
        take = self.store.take_lease(self.session_id, self.lease, seconds=self.seconds, over=over)
        # To its end, since a call that was left behind might take what is free again.
        held = await to_its_end(take)
        return None if held.holder == self.lease.holder else held

    async def free(self) -> None:
        """Let go of the session; where the store fails, the lease runs out."""
        # Whatever a store may raise: what the run came to stands.
        with contextlib.suppress(Exception):
            await self.store.free_lease(self.session_id, self.lease.holder)


class Holder:
    """A session held by one run; without a claim it holds nothing and is never put out.

    `put_out_by` is the lease of who has put the run out, None where that is not so, or not known.
    """

    def __init__(self, session_id: str, claim: Claim | None = None) -> None:
        self._session_id, self._claim = session_id, claim
        self._sure: Instant | None = claim.asked if claim else None
        """When the lease was last surely held; None where there is none."""
        self.put_out_by: Lease | None = None
        self._why: StoreError | None = None
        """Why it was put out."""
        self._at_work: dict[asyncio.Task[object], bool] = {}
        """The tasks at work, and whether it is being put out that has cancelled each."""
        self._check_alone: Callable[[], Awaitable[None]] = _alone
        self._renewing = None if claim is None else asyncio.create_task(self._renewed(claim))

    @property
    def lease(self) -> Lease | None:
        """What it holds the session by."""
        return None if self._claim is None else self._claim.lease

    async def is_sure(self) -> bool:
        """Whether the run holds the session now, by a lease.

        Raises:
            TakenOverError: somebody else does.
            StoreError: the store could not be asked.
        """
        if self._why is not None:
            raise self._why
        if self._claim is not None and await self._claim.taken() is not None:
            raise TakenOverError(self._session_id)
        return self._claim is not None

    async def has_lapsed(self) -> bool:
        """Whether others may have had the session since the lease was last surely held; then it is renewed.

        So it is where there is no lease. A store that cannot be asked for one keeps nobody from going on.

        Raises:
            TakenOverError: somebody else has it now, or another run has begun there.
            ConflictError: it was deleted; its id may be another's now.
        """
        if self._why is not None:
            raise self._why
        if self._claim is None:
            return True
        if self._is_sure(self._claim):
            return False
        try:
            await self._renew(self._claim)
        except Exception as error:  # whatever else a store may raise: the log is looked at, without a lease
            if isinstance(error, TakenOverError | ConflictError):
                raise
        return True

    @contextlib.contextmanager
    def working(self, check_alone: Callable[[], Awaitable[None]]) -> Iterator[None]:
        """Being put out ends what is done in the block, in all its tasks, and what would begin later.

        With each renewal `check_alone` raises where it is not: the lease may have run out, another run have
        come and gone, and the session be another's now.

        Raises:
            TakenOverError: another runner has put this one out, and nobody cancelled it beside.
            ConflictError: the session was deleted.
        """
        self._check_alone = check_alone
        task = asyncio.current_task()
        assert task
        if self._why is not None:
            raise self._why
        self._at_work[task], before = False, task.cancelling()
        try:
            yield
        except asyncio.CancelledError:
            if self._called_off(task) and self._why is not None and task.cancelling() <= before:
                raise self._why from None
            raise
        finally:
            self._called_off(task)

    def _called_off(self, task: asyncio.Task[object]) -> bool:
        """Whether being put out cancelled the task, which from now on counts as not cancelled by that."""
        has_cancelled = self._at_work.pop(task, False)
        if has_cancelled:
            task.uncancel()
        return has_cancelled

    async def free(self) -> None:
        """Let go of the session; harmless when called again."""
        if (claim := await self._given_up()) is not None:
            await claim.free()

    async def leave(self) -> None:
        """Work on the session no more, but keep it from others until the lease, renewed now, runs out."""
        if (claim := await self._given_up()) is not None and self.put_out_by is None:
            # Whatever a store may raise: the lease stands for what is left of its time.
            with contextlib.suppress(Exception):
                await claim.taken()

    async def _given_up(self) -> Claim | None:
        """The claim that there was, which is renewed no more."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait({self._renewing})
        claim, self._claim = self._claim, None
        return claim

    async def _renewed(self, claim: Claim) -> None:
        while True:
            await asyncio.sleep(claim.seconds / RENEWALS)
            try:
                await self._renew(claim)
            except (TakenOverError, ConflictError) as error:
                self._why = error
                for task in self._at_work:
                    self._at_work[task] = True
                    task.cancel()
                return
            except Exception:  # noqa: BLE001 — whatever a store may raise: the log is safe without a lease
                if is_cancelled():  # it may have raised that in place of the cancellation
                    return

    async def _renew(self, claim: Claim) -> None:
        """Take the lease again; one that may have run out only where the session is still what it was."""
        asked = Instant()
        if not self._is_sure(claim):
            await self._check_alone()
        self.put_out_by = await claim.taken()
        if self.put_out_by is not None:
            raise TakenOverError(self._session_id)
        await self._check_alone()
        self._sure = asked

    def _is_sure(self, claim: Claim) -> bool:
        return self._sure is not None and self._sure.seconds_ago < claim.seconds


async def _alone() -> None:
    pass


WhenBusy: TypeAlias = Literal["refuse", "wait", "take_over"]
"""What a run does whose session another run works on: it fails at once, waits, or puts the other out."""

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.01, 0.5
"""Who waits looks again after the first, then after pauses that grow by half up to the longest; each is drawn
from half of it up, so that many who wait do not all look at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leases:
    """How the runs of a runner come by their session, and for how many seconds at a time.

    `waits`, where given, is told once for each run that has to wait, by the lease it waits for. `new` makes
    the lease of each, and `is_over` says of another's whether who has it is put out whatever the rule is.

    Raises:
        UsageError: `when_busy` is none of its words, or `seconds` no finite number above 0.
    """

    when_busy: WhenBusy = "refuse"
    seconds: float = LEASE_SECONDS
    waits: Callable[[Lease], None] | None = None
    new: Callable[[], Lease] = new_lease
    is_over: Callable[[Lease], bool] = is_dead

    def __post_init__(self) -> None:
        finite_above_zero("seconds", self.seconds)
        if self.when_busy not in get_args(WhenBusy):
            words = ", ".join(get_args(WhenBusy))
            raise UsageError(f"when_busy must be one of {words}, not {shown(self.when_busy)}")

    @contextlib.asynccontextmanager
    async def held(self, session_id: str, store: SessionStore) -> AsyncIterator[Holder]:
        """The session held for the block. A store that grants no leases lets everybody in.

        Who holds the session is put out where its process has ended, or where that is the rule. To refuse is
        not for who is being cancelled on this event loop: that is waited for.

        Raises:
            SessionBusyError: somebody else holds it, and the rule is to refuse; or who asks is a part of
                the very run that holds it.
            StoreError: the store could not be asked.
        """
        if not isinstance(store, GrantsLeases):
            yield Holder(session_id)
            return
        claim = Claim(session_id=session_id, store=store, lease=self.new(), seconds=self.seconds)
        with working_for(claim.lease):
            hold = Holder(session_id, await self._won(claim))
            try:
                yield hold
            except GeneratorExit:  # thrown away with its event loop: there is none to wait on any more
                raise
            except BaseException:  # whatever ended the block, the session is let go; raised again
                await to_its_end(hold.free())
                raise
            await to_its_end(hold.free())

    async def _won(self, claim: Claim) -> Claim:
        """The claim as it stands once the session is taken; one that is not won leaves nothing behind."""
        try:
            return await self._waited_for(claim)
        except BaseException:  # a cancellation may come when the store has granted it; raised again
            await to_its_end(claim.free())
            raise

    async def _waited_for(self, claim: Claim) -> Claim:
        over, pauses, waits = None, _pauses(), self.waits
        while (other := await claim.taken(over)) is not None:
            if other.holder in _MINE.get():
                who = "held by the very run that asks for it: give the other another session"
                raise SessionBusyError(f"session {claim.session_id!r} is {who}")
            over = other.holder if self.when_busy == "take_over" or self.is_over(other) else None
            if over is not None:
                continue
            if self.when_busy == "wait":
                if waits is not None:
                    waits(other)
                waits = None
                await asyncio.sleep(next(pauses))
            elif not await lets_go(other):
                raise busy(claim.session_id, other)
            claim = replace(claim, lease=replace(claim.lease, since=time()), asked=Instant())
        return claim


def _pauses() -> Iterator[float]:
    """The seconds between a look and the next."""
    pause = FIRST_PAUSE_SECONDS
    while True:
        yield random.uniform(pause / 2, pause)
        pause = min(pause * 1.5, LONGEST_PAUSE_SECONDS)
