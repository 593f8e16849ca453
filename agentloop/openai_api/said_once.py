"""What counts once though a server says it twice: the arguments of a call, and a call."""

import json
import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TypeVar

C = TypeVar("C")

_JSON = json.JSONDecoder()
_BLANKS = re.compile(r"\s*")


def arguments_once(arguments: str) -> str:
    """The arguments; an object said several times over counts once, and null is no argument.

    Some servers send all of the arguments once more in the last chunk, others an empty object in the first.

    >>> arguments_once('{"x": 1}{"x": 1}'), arguments_once('{"x": 1}{"x": 2}')
    ('{"x": 1}', '{"x": 1}{"x": 2}')
    """
    text = arguments.strip()
    if text == "null":
        return "{}"
    try:
        values = list(_values(text))
    except (ValueError, RecursionError):
        return arguments
    said = [value for value in values[:-1] if value[0] != {}] + values[-1:]
    first = said[0][0] if said else None
    if len(values) < 2 or not isinstance(first, dict) or any(value != first for value, _, _ in said):
        return arguments
    return text[said[0][1] : said[0][2]]


def calls_once(calls: Sequence[C], told: Callable[[C], tuple[Hashable, Hashable]]) -> list[C]:
    """The calls without those that are said again.

    `told` gives the id of a call, false where it has none, and what the call says. Calls of one id that say
    the same are one. Where they differ the server gives one id to several calls, and it tells nothing.

    >>> calls_once([("a", "1"), ("a", "1"), ("b", "1"), ("", "1"), ("", "1")], lambda call: call)
    [('a', '1'), ('b', '1'), ('', '1'), ('', '1')]
    >>> calls_once([("a", "1"), ("a", "2"), ("a", "1")], lambda call: call)
    [('a', '1'), ('a', '2'), ('a', '1')]
    """
    sayings: dict[Hashable, set[Hashable]] = {}
    for its_id, says in map(told, calls):
        sayings.setdefault(its_id, set()).add(says)
    kept: list[C] = []
    seen: set[Hashable] = set()
    for call in calls:
        its_id, _ = told(call)
        if not (its_id and its_id in seen and len(sayings[its_id]) == 1):
            kept.append(call)
        seen.add(its_id)
    return kept


def _values(text: str) -> Iterator[tuple[object, int, int]]:
    """The JSON values that follow one another, and where each begins and ends.

    Raises:
        ValueError: the text holds something else too.
        RecursionError: it is nested too deep.
    """
    end = 0
    while end < len(text):
        start = _past_blanks(text, end)
        value, end = _JSON.raw_decode(text, start)
        yield value, start, end


def _past_blanks(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return found.end() if found else at
