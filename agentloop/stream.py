"""What you watch while a run goes on: a closed union of events, none of them stored.

What a compaction is announced by and comes to (`CompactionRequest`, `CompactionResult`) stands behind them.
Every `CompactionStarted` is followed by exactly one `CompactionEnded`, whatever happens between.
`time` is in seconds since the epoch; all sizes are in tokens unless they say otherwise.
"""

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from agentloop.errors import StoreError
from agentloop.events import ApprovalVerdict, EventFilter, MessageRecord, Record
from agentloop.messages import Message, Usage

__all__ = [
    "AnyStreamEvent",
    "ApprovalGiven",
    "ApprovalNeeded",
    "CallRepeated",
    "CallbackFailed",
    "CompactionEnded",
    "CompactionReason",
    "CompactionSkipped",
    "CompactionStarted",
    "CompactionStatus",
    "ContextStatus",
    "ContextWarning",
    "Level",
    "LimitName",
    "MessageAdded",
    "OutputDelta",
    "ResultsCleared",
    "Retrying",
    "RunEnded",
    "RunStarted",
    "RunStatus",
    "StreamEvent",
    "TextDelta",
    "ToolEnded",
    "ToolProgress",
    "ToolStarted",
    "ToolStatus",
    "event_type",
    "level_of",
    "to_json",
]

CompactionReason: TypeAlias = Literal["threshold", "tool", "manual", "overflow", "idle"]
CompactionStatus: TypeAlias = Literal[
    "done", "failed", "vetoed", "conflict", "ineffective", "not_due", "skipped"
]
RunStatus: TypeAlias = Literal[
    "answered", "failed", "usage", "limit", "needs_approval", "too_large", "try_later", "interrupted"
]
LimitName: TypeAlias = Literal["steps", "tokens", "seconds", "cost", "repeats"]
"""The limits of a run, as `Limits` calls them."""

ToolStatus: TypeAlias = Literal["ok", "error", "timeout", "interrupted"]
Level: TypeAlias = Literal["none", "warning", "critical"]
"""How full something is: under 80 % of it, to 90 %, above."""

LevelOf: TypeAlias = Literal["threshold", "window"]
"""What is filled: the size at which automatic compaction fires, or the whole window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextStatus:
    """How full the window is.

    `tokens` is the size of the next request, fixed part included; `measured` says whether it rests on
    the provider's own count. `threshold` is where automatic compaction fires, None where it is off or its
    trigger has no such place.

    Example:
        >>> status = ContextStatus(tokens=85_000, window=128_000, threshold=99_000, measured=True)
        >>> status.threshold_level, status.window_level
        ('warning', 'none')
    """

    tokens: int
    window: int
    threshold: int | None
    measured: bool

    @property
    def threshold_level(self) -> Level:
        """How near compaction is: by the share of `threshold`; `none` where there is none."""
        return "none" if self.threshold is None else level_of(self.tokens, self.threshold)

    @property
    def window_level(self) -> Level:
        """How full the window is: by the share of the whole of it."""
        return level_of(self.tokens, self.window)


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
class OutputDelta(StreamEvent):
    """What an answer of a type gives so far, as JSON gives it: it fits the type, and grows.

    Of a list, the last item is left out as long as it does not fit. None comes with a redaction, which looks
    at whole texts.
    """

    output: Any


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
class ApprovalNeeded(StreamEvent):
    """A tool call is not run before somebody says yes; `arguments` is the JSON text of the model."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalGiven(StreamEvent):
    """A tool call that needed a yes has its answer; `text` is why not, or what stands for its result."""

    call_id: str
    name: str
    verdict: ApprovalVerdict
    text: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolProgress(StreamEvent):
    """What a running tool says of its progress."""

    call_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRepeated(StreamEvent):
    """A call gave the same result for the same arguments again, `times` times now in this run.

    The first is told at the third time; the model reads of it behind the result.
    """

    call_id: str
    name: str
    times: int


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
    """A compaction of positions `first` to `last` begins; `why` is the trigger's own words.

    Its `CompactionEnded` and its record in the log have the same `compaction_id`.
    """

    compaction_id: str
    reason: CompactionReason
    why: str
    strategy: str
    tokens_before: int
    messages_before: int
    first: int
    last: int


@dataclass(frozen=True, kw_only=True)
class CompactionEnd:
    """What the end of a compaction says, wherever it is told; see `CompactionResult` for the fields."""

    compaction_id: str = ""
    status: CompactionStatus
    reason: CompactionReason
    strategy: str
    tier: int
    tokens_before: int
    tokens_after: int
    messages_before: int
    messages_after: int
    archived: tuple[int, ...] = field(default=(), repr=False)
    transcript: str | None = None
    duration_seconds: float = 0.0
    summary_tokens: int = 0
    lost: tuple[str, ...] = field(default=(), repr=False)
    lost_count: int = 0
    error: str | None = None
    shortened: tuple[int, ...] = field(default=(), repr=False)
    usage: Usage = field(default_factory=Usage)
    cost: float | None = None


@dataclass(frozen=True, kw_only=True)
class CompactionEnded(CompactionEnd, StreamEvent):
    """The compaction is over; see `CompactionResult` for the fields."""

    tokens_saved: int = 0
    level: Level = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSkipped(StreamEvent):
    """A compaction was due or wished for and not begun; `error` says why, and when one may be.

    It is shown once for each wait, with the request's size in `tokens`, and stands in the log.
    """

    reason: CompactionReason
    why: str
    strategy: str
    tokens: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextWarning(StreamEvent):
    """A level changed: none under 80 %, warning to 90 %, critical above.

    `of` says of what: of the `threshold` at which compaction fires, in tokens, which comes first, or of the
    whole `window`. `text` says what else is wrong: instructions and tool schemas that compaction cannot
    make up for, said once a run.
    """

    level: Level
    tokens: int
    window: int
    text: str | None = None
    of: LevelOf = "window"
    threshold: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrying(StreamEvent):
    """A request failed and is tried again after `wait_seconds`; text since its start is void."""

    attempt: int
    wait_seconds: float
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackFailed(StreamEvent):
    """A callback raised or took too long; the run goes on.

    `where` is the line of its code that failed, as `FILE:LINE`; empty where it did not raise.
    """

    callback: str
    point: str
    error: str
    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded(StreamEvent):
    """The run is over; `status` is a word of the exit table, `reason` and `limit` as in `RunResult`."""

    status: RunStatus
    output: str
    usage: Usage
    cost: float | None
    error: str | None
    reason: str | None = None
    limit: LimitName | None = None


AnyStreamEvent: TypeAlias = (
    RunStarted
    | TextDelta
    | OutputDelta
    | MessageAdded
    | ApprovalNeeded
    | ApprovalGiven
    | ToolStarted
    | ToolProgress
    | CallRepeated
    | ToolEnded
    | ResultsCleared
    | CompactionStarted
    | CompactionEnded
    | CompactionSkipped
    | ContextWarning
    | Retrying
    | CallbackFailed
    | RunEnded
)


def level_of(tokens: int, most: int) -> Level:
    """How full: none under 80 % of the most, warning to 90 %, critical above."""
    if tokens > most * 0.9:
        return "critical"
    return "warning" if tokens >= most * 0.8 else "none"


def event_type(event: StreamEvent) -> str:
    """The snake_case name of the event, e.g. `compaction_started`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(event).__name__).lower()


def to_json(event: StreamEvent) -> dict[str, Any]:
    """The event as JSON values, `type` first; messages stand in chat-completions form."""
    fields = {field.name: getattr(event, field.name) for field in dataclasses.fields(event)}
    return {"type": event_type(event)} | {name: _json_value(value) for name, value in fields.items()}


def _json_value(value: Any) -> Any:
    if isinstance(value, Message):
        return value.to_openai()
    if isinstance(value, ContextStatus):
        levels = {"threshold_level": value.threshold_level, "window_level": value.window_level}
        return dataclasses.asdict(value) | levels
    if isinstance(value, Usage):
        return dataclasses.asdict(value)
    return list(value) if isinstance(value, tuple) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Positioned:
    """A message as the log holds it, its position, and the run that it was said in.

    `shortened` tells that it stays in the context and is only shown shortened from now on; otherwise it goes.
    """

    seq: int
    message: Message
    run_id: str = ""
    shortened: bool = False

    @property
    def record(self) -> Record:
        """The same as filters take it, its tokens not counted."""
        return Record(seq=self.seq, event=MessageRecord(message=self.message, tokens=0, run_id=self.run_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionRequest:
    """What is about to be hidden or shown shortened, and why.

    `messages` are exactly those about to go, and those about to be shown shortened, which say so; oldest
    first, untruncated. `tokens_before` is the size of the next request as it stands.

    Example:
        >>> said = [Positioned(seq=1, message=Message.user("Mend the tests."), run_id="a")]
        >>> said += [Positioned(seq=2, message=Message.assistant("They pass."), run_id="a")]
        >>> request = CompactionRequest(
        ...     session_id="s", run_id="b", reason="manual", why="asked for", messages=tuple(said),
        ...     tokens_before=900,
        ... )
        >>> [each.message.text for each in request.select(EventFilter(first=2))]
        ['They pass.']
    """

    session_id: str
    run_id: str
    reason: CompactionReason
    why: str
    messages: tuple[Positioned, ...]
    tokens_before: int
    focus: str | None = None

    def select(self, only: EventFilter) -> tuple[Positioned, ...]:
        """Those of the messages that the filter takes; all of them stand on the main line."""
        return tuple(each for each in self.messages if only(each.record))


@dataclass(frozen=True, kw_only=True)
class CompactionResult(CompactionEnd):
    """What a compaction came to; sizes in tokens, of the next request by one and the same measure.

    `tier` says what was done: 0 nothing, 1 results shown shortened, 2 a model's summary, 3 one of another
    part (of the older half, or of more than the strategy covers), 4 what needs no model: a digest, lines or a
    note, or the rest shown shortened. The status is `not_due` where nothing was to do and nothing was
    written, `skipped` where it was held back. `seq` is the position of its record where it was done, and what
    `undo` takes back; that record, `CompactionStarted` and `CompactionEnded` have the same `compaction_id`.

    `archived` are the positions of the messages that it hides and no earlier one hid, `archived_events` their
    records. `kept_events` are the records of what was said and is still in sight, `compacted_events` the
    messages that the model sees afterwards. `shortened` are the positions that are shown shortened, `lost`
    the newest hundred identifiers of what is hidden that are no longer in sight and `lost_count` how many
    there are, `unread` the positions for which no summary stands: more than the summariser could read, or
    dropped by the strategy.

    `usage` and `cost` (US dollars) are what its requests took, also where it failed, and `unreported` is what
    those took whose answers reported nothing, by our own count.

    `error` says what went wrong, also where a compaction was done by other means than the strategy asked for.
    `unsaved` says why its transcript could not be saved, `store_fault` is the error of a store that did not
    take it, and `callback_failures` says which callbacks failed in one by hand; those of a run are the run's.

    Example:
        >>> from agentloop.compaction import compact_messages
        >>> from agentloop.strategies import SlidingWindow
        >>> chat = [{"role": "user", "content": f"question {n}"} for n in range(30)]
        >>> [result] = compact_messages(chat, SlidingWindow(4), window="8k").results
        >>> result.status, result.strategy, result.tokens_saved == result.tokens_before - result.tokens_after
        ('done', 'SlidingWindow', True)
    """

    why: str
    archived_events: tuple[Record, ...] = field(default=(), repr=False)
    kept_events: tuple[Record, ...] = field(default=(), repr=False)
    compacted_events: tuple[Message, ...] = field(default=(), repr=False)
    summary: str = field(default="", repr=False)
    unread: tuple[int, ...] = field(default=(), repr=False)
    unreported: Usage = field(default_factory=Usage, repr=False)
    seq: int | None = None
    window: int = 0
    unsaved: str | None = None
    store_fault: StoreError | None = field(default=None, repr=False)
    callback_failures: tuple[CallbackFailed, ...] = ()

    @property
    def tokens_saved(self) -> int:
        """By so much the next request is smaller."""
        return self.tokens_before - self.tokens_after

    @property
    def events_removed(self) -> int:
        """So many messages were archived."""
        return len(self.archived)

    @property
    def level(self) -> Level:
        """How full the window is after it: none under 80 %, warning to 90 %, critical above."""
        return level_of(self.tokens_after, self.window)


def together(results: Sequence[CompactionResult]) -> CompactionResult:
    """What the steps of one compaction, oldest first, came to together.

    It is done where any step was; `error` then says what went wrong in the others.
    """
    first, last = results[0], results[-1]
    done = [each for each in results if each.status == "done"]
    told = done[-1] if done else last
    costs = [each.cost for each in results if each.cost is not None]
    return replace(
        told,
        error="; ".join(each.error for each in results if each.error) or None,
        tier=max(each.tier for each in done or results),
        tokens_before=first.tokens_before,
        messages_before=first.messages_before,
        tokens_after=last.tokens_after,
        messages_after=last.messages_after,
        archived=tuple(sorted({seq for each in results for seq in each.archived})),
        archived_events=tuple(
            sorted((one for each in results for one in each.archived_events), key=lambda record: record.seq)
        ),
        kept_events=last.kept_events,
        compacted_events=last.compacted_events,
        shortened=tuple(sorted({seq for each in results for seq in each.shortened})),
        unread=tuple(sorted({seq for each in results for seq in each.unread})),
        duration_seconds=sum(each.duration_seconds for each in results),
        usage=sum((each.usage for each in results), Usage()),
        unreported=sum((each.unreported for each in results), Usage()),
        cost=sum(costs) if costs else None,
    )
