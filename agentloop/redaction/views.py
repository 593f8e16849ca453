"""A text as JSON, URLs, HTML, terminals and base64 mean it, and where each letter of that was written.

A secret may stand in a text with any of its letters escaped, with colours between them, or in base64 that is
parted into lines. Instead of a pattern for each way of writing there are views of the text: in one of them
the secret stands as it is. They are made in time linear in the text.
"""

import json
import string
from array import array
from binascii import a2b_base64
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from html import unescape
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
    rf"([\\%&](?:(?<=\\)(?:[abefnrtv\"'/\\]|u[Dd][89ABab]{_HEX}{{2}}\\u[Dd][C-Fc-f]{_HEX}{{2}}|u{_HEX}{{4}}"
    rf"|x{_HEX}{{2}}|0(?:33)?)|(?<=%)(?:[0-7]{_HEX}|[CDcd]{_HEX}{_MORE}|[Ee]{_HEX}(?:{_MORE}){{2}}"
    rf"|[Ff][0-4](?:{_MORE}){{3}})|(?<=&)(?:quot|apos|amp|lt|gt|#[0-9]{{2,3}}|#[xX]{_HEX}{{2}});))"
)
"""One letter as JSON and other languages escape it, or as it stands in a URL or in HTML."""

_UNSEEN = pattern(
    rf"([\x1b\x9b{UNSEEN_LETTERS}](?:(?<![\x1b\x9b])[{UNSEEN_LETTERS}]*|(?:(?<=\x9b)|\[)[0-?]{{0,40}}[!-/]{{0,2}}[@-~]"
    r"|(?<=\x1b)(?:\][!-~]{0,400}(?:\x07|\x1b\\)|[()*+][0-9A-Za-z]|[=>78])))"
)
"""What takes no room on a terminal: such letters, colours, moves and links."""

_LINE_END = pattern("\n")

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

_PIECE = pattern(rb"(?:[^\0]{0,15}+\0++)*+(?:([^\0]{16,}+)|[^\0]{0,15}\Z)")
"""A piece of ASCII in base64 behind shorter ones, which hold no key."""

_ALPHABET = string.ascii_letters + string.digits + "+/_-"
_PLAIN = str.maketrans("-_", "+/")
_NAMED = {"a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0"}


Place = tuple[int, int]
"""From where to before where something stands."""


class TextView:
    """A text, and for each place in it the place in the text that it was read from."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.since: TextView | None = None
        """One that is looked at before this one, and of which this one is."""
        self._of: TextView | None = None
        # Lengths alone, as bare numbers: each letter of a text of megabytes may be escaped.
        self._written = array("I")
        self._read = array("I")

    def replaced(self, spans: Sequence[tuple[int, int]], letter: str) -> "TextView":
        """The view with this letter for each span; they are in order and apart."""
        edges = [0, *(edge for span in spans for edge in span), len(self.text)]
        return self._reading([self.text[start:end] for start, end in pairwise(edges)], [letter] * len(spans))

    def decoded(self) -> "TextView":
        """Each escape as the letter it stands for."""
        parts = _ESCAPE.split(self.text)
        return self._looked_at(parts, list(map(_letter, parts[1::2]))) if len(parts) > 1 else self

    def seen(self) -> "tuple[TextView, ...]":
        """With nothing for what takes no room on a terminal, and with a break if it has colours."""
        if self.text.isascii() and "\x1b" not in self.text:
            return ()
        parts = _UNSEEN.split(self.text)
        if len(parts) == 1:
            return ()
        letters = (BREAK, "") if "\x1b" in self.text or "\x9b" in self.text else ("",)
        return tuple(self._looked_at(parts, [letter] * (len(parts) // 2)) for letter in letters)

    def seen_of_mixed(self) -> "Iterator[TextView]":
        """The same of the lines alone that have escapes too: the others read so in the view decoded."""
        if self.text.isascii() and "\x1b" not in self.text:
            return
        ends = [0, *(match.end() for match in _LINE_END.finditer(self.text)), len(self.text)]
        others = [line for line in pairwise(ends) if line[0] < line[1] and not self._is_mixed(*line)]
        mixed = self.replaced(others, NOTHING) if others else self
        for view in mixed.seen():
            view.since = self
            yield view

    def _is_mixed(self, start: int, end: int) -> bool:
        """Whether escapes and what is not seen stand there."""
        escape = _ESCAPE.search(self.text, start, end)
        return escape is not None and _UNSEEN.search(self.text, start, end) is not None

    @cached_property
    def unfolded(self) -> "TextView":
        """With the lines of base64 put together."""
        parts = _FOLD.split(self.text)
        if len(parts) == 1:
            return self
        return self._reading(parts, [""] * (len(parts) // 2))

    def origins(self, places: "Sequence[Place | None]", since: "TextView | None") -> "Sequence[Place | None]":
        """Where these letters stand in that view, of which this one is; None where one is another there."""
        view: TextView | None = self
        while places and view is not since:
            if view is None or view._of is None:
                return [None] * len(places)
            here, there = view._edges
            moved: list[Place | None] = []
            at, until, shift = 0, 0, 0
            for place in places:
                if place is None:
                    moved.append(None)
                    continue
                start, end = place
                if not here[at] <= start < until:
                    at = bisect_right(here, start) - 1
                    until, shift = here[min(at + 1, len(here) - 1)], there[at] - here[at]
                moved.append(None if at % 2 or end > until else (start + shift, end + shift))
            places, view = moved, view._of
        return places

    def place(self, place: int) -> int:
        """Where the letter at this place was written."""
        return self.span(place, place)[0]

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
        view = self
        while view._of:
            here, there = view._edges
            at, behind = bisect_right(here, start) - 1, bisect_left(here, end)
            start, end, view = start + there[at] - here[at], end + there[behind] - here[behind], view._of
        return start, end

    def _looked_at(self, parts: list[str], letters: list[str]) -> "TextView":
        """The same, behind this view."""
        view = self._reading(parts, letters)
        view.since = self
        return view

    def _reading(self, parts: list[str], letters: list[str]) -> "TextView":
        """Of parts of which each second one is to be read as the next of these, each a letter or none."""
        read = parts.copy()
        read[1::2] = letters
        view = TextView("".join(read))
        view._of, view._written, view._read = self, _lengths(parts), _lengths(read)
        return view

    @cached_property
    def _edges(self) -> tuple["array[int]", "array[int]"]:
        """Where the parts begin and end here, and where they were written."""
        return _sums(self._read), _sums(self._written)


def _lengths(parts: Iterable[str]) -> "array[int]":
    return array("I", map(len, parts))


def _sums(lengths: "array[int]") -> "array[int]":
    return array("Q", accumulate(lengths, initial=0))


def views_of(view: TextView) -> Iterator[TextView]:
    """The view itself and as it reads decoded, again and again; each also without what is not seen.

    A colour parts words in one view (one before a key) and is gone in the next (one inside).
    """
    *layers, last = _layers(view)
    for layer in layers:
        yield layer
        yield from layer.seen_of_mixed()
    yield last
    yield from last.seen()


def first_and_last_of(view: TextView) -> Iterator[TextView]:
    """The view itself and as it reads in the end, that also without what is not seen."""
    *layers, last = _layers(view)
    yield from layers[:1]
    yield last
    yield from last.seen()


def _layers(view: TextView) -> Sequence[TextView]:
    """The view, and what it is decoded again and again."""
    layers = [view]
    while len(layers) <= _MOST_LAYERS and (decoded := layers[-1].decoded()) is not layers[-1]:
        layers.append(decoded)
    return layers


Run = tuple[Place, str]
"""Where letters of base64 were written, and these."""


def in_base64(view: TextView, read: "set[Run] | None" = None) -> "Iterator[Base64View]":
    """The ASCII that stands in the view in base64, wherever in a group of it that begins.

    The runs that were read already are left out, and these are from now on.
    """
    read = set() if read is None else read
    found = {run.span(1): run[1] for run in _RUN.finditer(view.text) if run[1]}
    told = {(view.span(*run), letters): run for run, letters in found.items()}
    if runs := [run for each, run in told.items() if each not in read]:
        read.update(told)
        yield Base64View(view, runs)


class Base64View:
    """Runs of base64 in a view as the ASCII they say, with `NOTHING` between its pieces."""

    def __init__(self, view: TextView, runs: list[tuple[int, int]]) -> None:
        self._view = view
        self._begins = [start for start, _ in runs]
        # Each in whole groups of four letters, and one more that says no ASCII.
        groups = [view.text[start:end].ljust((end - start) // 4 * 4 + 8, "/") for start, end in runs]
        self._starts = [0, *accumulate(map(len, groups))]
        letters = "".join(groups).translate(_PLAIN)
        self._bytes = len(letters) * 3 // 4
        ends = [at + end - start for at, (start, end) in zip(self._starts, runs, strict=False)]
        said = b"".join(_ascii(letters, self._starts, ends, first) for first in range(4))
        pieces = [piece.span(1) for piece in _PIECE.finditer(said) if piece[1]]
        self._pieces = [start for start, _ in pieces]
        self._places = [0, *accumulate(end - start + 1 for start, end in pieces)]
        self.text = "".join(f"{said[start:end].decode()}{NOTHING}" for start, end in pieces)

    def parts(self, lowered: str, hints: Iterable[str]) -> Iterator[tuple[int, int]]:
        """The pieces that hold a hint, each once; an empty hint is in all of them."""
        found = set[tuple[int, int]]()
        for hint in hints:
            at = lowered.find(hint)
            while 0 <= at < len(lowered):
                end = self.text.find(NOTHING, at)
                found.add((self.text.rfind(NOTHING, 0, at) + 1, end))
                at = lowered.find(hint, end + 1)
        return iter(found)

    def span(self, start: int, end: int) -> tuple[int, int]:
        """From where to where the letters were written that say these bytes."""
        piece = bisect_right(self._places, start) - 1
        first, byte = divmod(self._pieces[piece] + start - self._places[piece], self._bytes)
        run = bisect_right(self._starts, first + byte * 4 // 3) - 1
        begin = self._begins[run] - self._starts[run] + first
        return self._view.span(begin + byte * 4 // 3, begin - (-(byte + end - start) * 4 // 3))


def _ascii(letters: str, starts: Iterable[int], ends: Iterable[int], first: int) -> bytearray:
    """What the groups say that begin with this letter of each run, with zeros for what is not ASCII."""
    data = bytearray(a2b_base64(f"{letters[first:]}{'/' * first}"))
    for start, end in zip(starts, ends, strict=False):
        # Of these bytes a part was said by the letters before, or by what the run was filled up with.
        data[start // 4 * 3 - 1] = data[(end - first) * 3 // 4] = 0
    return data.translate(_ASCII)


def last_run(text: str) -> int:
    """Where the base64 begins that the text ends with, which may go on; else its end."""
    begin = len(text.rstrip(_ALPHABET))
    return begin if len(text) - begin >= 16 else len(text)


@lru_cache(maxsize=4_096)
def _letter(escape: str) -> str:
    """The letter that an escape stands for."""
    if escape[0] == "&":
        return unescape(escape) or "\ufffd"
    if escape[0] == "%":
        letter = bytes.fromhex(escape.replace("%", "")).decode("utf-8", "replace")
        return letter if len(letter) == 1 else "\ufffd"
    if escape[1] == "u":
        return str(json.loads(f'"{escape}"'))
    if escape[1] == "x":
        return chr(int(escape[2:], 16))
    return BREAK if escape == r"\033" else _NAMED.get(escape[1], escape[1])
