"""Sessions as files: chat-completions messages, events, or text to read; and back."""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Never, TypeGuard

from agentloop.codec import decode, encode
from agentloop.errors import StoreError, UsageError
from agentloop.events import Cleared, Compacted, Event, MessageAdded, Record, Restored
from agentloop.messages import Message
from agentloop.pairing import answers


def to_openai(records: Iterable[Record]) -> list[dict[str, Any]]:
    """Every message of the main line in chat-completions form: the whole log, nothing hidden or shortened.

    Results stand right behind their call, in call order, so that a log whose calls are each answered once
    gives a list that a strict provider takes. Nothing is invented for a call without a result, and a result
    that answers no call stays where it stood.
    """
    said = [record.event.message for record in records if _is_main(record.event)]
    return [message.to_openai() for message in _arranged(said)]


def to_events(records: Iterable[Record]) -> Iterator[str]:
    """The log as JSON Lines, one record a line without its line end; `parse` gives the same events back."""
    return (encode(record.event) for record in records)


def parse(text: str, *, count: Callable[[Message], int]) -> list[Event]:
    """The events that an export holds: of messages, a JSON list or JSON Lines, or of events.

    `count` gives a message's length in tokens. A BOM, CRLF and blank lines are passed over. Raises:
        UsageError: a line or an item is none of these, or cannot be kept as it is written: a key stands
            in it twice, or a number that JSON does not have; the text names it and says what is wrong.
    """
    text = text.removeprefix("\ufeff")
    if text.lstrip().startswith("["):
        events: list[Event] = [_said(item, where, count) for where, item in _items(text)]
    else:
        lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
        events = [_event(line, number, seq, count) for seq, (number, line) in enumerate(lines, start=1)]
    if not events:
        raise UsageError("nothing to import: it holds neither messages nor events")
    return events


def _is_main(event: Event) -> TypeGuard[MessageAdded]:
    return isinstance(event, MessageAdded) and event.branch is None


def _arranged(said: Sequence[Message]) -> Iterator[Message]:
    """Results right behind their calls; what answers no call stays where it stood."""
    answered = answers(said)
    placed = {place for places in answered.values() for place in places}
    for at, message in enumerate(said):
        if at in placed:
            continue
        yield message
        yield from (said[place] for place in answered.get(at, ()) if place is not None)


def _items(text: str) -> Iterator[tuple[str, Any]]:
    """Each item of the list, decoded by itself, so that a fault can be named by its place."""
    try:
        length = len(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"nothing imported: this is no JSON list: {error}") from error
    end = text.index("[") + 1
    for number in range(1, length + 1):
        between = _BETWEEN.match(text, end)
        try:
            item, end = _STRICT.raw_decode(text, between.end() if between else end)
        except ValueError as error:
            raise _wrong(f"item {number}", str(error)) from error
        yield f"item {number}", item


def _event(line: str, number: int, seq: int, count: Callable[[Message], int]) -> Event:
    try:
        data = _STRICT.decode(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise _wrong(f"line {number}", f"this is no JSON: {error}") from error
    except ValueError as error:
        raise _wrong(f"line {number}", str(error)) from error
    if not isinstance(data, dict) or not {"v", "kind"} <= data.keys():
        return _said(data, f"line {number}", count)
    try:
        event = decode(line.strip())
    except StoreError as error:
        raise _wrong(f"line {number}", str(error)) from error
    if any(not 1 <= position < seq for position in _points_at(event)):
        raise _wrong(f"line {number}", "this event points at a record that is not before it")
    return event


def _said(data: Any, where: str, count: Callable[[Message], int]) -> MessageAdded:
    try:
        message = Message.from_openai(data)
    except (UsageError, RecursionError) as error:
        raise _wrong(where, str(error)) from error
    if message.role not in _ROLES:
        raise _wrong(where, f"{message.role[:40]!r} is no role of chat completions: {', '.join(_ROLES)}")
    return MessageAdded(message=message, tokens=count(message))


def _points_at(event: Event) -> list[int]:
    match event:
        case Compacted():
            covered = [position for pair in event.covers for position in pair]
            return covered + [item.seq for item in event.cleared]
        case Cleared():
            return [item.seq for item in event.items]
        case Restored():
            return [event.seq]
    return []


def _wrong(where: str, what: str) -> UsageError:
    return UsageError(f"nothing imported: {where}: {what}")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice[:40]!r} stands twice in one object: leave one of them out")
    return found


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _no_number(text)


def _no_number(text: str) -> Never:
    raise ValueError(f"{text[:40]} is no number that JSON can keep: write another")


_BETWEEN = re.compile(r"[\s,]*")
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_STRICT = json.JSONDecoder(object_pairs_hook=_once, parse_float=_finite, parse_constant=_no_number)
