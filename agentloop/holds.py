"""A session held by one run: the claim to it in a store, renewed for as long as the run lasts."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from time import monotonic, time

from agentloop._plumbing.aio import to_its_end
from agentloop.errors import ConflictError, TakenOverError
from agentloop.putting_out import PutOut
from agentloop.stores.base import GrantsLeases, Lease

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

    def from_now(self) -> "Claim":
        """The claim, its lease saying that the work begins now."""
        return replace(self, lease=replace(self.lease, since=time()), asked=Instant())

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


class Hold:
    """A session held by one run; without a claim it holds nothing and is never put out.

    `put_out_by` is the lease of who has put the run out, None where that is not so, or not known.
    """

    def __init__(self, session_id: str, claim: Claim | None = None) -> None:
        self._session_id, self._claim = session_id, claim
        self._sure: Instant | None = claim.asked if claim else None
        """When the lease was last surely held; None where there is none."""
        self.put_out_by: Lease | None = None
        self._put_out = PutOut()
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
        if self._put_out.why is not None:
            raise self._put_out.why
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
        if self._put_out.why is not None:
            raise self._put_out.why
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
        """Being put out ends what is done in the block.

        With each renewal `check_alone` raises where it is not: the lease may have run out, another run have
        come and gone, and the session be another's now.

        Raises:
            TakenOverError: another runner has put this one out.
            ConflictError: the session was deleted.
        """
        self._check_alone = check_alone
        with self._put_out.ends():
            yield

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
                return self._put_out.now(error)
            except Exception:  # noqa: BLE001 — whatever a store may raise: the log is safe without a lease
                continue

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
