"""Sizes and times as people write them, read as numbers: `"128k"` tokens, `"30d"`."""

import re
from math import inf

from agentloop._plumbing.checks import MOST_COUNT, shown
from agentloop._plumbing.patterns import pattern
from agentloop.errors import UsageError

MOST_TOKENS = 1_000_000_000
"""More than any model takes; a larger number is a slip of the hand."""

LEAST_WINDOW = 256
"""No model in use takes fewer tokens: a smaller window, named or guessed, is none, and what was refused has
another reason. Our own figure; the smallest windows in use are several times as large."""

_SIZE = pattern(r"(\d[\d_,]*(?:\.\d+)?)\s*([km]?)", re.IGNORECASE)
_WHOLE = pattern(r"0*([0-9]+)")
_MOST_DIGITS = 18
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
        raise UsageError(f"{shown(size)} is no number of tokens: write one such as 8000, 8k or 1m")
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


def whole_of(text: str, *, least: int = 1, most: int = MOST_COUNT) -> int:
    """A whole number of that range, such as `"5"`.

    Raises:
        UsageError: it is no such number.
    """
    found = _WHOLE.fullmatch(text.strip())
    number = 0 if found is None else most + 1 if len(found[1]) > _MOST_DIGITS else int(found[1])
    if number > most:
        raise UsageError(f"{shown(text)} is more than {most:,}: write a smaller number")
    if found is None or number < least:
        raise UsageError(
            f"{shown(text)} is no whole number of at least {least}: write one such as {max(least, 5)}"
        )
    return number


def amount_of(text: str, *, unit: str) -> float:
    """A number above 0 of that unit, such as `"2"` or `"0.5"`.

    Raises:
        UsageError: it is no such number.
    """
    amount = float(text) if _AMOUNT.fullmatch(text.strip()) else 0.0
    if not 0 < amount < inf:
        raise UsageError(f"{shown(text)} is no number of {unit} above 0: write one such as 2 or 0.5")
    return amount


def seconds_of(text: str) -> float:
    """A time from `"90"` (seconds), `"90s"`, `"15m"` (minutes), `"12h"`, `"30d"` or `"2w"`.

    Raises:
        UsageError: it is no such time above 0.
    """
    found = _TIME.fullmatch(text.strip().lower())
    seconds = float(found[1]) * _SECONDS[found[2]] if found else 0.0
    if not 0 < seconds < inf:
        raise UsageError(f"{shown(text)} is no time above 0: write one such as 90, 90s, 15m, 12h, 30d or 2w")
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
