"""The index of a conversation by itself, as it stands below a digest."""

from collections.abc import Sequence

from agentloop.compaction.digest import index_items, index_lines
from agentloop.context import Entry, TokenCounter


def index_of(entries: Sequence[Entry], *, max_tokens: int, counter: TokenCounter, known: str = "") -> str:
    """The labelled lines, in at most so many tokens; what is known is left out."""
    items = index_items(entries, most=max_tokens, known=known)
    return index_lines(items, max_tokens=max_tokens, counter=counter)
