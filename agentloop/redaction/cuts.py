"""Cutting a text before anybody has redacted it, so that no secret is cut in two."""

from collections.abc import Iterable
from itertools import takewhile

from agentloop.redaction.secrets import Redact

SLACK_CHARS = 32 * 1024
"""So much beyond a cut is looked at; a secret that is longer may be shown in part."""


def head_before(text: str, slack: int, redact: Redact) -> str:
    """The text without its last `slack` characters, redacted as the whole is.

    Of a secret that the cut goes through nothing is left: it is as far as the text and its part agree.
    """
    whole, part = redact(text), redact(text[: max(0, len(text) - slack)])
    return part[: _agreeing(whole, part)]


def tail_behind(text: str, slack: int, redact: Redact) -> str:
    """The same for the text without its first `slack` characters."""
    whole, part = redact(text), redact(text[slack:])
    return part[len(part) - _agreeing(reversed(whole), reversed(part)) :]


def _agreeing(one: Iterable[str], other: Iterable[str]) -> int:
    """How many letters both have before they differ."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
