"""Superseded results shown as one line: what can be cleared before anything that is worth more."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import takewhile

from agentloop.context import Context
from agentloop.entries import Entry
from agentloop.events import ClearedItem
from agentloop.prompts import SUPERSEDED
from agentloop.superseded import replaced_by
from agentloop.tokens import TokenCounter, count_message

MOST_NAME_CHARS = 64


def superseded_items(context: Context, counter: TokenCounter) -> tuple[ClearedItem, ...]:
    """How the superseded results in sight are shown, each as one line, where that saves tokens.

    A result gives way only to one that stands in sight as the log holds it. Results that the model has not
    read yet, those to be kept and those already shown shortened are left alone. A tool message keeps its role
    and the id of its call. Linear in the text.

    Example:
        >>> from agentloop.tokens import counter_for
        >>> superseded_items(Context(), counter_for("gpt-5-mini"))
        ()
    """
    return tuple(_items(context, counter))


def _items(context: Context, counter: TokenCounter) -> Iterator[ClearedItem]:
    visible = list(context.visible)
    whole = {entry.seq for entry in visible if not entry.cleared}
    unread = {entry.seq for entry in takewhile(_is_result, reversed(visible))}
    readable, newer = whole - unread, replaced_by(visible)
    for entry in visible:
        by = newer.get(entry.seq)
        if by and by.seq in whole and entry.seq in readable:
            line = SUPERSEDED.format(name=by.name[:MOST_NAME_CHARS])
            shown = replace(entry.original, content=line, extra={}, omits=())
            tokens = count_message(shown, counter)
            if tokens < entry.tokens:
                yield ClearedItem(seq=entry.seq, message=shown, tokens=tokens)


def _is_result(entry: Entry) -> bool:
    return entry.message.role == "tool"
