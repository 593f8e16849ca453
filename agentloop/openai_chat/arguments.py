"""The arguments of a call: what the text that came for them comes to."""

import json
import re
from collections.abc import Iterator

_JSON = json.JSONDecoder()
_BLANKS = re.compile(r"\s*")


def taken_once(arguments: str) -> str:
    """The arguments; an object said several times over counts once, and null is no argument.

    Some servers send all of the arguments once more in the last chunk, others an empty object in the first.
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
