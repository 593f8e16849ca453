"""A session held by one run: the claim to it in a store, renewed for as long as the run lasts."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from time import time

from agentloop.deadlines import to_its_end
from agentloop.errors import TakenOverError
from agentloop.putting_out import PutOut
from agentloop.stores.base import GrantsLeases, Lease

LEASE_SECONDS = 30.0
"""How long a lease lasts that nobody renews: longer than a busy machine stands still, and no longer than a
person waits for a session whose machine has died. Our own figure."""

RENEWALS = 3
"""So many renewals fall due in the time of one lease: two may fail before it runs out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A lease on a session, and the store that grants it for so many seconds at a time."""

    session_id: str
    store: GrantsLeases
    lease: Lease
    seconds: float = LEASE_SECONDS

    def from_now(self) -> "Claim":
        """The claim, its lease saying that the work begins now."""
        return replace(self, lease=replace(self.lease, since=time()))

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
        self._claim = claim
        self.put_out_by: Lease | None = None
        self._put_out = PutOut(session_id)
        self._is_alone: Callable[[], Awaitable[bool]] = _alone
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
        if self._put_out.is_done or (self._claim is not None and await self._claim.taken() is not None):
            raise TakenOverError(self._put_out.session_id)
        return self._claim is not None

    @contextlib.contextmanager
    def working(self, is_alone: Callable[[], Awaitable[bool]]) -> Iterator[None]:
        """Being put out ends what is done in the block.

        With each renewal it is asked whether it `is_alone`: the lease may have run out, and another run have
        come and gone.

        Raises:
            TakenOverError: another runner has put this one out.
        """
        self._is_alone = is_alone
        with self._put_out.ends():
            yield

    async def free(self) -> None:
        """Let go of the session; harmless when called again."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait({self._renewing})
        claim, self._claim = self._claim, None
        if claim is not None:
            await claim.free()

    async def _renewed(self, claim: Claim) -> None:
        while True:
            await asyncio.sleep(claim.seconds / RENEWALS)
            try:
                other = await claim.taken()
                is_mine = other is None and await self._is_alone()
            except Exception:  # noqa: BLE001 — whatever a store may raise: the log is safe without a lease
                continue
            if not is_mine:
                self.put_out_by = other
                return self._put_out.now()


async def _alone() -> bool:
    return True
