"""Superseded results shown as one line: what can be cleared before anything that is worth more."""

from collections.abc import Iterator

from agentloop.context import Context, TokenCounter
from agentloop.events import ClearedItem
from agentloop.micro import first_unread, shown_with
from agentloop.prompts import SUPERSEDED
from agentloop.superseded import newer_results

MOST_NAME_CHARS = 64


def superseded_items(context: Context, counter: TokenCounter) -> tuple[ClearedItem, ...]:
    """How the superseded results in sight are shown, each as one line, where that saves tokens.

    A result gives way only to one that stands in sight as the log holds it. Results that the model has not
    read yet, those to be kept and those already shown shortened are left alone. A tool message keeps its role
    and the id of its call. Linear in the text.
    """
    return tuple(_items(context, counter))


def _items(context: Context, counter: TokenCounter) -> Iterator[ClearedItem]:
    whole = {entry.seq for entry in context.visible if not entry.cleared}
    newer = newer_results(context.visible)
    for entry in context.visible[: first_unread(context)]:
        by = newer.get(entry.seq)
        if by and by.seq in whole and entry.seq in whole:
            line = SUPERSEDED.format(name=by.name[:MOST_NAME_CHARS])
            if item := shown_with(entry, line, counter):
                yield item
