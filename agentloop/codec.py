"""Records as text: one line of JSON an event, the same in every store and export.

    {"v":1,"kind":"message_added","id":"…","time":1767225600.0,"message":{"role":"user",…},"tokens":3}

The text is ASCII, so NUL and lone surrogates come back as they were. (JSON cannot tell two code points
that are the halves of one character from that character; they come back as the character.) A reader takes
the default for a field that is absent and passes over fields that it does not know, so old records are read
by newer code. A record of an unknown kind is kept as it is, to the byte.

In every kind that is known, whole numbers lie from 0 to `MOST_KEPT` and all others are finite, whoever wrote
them: no run could count with another. What a plugin notes and what a message holds is theirs.
"""

import dataclasses
import json
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from agentloop._plumbing.checks import MOST_KEPT, is_kept_number, is_kept_whole, shown
from agentloop._plumbing.to_text import first_line
from agentloop.errors import DamagedError, UsageError
from agentloop.events import AnyEvent, Event, Unknown, kind_name
from agentloop.messages import Message

__all__ = ["SCHEMA_VERSION", "Converter", "decode", "encode"]

SCHEMA_VERSION = 1

Converter: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    name: str
    required: bool
    unwritten: Any
    to_json: Converter
    from_json: Converter


def encode(event: Event) -> str:
    """The event as one line of JSON in ASCII; an `Unknown` is its own text.

    Raises:
        UsageError: a field holds what `decode` would refuse, or what JSON cannot say, or the time is no
            finite number: lists are sorted by it.
    """
    kind = event.kind if isinstance(event, Unknown) else _KINDS.get(type(event))
    if kind is None:
        raise UsageError(f"{type(event).__name__} is no event of the log: use one of agentloop.events")
    try:
        if isinstance(event, Unknown):
            return _checked_body(event)
        write, _ = _CONVERTERS[kind]
        return _ENCODER.encode({"v": SCHEMA_VERSION, "kind": kind, **write(event)})
    except (DamagedError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise UsageError(f"a record of kind {kind!r} cannot be stored: {first_line(error)}") from error


def decode(text: str) -> Event:
    """The event that this text says.

    Raises:
        DamagedError: the text is no record, or a damaged one.
    """
    data = _object(text)
    kind, version = data.get("kind"), data.get("v")
    if not isinstance(kind, str) or not isinstance(version, int):
        raise DamagedError(f"damaged record: 'v' or 'kind' is missing in {_shown(text)}")
    if kind not in _CONVERTERS:
        return _unknown(kind, text, data)
    _, read = _CONVERTERS[kind]
    try:
        event: Event = read(data)
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        newer = " (a newer version wrote it: update agentloop)" if version > SCHEMA_VERSION else ""
        raise DamagedError(f"damaged record of kind {kind!r}: {first_line(error)}{newer}") from error
    return event


def _object(text: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"damaged record: {first_line(error)} in {_shown(text)}") from error
    if not isinstance(data, dict):
        raise DamagedError(f"damaged record: no JSON object in {_shown(text)}")
    return data


def _unknown(kind: str, text: str, data: Mapping[str, Any]) -> Unknown:
    name, moment = data.get("id"), data.get("time")
    return Unknown(
        kind=kind,
        body=text,
        id=name if isinstance(name, str) else "",
        time=float(moment) if is_kept_number(moment) else 0.0,
    )


def _checked_body(event: Unknown) -> str:
    """Its text, which `decode` reads back and every store takes."""
    _number("time", float)(event.time)
    event.body.encode()
    back = decode(event.body)
    if not isinstance(back, Unknown) or back.kind != event.kind:
        raise ValueError("its text is a record of another kind")
    return event.body


def _has(data: Mapping[str, Any], field: _Field) -> bool:
    if field.name in data:
        return True
    if field.required:
        raise ValueError(f"{field.name!r} is missing")
    return False


def _shown(text: str) -> str:
    return ascii(text if len(text) <= 60 else text[:60] + "…")


def _converters(name: str, hint: Any) -> tuple[Converter, Converter]:
    """How a field of that name and type is written and read; derived from the annotation alone."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Message:
        return Message.to_openai, Message.from_openai
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return converters_of(hint)
    if origin in (Union, types.UnionType):
        return _of_optional(name, *(argument for argument in arguments if argument is not types.NoneType))
    if origin is tuple:
        return _of_tuple(name, arguments)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        check = _checked(Mapping)
        return (lambda value: dict(check(value))), check
    if origin is Literal:
        check = _one_of(arguments)
    else:
        check = _number(name, hint) if hint in _NUMBERS else _checked(hint)
    return check, check


def converters_of(kind: type) -> tuple[Converter, Converter]:
    """How a frozen dataclass is written as a JSON object and read back; fields that it lacks are passed over.

    Fields that came later are not written where they say nothing.

    Who reads raises a `ValueError` or a `TypeError` where that is none.
    """
    fields, check = _fields(kind), _checked(dict)

    def write(value: Any) -> dict[str, Any]:
        said = ((field, getattr(value, field.name)) for field in fields)
        return {field.name: field.to_json(each) for field, each in said if each is not field.unwritten}

    def read(data: Any) -> Any:
        check(data)
        return kind(**{f.name: f.from_json(data[f.name]) for f in fields if _has(data, f)})

    return write, read


def _of_optional(name: str, hint: Any) -> tuple[Converter, Converter]:
    write, read = _converters(name, hint)
    return (
        lambda value: None if value is None else write(value),
        lambda value: None if value is None else read(value),
    )


def _of_tuple(name: str, arguments: tuple[Any, ...]) -> tuple[Converter, Converter]:
    write, read = _converters(name, arguments[0])
    length = None if arguments[-1] is Ellipsis else len(arguments)
    check = _checked(list, tuple)

    def each(value: Any, convert: Converter) -> list[Any]:
        if length not in (None, len(check(value))):
            raise ValueError(f"{length} values wanted, not {len(value)}")
        return [convert(item) for item in check(value)]

    return (lambda value: each(value, write)), (lambda value: tuple(each(value, read)))


def _checked(*accepted: type) -> Converter:
    def check(value: Any) -> Any:
        if isinstance(value, accepted):
            return value
        raise TypeError(f"{_shown(repr(value))} is no {accepted[0].__name__}")

    return check


def _number(name: str, hint: type) -> Converter:
    is_kept, wanted = _NUMBERS[hint]

    def check(value: Any) -> Any:
        if is_kept(value):
            return value
        raise ValueError(f"{name!r} must be {wanted}, not {shown(value)}")

    return check


def _one_of(words: tuple[Any, ...]) -> Converter:
    def check(value: Any) -> Any:
        if value in words:
            return value
        raise TypeError(f"{_shown(repr(value))} is none of {', '.join(words)}")

    return check


def _fields(kind: type) -> tuple[_Field, ...]:
    hints = get_type_hints(kind)
    fields = []
    for field in dataclasses.fields(kind):
        write, read = _converters(field.name, hints[field.name])
        required = field.default is MISSING and field.default_factory is MISSING
        unwritten = field.default if field.metadata.get("later") else MISSING
        fields.append(
            _Field(name=field.name, required=required, unwritten=unwritten, to_json=write, from_json=read)
        )
    return tuple(fields)


_NUMBERS: Mapping[type, tuple[Callable[[Any], bool], str]] = {
    int: (is_kept_whole, f"a whole number from 0 to {MOST_KEPT}"),
    float: (is_kept_number, "a finite number"),
}
_ENCODER = json.JSONEncoder(separators=(",", ":"), check_circular=False)
_KINDS: Mapping[type[Event], str] = {
    kind: kind_name(kind) for kind in get_args(AnyEvent) if kind is not Unknown
}
_CONVERTERS: Mapping[str, tuple[Converter, Converter]] = {
    name: converters_of(kind) for kind, name in _KINDS.items()
}
