"""Any Python value as text, and never an exception, whatever the value does when it is looked at."""

import base64
import json
import os
from collections.abc import Iterator, Mapping, Sequence, Set, ValuesView
from dataclasses import fields, is_dataclass
from datetime import date, time
from enum import Enum
from pathlib import Path
from traceback import walk_tb
from typing import Any

_MOST_ITERATED = 10_000
_MOST_COMPUTED = 500_000
_MOST_BYTES_SHOWN = 256
_NESTED_ERRORS = 10
_LIBRARIES = ("<", f"{Path(json.__file__).parent.parent}{os.sep}", f"{Path(__file__).parent.parent}{os.sep}")
"""Where Python's own code begins, and ours."""


def as_text(value: object) -> str:
    """The value as a text for the model.

    Text stands as it is, None is `(no result)`, bytes are decoded or shown as labelled base64; mappings,
    sequences, sets (sorted), data classes and pydantic models become JSON, also as parts of others; all else
    is its `str`. An iterator gives its first 10,000 values, a range or its like 500,000. What JSON cannot
    hold is its `str` as a whole, and what raises when it is looked at is named in brackets.
    """
    if value is None:
        return "(no result)"
    plain = _plain(value)
    if isinstance(plain, str):
        return str.__str__(plain)
    try:
        return json.dumps(_jsonable(plain), ensure_ascii=False)
    except Exception:  # noqa: BLE001 — it refers to itself, or is too deep
        return _whole(plain)


def error_text(error: BaseException) -> str:
    """The error's type and text, those of a group's members too; also where it has no text or raises."""
    return _error_text(error, levels=3)


def words_of(error: BaseException) -> str:
    """What the error says, or its type where that is nothing.

    >>> words_of(ValueError("too long")), words_of(TimeoutError())
    ('too long', 'TimeoutError')
    """
    try:
        return str(error).strip() or type(error).__name__
    except Exception:  # noqa: BLE001 — an error whose __str__ raises must still be named
        return type(error).__name__


def first_line(error: BaseException) -> str:
    """The first line of what the error says, or its type where that is nothing."""
    return words_of(error).partition("\n")[0]


def strict(text: str) -> str:
    """The text as strict UTF-8 can hold it: halves of characters become question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


def raised_at(error: BaseException) -> str:
    """Where it or its cause was raised, as `FILE:LINE`: the innermost line, no library's and not ours."""
    frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    theirs = [f"{file}:{line}" for file, line in frames if not _is_library(file)]
    cause = raised_at(error.__cause__) if error.__cause__ else ""
    return theirs[-1] if theirs else cause


def _is_library(file: str) -> bool:
    return file.startswith(_LIBRARIES) or "site-packages" in file or "dist-packages" in file


def rest_failed(error: BaseException) -> str:
    """The note behind values of which the next one raised this."""
    return f"[the rest failed: {error_text(error)}]"


def _error_text(error: BaseException, levels: int) -> str:
    name = type(error).__name__
    try:
        text = str(error).strip()
    except Exception as fault:  # noqa: BLE001 — an error whose __str__ raises must still be named
        return f"{name} (its text cannot be read: {type(fault).__name__})"
    own = f"{name}: {text}" if text else f"{name} (without a text)"
    if not isinstance(error, BaseExceptionGroup) or not levels:
        return own
    members = [_error_text(member, levels - 1) for member in error.exceptions[:_NESTED_ERRORS]]
    return f"{own}: " + "; ".join(members)


def _jsonable(plain: Any) -> Any:
    """The same with all that stands in it."""
    match plain:
        case dict():
            return {_key(key): _jsonable(_plain(value)) for key, value in plain.items()}
        case list() | tuple():
            return [_jsonable(_plain(value)) for value in plain]
    return plain


def _key(key: Any) -> Any:
    return key if isinstance(key, str | int | float | None) else as_text(key)


def _plain(value: Any) -> Any:
    """The value, or what stands for it: text, a number, a list or a dict."""
    try:
        return _opened(value)
    except RecursionError:
        raise
    except Exception as error:  # noqa: BLE001 — a value may raise anything from any of its methods
        return _not_shown(value, error)


def _whole(value: object) -> str:
    try:
        return str.__str__(str(value))
    except Exception as error:  # noqa: BLE001 — see above
        return _not_shown(value, error)


def _not_shown(value: object, error: Exception) -> str:
    return f"[{type(value).__name__} that cannot be shown: {error_text(error)}]"


def _opened(value: Any) -> Any:
    match value:
        case Enum():
            return value.value if isinstance(value.value, str | int | float) else value.name
        case tuple() if hasattr(value, "_asdict"):
            return value._asdict()
        case None | str() | int() | float() | list() | tuple() | dict():
            return value
        case bytes() | bytearray() | memoryview():
            return _bytes_text(bytes(value))
        case date() | time():
            return value.isoformat()
        case BaseException():
            return error_text(value)
        case Mapping():
            return dict(value)
        case Set():
            return sorted(value, key=repr)
        case Sequence() | ValuesView():
            return _values_of(iter(value), _MOST_COMPUTED)
        case Iterator():
            return _values_of(value, _MOST_ITERATED)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    is_model = callable(getattr(type(value), "model_dump", None))
    return value.model_dump() if is_model else str.__str__(str(value))


def _values_of(values: Iterator[Any], most: int) -> list[Any]:
    listed: list[Any] = []
    try:
        for value in values:
            if len(listed) >= most:
                return [*listed, "[more values left out]"]
            listed.append(value)
    except Exception as error:  # noqa: BLE001 — what came before the failure is still a result
        listed.append(rest_failed(error))
    return listed


def _bytes_text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        head = base64.b64encode(data[:_MOST_BYTES_SHOWN]).decode("ascii")
        shown = "base64" if len(data) <= _MOST_BYTES_SHOWN else f"base64 of the first {_MOST_BYTES_SHOWN}"
        return f"[{len(data):,} bytes that are no text; {shown}: {head}]"
