"""Structural triggers: something happened."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from agentloop.context import AskModel, Budget, Context, Entry, RunTools, Shown, next_step
from agentloop.errors import UsageError
from agentloop.messages import ToolCall
from agentloop.triggers.base import Fired, last_compaction

Happening: TypeAlias = Literal["message", "result", "compaction", "request"]
"""What `On` can wait for."""


@dataclass(frozen=True, slots=True)
class On:
    """Fires when what happened last is of this kind.

    | kind | what stands newest |
    |---|---|
    | `message` | something said since the last compaction, by anybody |
    | `result` | a tool's result |
    | `request` | a real user's message, no summary |
    | `compaction` | a compaction: nothing was said since |

    Example:
        >>> from agentloop.events import MessageAdded, Record
        >>> from agentloop.messages import Message
        >>> asked = MessageAdded(message=Message.user("hi"), tokens=8)
        >>> context = Context.of([Record(seq=1, event=asked)])
        >>> budget = Budget(window=8_000, fixed=100, model="m")
        >>> On("request")(context, budget)
        Fired(why='the user asked at position 1', reason='threshold')
        >>> On("result")(context, budget)

    Raises:
        UsageError: there is no such kind.
    """

    kind: Happening

    def __post_init__(self) -> None:
        if self.kind not in get_args(Happening):
            kinds = ", ".join(map(repr, get_args(Happening)))
            raise UsageError(f"kind must be one of {kinds}, not {self.kind!r}")

    def __call__(self, context: Context, budget: Budget, /) -> Fired | None:
        why = _compacted(context) if self.kind == "compaction" else self._said(context)
        return Fired(why) if why else None

    def _said(self, context: Context) -> str | None:
        newest = context.visible[-1] if context.visible else None
        if newest is None:
            return None
        match self.kind:
            case "message" if newest.seq > last_compaction(context):
                return f"{_named(newest)} is new"
            case "result" if newest.message.role == "tool":
                return f"a tool's result came at position {newest.seq:,}"
            case "request" if newest.is_user:
                return f"the user asked at position {newest.seq:,}"
        return None


@dataclass(frozen=True, slots=True)
class NeedsFollowUp:
    """Fires when calls wait for their results, or input for the model: compaction then serves what goes on.

    It keeps still once the model's answer ended a turn, and before anything was said.

    Example:
        >>> from agentloop.events import MessageAdded, Record
        >>> from agentloop.messages import Message
        >>> asked = MessageAdded(message=Message.user("hi"), tokens=8)
        >>> answered = MessageAdded(message=Message.assistant("hello"), tokens=8)
        >>> context = Context.of([Record(seq=1, event=asked)])
        >>> budget = Budget(window=8_000, fixed=100, model="m")
        >>> NeedsFollowUp()(context, budget)
        Fired(why='the user message at position 1 waits for the model', reason='threshold')
        >>> NeedsFollowUp()(context.add(Record(seq=2, event=answered)), budget)
    """

    def __call__(self, context: Context, budget: Budget, /) -> Fired | None:
        if not context.said:
            return None
        match next_step(Shown(context.said)):
            case RunTools(calls):
                return Fired(_waiting(calls))
            case AskModel():
                return Fired(f"{_named(context.said[-1])} waits for the model")
        return None


def _compacted(context: Context) -> str | None:
    seq = last_compaction(context)
    if not seq or (context.said and context.said[-1].seq > seq):
        return None
    return f"a compaction was done at position {seq:,} and nothing was said since"


def _named(entry: Entry) -> str:
    return f"the {entry.message.role} message at position {entry.seq:,}"


def _waiting(calls: Sequence[ToolCall]) -> str:
    return (
        "1 call waits for its result" if len(calls) == 1 else f"{len(calls):,} calls wait for their results"
    )
