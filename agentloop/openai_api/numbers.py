"""A number of tokens as servers write it, in fields and in sentences."""

import re

from agentloop._plumbing.checks import LEAST_WINDOW, MOST_TOKENS

NUMBER = (
    r"(?<!\d)(?:\d{1,3}(?:[,. _'’\u00a0\u202f]\d{3}){1,5}(?!\d)"
    r"|\d[\d,_]{0,20}(?:\.\d{1,9})?(?:e\d{1,2}(?!\w))?)(?:[ \u00a0]?[kKmM](?![\w/]))?"
)
"""A number in a sentence: its thousands may be parted, and `k` or `M` may stand behind it.

It begins where digits do and has an end, or a long row of them would take time with the square of its length.
"""

_MOST_CHARS = len(f"{MOST_TOKENS:,}.00 k")
_WRITTEN = re.compile(r"([\d.,_'’\u00a0\u202f ]+(?:e\d{1,2})?)([km]?)", re.ASCII | re.IGNORECASE)
_THOUSANDS = re.compile(r"(?<=\d)[., _'’\u00a0\u202f](?=\d{3}(?!\d))")
_IN_THOUSANDS = re.compile(r"\d{1,3}([., '’\u00a0\u202f])\d{3}(\1\d{3})*", re.ASCII)
_FACTORS = {"": 1, "k": 1_000, "m": 1_000_000}


def tokens_in(value: object) -> int | None:
    """A number from 1 to `MOST_TOKENS`, also one that stands there as text; None for anything else.

    Example:
        >>> tokens_in("128,000"), tokens_in(8192.0), tokens_in(True), tokens_in("٤")
        (128000, 8192, None, None)
        >>> tokens_in("128K"), tokens_in("32.768"), tokens_in("200 000"), tokens_in("1.5M"), tokens_in("1e6")
        (128000, 32768, 200000, 1500000, 1000000)
    """
    if isinstance(value, str) and len(value) <= _MOST_CHARS:
        value = _written(value.strip())
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= MOST_TOKENS:
        return None
    return int(value)


def believed_window(tokens: int | None) -> int | None:
    """The window that a server names; None where it is smaller than any model's."""
    return tokens if tokens is not None and tokens >= LEAST_WINDOW else None


def _written(text: str) -> float | None:
    found = _WRITTEN.fullmatch(text)
    if found is None:
        return None
    number, unit = found[1].strip(), found[2].lower()
    if not unit and _IN_THOUSANDS.fullmatch(number):
        number = _THOUSANDS.sub("", number)
    try:
        return float(number.replace(",", "").replace("_", "")) * _FACTORS[unit]
    except ValueError:
        return None
