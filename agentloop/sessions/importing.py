"""An export, a list of messages or another program's conversation as the events of a new session.

It is taken in whole, or refused with its line. `parse` reads the text piece by piece. What a filtered export
left out moves what stands behind it, so events that point at others are pointed at their new positions
(`renumbered`). What somebody else made may be made to do harm: how deep it is nested and how many values it
has is looked at before it is decoded, a piece at a time, so that a signal is heard.
"""

import contextlib
import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from agentloop._plumbing.amounts import MOST_TOKENS
from agentloop._plumbing.checks import shown, whole
from agentloop._plumbing.patterns import pattern
from agentloop._plumbing.strict_json import Nesting, finite, no_number
from agentloop.bounds import MOST_IMPORT_RECORDS, MOST_IMPORT_VALUES, MOST_KEYS, MOST_NESTED
from agentloop.codec import decode
from agentloop.context import chat_messages
from agentloop.errors import StoreError, UsageError
from agentloop.events import (
    Cleared,
    ClearedItem,
    Compacted,
    Described,
    Event,
    MessageRecord,
    ModelCalled,
    Restored,
    Unknown,
)
from agentloop.messages import Message
from agentloop.redaction import Redact, redacted
from agentloop.sessions.export import POSITION_IN_FRONT
from agentloop.sessions.foreign import KNOWN, messages_in
from agentloop.stores.base import checked_owner, checked_ttl

_PIECE = 500_000
"""So many characters are looked at in one step."""
_MOST_NESTED = MOST_NESTED + 10
"""A message may be nested so deep, and a record, a list and a file are around it."""
_LINE = pattern(r"([^\n]*)\n?")
_BETWEEN = pattern(r"[\s,]*")
_NOT_BLANK = pattern(r"\S")
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")


def parse(
    text: str, *, count: Callable[[Message], int], tell: Callable[[int], object] = lambda records: None
) -> list[Event]:
    """The events that a file holds: an export of ours, messages, or a conversation of a form in `foreign`.

    Messages come as a JSON list, as JSON Lines or one after the other, events as JSON Lines; either may be
    printed over several lines. `count` gives a message's length in tokens, `tell` is told how many records
    are read so far. A BOM, CRLF and blank lines are passed over; NaN and the infinities are kept where a log
    keeps them, in what a plugin noted and in a message that an event holds.

    Raises:
        UsageError: a line or an item is none of these, or cannot be kept as it is written (a key stands in it
            twice, or a number that JSON does not have or a record may not hold), or holds more than
            `agentloop.bounds` allow, or it points at what a filtered export left out; the text names it and
            says what is wrong.
    """
    text = text.removeprefix("\ufeff")
    pieces = _items(text) if text.lstrip().startswith("[") else _lines(text)
    first = next(pieces, None)
    every = chain([first] if first else [], pieces)
    events: list[Event] = []
    for event in _foreign(every, count) if first and _is_foreign(first.data) else _own(every, count):
        events.append(event)
        if len(events) > MOST_IMPORT_RECORDS:
            raise UsageError(f"nothing imported: over {MOST_IMPORT_RECORDS:,} records: import a part of it")
        tell(len(events))
    if not events:
        raise UsageError("nothing to import: it holds neither messages nor events")
    return events


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """One value of the file: where it stands, what it says, and the line that it is, if it is one."""

    where: str
    data: Any
    line: str = ""


def _is_event(data: Any) -> bool:
    return isinstance(data, dict) and {"v", "kind"} <= data.keys()


def _is_foreign(data: Any) -> bool:
    """Whether it is neither an event nor a message by itself, but may be an item that looks like one."""
    if not isinstance(data, dict) or _is_event(data):
        return False
    return not isinstance(data.get("role"), str) or "parts" in data or data.get("type") == "message"


def _foreign(pieces: Iterable[_Piece], count: Callable[[Message], int]) -> Iterator[Event]:
    """The messages of a file that is not of our own forms."""
    found = messages_in((piece.where, piece.data) for piece in pieces)
    if found is None:
        raise UsageError(f"nothing imported: this is of no known form; known are: {KNOWN}")
    for number, data in enumerate(found, 1):
        with _named(f"message {number}"):
            yield from _said(data, count)


def _own(pieces: Iterable[_Piece], count: Callable[[Message], int]) -> Iterator[Event]:
    """The events of the pieces; they get positions without gaps, and point at each other by these."""
    positions: list[int] = []
    for piece in pieces:
        behind = positions[-1] + 1 if positions else 1
        with _named(piece.where):
            if _is_event(piece.data):
                event = _event(piece)
                position = _position(piece, behind)
                yield renumbered(event, position, positions)
                positions.append(position)
            else:
                for position, said in enumerate(_said(piece.data, count), behind):
                    yield said
                    positions.append(position)


@contextlib.contextmanager
def _named(where: str) -> Iterator[None]:
    """Say of what is wrong in the block where in the file it is."""
    try:
        yield
    except (StoreError, UsageError, RecursionError) as error:
        raise _wrong(where, str(error)) from error


def _items(text: str) -> Iterator[_Piece]:
    """Each item of the list."""
    _check_bounds(text, "the list")
    try:
        items = _STRICT.decode(text)
    except ValueError:
        raise _list_fault(text) from None
    for number, item in enumerate(items, 1):
        if _is_event(item):
            raise _wrong(f"item {number}", "this is an event: write events as JSON Lines, one a line")
        yield _Piece(where=f"item {number}", data=item)


def _list_fault(text: str) -> UsageError:
    """What is wrong with the list: it is none, or one of its items cannot be kept."""
    try:
        length = len(json.loads(text))
    except ValueError as error:
        return UsageError(f"nothing imported: this is no JSON list: {error}")
    end = text.index("[") + 1
    for number in range(1, length + 1):
        between = _BETWEEN.match(text, end)
        try:
            _, end = _STRICT.raw_decode(text, between.end() if between else end)
        except ValueError as error:
            return _wrong(f"item {number}", str(error))
    return UsageError("nothing imported: this is no JSON list")


def _lines(text: str) -> Iterator[_Piece]:
    """The lines that are not blank; of objects that stand over several lines, each in one."""
    values, is_first = 0, True
    for number, found in enumerate(_LINE.finditer(text), 1):
        line, where = found[1], f"line {number}"
        if line.strip():
            values = _check_bounds(line, where, values)
            if is_first and _goes_on(line):
                yield from _joined(text)
                return
            is_first = False
            yield _Piece(where=where, data=_decoded(line, where), line=line)


def _joined(text: str) -> Iterator[_Piece]:
    """The objects, one after the other, each as one line."""
    _check_bounds(text, "the file")
    number = end = 0
    while found := _NOT_BLANK.search(text, end):
        begin, number = found.start(), number + 1
        try:
            _, end = _ANY.raw_decode(text, begin)
        except ValueError as error:
            raise UsageError(f"nothing imported: this is no JSON: {error}") from error
        line, where = text[begin:end].replace("\r", " ").replace("\n", " "), f"item {number}"
        yield _Piece(where=where, data=_decoded(line, where), line=line)


def _goes_on(line: str) -> bool:
    """Whether the line is the beginning of an object that goes on behind it."""
    try:
        _ANY.decode(line)
    except json.JSONDecodeError as error:
        return error.pos >= len(line.rstrip())
    except ValueError:
        return False
    return False


def _check_bounds(text: str, where: str, before: int = 0) -> int:
    """How many values the file holds with this text, and with so many before it; it is not decoded yet.

    It is looked at piece by piece: no single step keeps a signal waiting.

    Raises:
        UsageError: it is nested too deep, or there are too many values now.
    """
    nesting = Nesting()
    for at in range(0, len(text), _PIECE):
        nesting.feed(text[at : at + _PIECE])
        if nesting.deepest > _MOST_NESTED:
            raise _wrong(where, f"nested over {_MOST_NESTED} levels deep: give deep data as text")
        if before + nesting.values > MOST_IMPORT_VALUES:
            raise _wrong(where, f"over {MOST_IMPORT_VALUES:,} values: import a part of the file")
    return before + nesting.values


def _decoded(line: str, where: str) -> Any:
    try:
        return _STRICT.decode(line)
    except json.JSONDecodeError as error:
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
        event = decode(_parted(line)[1])
    except StoreError:
        raise fault from None
    return json.loads(line) if isinstance(event, Unknown) else _LENIENT.decode(line)


def _event(piece: _Piece) -> Event:
    event = decode(_parted(piece.line)[1])
    if isinstance(event, Described):
        checked_owner(event.owner)
        checked_ttl(event.ttl_seconds or None)
    for name, tokens in _tokens_in(event):
        whole(name, tokens, 0, most=MOST_TOKENS)
    return event


def _tokens_in(event: Event) -> Iterator[tuple[str, int]]:
    """The lengths that a run adds up: a record of it must hold their sum as well."""
    match event:
        case MessageRecord():
            yield "tokens", event.tokens
        case Cleared():
            yield from (("tokens", item.tokens) for item in event.items)
        case Compacted():
            yield from (("tokens", event.tokens), ("answer_tokens", event.answer_tokens))
            yield from (("tokens", item.tokens) for item in event.cleared)
        case ModelCalled():
            yield "counted", event.counted


def _parted(line: str) -> tuple[str | None, str]:
    """The position that stands in front, None where there is none, and the record's own text."""
    text = line.rstrip("\r")
    found = POSITION_IN_FRONT.match(text)
    return (found[1], "{" + text[found.end() :]) if found else (None, text)


def _position(piece: _Piece, behind: int) -> int:
    """Where the record stood in the log that it comes from; by itself at `behind`, behind the one before."""
    position = piece.data.get("position", behind)
    whole("'position'", position, behind)
    return int(position)


def _said(data: Any, count: Callable[[Message], int]) -> Iterator[MessageRecord]:
    """The records of a message; one that another API wrote with several results is several."""
    for each in chat_messages([data]):
        message = Message.from_openai(each)
        if message.role not in _ROLES:
            raise UsageError(f"{message.role[:40]!r} is no role of chat completions: {', '.join(_ROLES)}")
        yield MessageRecord(message=message, tokens=count(message))


def records_of(
    said: Iterable[Message | Mapping[str, Any]], count: Callable[[Message], int]
) -> Iterator[MessageRecord]:
    """The records of messages, also as chat-completions dicts; `count` gives the length of one in tokens.

    Raises:
        UsageError: one of them is neither, or they are no list.
    """
    if isinstance(said, str | bytes | Mapping) or not isinstance(said, Iterable):
        raise UsageError(f"a conversation must be a list of messages, not {shown(said)}")
    for number, each in enumerate(said, 1):
        with _named(f"message {number}"):
            if not isinstance(each, Message | Mapping):
                raise UsageError(f"it must be a Message or a chat-completions dict, not {shown(each)}")
            yield from _said(each.to_openai() if isinstance(each, Message) else dict(each), count)


def _wrong(where: str, what: str) -> UsageError:
    return UsageError(f"nothing imported: {where}: {what}")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > MOST_KEYS:
        raise ValueError(f"an object has {len(pairs):,} keys: write one of over {MOST_KEYS:,} as a list")
    found = dict(pairs)
    if len(found) < len(pairs):
        count = Counter(key for key, _ in pairs)
        twice = next(key for key, _ in pairs if count[key] > 1)
        raise ValueError(f"the key {twice[:40]!r} stands twice in one object: leave one of them out")
    return found


_ANY = json.JSONDecoder()
_LENIENT = json.JSONDecoder(object_pairs_hook=_once, parse_float=finite)
_STRICT = json.JSONDecoder(object_pairs_hook=_once, parse_float=finite, parse_constant=no_number)


def renumbered(event: Event, position: int, positions: Sequence[int]) -> Event:
    """The event, which stood at `position`, pointing at new ones; `positions` are the old ones before it.

    Example:
        >>> renumbered(Restored(seq=7), 9, [2, 4, 7])
        Restored(seq=3)

    Raises:
        UsageError: it points at what is not before it, or was left out.
    """
    for wanted in points_at(event):
        if not 1 <= wanted < position:
            raise UsageError("this event points at a record that is not before it")
        if not _is_there(wanted, positions):
            raise UsageError(f"it points at position {wanted}, which the export left out: take it in too")
    return event if position == len(positions) + 1 else _moved(event, positions)


def points_at(event: Event) -> list[int]:
    """The positions of the records that it cannot do without."""
    match event:
        case Compacted():
            covered = [position for pair in event.covers for position in pair]
            return covered + [item.seq for item in event.cleared]
        case Cleared():
            return [item.seq for item in event.items]
        case Restored():
            return [event.seq]
    return []


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


def redacted_events(
    events: Iterable[Event], redact: Redact | None, count: Callable[[Message], int]
) -> Iterator[Event]:
    """The events redacted; what changes is counted again."""
    for event in events:
        clean = redacted(event, redact)
        yield event if clean is event else _recount(clean, count)


def _recount(event: Event, count: Callable[[Message], int]) -> Event:
    match event:
        case MessageRecord():
            return replace(event, tokens=count(event.message))
        case Cleared():
            return replace(event, items=_recount_items(event.items, count))
        case Compacted():
            answer = count(Message.assistant(event.answer)) if event.answer else 0
            shown = count(Message.user(event.replacement)) if event.replacement else 0
            items = _recount_items(event.cleared, count)
            return replace(event, tokens=shown + answer, answer_tokens=answer, cleared=items)
    return event


def _recount_items(items: Iterable[ClearedItem], count: Callable[[Message], int]) -> tuple[ClearedItem, ...]:
    return tuple(replace(item, tokens=count(item.message)) for item in items)
