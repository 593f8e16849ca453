"""The index of a conversation by itself, as it stands below a digest."""

from collections.abc import Sequence

from agentloop.compaction.digest.fold import LogFold
from agentloop.compaction.digest.index import index_items, index_lines
from agentloop.context import Entry, TokenCounter


def index_of(entries: Sequence[Entry], *, max_tokens: int, counter: TokenCounter, known: str = "") -> str:
    """The labelled lines, in at most so many tokens; what is known is left out."""
    fold = LogFold(())
    for entry in entries:
        fold.add(entry)
    done = fold.done(len(entries))
    items = index_items(done.told(), done.found(), most=max_tokens, known=known)
    return index_lines(items, max_tokens=max_tokens, counter=counter)
