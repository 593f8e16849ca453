"""The records of a session's log: what was said, and what is now so.

A log only grows. A record's position (`seq`, from 1) never changes, so overlays, undo and memories
point at positions. `id` tells a retried append from another writer's equal record; it and `time`
(seconds since the epoch) say nothing about what happened, so they do not count in comparisons.
"""

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

from agentloop.messages import Message
from agentloop.usage import Usage

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Sets of positions as inclusive pairs (first, last), ascending, apart from each other."""

Made: TypeAlias = Literal["summary", "digest", "note"]
"""How what stands instead was made: written by a model, computed from the log, or one line that says so."""


def _new_id() -> str:
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What all records share."""

    id: str = field(default_factory=_new_id, compare=False, repr=False)
    time: float = field(default_factory=time.time, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageAdded(Event):
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
    nothing is covered there is no replacement. `made` tells a model's text from a digest of the log and from
    a line that only says that something is gone. `before` and `after` are the request's size around it,
    `lost` the identifiers no longer in sight. Records of one compaction in several steps share `group`.
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
class RunStarted(Event):
    """A run began; `prompt` is what is to be said in it once calls in flight have their results, if any."""

    kind: ClassVar[str] = "run_started"

    run_id: str
    model: str = ""
    prompt: Message | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded(Event):
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
    MessageAdded
    | Cleared
    | Compacted
    | Restored
    | ModelCalled
    | RunStarted
    | RunEnded
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
