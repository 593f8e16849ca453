"""What the text of a value stands for; a row of `options` names the function that reads it.

`--help` loads this too, so what few calls need loads when it is first used.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

from agentloop._plumbing.checks import headers_or_none, shown
from agentloop._plumbing.files import read_path
from agentloop._plumbing.strict_json import strict_value
from agentloop.errors import UsageError
from agentloop.rules import Rules

T = TypeVar("T")
WhenBusy: TypeAlias = Literal["refuse", "wait", "take_over"]
"""That of `sessions`, which load slowly."""
_WHEN_BUSY: Mapping[str, WhenBusy] = {"refuse": "refuse", "wait": "wait", "take-over": "take_over"}


def read(source: str, value: Any, of: Callable[[Any], T]) -> T:
    """What a value stands for that was given by this flag, variable, or key of a file.

    Raises:
        UsageError: it stands for nothing; the text names where it came from.
    """
    try:
        return of(value)
    except UsageError as error:
        raise UsageError(f"{source}: {error}") from error


def json_object(text: str, name: str, example: str) -> dict[str, Any]:
    """The object that a text of that name is as JSON.

    Raises:
        UsageError: it is none; with the example.
    """
    try:
        value = strict_value(text)
    except ValueError as error:
        raise UsageError(f"{name} is no JSON: {error}") from error
    if isinstance(value, dict):
        return value
    raise UsageError(f"{name} is no JSON object: write e.g. '{example}'")


def read_server(text: str) -> str:
    """The URL of a server, as it stands; a password in what is none is not repeated."""
    if text.lower().startswith(("http://", "https://")):
        return text
    harmless = import_module("agentloop.redaction").without_credentials(text)
    raise UsageError(f"{harmless!r} is no server: begin it with http:// or https://")


def read_word(text: str, words: Sequence[str], fault: str) -> str:
    """The text, which is one of the words; `fault` says what another is."""
    if text in words:
        return text
    raise UsageError(f"{shown(text)} is {fault}: use {', '.join(words[:-1])} or {words[-1]}")


def read_headers(lines: Sequence[str]) -> Mapping[str, str]:
    """The headers that these lines give, each a name, a colon and a value, which no fault repeats."""
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise UsageError("a header without a colon: write 'NAME: VALUE'")
        if name.lower() in map(str.lower, headers):
            raise UsageError(f"{name} is given twice")
        headers[name] = value
    return headers_or_none("the header", headers) or {}


def read_when_busy(text: str) -> WhenBusy:
    """The rule of that name, which may also be written as in Python: `take_over`.

    Raises:
        UsageError: there is none.
    """
    return _WHEN_BUSY[read_word(text.strip().lower().replace("_", "-"), tuple(_WHEN_BUSY), "no rule")]


def read_folder(text: str) -> Path:
    """The folder, which is there."""
    named = read_path(text)
    try:
        if named.is_dir():
            return named.resolve(strict=True)
        fault = "is a file, not a folder" if named.exists() else "is not there"
    except (OSError, ValueError) as error:
        fault = "cannot be used, " + (getattr(error, "strerror", None) or str(error))
    raise UsageError(f"{text!r} {fault}: name a folder that exists")


def read_variables(names: Sequence[str]) -> tuple[str, ...]:
    """Names that variables of the environment can have."""
    for name in names:
        if not name or "=" in name or "\0" in name:
            raise UsageError(f"{shown(name)} is no name of a variable: write e.g. GITHUB_TOKEN")
    return tuple(names)


def read_fraction(text: str) -> float | None:
    """The share, above 0 and at most 1; None for `off`."""
    if text.strip().lower() == "off":
        return None
    share = share_of(text)
    if not 0 < share <= 1:
        raise UsageError(
            f"{shown(text)} is no share above 0 and up to 1: write one such as 0.8 or 80%, or off"
        )
    return share


def share_of(text: str) -> float:
    """The share that is written as `0.3` or `30%`; NaN for what is no number."""
    word = text.strip()
    return _number(word.removesuffix("%")) / (100 if word.endswith("%") else 1)


def read_temperature(text: str) -> float:
    """A finite number of at least 0."""
    if 0 <= (number := _number(text)) < math.inf:
        return number
    raise UsageError(f"{shown(text)} is no number of at least 0: write one such as 0.7")


def _number(text: str) -> float:
    """The number that the text says, NaN for none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def read_rules(name: str, lines: Sequence[str]) -> tuple[str, ...]:
    """The rules that deny, ask or allow, as that name says."""
    try:
        Rules(**{name: lines})
    except UsageError as error:
        raise UsageError(str(error).removeprefix(f"{name}: ")) from error
    return tuple(lines)


def read_object(text: str) -> Mapping[str, Any]:
    """A JSON object."""
    return json_object(text, shown(text), '{"top_p": 0.9}')


def read_owner(text: str) -> str:
    """The owner of sessions."""
    return str(import_module("agentloop.stores.base").checked_owner(text))


def read_last(value: Any) -> Any:
    """The value as it stands: `settings` reads it when all others are known."""
    return value
