"""What a counter says of the visible messages, at the cost of what is new."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from agentloop.context import Context, Entry, TokenCounter
from agentloop.messages import Message

MOST_REMEMBERED = 32_768
"""Of so many texts, twice over, the counts are remembered: more than a window of a million tokens shows."""


class Tally:
    """The tokens of what is visible, by `counter`; one for all sessions that share a trigger.

    The last sum is carried on while the context only grows. Counts of texts are remembered beside it, so that
    a rewritten context, or another session's, asks the counter about nothing that it has seen. Safe to share
    between threads: the sum is replaced as a whole and never changed, and where two count the same text at
    once, both write the same.
    """

    __slots__ = ("_counter", "_last", "_new", "_old")

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._last = _Sum()
        self._new: dict[tuple[int, int], int] = {}
        self._old: dict[tuple[int, int], int] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        # Hashes of texts and identities mean nothing in another process.
        return Tally, (self._counter,)

    def __call__(self, context: Context, /) -> int:
        last = self._last if self._last.begins(context) else _Sum()
        added = context.visible[last.length :]
        tokens = last.tokens + sum(map(self._tokens, _texts(added)))
        self._last = _Sum.of(context, tokens)
        return tokens

    def _tokens(self, text: str) -> int:
        # The text itself would be kept alive beyond its session.
        key = hash(text), len(text)
        known = self._new.get(key)
        if known is None:
            known = self._old.get(key)
            known = self._counter(text) if known is None else known
            if len(self._new) >= MOST_REMEMBERED:
                self._new, self._old = {}, self._new
            self._new[key] = known
        return known


@dataclass(frozen=True, slots=True)
class _Sum:
    """The tokens of the first `length` messages of a context, the last of them `newest`.

    `clearings` and `compactions` are the very objects that a context keeps for as long as it only grows.
    """

    tokens: int = 0
    length: int = 0
    newest: Entry | None = None
    clearings: object = ()
    compactions: object = ()

    @classmethod
    def of(cls, context: Context, tokens: int) -> "_Sum":
        length = len(context.visible)
        newest = context.visible[-1] if length else None
        return cls(tokens, length, newest, context.clearings, context.compactions)

    def begins(self, context: Context) -> bool:
        """Whether the context is the one summed, or grown from it."""
        return (
            0 < self.length <= len(context.visible)
            and context.visible[self.length - 1] is self.newest
            and context.clearings is self.clearings
            and context.compactions is self.compactions
        )


def _texts(entries: Iterable[Entry]) -> Iterator[str]:
    for entry in entries:
        yield from filter(None, _said(entry.message))


def _said(message: Message) -> Iterator[str]:
    yield message.text
    for call in message.tool_calls:
        yield from (call.name, call.arguments)
