"""Texts as sentences: what a digest keeps or leaves out as a whole."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from agentloop._plumbing.truncate import head, tail

HEAD_SHARE = 2 / 3
"""Of a text that is too long to be looked at whole, so much of what is looked at is its head."""

LONGEST = 400
"""A sentence with more characters is parted at a blank: people write without full stops, machines too."""

_ENDS = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+|(?<=[。！？])(?![。！？」』）])")
_GOES_ON = re.compile(
    r"(?:^|[\s(])(?:[^\W\d_]|\d{1,3}|e\.g|i\.e|z\.\s?B|u\.a|d\.h|p\.ej|etc|vs|cf|approx|resp|incl|max|min|"
    r"no|nr|"
    r"fig|eq|sec|ch|pp|mr|mrs|ms|dr|prof|st|inc|ltd|bzw|ca|evtl|ggf)\.$",
    re.IGNORECASE,
)
_MARKER = re.compile(r"\s*(?:[-*•‣–·]|\d{1,2}[.)])\s+")
_FENCE = re.compile(r"\s*(?:```|~~~)")
_TAG = re.compile(r"</?[\w -]{1,60}>|[-=_*#~]{3,}")
_STAMP = re.compile(r"\W{0,3}(?:\d{4}-\d\d-\d\d[T ]\d\d:|\d\d:\d\d:\d\d)")
_BREAKS = re.compile(r"[,;:)\s、，；]")
_SYMBOL = re.compile(r"[{}\[\]()<>=;|\\/*&^$#@+_\"]")
_DIGIT = re.compile(r"[0-9]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """A sentence as it was written.

    `before` is what parts it from the one before in the same text: nothing, a blank or a newline. `pasted`
    says that it looks like code or output and not like something a person wrote.
    """

    text: str
    before: str = ""
    pasted: bool = False


def sentences(text: str, *, most_chars: int) -> list[Sentence]:
    """The sentences of a text in order; of a longer text those of its head and its tail."""
    if len(text) <= most_chars:
        return list(_sentences(text))
    first = int(most_chars * HEAD_SHARE)
    return [*_sentences(head(text, first)), *_sentences(tail(text, most_chars - first))]


def _sentences(text: str) -> Iterator[Sentence]:
    fenced = False
    before = ""
    for line in text.splitlines():
        if _FENCE.match(line):
            fenced = not fenced
            continue
        pasted = fenced or looks_pasted(line)
        for piece in _pieces(line, pasted):
            yield Sentence(text=piece, before=before, pasted=pasted)
            before = " "
        before = "\n" if before else ""


def _pieces(line: str, pasted: bool) -> Iterator[str]:
    marker = _MARKER.match(line)
    parts = [line] if pasted else _parts(line[marker.end() :] if marker else line)
    for part in parts:
        rest = part.strip()
        while len(rest) > LONGEST:
            end = _last_break(rest)
            yield rest[:end].strip()
            rest = rest[end:].strip()
        if rest:
            yield rest


def _parts(line: str) -> Iterator[str]:
    start = 0
    for end in _ENDS.finditer(line):
        if end.end() > end.start() and _GOES_ON.search(line[max(0, end.start() - 8) : end.start()]):
            continue
        yield line[start : end.end()]
        start = end.end()
    yield line[start:]


def _last_break(text: str) -> int:
    breaks = [match.end() for match in _BREAKS.finditer(text, LONGEST // 2, LONGEST)]
    return breaks[-1] if breaks else len(head(text, LONGEST))


def looks_pasted(line: str) -> bool:
    """Whether a line looks like code, output or data: many symbols or digits for its words."""
    seen = line[:LONGEST]
    if len(seen) > 80 and " " not in seen.strip() and seen.isascii():
        return True
    if _TAG.fullmatch(seen.strip()):
        return True
    if _STAMP.match(seen):
        return True
    digits = len(_DIGIT.findall(seen)) * (2.5 if seen.isascii() else 1.5)
    return len(seen) > 8 and 4 * len(_SYMBOL.findall(seen)) + digits > len(seen)
