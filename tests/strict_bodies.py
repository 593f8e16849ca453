"""What all parts of the strict provider read and write: bodies of JSON, strictly read, measured in bytes."""

import json
from collections.abc import Iterator
from typing import Any, TypeAlias

Body: TypeAlias = dict[str, Any]
"""A JSON object: the body of a request or an answer, a message, an item."""


def read_strictly(raw: bytes) -> Any:
    """The JSON value in these bytes.

    Raises:
        ValueError: it is no UTF-8, no JSON, a key stands twice in one object, or a number is none.
    """
    return json.loads(raw.decode(), object_pairs_hook=_no_twins, parse_constant=_no_constant)


def encoded(value: object) -> bytes:
    """The value as JSON in UTF-8; lone surrogates are let through."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def size_of(value: object) -> int:
    """The bytes of the value as JSON; 0 where it is empty."""
    return len(encoded(value)) if value else 0


def is_object(arguments: object) -> bool:
    """Whether it is a text that decodes to a JSON object of what every parser takes."""
    try:
        decoded = json.loads(arguments) if isinstance(arguments, str) else None
    except ValueError:
        return False
    return isinstance(decoded, dict) and not any(misencoded(decoded))


def misencoded(body: Body) -> Iterator[str]:
    """What V6 finds: a lone surrogate, or a number that is none."""
    try:
        json.dumps(body, allow_nan=False, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        yield "V6 a text holds a lone surrogate"
    except ValueError:
        yield "V6 a number is NaN or infinite"


def _no_twins(pairs: list[tuple[str, Any]]) -> Body:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return dict(pairs)


def _no_constant(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
