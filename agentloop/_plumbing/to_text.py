"""Any Python value as text, and never an exception, whatever the value does when it is looked at."""

import base64
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set, ValuesView
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, time
from enum import Enum
from pathlib import Path
from traceback import walk_tb
from typing import Any

_MOST_LEVELS = 60
_MOST_VALUES = 500_000
_MOST_ITERATED = 10_000
_MOST_BYTES_SHOWN = 256
_MOST_INT_BITS = 10_000
_NESTED_ERRORS = 10
_LIBRARIES = ("<", f"{Path(json.__file__).parent.parent}{os.sep}", f"{Path(__file__).parent.parent}{os.sep}")
"""Where Python's own code begins, and ours."""
_AS_THEY_ARE = frozenset({str, bool, float, type(None)})


def as_text(value: object) -> str:
    """The value as a text for the model.

    Text stands as it is, None is `(no result)`, bytes are decoded or shown as labelled base64; mappings,
    sequences, sets (sorted), data classes and pydantic models become JSON; all else is its `str`. An
    iterator gives its first 10,000 values. What refers to itself, lies deeper than 60 levels, comes after
    500,000 values or raises when it is looked at, is replaced by a note in brackets.
    """
    if value is None:
        return "(no result)"
    plain = _Plain().of(value)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


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
    """Where it was raised, as `FILE:LINE`: the innermost line that is neither a library's nor ours."""
    frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    theirs = [f"{file}:{line}" for file, line in frames if not _is_library(file)]
    return theirs[-1] if theirs else ""


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


@dataclass(slots=True)
class _Plain:
    """One walk over one value, into what `json.dumps` takes."""

    seen: int = 0
    above: tuple[int, ...] = ()

    def of(self, value: Any) -> Any:
        self.seen += 1
        if self.seen > _MOST_VALUES:
            return "[more values left out]"
        if type(value) in _AS_THEY_ARE:
            return value
        try:
            return self._scalar(value)
        except Exception as error:  # noqa: BLE001 — a value may raise anything from any of its methods
            return f"[{type(value).__name__} that cannot be shown: {error_text(error)}]"

    def _scalar(self, value: Any) -> Any:
        match value:
            case Enum():
                return self.of(value.value) if isinstance(value.value, str | int | float) else value.name
            case str():
                return str.__str__(value)
            case float():
                return float(value)
            case int():
                return int(value) if value.bit_length() <= _MOST_INT_BITS else hex(value)
            case bytes() | bytearray() | memoryview():
                return _bytes_text(bytes(value))
            case date() | time():
                return value.isoformat()
            case BaseException():
                return error_text(value)
            case _:
                return self._nested(value)

    def _nested(self, value: Any) -> Any:
        if id(value) in self.above:
            return f"[this {type(value).__name__} again]"
        if len(self.above) >= _MOST_LEVELS:
            return f"[{type(value).__name__}: deeper levels left out]"
        before, self.above = self.above, (*self.above, id(value))
        try:
            return self._opened(value)
        finally:
            self.above = before

    def _opened(self, value: Any) -> Any:
        if isinstance(value, list):
            return list(self._listed(value, _MOST_VALUES))
        members = _members(value)
        if isinstance(members, Mapping):
            return self._mapping(members)
        if isinstance(value, Set):
            return sorted(self._listed(value, _MOST_VALUES), key=repr)
        if isinstance(value, Sequence | ValuesView):
            return list(self._listed(value, _MOST_VALUES))
        if isinstance(value, Iterator):
            return list(self._listed(value, _MOST_ITERATED))
        return str.__str__(str(value))

    def _mapping(self, members: Mapping[Any, Any]) -> Any:
        pairs = [(self._key(key), self.of(member)) for key, member in members.items()]
        plain = dict(pairs)
        return plain if len(plain) == len(pairs) else [list(pair) for pair in pairs]

    def _key(self, key: Any) -> str:
        plain = self.of(key)
        return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)

    def _listed(self, values: Iterable[Any], most: int) -> Iterator[Any]:
        try:
            for count, value in enumerate(values):
                if count >= most or self.seen >= _MOST_VALUES:
                    yield "[more values left out]"
                    return
                yield self.of(value)
        except Exception as error:  # noqa: BLE001 — what came before the failure is still a result
            yield rest_failed(error)


def _members(value: Any) -> Any:
    """The named parts of a value that has some, else None."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, type):
        return None
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return value._asdict()
    if callable(getattr(type(value), "model_dump", None)):
        return _model_members(value)
    return None


def _model_members(value: Any) -> Any:
    try:
        return value.model_dump(mode="json")
    except Exception:  # noqa: BLE001 — a model that refers to itself or holds foreign values is read by hand
        return dict(value)


def _bytes_text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        head = base64.b64encode(data[:_MOST_BYTES_SHOWN]).decode("ascii")
        shown = "base64" if len(data) <= _MOST_BYTES_SHOWN else f"base64 of the first {_MOST_BYTES_SHOWN}"
        return f"[{len(data):,} bytes that are no text; {shown}: {head}]"
