"""Redaction inside of values: messages, events, JSON, errors."""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from agentloop.redaction.secrets import Redact

T = TypeVar("T")

_MOST_PAIR_CHARS = 1_000
"""A longer text that stands alone behind a key is looked at without that key."""

_JSON_TEXTS = ("arguments", "body")
"""Fields and keys that hold JSON as text: the arguments of a call, a record of a kind not known."""


def redacted(value: T, redact: Redact | None) -> T:
    """The value with every text inside redacted, itself where that changes nothing or `redact` is None.

    Mappings, lists, tuples and dataclasses are looked into; arguments that are JSON stay JSON.
    """
    clean: T = value if redact is None else _inside(value, redact)
    return clean


def redact_error(error: BaseException, redact: Redact | None) -> None:
    """Redact what an error and those behind it say, in place, so that no traceback shows more."""
    waiting: list[BaseException | None] = [error] if redact else []
    seen: set[int] = set()
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen or redact is None:
            continue
        seen.add(id(each))
        each.args = tuple(_inside(argument, redact) for argument in each.args)
        for name, value in list(vars(each).items()):
            if isinstance(value, str | Mapping | list | tuple):
                setattr(each, name, _inside(value, redact))
        waiting += (each.__cause__, each.__context__)
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions


def _inside(value: Any, redact: Redact) -> Any:
    match value:
        case str():
            return _same_or(value, redact(value))
        case Mapping():
            clean = {_key(key, redact): _pair(key, item, redact) for key, item in value.items()}
            return _same_or(value, clean)
        case list():
            return _same_or(value, [_inside(item, redact) for item in value])
        case tuple() if type(value) is tuple:
            return _same_or(value, tuple(_inside(item, redact) for item in value))
    if is_dataclass(value) and not isinstance(value, type):
        return _dataclass(value, redact)
    return value


def _same_or(value: Any, clean: Any) -> Any:
    return value if clean == value else clean


def _key(key: Any, redact: Redact) -> Any:
    return redact(key) if isinstance(key, str) else key


def _pair(key: Any, value: Any, redact: Redact) -> Any:
    """The value; a short text also as it would stand behind its key in JSON."""
    if key in _JSON_TEXTS and isinstance(value, str):
        return _json_text(value, redact)
    clean = _inside(value, redact)
    if not isinstance(clean, str) or not isinstance(key, str) or len(clean) > _MOST_PAIR_CHARS:
        return clean
    before = f'"{_key(key, redact)}": "'
    written = redact(f'{before}{clean}"')
    held = written.startswith(before) and written.endswith('"')
    return written[len(before) : -1] if held else clean


def _dataclass(value: Any, redact: Redact) -> Any:
    changed = {}
    for name in (each.name for each in fields(value) if each.init):
        item = getattr(value, name)
        is_json = name in _JSON_TEXTS and isinstance(item, str)
        clean = _json_text(item, redact) if is_json else _inside(item, redact)
        if clean is not item:
            changed[name] = clean
    return replace(value, **changed) if changed else value


def _json_text(text: str, redact: Redact) -> str:
    """JSON text redacted inside of its strings, as they are read and as they are written; else as text."""
    twice: list[str] = []

    def noted(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(found := dict(pairs)) < len(pairs):
            twice.append(text)
        return found

    try:
        value = json.loads(text, object_pairs_hook=noted)
    except (ValueError, RecursionError):
        return redact(text)
    clean = _inside(value, redact)
    if clean is not value or (twice and "\\" in text):
        text = json.dumps(clean, ensure_ascii=False)
    written = redact(text)
    return written if written == text or _is_json(written) else json.dumps({"redacted": written})


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
