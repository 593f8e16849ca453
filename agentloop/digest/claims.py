"""What a sentence claims: that something has a value."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from agentloop.digest.words import bare, content_words, is_hard, words

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
_CHANGE = re.compile(
    r"\b(?:instead|no longer|any ?more|chang\w+|updat\w+|correction|correct(?:ed)?|actually|switch\w*|moved?|"
    r"moving|replac\w+|revis\w+|from now on|scratch that|bump\w*|rais\w+|lower\w*|increas\w+|decreas\w+|"
    r"reduc\w+|migrat\w+|renam\w+|supersed\w+|overrid\w+|forget|amend\w*|after all|changed my mind|"
    r"push\w*|postpon\w+|extended|delay\w*|shift\w*|rotat\w+|these days|nowadays|i meant|my mistake|make it|"
    r"(?:is|are|it['’]s|we|i|be|will|should|that|which|to|has|have) now|now (?:is|are|use|uses|using|be|at|"
    r"on|to|"
    r"lives|runs|reads|has|the|it|we|stands|set)|now(?=\W*$)|as of|going forward|effective|"
    r"jetzt|nun|stattdessen|nicht mehr|geändert|doch|désormais|maintenant|plutôt|finalement|"
    r"ahora|en vez|en lugar|cambi\w+|ya no|adesso|ora|invece|agora|mud\w+|em vez|nu|voortaan|"
    r"теперь|вместо)\b|现在|改为|改成|改用|更新|不再|今後|変更|代わりに|이제|변경",
    re.IGNORECASE,
)
_MORE = re.compile(
    r"\b(?:also|another|additional\w*|a second|the second|secondary|too(?=\W*$)|as well|besides|plus|"
    r"further|extra|"
    r"both|either|add|auch|zusätzlich|aussi|también|anche|também|ещё|также)\b|也|还有|另外|また|도\b",
    re.IGNORECASE,
)
_CHANGE_WORDS_TEXT = """
now instead longer anymore change changed changes changing update updated updates correction corrected
correct actually switch switched move moved replace replaced revised revise new from currently current
bump bumped raise raised lower lowered increase increased decrease decreased reduce reduced set sets make
makes made use uses using used note remember fyi important please again back default still value final
latest should must shall let lets let's need needs want wants go goes been days ok okay well no wait
sorry plan plans oh hey put take keep since i've we've it's pushed push moved postponed extended delayed
shifted rotated jetzt nun ahora maintenant désormais adesso ora agora теперь stattdessen 现 改 变 更 今
"""
_CHANGE_WORDS = frozenset(_CHANGE_WORDS_TEXT.split())
_X = r"(?:the |using |use |a |an )?([^\s,;.:!?]+(?:[.:/-][^\s,;.:!?]+)*)"
_INSTEAD = re.compile(
    r"\b(?:instead of|rather than|in place of|replac\w+|ditch|forget(?: about)?|no longer use|statt|"
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
_FIRM = re.compile(
    r"\b(?:instead|no longer|correction|scratch that|from now on|going forward|i meant|my mistake|actually|"
    r"rather|"
    r"these days|not .{1,40} any ?more|stattdessen|nicht mehr|en vez|en lugar|ya no|au lieu|invece|вместо)\b|"
    r"不再|改用|代わりに|대신",
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

    @property
    def is_exact(self) -> bool:
        """Whether the value is a number, a code or a name, not a plain word."""
        return is_hard(self.value)


def claims(sentence: str) -> Iterator[Claim]:
    """The claims of a sentence, at most one a clause."""
    for clause in _CLAUSE.split(sentence):
        if clause and (claim := _claim(clause.strip().rstrip(".!?。！？"))):
            yield claim


def changes(sentence: str) -> bool:
    """Whether the sentence says that something is no more what it was."""
    return bool(_CHANGE.search(sentence))


def is_firm(sentence: str) -> bool:
    """Whether a change is said in words that leave no doubt that something else is meant to go."""
    return bool(_FIRM.search(sentence))


def adds(sentence: str) -> bool:
    """Whether the sentence says that there is one more, so that what was said before still holds."""
    return bool(_MORE.search(sentence))


def given_up(sentence: str) -> list[str]:
    """What the sentence itself names as no longer so: the X of "instead of X" and "from X to Y"."""
    found = ("".join(filter(None, match.groups())).strip("\"'`*()") for match in _INSTEAD.finditer(sentence))
    return [word for word in found if len(word) > 1]


def key_of(text: str) -> frozenset[str]:
    """The words of a text by which two claims are of the same thing."""
    return frozenset(word for word in content_words(words(text)) if word not in _CHANGE_WORDS)


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
    plain = [word for word in found if bare(word) not in _CHANGE_WORDS]
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
