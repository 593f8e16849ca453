"""The index: names and numbers that must be kept exact, in labelled lines, the newest first."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agentloop._plumbing.patterns import pattern
from agentloop.context import (
    MOST_CHARS,
    Entry,
    IdentifierKind,
    TokenCounter,
    counted,
    identifiers,
    is_bare,
    kind_of,
    kinds,
    named_values,
    record_in,
)
from agentloop.messages import decoded

TOLD_CHARS = 16_000
RESULT_CHARS = 8_000
"""So much is looked at of what one message tells or one result holds, half of it at each end."""

MOST_DECODED_CHARS = 100_000
"""Longer arguments are read as plain text."""

A_TURN = 2
"""So many identifiers of one message are taken before the next message has its turn."""

LATER = 4
"""A count comes so many turns later: each result has some, and few are asked for."""

_COUNT = pattern(r"[\d.,]+[ -]?(?P<unit>[^\W\d]+)")
_LEFT_OUT = pattern(r"\.\.\. \[[\d,]{1,15} of [\d,]{1,15} characters left out")
_EDGES = pattern(r"[\s,;\"{}\[\]]")


class IndexItem(NamedTuple):
    """One identifier as it is shown, with the place of its message and its own in it."""

    kind: IdentifierKind
    word: str
    text: str
    message: int
    place: int

    @property
    def is_bare(self) -> bool:
        """Whether it is a number that says nothing of what it counts."""
        return self.kind == "number" and is_bare(self.text)

    @property
    def is_count(self) -> bool:
        """Whether it is so many of something, and has no name."""
        return self.kind == "number" and _COUNT.fullmatch(self.text) is not None


@dataclass(slots=True)
class Seen:
    """What was met so far, newest first: what is known or taken, and the newest value of each named thing.

    `stale` are values that no longer hold, or may not; `units` what was counted in results.
    """

    words: set[str]
    stale: set[str]
    values: dict[str, str] = field(default_factory=dict)
    newest: set[str] = field(default_factory=set)
    units: set[str] = field(default_factory=set)

    def takes(self, word: str) -> bool:
        """Whether the word is new and not the value of what has a newer one, with its unit or without."""
        if word in self.words or word in self.stale or word.partition(" ")[0] in self.stale:
            return False
        self.words.add(word)
        return True

    def settles(self, name: str, value: str) -> bool:
        """Whether this is the newest value of that name; any other of it becomes stale."""
        newest = self.values.setdefault(name, value)
        if newest == value:
            self.newest.add(value)
        elif value not in self.newest:
            self.stale.add(value)
        return newest == value


Found = dict[str, tuple[IdentifierKind, str]]
"""What is new in a message: each identifier with its kind and how it is shown."""


class Named(NamedTuple):
    """What one message names: its identifiers with their kinds, in order.

    `at` is its position. `counted` are the words before bare numbers, `values` the named values, the last one
    first: the name in small letters and the value, with the name as it is written.
    """

    at: int
    in_result: bool
    words: dict[str, IdentifierKind]
    counted: Mapping[str, str]
    values: dict[tuple[str, str], str]


def named_in(entry: Entry) -> Named:
    """What the message names; of a long one its ends are looked at."""
    message = entry.original
    if message.role == "tool":
        text = _LEFT_OUT.sub("... [", _ends(message.text, RESULT_CHARS))
    else:
        text = _ends(record_in(message)[1] if entry.kind == "summary" else message.text, TOLD_CHARS)
    found = kinds(text)
    has_bare = any(kind == "number" and is_bare(word) for word, kind in found.items())
    numbers = counted(text) if has_bare else {}
    if message.role == "tool":
        return Named(entry.at, True, found, numbers, {})
    for call in message.tool_calls:
        for word, kind in _in_arguments(call.arguments).items():
            found.setdefault(word, kind)
    values: dict[tuple[str, str], str] = {}
    for name, value in reversed(list(named_values(text))):
        values.setdefault((name.lower(), value), name)
    return Named(entry.at, False, found, numbers, values)


def _in_turns(
    found_in: Callable[[Named, Seen], Found], messages: Iterable[Named], most: int, seen: Seen
) -> list[IndexItem]:
    """A few items of each message, newest first, then the next few of each, and so on.

    Older messages are not looked at once those before them have as many items as could be taken.
    """
    turns: list[tuple[int, int, IndexItem]] = []
    telling = 0
    for message in messages:
        found = found_in(message, seen)
        if not found:
            continue
        items = [
            IndexItem(kind, word, text, message.at, at)
            for at, (word, (kind, text)) in enumerate(found.items())
        ]
        for number, item in enumerate(_ends_first(items)):
            turns.append((number // A_TURN + LATER * item.is_count, telling, item))
        telling += 1
        if telling >= most:
            break
    return [item for _, _, item in sorted(turns, key=lambda turn: turn[:2])]


def _ends_first(items: Sequence[IndexItem]) -> Iterator[IndexItem]:
    """First, last, second, last but one and so on; bare numbers behind all others."""
    if len(items) < 2:
        yield from items
        return
    telling = [item for item in items if not item.is_bare]
    for group in (telling, [item for item in items if item.is_bare]):
        for at in range((len(group) + 1) // 2):
            yield group[at]
            if at != len(group) - 1 - at:
                yield group[-1 - at]


def _in_message(message: Named, seen: Seen) -> Found:
    return _newest_values(message, seen) | _words(message, seen)


def _in_result(message: Named, seen: Seen) -> Found:
    found = _words(message, seen)
    return {word: shown for word, shown in found.items() if _is_telling(*shown, seen)}


def _is_telling(kind: IdentifierKind, text: str, seen: Seen) -> bool:
    """Whether it is no count, or the newest of its unit: so many lines of something tell nothing."""
    count = _COUNT.fullmatch(text) if kind == "number" else None
    if count is None:
        return True
    unit = count["unit"]
    is_new = unit not in seen.units
    seen.units.add(unit)
    return is_new


def _newest_values(message: Named, seen: Seen) -> Found:
    """The named numbers whose newest values these are; the older ones become stale."""
    found: Found = {}
    for (compared, value), name in message.values.items():
        newest = seen.settles(compared, value)
        if newest and (is_bare(value) or kind_of(value) == "number") and seen.takes(value):
            found[value] = ("number", f"{name} = {value}")
    return found


def _words(message: Named, seen: Seen) -> Found:
    """What is new in the text, a bare number with the word before it."""
    new: Found = {word: (kind, word) for word, kind in message.words.items() if seen.takes(word)}
    for number, name in message.counted.items():
        if number in new:
            new[number] = ("number", f"{name} {number}")
    return new


def _in_arguments(arguments: str) -> dict[str, IdentifierKind]:
    """What the arguments name, with paths that would be plain words in a text."""
    texts = list(_values(arguments)) or [_ends(arguments, RESULT_CHARS)]
    found: dict[str, IdentifierKind] = {text: "path" for text in texts if _is_path(text)}
    for text in texts:
        found = kinds(_ends(text, RESULT_CHARS)) | found
    return found


def _is_path(text: str) -> bool:
    return "/" in text and "://" not in text and len(text) <= MOST_CHARS and not _EDGES.search(text)


def _values(arguments: str) -> Iterator[str]:
    """The texts and numbers in the arguments of a call, in order."""
    waiting: list[Any] = [decoded(arguments) if len(arguments) <= MOST_DECODED_CHARS else None]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting.extend(reversed(value.values()))
        elif isinstance(value, list):
            waiting.extend(reversed(value))
        elif value is not None:
            yield str(value)


def _ends(text: str, most: int) -> str:
    """The text, or its head and tail, where no word was cut."""
    if len(text) <= most:
        return text
    head, tail = text[: most // 2], text[-most // 2 :]
    cuts = [match.start() for match in _EDGES.finditer(head)]
    first = _EDGES.search(tail)
    return f"{head[: cuts[-1]] if cuts else ''}\n{tail[first.end() :] if first else ''}"


TOLD_SHARE = 0.75
"""What was said and called fills at most this share while results have something to add."""

MOST_MISSES = 20
"""After so many identifiers in a row that no longer fit, no more are tried."""

LABELS: dict[IdentifierKind, str] = {
    "path": "Paths",
    "url": "URLs",
    "error": "Errors",
    "number": "Numbers",
    "name": "Names",
}
"""What each line begins with."""


@dataclass(frozen=True, slots=True)
class IndexItems:
    """What may stand in an index, what is wanted most first: what was said and called, and results."""

    told: Sequence[IndexItem]
    found: Sequence[IndexItem]


def index_items(
    told: Iterable[Named], found: Iterable[Named], *, most: int, known: str = "", gone: str = ""
) -> IndexItems:
    """What an index of these messages and results may hold beside what is known, both the newest first.

    It is enough for `most` items of each kind. What stands in `gone` holds no longer, or may not.
    """
    if most <= 0:
        return IndexItems((), ())
    stale = set(identifiers(gone))
    seen = Seen({*identifiers(known), *stale}, stale)
    return IndexItems(_in_turns(_in_message, told, most, seen), _in_turns(_in_result, found, most, seen))


def index_lines(items: IndexItems, *, max_tokens: int, counter: TokenCounter, known: str = "") -> str:
    """The items that so many tokens hold, in labelled lines, without those that `known` holds."""
    there = set(identifiers(known))
    told, found = ([item for item in part if item.word not in there] for part in (items.told, items.found))
    chosen, rest, spent = _taken(told, int(max_tokens * TOLD_SHARE) if found else max_tokens, counter)
    more, _, _ = _taken([*found, *rest], max_tokens - spent, counter)
    return _fitting([*chosen, *more], max_tokens, counter)


def _taken(
    items: Sequence[IndexItem], room: int, counter: TokenCounter
) -> tuple[list[IndexItem], list[IndexItem], int]:
    """The items that the room holds, those it does not, and the tokens of the former with their labels."""
    taken: list[IndexItem] = []
    rest: list[IndexItem] = []
    labelled: set[IdentifierKind] = set()
    spent = misses = 0
    for at, item in enumerate(items):
        label = "" if item.kind in labelled else f"{LABELS[item.kind]}:\n"
        cost = counter(f"{label} {item.text},")
        if spent + cost <= room:
            spent += cost
            taken.append(item)
            labelled.add(item.kind)
            misses = 0
            continue
        rest.append(item)
        misses += 1
        if misses >= MOST_MISSES:
            return taken, [*rest, *items[at + 1 :]], spent
    return taken, rest, spent


def _fitting(items: list[IndexItem], max_tokens: int, counter: TokenCounter) -> str:
    """The lines of the items, the last ones dropped until they surely fit."""
    text = _lines(items)
    while items and counter(text) > max_tokens:
        items = items[: len(items) - len(items) // 10 - 1]
        text = _lines(items)
    return text


def _lines(items: Iterable[IndexItem]) -> str:
    shown: dict[IdentifierKind, list[str]] = {}
    for item in sorted(items, key=lambda item: (-item.message, item.place)):
        shown.setdefault(item.kind, []).append(item.text)
    return "\n".join(f"{label}: {', '.join(shown[kind])}" for kind, label in LABELS.items() if kind in shown)
