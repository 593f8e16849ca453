"""What a summariser is spared: shortening of its input before it is read."""

from collections.abc import Sequence
from typing import Protocol

from agentloop.entries import Entry
from agentloop.tokens import TokenCounter


class Trim(Protocol):
    """Shortens what a summariser reads; the log and the context stay as they are."""

    def __call__(self, entries: Sequence[Entry], room: int, counter: TokenCounter, /) -> Sequence[Entry]:
        """The entries to read, oldest first, where there is room for so many tokens."""
        ...
