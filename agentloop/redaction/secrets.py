"""Known values and what has the shape of a secret, taken out of a text: a mark stands there.

A known value is looked for in each form in which JSON, URLs and base64 write it. What is found are spans of
the text; `Secrets` finds them, and says how much of a text in pieces is settled.
"""

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol, runtime_checkable
from urllib.parse import quote, quote_plus

from agentloop._plumbing.checks import shown
from agentloop.errors import UsageError
from agentloop.redaction.shapes import (
    KNOWN_SHAPES,
    MOST_WORDS,
    NO_WORD,
    PRIVATE_KEY,
    Shape,
    body_start,
    compiled,
    headless,
    open_block,
    word_start,
    words_end,
)

_LEAST_BASE64_BYTES = 8


def forms_of(value: str) -> frozenset[str]:
    """The value itself and as it stands in JSON, in a URL, and in base64 wherever that begins."""
    return frozenset(form for form in _forms(value) if form)


def _forms(value: str) -> Iterator[str]:
    yield value
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    data = value.encode("utf-8", "surrogatepass")
    for quoted in (quote(data, safe=""), quote(data), quote_plus(data)):
        yield quoted
        yield "".join(_lower_escapes(quoted))
    if len(data) >= _LEAST_BASE64_BYTES:
        for before in range(3):
            plain = _base64(data, before)
            yield plain
            yield plain.replace("+", "-").replace("/", "_")


def _lower_escapes(quoted: str) -> Iterator[str]:
    head, *rest = quoted.split("%")
    yield head
    for part in rest:
        yield f"%{part[:2].lower()}{part[2:]}"


def _base64(data: bytes, before: int) -> str:
    """The characters that the value alone decides where `before` other bytes stand before it."""
    whole = b64encode(bytes(before) + data).decode()
    return whole[-(-before * 8 // 6) : (before + len(data)) * 8 // 6]


MARK = "[redacted: "
"""How a mark begins; the kind of what stood there and a bracket follow."""

KNOWN = "known value"
"""The kind of a value that was given; that of a shape is its own."""


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


LEAST_VALUE_CHARS = 4
"""A shorter value stands in every other text."""


class Redact(Protocol):
    """Takes secrets out of a text. Doing it twice must change no more than doing it once."""

    def __call__(self, text: str, /) -> str: ...


@runtime_checkable
class KnowsValues(Protocol):
    """A redaction that can take the values alone out that it knows, whatever else looks like a secret."""

    def known(self, text: str, /) -> str: ...


@dataclass(frozen=True, slots=True)
class Secrets:
    """Takes known values and what has the shape of a secret out of a text: a `[redacted: …]` stands there.

    `values` are found whole, whatever stands around them, also in the forms in which JSON, URLs and base64
    write them; `shapes` are those of well-known keys by default. A private key in PEM form of which the first
    or the last line is missing goes too, also in a numbered listing; lines from its middle alone look like
    any other base64 and stay. It takes time linear in the text. Doing it twice changes nothing more.

    Example:
        >>> Secrets(values=["correct horse"])("It is correct horse, or ghp_" + "x1" * 18 + ".")
        'It is [redacted: known value], or [redacted: GitHub token].'

    Raises:
        UsageError: a value has under 4 characters, or something is no text or no `Shape`.
    """

    values: Iterable[str] = field(default=(), repr=False)
    shapes: Iterable[Shape] = field(default=KNOWN_SHAPES, repr=False)
    _forms: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _broken: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _openers: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _mark: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        values, shapes = _checked_values(self.values), _checked_shapes(self.shapes)
        forms = sorted({form for value in values for form in forms_of(value)}, key=len, reverse=True)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "shapes", shapes)
        object.__setattr__(self, "_forms", tuple(forms))
        openers = {hint for shape in shapes if shape.words > 1 for hint in shape.hints or ("",)}
        object.__setattr__(self, "_openers", tuple(openers))
        kinds = "|".join(re.escape(kind) for kind in {KNOWN, *(shape.kind for shape in shapes)})
        object.__setattr__(self, "_mark", re.compile(rf"{re.escape(MARK)}(?:{kinds})\]"))
        object.__setattr__(self, "_broken", tuple(form for form in forms if NO_WORD.search(form)))

    def __call__(self, text: str, /) -> str:
        """The text without them."""
        return replaced(text, self._found(text))

    def known(self, text: str, /) -> str:
        """The text without the known values; what has the shape of a secret stays."""
        return replaced(text, joined([*self._marks(text), *self._known(text)]))

    def settled(self, text: str, /) -> int:
        """How much of the text can be shown, as whatever follows makes no part of it a secret.

        What follows may make one of a word that has no end yet, of a few words behind one such as `password`,
        of an open block in PEM form, and of what a known value begins with.
        """
        begun = min((_begun(text, form) for form in self._broken), default=len(text))
        last_words = words_end(text, self._openers, most=MOST_WORDS)
        end = min(last_words, word_start(text, min(begun, open_block(text))))
        if text.endswith("\r"):
            # Where a line ends is not said before the line feed is there.
            end = min(end, word_start(text, len(text) - 1))
        end = word_start(text, body_start(text, end))
        for span in reversed(self._found(text)):
            if span.first < end < span.last:
                # What a name or a prefix stands behind decides, too, whether it is one.
                end = word_start(text, span.first) if text[span.first].isalnum() else span.first
        return end

    def _found(self, text: str) -> list[Span]:
        """What is to be replaced, and the marks that stand there already, in order and apart."""
        known = joined([*self._marks(text), *self._known(text)])
        found, waiting = known, gaps(known, 0, len(text))
        while waiting:
            start, end = waiting.pop()
            # What stands beside a match may be one where that is gone.
            if shaped := joined(self._shaped(text[start:end], start)):
                found += shaped
                waiting += gaps(shaped, start, end)
        return joined(found)

    def _marks(self, text: str) -> list[Span]:
        return [span_of(m, 0, "") for m in self._mark.finditer(text)] if MARK in text else []

    def _known(self, text: str) -> Iterator[Span]:
        for form in self._forms:
            start = text.find(form)
            while start >= 0:
                first, end = start, start + len(form)
                # Where it overlaps itself all of it goes.
                while (start := text.find(form, start + 1, end + len(form) - 1)) >= 0:
                    end = start + len(form)
                yield Span(first, end, KNOWN)
                start = text.find(form, end)

    def _shaped(self, part: str, at: int) -> Iterator[Span]:
        """The matches in a part that begins at this position; what stands beyond it is not seen."""
        lowered = part.lower()
        if PRIVATE_KEY in self.shapes and "-----end " in lowered:
            yield from (Span(at + first, at + last, PRIVATE_KEY.kind) for first, last in headless(part))
        for shape in self.shapes:
            if part and (not shape.hints or any(hint in lowered for hint in shape.hints)):
                pattern = compiled(shape.pattern)
                group = "secret" if "secret" in pattern.groupindex else 0
                for match in pattern.finditer(part):
                    if match.start(group) < match.end(group):
                        yield span_of(match, group, shape.kind, at=at)


def _checked_values(values: object) -> tuple[str, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise UsageError("values must be a list of texts")
    given = tuple(values)
    for at, value in enumerate(given):
        if not isinstance(value, str) or len(value) < LEAST_VALUE_CHARS:
            raise UsageError(f"values[{at}] must be a text of at least {LEAST_VALUE_CHARS} characters")
    return given


def _checked_shapes(shapes: object) -> tuple[Shape, ...]:
    if not isinstance(shapes, Iterable):
        raise UsageError(f"shapes must be a list of Shape(…), not {shown(shapes)}")
    given = tuple(shapes)
    for each in given:
        if not isinstance(each, Shape):
            raise UsageError(f"shapes must be a list of Shape(…), not of {shown(each)}")
    return given


def _begun(text: str, form: str) -> int:
    """Where the text ends with the beginning of this value."""
    for start in range(max(0, len(text) - len(form) + 1), len(text)):
        if form.startswith(text[start:]):
            return start
    return len(text)
