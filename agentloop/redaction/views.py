"""A text as JSON, URLs, terminals and base64 mean it, and where each letter of that was written.

A secret may stand in a text with any of its letters escaped, with colours between them, or in base64 that is
parted into lines. Instead of a pattern for each way of writing there are views of the text: in one of them
the secret stands as it is. They are made in time linear in the text.
"""

import json
import string
from binascii import a2b_base64
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise

from agentloop._plumbing.patterns import pattern

UNSEEN_LETTERS = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
    "\U000e0000-\U000e0fff"
)
"""Letters that take no room and say nothing, as in a class of a pattern."""

_MOST_LAYERS = 3
"""JSON in JSON in a URL; what is escaped more often than that is read no further."""

_HEX = "[0-9A-Fa-f]"
_MORE = rf"%[89ABab]{_HEX}"
_ESCAPE = pattern(
    rf"([\\%](?:(?<=\\)(?:[abefnrtv\"'/\\]|u[Dd][89ABab]{_HEX}{{2}}\\u[Dd][C-Fc-f]{_HEX}{{2}}|u{_HEX}{{4}}"
    rf"|x{_HEX}{{2}}|0(?:33)?)|(?<=%)(?:[0-7]{_HEX}|[CDcd]{_HEX}{_MORE}|[Ee]{_HEX}(?:{_MORE}){{2}}"
    rf"|[Ff][0-4](?:{_MORE}){{3}})))"
)
"""One letter as JSON and other languages escape it, or as it stands in a URL."""

_UNSEEN = pattern(
    rf"([\x1b\x9b{UNSEEN_LETTERS}](?:(?<![\x1b\x9b])[{UNSEEN_LETTERS}]*|(?:(?<=\x9b)|\[)[0-?]{{0,40}}[!-/]{{0,2}}[@-~]"
    r"|(?<=\x1b)(?:\][!-~]{0,400}(?:\x07|\x1b\\)|[()*+][0-9A-Za-z]|[=>78])))"
)
"""What takes no room on a terminal: such letters, colours, moves and links."""

_64 = "[A-Za-z0-9+/_-]"
_FOLD = pattern(rf"([\r\n](?<={_64}{{16}}[\r\n])\n?[ \t]{{0,8}})(?={_64}|\Z)")
"""The end of a line of base64, and what its next line is indented by."""

_RUN = pattern(rf"(?:{_64}{{0,23}}+[^A-Za-z0-9+/_-]++)*+(?:({_64}{{24,}}+)|{_64}{{0,23}}\Z)")
"""A run of base64 behind all that is none; a shorter one holds no key."""

BREAK = "\x1b"
"""A letter that is no part of a word, in the place of what is not seen."""

NOTHING = "\0"
"""A letter that is no part of a line, in the place of what is taken out."""

_ASCII = bytes(byte if byte in b"\t\n\r" or 32 <= byte < 127 else 0 for byte in range(256))
"""Bytes that are ASCII as they are, and `NOTHING` for any other."""

_LEAST_ASCII_CHARS = 16
"""A shorter piece of ASCII in base64 holds no key."""

_ALPHABET = string.ascii_letters + string.digits + "+/_-"
_PLAIN = str.maketrans("-_", "+/")
_NAMED = {"a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0"}


class TextView:
    """A text, and for each place in it the place in the text that it was read from."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.since: TextView | None = None
        """One that is looked at before this one, and of which this one is."""
        self._of: TextView | None = None
        self._written: list[str] = []
        self._read: list[str] = []

    def replaced(self, spans: Sequence[tuple[int, int]], letter: str) -> "TextView":
        """The view with this letter for each span; they are in order and apart."""
        edges = [0, *(edge for span in spans for edge in span), len(self.text)]
        return self._reading([self.text[start:end] for start, end in pairwise(edges)], [letter] * len(spans))

    def decoded(self) -> "TextView":
        """Each escape as the letter it stands for."""
        parts = _ESCAPE.split(self.text)
        return self._reading(parts, list(map(_letter, parts[1::2]))) if len(parts) > 1 else self

    def seen(self) -> "tuple[TextView, ...]":
        """With nothing for what takes no room on a terminal, and with a break if it has colours."""
        if self.text.isascii() and "\x1b" not in self.text:
            return ()
        parts = _UNSEEN.split(self.text)
        if len(parts) == 1:
            return ()
        letters = (BREAK, "") if "\x1b" in self.text or "\x9b" in self.text else ("",)
        return tuple(self._reading(parts, [letter] * (len(parts) // 2)) for letter in letters)

    def unfolded(self) -> "TextView":
        """With the lines of base64 put together."""
        parts = _FOLD.split(self.text)
        if len(parts) == 1:
            return self
        view = self._reading(parts, [""] * (len(parts) // 2))
        view.since = self.since
        return view

    def is_new(self, start: int, end: int) -> bool:
        """Whether one of these letters, or one beside them, is another in `since`."""
        return self.since is None or self._is_other(start, end, self.since)

    def _is_other(self, start: int, end: int, before: "TextView") -> bool:
        if self is before or self._of is None:
            return self is not before
        here, there = self._edges
        at = bisect_right(here, start) - 1
        if at % 2 or start == here[at] or end >= here[at + 1]:
            return True
        shift = there[at] - here[at]
        return self._of._is_other(start + shift, end + shift, before)

    def parts(self, lowered: str, hints: Iterable[str]) -> Iterator[tuple[int, int]]:
        """The whole of it."""
        yield 0, len(self.text)

    def place(self, place: int) -> int:
        """Where the letter at this place was written."""
        if self._of is None:
            return place
        here, there = self._edges
        at = bisect_right(here, place) - 1
        return self._of.place(place + there[at] - here[at])

    def until(self, place: int) -> int:
        """How much of the view was written before this place; an escape around it is not."""
        if self._of is None:
            return place
        here, there = self._edges
        place = self._of.until(place)
        at = bisect_right(there, place) - 1
        return here[at] + (0 if at % 2 else place - there[at])

    def span(self, start: int, end: int) -> tuple[int, int]:
        """From where to where these letters were written; there is one at least."""
        return (self.place(start), self._end(end)) if self._of else (start, end)

    def _end(self, end: int) -> int:
        """Where ends what was written for the letters before this place."""
        if self._of is None:
            return end
        here, there = self._edges
        at = bisect_left(here, end)
        return self._of._end(end + there[at] - here[at])

    def _reading(self, parts: list[str], letters: list[str]) -> "TextView":
        """Of parts of which each second one is to be read as the next of these, each a letter or none."""
        read = parts.copy()
        read[1::2] = letters
        view = TextView("".join(read))
        view._of, view._written, view._read = self, parts, read
        return view

    @cached_property
    def _edges(self) -> tuple[list[int], list[int]]:
        """Where the parts begin and end here, and where they were written."""
        return [0, *accumulate(map(len, self._read))], [0, *accumulate(map(len, self._written))]


def views_of(view: TextView) -> Iterator[TextView]:
    """The view itself and as it reads decoded, again and again; each also without what is not seen.

    A colour parts words in one view (one before a key) and is gone in the next (one inside).
    """
    for _ in range(_MOST_LAYERS + 1):
        yield view
        for seen in view.seen():
            seen.since = view
            yield seen
        decoded = view.decoded()
        if decoded is view:
            return
        decoded.since, view = view, decoded


def in_base64(view: TextView) -> "Iterator[Base64View]":
    """The ASCII that stands in the view in base64, wherever in a group of it that begins.

    What a view looked at before holds too is left out.
    """
    found = (run.span(1) for run in _RUN.finditer(view.text) if run[1])
    if runs := [span for span in found if view.is_new(*span)]:
        letters = view.text.translate(_PLAIN)
        for first in range(4):
            begins = [start + first for start, _ in runs]
            yield Base64View(view, begins, [letters[start + first : end] for start, end in runs])


class Base64View:
    """Runs of base64 in a view as the ASCII they say, with `NOTHING` between its pieces."""

    def __init__(self, view: TextView, begins: list[int], runs: list[str]) -> None:
        self._view, self._begins = view, begins
        # Each in whole groups of four letters, and one more that says no ASCII.
        groups = [run.ljust(len(run) // 4 * 4 + 8, "/") for run in runs]
        data = bytearray(a2b_base64("".join(groups)))
        self._starts = [0, *accumulate(len(group) // 4 * 3 for group in groups)]
        for start, run in zip(self._starts, runs, strict=False):
            data[start + len(run) * 3 // 4] = 0  # in part of the run, in part of what it was filled up with
        self.text = data.translate(_ASCII).decode()

    def parts(self, lowered: str, hints: Iterable[str]) -> Iterator[tuple[int, int]]:
        """The pieces that hold a hint, each once; an empty hint is in all of them."""
        found = set[tuple[int, int]]()
        for hint in hints:
            at = lowered.find(hint)
            while 0 <= at < len(lowered):
                end = self.text.find(NOTHING, at)
                found.add((self.text.rfind(NOTHING, 0, at) + 1, end))
                at = lowered.find(hint, end + 1)
        return (span for span in found if span[1] - span[0] >= _LEAST_ASCII_CHARS)

    def span(self, start: int, end: int) -> tuple[int, int]:
        """From where to where the letters were written that say these bytes."""
        run = bisect_right(self._starts, start) - 1
        begin, at = self._begins[run], self._starts[run]
        return self._view.span(begin + (start - at) * 4 // 3, begin - (-(end - at) * 4 // 3))


def last_run(text: str) -> int:
    """Where the base64 begins that the text ends with, which may go on; else its end."""
    begin = len(text.rstrip(_ALPHABET))
    return begin if len(text) - begin >= 16 else len(text)


@lru_cache(maxsize=4_096)
def _letter(escape: str) -> str:
    """The letter that an escape stands for."""
    if escape[0] == "%":
        letter = bytes.fromhex(escape.replace("%", "")).decode("utf-8", "replace")
        return letter if len(letter) == 1 else "\ufffd"
    if escape[1] == "u":
        return str(json.loads(f'"{escape}"'))
    if escape[1] == "x":
        return chr(int(escape[2:], 16))
    return BREAK if escape == r"\033" else _NAMED.get(escape[1], escape[1])
