"""What a sentence claims: that something has a value."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from agentloop.digest.words import bare, content_words, is_hard, singular, words

MOST_VALUE_WORDS = 3
"""A value of plain words has at most so many; what is longer tells a story."""

_CLAUSE = re.compile(
    r"[,;、，；]\s*|\s[—–-]\s|\s(?:and|but|und|aber|et|mais|y|pero)\s|\s\(|\)", re.IGNORECASE
)
_COPULA = re.compile(
    r"\b(?:is|are|was|were|be|becomes?|became|equals?|stays at|stands at|ist|sind|lautet|beträgt|est|sont|"
    r"es|son|está|è|é|fica|jest|wynosi)\b|['’]s\s|是|为|為|は|이다|это|составляет|—",
    re.IGNORECASE,
)
_TO = re.compile(
    r"\b(?:set|chang\w+|switch\w*|mov\w+|bump\w*|rais\w+|lower\w*|increas\w+|decreas\w+|updat\w+|reduc\w+|"
    r"migrat\w+|renam\w+|push\w*|postpon\w+|exten\w+|delay\w*|shift\w*|rotat\w+|went|goe?s?)\b.*?\b(?:to|"
    r"with)\b|"
    r"\b(?:cambi\w+|mud\w+|pass\w+|änder\w*|geändert|wechsel\w*|changé\w*)\b.*?\b(?:a|para|auf|zu|à)\b",
    re.IGNORECASE,
)
_SIGN = re.compile(r"\s?(?:=>|==?|->|→)\s?|[:：]\s+|：")
_CHANGE_WORDS_TEXT = """
now instead longer anymore changed changes changing updated updates correction corrected correct actually
switched moved replaced revised from currently current bumped raised lowered increased decreased reduced
makes made uses using used remember fyi important please again still value should must shall let lets let's
need needs want wants go goes been days ok okay well no wait sorry oh hey since i've we've it's pushed
postponed extended delayed shifted rotated scratch mind jetzt nun ahora maintenant désormais adesso ora
agora теперь stattdessen 现 改 变 更 今
"""
_VERBS_TEXT = """
change update switch move replace revise bump raise lower increase decrease reduce set sets make use note
put take keep push plan plans
"""
_VERBS = frozenset(_VERBS_TEXT.split())
"""Words of a change only where they are verbs: a lower bound and an update interval are things."""

_LEADS_TEXT = "we i you please to let us let's lets now actually then should must shall will can been"
_LEADS = frozenset(_LEADS_TEXT.split())
_ORDERS_TEXT = "set make use note put take keep"
_ORDERS = frozenset(_ORDERS_TEXT.split())
_DETERMINERS_TEXT = "the a an my our your it its that this their his her all"
_DETERMINERS = frozenset(_DETERMINERS_TEXT.split())
_OWNERS_TEXT = "my your his her their our mein dein unser mi tu su mon ton son"
_OWNERS = frozenset(_OWNERS_TEXT.split())
_CHANGE_WORDS = frozenset(_CHANGE_WORDS_TEXT.split())
_X = r"(?:the |using |use |a |an )?([^\s,;.:!?]+(?:[.:/-][^\s,;.:!?]+)*)"
_INSTEAD = re.compile(
    r"\b(?:instead of|rather than|in place of|replac\w+|ditch|forget(?: about)?|"
    r"no longer(?: use| on| at)?|statt|"
    r"anstatt|au lieu de|"
    r"plutôt que|en vez de|en lugar de|invece di|em vez de|вместо)\s+"
    + _X
    + r"|,\s(?:and )?not\s+"
    + _X
    + r"|\bfrom\s+"
    + _X
    + r"\s+to\b",
    re.IGNORECASE,
)

_LEAD_IN = re.compile(r"^[^:：]*[:：]\s+(?=\S+\s+\S)")
_PLACED = re.compile(
    r"^\W*(?:for|in|on|at|with|under|within|during|when|while|für|bei|im|para|en|pour|dans)\b", re.I
)
_GENITIVE = re.compile(r"\b(?!it\b|that\b|let\b|what\b)\w+['’]s\b", re.IGNORECASE)
_PHRASE = re.compile(
    r"\b(?:for|in|on|at|with|under|within|during|when|while|of|für|bei|im|para|en|pour|dans)\s+"
    r"((?:[^\s,;:]+[ ]?){1,4})",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One clause that says what something is: `key` are the words of what, `value` is the text of the value.

    `told` says that the value stands behind an equals sign, a colon or a form of "to be", and not just last;
    `label` that it is a colon.
    """

    key: frozenset[str]
    value: str
    told: bool
    label: bool = False


def claims(sentence: str) -> Iterator[Claim]:
    """The claims of a sentence, at most one a clause, each about what the whole sentence is about."""
    clauses = clauses_of(sentence)
    found = [None if _PLACED.match(clause) and len(clauses) > 1 else _claim(clause) for clause in clauses]
    around = [clause for clause, claim in zip(clauses, found, strict=True) if claim is None]
    common = frozenset(word for clause in around for word in key_of(clause))
    for clause, claim in zip(clauses, found, strict=True):
        if claim:
            yield replace(claim, key=claim.key | common | owners(clause))


def clauses_of(sentence: str) -> list[str]:
    """The clauses of a sentence, without what parts them."""
    return [clause.strip().rstrip(".!?。！？") for clause in _CLAUSE.split(sentence) if clause]


def given_up(sentence: str) -> list[str]:
    """What the sentence itself names as no longer so: the X of "instead of X" and "from X to Y"."""
    found = ("".join(filter(None, match.groups())).strip("\"'`*()") for match in _INSTEAD.finditer(sentence))
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
    return _OWNERS.intersection(map(bare, words(text)))


def tells_apart(sentence: str, of: str) -> bool:
    """Whether a sentence that names a thing given up narrows it to less than what `of` speaks of."""
    rest = _INSTEAD.sub(" ", sentence)
    known = key_of(of)
    narrow = (key_of(match.group(1)) - known for match in _PHRASE.finditer(rest))
    apart = (word for words_ in narrow for word in words_ if not is_hard(word))
    theirs = (match.group().lower() for match in _GENITIVE.finditer(sentence))
    return any(apart) or owners(sentence) != owners(of) or any(one not in of.lower() for one in theirs)


def _of_change(before: str, word: str, behind: str) -> bool:
    """Whether a word only says that something is or changes, and not what."""
    if word not in _VERBS:
        return word in _CHANGE_WORDS
    if not before:
        return word in _ORDERS or behind in _DETERMINERS
    return before in _LEADS


def _claim(clause: str) -> Claim | None:
    parted = _parted(clause)
    if parted:
        what, value = parted
        what = _LEAD_IN.sub("", what) or what
        found = _value(value)
        key = key_of(re.split(r"\bfrom\b", what)[0])
        if found and key:
            key |= _behind(value, found)
            return Claim(key=key, value=found, told=True, label=f"{what.strip()}:" in clause)
        return None
    return _last(clause)


def _parted(clause: str) -> tuple[str, str] | None:
    match = _TO.search(clause) or _COPULA.search(clause)
    if match is None:
        match = next(reversed(list(_SIGN.finditer(clause))), None)
    if match is None or not clause[match.end() :].strip():
        return None
    before = match.group() if match.re is _TO else ""
    return clause[: match.start()] + " " + before, clause[match.end() :]


def _value(text: str) -> str | None:
    """The one exact word of a text, else its few plain words."""
    found = words(text)
    hard = [word for word in found if is_hard(word)]
    if len(hard) == 1:
        return hard[0]
    plain = [word for word in found if bare(word) not in _CHANGE_WORDS | _ORDERS]
    plain = [word for word in plain if next(content_words([word]), None)]
    if hard or not 1 <= len(plain) <= MOST_VALUE_WORDS:
        return None
    start = text.find(plain[0])
    return text[start : text.find(plain[-1], start) + len(plain[-1])]


def _behind(text: str, value: str) -> frozenset[str]:
    """What else is said of the thing behind an exact value: "30 for uploads" is of other than "30"."""
    if not is_hard(value):
        return frozenset()
    return key_of(text.replace(value, " ", 1))


def _last(clause: str) -> Claim | None:
    """What the one exact word, else the one name, of a clause is said of."""
    found = words(clause)
    hard = [word for word in found if is_hard(word)] or [word for word in found[1:] if _is_proper(word)]
    if len(hard) != 1:
        return None
    key = key_of(clause.replace(hard[0], " ", 1))
    return Claim(key=key, value=hard[0], told=False) if key else None


def _is_proper(word: str) -> bool:
    return len(word) > 1 and word[0].isupper() and not word.startswith(("I'", "I’"))
