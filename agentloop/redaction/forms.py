"""The forms in which a known value may stand in a text."""

import json
from base64 import b64encode
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

_LEAST_BASE64_BYTES = 8


def forms_of(value: str) -> frozenset[str]:
    """The value itself and as it stands in JSON, in a URL, and in base64 wherever that begins."""
    return frozenset(form for form in _forms(value) if form)


def _forms(value: str) -> Iterator[str]:
    yield value
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    data = value.encode("utf-8", "surrogatepass")
    for quoted in (quote(data, safe=""), quote(data), quote_plus(data)):
        yield quoted
        yield "".join(_lower_escapes(quoted))
    if len(data) >= _LEAST_BASE64_BYTES:
        for before in range(3):
            plain = _base64(data, before)
            yield plain
            yield plain.replace("+", "-").replace("/", "_")


def _lower_escapes(quoted: str) -> Iterator[str]:
    head, *rest = quoted.split("%")
    yield head
    for part in rest:
        yield f"%{part[:2].lower()}{part[2:]}"


def _base64(data: bytes, before: int) -> str:
    """The characters that the value alone decides where `before` other bytes stand before it."""
    whole = b64encode(bytes(before) + data).decode()
    return whole[-(-before * 8 // 6) : (before + len(data)) * 8 // 6]
