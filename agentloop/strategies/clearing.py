"""Cuts that cover nothing: old results are shown shortened, and no model is asked."""

from collections.abc import Iterable
from dataclasses import dataclass

from agentloop._plumbing.checks import whole
from agentloop._plumbing.truncate import last_lines
from agentloop.context import Budget, Context, Entry, TokenCounter, newest_within
from agentloop.events import ClearedItem
from agentloop.micro import MicroCompact, cleared_item, first_unread, shown_with, way_back
from agentloop.prompts import CLEARED
from agentloop.strategies.base import Cut


@dataclass(frozen=True, slots=True)
class ClearResults:
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
        >>> from agentloop.events import MessageAdded, Record
        >>> from agentloop.messages import Message, ToolCall
        >>> call, answer = ToolCall(id="a", name="read"), Message.assistant("done")
        >>> said = [Message.assistant(None, [call]), Message.tool("a", "word " * 900), answer]
        >>> sizes = [10, 905, 7]
        >>> events = [MessageAdded(message=m, tokens=n) for m, n in zip(said, sizes)]
        >>> context = Context.of(Record(seq=seq, event=event) for seq, event in enumerate(events, 1))
        >>> budget = Budget(window=4_000, fixed=0, model="m")
        >>> cut = ClearResults(keep_tokens=500, least_tokens=800)(context, budget)
        >>> [(item.seq, item.message.text) for item in cut.cleared]
        [(2, '[Old tool result content cleared]')]
    """

    keep_tokens: int = 40_000
    least_tokens: int = 20_000

    def __post_init__(self) -> None:
        whole("keep_tokens", self.keep_tokens, 0)
        whole("least_tokens", self.least_tokens, 0)

    def __call__(self, context: Context, budget: Budget, /) -> Cut | None:
        results = [entry for entry in context.visible if entry.message.role == "tool"]
        start = newest_within([entry.tokens for entry in results], self.keep_tokens)
        beyond = {entry.seq for entry in results[:start]}
        old = {entry.seq: entry for entry in read_results(context) if entry.seq in beyond}
        items = _items(shown_with(entry, CLEARED, budget.counter) for entry in old.values())
        gain = sum(old[item.seq].tokens - item.tokens for item in items)
        return _cut(items) if gain >= self.least_tokens else None


@dataclass(frozen=True, slots=True, kw_only=True)
class StubResults:
    """Shows results older than the newest `keep_messages` and longer than `max_chars` as their beginning."""

    keep_messages: int = 4
    max_chars: int = 200

    def __call__(self, context: Context, budget: Budget, /) -> Cut | None:
        policy = MicroCompact(max_chars=self.max_chars)
        newest = {entry.seq for entry in newest_said(context, self.keep_messages)}
        old = (entry for entry in read_results(context) if entry.seq not in newest)
        return _cut(cleared_item(entry, policy, budget.counter) for entry in old)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultTails:
    """Shows each result that was read as its last `max_lines` lines."""

    max_lines: int = 50

    def __call__(self, context: Context, budget: Budget, /) -> Cut | None:
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
