"""Two workers on one run: only one can go on, though the other does not know yet that it was given up.

Both write by the same run id, so what one finds behind its own last record may be the other's. A run of its
own process takes that for its own; one that many workers share must not.
"""

import asyncio
import contextlib
import uuid
from dataclasses import dataclass, replace
from typing import Self

from agentloop.errors import ConflictError, StoreError
from agentloop.events import Event
from agentloop.holders import is_dead, new_lease, working_for
from agentloop.holds import RENEWALS, Claim
from agentloop.sessions import Session
from agentloop.stores.base import GrantsLeases, SessionStore

_PAUSE_SECONDS = 0.2
"""How long who waits for a session waits before it looks again."""


class MovedOnError(StoreError):
    """The log is longer than the writer thought: it is to look again at what is still to be done."""

    def __init__(self, session_id: str) -> None:
        super().__init__(f"others keep writing to session {session_id!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FencedSession(Session):
    """A session whose writer is told of every other writer's record before it writes one of its own."""

    async def append(self, *events: Event) -> Self:
        """This session with these events at the end of its log: all of them are stored, or none.

        Raises:
            MovedOnError: somebody else wrote to the log meanwhile.
            StoreError: it could not be written.
        """
        try:
            return await Session.append(self, *events)
        except ConflictError as error:
            raise MovedOnError(self.id) from error


class HeldSession:
    """The lease on a session that a run works on, renewed for as long as it is not let go.

    A run that is put out all the same is told by the log, the next time it writes.
    """

    def __init__(self, claim: Claim | None) -> None:
        self._claim = claim
        self._work = contextlib.ExitStack()
        self._renewing: asyncio.Task[None] | None = None

    @classmethod
    async def taken(cls, session_id: str, store: SessionStore, run_id: str) -> Self:
        """The session, taken over from an earlier execution of the run, or waited for.

        It is waited for while a run of anybody else works on it, for as long as that lives. A store that
        grants no leases lets everybody in.
        """
        if not isinstance(store, GrantsLeases):
            return cls(None)
        lease = replace(new_lease(), holder=_prefix(run_id) + uuid.uuid4().hex)
        held = cls(claim := Claim(session_id=session_id, store=store, lease=lease))
        try:
            await held._won(claim, _prefix(run_id))
        except BaseException:  # a cancellation may come when the store has granted it; raised again
            await held.free()
            raise
        return held

    async def free(self) -> None:
        """Let go of it; harmless when called again."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait({self._renewing})
        self._work.close()
        claim, self._claim = self._claim, None
        if claim is not None:
            await claim.free()

    async def _won(self, claim: Claim, own: str) -> None:
        self._work.enter_context(working_for(claim.lease))
        over = None
        while (other := await claim.taken(over)) is not None:
            over = other.holder if other.holder.startswith(own) or is_dead(other) else None
            if over is None:
                await asyncio.sleep(_PAUSE_SECONDS)
        self._renewing = asyncio.create_task(_renewed(claim))


async def _renewed(claim: Claim) -> None:
    is_ours = True
    while is_ours:
        await asyncio.sleep(claim.seconds / RENEWALS)
        with contextlib.suppress(StoreError):  # the log is safe without a lease
            is_ours = await claim.taken() is None


def _prefix(run_id: str) -> str:
    return f"{run_id}."
