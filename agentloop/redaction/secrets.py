"""Known values and what has the shape of a secret, taken out of a text: a mark stands there.

Both are looked for in each view of the text. What is found are spans of the text as it is written; `Secrets`
finds them, and says how much of a text in pieces is settled.
"""

import re
from array import array
from base64 import b64encode
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import NamedTuple, Protocol, runtime_checkable

from agentloop._plumbing.checks import shown
from agentloop.errors import UsageError
from agentloop.redaction.shapes import (
    KNOWN_SHAPES,
    PRIVATE_KEY,
    Shape,
    body_start,
    compiled,
    finished,
    has_break,
    headless,
    open_block,
    openers_of,
    word_start,
    words_end,
)
from agentloop.redaction.views import NOTHING, Base64View, TextView, in_base64, last_run, views_of

_LEAST_BASE64_BYTES = 8


def _plain_forms(value: str) -> Iterator[str]:
    """The value as it may stand in a view: as it is, with a plus for a blank, with its own escapes read."""
    yield value
    yield value.replace(" ", "+")
    yield from (view.text for view in views_of(TextView(value)) if len(view.text) >= LEAST_VALUE_CHARS)


def _base64_forms(value: str) -> Iterator[str]:
    """The value in both alphabets of base64, wherever in a group of it the value begins."""
    data = value.encode("utf-8", "surrogatepass")
    if len(data) >= _LEAST_BASE64_BYTES:
        for before in range(3):
            # The letters that the value alone decides where so many other bytes stand before it.
            whole = b64encode(bytes(before) + data).decode()
            plain = whole[-(-before * 8 // 6) : (before + len(data)) * 8 // 6]
            yield plain
            yield plain.replace("+", "-").replace("/", "_")


Place = tuple[int, int]
"""From where to before where something stands."""

MARK = "[redacted: "
"""How a mark begins; the kind of what stood there and a bracket follow."""

KNOWN = "known value"
"""The kind of a value that was given; that of a shape is its own."""


class Span(NamedTuple):
    """From `start` to before `end`; a mark that stands there already has no kind.

    `first` and `last` are those of the whole match, where only a part of it is replaced.
    """

    start: int
    end: int
    kind: str
    first: int
    last: int


def joined(spans: Iterable[Span]) -> list[Span]:
    """The spans in order, those that overlap as one of the first one's kind; marks stay as they are."""
    result: list[Span] = []
    for span in sorted(dict.fromkeys(spans), key=lambda each: (each.start, -each.end)):
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

_MOST_ROUNDS = 4
"""So often is looked for what is one only now that a secret beside it is gone: mostly once, then in vain."""


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

    `values` are found whole, whatever stands around them; `shapes` are those of well-known keys by default.
    Both are found in base64 too, and with any of their letters escaped as in JSON or in a URL, up to three
    times, and with colours and letters of no width between. A private key in PEM form of which the first or
    the last line is missing goes too, also in a numbered listing; lines from its middle alone look like any
    other base64 and stay. It takes time linear in the text. Doing it twice changes nothing more.

    Example:
        >>> Secrets(values=["correct horse"])("It is correct horse, or ghp_" + "x1" * 18 + ".")
        'It is [redacted: known value], or [redacted: GitHub token].'

    Raises:
        UsageError: a value has under 4 characters, or something is no text or no `Shape`.
    """

    values: Iterable[str] = field(default=(), repr=False)
    shapes: Iterable[Shape] = field(default=KNOWN_SHAPES, repr=False)
    _forms: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _base64: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _broken: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _openers: tuple[tuple[str, int], ...] = field(init=False, repr=False, compare=False)
    _mark: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        values, shapes = _checked_values(self.values), _checked_shapes(self.shapes)
        forms = sorted({form for value in values for form in _plain_forms(value)})
        marks = {f"{MARK}{kind}]" for kind in (KNOWN, *(shape.kind for shape in shapes))}
        made = {
            "values": values,
            "shapes": shapes,
            "_forms": tuple(forms),
            "_base64": tuple(sorted({form for value in values for form in _base64_forms(value)})),
            "_broken": tuple(sorted(form for form in (*forms, *marks) if has_break(form))),
            "_openers": openers_of(shapes),
            "_mark": re.compile("|".join(map(re.escape, marks))),
        }
        for name, value in made.items():
            object.__setattr__(self, name, value)

    def __call__(self, text: str, /) -> str:
        """The text without them."""
        return replaced(text, self._found(text))

    def known(self, text: str, /) -> str:
        """The text without the known values; what has the shape of a secret stays."""
        return replaced(text, joined([*self._marks(text), *self._known(list(views_of(TextView(text))))]))

    def settled(self, text: str, /) -> int:
        """How much of the text can be shown, as whatever follows makes no part of it a secret.

        What follows may make one of a word that has no end yet, of a few words behind one such as `password`,
        of an open block in PEM form, and of what a known value begins with; in any view of the text.
        """
        # In a word that has no end yet an escape may have none either.
        whole = TextView(text[: finished(text)])
        views = list(views_of(whole))
        end = word_start(text, min(view.place(self._begun(view.text)) for view in views))
        if known := joined([*self._marks(whole.text), *self._known(views)]):
            views = list(views_of(whole.replaced([(span.start, span.end) for span in known], NOTHING)))
        for held in (open_block, partial(words_end, openers=self._openers), body_start):
            places = [view.place(held(view.text, at=view.until(end))) for view in views]
            end = word_start(text, min(places))
        for span in reversed(self._found(text)):
            if span.first < end < span.last:
                # What a name or a prefix stands behind decides, too, whether it is one.
                end = word_start(text, span.first)
        return end

    def _begun(self, text: str) -> int:
        """Where a known value, a mark or the end of a line begins that may still go on."""
        unfolded = TextView(text).unfolded
        base64 = min(_begun(unfolded.text, self._base64), last_run(unfolded.text))
        begun = min(_begun(text, self._broken), unfolded.place(base64))
        return min(word_start(text, begun), len(text.removesuffix("\r")))

    def _found(self, text: str) -> list[Span]:
        """What is to be replaced, and the marks that stand there already, in order and apart."""
        views = list(views_of(TextView(text)))
        read = [view.text.lower() for view, _ in _outer(views)]
        shapes = [shape for shape, _ in _hinted(self.shapes, *read)]
        found = joined([*self._marks(text), *self._known(views)])
        for _ in range(_MOST_ROUNDS):
            if found:
                # What stands beside a match may be one where that is gone.
                views = list(
                    views_of(TextView(text).replaced([(span.start, span.end) for span in found], NOTHING))
                )
            if not (shaped := list(self._shaped(views, shapes))):
                break
            found = joined([*found, *shaped])
        return found

    def _marks(self, text: str) -> list[Span]:
        found = self._mark.finditer(text) if MARK in text else ()
        return [Span(*match.span(), "", *match.span()) for match in found]

    def _known(self, views: Sequence[TextView]) -> Iterator[Span]:
        looks = [(view, view.since, self._forms) for view in views if self._forms]
        looks += [(view.unfolded, since, self._base64) for view, since in _outer(views) if self._base64]
        for view, since, forms in looks:
            for start, end in (place for form in forms for place in _places(view.text, form)):
                if not view.origin(start - 1, end + 1, since):
                    span = view.span(start, end)
                    yield Span(*span, KNOWN, *span)

    def _shaped(self, views: Sequence[TextView], shapes: Iterable[Shape]) -> Iterator[Span]:
        """The matches of these in the views, but for those that the view before has too; of all in base64."""
        for shape in shapes:
            found: dict[TextView | None, dict[Place, Place]] = {None: {}}
            for view in views:
                found[view] = _matches(shape, view.text)
                for whole, secret in found[view].items():
                    if view.origin(*whole, view.since) not in found[view.since]:
                        yield Span(*view.span(*secret), shape.kind, *view.span(*whole))
        for view, since in _outer(views):
            for said in in_base64(view.unfolded, since):
                yield from self._said(said)

    def _said(self, said: Base64View) -> Iterator[Span]:
        lowered = said.text.lower()
        for shape, hints in _hinted(self.shapes, lowered):
            for begin, end in said.parts(lowered, hints):
                for (first, last), (start, until) in _matches(shape, said.text[begin:end]).items():
                    secret = said.span(begin + start, begin + until)
                    yield Span(*secret, shape.kind, *said.span(begin + first, begin + last))


def _outer(views: Sequence[TextView]) -> Iterator[tuple[TextView, TextView | None]]:
    """The view of the text as it is and the last ones, each with the one before.

    What holds no escapes, as hints and base64, stands in one of them.
    """
    outer = list(dict.fromkeys((views[0], views[-1].since or views[0], views[-1])))
    return zip(outer, (None, *outer), strict=False)


def _matches(shape: Shape, text: str) -> dict[Place, Place]:
    """Where the shape stands in the text, and for each such place where the secret does."""
    pattern = compiled(shape.pattern)
    group = pattern.groupindex.get("secret", 0)
    found = {match.span(): match.span(group) for match in pattern.finditer(text) if match[group]}
    if shape.pattern == PRIVATE_KEY.pattern:
        found |= {block: block for block in headless(text)}
    return found


def _pairs(text: str, at: int = 0) -> frozenset[int]:
    """Each two letters from this place on, as numbers.

    A text has all those of what stands in it, from its first letter on or from its second.
    """
    data = text.encode("latin-1", "replace")[at:]
    return frozenset(array("H", data[: len(data) // 2 * 2]))


@lru_cache(maxsize=1_024)
def _pairs_of(hint: str) -> tuple[frozenset[int], frozenset[int]]:
    return _pairs(hint), _pairs(hint, 1)


def _hinted(shapes: Iterable[Shape], *lowered: str) -> Iterator[tuple[Shape, list[str]]]:
    """The shapes of which hints stand in one of the texts, and those; most are out by its pairs."""
    pairs = frozenset[int]().union(*map(_pairs, lowered))
    for shape in shapes:
        hints = []
        for hint in shape.hints or ("",):
            even, odd = _pairs_of(hint)
            if (even <= pairs or odd <= pairs) and any(hint in text for text in lowered):
                hints.append(hint)
        if hints:
            yield shape, hints


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


def _places(text: str, form: str) -> Iterator[tuple[int, int]]:
    """Where the form stands, as one where it overlaps or follows itself."""
    start = text.find(form)
    while start >= 0:
        first, end = start, start + len(form)
        while (start := text.find(form, start + 1, end + len(form))) >= 0:
            end = start + len(form)
        yield first, end
        start = text.find(form, end)


def _begun(text: str, forms: Sequence[str]) -> int:
    """Where the text ends with the beginning of one of these forms, which are in order."""
    most = max(map(len, forms), default=1)
    for start in range(max(0, len(text) - most + 1), len(text)):
        tail = text[start:]
        at = bisect_left(forms, tail)
        if at < len(forms) and forms[at].startswith(tail):
            return start
    return len(text)
