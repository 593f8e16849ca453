"""Values that a text gives a name: "the deploy port is 8443", "timeout = 30 s"."""

import re
from collections.abc import Iterator

from agentloop.identifiers import kind_of

_NAMED = re.compile(
    r"(?<![\w./-])(?P<name>(?:[A-Za-z][\w-]{0,30}+ ){0,3}[A-Za-z][\w.-]{1,40}+)"
    r"(?P<says> ?[=:] ?| (?:is|are)(?: now)? "
    r"| (?:is|are|was|were|ha(?:s|ve) been)(?: now)? (?:\w{2,12}ed|set|cut) to )"
    r"(?=\S{0,60}[\d_])(?P<value>[^\s\"'`,;|<>()\[\]{}]{1,60}(?: (?:%|[A-Za-z]{1,7}))?)"
)
_BEFORE_NAME = re.compile(r".*\b(?:the|our|my|your|its|this|that|an?|and) ", re.IGNORECASE)
_COUNTED = re.compile(
    r"(?<![\w./-])([A-Za-z][\w-]{1,30}+)(?: | ?[=:] ?)([-+−]?\d{1,15}(?:\.\d{1,12})?)(?![\w/%]|[.,:-]\d| ?%)"
)
_BARE = re.compile(r"[-+−]?\d{1,15}(?:\.\d{1,12})?")


def named_values(text: str) -> Iterator[tuple[str, str]]:
    """Each name, of three words at most and without an article, with the value it is given, in order.

    A value is a number, with its unit where it has one; where the text says "is", any exact name as well.
    Linear in the text.

    Example:
        >>> list(named_values("The deploy port is 8443, the timeout was raised to 30 s."))
        [('deploy port', '8443'), ('timeout', '30 s')]
    """
    for match in _NAMED.finditer(text):
        plain = match["says"].strip() in ("=", ":")
        if value := _value(match["value"], kinds=("number",) if plain else ("number", "name")):
            yield " ".join(_BEFORE_NAME.sub("", match["name"]).split()[-3:]), value


def counted(text: str) -> dict[str, str]:
    """Bare numbers of a text with the word before each: `{"8443": "port"}` for "port 8443"."""
    return {number: word for word, number in _COUNTED.findall(text)}


def is_bare(text: str) -> bool:
    """Whether the text is a number without a unit."""
    return bool(_BARE.fullmatch(text))


def _value(found: str, *, kinds: tuple[str, ...]) -> str | None:
    for text in (found, found.split(" ")[0]):
        word = text.rstrip(".,:;!?")
        if is_bare(word) or kind_of(word) in kinds:
            return word
    return None
