"""Sessions as files: chat-completions messages, events, or text to read; and back."""

import json
import math
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Never

from agentloop.codec import decode, encode
from agentloop.errors import StoreError, UsageError
from agentloop.events import Cleared, Compacted, Described, Event, MessageAdded, Record, Restored, Unknown
from agentloop.filters import MAIN, EventFilter, select
from agentloop.messages import Message
from agentloop.pairing import answers
from agentloop.stores.base import checked_owner, checked_ttl


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
    said = [event.message for event in taken if isinstance(event, MessageAdded)]
    return [message.to_openai() for message in _arranged(said)]


def to_events(records: Iterable[Record], *, only: EventFilter | None = None) -> Iterator[str]:
    """The log as JSON Lines, one record a line without its line end; `parse` gives the same events back.

    With `only` those that it takes, each with its `position` in the log, since a line's number is no longer
    that. `parse` gives them new positions where all that they point at is there.
    """
    if only is None:
        return (encode(record.event) for record in records)
    return (_positioned(record) for record in select(records, only))


def parse(text: str, *, count: Callable[[Message], int]) -> list[Event]:
    """The events that an export holds: of messages, a JSON list or JSON Lines, or of events.

    `count` gives a message's length in tokens. A BOM, CRLF and blank lines are passed over. Raises:
        UsageError: a line or an item is none of these, or cannot be kept as it is written: a key stands
            in it twice, or a number that JSON does not have (in an event NaN and the infinities are kept),
            or it points at what a filtered export left out; the text names it and says what is wrong.
    """
    text = text.removeprefix("\ufeff")
    if text.lstrip().startswith("["):
        events: list[Event] = [_said(item, where, count) for where, item in _items(text)]
    else:
        events = list(_lines(text, count))
    if not events:
        raise UsageError("nothing to import: it holds neither messages nor events")
    return events


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


def _lines(text: str, count: Callable[[Message], int]) -> Iterator[Event]:
    """The event of each line; they get positions without gaps, and point at each other by these."""
    positions: list[int] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            where = f"line {number}"
            data = _decoded(line, where)
            is_event = isinstance(data, dict) and {"v", "kind"} <= data.keys()
            position = _position(data if is_event else {}, positions, where)
            if is_event:
                yield _renumbered(_event(line, where), position, positions, where)
            else:
                yield _said(data, where, count)
            positions.append(position)


def _decoded(line: str, where: str) -> Any:
    try:
        return _STRICT.decode(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise _wrong(where, f"this is no JSON: {error}") from error
    except ValueError as error:
        fault = error
    try:
        return _as_stored(line, fault)
    except ValueError as error:
        raise _wrong(where, str(error)) from error


def _as_stored(line: str, fault: ValueError) -> Any:
    """The line as an event that a log may hold so, though JSON may not; for any other the fault is raised.

    A log keeps NaN and the infinities, and a record of a kind that is not known to the byte.
    """
    try:
        event = decode(_POSITION.sub("{", line.strip()))
    except (StoreError, RecursionError):
        raise fault from None
    return json.loads(line) if isinstance(event, Unknown) else _LENIENT.decode(line)


def _event(line: str, where: str) -> Event:
    try:
        event = decode(_POSITION.sub("{", line.strip()))
        if isinstance(event, Described):
            checked_owner(event.owner)
            checked_ttl(event.ttl_seconds or None)
    except (StoreError, UsageError) as error:
        raise _wrong(where, str(error)) from error
    if not math.isfinite(event.time):
        raise _wrong(where, f"'time' is {event.time}: write the seconds since 1970")
    return event


def _positioned(record: Record) -> str:
    """The record as a line that begins with its position; what follows is its text to the byte."""
    return f'{{"position":{record.seq},{encode(record.event).lstrip()[1:]}'


def _position(data: dict[str, Any], positions: Sequence[int], where: str) -> int:
    """Where the record stood in the log that it comes from; by itself right behind the one before."""
    behind = positions[-1] + 1 if positions else 1
    position = data.get("position", behind)
    if isinstance(position, bool) or not isinstance(position, int) or position < behind:
        said = repr(position)[:40]
        raise _wrong(where, f"'position' must be a whole number of at least {behind} here, not {said}")
    return position


def _renumbered(event: Event, position: int, positions: Sequence[int], where: str) -> Event:
    """The event, which stood at `position`, pointing at new ones; `positions` are the old ones before it."""
    for wanted in _points_at(event):
        if not 1 <= wanted < position:
            raise _wrong(where, "this event points at a record that is not before it")
        if not _is_there(wanted, positions):
            raise _wrong(where, f"it points at position {wanted}, which the export left out: take it in too")
    return event if position == len(positions) + 1 else _moved(event, positions)


def _moved(event: Event, positions: Sequence[int]) -> Event:
    match event:
        case Compacted():
            covers = tuple(
                (_place(first, positions), _place(last, positions)) for first, last in event.covers
            )
            cleared = tuple(replace(item, seq=_place(item.seq, positions)) for item in event.cleared)
            return replace(event, covers=covers, cleared=cleared, at=_place(event.at, positions))
        case Cleared():
            items = tuple(replace(item, seq=_place(item.seq, positions)) for item in event.items)
            return replace(event, items=items)
        case Restored():
            return replace(event, seq=_place(event.seq, positions))
    return event


def _place(position: int, positions: Sequence[int]) -> int:
    """The new position of what stood there, or of the first behind it."""
    return bisect_left(positions, position) + 1


def _is_there(position: int, positions: Sequence[int]) -> bool:
    at = bisect_left(positions, position)
    return at < len(positions) and positions[at] == position


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
_POSITION = re.compile(r'^\{\s*"position"\s*:\s*\d+\s*,')
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_LENIENT = json.JSONDecoder(object_pairs_hook=_once, parse_float=_finite)
_STRICT = json.JSONDecoder(object_pairs_hook=_once, parse_float=_finite, parse_constant=_no_number)
