"""Layer one: old tool results, and old long arguments, are shown shortened. No model is asked.

A change of an old message makes a provider's prompt cache worthless from there on, so clearing acts in
batches: nothing happens until a batch saves `min_gain_tokens`. What was shortened once stays so, byte for
byte, since the log records how it is shown.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from agentloop._plumbing.checks import whole, whole_or_none
from agentloop._plumbing.truncate import head
from agentloop.context import Context, Entry, TokenCounter, count_message
from agentloop.events import ClearedItem
from agentloop.messages import Message, ToolCall
from agentloop.prompts import CALL_AGAIN, SPILLED, TRUNCATED


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroCompact:
    """Results older than the last `keep_messages` messages and longer than `max_chars` are shortened.

    `max_argument_chars` is the same for a text inside a call's arguments. `min_gain_tokens` is what a
    batch must save: 0 is the textbook rule (at each step), None is a quarter of the window's room.

    Example:
        >>> from agentloop.events import MessageAdded, Record
        >>> said = [Message.tool("c1", "a line " * 90), Message.assistant("I have read it.")]
        >>> events = [MessageAdded(message=message, tokens=700) for message in said]
        >>> context = Context.of(Record(seq=seq, event=event) for seq, event in enumerate(events, 1))
        >>> old = MicroCompact(keep_messages=1, max_chars=20)
        >>> [item] = Clearing(old, counter=len).batch(context, min_gain_tokens=0)
        >>> item.message.text[:35]
        'a line a line a line... [truncated:'

    Raises:
        UsageError: a number is no whole one of at least 0.
    """

    keep_messages: int = 6
    max_chars: int = 200
    max_argument_chars: int = 1_000
    min_gain_tokens: int | None = None

    def __post_init__(self) -> None:
        whole("keep_messages", self.keep_messages, 0)
        whole("max_chars", self.max_chars, 0)
        whole("max_argument_chars", self.max_argument_chars, 0)
        whole_or_none("min_gain_tokens", self.min_gain_tokens, 0)


class Clearing:
    """What could be cleared so far in one session: looks at each message once, and counts each stub once.

    Stubs are counted only when they could save enough. It holds nothing that the context does not say: a
    context that was compacted or restored starts it anew.
    """

    def __init__(self, policy: MicroCompact, counter: TokenCounter) -> None:
        self._policy = policy
        self._counter = counter
        self._epoch = -1
        self._compactions: Sequence[object] = ()
        self._seen = 0
        self._uncounted: list[Entry] = []
        self._most = 0
        self._found: list[tuple[int, ClearedItem]] = []
        self._gain = 0

    def batch(self, context: Context, *, min_gain_tokens: int) -> tuple[ClearedItem, ...]:
        """What to clear now: all that may be, once it saves at least that much; else nothing."""
        wanted = max(1, min_gain_tokens)
        if context.epoch != self._epoch:
            self._follow(context)
        self._look(context)
        if self._gain + self._most >= wanted:
            self._count()
        return tuple(item for _, item in self._found) if self._gain >= wanted else ()

    def _follow(self, context: Context) -> None:
        """Forget what is shown shortened by now; begin anew where entries have changed places."""
        if context.compactions != self._compactions:
            self._seen, self._uncounted, self._found = 0, [], []
        new = takewhile(lambda pair: pair[0] > self._epoch, reversed(context.clearings))
        cleared = {item.seq for _, event in new for item in event.items}
        self._epoch, self._compactions = context.epoch, context.compactions
        self._uncounted = [entry for entry in self._uncounted if entry.seq not in cleared]
        self._most = sum(entry.tokens for entry in self._uncounted)
        self._found = [(gain, item) for gain, item in self._found if item.seq not in cleared]
        self._gain = sum(gain for gain, _ in self._found)

    def _look(self, context: Context) -> None:
        horizon = min(len(context.visible) - self._policy.keep_messages, first_unread(context))
        while self._seen < horizon:
            entry = context.visible[self._seen]
            if not entry.cleared and _may_shorten(entry, self._policy):
                self._uncounted.append(entry)
                self._most += entry.tokens
            self._seen += 1

    def _count(self) -> None:
        for entry in self._uncounted:
            if item := cleared_item(entry, self._policy, self._counter):
                self._found.append((entry.tokens - item.tokens, item))
                self._gain += entry.tokens - item.tokens
        self._uncounted, self._most = [], 0


def cleared_item(entry: Entry, policy: MicroCompact, counter: TokenCounter) -> ClearedItem | None:
    """How the entry is shown when cleared; None where clearing saves nothing or must not touch it."""
    if not _may_shorten(entry, policy):
        return None
    return shown_as(entry, _shortened(entry, policy), counter)


def shown_as(entry: Entry, message: Message, counter: TokenCounter) -> ClearedItem | None:
    """The entry shown as this message from now on; None where that is not shorter than it is shown now."""
    tokens = count_message(message, counter)
    return ClearedItem(seq=entry.seq, message=message, tokens=tokens) if tokens < entry.tokens else None


def shown_with(entry: Entry, text: str, counter: TokenCounter) -> ClearedItem | None:
    """The result shown with this text from now on; None where that is not shorter than it is shown now."""
    return shown_as(entry, _with_text(entry.original, text), counter)


def _may_shorten(entry: Entry, policy: MicroCompact) -> bool:
    """Whether something in it is long, and it is not to be kept."""
    if entry.keep or entry.kind != "said":
        return False
    message = entry.original
    if message.role == "tool":
        return len(message.text) > policy.max_chars or isinstance(message.content, tuple)
    return any(len(call.arguments) > policy.max_argument_chars for call in message.tool_calls)


def _shortened(entry: Entry, policy: MicroCompact) -> Message:
    message = entry.original
    if message.role == "tool":
        return _with_text(message, stub(message.text, policy.max_chars, way_back(entry)))
    calls = tuple(_short_call(call, policy.max_argument_chars) for call in message.tool_calls)
    return message.with_calls(calls)


def _with_text(message: Message, text: str) -> Message:
    return replace(message, content=text, extra={}, omits=())


def way_back(entry: Entry) -> str:
    """How the model gets the whole of a result that is shown shortened."""
    return SPILLED.format(path=entry.spilled) if entry.spilled else CALL_AGAIN


def stub(text: str, max_chars: int, way_back: str = "") -> str:
    """The first `max_chars` characters, how much went, and how to get it back."""
    shown, way = head(text, max_chars), f"; {way_back}" if way_back else ""
    return shown + TRUNCATED.format(count=len(text) - len(shown), total=len(text), way=way)


MOST_ARGUMENTS = 100
"""A call with more of them, or with a name too long itself, is shown as the beginning of its text."""


def _short_call(call: ToolCall, max_chars: int) -> ToolCall:
    if len(call.arguments) <= max_chars:
        return call
    arguments = call.decoded()
    if arguments is None:
        short: dict[str, Any] = {"unreadable_arguments": _short_value(call.arguments, max_chars)}
    else:
        short = {key: _short_value(value, max_chars) for key, value in arguments.items()}
    if len(short) > MOST_ARGUMENTS or any(len(key) > max_chars for key in short):
        short = {"many_arguments": _short_value(call.arguments, max_chars)}
    return replace(call, arguments=json.dumps(short, ensure_ascii=False), extra={})


def _short_value(value: Any, max_chars: int) -> Any:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return value if len(text) <= max_chars else stub(text, max_chars)


def first_unread(context: Context) -> int:
    """The index in sight of what stands behind the newest thing the model said: it has not read that yet."""
    at = len(context.visible)
    while at and context.visible[at - 1].message.role != "assistant":
        at -= 1
    return at
