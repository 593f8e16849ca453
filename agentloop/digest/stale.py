"""What was said earlier and is no longer so: a newer value of the same thing replaces the older one."""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from agentloop.digest.claims import Claim, claims, clauses_of, given_up, key_of, tells_apart
from agentloop.digest.cues import adds, changes, is_news
from agentloop.digest.words import bare, content_words, is_hard, kind_of_value, singular, words

CHANGED = "[changed later]"
"""Stands for a value that no longer holds in a sentence that says more than that."""

MOST_CANDIDATES = 64
"""So many of the newest claims about a word are compared with a new one, which keeps it linear."""

_MANY_TEXT = "ticket invoice order issue case item customer reference receipt booking chapter"
MANY = frozenset(_MANY_TEXT.split())
"""Things of which there are many: a second one is no new value of the first unless it says so."""

RANKS = {"tool": 0, "assistant": 1, "user": 2}
"""What a user said is not made stale by an assistant, nor what either said by a tool."""


@dataclass(slots=True, kw_only=True, eq=False)
class Stated:
    """A sentence of message `at` with what is left of it once newer ones are heard: "" where nothing is.

    One that is not `firm`, code or output that somebody pasted, is kept as it is and replaces nothing.
    """

    text: str
    role: str
    at: int = 0
    firm: bool = True

    def lose(self, value: str, newer: frozenset[str]) -> None:
        """Take a value out; all of it where the newer sentence says the rest as well."""
        rest = key_of(self.text.replace(value, " "))
        if rest <= newer:
            self.text = ""
        else:
            self.text = _without(self.text, value)


def _without(text: str, value: str) -> str:
    at = text.rfind(value)
    return text if at < 0 else text[:at] + CHANGED + text[at + len(value) :]


def forget_superseded(stated: Iterable[Stated]) -> list[str]:
    """Take out of these sentences, oldest first, what a later one replaces; what they were is returned.

    Where it is in doubt whether two are of the same thing, both stay.
    """
    known = _Known()
    for sentence in stated:
        if sentence.firm:
            known.hear(sentence)
    return known.gone


Postings: TypeAlias = defaultdict[str, deque[tuple[Claim | None, Stated]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Heard:
    """A sentence taken apart."""

    sentence: Stated
    claims: list[Claim]
    said: frozenset[str]

    @classmethod
    def of(cls, sentence: Stated) -> "_Heard":
        found = words(sentence.text)
        return cls(
            sentence=sentence,
            claims=list(claims(sentence.text)),
            said=frozenset(map(singular, content_words(found))),
        )


def _postings() -> Postings:
    return defaultdict(lambda: deque(maxlen=MOST_CANDIDATES))


@dataclass(slots=True)
class _Known:
    claimed: Postings = field(default_factory=_postings)
    mentioned: Postings = field(default_factory=_postings)
    latest: dict[frozenset[str], tuple[int, str]] = field(default_factory=dict)
    fields: set[frozenset[str]] = field(default_factory=set)
    gone: list[str] = field(default_factory=list)

    def hear(self, sentence: Stated) -> None:
        heard = _Heard.of(sentence)
        if is_news(sentence.text) and not adds(sentence.text):
            change = changes(sentence.text)
            for claim in heard.claims:
                self._replace(claim, heard, change)
            if change:
                self._drop_named(heard)
        for claim in heard.claims:
            self._count(claim, sentence)
            for word in claim.key:
                self.claimed[word].append((claim, sentence))
        for word in heard.said:
            self.mentioned[word].append((None, sentence))

    def _count(self, claim: Claim, sentence: Stated) -> None:
        """Take note of what one message gives two values: the field of a record, not one thing."""
        before = self.latest.get(claim.key)
        if before and before[0] == sentence.at and before[1] != claim.value:
            self.fields.add(claim.key)
        self.latest[claim.key] = (sentence.at, claim.value)

    def _replace(self, new: Claim, heard: _Heard, change: bool) -> None:
        """What the same words said before, in the same way, is replaced."""
        if new.key in self.fields:
            return
        for old, earlier in self._about(new.key, heard):
            if (
                old.key == new.key
                and _differ(old, heard.said)
                and self._is_newer(new, old, earlier, heard, change)
            ):
                self._lose(earlier, old.value, heard)

    def _is_newer(self, new: Claim, old: Claim, earlier: Stated, heard: _Heard, change: bool) -> bool:
        same_way = old.told and new.told and _alike(old.value, new.value) and not new.key & MANY
        if earlier.role == heard.sentence.role == "user":
            return change or same_way
        return same_way and (change or not new.label)

    def _drop_named(self, heard: _Heard) -> None:
        """What the sentence itself names as given up goes where the rest is about the same."""
        for name in given_up(heard.sentence.text):
            if heard.sentence.role != "user" and not any(map(str.isdigit, name)):
                continue
            for _, earlier in list(self.mentioned.get(_same(name), ())):
                same = key_of(_clause_with(name, earlier.text)) - {_same(name)} <= heard.said
                if same and self._may(earlier, heard) and not tells_apart(heard.sentence.text, earlier.text):
                    self._lose(earlier, name, heard)

    def _about(self, about: Iterable[str], heard: _Heard) -> Iterator[tuple[Claim, Stated]]:
        seen: set[int] = set()
        for word in about:
            for claim, earlier in list(self.claimed.get(word, ())):
                if claim and id(claim) not in seen and self._may(earlier, heard):
                    seen.add(id(claim))
                    yield claim, earlier

    def _may(self, earlier: Stated, heard: _Heard) -> bool:
        newer = heard.sentence
        if earlier.at == newer.at:
            return False
        return bool(earlier.text) and RANKS.get(earlier.role, 0) <= RANKS.get(newer.role, 0)

    def _lose(self, earlier: Stated, value: str, heard: _Heard) -> None:
        if earlier.text and value in earlier.text:
            self.gone.append(earlier.text)
            earlier.lose(value, heard.said)


def _differ(old: Claim, said: frozenset[str]) -> bool:
    """Whether nothing of the old value is said again."""
    return not said.intersection(map(singular, content_words(words(old.value))))


def _alike(old: str, new: str) -> bool:
    return is_hard(old) and is_hard(new) and kind_of_value(new) == kind_of_value(old)


def _same(name: str) -> str:
    return singular(bare(name))


def _clause_with(value: str, text: str) -> str:
    return next((clause for clause in clauses_of(text) if value in clause), text)
