"""What a server or a client says, without the key and the passwords that were sent to it."""

import re
from collections.abc import Iterator
from urllib.parse import quote, unquote, urlsplit, urlunsplit

WIPED = "***"
LEAST_PART = 8
"""So many characters of a key in a row are taken for a part of it."""

_LEAST_SECRET = 3
_MASK = re.compile(r"\*{2,}|\.{3,}|…|•{2,}|[xX]{4,}")
_CREDENTIALS = re.compile(r"(?<=://)[^\s/@\"'<>]{1,300}@")
_EDGE = re.compile(r"[\s\"'`<>:=]")
_MOST_EDGE = 300


def place_of(url: str) -> str:
    """The URL without credentials, query and fragment; what is none, without what stands before an `@`."""
    try:
        parts = urlsplit(url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    except ValueError:
        return re.sub(r"[^/]*@", "", url)


def parted(url: str) -> tuple[str, tuple[str, str] | None]:
    """The URL without credentials, and the user and password that stand in it."""
    parts = urlsplit(url)
    if parts.username is None and parts.password is None:
        return url, None
    address = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    return address, (unquote(parts.username or ""), unquote(parts.password or ""))


def without_secrets(text: str, key: str, url: str) -> str:
    """The text with three stars for the key, for longer parts of it, and for credentials of the URL.

    A key that a server masked in the middle, as in `sk-ab***yz`, goes whole.
    """
    text = _CREDENTIALS.sub(f"{WIPED}@", text)
    for secret in _secrets(key, url):
        text = _without(text, secret)
    return _without_masked(text, key)


def _secrets(key: str, url: str) -> Iterator[str]:
    found = [key]
    try:
        parts = urlsplit(url)
        found += (parts.password or "", parts.netloc.rpartition("@")[0])
    except ValueError:
        pass
    forms = {form for each in found for form in (each, unquote(each), quote(each, safe=""))}
    yield from sorted((form for form in forms if len(form) >= _LEAST_SECRET), key=len, reverse=True)


def _without(text: str, secret: str) -> str:
    """Without each run of the secret's characters that is long enough to be no chance."""
    width = min(LEAST_PART, len(secret))
    parts = {secret[at : at + width] for at in range(len(secret) - width + 1)}
    found = sorted(at for part in parts for at in _places(text, part))
    pieces: list[str] = []
    end = 0
    for at in found:
        if at > end or not pieces:
            pieces += (text[end:at], WIPED)
        end = at + width
    return "".join((*pieces, text[end:]))


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
