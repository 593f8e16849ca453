"""Old tool results, images and long arguments shown shortened: layer one. No model is asked.

A change of an old message makes a provider's prompt cache worthless from there on, so clearing acts in
batches: nothing happens until a batch saves `min_gain_tokens`. What was shortened once stays so, byte for
byte, since the log records how it is shown.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from agentloop._plumbing.checks import whole, whole_or_none
from agentloop._plumbing.truncate import halves, head, last_lines
from agentloop.context import Budget, Context, Entry, TokenCounter, count_message, kinds, newest_within
from agentloop.events import ClearedItem
from agentloop.messages import Message, ToolCall, labelled_part
from agentloop.prompts import CALL_AGAIN, CLEARED, MEDIA_CLEARED, NAMED_THERE, SPILLED, TRUNCATED
from agentloop.strategies.base import CountingStrategy, Cut


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroCompact:
    """Results older than the last `keep_messages` messages and longer than `max_chars` are shortened.

    So are images and files: they are named in their place. Those of the task and of the newest prompt stay.
    `max_argument_chars` is the same for a text inside a call's arguments. `min_gain_tokens` is what a
    batch must save: 0 is the textbook rule (at each step), None is a quarter of the window's room.

    Example:
        >>> said = [Message.tool("c1", "a line " * 90), Message.assistant("I have read it.")]
        >>> context = context_of(*said, tokens=700)
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
        self.policy = policy
        self._counter = counter
        self._epoch = -1
        self._compactions: Sequence[object] = ()
        self._seen = self._length = 0
        self._uncounted: list[Entry] = []
        self._asked: Entry | None = None
        self._most = 0
        self._found: list[tuple[int, ClearedItem]] = []
        self._gain = 0

    def batch(self, context: Context, *, min_gain_tokens: int) -> tuple[ClearedItem, ...]:
        """What to clear now: all that may be, once it saves at least that much; else nothing."""
        wanted = max(1, min_gain_tokens)
        if self.may_save(context, wanted):
            self._count()
        return tuple(item for _, item in self._found) if self._gain >= wanted else ()

    def may_save(self, context: Context, tokens: int) -> bool:
        """Whether so much might be saved now, before any stub is made."""
        if context.rewritten_at != self._epoch:
            self._follow(context)
        self._look(context)
        return self._gain + self._most >= tokens

    def _follow(self, context: Context) -> None:
        """Forget what is shown shortened by now; begin anew where entries have changed places."""
        if context.compactions != self._compactions:
            self._seen, self._length, self._uncounted, self._asked, self._found = 0, 0, [], None, []
        new = takewhile(lambda pair: pair[0] > self._epoch, reversed(context.clearings))
        cleared = {item.seq for _, event in new for item in event.items}
        self._epoch, self._compactions = context.rewritten_at, context.compactions
        self._uncounted = [entry for entry in self._uncounted if entry.seq not in cleared]
        self._most = sum(entry.tokens for entry in self._uncounted)
        self._found = [(gain, item) for gain, item in self._found if item.seq not in cleared]
        self._gain = sum(gain for gain, _ in self._found)

    def _look(self, context: Context) -> None:
        horizon = min(len(context.visible) - self.policy.keep_messages, first_unread(context))
        new, self._length = context.visible[self._length :], len(context.visible)
        if self._asked and any(entry.is_user for entry in new):
            self._take(self._asked)
            self._asked = None
        while self._seen < horizon:
            entry = context.visible[self._seen]
            if not entry.cleared and _may_shorten(entry, self.policy):
                newest, task = (context.newest_user, context.task) if entry.is_user else (None, None)
                if newest and entry.seq == newest.seq:
                    self._asked = entry  # as long as it is what the model works on
                elif not (task and entry.seq == task.seq):
                    self._take(entry)
            self._seen += 1

    def _take(self, entry: Entry) -> None:
        self._uncounted.append(entry)
        self._most += entry.tokens

    def _count(self) -> None:
        for entry in self._uncounted:
            if item := cleared_item(entry, self.policy, self._counter):
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
    if message.role == "user":
        return message.has_media
    return any(len(call.arguments) > policy.max_argument_chars for call in message.tool_calls)


def _shortened(entry: Entry, policy: MicroCompact) -> Message:
    message = entry.original
    if message.has_media:
        named = (labelled_part(part, MEDIA_CLEARED, seq=entry.seq) or part for part in message.parts)
        message = replace(message, content=tuple(named))
    if message.role == "user":
        return message
    if message.role == "tool":
        if len(message.text) <= policy.max_chars:
            return _with_text(message, message.text)
        return _with_text(message, stub(message.text, policy.max_chars, way_back(entry)))
    calls = tuple(_short_call(call, policy.max_argument_chars) for call in message.tool_calls)
    return message.with_calls(calls)


def _with_text(message: Message, text: str) -> Message:
    return replace(message, content=text, extra={}, omits=())


def way_back(entry: Entry) -> str:
    """How the model gets the whole of a result that is shown shortened."""
    return SPILLED.format(path=entry.spilled) if entry.spilled else CALL_AGAIN


NAMED_SHARE = 0.4
"""What is exact in the rest of a text takes at most this share of what is shown of it."""

SEARCHED_CHARS = 50_000
"""So much of the rest is searched for it, head and tail together."""


def stub(text: str, max_chars: int, way_back: str = "") -> str:
    """The beginning, what the rest names exactly, how much went, and how to get it back.

    Beginning and names have at most `max_chars` characters, with the words before the names. The same text is
    always shown by the same.
    """
    most = max(0, int(max_chars * NAMED_SHARE) - len(NAMED_THERE))
    at = max(text.rfind(blank, 0, max_chars - most) for blank in " \n") + 1
    names = _exact_in(text[at:], most, known=text[:at])
    named, way = NAMED_THERE.format(names=names) if names else "", f"; {way_back}" if way_back else ""
    shown = head(text, max_chars - len(named))
    return shown + TRUNCATED.format(count=len(text) - len(shown), total=len(text), named=named, way=way)


def _exact_in(rest: str, max_chars: int, *, known: str) -> str:
    """What is exact in a text, as far as that many characters hold it: the ends first, mere numbers last.

    What stands in what is known is left out.
    """
    found = kinds(halves(rest, SEARCHED_CHARS))
    names = [name for name in found if name not in known]
    order = sorted(range(len(names)), key=lambda at: (found[names[at]] == "number", min(at, len(names) - at)))
    kept: list[int] = []
    for at in order:
        if len(names[at]) + len(", ") <= max_chars:
            kept.append(at)
            max_chars -= len(names[at]) + len(", ")
    return ", ".join(names[at] for at in sorted(kept))


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


@dataclass(frozen=True, slots=True)
class ClearResults(CountingStrategy):
    """Shows old results as `[Old tool result content cleared]`, where that gains at least `least_tokens`.

    Walks back over the results, as they are shown: the newest stay while they come to at most `keep_tokens`
    together, older ones are cleared. Results of a tool with `keep`, those that the model has not read yet,
    and those shown shortened already stay as they are. The log holds the whole as ever, and its record says
    when they were cleared. Done again at once, it finds nothing more.

    The figures are OpenCode's (`PRUNE_PROTECT` 40,000 and `PRUNE_MINIMUM` 20,000 in its
    `session/compaction.ts`), which spares the newest two turns beside; here a run of one long turn is cleared
    too.

    Raises:
        UsageError: a number is no whole number of at least 0.

    Example:
        >>> call, answer = ToolCall(id="a", name="read"), Message.assistant("done")
        >>> said = [Message.assistant(None, [call]), Message.tool("a", "word " * 900), answer]
        >>> sizes = [10, 905, 7]
        >>> events = [MessageRecord(message=m, tokens=n) for m, n in zip(said, sizes)]
        >>> context = Context.of(Record(seq=seq, event=event) for seq, event in enumerate(events, 1))
        >>> budget = Budget(window=4_000, fixed=0, model="m")
        >>> cut = ClearResults(keep_tokens=500, least_tokens=800)(context, budget)
        >>> [(item.seq, item.message.text) for item in cut.cleared]
        [(2, '[Old tool result content cleared]')]
    """

    keep_tokens: int = 40_000
    least_tokens: int = 20_000

    def _check(self) -> None:
        whole("keep_tokens", self.keep_tokens, 0)
        whole("least_tokens", self.least_tokens, 0)

    def _cut(self, context: Context, budget: Budget) -> Cut | None:
        results = [entry for entry in context.visible if entry.message.role == "tool"]
        start = newest_within([entry.tokens for entry in results], self.keep_tokens)
        beyond = {entry.seq for entry in results[:start]}
        old = {entry.seq: entry for entry in read_results(context) if entry.seq in beyond}
        items = _items(shown_with(entry, CLEARED, budget.counter) for entry in old.values())
        gain = sum(old[item.seq].tokens - item.tokens for item in items)
        return _cut(items) if gain >= self.least_tokens else None


@dataclass(frozen=True, slots=True, kw_only=True)
class StubResults(CountingStrategy):
    """Shows results older than the newest `keep_messages` and longer than `max_chars` as their beginning."""

    keep_messages: int = 4
    max_chars: int = 200

    def _cut(self, context: Context, budget: Budget) -> Cut | None:
        policy = MicroCompact(max_chars=self.max_chars)
        newest = {entry.seq for entry in newest_said(context, self.keep_messages)}
        old = (entry for entry in read_results(context) if entry.seq not in newest)
        return _cut(cleared_item(entry, policy, budget.counter) for entry in old)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultTails(CountingStrategy):
    """Shows each result that was read as its last `max_lines` lines."""

    max_lines: int = 50

    def _cut(self, context: Context, budget: Budget) -> Cut | None:
        return _cut(by_last_lines(read_results(context), self.max_lines, budget.counter))


def newest_said(context: Context, count: int) -> list[Entry]:
    """The newest messages in sight that somebody said, oldest first."""
    said = [entry for entry in context.visible if entry.kind == "said"]
    return said[max(0, len(said) - count) :]


def read_results(context: Context) -> list[Entry]:
    """The results in sight that may be shortened: read by the model, shown whole, and not to be kept."""
    return [
        entry
        for entry in context.visible[: first_unread(context)]
        if entry.kind == "said" and entry.message.role == "tool" and not entry.keep and not entry.cleared
    ]


def by_last_lines(entries: Iterable[Entry], max_lines: int, counter: TokenCounter) -> tuple[ClearedItem, ...]:
    """How these results are shown by their last lines, those left out that would not be shorter."""
    return _items(
        shown_with(entry, last_lines(entry.original.text, max_lines, rest=way_back(entry)), counter)
        for entry in entries
    )


def _items(found: Iterable[ClearedItem | None]) -> tuple[ClearedItem, ...]:
    return tuple(item for item in found if item)


def _cut(found: Iterable[ClearedItem | None]) -> Cut | None:
    items = _items(found)
    return Cut(cleared=items) if items else None
