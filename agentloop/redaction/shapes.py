"""A shape of secrets: what a kind of key looks like, as a regular expression."""

import re
from dataclasses import dataclass, field
from functools import cache

from agentloop.errors import UsageError

MOST_WORDS = 6
"""So many words of one line a match has at the most, with at most eight blanks between them: an assignment
has three, the head of a block in PEM form up to five."""

RUN = r"[A-Za-z0-9_-]"
_ESCAPES = (
    r"\\[abefnrtv0]",
    r"\\u[0-9A-Fa-f]{4}",
    r"\\x[0-9A-Fa-f]{2}",
    r"%[0-9A-Fa-f]{2}",
    *(rf"[\[;][0-9]{{{digits}}}[A-Za-z]" for digits in range(4)),
)
"""Escapes of JSON and other languages and of URLs, and the ends of those of terminals: no part of a word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One kind of secret: a regular expression, and letters of which one stands in whatever it matches.

    Of a match the group `secret` is what is replaced, or all of it where there is none. `hints` are compared
    without regard to case; a text that holds none of them is not searched. A match must be printable ASCII,
    at most `words` words (6 is the most) with at most eight blanks between them, a hint in the first of them,
    else it may be missed where it is split over chunks; only blocks in PEM form may be longer.

    Example:
        >>> from agentloop import Secrets
        >>> badge = Shape(kind="badge", pattern=r"badge-[0-9]{6}", hints=("badge-",))
        >>> Secrets(shapes=[badge])("My badge-123456!")
        'My [redacted: badge]!'

    Raises:
        UsageError: the kind is not of up to 40 letters, digits, blanks and hyphens, the pattern is none, or
            `words` is no whole number from 1 to 6.
    """

    kind: str
    pattern: str = field(repr=False)
    hints: tuple[str, ...] = field(default=(), repr=False)
    words: int = field(default=MOST_WORDS, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str) or not re.fullmatch(r"[A-Za-z0-9 -]{1,40}", self.kind):
            raise UsageError(f"kind must be 1 to 40 letters, digits, blanks and hyphens, not {self.kind!r}")
        try:
            compiled(self.pattern)
        except (re.error, TypeError) as error:
            raise UsageError(f"pattern must be a regular expression: {error}") from error
        if self.words not in range(1, MOST_WORDS + 1):
            raise UsageError(f"words must be a whole number from 1 to {MOST_WORDS}, not {self.words!r}")
        object.__setattr__(self, "hints", tuple(hint.lower() for hint in self.hints))


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern, compiled when it is first needed, its classes as in ASCII."""
    return re.compile(pattern, re.ASCII)


def apart(begun: str, behind: str = "[A-Za-z0-9]") -> str:
    """That what has just begun stands not behind a character of this class, or right behind an escape."""
    before = "|".join(rf"(?<={escape}{begun})" for escape in _ESCAPES)
    return rf"(?:(?<!{behind}{begun})|{before})"


def prefixed(kind: str, *prefixes: str, rest: str, behind: str = "[A-Za-z0-9]") -> Shape:
    """One of these prefixes, not in the middle of a word of characters of this class, and the rest."""
    begun = (re.escape(prefix) for prefix in prefixes)
    starts = "|".join(rf"{prefix}{apart(prefix, behind)}" for prefix in begun)
    return Shape(kind=kind, pattern=f"(?:{starts}){rest}", hints=prefixes, words=1)
