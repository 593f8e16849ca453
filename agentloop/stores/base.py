"""What a store of sessions promises.

`append` is the only write to a log. It succeeds only while the log holds exactly `expect` records, and
then writes all of the events at positions `expect + 1` on, or none. A repeated append whose first answer
was lost is harmless: where the very events (by their `id` and content) stand at those positions already,
it counts as written. A store keeps an index of its sessions from what is appended (`Described`, times,
lengths), so that listing them reads no log.

Beside the log, a store may keep what can be lost without losing anything: it then has the verbs of
`FindsWords`, `KeepsCheckpoints`, `GrantsLeases` and `TellsLeases`. The stores of this package have all of
them, but for the checkpoints of the one in memory, and those on disc can look through what they hold
(`ChecksItself`).
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from agentloop.events import Event, Record
from agentloop.stores.checked import checked_now, checked_owner, checked_session_id, checked_ttl
from agentloop.stores.values import Checkpoint, Found, Lease, Scope, SessionInfo

__all__ = [
    "Checkpoint",
    "ChecksItself",
    "FindsWords",
    "Found",
    "GrantsLeases",
    "KeepsCheckpoints",
    "Lease",
    "Scope",
    "SessionInfo",
    "SessionStore",
    "TellsLeases",
    "checked_now",
    "checked_owner",
    "checked_session_id",
    "checked_ttl",
]


class SessionStore(Protocol):
    """Where logs live.

    A store that is reached over a network may do a call again whose answer was lost. That harms no append;
    but a deletion that was done the first time then says False, and a sweep leaves out what that one deleted.
    """

    async def append(self, session_id: str, events: Sequence[Event], *, expect: int) -> int:
        """Write all events after record `expect`, or none; returns the log's new length.

        Raises:
            ConflictError: the log does not hold exactly `expect` records, and these do not stand behind it.
            StoreError: it could not be written, with the reason and what to do in its text.
        """
        ...

    async def read(self, session_id: str, *, after: int = 0, most: int | None = None) -> Sequence[Record]:
        """The records behind position `after`, in order; none for a session that does not exist.

        With `most`, no more than the first so many of them.

        Raises:
            DamagedError: one of these is damaged or missing, or the database is.
            StoreError: the log could not be read, which tells nothing of what it holds.
        """
        ...

    async def info(self, session_id: str) -> SessionInfo | None:
        """The session's line in the list; None for a session that does not exist."""
        ...

    async def list(self, *, folder: str | None = None, owner: str | None = None) -> Sequence[SessionInfo]:
        """The sessions, newest update first; with `folder` those of it, with `owner` those of that owner."""
        ...

    async def delete(self, session_id: str) -> bool:
        """Remove a session, its log and all that was kept beside it; False where there was none.

        Who holds the session by a lease holds its id until they let go, so that no other run begins it anew
        while the old one is under way.
        """
        ...

    async def sweep(self, *, owner: str | None = None, now: float | None = None) -> Sequence[SessionInfo]:
        """Delete the sessions whose time to live is over, with `owner` those of that owner, and return them.

        `now` is the time to hold them against, in seconds since the epoch; None is the clock's. A session
        that goes on, or is given to somebody else, before its turn comes is left; so is one that somebody
        holds by a lease. A fault on the way ends the sweep: what went before
        it is returned, and the next sweep goes on.

        Raises:
            UsageError: `now` is no finite number, or the owner is none.
            StoreError: nothing could be deleted, with the reason and what to do in its text.
        """
        ...

    async def close(self) -> None:
        """Let go of files and connections; harmless when called again. Who is used after it opens again."""
        ...


@runtime_checkable
class ChecksItself(Protocol):
    """A store that can look through all that it keeps."""

    async def check(self) -> Sequence[str]:
        """What is wrong, a line each; none where all is well. Nothing that was stored is changed.

        Tables that an older version made are brought up to date first, as by any first use. A record that is
        damaged or missing is named with its place, and so is a session whose line in the list says what its
        log does not.

        Raises:
            StoreError: it could not be looked through, which tells nothing of what it holds.
        """
        ...


@runtime_checkable
class FindsWords(Protocol):
    """A store whose logs can be searched."""

    async def search(
        self,
        text: str,
        *,
        session_id: str | None = None,
        folder: str | None = None,
        owner: str | None = None,
        most: int = 50,
    ) -> Sequence[Found]:
        """The records that hold all these words, those hidden by a compaction too; at most `most`.

        A text in double quotes is looked for as it stands, word by word. Of the sessions, newest update
        first, the newest records first. Each of `session_id`, `folder` and `owner` that is given bounds the
        search further: a session of another owner is not looked into, also where it is named.

        Raises:
            UsageError: the text holds no word, or another argument is bad.
        """
        ...


@runtime_checkable
class KeepsCheckpoints(Protocol):
    """A store that keeps one checkpoint beside each log. It may lose it; then the log is read."""

    async def checkpoint(self, session_id: str) -> Checkpoint | None:
        """The newest checkpoint; None where there is none."""
        ...

    async def keep_checkpoint(self, session_id: str, checkpoint: Checkpoint) -> None:
        """Keep this one in place of an older one; nothing happens where a newer one, or no log, is there."""
        ...

    async def drop_checkpoint(self, session_id: str) -> None:
        """Forget the checkpoint; harmless where there is none."""
        ...


@runtime_checkable
class GrantsLeases(Protocol):
    """A store that knows who works on a session. The log needs no lease: it has its compare-and-swap.

    A lease needs no log either: it may be taken before the first append. It stands until it is freed or
    another's. A session that is deleted leaves a live lease: the id stays taken until its holder has noticed,
    so nobody begins a log anew that an older run still writes to. A sweep passes over what is held, and
    forgets the leases that have run out.
    """

    async def take_lease(
        self, session_id: str, lease: Lease, *, seconds: float, over: str | None = None
    ) -> Lease:
        """Who holds the session from now on: this lease where it was free, its own, or run out.

        The holder named by `over` is put out. A lease taken again is renewed: it runs out `seconds` after
        the call, by the store's own clock. Where somebody else holds it, that lease comes back, nothing
        changed.
        """
        ...

    async def free_lease(self, session_id: str, holder: str) -> None:
        """Let go of the session; harmless where somebody else holds it, or nobody."""
        ...


@runtime_checkable
class TellsLeases(Protocol):
    """A store that grants leases, and says who holds one to who asks for none. It need not be writable."""

    async def lease(self, session_id: str) -> Lease | None:
        """Who holds the session now, by the store's own clock; None for nobody, or a lease that has run out.

        Nothing is changed: who asks for the session in that instant gets it.
        """
        ...
