"""Words: runs of printable ASCII and escape characters, which a match in a text piece by piece is made of."""

import re

_LETTER = r"!-~\x1b"
"""An escape character begins a colour code, which may stand in the middle of what is one secret."""

WORD = re.compile(rf"[{_LETTER}]+")
NO_WORD = re.compile(rf"[^{_LETTER}]")
LINE_BREAK = re.compile(rf"[^{_LETTER} \t]+|[ \t]{{9,}}")
"""What stands between two words that no match has both of."""


def has_break(text: str) -> bool:
    """Whether a word ends in the text."""
    return NO_WORD.search(text) is not None


def word_start(text: str, at: int) -> int:
    """Where the word begins that this position is in."""
    if not 0 < at < len(text):
        return at
    while at and WORD.match(text, at - 1):
        at -= 1
    return at


def words_end(text: str, openers: tuple[str, ...], *, most: int) -> int:
    """Where the last `most` words of the last line begin that may be a part of what is still to come.

    That is the last one where it has no end yet, and the first of them that holds an opener in small letters.
    """
    line = 0
    for match in LINE_BREAK.finditer(text):
        line = match.end()
    words = [match.span() for match in WORD.finditer(text, line)][-most:]
    for start, end in words:
        word = text[start:end].lower()
        if end == len(text) or any(opener in word for opener in openers):
            return start
    return len(text)
