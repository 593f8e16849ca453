"""What strict UTF-8 and strict JSON cannot hold: refused where it is read, replaced where it is written."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Never

from agentloop._plumbing.patterns import pattern
from agentloop.bounds import MOST_NESTED

_ESCAPE = pattern(
    r"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\[^u])|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)
"""An escape in JSON; the first group is one that may stand: of a whole pair, or of one character."""
_SURROGATE = pattern(r"\\u[dD][89a-fA-F]")
_CONTROL = pattern(r"[\x00-\x1f]")
_BRACKET = pattern(r"[\[\]{}]")
_STRING = pattern(r'"(?:[^"\\]++|\\[\s\S])*+"?')


def cleaned(value: Any) -> Any:
    """The value as strict JSON in strict UTF-8: lone surrogates become U+FFFD, what JSON lacks text."""
    match value:
        case str():
            return (
                value
                if encodes(value)
                else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            )
        case dict():
            return {cleaned(str(key)): cleaned(item) for key, item in value.items()}
        case list() | tuple():
            return [cleaned(item) for item in value]
        case float() if value != value or value in (float("inf"), float("-inf")):
            return str(value)
    return value


def cleaned_json(text: str) -> str:
    r"""The text of a JSON value as strict JSON; what is strict stands as it was.

    Lone surrogates, escaped ones too, become U+FFFD; raw control characters in strings are escaped.

    >>> print(cleaned_json(r'{"smile": "\ud83d\ude42", "half": "\ud83d", "none": "\\ud83d"}'))
    {"smile": "\ud83d\ude42", "half": "\ufffd", "none": "\\ud83d"}
    >>> print(cleaned_json('{"two":' + chr(10) + '"a' + chr(10) + 'b"}'))
    {"two":
    "a\nb"}
    """
    text = str(cleaned(text))
    if _CONTROL.search(text):
        text = _STRING.sub(lambda found: _CONTROL.sub(_escaped, found[0]), text)
    if not _SURROGATE.search(text):
        return text
    return _ESCAPE.sub(lambda escape: escape[1] or "\\ufffd", text)


def _escaped(control: re.Match[str]) -> str:
    return json.dumps(control[0])[1:-1]


def without_half(text: str) -> tuple[str, str]:
    """The text as far as it is whole, and the first half of a surrogate pair at its end, which may wait."""
    if encodes(text):
        return text, ""
    half = text[-1] if "\ud800" <= text[-1] <= "\udbff" else ""
    return str(cleaned(text[: len(text) - len(half)])), half


def joined(text: str) -> str:
    """The text as JSON brings it back: two halves are their character, a half alone stays as it is."""
    return text if encodes(text) else text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def encodes(text: str) -> bool:
    """Whether the text is strict UTF-8: it holds no lone surrogate."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def no_number(text: str) -> Never:
    """Refuse NaN, an infinity, or a number beyond it, as a decoder meets it."""
    raise ValueError(f"{text[:40]} is no number that JSON can keep: write another")


def finite(text: str) -> float:
    """The number, which is to be finite."""
    number = float(text)
    return number if math.isfinite(number) else no_number(text)


STRICT_JSON = json.JSONDecoder(parse_constant=no_number, parse_float=finite)
"""Decodes what every parser of JSON takes: NaN, the infinities and numbers beyond them are a ValueError."""


_LENIENT_JSON = json.JSONDecoder(strict=False)


def strict_value(text: str) -> Any:
    """The value that the text is as strict JSON, cleaned.

    Raises:
        ValueError: it is none, or nested over `MOST_NESTED` levels deep.
    """
    if _is_deep(text):
        raise ValueError(f"nested over {MOST_NESTED} levels deep")
    return STRICT_JSON.decode(cleaned_json(text))


def lenient_value(text: str | bytes, default: object = None) -> Any:
    """The JSON value that the text is, its strings as models write them; `default` where it is none.

    >>> lenient_value("[1]"), lenient_value("[1"), lenient_value("[1", "[1")
    ([1], None, '[1')
    """
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return default


def json_at(text: str, at: int) -> tuple[Any, int] | None:
    """The JSON value that begins at that place, and where it ends; None where none does, or one too deep.

    Control characters may stand in its strings, as models write them.

    >>> json_at('It is {"a": 1}.', 6), json_at("It is", 0)
    (({'a': 1}, 14), None)
    """
    try:
        return _LENIENT_JSON.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None


def _is_deep(text: str) -> bool:
    if text.count("[") + text.count("{") <= MOST_NESTED:
        return False
    nesting = Nesting()
    nesting.feed(text)
    return nesting.deepest > MOST_NESTED


class Nesting:
    """How a text of JSON is nested, in pieces of any size; what stands in its strings is passed over.

    `closed` says that the value that begins it is closed, `values` how many there are in lists and objects.
    """

    def __init__(self) -> None:
        self.closed = False
        self.deepest = self.values = 0
        self._depth = 0
        self._in_string = False
        self._escape = ""

    def feed(self, piece: str) -> None:
        """Go on with this piece."""
        text = (self._escape + piece).replace("\\\\", "").replace('\\"', "")
        self._escape = "\\" if text.endswith("\\") else ""
        parts = text.split('"')
        outside = "".join(parts[self._in_string :: 2])
        self._in_string ^= len(parts) % 2 == 0
        self.values += outside.count(",")
        for bracket in _BRACKET.findall(outside):
            if bracket in "[{":
                self.values += 1
                self._depth += 1
                self.deepest = max(self.deepest, self._depth)
            else:
                self._depth = max(self._depth - 1, 0)
                self.closed = self.closed or not self._depth


def list_or_object(text: str) -> Any:
    """The list or the object that the text is as strict JSON, cleaned; None where it is neither.

    >>> list_or_object('{"a": [1]}'), list_or_object("[]"), list_or_object("1"), list_or_object("{a")
    ({'a': [1]}, [], None, None)
    """
    try:
        value = strict_value(text.strip())
    except ValueError:
        return None
    return value if isinstance(value, list | dict) else None


def mapping_or_empty(value: object) -> Mapping[str, Any]:
    """The value where it is an object of JSON, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def list_or_empty(value: object) -> Sequence[Any]:
    """The value where it is a list of JSON, else an empty one."""
    return value if isinstance(value, list | tuple) else ()
