"""The records of a session's log, filters that take some of them, and sets of positions in it.

A log only grows. A record's position (`seq`, from 1) never changes, so overlays, undo and memories
point at positions. `id` tells a retried append from another writer's equal record; it and `time`
(seconds since the epoch) say nothing about what happened, so they do not count in comparisons.
"""

import time
import uuid
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal, TypeAlias, get_args

from agentloop._plumbing.checks import shown, text_or_none, whole_or_none
from agentloop.errors import UsageError
from agentloop.messages import Message, Usage

__all__ = [
    "AnyEvent",
    "Cleared",
    "ClearedItem",
    "Compacted",
    "Described",
    "Event",
    "Made",
    "MessageRecord",
    "ModelCalled",
    "Noted",
    "Ranges",
    "Record",
    "Restored",
    "RunEndRecord",
    "RunSetup",
    "RunStartRecord",
    "Unknown",
    "kind_name",
]

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Sets of positions as inclusive pairs (first, last), ascending, apart from each other."""

Made: TypeAlias = Literal["summary", "digest", "note"]
"""How what stands instead was made: written by a model, computed from the log, or one line that says so."""


_LEFT_OUT: Mapping[str, bool] = {"left_out": True}
"""Marks a field that older versions do not have: where it is None its record is written as they wrote it."""


def _new_id() -> str:
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What all records share."""

    id: str = field(default_factory=_new_id, compare=False, repr=False)
    time: float = field(default_factory=time.time, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRecord(Event):
    """Something was said.

    `tokens` is counted once, here. `branch` is None on the main line, else the sub-agent that said it.
    `keep` is set on results that clearing must leave alone; `spilled` names the file that holds the
    whole of a result shortened when it was made; `finish` is the server's finish reason for an answer.
    """

    kind: ClassVar[str] = "message_added"

    message: Message
    tokens: int
    run_id: str = ""
    branch: str | None = None
    keep: bool = False
    spilled: str | None = None
    finish: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearedItem:
    """The message at `seq` is shown as `message` from now on, which is `tokens` long."""

    seq: int
    message: Message
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared(Event):
    """These messages are shown shortened from now on; the log keeps the whole."""

    kind: ClassVar[str] = "cleared"

    items: tuple[ClearedItem, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted(Event):
    """The positions in `covers` are represented by `replacement` from now on; `cleared` is shown shortened.

    The replacement stands before the first message at or after position `at`; `tokens` is its length, with
    that of `answer`, which an assistant says behind it where that is not empty (`answer_tokens` long). Where
    nothing is covered there is no replacement; where something is and there is none, a user took it back.
    `made` tells a model's text from a digest of the log and from a line that only says that something is
    gone. `before` and `after` are the request's size around it, `lost` the identifiers no longer in sight.
    Records of one compaction in several steps share `group`.
    """

    kind: ClassVar[str] = "compacted"

    covers: Ranges
    replacement: str
    at: int
    tokens: int
    answer: str = ""
    answer_tokens: int = 0
    made: Made = "summary"
    cleared: tuple[ClearedItem, ...] = ()
    group: str = ""
    reason: str = "manual"
    why: str = ""
    strategy: str = ""
    tier: int = 1
    before: int = 0
    after: int = 0
    transcript: str | None = None
    lost: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored(Event):
    """The compaction at position `seq` is taken back, with all that it covered or shortened."""

    kind: ClassVar[str] = "restored"

    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCalled(Event):
    """One request was answered.

    `purpose` is agent, summary or memory; `counted` is our own count of the request in tokens, which
    `usage` (the provider's) is held against; `request_hash` is the SHA-256 of the request's JSON.
    """

    kind: ClassVar[str] = "model_called"

    purpose: str
    model: str
    counted: int = 0
    request_hash: str = ""
    usage: Usage | None = None
    seconds: float = 0.0
    cost: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSetup:
    """What a run was made with, beside its model's name, for whoever goes on with the session.

    `api` is `chat` or `responses`, empty for a model that no server runs; `server` is its address without
    what may be secret in it, user, password and query: `cut` says that there was any. `window` is None where
    none was given. `compact_at` is the share of the window at which compaction begins, 0 where it is off,
    None where another trigger decides.
    """

    api: str = ""
    server: str | None = None
    cut: bool = False
    window: int | None = None
    compact_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStartRecord(Event):
    """A run began; `prompt` is what is to be said in it once calls in flight have their results, if any.

    `setup` is None in logs of older versions.
    """

    kind: ClassVar[str] = "run_started"

    run_id: str
    model: str = ""
    prompt: Message | None = None
    setup: RunSetup | None = field(default=None, metadata=_LEFT_OUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEndRecord(Event):
    """A run ended with one of the words of the exit table; `reason` says which limit ended it, if one did."""

    kind: ClassVar[str] = "run_ended"

    run_id: str
    status: str
    usage: Usage = field(default_factory=Usage)
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Described(Event):
    """The session has this title, folder, owner or time to live from now on; None leaves what was.

    The time to live, in seconds, is counted from the log's newest record; 0 takes it off.
    """

    kind: ClassVar[str] = "described"

    title: str | None = None
    folder: str | None = None
    owner: str | None = None
    ttl_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted(Event):
    """A plugin's own record; never shown to the model."""

    kind: ClassVar[str] = "noted"

    source: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown(Event):
    """A record of a kind that a newer version wrote: kept as it is and passed over. `body` is its JSON."""

    kind: str
    body: str


AnyEvent: TypeAlias = (
    MessageRecord
    | Cleared
    | Compacted
    | Restored
    | ModelCalled
    | RunStartRecord
    | RunEndRecord
    | Described
    | Noted
    | Unknown
)


def kind_name(kind: type) -> str:
    """What stands in a file for records of this class, e.g. `message_added`; empty for what is no record."""
    name = "unknown" if kind is Unknown else getattr(kind, "kind", "")
    return name if isinstance(name, str) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One event at its position."""

    seq: int
    event: Event


MAIN: Final = "main"
"""The main line, where a branch is asked for; no branch can be asked for by this name."""

_NAMES: Final[Mapping[type, str]] = {kind: kind_name(kind) for kind in get_args(AnyEvent)}

KINDS: Final = tuple(_NAMES.values())
"""The names of all kinds of records; `unknown` are those that a newer version wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Takes the records that are all of what is asked for; None asks for nothing.

    `branch` is the name of the sub-agent that said it, or `MAIN` for the main line alone: every record but
    the messages of branches. `kinds` are names such as "message_added", or classes of `agentloop.events`.
    `run_id` is the run that the record names: messages and the edges of runs name theirs, other records none.
    `first` and `last` are positions in the log, both taken in.

    Example:
        >>> from agentloop.messages import Message
        >>> said = MessageRecord(message=Message.user("hi"), tokens=1, branch="scout")
        >>> records = [Record(seq=1, event=RunStartRecord(run_id="r")), Record(seq=2, event=said)]
        >>> [record.seq for record in select(records, EventFilter(branch="scout"))]
        [2]
        >>> [record.seq for record in select(records, EventFilter(branch=MAIN, last=40))]
        [1]

    Raises:
        UsageError: a kind that is none, a position that is no whole number of at least 1, `first` behind
            `last`, or a branch or a run that is no text.
    """

    branch: str | None = None
    kinds: Collection[str | type[Event]] | None = None
    run_id: str | None = None
    first: int | None = None
    last: int | None = None

    def __post_init__(self) -> None:
        text_or_none("branch", self.branch)
        text_or_none("run_id", self.run_id)
        whole_or_none("first", self.first, 1)
        whole_or_none("last", self.last, 1 if self.first is None else self.first)
        if self.kinds is not None:
            object.__setattr__(self, "kinds", _named(self.kinds))

    def __call__(self, record: Record, /) -> bool:
        """Whether it takes this record."""
        event = record.event
        return self.takes(
            seq=record.seq,
            kind=_NAMES.get(type(event), ""),
            branch=event.branch if isinstance(event, MessageRecord) else None,
            run_id=event.run_id if isinstance(event, MessageRecord | RunStartRecord | RunEndRecord) else None,
        )

    def takes(self, *, seq: int, kind: str, branch: str | None, run_id: str | None) -> bool:
        """Whether it takes a record at that position, of that kind, branch (None: the main line) and run."""
        return (
            (self.first is None or self.first <= seq)
            and (self.last is None or seq <= self.last)
            and (self.branch is None or branch == (None if self.branch == MAIN else self.branch))
            and (self.run_id is None or run_id == self.run_id)
            and (self.kinds is None or kind in self.kinds)
        )


def select(records: Iterable[Record], only: EventFilter | None) -> list[Record]:
    """The records that the filter takes, in their order; all of them without one."""
    return [record for record in records if only is None or only(record)]


def _named(kinds: object) -> frozenset[str]:
    if isinstance(kinds, str) or not isinstance(kinds, Collection):
        raise UsageError(f"kinds must be several kinds, such as ('message_added',), not {shown(kinds)}")
    names = [_NAMES.get(kind, kind.__name__) if isinstance(kind, type) else kind for kind in kinds]
    for name in names:
        if name not in KINDS:
            raise UsageError(f"kinds must be of {', '.join(KINDS)}, not {shown(name)}")
    return frozenset(names)


def ranges_between(positions: Iterable[int], kept: Collection[int] = ()) -> Ranges:
    """The fewest pairs that hold all of these positions and none of the kept ones."""
    walls = sorted(kept)
    pairs: list[tuple[int, int]] = []
    for position in sorted(set(positions)):
        if pairs and bisect_left(walls, pairs[-1][1]) == bisect_left(walls, position):
            pairs[-1] = (pairs[-1][0], position)
        else:
            pairs.append((position, position))
    return tuple(pairs)


def holds(ranges: Ranges, position: int) -> bool:
    """Whether the position is in the set."""
    at = bisect_right(ranges, (position, float("inf"))) - 1
    return at >= 0 and ranges[at][0] <= position <= ranges[at][1]


def united(*sets: Ranges) -> Ranges:
    """The set of the positions that are in any of these sets."""
    pairs: list[tuple[int, int]] = []
    for first, last in sorted(pair for ranges in sets for pair in ranges):
        if pairs and first <= pairs[-1][1] + 1:
            pairs[-1] = (pairs[-1][0], max(pairs[-1][1], last))
        else:
            pairs.append((first, last))
    return tuple(pairs)
