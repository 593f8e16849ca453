"""Which records of a log are meant: one filter for callbacks, exports and whoever reads a log."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, get_args

from agentloop._plumbing.checks import shown, text_or_none, whole_or_none
from agentloop.errors import UsageError
from agentloop.events import AnyEvent, Event, MessageAdded, Record, RunEnded, RunStarted, kind_name

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
        >>> said = MessageAdded(message=Message.user("hi"), tokens=1, branch="scout")
        >>> records = [Record(seq=1, event=RunStarted(run_id="r")), Record(seq=2, event=said)]
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
            branch=event.branch if isinstance(event, MessageAdded) else None,
            run_id=event.run_id if isinstance(event, MessageAdded | RunStarted | RunEnded) else None,
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
