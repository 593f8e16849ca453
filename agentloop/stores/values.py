"""What stores are asked with and answer with.

What a caller makes (`Scope`, `Checkpoint`, `Lease`) checks itself.
"""

from dataclasses import dataclass

from agentloop._plumbing.checks import MOST_COUNT, from_to, text, text_or_none, whole
from agentloop.events import Record
from agentloop.stores.checked import LAST_MOMENT, MOST_POSITION, checked_owner, checked_session_id


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
class Scope:
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
