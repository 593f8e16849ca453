"""What a sentence claims: "this is that", clause by clause, and what it names as no longer so."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from agentloop._plumbing.patterns import pattern
from agentloop.compaction.digest.language import (
    CHANGE_TO,
    CHANGE_VERBS,
    CHANGE_WORDS,
    CLAUSE,
    COPULA,
    DETERMINERS,
    INSTEAD,
    LEADS,
    ORDERS,
    OWNERS,
    PHRASE,
    PLACED,
)
from agentloop.compaction.digest.sentences import bare, content_words, is_hard, is_proper, singular, words

MOST_VALUE_WORDS = 3
"""A value of plain words has at most so many; what is longer tells a story."""

_SIGN = pattern(r"\s?(?:=>|==?|->|→)\s?|[:：]\s+|：")
_LEAD_IN = pattern(r"^[^:：]*[:：]\s+(?=\S+\s+\S)")
_GENITIVE = pattern(r"\b(?!it\b|that\b|let\b|what\b)\w+['’]s\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedValue:
    """One clause that says what something is: `key` are the words of what, `value` is the text of the value.

    `told` says that the value stands behind an equals sign, a colon or a form of "to be", and not just last;
    `label` that it is a colon.
    """

    key: frozenset[str]
    value: str
    told: bool
    label: bool = False


def claims(sentence: str) -> Iterator[ClaimedValue]:
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


def _claim(clause: str) -> ClaimedValue | None:
    parted = _parted(clause)
    if parted:
        what, value = parted
        what = _LEAD_IN.sub("", what) or what
        found = _value(value)
        key = key_of(re.split(r"\bfrom\b", what)[0])
        if found and key:
            key |= _qualifiers(value, found)
            return ClaimedValue(key=key, value=found, told=True, label=f"{what.strip()}:" in clause)
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


def _last(clause: str) -> ClaimedValue | None:
    """What the one exact word, else the one name, of a clause is said of."""
    found = words(clause)
    hard = [word for word in found if is_hard(word)] or [word for word in found[1:] if is_proper(word)]
    if len(hard) != 1:
        return None
    key = key_of(clause.replace(hard[0], " ", 1))
    return ClaimedValue(key=key, value=hard[0], told=False) if key else None
