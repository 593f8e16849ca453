"""What stands in the error object of a server: its words, codes and texts, and the places that it names.

A body may be nested as deep as JSON can be; what stands deeper than errors in use are is passed over.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeAlias

from agentloop.openai_api.server_events import as_text

FieldPath: TypeAlias = tuple[str, ...]
"""Where a field stands: the keys from the body down to it, places in lists left out."""

Place: TypeAlias = tuple[str | int, ...]
"""Where a value stands: the keys and the places in lists, as a server names them."""

MOST_NESTED = 8
"""So deep an error is looked into, twice as deep as the `detail` of FastAPI is nested."""

MOST_CHARS = 20_000
"""So much of an error's text is looked at; some servers repeat the whole request in it."""

MOST_ITEMS = 500
"""So many values of an error are looked at; what a validator says of one request is far less."""

_LARGEST = 10**18
_WORDS = (
    *("message", "Message", "detail", "error", "errors", "loc", "msg"),
    *("error_message", "error_msg", "errorMessage", "error_description", "title"),
)
_CODES = ("code", "type", "error_type", "error_code", "__type")
_SPOILT_CODES = frozenset({"tool_use_failed", "output_parse_failed"})
_SPOILT_WORDS = re.compile(r"['\"](tool_use_failed|output_parse_failed|failed_generation)['\"]")
_QUOTED_ERRORS = ("error", "errors", "detail", "message")
_TELLING = dict.fromkeys(
    (
        *(*_CODES, "status", "status_code", "statusCode", "http_status"),
        *("param", "field", "loc", *_WORDS, "n_ctx", "n_prompt_tokens", "metadata", "raw"),
    )
)
_WHAT_WAS_SENT = frozenset(
    {
        *("input", "ctx", "request", "body", "payload", "data", "params", "parameters"),
        *("messages", "tools", "choices"),
    }
)

_Inside: TypeAlias = Callable[[Mapping[str, Any]], Iterable[tuple[str, Any]]]


def parsed(data: bytes) -> object:
    """The JSON in the body of an error, its text where it is none."""
    text = as_text(data).removeprefix("\ufeff").strip()
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return text


def trimmed(body: object, wiped: Callable[[str], str] = str) -> object:
    """A copy of an error as far as it is looked at, its texts and keys wiped, so that all else may go.

    What was sent and is quoted is left out, and what says the reason comes before all that may fill it.
    """
    return _copied(body, wiped, [MOST_ITEMS, 2 * MOST_CHARS], 0)


def _copied(value: Any, wiped: Callable[[str], str], left: list[int], depth: int) -> Any:
    """The copy; `left` is how many values and how many characters more may be in it."""
    left[0] -= 1
    if isinstance(value, str):
        text = wiped(value[: min(MOST_CHARS, max(0, left[1]))])
        left[1] -= len(value)
        return text
    if not isinstance(value, Mapping | list):
        return value if value is None or isinstance(value, bool | float) else _number(value)
    if depth > MOST_NESTED:
        return None
    if isinstance(value, Mapping):
        items = islice(_telling_first(value), max(0, left[0]))
        return {
            wiped(str(key)[:200]): _copied(item, wiped, left, depth + 1) for key, item in items if left[0] > 0
        }
    return [_copied(item, wiped, left, depth + 1) for item in islice(value, max(0, left[0])) if left[0] > 0]


def _telling_first(body: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The fields that say what is wrong before all others, whatever stands in front of them."""
    yield from ((key, body[key]) for key in _TELLING if key in body)
    yield from ((key, value) for key, value in _not_sent(body) if key not in _TELLING)


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and abs(value) < _LARGEST else None


def said(body: object) -> str:
    """The server's own words in an error object, on one line; a gateway's quotation of its provider too."""
    texts = (value for _, value in _walked(body, _words) if isinstance(value, str))
    return on_one_line(dict.fromkeys(texts))


def codes_in(body: object) -> frozenset[str]:
    """The codes in an error object, and in those that it quotes."""
    return frozenset(
        str(each[key]) for each in objects_in(body) for key in _CODES if each.get(key) is not None
    )


def objects_in(body: object) -> Iterator[Mapping[str, Any]]:
    """The error object and those that it quotes, the outer ones first."""
    return (value for _, value in _walked(body, _quoted_errors) if isinstance(value, Mapping))


def is_of_the_answer(body: object) -> bool:
    """Whether the fault is in what the server's model said, though the status may be that of a bad request.

    Groq's codes and the field in which it quotes the model: https://console.groq.com/docs/tool-use. A gateway
    may quote them as text.
    """
    is_quoted = any("failed_generation" in each for each in objects_in(body))
    return is_quoted or bool(_SPOILT_CODES & codes_in(body) or _SPOILT_WORDS.search(said(body)))


def texts_in(body: object) -> Iterator[tuple[str, str]]:
    """Every text in the error with its key, empty in a list; what was sent and is quoted left out."""
    return ((key, value) for key, value in _walked(body, _not_sent) if isinstance(value, str))


def locations_in(body: object) -> Iterator[Place]:
    """Every `loc` in the error, as pydantic writes it."""
    for _, value in _walked(body, _not_sent):
        if isinstance(value, Mapping) and isinstance(loc := value.get("loc"), list):
            yield tuple(part for part in loc if isinstance(part, str | int))


def on_one_line(texts: Iterable[str]) -> str:
    """The texts one behind the other with single blanks, as far as they are looked at."""
    return " ".join(" ".join(text[:MOST_CHARS] for text in texts)[:MOST_CHARS].split())


def _walked(value: Any, inside: _Inside, key: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Every value with its key, the outer ones first; of objects what `inside` gives, of lists all."""
    if depth > MOST_NESTED:
        return
    yield key, value
    if isinstance(value, Mapping):
        for name, item in inside(value):
            yield from _walked(item, inside, str(name), depth + 1)
    elif isinstance(value, list):
        for item in value:
            yield from _walked(item, inside, "", depth + 1)


def _words(body: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield from ((key, body.get(key)) for key in _WORDS)
    if isinstance(metadata := body.get("metadata"), Mapping):
        yield "raw", metadata.get("raw")


def _quoted_errors(body: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((key, body.get(key)) for key in _QUOTED_ERRORS)


def _not_sent(body: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((key, value) for key, value in body.items() if key not in _WHAT_WAS_SENT)
