"""What you watch while a run goes on: a closed union of events, none of them stored.

Every `CompactionStarted` is followed by exactly one `CompactionEnded`, whatever happens between.
`time` is in seconds since the epoch; all sizes are in tokens unless they say otherwise.
"""

import dataclasses
import re
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from agentloop.events import Ranges
from agentloop.messages import Message
from agentloop.usage import Usage

CompactionReason: TypeAlias = Literal["threshold", "tool", "manual", "overflow", "idle"]
CompactionStatus: TypeAlias = Literal["done", "failed", "vetoed", "conflict", "ineffective"]
RunStatus: TypeAlias = Literal[
    "answered", "failed", "usage", "limit", "needs_approval", "too_large", "try_later", "interrupted"
]
ToolStatus: TypeAlias = Literal["ok", "error", "timeout", "interrupted"]
Level: TypeAlias = Literal["none", "warning", "critical"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextStatus:
    """How full the window is.

    `tokens` is the size of the next request, fixed part included; `measured` says whether it rests on
    the provider's own count. `threshold` is where automatic compaction fires, None where it is off or its
    trigger has no such place.
    """

    tokens: int
    window: int
    threshold: int | None
    measured: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEvent:
    """What all of them carry; filled in when the event is shown."""

    session_id: str = ""
    run_id: str = ""
    time: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted(StreamEvent):
    """A run began."""

    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta(StreamEvent):
    """A piece of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageAdded(StreamEvent):
    """A message stands in the log at position `seq`.

    `context` is the state of the window with it; `usage` and `cost` (US dollars) stand on the model's
    messages where they are known, and so does `finish`, the server's finish reason.
    """

    seq: int
    message: Message
    tokens: int
    context: ContextStatus
    usage: Usage | None = None
    cost: float | None = None
    finish: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted(StreamEvent):
    """A tool call begins; `arguments` is the JSON text of the model."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolProgress(StreamEvent):
    """What a running tool says of its progress."""

    call_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEnded(StreamEvent):
    """A tool call has its result."""

    call_id: str
    name: str
    status: ToolStatus
    duration_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsCleared(StreamEvent):
    """Old results are shown shortened from now on."""

    positions: tuple[int, ...]
    tokens_before: int
    tokens_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionStarted(StreamEvent):
    """A compaction of positions `first` to `last` begins; `why` is the trigger's own words."""

    reason: CompactionReason
    why: str
    strategy: str
    tokens_before: int
    messages_before: int
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionEnded(StreamEvent):
    """The compaction is over; see `CompactionResult` for the fields."""

    status: CompactionStatus
    tier: int
    tokens_before: int
    tokens_after: int
    messages_before: int
    messages_after: int
    archived: Ranges
    transcript: str | None
    duration_seconds: float
    summary_tokens: int
    lost: tuple[str, ...]
    error: str | None
    shortened: tuple[int, ...] = ()
    tokens_saved: int = 0
    level: Level = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextWarning(StreamEvent):
    """The level of the window's filling changed: none under 80 %, warning to 90 %, critical above.

    `text` says what else is wrong: instructions and tool schemas that compaction cannot make up for, said
    once a run.
    """

    level: Level
    tokens: int
    window: int
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrying(StreamEvent):
    """A request failed and is tried again after `wait_seconds`; text since its start is void."""

    attempt: int
    wait_seconds: float
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackFailed(StreamEvent):
    """A callback raised or took too long; the run goes on."""

    callback: str
    point: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded(StreamEvent):
    """The run is over; `status` is a word of the exit table."""

    status: RunStatus
    output: str
    usage: Usage
    cost: float | None
    error: str | None


AnyStreamEvent: TypeAlias = (
    RunStarted
    | TextDelta
    | MessageAdded
    | ToolStarted
    | ToolProgress
    | ToolEnded
    | ResultsCleared
    | CompactionStarted
    | CompactionEnded
    | ContextWarning
    | Retrying
    | CallbackFailed
    | RunEnded
)


def level_of(tokens: int, window: int) -> Level:
    """How full: none under 80 % of the window, warning to 90 %, critical above."""
    if tokens > window * 0.9:
        return "critical"
    return "warning" if tokens >= window * 0.8 else "none"


def event_type(event: StreamEvent) -> str:
    """The snake_case name of the event, e.g. `compaction_started`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(event).__name__).lower()


def to_json(event: StreamEvent) -> dict[str, Any]:
    """The event as JSON values, `type` first; messages stand in chat-completions form."""
    fields = {field.name: getattr(event, field.name) for field in dataclasses.fields(event)}
    return {"type": event_type(event)} | {name: _plain(value) for name, value in fields.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Message):
        return value.to_openai()
    if isinstance(value, Usage | ContextStatus):
        return dataclasses.asdict(value)
    return list(value) if isinstance(value, tuple) else value
