"""Known values and what has the shape of a secret, taken out of a text: a mark stands there.

Both are looked for in each view of the text. What is found are spans of the text as it is written; `Secrets`
finds them, and says how much of a text in pieces is settled.
"""

import re
from base64 import b64encode
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

from agentloop._plumbing.checks import shown
from agentloop.errors import UsageError
from agentloop.redaction.hints import Hints
from agentloop.redaction.shapes import (
    BLOCKS,
    KNOWN_SHAPES,
    MOST_CHARS,
    OF_ONE_LINE,
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
from agentloop.redaction.views import (
    NOTHING,
    Base64View,
    Place,
    Run,
    TextView,
    first_and_last_of,
    in_base64,
    last_run,
    views_of,
)

_Views: TypeAlias = Callable[[TextView], Iterable[TextView]]

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


MARK = "[redacted: "
"""How a mark begins; the kind of what stood there and a bracket follow."""

KNOWN = "known value"
"""The kind of a value that was given; that of a shape is its own."""

DENSE = "secrets"
"""The kind of many and all that stands between them."""


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
    for span in sorted(sorted(dict.fromkeys(spans), key=itemgetter(1), reverse=True), key=itemgetter(0)):
        last = result[-1] if result else None
        if last is None or span.start >= last.end:
            result.append(span)
        elif span.kind and last.kind:
            first, until = min(last.first, span.first), max(last.last, span.last)
            result[-1] = Span(last.start, max(last.end, span.end), last.kind, first, until)
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

_NEAR_CHARS = 2_000
"""What is further from a match is no other where that is gone, unless it is of a block in PEM form."""

_DENSE_CHARS = 100
"""Where no secret is further from the next, a text is full of them."""

_LONG_CHARS = 1_000
"""Few secrets are longer: one that reaches out of what is full begins or ends so near to its border."""

_LEAST_DENSE_CHARS = 2 * _LONG_CHARS + _DENSE_CHARS
"""More than these are taken out together; what is left of them at both ends is too little for that."""

_FEW_VIEWS = 4
"""Each letter is looked at in so many views, however full of secrets the text is."""

_MOST_SEARCHES = 600
"""For shapes in views. Where there are more, a text is looked at as it stands and as it reads in the end."""

_CHARS_AN_ANCHOR = 256
"""To search so much of a text takes no longer than to look around one place of it."""

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
    Both are found in base64 too, and with any of their letters escaped as in JSON, a URL or HTML, up to three
    times, and with colours and letters of no width between. A private key in PEM form of which the first or
    the last line is missing goes too, also in a numbered listing; lines from its middle alone look like any
    other base64 and stay. Over 2,000 letters in more than four writings (escaped, with colours) with no 100
    of them between two secrets are taken out as one, `[redacted: secrets]`. It takes time linear in the text.
    Doing it twice changes nothing more.

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
    _hints: Hints = field(init=False, repr=False, compare=False)
    _mark: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        values, shapes = _checked_values(self.values), _checked_shapes(self.shapes)
        forms = sorted({form for value in values for form in _plain_forms(value)})
        marks = {f"{MARK}{kind}]" for kind in (KNOWN, DENSE, *(shape.kind for shape in shapes))}
        made = {
            "values": values,
            "shapes": shapes,
            "_forms": tuple(forms),
            "_base64": tuple(sorted({form for value in values for form in _base64_forms(value)})),
            "_broken": tuple(sorted(form for form in (*forms, *marks) if has_break(form))),
            "_openers": openers_of(shapes),
            "_hints": Hints(shapes),
            "_mark": re.compile("|".join(map(re.escape, marks))),
        }
        for name, value in made.items():
            object.__setattr__(self, name, value)

    def __call__(self, text: str, /) -> str:
        """The text without them."""
        return replaced(text, self._found(text))

    def known(self, text: str, /) -> str:
        """The text without the known values; what has the shape of a secret stays."""
        return replaced(text, self._values_in(text, list(views_of(TextView(text)))))

    def settled(self, text: str, /) -> int:
        """How much of the text can be shown, as whatever follows makes no part of it a secret.

        What follows may make one of a word that has no end yet, of a few words behind one such as `password`,
        of an open block in PEM form, and of what a known value begins with; in any view of the text.
        """
        # In a word that has no end yet an escape may have none either.
        whole = TextView(text[: finished(text)])
        views = list(views_of(whole))
        end = word_start(text, min(view.place(self._begun(view.text)) for view in views))
        if known := self._values_in(whole.text, views):
            views = list(views_of(whole.replaced([(span.start, span.end) for span in known], NOTHING)))
        for held in (open_block, partial(words_end, openers=self._openers), body_start):
            places = [view.place(held(view.text, at=view.until(end))) for view in views]
            end = word_start(text, min(places))
        for span in reversed(self._found(text)):
            if span.first < end <= (span.last + _DENSE_CHARS if span.kind else span.last - 1):
                # What a name or a prefix stands behind decides, too, whether it is one; and what follows at
                # once, whether all goes together.
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
        shapes = self._hinted_in(views)
        most = _NEAR_CHARS if BLOCKS.isdisjoint(shapes) else MOST_CHARS
        found = self._values_in(text, views)
        taken = [(span.start, span.end) for span in found]
        look = partial(self._shaped, shapes, set[Run]())
        of = first_and_last_of if len(shapes) * len(views) > _MOST_SEARCHES else views_of
        for _ in range(_MOST_ROUNDS):
            if taken or of is first_and_last_of:
                views = _views_without(taken, text, of)
            if not (shaped := list(_looked(text, views, look, taken, of))):
                break
            found = joined([*found, *shaped])
            # What stands beside a match may be one where that is gone; what is far stays as it is.
            taken = list(_merged([*((span.start, span.end) for span in found), *_far(text, shaped, most)]))
        return found

    def _hinted_in(self, views: Sequence[TextView]) -> list[Shape]:
        """The shapes of which a hint stands in one of the views, in their order."""
        found = dict[int, list[str]]()
        for view in views:
            found |= self._hints.of(view.text.lower(), but=found)
        return [self._hints.shapes[number] for number in sorted(found)]

    def _values_in(self, text: str, views: Sequence[TextView]) -> list[Span]:
        """The known values and the marks that stand in the text, in order and apart."""
        marks = self._mark.finditer(text) if MARK in text else ()
        known = _looked(text, views, self._known) if self._forms else ()
        return joined([*(Span(*mark.span(), "", *mark.span()) for mark in marks), *known])

    def _known(self, views: Iterable[TextView]) -> Iterator[list[Span]]:
        """The values in each view."""
        for view in views:
            looks = ((view, self._forms), (view.unfolded, self._base64))
            found = [
                each.span(*place)
                for each, forms in looks
                for form in forms
                for place in _places(each.text, form)
            ]
            yield [Span(*span, KNOWN, *span) for span in found]

    def _shaped(
        self, shapes: Sequence[Shape], read: set[Run], views: Iterable[TextView]
    ) -> Iterator[list[Span]]:
        """The matches of these in each view, but for those that the view before has too.

        Those of all shapes in base64, but for the runs of it that were read before, and are from now on.
        """
        found: dict[tuple[Shape, TextView | None], set[Place]] = {}
        for view in views:
            spans: list[Span] = []
            for shape in shapes:
                matches = _matches(shape, view.text)
                wholes = [whole for whole, _ in matches]
                before, found[shape, view] = found.get((shape, view.since)), set(wholes)
                if before:
                    origins = view.origins(wholes, view.since)
                    matches = [each for each, at in zip(matches, origins, strict=True) if at not in before]
                spans += _spans(view, shape, matches)
            for said in in_base64(view.unfolded, read):
                lowered = said.text.lower()
                lines = said.text.replace(NOTHING, "\n")
                for number, hints in self._hints.of(lowered).items():
                    shape = self._hints.shapes[number]
                    if shape in OF_ONE_LINE:
                        spans += _spans(said, shape, _matches(shape, lines))
                        continue
                    for begin, end in said.parts(lowered, hints):
                        spans += _spans(said, shape, _matches(shape, said.text[begin:end]), begin)
            yield spans


def _looked(
    text: str,
    views: Sequence[TextView],
    look: Callable[[Iterable[TextView]], Iterable[list[Span]]],
    taken: Sequence[Place] = (),
    of: _Views = views_of,
) -> Iterator[Span]:
    """What is found in these views of the text without what is taken.

    Where one of many views is full of it, all that stands there goes before others are looked at.
    """
    before: Sequence[Place] | None = None
    is_in_many = len(views) > _FEW_VIEWS or of is first_and_last_of
    while taken != before:
        before = taken
        for spans in look(views):
            yield from spans
            full = [*_full(text, spans)] if is_in_many else []
            yield from full
            inner = [(span.start + _LONG_CHARS, span.end - _LONG_CHARS) for span in full]
            if inner and (taken := [*_merged([*taken, *inner])]) != before:
                views = _views_without(taken, text, of)
                break


def _views_without(taken: Sequence[Place], text: str, of: _Views) -> list[TextView]:
    return list(of(TextView(text).replaced(taken, NOTHING)))


def _full(text: str, spans: Iterable[Span]) -> Iterator[Span]:
    """Where the text is full of these and written in many ways."""
    near = [(start, end + _DENSE_CHARS) for start, end, *_ in spans if end - start < _LONG_CHARS]
    for start, until in _merged(near):
        end = until - _DENSE_CHARS
        if end - start > _LEAST_DENSE_CHARS and _is_in_many_writings(text[start:end]):
            yield Span(start, end, DENSE, start, end)


def _is_in_many_writings(text: str) -> bool:
    return len(list(islice(views_of(TextView(text)), _FEW_VIEWS + 1))) > _FEW_VIEWS


def _spans(
    view: TextView | Base64View, shape: Shape, matches: Iterable[tuple[Place, Place]], begin: int = 0
) -> Iterator[Span]:
    """What matches in a view, from this place on, are in the text; nothing where they hold no secret."""
    for whole, (start, end) in matches:
        if start < end:
            secret = view.span(begin + start, begin + end)
            around = secret if whole == (start, end) else view.span(begin + whole[0], begin + whole[1])
            yield Span(*secret, shape.kind, *around)


def _far(text: str, spans: Iterable[Span], most: int) -> Iterator[Place]:
    """The lines that are so far from all of these."""
    at = 0
    for start, end in _merged((span.first - most, span.last + most) for span in spans):
        until = text.rfind("\n", at, max(at, start)) + 1
        if at < until:
            yield at, until
        at = max(at, text.find("\n", end) + 1 or len(text))
    if at < len(text):
        yield at, len(text)


def _merged(places: Iterable[Place]) -> Iterator[Place]:
    """The places in order and apart."""
    first = until = 0
    for start, end in sorted(places):
        if start > until:
            if until:
                yield first, until
            first = start
        until = max(until, end)
    if until:
        yield first, until


def _matches(shape: Shape, text: str) -> list[tuple[Place, Place]]:
    """Where the shape stands in the text, and where in it the secret does."""
    matches = _searched(shape, text)
    if group := compiled(shape.pattern).groupindex.get("secret"):
        return [(match.span(), match.span(group)) for match in matches]
    wholes = [match.span() for match in matches]
    if shape.pattern == PRIVATE_KEY.pattern:
        wholes += headless(text)
    return list(zip(wholes, wholes, strict=True))


def _searched(shape: Shape, text: str) -> Iterable[re.Match[str]]:
    """The matches in the text, looked for only around what stands in all of them, where that is rare."""
    pattern = compiled(shape.pattern)
    if shape.anchor is None:
        return pattern.finditer(text)
    least, most = shape.anchor.least, shape.anchor.most
    anchors = list(islice(compiled(shape.anchor.pattern).finditer(text), len(text) // _CHARS_AN_ANCHOR + 1))
    if len(anchors) > len(text) // _CHARS_AN_ANCHOR:
        return pattern.finditer(text)
    found: list[re.Match[str]] = []
    for at in anchors:
        end = found[-1].end() if found else 0
        starts = range(max(end, at.start() - most), at.start() - least + 1)
        found += islice(filter(None, (pattern.match(text, start) for start in starts)), 1)
    return found


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
