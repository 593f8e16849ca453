"""A record in sections within a budget: who comes first gets its share, what is left goes round again."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from agentloop.context import TokenCounter

T = TypeVar("T")

MOST_MISSES = 12
"""After so many items that were too long for what is left, a section is full."""

LINE_TOKENS = 2
"""What an item takes beside its text: a dash and the end of a line."""

SURELY_LONG = 20
"""A text with so many characters for each token of room is too long, and need not be counted."""


@dataclass(slots=True, kw_only=True)
class Section(Generic[T]):
    """Items in the order in which they are wanted, and how those kept are written under the heading.

    What is wanted `later` comes when all else has found its room.
    """

    title: str
    wanted: list[T]
    text_of: Callable[[T], str]
    written: Callable[[Sequence[T]], Iterable[str]]
    later: list[T] = field(default_factory=list)
    kept: list[T] = field(default_factory=list)
    used: int = 0

    def fill(self, most: int, counter: TokenCounter) -> list[int]:
        """Take items up to `most` tokens, and say how many each of them takes."""
        taken: list[int] = []
        left: list[T] = []
        misses = 0
        items = iter(self.wanted)
        for item in items:
            tokens = self._tokens(item, most, counter)
            if tokens <= most:
                self.kept.append(item)
                taken.append(tokens)
                most -= tokens
                continue
            left.append(item)
            misses += 1
            if misses == MOST_MISSES or most <= LINE_TOKENS:
                break
        self.wanted = [*left, *items]
        self.used += sum(taken)
        return taken

    def _tokens(self, item: T, room: int, counter: TokenCounter) -> int:
        text = self.text_of(item)
        if len(text) > max(0, room) * SURELY_LONG:
            return room + 1
        heading = 0 if self.kept else counter(self.title) + LINE_TOKENS
        return counter(text) + LINE_TOKENS + heading

    def __str__(self) -> str:
        return "\n".join((self.title, *self.written(self.kept))) if self.kept else ""


@dataclass(slots=True, kw_only=True)
class Filling:
    """What a budget still holds; what was taken from where is remembered, so that it can be given back."""

    counter: TokenCounter
    left: int
    taken: list[tuple[Section[Any], int]] = field(default_factory=list)

    def fill(self, section: Section[T], most: int) -> None:
        """Let a section take items until it has used `most` tokens in all."""
        taken = section.fill(min(self.left, most - section.used), self.counter)
        self.left -= sum(taken)
        self.taken.extend((section, tokens) for tokens in taken)

    def give_back(self, tokens: int) -> None:
        """Give back what was taken last, at least so many tokens of it."""
        while tokens > 0 and self.taken:
            section, used = self.taken.pop()
            section.kept.pop()
            tokens -= used
