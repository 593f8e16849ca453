"""Who works on a session: one run at a time, for as long as it renews its lease.

A lease keeps two runs from working on one session side by side. The log does not rest on it: whoever writes
to it without, or after a lease ran out, meets its compare-and-swap. They look first whether it is the same
log still: one that was begun anew may be as long.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from agentloop._plumbing.aio import to_its_end
from agentloop._plumbing.checks import finite_above_zero, shown
from agentloop.errors import UsageError
from agentloop.holders import (
    busy,
    busy_with_itself,
    is_dead,
    is_of_this_work,
    lets_go,
    new_lease,
    working_for,
)
from agentloop.holds import LEASE_SECONDS, Claim, Hold
from agentloop.stores.base import GrantsLeases, Lease, SessionStore

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
    async def held(self, session_id: str, store: SessionStore) -> AsyncIterator[Hold]:
        """The session held for the block. A store that grants no leases lets everybody in.

        Who holds the session is put out where its process has ended, or where that is the rule. To refuse is
        not for who is being cancelled on this event loop: that is waited for.

        Raises:
            SessionBusyError: somebody else holds it, and the rule is to refuse; or who asks is a part of
                the very run that holds it.
            StoreError: the store could not be asked.
        """
        if not isinstance(store, GrantsLeases):
            yield Hold(session_id)
            return
        claim = Claim(session_id=session_id, store=store, lease=self.new(), seconds=self.seconds)
        with working_for(claim.lease):
            hold = Hold(session_id, await self._won(claim))
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
            if is_of_this_work(other):
                raise busy_with_itself(claim.session_id)
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
            claim = claim.from_now()
        return claim


def _pauses() -> Iterator[float]:
    """The seconds between a look and the next."""
    pause = FIRST_PAUSE_SECONDS
    while True:
        yield random.uniform(pause / 2, pause)
        pause = min(pause * 1.5, LONGEST_PAUSE_SECONDS)
