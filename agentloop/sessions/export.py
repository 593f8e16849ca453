"""A session for people and other programs: as chat-completions messages, as JSON Lines, in Markdown."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from agentloop._plumbing.patterns import pattern
from agentloop.codec import encode
from agentloop.context import answers
from agentloop.events import (
    MAIN,
    Compacted,
    Event,
    EventFilter,
    MessageRecord,
    NotCompacted,
    Record,
    Restored,
    select,
)
from agentloop.media import label_of
from agentloop.messages import Message

POSITION_IN_FRONT = pattern(r'\s*\{\s*"position"\s*:\s*([-+.\w]+|"[^"\\]*")\s*,')
"""How a line begins that says where its record stood, and what it says."""


def to_openai(records: Iterable[Record], *, only: EventFilter | None = None) -> list[dict[str, Any]]:
    """Every message of the main line in chat-completions form: the whole log, nothing hidden or shortened.

    With `only` those that it takes, of one line all the same: the branch that it names, else the main one.
    Results stand right behind their call, in call order, so that a log whose calls are each answered once
    gives a list that a strict provider takes. Nothing is invented for a call without a result, and a result
    that answers no call stays where it stood.
    """
    only = only or EventFilter()
    of_one_line = only if only.branch is not None else replace(only, branch=MAIN)
    taken = (record.event for record in select(records, of_one_line))
    said = [event.message for event in taken if isinstance(event, MessageRecord)]
    return [message.to_openai() for message in arranged(said)]


def to_events(records: Iterable[Record], *, only: EventFilter | None = None) -> Iterator[str]:
    """The log as JSON Lines, one record a line without its line end; `importing.parse` gives its events back.

    With `only` those that it takes, each with its `position` in the log in front, since a line's number is no
    longer that; an import gives them new positions where all that they point at is there. Without, a line is
    the record as the store holds it, to the byte.
    """
    if only is None:
        return (encode(record.event) for record in records)
    return (_positioned(record) for record in select(records, only))


def arranged(said: Sequence[Message]) -> Iterator[Message]:
    """Results right behind their calls; what answers no call stays where it stood."""
    answered = answers(said)
    placed = {place for places in answered.values() for place in places}
    for at, message in enumerate(said):
        if at in placed:
            continue
        yield message
        yield from (said[place] for place in answered.get(at, ()) if place is not None)


def _positioned(record: Record) -> str:
    """The record as a line that begins with its position; what follows is its text to the byte."""
    return f'{{"position":{record.seq},{encode(record.event).lstrip()[1:]}'


def heading(title: str) -> str:
    """The block that a title is."""
    return f"# {_folded(title)}".encode("utf-8", "backslashreplace").decode()


def to_blocks(records: Iterable[Record]) -> Iterator[str]:
    """What was said in Markdown, whole, and where it was compacted: a blank line belongs between two blocks.

    Tool calls and results stand in fences that they cannot close. So does what else was said where a line of
    it could pass for one of ours: all headings are. The text is strict UTF-8: lone surrogates are shown
    escaped.

    Example:
        >>> hello = MessageRecord(message=Message.user("Hello."), tokens=2)
        >>> list(to_blocks([Record(seq=1, event=hello)]))
        ['## 1 User', 'Hello.']
    """
    for record in records:
        for block in _blocks(record.seq, record.event):
            yield block.encode("utf-8", "backslashreplace").decode()


def _blocks(seq: int, event: Event) -> list[str]:
    match event:
        case MessageRecord():
            return _said(seq, event)
        case Compacted():
            places = ", ".join(f"{first}–{last}" for first, last in event.covers)
            if event.is_rewind:
                return [f"*{seq}: {places} taken back*"]
            sizes = f"{event.before:,} tokens before, {event.after:,} after"
            why = _folded(event.reason)
            return [f"*{seq}: {places} compacted ({why}): {sizes}*", _fenced(event.replacement)]
        case NotCompacted():
            why, error = _folded(event.reason), _folded(f"{event.status}: {event.error}")
            return [f"*{seq}: not compacted ({why}), {error}*"]
        case Restored():
            return [f"*{seq}: the compaction at {event.seq} was taken back*"]
    return []


def _said(seq: int, event: MessageRecord) -> list[str]:
    message = event.message
    who = _folded(message.role.capitalize()) + (f" in {_folded(event.branch)}" if event.branch else "")
    content = _content(message)
    if message.role == "tool":
        return [
            f"## {seq} {who}: result of {_code(message.tool_call_id or message.name or '')}",
            _fenced(content),
        ]
    calls = [
        block
        for call in message.tool_calls
        for block in (
            f"Calls {_code(call.name)}{f' ({_code(call.id)})' if call.id else ''}:",
            _fenced(call.arguments),
        )
    ]
    said = [content if _is_plain(content) else _fenced(content)] if content else []
    return [f"## {seq} {who}", *said, *calls]


def _content(message: Message) -> str:
    others = (
        []
        if isinstance(message.content, str)
        else [
            f"[{part.get('type', 'part')}]"
            for part in message.content or ()
            if part.get("type") != "text" and label_of(part) is None
        ]
    )
    return "\n".join([message.text, *others]) if message.text else "\n".join(others)


_TAG = pattern(r"<[A-Za-z/!?]")
_SIGNS = pattern(r"[\\`<]")
_MARKS = " \t>*+-.)0123456789"
"""What stands before the first word of a list's items and of quotes."""


def _is_plain(text: str) -> bool:
    """Whether it has no heading, fence or tag, no line that underlines one, and none that looks like ours."""
    return not _TAG.search(text) and all(map(_is_plain_line, text.splitlines()))


def _is_plain_line(line: str) -> bool:
    words = line.lstrip(_MARKS)
    if not words.strip("= \t"):
        return not line.rstrip().endswith(("-", "="))
    is_note = line.lstrip()[:1] == "*" and line.lstrip()[1:2].isdigit()
    return not is_note and not words.startswith(("#", "```", "~~~", "Calls `"))


def _folded(text: str) -> str:
    """The text on one line; what would begin code or a tag in it is escaped."""
    return _SIGNS.sub(r"\\\g<0>", " ".join(text.split()))


def _code(text: str) -> str:
    """The text on one line, as code that it cannot end; two signs with nothing between them begin none."""
    text = " ".join(text.split()) or " "
    if "`" not in text:
        return f"`{text}`"
    signs = _ticks(text, 1)
    return f"{signs} {text} {signs}"


def _fenced(text: str) -> str:
    fence = _ticks(text, 3)
    return f"{fence}\n{text}\n{fence}"


def _ticks(text: str, least: int) -> str:
    """More backticks than stand in a row in the text."""
    return "`" * max(least, 1 + max(map(len, re.findall("`+", text)), default=0))
