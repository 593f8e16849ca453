"""The key, the credentials of headers and of an address, kept out of every text."""

import re
from collections.abc import Iterator, Sequence
from urllib.parse import quote, quote_plus, unquote

from agentloop.redaction import secrets_in_address

WIPED = "***"
_LEAST_PART = 8
"""So many characters of a key in a row are a part of it: prefixes such as `sk-proj-` are no longer."""

_LEAST_SECRET = 3
"""What is shorter than this stands in too many words to be wiped."""

_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
_MASK = re.compile(r"\*{2,}|\.{3,}|…|•{2,}|[xX]{4,}")
_CREDENTIALS = re.compile(r"(?<=://)[^\s/@\"'<>]{1,300}@")
_EDGE = re.compile(r"[\s\"'`<>:=]")
_MOST_EDGE = 300
"""So far to each side of a mask is looked: longer than keys in use are, and linear in the text."""


def wipe_secrets(text: str, keys: Sequence[str], url: str) -> str:
    """The text with three stars for the keys, for longer parts of them, and for credentials of the URL.

    Each goes in any case of its letters, and as it stands in a URL; so does what `secrets_in_address` finds.
    A key that a server masked in the middle, as in `sk-ab***yz`, goes whole.
    """
    text = _CREDENTIALS.sub(f"{WIPED}@", text)
    forms = {form for each in (*keys, *secrets_in_address(url)) for form in _forms(each)}
    for secret in sorted((form for form in forms if len(form) >= _LEAST_SECRET), key=len, reverse=True):
        text = _without(text, secret)
    for key in keys:
        text = _without_masked(text, key)
    return text


def _forms(secret: str) -> tuple[str, ...]:
    return secret, unquote(secret), quote(secret), quote(secret, safe=""), quote_plus(secret)


def _without(text: str, secret: str) -> str:
    """Without each run of the secret's characters that is long enough to be no chance."""
    width = min(_LEAST_PART, len(secret))
    lowered, secret = _lower(text), _lower(secret)
    parts = {secret[at : at + width] for at in range(len(secret) - width + 1)}
    found = sorted(at for part in parts for at in _places(lowered, part))
    pieces: list[str] = []
    end = 0
    for at in found:
        if at > end or not pieces:
            pieces += (text[end:at], WIPED)
        end = at + width
    return "".join((*pieces, text[end:]))


def _lower(text: str) -> str:
    """The text with its letters A to Z small, as long as it was; other alphabets have no keys."""
    return text.lower() if text.isascii() else text.translate(_LOWER)


def _places(text: str, part: str) -> Iterator[int]:
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + 1)


def _without_masked(text: str, key: str) -> str:
    pieces: list[str] = []
    end = 0
    for mask in _MASK.finditer(text):
        before = text[max(end, mask.start() - _MOST_EDGE) : mask.start()]
        after = text[mask.end() : mask.end() + _MOST_EDGE]
        head, tail = _EDGE.split(before)[-1], _EDGE.split(after)[0].rstrip(".,;)]}")
        if len(head) + len(tail) >= _LEAST_SECRET and key.startswith(head) and key.endswith(tail):
            pieces += (text[end : mask.start() - len(head)], WIPED)
            end = mask.end() + len(tail)
    return "".join((*pieces, text[end:])) if pieces else text
