"""Who works on a session: one run at a time, for as long as it renews its lease.

A lease keeps two runs from working on one session side by side. The log does not rest on it: whoever wrote
to it without, or after a lease ran out, meets its compare-and-swap.
"""

import asyncio
import contextlib
import random
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from time import time
from typing import Literal, TypeAlias, get_args

from agentloop.checks import above_zero, above_zero_or_none, shown
from agentloop.deadlines import to_its_end
from agentloop.errors import SessionBusyError, TakenOverError, UsageError
from agentloop.processes import Process, this_process
from agentloop.stores.base import GrantsLeases, Lease, SessionStore

WhenBusy: TypeAlias = Literal["refuse", "wait", "take_over"]
"""What a run does whose session another run works on: it fails at once, waits, or puts the other out."""

LEASE_SECONDS = 30.0
"""How long a lease lasts that nobody renews: longer than a busy machine stands still, and no longer than a
person waits for a session whose machine has died. Our own figure."""

RENEWALS = 3
"""So many renewals fall due in the time of one lease: two may fail before it runs out."""

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.01, 0.5
"""Who waits looks again after the first, then after pauses that grow by half up to the longest; each is drawn
from half of it up, so that many who wait do not all look at once."""

_MINE: ContextVar[frozenset[str]] = ContextVar("agentloop_leases", default=frozenset())
"""The leases of the runs that this code is a part of."""

_LOOPS: dict[str, asyncio.AbstractEventLoop] = {}
"""Where the holders of this process's leases run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leases:
    """How the runs of a runner come by their session, and for how many seconds at a time.

    `waits`, where given, is told once for each run that has to wait, by the lease it waits for.

    Raises:
        UsageError: `when_busy` is none of its words, or `seconds` no finite number above 0.
    """

    when_busy: WhenBusy = "refuse"
    seconds: float = LEASE_SECONDS
    waits: Callable[[Lease], None] | None = None

    def __post_init__(self) -> None:
        above_zero("seconds", self.seconds)
        above_zero_or_none("seconds", self.seconds)  # which refuses infinity: no crash would end such a lease
        if self.when_busy not in get_args(WhenBusy):
            words = ", ".join(get_args(WhenBusy))
            raise UsageError(f"when_busy must be one of {words}, not {shown(self.when_busy)}")

    @contextlib.asynccontextmanager
    async def held(self, session_id: str, store: SessionStore) -> AsyncIterator["Hold"]:
        """The session held for the block. A store that grants no leases lets everybody in.

        Who holds the session is put out where its process has ended, or where that is the rule.

        Raises:
            SessionBusyError: somebody else holds it, and the rule is to refuse; or who asks is a part of
                the very run that holds it.
            StoreError: the store could not be asked.
        """
        if not isinstance(store, GrantsLeases):
            yield Hold(session_id)
            return
        lease = _new_lease()
        hold = Hold(session_id, store, lease, self.seconds)
        _LOOPS[lease.holder] = asyncio.get_running_loop()
        try:
            await self._won(hold)
            with hold.marked(lease.holder):
                yield hold
            await to_its_end(hold.free())
        except GeneratorExit:  # thrown away with its event loop: there is none to wait on any more
            raise
        except BaseException:
            await to_its_end(hold.free())
            raise
        finally:
            del _LOOPS[lease.holder]

    async def _won(self, hold: "Hold") -> None:
        over, pause, has_said = None, FIRST_PAUSE_SECONDS, False
        while (other := await hold.taken(over)) is not None:
            if other.holder in _MINE.get():
                raise _busy_with_itself(hold.session_id)
            over = other.holder if self.when_busy == "take_over" or _is_dead(other) else None
            if over is not None:
                continue
            if self.when_busy == "refuse":
                raise _busy(hold.session_id, other)
            if self.waits is not None and not has_said:
                self.waits(other)
            has_said = True
            await asyncio.sleep(random.uniform(pause / 2, pause))
            pause = min(pause * 1.5, LONGEST_PAUSE_SECONDS)
            hold.begins_now()


class Hold:
    """A session held by one run; without a store of leases it holds nothing and is never put out."""

    def __init__(
        self,
        session_id: str,
        store: GrantsLeases | None = None,
        lease: Lease | None = None,
        seconds: float = LEASE_SECONDS,
    ) -> None:
        self.session_id = session_id
        self._store = store
        self._lease = lease
        self._seconds = seconds
        self._is_put_out = False
        self._working: asyncio.Task[object] | None = None
        self._cancelled: asyncio.Task[object] | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._is_alone: Callable[[], Awaitable[bool]] = _alone

    def begins_now(self) -> None:
        """Say so in the lease."""
        if self._lease is not None:
            self._lease = replace(self._lease, since=time())

    async def taken(self, over: str | None = None) -> Lease | None:
        """Take the lease, or renew it; whoever holds it instead. The holder `over` is put out.

        Raises:
            StoreError: the store could not be asked.
        """
        if self._store is None or self._lease is None:
            return None
        take = self._store.take_lease(self.session_id, self._lease, seconds=self._seconds, over=over)
        # To its end, since a call that was left behind might take what is free again.
        held = await to_its_end(take)
        return None if held.holder == self._lease.holder else held

    async def is_sure(self) -> bool:
        """Whether the run holds the session now, by a lease.

        Raises:
            TakenOverError: somebody else does.
            StoreError: the store could not be asked.
        """
        if self._is_put_out or await self.taken() is not None:
            raise TakenOverError(self.session_id)
        return self._store is not None

    @contextlib.contextmanager
    def marked(self, holder: str) -> Iterator[None]:
        """What is done in the block is known as a part of this run, and its lease is renewed."""
        token = _MINE.set(_MINE.get() | {holder})
        self._renewing = asyncio.create_task(self._renewed())
        try:
            yield
        finally:
            with contextlib.suppress(ValueError):  # it is thrown away, in whatever context that happens
                _MINE.reset(token)

    @contextlib.contextmanager
    def working(self, is_alone: Callable[[], Awaitable[bool]]) -> Iterator[None]:
        """Being put out ends what is done in the block.

        With each renewal it is asked whether it `is_alone`: the lease may have run out, and another run have
        come and gone.

        Raises:
            TakenOverError: another runner has put this one out.
        """
        task = asyncio.current_task()
        assert task
        if self._is_put_out:
            raise TakenOverError(self.session_id)
        self._working, self._is_alone, cancelled = task, is_alone, task.cancelling()
        try:
            yield
        except BaseException as error:
            put_out = self._called_off() and task.cancelling() <= cancelled
            if put_out and isinstance(error, asyncio.CancelledError):
                raise TakenOverError(self.session_id) from None
            raise
        else:
            self._called_off()

    async def free(self) -> None:
        """Let go of the session; harmless when called again. Where the store fails, the lease runs out."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait({self._renewing})
        store, lease, self._store = self._store, self._lease, None
        if store is not None and lease is not None:
            # Whatever a store may raise: what the run came to stands.
            with contextlib.suppress(Exception):
                await store.free_lease(self.session_id, lease.holder)

    async def _renewed(self) -> None:
        while True:
            await asyncio.sleep(self._seconds / RENEWALS)
            try:
                is_mine = await self.taken() is None and await self._is_alone()
            except Exception:  # noqa: BLE001 — whatever a store may raise: the log is safe without a lease
                continue
            if not is_mine:
                return self._put_out()

    def _put_out(self) -> None:
        self._is_put_out = True
        if self._working is not None:
            self._cancelled = self._working
            self._working.cancel()

    def _called_off(self) -> bool:
        """Whether being put out cancelled the work, which from now on counts as not cancelled by that."""
        cancelled, self._cancelled, self._working = self._cancelled, None, None
        if cancelled is not None:
            cancelled.uncancel()
        return cancelled is not None


async def _alone() -> bool:
    return True


def _new_lease() -> Lease:
    process = this_process()
    return Lease(
        holder=uuid.uuid4().hex,
        place=process.place,
        pid=process.pid,
        started=process.started,
        since=time(),
    )


def told(lease: Lease) -> str:
    """Who holds it, in words."""
    since = datetime.fromtimestamp(lease.since, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f"process {lease.pid} on {_process_of(lease).host} works on it since {since}"


def _process_of(lease: Lease) -> Process:
    return Process(place=lease.place, pid=lease.pid, started=lease.started)


def _is_dead(lease: Lease) -> bool:
    """Whether it is known that its holder works no more: the process, or the event loop, is gone."""
    process = _process_of(lease)
    if process != this_process():
        return process.is_gone()
    loop = _LOOPS.get(lease.holder)
    return loop is None or loop.is_closed()


def _busy_with_itself(session_id: str) -> SessionBusyError:
    return SessionBusyError(
        f"session {session_id!r} is held by the very run that asks for it: give the other another session"
    )


def _busy(session_id: str, lease: Lease) -> SessionBusyError:
    return SessionBusyError(
        f"session {session_id!r} is busy: {told(lease)}; try later, or let it wait or take over "
        "(when_busy=, --when-busy)"
    )
