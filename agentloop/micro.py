"""Layer one: old tool results, and old long arguments, are shown shortened. No model is asked.

A change of an old message makes a provider's prompt cache worthless from there on, so clearing acts in
batches: nothing happens until a batch saves `min_gain_tokens`. What was shortened once stays so, byte for
byte, since the log records how it is shown.
"""

import json
from dataclasses import dataclass, replace
from typing import Any

from agentloop.context import Context, Entry
from agentloop.errors import UsageError
from agentloop.events import ClearedItem
from agentloop.messages import Message, ToolCall
from agentloop.tokens import TokenCounter, count_message
from agentloop.wire import decoded_arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroCompact:
    """Results older than the last `keep_messages` messages and longer than `max_chars` are shortened.

    `max_argument_chars` is the same for a text inside a call's arguments. `min_gain_tokens` is what a
    batch must save: 0 is the textbook rule (at each step), None is a quarter of the window's room.

    Raises:
        UsageError: a number is negative.
    """

    keep_messages: int = 6
    max_chars: int = 200
    max_argument_chars: int = 1_000
    min_gain_tokens: int | None = None

    def __post_init__(self) -> None:
        for name in ("keep_messages", "max_chars", "max_argument_chars", "min_gain_tokens"):
            if (getattr(self, name) or 0) < 0:
                raise UsageError(f"{name} must be at least 0, not {getattr(self, name)}")


class Clearing:
    """What could be cleared so far in one session: looks at each message once.

    It holds nothing that the context does not say: a context that was rewritten starts it anew.
    """

    def __init__(self, policy: MicroCompact, counter: TokenCounter) -> None:
        self._policy = policy
        self._counter = counter
        self._epoch = -1
        self._seen = 0
        self._items: list[ClearedItem] = []
        self._gain = 0

    def batch(self, context: Context, *, min_gain_tokens: int) -> tuple[ClearedItem, ...]:
        """What to clear now: all that may be, once it saves at least that much; else nothing."""
        if context.epoch != self._epoch:
            self._epoch, self._seen, self._items, self._gain = context.epoch, 0, [], 0
        horizon = min(len(context.visible) - self._policy.keep_messages, _unread(context))
        while self._seen < horizon:
            self._look(context.visible[self._seen])
            self._seen += 1
        return tuple(self._items) if self._items and self._gain >= min_gain_tokens else ()

    def _look(self, entry: Entry) -> None:
        item = cleared(entry, self._policy, self._counter)
        if item is not None:
            self._items.append(item)
            self._gain += entry.tokens - item.tokens


def cleared(entry: Entry, policy: MicroCompact, counter: TokenCounter) -> ClearedItem | None:
    """How the entry is shown when cleared; None where clearing saves nothing or must not touch it."""
    if entry.cleared or entry.keep or entry.kind != "said":
        return None
    shown = _shortened(entry, policy)
    if shown is None:
        return None
    tokens = count_message(shown, counter)
    return ClearedItem(seq=entry.seq, message=shown, tokens=tokens) if tokens < entry.tokens else None


def _shortened(entry: Entry, policy: MicroCompact) -> Message | None:
    message = entry.message
    if message.role == "tool":
        text = message.text
        if len(text) <= policy.max_chars and isinstance(message.content, str | None):
            return None
        way_back = (
            f"the whole is in {entry.spilled}" if entry.spilled else "call the tool again for the whole"
        )
        return replace(message, content=stub(text, policy.max_chars, way_back), extra={}, omits=())
    if any(len(call.arguments) > policy.max_argument_chars for call in message.tool_calls):
        calls = tuple(_short_call(call, policy.max_argument_chars) for call in message.tool_calls)
        return replace(message, tool_calls=calls)
    return None


def stub(text: str, max_chars: int, way_back: str) -> str:
    """The first `max_chars` characters, how much went, and how to get it back."""
    gone = max(0, len(text) - max_chars)
    return f"{text[:max_chars]}... [truncated: {gone:,} of {len(text):,} characters; {way_back}]"


def _short_call(call: ToolCall, max_chars: int) -> ToolCall:
    if len(call.arguments) <= max_chars:
        return call
    arguments = decoded_arguments(call.arguments)
    if arguments is None:
        short: dict[str, Any] = {"unreadable_arguments": _short_value(call.arguments, max_chars)}
    else:
        short = {key: _short_value(value, max_chars) for key, value in arguments.items()}
    return replace(call, arguments=json.dumps(short, ensure_ascii=False), extra={})


def _short_value(value: Any, max_chars: int) -> Any:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if len(text) <= max_chars:
        return value
    return f"{text[:max_chars]}... [truncated: {len(text) - max_chars:,} of {len(text):,} characters]"


def _unread(context: Context) -> int:
    """The index of the results at the end, which the model has not read yet."""
    at = len(context.visible)
    while at and context.visible[at - 1].message.role == "tool":
        at -= 1
    return at
