"""What a store of sessions promises, and what stores are asked with and answer with.

`SessionStore` is what every store has. Its `append` is the only write to a log. It succeeds only while the
log holds exactly `expect` records, and then writes all of the events at positions `expect + 1` on, or none. A
repeated append whose first answer was lost is harmless: where the very events (by their `id` and content)
stand at those positions already, it counts as written. A store keeps an index of its sessions from what is
appended (`Described`, times, lengths), so that listing them reads no log.

Beside the log, a store may keep what can be lost without losing anything: it then has the verbs of
`FindsWords`, `KeepsCheckpoints`, `GrantsLeases` and `TellsLeases`. The stores of this package have all of
them, but for the checkpoints of the one in memory, and those on disc can look through what they hold
(`ChecksItself`).

First stand the values, which check themselves (`SessionScope`, `Checkpoint`, `Lease`), then the promises,
then how the arguments of the verbs are checked, the same in every store.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from agentloop._plumbing.checks import (
    MOST_COUNT,
    above_zero,
    any_whole,
    finite,
    finite_above_zero_or_none,
    from_to,
    shown,
    text,
    text_or_none,
    whole,
    whole_or_none,
)
from agentloop._plumbing.patterns import pattern
from agentloop.errors import UsageError
from agentloop.events import Event, Record

__all__ = [
    "Checkpoint",
    "ChecksItself",
    "FindsWords",
    "Found",
    "GrantsLeases",
    "KeepsCheckpoints",
    "Lease",
    "SessionInfo",
    "SessionScope",
    "SessionStore",
    "TellsLeases",
    "checked_now",
    "checked_owner",
    "checked_session_id",
    "checked_ttl",
]

MOST_OWNER_CHARS = 200
MOST_POSITION = 2**62
"""No log gets near it; a position beyond it is taken for this one, which every store has a number for."""
LAST_MOMENT = 253_402_300_799
"""The last second of the year 9999, since the epoch: the last that Python has a date for."""
MOST_LEASE_SECONDS = 10 * 365 * 86_400.0
"""A lease that is asked for longer lasts so long; one that ends later than that from now is damaged."""

_SESSION_ID = pattern(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}(~[A-Za-z0-9._-]{1,1000})?")
_BRANCH = "~"
"""Stands behind a session's id, and before the name of a branch of it, in the id of that branch's log."""
_MEDIA = f"{_BRANCH}.media."
"""Stands there in place of it before a hash; the name of a sub-agent never begins with a dot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """One line of the list of sessions; times in seconds since the epoch, `length` in records.

    `created` is the time of the first record, `updated` the latest of all, so that a clock set back makes no
    session older. One with a time to live expires `ttl_seconds` after that; one without never does.
    """

    id: str
    title: str | None
    folder: str | None
    created: float
    updated: float
    length: int
    owner: str | None = None
    ttl_seconds: float | None = None

    @property
    def expires(self) -> float | None:
        """When a sweep may delete it, in seconds since the epoch; None for never."""
        return None if self.ttl_seconds is None else self.updated + self.ttl_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionScope:
    """Which sessions are asked about: the one of that id, those of the folder, of the owner; None for any.

    Raises:
        UsageError: the id or the owner is none, or the folder is no text.
    """

    session_id: str | None = None
    folder: str | None = None
    owner: str | None = None

    def __post_init__(self) -> None:
        if self.session_id is not None:
            checked_session_id(self.session_id)
        text_or_none("folder", self.folder)
        checked_owner(self.owner)

    def takes(self, info: SessionInfo) -> bool:
        """Whether that session is one of them."""
        asked = ((self.session_id, info.id), (self.folder, info.folder), (self.owner, info.owner))
        return all(wanted in (None, said) for wanted, said in asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A record that holds what was searched for.

    Who shows it takes secrets out of the whole record first, then cuts an excerpt (`words.excerpt`): a secret
    that is cut is not known for one.
    """

    session_id: str
    record: Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What was computed from a log's first `seq` records, as text; `event_id` is that of record `seq`.

    Raises:
        UsageError: `seq` is no position, or one of the others is no text.
    """

    seq: int
    event_id: str
    body: str

    def __post_init__(self) -> None:
        whole("seq of a checkpoint", self.seq, 0, most=MOST_POSITION)
        text("event_id of a checkpoint", self.event_id)
        text("body of a checkpoint", self.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Who works on a session. `holder` is unique to that work; place, pid and start name its process.

    `place` tells apart what has process ids of its own (a machine since it booted, a container); `started`
    tells two processes of one pid apart. `since` is in seconds since the epoch.

    Raises:
        UsageError: a text is none, the pid is none that a process can have, or `since` is no time that can be
            told as a date (up to the year 9999).
    """

    holder: str
    place: str
    pid: int
    started: str
    since: float

    def __post_init__(self) -> None:
        text("holder of a lease", self.holder)
        text("place of a lease", self.place)
        whole("pid of a lease", self.pid, 0, most=MOST_COUNT)
        text("started of a lease", self.started)
        from_to("since of a lease", self.since, 0, LAST_MOMENT)


def stays_with(held: Lease | None, asked: Lease, over: str | None) -> bool:
    """Whether a session stays with who holds it though another lease is asked for.

    `held` is None where the session is free or its lease has run out; `over` is the holder to put out.
    """
    return held is not None and held.holder not in (asked.holder, over)


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

    async def list(
        self, *, folder: str | None = None, owner: str | None = None, branches_of: str | None = None
    ) -> Sequence[SessionInfo]:
        """The sessions, newest update first; with `folder` those of it, with `owner` those of that owner.

        The logs of sub-agents are not among them: with `branches_of` it is those of that session alone. Those
        that hold its images and files (`holds_media`) are in no list.
        """
        ...

    async def delete(self, session_id: str) -> bool:
        """Remove a session, its log and all that was kept beside it; False where there was none.

        The logs of its sub-agents go with it, here and in a sweep.

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

        The holder named by `over` is put out. A lease taken again is renewed: it runs out `seconds` after the
        call, by the store's own clock. Where somebody else holds it, that lease comes back, nothing changed.
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


def branch_id(session_id: str, name: str) -> str:
    """The id of the log in which this branch of the session stands; one of a branch is a part of its name."""
    return f"{session_id}{'.' if _BRANCH in session_id else _BRANCH}{name}"


def media_log(session_id: str, sha256: str) -> str:
    """The id of the log that holds an image or a file of the session, or of one of its sub-agents."""
    return f"{trunk_of(session_id) or session_id}{_MEDIA}{sha256}"


def holds_media(session_id: str) -> bool:
    """Whether the log of this id holds an image or a file, and nothing that anybody said."""
    return _MEDIA in session_id


def branch_in(session_id: str) -> str | None:
    """The branch whose log has this id, such as `scout.1f0a`; None for a session itself."""
    return session_id.partition(_BRANCH)[2] or None


def trunk_of(session_id: str) -> str | None:
    """The session whose branch has a log of this id; None for a session itself."""
    return session_id.partition(_BRANCH)[0] if _BRANCH in session_id else None


def check_trunk(session_id: str) -> str:
    """The id of a session to begin or go on with, itself.

    Raises:
        UsageError: it is none, or that of a branch, which only the run of its session works on.
    """
    if trunk_of(checked_session_id(session_id)) is None:
        return session_id
    raise UsageError(f"{session_id[:60]!r} is the log of a sub-agent: name its session instead")


def checked_session_id(session_id: str) -> str:
    """The id itself, also that of a sub-agent's log: a session's, `~` and a name.

    Raises:
        UsageError: it is not 1 to 128 of A-Z a-z 0-9 . _ -, or begins with a dot.
    """
    if isinstance(session_id, str) and _SESSION_ID.fullmatch(session_id):
        return session_id
    raise UsageError(
        f"bad session id {shown(session_id)}: use 1 to 128 of A-Z a-z 0-9 . _ -, not beginning with a dot"
    )


def checked_owner(owner: str | None) -> str | None:
    """The owner itself; None for none.

    Raises:
        UsageError: it is no text of 1 to 200 printable characters.
    """
    if owner is None or (
        isinstance(owner, str) and 0 < len(owner) <= MOST_OWNER_CHARS and owner.isprintable()
    ):
        return owner
    raise UsageError(f"bad owner {shown(owner)}: use 1 to {MOST_OWNER_CHARS} printable characters")


def checked_ttl(seconds: float | None) -> float | None:
    """The time to live itself, in seconds; None for none.

    Raises:
        UsageError: it is no finite number above 0.
    """
    finite_above_zero_or_none("ttl_seconds", seconds)
    return None if seconds is None else float(seconds)


def checked_now(now: float) -> float:
    """The time itself, in seconds since the epoch.

    Raises:
        UsageError: it is no finite number.
    """
    finite("now", now)
    return float(now)


def checked_append(session_id: str, events: Sequence[Event], expect: int) -> tuple[Event, ...]:
    """The events that are to be appended; the arguments are those of `SessionStore.append`.

    Raises:
        UsageError: the id is none, or `expect` no whole number.
    """
    checked_session_id(session_id)
    any_whole("expect", expect)
    return tuple(events)


def checked_page(session_id: str, after: int, most: int | None) -> tuple[int, int | None]:
    """Behind which position, and how many at most, `SessionStore.read` is asked for.

    Raises:
        UsageError: the id is none, `after` no whole number, or `most` none of at least 0.
    """
    checked_session_id(session_id)
    any_whole("after", after)
    whole_or_none("most", most, 0)
    return clamped(max(after, 0)), None if most is None else clamped(most)


def checked_search(
    session_id: str | None, folder: str | None, owner: str | None, most: int
) -> tuple[SessionScope, int]:
    """Where, and for how many at most, `FindsWords.search` is to look.

    Raises:
        UsageError: the scope is none, or `most` no whole number of at least 1.
    """
    whole("most", most, 1)
    return SessionScope(session_id=session_id, folder=folder, owner=owner), clamped(most)


def checked_lease_seconds(session_id: str, seconds: float, over: str | None) -> float:
    """How long the lease that `GrantsLeases.take_lease` is asked for lasts.

    Raises:
        UsageError: the id is none, `seconds` not above 0, or `over` no text.
    """
    checked_session_id(session_id)
    above_zero("seconds", seconds)
    text_or_none("over", over)
    return min(seconds, MOST_LEASE_SECONDS)


def checked_holder(session_id: str, holder: str) -> str:
    """Who lets go of the session by `GrantsLeases.free_lease`.

    Raises:
        UsageError: the id is none, or the holder no text.
    """
    checked_session_id(session_id)
    text("holder", holder)
    return holder


def clamped(position: int) -> int:
    """The position itself, or the nearest that every store has a number for."""
    return max(-MOST_POSITION, min(position, MOST_POSITION))
