"""What a user gives, held to its range or read as a number: one clear line names what is wrong.

Each check takes an argument's name and its value, and raises a `UsageError` with the name and the range. One
whose name ends in `_or_none` lets None pass, which says that there is no limit; every other refuses it, and
that is all in which the two of a pair differ. No check takes True or False for a number. Behind the checks
stands what reads sizes and times, such as `"128k"` and `"30d"`, and how an error shows a value.
"""

import re
import sys
from math import inf
from typing import TypeGuard

from agentloop._plumbing.callables import is_async
from agentloop._plumbing.patterns import pattern
from agentloop.errors import UsageError

MOST_KEPT = 2**53 - 1
"""The largest whole number that all readers of JSON agree on (RFC 8259, section 6; RFC 7493, section 2.2)."""

MOST_COUNT = 2**31 - 1
"""The largest count that a database column of four bytes holds."""

MOST_TOKENS = 1_000_000_000
"""More than any model takes; a larger number is a slip of the hand."""

LEAST_WINDOW = 256
"""No model in use takes fewer tokens: a smaller window, named or guessed, is none, and what was refused has
another reason. Our own figure; the smallest windows in use are several times as large."""


def is_kept_whole(value: object) -> TypeGuard[int]:
    """Whether it is a whole number from 0 to `MOST_KEPT`; True and False are none.

    Example:
        >>> [is_kept_whole(value) for value in (0, MOST_KEPT, MOST_KEPT + 1, -1, 1.0, True)]
        [True, True, False, False, False, False]
    """
    return isinstance(value, int) and 0 <= value <= MOST_KEPT and not isinstance(value, bool)


def is_kept_number(value: object) -> TypeGuard[float]:
    """Whether it is a number that a float holds: finite, and no larger; True and False are none.

    Example:
        >>> [is_kept_number(value) for value in (-2.5, 7, 1e300, float("nan"), 10**400, True)]
        [True, True, True, False, False, False]
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max


def whole(name: str, value: int, least: int, *, most: int | None = None) -> None:
    """Refuse what is no whole number of at least `least`, and at most `most` where that is given."""
    if not _is_whole(value) or value < least or (most is not None and value > most):
        wanted = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise UsageError(f"{name} must be a whole number {wanted}, not {shown(value)}")


def whole_or_none(name: str, value: int | None, least: int, *, most: int | None = None) -> None:
    """The same, None let pass."""
    if value is not None:
        whole(name, value, least, most=most)


def any_whole(name: str, value: int) -> None:
    """Refuse what is no whole number."""
    _hold(name, value, "a whole number", so=_is_whole(value))


def finite(name: str, value: float) -> None:
    """Refuse what is no number that a float has room for."""
    _hold(name, value, "a finite number", so=is_kept_number(value))


def at_least(name: str, value: float, least: float) -> None:
    """Refuse what is no finite number of at least `least`."""
    _hold(name, value, f"a number of at least {least:g}", so=is_kept_number(value) and least <= value)


def at_least_or_none(name: str, value: float | None, least: float) -> None:
    """The same, None let pass."""
    if value is not None:
        at_least(name, value, least)


def from_to(name: str, value: float, least: float, most: float) -> None:
    """Refuse what is no number from `least` to `most`."""
    so = is_kept_number(value) and least <= value <= most
    _hold(name, value, f"a number from {least:g} to {most:g}", so=so)


def above_zero(name: str, value: float) -> None:
    """Refuse what is no number above 0; infinity is one, and says that there is no limit."""
    so = (is_kept_number(value) and value > 0) or value == inf
    _hold(name, value, "a number above 0", so=so)


def finite_above_zero(name: str, value: float) -> None:
    """Refuse what is no finite number above 0."""
    _hold(name, value, "a finite number above 0", so=is_kept_number(value) and value > 0)


def finite_above_zero_or_none(name: str, value: float | None) -> None:
    """The same, None let pass."""
    if value is not None:
        finite_above_zero(name, value)


def up_to(name: str, value: float, most: float) -> None:
    """Refuse what is no number above 0 and at most `most`."""
    so = is_kept_number(value) and 0 < value <= most
    _hold(name, value, f"above 0 and at most {most:g}", so=so)


def fraction(name: str, value: float, *, most: float = 1.0) -> None:
    """Refuse a share that is not above 0 and at most `most`."""
    up_to(name, value, most)


def fraction_or_none(name: str, value: float | None) -> None:
    """Refuse a share that is not above 0 and at most 1, None let pass."""
    if value is not None:
        fraction(name, value)


def share_below_one(name: str, value: float) -> None:
    """Refuse a share that is not at least 0 and below 1."""
    _hold(name, value, "at least 0 and below 1", so=is_kept_number(value) and 0 <= value < 1)


def text(name: str, value: str) -> None:
    """Refuse what is no text."""
    _hold(name, value, "a text", so=isinstance(value, str))


def text_or_none(name: str, value: str | None) -> None:
    """The same, None let pass."""
    if value is not None:
        text(name, value)


def called(name: str, value: object, wanted: str = "a function of a context and a budget") -> None:
    """Refuse what cannot be called as it is: also a class, which is still to be made, and what is async."""
    so = callable(value) and not isinstance(value, type) and not is_async(value)
    _hold(name, value, f"{wanted}, no class and not async", so=so)


def _hold(name: str, value: object, wanted: str, *, so: bool) -> None:
    if not so:
        raise UsageError(f"{name} must be {wanted}, not {shown(value)}")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_SIZE = pattern(r"(\d[\d_,]*(?:\.\d+)?)\s*([km]?)", re.IGNORECASE)
_AMOUNT = pattern(r"\d+(\.\d*)?|\.\d+", re.ASCII)
_TIME = pattern(r"(\d+(?:\.\d*)?|\.\d+)\s*([smhdw]?)", re.ASCII)
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_FACTORS = {"": 1, "k": 1_000, "m": 1_000_000}


def tokens_of(size: int | str) -> int:
    """A number of tokens from `131072`, `"131072"`, `"128k"` (128,000) or `"1m"` (1,000,000).

    Raises:
        UsageError: it is no such size, less than one token, or more than `MOST_TOKENS`.
    """
    tokens = size if isinstance(size, int) else _parsed(size)
    if isinstance(size, bool) or tokens is None or tokens < 1:
        raise UsageError(f"{size!r} is no number of tokens: write one such as 8000, 8k or 1m")
    if tokens > MOST_TOKENS:
        raise UsageError(f"more than {MOST_TOKENS:,} tokens make no sense: write a smaller number")
    return tokens


def named_tokens(name: str, size: int | str) -> int:
    """The same of an argument of that name.

    Raises:
        UsageError: with the name and the range.
    """
    try:
        return tokens_of(size)
    except UsageError as error:
        raise UsageError(f"{name} must be from 1 to {MOST_TOKENS:,} tokens: {error}") from error


def named_tokens_or_none(name: str, size: int | str | None) -> int | None:
    """The same, None let pass.

    Raises:
        UsageError: with the name and the range.
    """
    return None if size is None else named_tokens(name, size)


def amount_of(text: str, *, unit: str) -> float:
    """A number above 0 of that unit, such as `"2"` or `"0.5"`.

    Raises:
        UsageError: it is no such number.
    """
    amount = float(text) if _AMOUNT.fullmatch(text.strip()) else 0.0
    if not 0 < amount < inf:
        raise UsageError(f"{text!r} is no number of {unit} above 0: write one such as 2 or 0.5")
    return amount


def seconds_of(text: str) -> float:
    """A time from `"90"` (seconds), `"90s"`, `"15m"` (minutes), `"12h"`, `"30d"` or `"2w"`.

    Raises:
        UsageError: it is no such time above 0.
    """
    found = _TIME.fullmatch(text.strip().lower())
    seconds = float(found[1]) * _SECONDS[found[2]] if found else 0.0
    if not 0 < seconds < inf:
        raise UsageError(f"{text!r} is no time above 0: write one such as 90, 90s, 15m, 12h, 30d or 2w")
    return seconds


def _parsed(size: object) -> int | None:
    found = _SIZE.fullmatch(size.strip()) if isinstance(size, str) and size.isascii() else None
    if found is None:
        return None
    number, unit = found.groups()
    exact = scaled(number, unit)
    return int(exact) if exact.is_integer() else None


def scaled(number: str, unit: str) -> float:
    """The number that is written so, with a unit of `k` (1,000), `m` (1,000,000), or none.

    Raises:
        ValueError: it is no number.
    """
    return float(number.replace(",", "").replace("_", "")) * _FACTORS[unit.lower()]


def shown(value: object) -> str:
    """A value as an error shows it: its first 60 characters."""
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, str | bytes):
        return repr(value[:60])[:60]
    try:
        return repr(value)[:60]
    except Exception:  # noqa: BLE001 — what is shown is what a user gave: its repr may raise anything
        return f"an object of type {type(value).__name__}"


_MOST_BITS = 190
"""As many as 57 digits take. Python writes no number of more than 4,300, and is slow long before."""
