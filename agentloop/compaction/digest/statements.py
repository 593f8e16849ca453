"""What was said: sentences weighed, and older values replaced by newer ones.

A message becomes `Spoken` sentences. `forget_superseded` takes out of them what a later one replaces: it
reads each as `Statement`s, "this is that". `weigh` says how much each matters, `as_lines` writes those kept.
"""

import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, TypeAlias

from agentloop._plumbing.patterns import pattern
from agentloop._plumbing.remembered import Remembered
from agentloop.compaction.digest.earlier import Earlier
from agentloop.compaction.digest.language import (
    CHANGE_TO,
    CHANGE_VERBS,
    CHANGE_WORDS,
    CLAUSE,
    COPULA,
    DETERMINERS,
    INSTEAD,
    LEADS,
    MANY,
    NUMBER_WORDS,
    ORDERS,
    OWNERS,
    PHRASE,
    PLACED,
    adds,
    binds,
    changes,
    decides,
    is_keyed,
    is_narration,
    is_news,
    is_pleasant,
)
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
from agentloop.context import Entry

MOST_VALUE_WORDS = 3
"""A value of plain words has at most so many; what is longer tells a story."""

_SIGN = pattern(r"\s?(?:=>|==?|->|→)\s?|[:：]\s+|：")
_LEAD_IN = pattern(r"^[^:：]*[:：]\s+(?=\S+\s+\S)")
_GENITIVE = pattern(r"\b(?!it\b|that\b|let\b|what\b)\w+['’]s\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One clause that says what something is: `key` are the words of what, `value` is the text of the value.

    `told` says that the value stands behind an equals sign, a colon or a form of "to be", and not just last;
    `label` that it is a colon.
    """

    key: frozenset[str]
    value: str
    told: bool
    label: bool = False


def claims(sentence: str) -> Iterator[Statement]:
    """The claims of a sentence, at most one a clause, each about what the whole sentence is about."""
    clauses = clauses_of(sentence)
    found = [None if PLACED.match(clause) and len(clauses) > 1 else _claim(clause) for clause in clauses]
    around = [clause for clause, claim in zip(clauses, found, strict=True) if claim is None]
    common = frozenset(word for clause in around for word in key_of(clause))
    for clause, claim in zip(clauses, found, strict=True):
        if claim:
            yield replace(claim, key=claim.key | common | owners(clause))


def clauses_of(sentence: str) -> list[str]:
    """The clauses of a sentence, without what parts them."""
    return [clause.strip().rstrip(".!?。！？") for clause in CLAUSE.split(sentence) if clause]


def given_up(sentence: str) -> list[str]:
    """What the sentence itself names as no longer so: the X of "instead of X" and "from X to Y"."""
    found = ("".join(filter(None, match.groups())).strip("\"'`*()") for match in INSTEAD.finditer(sentence))
    return [word for word in found if len(word) > 1]


def key_of(text: str) -> frozenset[str]:
    """The words of a text by which two claims are of the same thing."""
    found = words(text)
    low = [bare(word) for word in found]
    around = zip(["", *low], found, [*low[1:], ""], strict=False)
    kept = [word for before, word, behind in around if not _of_change(before, bare(word), behind)]
    return frozenset(map(singular, content_words(kept)))


def owners(text: str) -> frozenset[str]:
    """Whose the things are that a text is about."""
    return OWNERS.intersection(map(bare, words(text)))


def tells_apart(sentence: str, of: str) -> bool:
    """Whether a sentence that names a thing given up narrows it to less than what `of` speaks of."""
    rest = INSTEAD.sub(" ", sentence)
    known = key_of(of)
    narrow = (key_of(match.group(1)) - known for match in PHRASE.finditer(rest))
    apart = (word for words_ in narrow for word in words_ if not is_hard(word))
    theirs = (match.group().lower() for match in _GENITIVE.finditer(sentence))
    return any(apart) or owners(sentence) != owners(of) or any(one not in of.lower() for one in theirs)


def _of_change(before: str, word: str, behind: str) -> bool:
    """Whether a word only says that something is or changes, and not what."""
    if word not in CHANGE_VERBS:
        return word in CHANGE_WORDS
    if not before:
        return word in ORDERS or behind in DETERMINERS
    return before in LEADS


def _claim(clause: str) -> Statement | None:
    parted = _parted(clause)
    if parted:
        what, value = parted
        what = _LEAD_IN.sub("", what) or what
        found = _value(value)
        key = key_of(re.split(r"\bfrom\b", what)[0])
        if found and key:
            key |= _qualifiers(value, found)
            return Statement(key=key, value=found, told=True, label=f"{what.strip()}:" in clause)
        return None
    return _last(clause)


def _parted(clause: str) -> tuple[str, str] | None:
    changed = CHANGE_TO.search(clause)
    match = changed or COPULA.search(clause)
    if match is None:
        match = next(reversed(list(_SIGN.finditer(clause))), None)
    if match is None or not clause[match.end() :].strip():
        return None
    before = changed.group() if changed else ""
    return clause[: match.start()] + " " + before, clause[match.end() :]


def _value(text: str) -> str | None:
    """The one exact word of a text, else its few plain words."""
    found = words(text)
    hard = [word for word in found if is_hard(word)]
    if len(hard) == 1:
        return hard[0]
    plain = [word for word in found if bare(word) not in CHANGE_WORDS | ORDERS]
    plain = [word for word in plain if next(content_words([word]), None)]
    if hard or not 1 <= len(plain) <= MOST_VALUE_WORDS:
        return None
    start = text.find(plain[0])
    return text[start : text.find(plain[-1], start) + len(plain[-1])]


def _qualifiers(text: str, value: str) -> frozenset[str]:
    """What else is said of the thing behind an exact value: "30 for uploads" is of other than "30"."""
    if not is_hard(value):
        return frozenset()
    return key_of(text.replace(value, " ", 1))


def _last(clause: str) -> Statement | None:
    """What the one exact word, else the one name, of a clause is said of."""
    found = words(clause)
    hard = [word for word in found if is_hard(word)] or [word for word in found[1:] if _is_proper(word)]
    if len(hard) != 1:
        return None
    key = key_of(clause.replace(hard[0], " ", 1))
    return Statement(key=key, value=hard[0], told=False) if key else None


def _is_proper(word: str) -> bool:
    return len(word) > 1 and word[0].isupper() and not word.startswith(("I'", "I’"))


OLDER = " [older, said at {at}]"
"""Stands behind a value that may no longer hold: something newer may be of the same thing."""

LEAST_SHARED, SHARED = 2, 1 / 3
"""A newer sentence may be of the same thing as an older one where they share so many words, and more than
this share of those of the shorter."""

CHANGED = "[changed later]"
"""Stands for a value that no longer holds in a sentence that says more than that."""

MOST_CANDIDATES = 64
"""So many of the newest claims about a word are compared with a new one, which keeps it linear."""

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
    doubted: bool = False

    def lose(self, value: str, newer: frozenset[str]) -> None:
        """Take a value out; all of it where the newer sentence says the rest as well."""
        rest = key_of(self.text.replace(value, " "))
        if rest <= newer:
            self.text = ""
        else:
            self.text = _with(self.text, value, CHANGED)

    def doubt(self, value: str) -> None:
        """Mark a value as one that may no longer hold, once."""
        self.doubted = True
        if self.at > 0:
            self.text = _with(self.text, value, value + OLDER.format(at=self.at))


def _with(text: str, value: str, other: str) -> str:
    """The text with something else where it says the value last."""
    at = text.rfind(value)
    return text if at < 0 else text[:at] + other + text[at + len(value) :]


def forget_superseded(stated: Iterable[Stated]) -> list[str]:
    """Take out of these sentences, oldest first, what a later one replaces; what they were is returned.

    Where it is in doubt whether two are of the same thing, both stay, and the older says where it was said.
    """
    known = _Known()
    for sentence in stated:
        if sentence.firm:
            known.hear(sentence)
    return known.gone


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """What a sentence claims, and the words of what it says; whether it says what is new, and of a change."""

    claims: Sequence[Statement]
    said: frozenset[str]
    is_news: bool
    changes: bool


@Remembered
def _parts_of(sentence: str) -> _Parts:
    return _Parts(
        claims=tuple(claims(sentence)),
        said=frozenset(map(singular, content_words(words(sentence)))),
        is_news=is_news(sentence) and not adds(sentence),
        changes=changes(sentence),
    )


def _newest() -> defaultdict[Any, deque[Any]]:
    return defaultdict(lambda: deque(maxlen=MOST_CANDIDATES))


@dataclass(slots=True)
class _Known:
    """What was heard: the claims about each thing, and the sentences with each word."""

    claimed: defaultdict[frozenset[str], deque[tuple[Statement, Stated]]] = field(default_factory=_newest)
    mentioned: defaultdict[str, deque[Stated]] = field(default_factory=_newest)
    latest: dict[frozenset[str], tuple[int, str]] = field(default_factory=dict)
    fields: set[frozenset[str]] = field(default_factory=set)
    gone: list[str] = field(default_factory=list)

    def hear(self, sentence: Stated) -> None:
        parts = _parts_of(sentence.text)
        if parts.is_news:
            for claim in parts.claims:
                self._replace(claim, sentence, parts)
            if parts.changes:
                self._drop_named(sentence, parts.said)
                self._doubt(sentence, parts.said)
        for claim in parts.claims:
            self._count(claim, sentence)
            self.claimed[claim.key].append((claim, sentence))
        for word in parts.said:
            self.mentioned[word].append(sentence)

    def _count(self, claim: Statement, sentence: Stated) -> None:
        """Take note of what one message gives two values: the field of a record, not one thing."""
        before = self.latest.get(claim.key)
        if before and before[0] == sentence.at and before[1] != claim.value:
            self.fields.add(claim.key)
        self.latest[claim.key] = (sentence.at, claim.value)

    def _replace(self, new: Statement, newer: Stated, parts: _Parts) -> None:
        """What the same words said before, in the same way, is replaced."""
        if new.key in self.fields:
            return
        for old, earlier in self.claimed.get(new.key, ()):
            if (
                _may(earlier, newer)
                and _differ(old, parts.said)
                and _is_newer(new, old, by_user=earlier.role == newer.role == "user", change=parts.changes)
            ):
                self._lose(earlier, old.value, parts.said)

    def _drop_named(self, newer: Stated, said: frozenset[str]) -> None:
        """What the sentence itself names as given up goes where the rest is about the same."""
        for name in given_up(newer.text):
            if newer.role != "user" and not any(map(str.isdigit, name)):
                continue
            for earlier in self.mentioned.get(_same(name), ()):
                same = key_of(_clause_with(name, earlier.text)) - {_same(name)} <= said
                if same and _may(earlier, newer) and not tells_apart(newer.text, earlier.text):
                    self._lose(earlier, name, said)

    def _doubt(self, newer: Stated, said: frozenset[str]) -> None:
        """What says a value of the same shape of what seems the same thing may no longer hold."""
        values = _values(newer.text)
        if not values:
            return
        shared: Counter[Stated] = Counter()
        for word in said.difference(*(map(bare, found) for found in values.values())):
            shared.update(self.mentioned.get(word, ()))
        for earlier, count in shared.items():
            if count < LEAST_SHARED or earlier.doubted or not _may(earlier, newer):
                continue
            if count <= SHARED * min(len(said), len(_parts_of(earlier.text).said)):
                continue
            for shape, found in _values(earlier.text).items():
                if len(found) == len(values.get(shape, ())) == 1 and found != values[shape]:
                    self.gone += found
                    earlier.doubt(next(iter(found)))

    def _lose(self, earlier: Stated, value: str, said: frozenset[str]) -> None:
        if earlier.text and value in earlier.text:
            self.gone.append(earlier.text)
            earlier.lose(value, said)


def _may(earlier: Stated, newer: Stated) -> bool:
    """Whether the newer sentence may replace what the earlier one says."""
    if earlier.at == newer.at:
        return False
    return bool(earlier.text) and RANKS.get(earlier.role, 0) <= RANKS.get(newer.role, 0)


def _is_newer(new: Statement, old: Statement, *, by_user: bool, change: bool) -> bool:
    same_way = old.told and new.told and _alike(old.value, new.value) and not new.key & MANY
    if by_user:
        return change or same_way
    return same_way and (change or not new.label)


def _differ(old: Statement, said: frozenset[str]) -> bool:
    """Whether nothing of the old value is said again."""
    return not said.intersection(map(singular, content_words(words(old.value))))


def _alike(old: str, new: str) -> bool:
    return is_hard(old) and is_hard(new) and kind_of_value(new) == kind_of_value(old)


@Remembered
def _values(text: str) -> dict[str, set[str]]:
    """The exact words of a text, by their shape; a number in words has that of one in digits."""
    found: dict[str, set[str]] = {}
    for word in words(text):
        if is_hard(word) or bare(word) in NUMBER_WORDS:
            kind = "number" if bare(word) in NUMBER_WORDS else kind_of_value(word)
            shape = f"{word.isupper()}{'-' in word}{'_' in word}" if kind == "name" else ""
            found.setdefault(kind + shape, set()).add(word)
    return found


def _same(name: str) -> str:
    return singular(bare(name))


def _clause_with(value: str, text: str) -> str:
    return next((clause for clause in clauses_of(text) if value in clause), text)


MOST_CHARS_IN_ALL = 20_000_000
"""So much of all messages together is looked at."""

LEAST_CHARS, MOST_CHARS = 2_000, 100_000
"""Of one message at least and at most so much is looked at, head and tail together."""


_CODE = pattern(r"=|[({\[,]$|^[#>+|-]")
"""In a long message, what may be a line of code, though it looks like words."""

GAP = " … "
"""Stands in a line for sentences of the same message that were left out."""

_GAP = pattern(r" …[ \n]")

HEAD = 5

SHORT = 6
"""A message with more sentences holds more than what its user wanted to say: a text pasted, a report."""


@dataclass(slots=True, kw_only=True, eq=False)
class Spoken:
    """One sentence of a message; `at` and `number` are its place, `weight` is how much it matters.

    One that is not `telling` comes last of all. One that is `light` neither binds nor holds anything exact;
    one that is `alone` can be understood without those before it.
    """

    at: int
    number: int
    sentence: Sentence
    stated: Stated
    weight: float = 0.0
    telling: bool = False
    light: bool = False
    alone: bool = False
    long: bool = False
    first: bool = False
    last: bool = False

    @property
    def is_of_short_message(self) -> bool:
        """Whether a user said it in a few words, which are to be kept together."""
        return self.stated.role == "user" and not self.long and not self.sentence.pasted

    @property
    def text(self) -> str:
        """What is left of it once newer sentences were heard."""
        return self.stated.text


def spoken(entries: Sequence[Entry], *, before: Iterable[Spoken] = ()) -> list[Spoken]:
    """Every sentence of users and assistants in order, those said again later left out.

    `before` is what was said before them.
    """
    most = max(LEAST_CHARS, min(MOST_CHARS, MOST_CHARS_IN_ALL // max(1, len(entries))))
    found = [
        one
        for entry in entries
        if entry.original.role in ("user", "assistant")
        for one in _numbered(
            entry.seq, entry.original.role, list(enumerate(sentences(entry.original.text, most_chars=most)))
        )
    ]
    return _once([*before, *found])


def retold(earlier: Earlier) -> Iterator[Spoken]:
    """The sentences of an earlier record: each text a message, in places before all that was said since."""
    texts = [("user", text) for text in earlier.asked]
    texts += [("assistant", text) for text in earlier.decided]
    for at, (role, text) in enumerate(texts, -len(texts)):
        yield from _numbered(at, role, list(_with_gaps(text)))


def _with_gaps(text: str) -> Iterator[tuple[int, Sentence]]:
    """The sentences of a text with their numbers, which leave one out where sentences were left out."""
    number = 0
    for part in _GAP.split(text):
        for sentence in sentences(part, most_chars=MOST_CHARS):
            yield number, sentence
            number += 1
        number += 1


def _numbered(at: int, role: str, parts: Sequence[tuple[int, Sentence]]) -> Iterator[Spoken]:
    is_long = sum(not sentence.pasted for _, sentence in parts) > SHORT
    for number, sentence in parts:
        yield Spoken(
            long=is_long,
            at=at,
            number=number,
            sentence=sentence,
            stated=Stated(
                text=sentence.text,
                role=role,
                at=at,
                firm=not sentence.pasted and not (is_long and _CODE.search(sentence.text)),
            ),
            first=number == 0,
            last=number == parts[-1][0],
        )


def _once(found: Sequence[Spoken]) -> list[Spoken]:
    """Of sentences that say the same, letter for letter, the newest; the task where it stood first."""
    newest: dict[tuple[str, str], Spoken] = {}
    for one in found:
        newest[one.stated.role, one.text.casefold()] = one
    kept = {id(one) for one in newest.values()}
    return [one for one in found if id(one) in kept]


Said: TypeAlias = tuple[Spoken, ...]
"""Sentences that stand or fall together."""

MOST_OF_NOTHING = 2
"""An assistant's sentence of so few words that mean something only says that it goes on; a user's question
too."""

LEAST_ALONE = 4
"""With so many words that mean something, an exact one among them, a sentence says of what it speaks."""

AGAIN = 4
"""So much less weighs what was said again with another number or name."""

LEAST_CHARS_WEIGHED = 40
"""What is shorter weighs no more for its length."""


def weigh(found: Sequence[Spoken], *, task: int | None) -> None:
    """Give each sentence its weight: what binds, decides or gives a value, and what was said but once.

    One that says nothing, a nod or what is about to be done, has none. Of those that differ in nothing but
    what is exact the newest weighs most.
    """
    looks = [_LOOKS[one.stated.role](one.text) for one in found]
    uses = Counter(chain.from_iterable(look.content for look in looks))
    newer: set[tuple[str, ...]] = set()
    for one, look in reversed(list(zip(found, looks, strict=True))):
        by_user = one.stated.role == "user"
        one.telling = not one.sentence.pasted and (look.cue > 0 or look.hard or by_user)
        one.light = not (look.cue > 0 or look.hard)
        one.alone = look.hard and len(look.content) >= LEAST_ALONE
        if look.cue > 0 or not look.says_nothing:
            place = 1.0 * (one.first or one.last) + _of_task(one, task)
            said_once = sum([1 / uses[word] for word in look.content]) / max(1, len(look.content))
            one.weight = 1.5 * look.hard + look.cue + place + 2 * said_once
            one.weight /= 2 if look.asks else 1
        if look.hard and len(look.around) >= LEAST_ALONE:
            one.weight /= AGAIN if look.around in newer else 1
            newer.add(look.around)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """What a sentence looks like by itself.

    `content` are its words that mean something, `around` those without what is exact; `hard` says that one of
    them must be exact, `cue` how much it seems to bind or decide. What a question led to says more than it.
    """

    content: tuple[str, ...]
    around: tuple[str, ...]
    hard: bool
    cue: float
    says_nothing: bool
    asks: bool


def _look(text: str, cue_of: Callable[[str], float], *, by_user: bool) -> _Look:
    found = words(text)
    content = tuple(dict.fromkeys(content_words(found)))
    hard = any(is_hard(word) for word in found)
    exact = hard or (by_user and any(map(_is_proper, found[1:])))
    asks = text.endswith(("?", "？"))
    if not by_user and (is_narration(text) or text.rstrip("*_ ").endswith((":", "："))):
        says_nothing = True
    elif is_pleasant(text):
        says_nothing = not exact
    else:
        says_nothing = (asks or not by_user) and not exact and len(content) <= MOST_OF_NOTHING
    return _Look(
        content=content,
        around=tuple(content_words(word for word in found if not is_hard(word))) if hard else content,
        hard=exact,
        cue=cue_of(text),
        says_nothing=says_nothing,
        asks=asks,
    )


def _cue_of_user(text: str) -> float:
    return 2.0 * binds(text) + is_keyed(text) + changes(text)


def _cue_of_assistant(text: str) -> float:
    return 2.0 * decides(text) + 1.5 * is_keyed(text)


_LOOKS = {
    "user": Remembered(lambda text: _look(text, _cue_of_user, by_user=True)),
    "assistant": Remembered(lambda text: _look(text, _cue_of_assistant, by_user=False)),
}


def _of_task(one: Spoken, task: int | None) -> float:
    """What the first message of all asks for stands mostly in its first sentences."""
    return 0.0 if one.at != task else 3.0 if one.number < HEAD else 1.0


def said_together(found: Sequence[Spoken], *, most_chars: float) -> list[Said]:
    """The sentences of each short message of a user together, all others one by one; none of no weight.

    Light ones before one that can be understood by itself are no part of it: "Go on. Ann Quist owns it now."
    """
    together: dict[object, list[Spoken]] = {}
    for one in found:
        place = one.at if one.is_of_short_message else (one.at, one.number)
        together.setdefault(place, []).append(one)
    said: list[Said] = []
    for group in together.values():
        if sum(len(one.text) for one in group) <= most_chars:
            opening = _opening(group)
            said += filter(None, (tuple(group[:opening]), tuple(group[opening:])))
        else:
            said += ((one,) for one in group)
    return [each for each in said if any(one.weight > 0 for one in each)]


def _opening(group: Sequence[Spoken]) -> int:
    """How many light sentences stand before one that needs none of them."""
    first = next((at for at, one in enumerate(group) if not one.light), 0)
    return first if group[first].alone else 0


def by_weight(found: Iterable[Said]) -> tuple[list[Said], list[Said]]:
    """The heaviest for their length first, of equal ones the newest; those that tell, and the others."""
    ranked = sorted(found, key=lambda said: (-_density(said), -said[0].at, said[0].number))
    return (
        [said for said in ranked if any(one.telling for one in said)],
        [said for said in ranked if not any(one.telling for one in said)],
    )


def _density(said: Said) -> float:
    return max(one.weight for one in said) / (LEAST_CHARS_WEIGHED + sum(len(one.text) for one in said))


def as_lines(kept: Iterable[Spoken]) -> list[str]:
    """The sentences in the order in which they were said, one item a message."""
    lines: list[str] = []
    before: Spoken | None = None
    for one in sorted(kept, key=lambda one: (one.at, one.number)):
        text = f"> {one.text}" if one.sentence.quoted else one.text
        if before is None or before.at != one.at:
            lines.append(f"- {text}")
        else:
            lines[-1] += _between(before, one) + text
        before = one
    return lines


def _between(before: Spoken, one: Spoken) -> str:
    """What parts two sentences of one message; a quote has lines of its own."""
    joined = one.sentence.before == " " and one.sentence.quoted is before.sentence.quoted
    if one.number == before.number + 1:
        return " " if joined else "\n"
    return f"{GAP.rstrip()}\n" if one.sentence.quoted or before.sentence.quoted else GAP
