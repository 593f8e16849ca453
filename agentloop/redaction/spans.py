"""Parts of a text that are replaced by marks."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

MARK = "[redacted: "
"""How a mark begins; the kind of what stood there and a bracket follow."""


@dataclass(frozen=True, slots=True)
class Span:
    """From `start` to before `end`; a mark that stands there already has no kind.

    `begins` and `ends` are those of the whole match, where only a part of it is replaced.
    """

    start: int
    end: int
    kind: str
    begins: int | None = None
    ends: int | None = None

    @property
    def first(self) -> int:
        """Where the match begins."""
        return self.start if self.begins is None else self.begins

    @property
    def last(self) -> int:
        """Where the match ends."""
        return self.end if self.ends is None else self.ends


def span_of(match: re.Match[str], group: str | int, kind: str, *, at: int = 0) -> Span:
    """The span of a match in a part of a text that begins at this position."""
    first, last = match.span()
    start, end = match.span(group)
    return Span(at + start, at + end, kind, at + first, at + last)


def joined(spans: Iterable[Span]) -> list[Span]:
    """The spans in order, those that overlap as one of the first one's kind; marks stay as they are."""
    result: list[Span] = []
    for span in sorted(spans, key=lambda each: (each.start, -each.end)):
        last = result[-1] if result else None
        if last is None or span.start >= last.end:
            result.append(span)
        elif span.kind and last.kind:
            result[-1] = Span(
                last.start,
                max(last.end, span.end),
                last.kind,
                min(last.first, span.first),
                max(last.last, span.last),
            )
    return result


def gaps(spans: Iterable[Span], start: int, end: int) -> list[tuple[int, int]]:
    """What is left of the text between two positions; the spans are in order."""
    edges = [(start, start), *((span.start, span.end) for span in spans), (end, end)]
    return [(before, after) for (_, before), (after, _) in pairwise(edges) if before < after]


def replaced(text: str, spans: Sequence[Span]) -> str:
    """The text with a mark for each span."""
    pieces: list[str] = []
    end = 0
    for span in spans:
        if span.kind:
            pieces += (text[end : span.start], f"{MARK}{span.kind}]")
            end = span.end
    return "".join((*pieces, text[end:])) if pieces else text
