"""Private keys in PEM form (https://www.rfc-editor.org/rfc/rfc7468), whole or cut off at either end."""

import re
import string
from collections.abc import Iterator

MOST_LINES = 200
"""A private key of 16,384 bits has 198 lines; more is none."""

MOST_CHARS = 32_000
"""So much of a block is looked at: `MOST_LINES` of 100 characters with a name and a number before each."""

NUMBERED = r"(?:(?:[^\s:]{1,40}:)?[ \t]{0,8}\d{1,6}(?:\t|[:-] ?))?+"
"""What listings and searches write before a line."""

_LABEL = r"[A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
_BEGIN = rf"-----BEGIN {_LABEL}"
_GAP = rf"(?:\s|\\[rn]){{1,4}}+{NUMBERED}"
PATTERN = (
    rf"{_BEGIN}(?:(?:[^-]|-(?!----)){{0,{MOST_CHARS}}}+-----END {_LABEL}"
    # One that was cut off: the lines of letters below the first.
    rf"|(?:{_GAP}[A-Za-z0-9+/=]{{20,100}}+){{0,{MOST_LINES}}}+"
    rf"(?:{_GAP}(?=[A-Za-z+/=]{{0,18}}[0-9])[A-Za-z0-9+/=]{{4,19}})?+)"
)
"""A block with its first line."""

_MOST_MARKER_CHARS = 100
_BEGINS = re.compile(_BEGIN)
_ENDS = re.compile(rf"-----END {_LABEL}")
_BASE64 = string.ascii_letters + string.digits + "+/="
_LEAST_LONG_CHARS, _MOST_LONG_CHARS, _LEAST_LAST_CHARS = 40, 100, 4
_MOST_LINE_CHARS = 400


def open_block(text: str) -> int:
    """Where a block begins whose end may still come; the text's length where there is none."""
    start = text.rfind("-----BEGIN ", max(0, len(text) - MOST_CHARS - _MOST_MARKER_CHARS))
    begun = _BEGINS.match(text, start) if start >= 0 else None
    if begun is None:
        return len(text)
    after = text.find("-----", begun.end())
    return len(text) if 0 <= after < len(text) - _MOST_MARKER_CHARS else start


def body_start(text: str, at: int) -> int:
    """Where the lines of a block begin whose last line this position is in; `at` where there are none.

    They end with 40 to 100 characters of base64, the last of them with 4 or more; what a listing writes
    before them is no part of them.
    """
    line = _line_start(text, at)
    if line > 0 and _LEAST_LAST_CHARS <= _tail(text, line - 1) < _LEAST_LONG_CHARS:
        line = _line_start(text, line - 1)
    start = at
    for _ in range(MOST_LINES):
        chars = _tail(text, line - 1) if line > 0 else 0
        if not _LEAST_LONG_CHARS <= chars <= _MOST_LONG_CHARS:
            break
        start = _line_end(text, line) - chars
        line = _line_start(text, line - 1)
    return start


def headless(text: str) -> Iterator[tuple[int, int]]:
    """From where to where blocks reach of which the text has only the last lines."""
    for end in _ENDS.finditer(text):
        if (start := body_start(text, end.start())) < end.start():
            yield start, end.end()


def _line_start(text: str, at: int) -> int:
    """Where the line begins that this position is in; 0 where that is further than a line of a block goes."""
    return text.rfind("\n", max(0, at - _MOST_LINE_CHARS), at) + 1


def _line_end(text: str, following: int) -> int:
    """Where the line ends behind which the following one begins."""
    return following - (2 if text.startswith("\r\n", following - 2) else 1)


def _tail(text: str, at: int) -> int:
    """How many characters of base64 stand at the end of the line that ends at this line feed."""
    end = _line_end(text, at + 1)
    near = text[max(0, end - _MOST_LONG_CHARS - 1) : end]
    return len(near) - len(near.rstrip(_BASE64))
