"""What was said: older values are replaced by newer ones.

A message is heard sentence by sentence (`Statements.hear`), each read as what it claims (`claims.py`): what
it replaces is taken out of older ones. What stands is weighed by `weight.py`.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from agentloop._plumbing.patterns import pattern
from agentloop.compaction.digest.claims import ClaimedValue, claims, clauses_of, given_up, key_of, tells_apart
from agentloop.compaction.digest.language import MANY, NUMBER_WORDS, adds, changes, is_news
from agentloop.compaction.digest.sentences import (
    Sentence,
    bare,
    content_words,
    is_hard,
    kind_of_value,
    sentences,
    singular,
    words,
)
from agentloop.compaction.digest.weight import Look, Spoken, look_at

OLDER = " [older, said at {at}]"
"""Stands behind a value that may no longer hold: something newer may be of the same thing."""

LEAST_SHARED, SHARED = 2, 1 / 3
"""A newer sentence may be of the same thing as an older one where they share so many words, and more than
this share of those of the shorter."""

CHANGED = "[changed later]"
"""Stands for a value that no longer holds in a sentence that says more than that."""

MOST_CANDIDATES = 64
"""So many of the newest claims about a word are compared with a new one, which keeps it linear."""


class Wording:
    """A sentence as it is worded, with what that says by itself, each found out once and shared."""

    def __init__(self, text: str, role: str) -> None:
        self.text = text
        self.role = role

    @cached_property
    def claims(self) -> Sequence[ClaimedValue]:
        """What it claims."""
        return tuple(claims(self.text))

    @cached_property
    def said(self) -> frozenset[str]:
        """The words of what it says."""
        return frozenset(map(singular, content_words(words(self.text))))

    @cached_property
    def is_news(self) -> bool:
        """Whether it says what is so now, and not what is so as well."""
        return is_news(self.text) and not adds(self.text)

    @cached_property
    def is_change(self) -> bool:
        """Whether it says that something changes."""
        return changes(self.text)

    @cached_property
    def values(self) -> dict[str, set[str]]:
        """Its exact words, by their shape; a number in words has that of one in digits."""
        found: dict[str, set[str]] = {}
        for word in words(self.text):
            if is_hard(word) or bare(word) in NUMBER_WORDS:
                kind = "number" if bare(word) in NUMBER_WORDS else kind_of_value(word)
                shape = f"{word.isupper()}{'-' in word}{'_' in word}" if kind == "name" else ""
                found.setdefault(kind + shape, set()).add(word)
        return found

    @cached_property
    def look(self) -> Look:
        """How much there is to it."""
        return look_at(self.text, by_user=self.role == "user")


@dataclass(slots=True, kw_only=True, eq=False)
class Stated:
    """One sentence of a message, and as `left` what is left of it once newer ones are heard, maybe nothing.

    `at` and `number` are its place. One that is not `firm`, code or output that somebody pasted, is kept as
    it is and replaces nothing. `again` is where the same was said next, letter for letter.
    """

    at: int
    number: int
    sentence: Sentence
    wording: Wording
    left: Wording
    firm: bool = True
    long: bool = False
    is_edge: bool = False
    doubted: bool = False
    again: "Stated | None" = None

    @property
    def role(self) -> str:
        """Who said it."""
        return self.left.role

    @property
    def text(self) -> str:
        """What is left of it."""
        return self.left.text

    def lose(self, value: str, newer: frozenset[str]) -> None:
        """Take a value out; all of it where the newer sentence says the rest as well."""
        rest = key_of(self.text.replace(value, " "))
        self._change("" if rest <= newer else _with(self.text, value, CHANGED))

    def doubt(self, value: str) -> None:
        """Mark a value as one that may no longer hold, once."""
        self.doubted = True
        if self.at > 0:
            self._change(_with(self.text, value, value + OLDER.format(at=self.at)))

    def _change(self, text: str) -> None:
        self.left = Wording(text, self.role)


def _with(text: str, value: str, other: str) -> str:
    """The text with something else where it says the value last."""
    at = text.rfind(value)
    return text if at < 0 else text[:at] + other + text[at + len(value) :]


_Newest: TypeAlias = dict[Stated, None]
"""The newest sentences of one thing, oldest first."""


@dataclass(slots=True)
class Statements:
    """All that was said so far, oldest first, with what newer sentences left of it.

    Where it is in doubt whether two are of the same thing, both stay, and the older says where it was said.
    `gone` is what a sentence said that no longer holds, or may not.
    """

    stated: list[Stated] = field(default_factory=list)
    gone: dict[Stated, list[str]] = field(default_factory=lambda: defaultdict(list))
    _claimed: dict[frozenset[str], _Newest] = field(default_factory=lambda: defaultdict(dict))
    _mentioned: dict[str, _Newest] = field(default_factory=lambda: defaultdict(dict))
    _latest: dict[frozenset[str], tuple[int, str]] = field(default_factory=dict)
    _fields: set[frozenset[str]] = field(default_factory=set)
    _said: dict[tuple[str, str], Stated] = field(default_factory=dict)

    def hear(self, sentence: Stated) -> None:
        """Take in a sentence that is newer than all others: older ones lose what it replaces."""
        self.stated.append(sentence)
        same = sentence.role, sentence.text.casefold()
        if before := self._said.get(same):
            self._hear_again(before, sentence)
        self._said[same] = sentence
        if sentence.firm:
            self._compare(sentence)

    def wording_of(self, text: str, role: str) -> Wording:
        """The text as it is worded; the same as before where that was said before."""
        before = self._said.get((role, text.casefold()))
        return before.wording if before and before.wording.text == text else Wording(text, role)

    def standing(self, until: int) -> Iterator[Spoken]:
        """What is left of the messages up to that position; of what they say twice the newer."""
        for one in self.stated:
            if one.at > until:
                return
            if one.again and one.again.at <= until:
                continue
            newest = self._said[one.role, one.sentence.text.casefold()] if one.again else one
            if newest.text:
                yield Spoken(
                    at=one.at,
                    number=one.number,
                    role=one.role,
                    text=newest.text,
                    sentence=one.sentence,
                    look=newest.left.look,
                    doubted=newest.doubted,
                    long=one.long,
                    is_edge=one.is_edge,
                )

    def _hear_again(self, before: Stated, sentence: Stated) -> None:
        """From now on the newer stands for both: what was said to be gone is so again."""
        before.again = sentence
        self.gone.pop(before, None)
        if before.firm:
            for claim in before.wording.claims:
                self._claimed[claim.key].pop(before, None)
            for word in before.wording.said:
                self._mentioned[word].pop(before, None)

    def _compare(self, sentence: Stated) -> None:
        """Take out of older sentences what a firm one replaces, and know it as a claim of its own."""
        wording = sentence.wording
        if wording.is_news:
            for claim in wording.claims:
                self._replace(claim, sentence)
            if wording.is_change:
                self._drop_named(sentence)
                self._doubt(sentence)
        for claim in wording.claims:
            self._count(claim, sentence)
            _add(self._claimed[claim.key], sentence)
        for word in wording.said:
            _add(self._mentioned[word], sentence)

    def _count(self, claim: ClaimedValue, sentence: Stated) -> None:
        """Take note of what one message gives two values: the field of a record, not one thing."""
        before = self._latest.get(claim.key)
        if before and before[0] == sentence.at and before[1] != claim.value:
            self._fields.add(claim.key)
        self._latest[claim.key] = (sentence.at, claim.value)

    def _replace(self, new: ClaimedValue, newer: Stated) -> None:
        """What the same words said before, in the same way, is replaced."""
        if new.key in self._fields:
            return
        said, by_user = newer.wording.said, newer.role == "user"
        for earlier in self._claimed.get(new.key, ()):
            if not _may(earlier, newer):
                continue
            for old in earlier.wording.claims:
                if (
                    old.key == new.key
                    and _differ(old, said)
                    and _is_newer(
                        new, old, by_user=by_user and earlier.role == "user", change=newer.wording.is_change
                    )
                ):
                    self._lose(earlier, old.value, said)

    def _drop_named(self, newer: Stated) -> None:
        """What the sentence itself names as given up goes where the rest is about the same."""
        said = newer.wording.said
        for name in given_up(newer.text):
            if newer.role != "user" and not any(map(str.isdigit, name)):
                continue
            for earlier in self._mentioned.get(_same(name), ()):
                same = key_of(_clause_with(name, earlier.text)) - {_same(name)} <= said
                if same and _may(earlier, newer) and not tells_apart(newer.text, earlier.text):
                    self._lose(earlier, name, said)

    def _doubt(self, newer: Stated) -> None:
        """What says a value of the same shape of what seems the same thing may no longer hold."""
        said, values = newer.wording.said, newer.wording.values
        if not values:
            return
        shared: Counter[Stated] = Counter()
        for word in said.difference(*(map(bare, found) for found in values.values())):
            shared.update(self._mentioned.get(word, {}).keys())
        for earlier, count in shared.items():
            if count < LEAST_SHARED or earlier.doubted or not _may(earlier, newer):
                continue
            if count <= SHARED * min(len(said), len(earlier.left.said)):
                continue
            for shape, found in earlier.left.values.items():
                other = values.get(shape, set())
                if len(found) == len(other) == 1 and found != other and _are_alike(*found, *other):
                    self.gone[earlier] += found
                    earlier.doubt(next(iter(found)))

    def _lose(self, earlier: Stated, value: str, said: frozenset[str]) -> None:
        if earlier.text and value in earlier.text:
            self.gone[earlier].append(earlier.text)
            earlier.lose(value, said)


def _add(newest: _Newest, sentence: Stated) -> None:
    newest[sentence] = None
    if len(newest) > MOST_CANDIDATES:
        del newest[next(iter(newest))]


def _may(earlier: Stated, newer: Stated) -> bool:
    """Whether the newer sentence may replace the earlier one: what a user said no assistant does."""
    is_another = earlier.at != newer.at and earlier.text != ""
    return is_another and (newer.role == "user" or earlier.role != "user")


def _is_newer(new: ClaimedValue, old: ClaimedValue, *, by_user: bool, change: bool) -> bool:
    same_way = old.told and new.told and _alike(old.value, new.value) and not new.key & MANY
    if by_user:
        return change or same_way
    return same_way and (change or not new.label)


def _differ(old: ClaimedValue, said: frozenset[str]) -> bool:
    """Whether nothing of the old value is said again."""
    return not said.intersection(map(singular, content_words(words(old.value))))


def _alike(old: str, new: str) -> bool:
    return is_hard(old) and is_hard(new) and kind_of_value(new) == kind_of_value(old)


def _are_alike(one: str, other: str) -> bool:
    """Whether not one is a whole number and the other a version of three parts."""
    return abs(one.count(".") - other.count(".")) < 2


def _same(name: str) -> str:
    return singular(bare(name))


def _clause_with(value: str, text: str) -> str:
    return next((clause for clause in clauses_of(text) if value in clause), text)


MOST_CHARS = 100_000
"""Of one message at most so much is looked at, head and tail together."""

_CODE = pattern(r"=|[({\[,]$|^[#>+|-]")
"""In a long message, what may be a line of code, though it looks like words."""

_GAP = pattern(r" …[ \n]")

SHORT = 6
"""A message with more sentences holds more than what its user wanted to say: a text pasted, a report."""


def stated_in(at: int, worded: Sequence[tuple[int, Sentence, Wording]]) -> Iterator[Stated]:
    """The sentences of a message, each with its number in it."""
    is_long = sum(not sentence.pasted for _, sentence, _ in worded) > SHORT
    for number, sentence, wording in worded:
        yield Stated(
            long=is_long,
            at=at,
            number=number,
            sentence=sentence,
            wording=wording,
            left=wording,
            firm=not sentence.pasted and not (is_long and _CODE.search(sentence.text)),
            is_edge=number in (0, worded[-1][0]),
        )


def retold(texts: Sequence[tuple[str, str]]) -> Iterator[Stated]:
    """The sentences of an earlier record, given as roles and texts.

    Each text is a message, in a place before all that was said since.
    """
    for at, (role, text) in enumerate(texts, -len(texts)):
        parts = list(_with_gaps(text))
        yield from stated_in(at, [(number, one, Wording(one.text, role)) for number, one in parts])


def _with_gaps(text: str) -> Iterator[tuple[int, Sentence]]:
    """The sentences of a text with their numbers, which leave one out where sentences were left out."""
    number = 0
    for part in _GAP.split(text):
        for sentence in sentences(part, most_chars=MOST_CHARS):
            yield number, sentence
            number += 1
        number += 1
