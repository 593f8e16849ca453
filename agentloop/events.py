"""The records of a session's log, filters that take some of them, and sets of positions in it.

A log only grows. A record's position (`seq`, from 1) never changes, so overlays, undo and memories
point at positions. `id` tells a retried append from another writer's equal record; it and `time`
(seconds since the epoch) say nothing about what happened, so they do not count in comparisons.
"""

import re
import time
import uuid
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal, TypeAlias, get_args

from agentloop._plumbing.checks import shown, text_or_none, whole, whole_or_none
from agentloop.errors import UsageError
from agentloop.messages import Message, Usage

__all__ = [
    "AnyEvent",
    "ApprovalAnswered",
    "ApprovalAsked",
    "Cleared",
    "ClearedItem",
    "Compacted",
    "Described",
    "Event",
    "Made",
    "MessageRecord",
    "ModelCalled",
    "NotCompacted",
    "Noted",
    "Ranges",
    "Record",
    "Restored",
    "RunEndRecord",
    "RunSetup",
    "RunStartRecord",
    "TurnMap",
    "Unknown",
    "kind_name",
]

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Sets of positions as inclusive pairs (first, last), ascending, apart from each other."""

Made: TypeAlias = Literal["summary", "digest", "note"]
"""How what stands instead was made: written by a model, computed from the log, or one line that says so."""


ApprovalVerdict: TypeAlias = Literal["approved", "rejected", "responded"]
"""How a call that needs a yes was answered; a response stands in the place of its result."""


def _later(default: Any) -> Any:
    """A field that came later: it is written where it says something, so older records keep their bytes."""
    return field(default=default, metadata={"later": True})


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What all records share."""

    id: str = field(default_factory=lambda: uuid.uuid4().hex, compare=False, repr=False)
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
    that of `answer`, which an assistant says behind it where that is not empty (`answer_tokens` long). Behind
    both stands `pinned`, `pinned_tokens` long: what tool sets keep in sight until the next one. Where nothing
    is covered there is no replacement; where something is and there is none, it is a rewind.
    `made` tells a model's text from a digest of the log and from a line that only says that something is
    gone. `before` and `after` are the request's size around it, `lost` the newest identifiers no longer in
    sight and `lost_count` how many there are, None in older records. Records of one compaction in several
    steps share `group`. `fault` says why the text that was wanted could not stand, `eager` that its trigger
    fired for what happened, not for a size.

    `tier` has the numbers of `CompactionResult`. A record without a `lost_count` is older and has others: 0
    is results shown shortened, 1 a summary, 2 one with a smaller tail, 3 and 4 what needs no model. It stays
    as it was written; no decision rests on it.
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
    tier: int = 2
    before: int = 0
    after: int = 0
    transcript: str | None = None
    lost: tuple[str, ...] = ()
    lost_count: int | None = _later(None)
    fault: str | None = _later(None)
    eager: bool = _later(False)
    pinned: str = _later("")
    pinned_tokens: int | None = _later(None)

    @property
    def is_rewind(self) -> bool:
        """Whether a user took back what it covers: nothing stands for it."""
        return bool(self.covers) and not self.replacement


@dataclass(frozen=True, slots=True, kw_only=True)
class NotCompacted(Event):
    """A compaction was tried or due, and came to nothing; what the model sees is as it was.

    `status` is `failed`, `vetoed`, `conflict` or `ineffective` (too little to gain), or `skipped` where it
    was held back: too soon after the last one. `why` is what it was for, `error` why nothing was done, and
    `before` the request's size. `transcript` is the file that the history was saved in, as for what is done.
    Those of one attempt in several steps share `group` with its `Compacted`. `fault` says why a model wrote
    no summary, where that was the reason.
    """

    kind: ClassVar[str] = "not_compacted"

    status: str
    reason: str = "manual"
    why: str = ""
    strategy: str = ""
    error: str = ""
    before: int = 0
    group: str = ""
    transcript: str | None = _later(None)
    fault: str | None = _later(None)


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
    None where another trigger decides. `headers` are the names of those that went with each request; no log
    has their values.
    """

    api: str = ""
    server: str | None = None
    cut: bool = False
    window: int | None = None
    compact_at: float | None = None
    headers: tuple[str, ...] = _later(())


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStartRecord(Event):
    """A run began; `prompt` is what is to be said in it once calls in flight have their results, if any.

    `setup` is None in logs of older versions.
    """

    kind: ClassVar[str] = "run_started"

    run_id: str
    model: str = ""
    prompt: Message | None = None
    setup: RunSetup | None = _later(None)  # noqa: RUF009 — it makes a field, as field() does


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEndRecord(Event):
    """A run ended with one of the words of the exit table.

    `reason` says which limit ended it, or by what its answer was cut short: `length` or `content_filter`.
    """

    kind: ClassVar[str] = "run_ended"

    run_id: str
    status: str
    usage: Usage = field(default_factory=Usage)
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalAsked(Event):
    """A call needs a person's yes: it is not run before it has one, with the `arguments` that it had.

    `server` is the MCP server that the tool is of, empty for a tool of the agent's own.
    """

    kind: ClassVar[str] = "approval_asked"

    run_id: str
    call_id: str
    tool: str
    arguments: str
    server: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalAnswered(Event):
    """A call that was asked about has its answer, given in that run, by whoever `by` names.

    `arguments` are those that it may be run with, which may be others than asked for; `text` is why it was
    rejected, or what stands for its result. `tool` and `fingerprint` say what was asked: the answer counts
    for no other call.
    """

    kind: ClassVar[str] = "approval_answered"

    run_id: str
    call_id: str
    verdict: ApprovalVerdict
    arguments: str = ""
    text: str = ""
    by: str = ""
    tool: str = ""
    fingerprint: str = ""


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
class MediaRecord(Event):
    """An image or a file that a session keeps beside its log, in a log of its own; `url` is a `data:` URL."""

    kind: ClassVar[str] = "media_kept"

    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown(Event):
    """A record of a kind that a newer version wrote: kept as it is and passed over. `body` is its JSON."""

    kind: str
    body: str


AnyEvent: TypeAlias = (
    MessageRecord
    | Cleared
    | Compacted
    | NotCompacted
    | Restored
    | ModelCalled
    | RunStartRecord
    | RunEndRecord
    | ApprovalAsked
    | ApprovalAnswered
    | Described
    | Noted
    | MediaRecord
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

_OfRun: TypeAlias = MessageRecord | RunStartRecord | RunEndRecord | ApprovalAsked | ApprovalAnswered

KINDS: Final = tuple(_NAMES.values())
"""The names of all kinds of records; `unknown` are those that a newer version wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Takes the records that are all of what is asked for; None asks for nothing.

    `branch` is the name of the sub-agent that said it, with those below it (`scout` finds `scout.a`), or
    `MAIN` for the main line alone: every record but the messages of branches. `kinds` are names such as
    "message_added", or classes of `agentloop.events`. `run_id` is the run that the record names: messages,
    approvals and the edges of runs name theirs, other records none. `first` and `last` are positions in the
    log, both taken in. `text` is a phrase, whatever its case, and `regex` a Python regular expression; both
    look at what is said, called and put in the place of messages. `synthetic` asks for summaries and notes,
    which nobody said, or, where it is False, for messages, which somebody did.

    These hold for a record by itself. The others hold for a whole log, in `select` alone: `archived` asks for
    what a compaction hides, or, where it is False, for what the model sees; of what is then left `newest`
    takes the last ones, and `skip` and `most` a page.

    Example:
        >>> from agentloop.messages import Message
        >>> said = MessageRecord(message=Message.user("hi"), tokens=1, branch="scout")
        >>> records = [Record(seq=1, event=RunStartRecord(run_id="r")), Record(seq=2, event=said)]
        >>> [record.seq for record in select(records, EventFilter(branch="scout"))]
        [2]
        >>> [record.seq for record in select(records, EventFilter(branch=MAIN, last=40))]
        [1]
        >>> [record.seq for record in select(records, EventFilter(text="HI"))]
        [2]

    Raises:
        UsageError: a kind that is none, a position that is no whole number of at least 1, `first` behind
            `last`, a branch, a run or a keyword that is no text, no regular expression, or a count below 0.
    """

    branch: str | None = None
    kinds: Collection[str | type[Event]] | None = None
    run_id: str | None = None
    first: int | None = None
    last: int | None = None
    text: str | None = None
    regex: str | None = None
    synthetic: bool | None = None
    archived: bool | None = None
    newest: int | None = None
    skip: int = 0
    most: int | None = None

    def __post_init__(self) -> None:
        for name in ("branch", "run_id", "text", "regex"):
            text_or_none(name, getattr(self, name))
        whole_or_none("first", self.first, 1)
        whole_or_none("last", self.last, 1 if self.first is None else self.first)
        whole_or_none("newest", self.newest, 0)
        whole("skip", self.skip, 0)
        whole_or_none("most", self.most, 0)
        if self.kinds is not None:
            object.__setattr__(self, "kinds", _named(self.kinds))
        if self.regex is not None:
            _compiled(self.regex)

    def __call__(self, record: Record, /) -> bool:
        """Whether it takes this record by itself."""
        event, kind = record.event, _NAMES.get(type(record.event), "")
        branch = event.branch if isinstance(event, MessageRecord) else None
        run_id = event.run_id if isinstance(event, _OfRun) else None
        text = said_in(event) if self.text is not None or self.regex is not None else ""
        return (
            (self.first is None or self.first <= record.seq)
            and (self.last is None or record.seq <= self.last)
            and (self.branch is None or is_of_branch(branch, self.branch))
            and (self.run_id is None or run_id == self.run_id)
            and (self.kinds is None or kind in self.kinds)
            and (self.synthetic is None or kind == _KIND_OF_SYNTHETIC[self.synthetic])
            and (self.text is None or self.text.casefold() in text.casefold())
            and (self.regex is None or _compiled(self.regex).search(text) is not None)
        )


def is_of_branch(branch: str | None, name: str) -> bool:
    """Whether a branch is the one of that name or below it; None is the main line, whose name is `MAIN`."""
    if name == MAIN or branch is None:
        return name == MAIN and branch is None
    return branch == name or branch.startswith(f"{name}.")


_KIND_OF_SYNTHETIC: Final = {True: Compacted.kind, False: MessageRecord.kind}


def said_in(event: Event) -> str:
    """What a record says, for who looks for words in it."""
    match event:
        case MessageRecord():
            return said_by(event.message)
        case Compacted():
            return f"{event.replacement}\n{event.answer}"
        case Described():
            return event.title or ""
    return ""


def said_by(message: Message) -> str:
    """The text of a message, and what it calls."""
    return "\n".join((message.text, *(f"{call.name} {call.arguments}" for call in message.tool_calls)))


def select(records: Iterable[Record], only: EventFilter | None) -> list[Record]:
    """The records that the filter takes, in their order; all of them without one."""
    every = list(records)
    if only is None:
        return every
    taken = [record for record in every if only(record)]
    if only.archived is not None:
        wanted = archived_in(every) if only.archived else visible_in(every)
        taken = [record for record in taken if holds(wanted, record.seq)]
    if only.newest is not None:
        taken = taken[max(0, len(taken) - only.newest) :]
    return taken[only.skip : None if only.most is None else only.skip + only.most]


def archived_in(records: Iterable[Record]) -> Ranges:
    """The positions of what was said on the main line, or stood for it, and is hidden by a compaction."""
    return _sorted_by_sight(records)[0]


def visible_in(records: Iterable[Record]) -> Ranges:
    """The positions of what the model sees: messages of the main line, and what stands for others."""
    return _sorted_by_sight(records)[1]


def _sorted_by_sight(records: Iterable[Record]) -> tuple[Ranges, Ranges]:
    shown: list[int] = []
    standing: dict[int, Compacted] = {}
    for record in records:
        match record.event:
            case MessageRecord(branch=None):
                shown.append(record.seq)
            case Compacted() as event:
                standing[record.seq] = event
            case Restored(seq=seq):
                standing.pop(seq, None)
    shown += [seq for seq, event in standing.items() if event.covers and not event.is_rewind]
    gone = united(*(event.covers for event in standing.values()))
    hidden = [seq for seq in shown if holds(gone, seq)]
    seen = [seq for seq in shown if not holds(gone, seq)]
    return _pairs(hidden), _pairs(seen)


def _pairs(positions: Iterable[int]) -> Ranges:
    return united(*(((position, position),) for position in positions))


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnMap:
    """Where the turns of a log are: from each real user's message to the next one, or to the log's end.

    Turns are counted from 1, as positions are; what stands before the first is of none. `starts` are the
    positions at which they begin, `runs` the runs that said so, empty where none did; `length` is the log's.

    Example:
        >>> from agentloop.messages import Message
        >>> said = [Message.user("One?"), Message.assistant("1"), Message.user("Two?")]
        >>> events = [MessageRecord(message=message, tokens=1, run_id="r") for message in said]
        >>> turns = TurnMap.of([Record(seq=seq, event=event) for seq, event in enumerate(events, 1)])
        >>> len(turns), turns.positions(1), turns.turn_at(3), turns.run(2)
        (2, (1, 2), 2, 'r')
    """

    starts: tuple[int, ...] = ()
    runs: tuple[str, ...] = ()
    length: int = 0

    @classmethod
    def of(cls, records: Iterable[Record]) -> "TurnMap":
        """The turns of a whole log."""
        starts: list[int] = []
        runs: list[str] = []
        length = 0
        for record in records:
            length, event = record.seq, record.event
            if isinstance(event, MessageRecord) and event.branch is None and event.message.role == "user":
                starts.append(record.seq)
                runs.append(event.run_id)
        return cls(starts=tuple(starts), runs=tuple(runs), length=length)

    def __len__(self) -> int:
        return len(self.starts)

    def positions(self, turn: int) -> tuple[int, int]:
        """The first and the last position of a turn.

        Raises:
            UsageError: there is no such turn.
        """
        at = self._checked(turn)
        behind = self.starts[at + 1] - 1 if at + 1 < len(self.starts) else self.length
        return self.starts[at], behind

    def run(self, turn: int) -> str:
        """The run in which the turn began; empty for one that was imported or given.

        Raises:
            UsageError: there is no such turn.
        """
        return self.runs[self._checked(turn)]

    def turn_at(self, position: int) -> int | None:
        """The turn in which that position lies; None for one before the first or behind the log's end."""
        turn = bisect_right(self.starts, position)
        return turn if turn and position <= self.length else None

    def slice(self, records: Iterable[Record], first: int, last: int | None = None) -> list[Record]:
        """The records of the turns from `first` to `last`, both taken in, of that one turn without `last`.

        Raises:
            UsageError: there is no such turn, or `first` is behind `last`.
        """
        begin, end = self.positions(first)[0], self.positions(first if last is None else last)[1]
        if end < begin:
            raise UsageError(f"first must not be behind last: {first} is behind {last}")
        return [record for record in records if begin <= record.seq <= end]

    def _checked(self, turn: int) -> int:
        if isinstance(turn, bool) or not isinstance(turn, int) or not 1 <= turn <= len(self.starts):
            raise UsageError(f"turn must be a whole number from 1 to {len(self.starts)}, not {shown(turn)}")
        return turn - 1


def _compiled(regex: str) -> re.Pattern[str]:
    try:
        return re.compile(regex)
    except (re.error, RecursionError, OverflowError) as error:
        raise UsageError(f"regex must be a regular expression, not {shown(regex)}: {error}") from error


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
