"""Whether a JSON value is closed, with its text in pieces."""

import re

_BRACKETS = re.compile(r'["{}\[\]]')
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
