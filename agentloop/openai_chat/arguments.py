"""The arguments of a call as text that grows: whether they are closed, and what they come to."""

import json
import re

_JSON = json.JSONDecoder()
_BRACKETS = re.compile(r'["{}\[\]]')
_BLANKS = re.compile(r"\s*")
_IN_TEXT = re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)


class Brackets:
    """Whether the JSON value that begins a text is closed, with the text in pieces."""

    def __init__(self) -> None:
        self.closed = False
        self._depth = 0
        self._in_text = False
        self._escaped = False

    def feed(self, piece: str) -> None:
        """Go on with this piece."""
        at = 0
        while at < len(piece):
            at = self._after_text(piece, at) if self._in_text else self._after_bracket(piece, at)

    def _after_text(self, piece: str, at: int) -> int:
        if self._escaped:
            self._escaped = False
            return at + 1
        found = _IN_TEXT.match(piece, at)
        end = found.end() if found else at
        if end < len(piece):
            self._in_text = piece[end] != '"'
            self._escaped = self._in_text
        return end + 1

    def _after_bracket(self, piece: str, at: int) -> int:
        found = _BRACKETS.search(piece, at)
        if found is None:
            return len(piece)
        match found.group():
            case '"':
                self._in_text = True
            case "{" | "[":
                self._depth += 1
            case _:
                self._depth -= 1
                self.closed = self.closed or self._depth <= 0
        return found.end()


def taken_once(arguments: str) -> str:
    """The arguments; an object said several times over counts once, and null is no argument.

    Some servers send all of the arguments once more in the last chunk.
    """
    text = arguments.strip()
    if text == "null":
        return "{}"
    try:
        first, end = _JSON.raw_decode(text) if text else (None, 0)
        at = _past_blanks(text, end)
        while at < len(text):
            again, at = _JSON.raw_decode(text, at)
            if again != first:
                return arguments
            at = _past_blanks(text, at)
    except (ValueError, RecursionError):
        return arguments
    return text[:end] if end < len(text) and isinstance(first, dict) else arguments


def _past_blanks(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return found.end() if found else at
