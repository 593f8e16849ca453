"""Identifiers in a text: paths, names with digits or underscores, URLs, codes. Linear in the text."""

import re
from collections.abc import Iterable

_WORD = re.compile(r"[A-Za-z0-9_/~][A-Za-z0-9_./:@#+~-]{3,119}")
_TELLING = re.compile(r"[0-9_/]|[a-z]\.[a-z]", re.IGNORECASE)
_LETTER = re.compile(r"[A-Za-z]")


def identifiers(text: str) -> list[str]:
    """What must be kept exact to be of use, in order, each once."""
    words = (match.group().rstrip(".:-/") for match in _WORD.finditer(text))
    return list(dict.fromkeys(word for word in words if _tells(word)))


def missing(texts: Iterable[str], present: str, *, most: int) -> tuple[str, ...]:
    """The identifiers of `texts` that do not stand in `present`, newest text first, at most `most`."""
    known = set(identifiers(present))
    found: dict[str, None] = {}
    for text in texts:
        found.update(dict.fromkeys(word for word in identifiers(text) if word not in known))
        if len(found) >= most:
            break
    return tuple(found)[:most]


def _tells(word: str) -> bool:
    return len(word) > 3 and bool(_TELLING.search(word)) and bool(_LETTER.search(word))
