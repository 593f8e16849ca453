"""Identifiers of a text, which must be kept exact: paths, names, URLs, error codes, numbers with units.

Finding them is linear in the text: it is cut into words and the few phrases that hold blanks, each once and
by one pass of one pattern whose repetitions are possessive or bounded; only then is each different word
looked at, and none longer than `MOST_CHARS`. So one long line costs what many short ones cost.
"""

import errno
import re
from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias

from agentloop._plumbing.patterns import pattern

IdentifierKind: TypeAlias = Literal["path", "url", "error", "number", "name"]

MOST_CHARS = 200
"""A longer word is data, not an identifier."""

MOST_URL_CHARS = 500

CHANGING_SHARE = 0.38
"""In base64 about 0.62 of the characters are followed by one of another kind, in names well below 0.3."""

_NUMBER = r"\d{1,15}(?:,\d{3}){0,5}(?:\.\d{1,12})?"
_UNITS = (
    r"%|‰|°[CF]?|[kKMGTPE]?i?(?:B|b|bit)(?:ps|/s)?|[kKMGT]?[Bb]ytes?|bits?|[kKM]|tokens?|chars|characters|lines?",
    r"[nµum]?s|secs?|seconds?|mins?|minutes?|h|hrs?|hours?|days?|weeks?|months?|years?|[kMGT]?Hz|rpm|rps|qps|req/s",
    r"[kcmµn]?m|[kmµ]?g|[kM]?Wh?|m?[AV]|px|pt|rows?|EUR|USD|GBP|CHF|JPY|€|£|dollars?|euros?|percent",
)
_UNIT = f"(?:{'|'.join(_UNITS)})"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|June?|July?|Aug|Sept?|Oct|Nov|Dec)[a-z]{0,6}"
_CLOCK = r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?"
_AMOUNTS = "|".join(
    (
        rf"\d{{4}}-\d{{2}}-\d{{2}}(?:[T ]{_CLOCK}(?:Z|[+-]\d{{2}}:?\d{{2}})?)?",
        rf"\d{{1,2}}\.?\ {_MONTH}(?:\ \d{{4}})?|{_MONTH}\ \d{{1,2}}(?:,?\ \d{{4}})?",
        r"\d{1,2}[./]\d{1,2}[./]\d{2,4}",
        rf"{_CLOCK}(?:\ ?[apAP][mM])?",
        rf"[$€£¥]\ ?{_NUMBER}[kKMB]?",
        rf"[-+−]?{_NUMBER}[ \u00a0\u202f-]?{_UNIT}",
        r"\d{1,3}(?:,\d{3}){1,5}(?:\.\d{1,12})?",
    )
)
_FAULTS = (
    r"HTTP(?:/\d(?:\.\d)?)?\ \d{3}|[Ee]xit(?:ed\ with)?(?:\ (?:status|code))?:?\ \d{1,3}"
    r"|(?:[Ss]tatus|[Ee]rror)(?:\ code)?:?\ \d{3,6}|(?:errno|[Ss]ignal):?\ \d{1,3}"
)
_CANDIDATE = pattern(
    rf"^[ ]{{0,12}}\d{{1,9}}\t"
    rf"|(?:(?=[HESes])(?:{_FAULTS})|(?=[\d$€£¥+−JFMASOND-])(?:{_AMOUNTS}))(?![\w/]|[.:-]\w)"
    r"|[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s<>\"'`“”]++|[^\s\"'`()\[\]{},;|<>=“”‘’«»…→·]++",
    re.MULTILINE,
)
_FAULT = pattern(_FAULTS)
_AMOUNT = pattern(rf"(?:{_AMOUNTS})|\d{{4,18}}|[-+−]?\d{{1,15}}\.\d{{1,12}}")
_PLAIN = pattern(r"[A-Za-z][a-z]*+(?:-[A-Za-z][a-z]*+){0,5}(?:/[A-Za-z][a-z]*+)?|[A-Z]{1,8}/[A-Z]{1,8}")
_MAIL = pattern(r"[\w.+%-]{1,64}+@[\w-]{1,63}+(?:\.[\w-]{1,63}+)+")
_WINDOWS = pattern(r"(?:[A-Za-z]:|\\\\[\w.$-]++)[\\/].*|[\w.-]++(?:\\[\w.-]++)*\\[\w-]++\.\w{1,8}(?::\d+)*")
_POSIX = pattern(r"(?:~|\.{1,2})?/?(?:[^/:]++/)*[^/:]*+(?::\d{1,7}){0,2}(?:-\d{1,7})?")
_ENDINGS = (
    r"c|cc|cfg|conf|cpp|cs|css|csv|env|go|h|html|ini|ipynb|java|jsx?|json|kt|lock|log|lua|md|php|png|py|rb|rs|rst"
    r"|scss|sh|sql|svelte|svg|swift|toml|tsx?|tsv|txt|vue|xml|ya?ml|zip|[A-Za-z]\w{0,7}(?=:\d)"
)
_FILE = pattern(rf"[\w@+-][\w.@+-]*\.(?:{_ENDINGS})(?::\d{{1,7}}){{0,2}}|\.[a-z][\w.-]{{2,}}")
_ERROR = pattern(r"(?:[\w]++\.)*[A-Z]\w*?(?:Error|Exception|Warning|Fault)|SIG[A-Z]{2,6}|[A-Z]{1,5}\d{3,6}")
_ERRNOS = frozenset(errno.errorcode.values())
_FLAG = pattern(r"--[a-z][\w-]+")
_DOTTED = pattern(r"[A-Za-z_][\w-]*+(?:(?:\.|::)[A-Za-z_][\w-]*+)+(?:\(\))?")
_CASES = pattern(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]{2}")
_CHANGES = pattern(r"(?=[a-z][A-Z0-9]|[A-Z][a-z0-9]|[0-9][A-Za-z])")
_LETTER = pattern(r"[^\W\d_]")
_ODD = pattern(r"[^\w.:/@#+~$%&*!?^-]")
_DENSE = pattern(r"[A-Za-z0-9+/_-]{40,}")
_LONG_RUN = pattern(r"[A-Za-z0-9+]{65}")
_HEX = pattern(
    r"(?:0x)?(?:[0-9a-fA-F]{7,64}|[0-9a-fA-F]{96}|[0-9a-fA-F]{128})|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
)
_VERSION = pattern(r"[vV=~^]{0,2}\d{1,9}(?:\.[\dx*]{1,9}){1,5}(?:[-+:][\w.+-]+|[a-z]{1,3}\d+)?")
_REFERENCE = pattern(r"#\d{1,9}|[A-Z][A-Z0-9]{1,9}-\d{1,9}")
_ESCAPE = pattern(r"\\+[nrtu]?")


def identifiers(text: str) -> list[str]:
    """What must be kept exact to be of use, in order, each once."""
    return list(kinds(text))


def kinds(text: str) -> dict[str, IdentifierKind]:
    """The identifiers of a text, in order, each with what it is."""
    found: dict[str, IdentifierKind] = {}
    for candidate in dict.fromkeys(_CANDIDATE.findall(text)):
        if len(candidate) > MOST_URL_CHARS or _PLAIN.fullmatch(candidate):
            continue
        for word in _words(candidate):
            if kind := kind_of(word):
                found.setdefault(word, kind)
    return found


def missing(texts: Iterable[str], present: str, *, most: int) -> tuple[str, ...]:
    """The identifiers of `texts` that are none of those of `present`, newest text first, at most `most`."""
    known = set(identifiers(present))
    found: dict[str, None] = {}
    for text in texts:
        found.update(dict.fromkeys(word for word in identifiers(text) if word not in known))
        if len(found) >= most:
            break
    return tuple(found)[:most]


def kind_of(word: str) -> IdentifierKind | None:
    """What kind of identifier the word is; None for a word like any other and for a long run of data."""
    if _FAULT.fullmatch(word):
        return "error"
    if _AMOUNT.fullmatch(word):
        return "number"
    if "://" in word or _MAIL.fullmatch(word):
        return "url"
    if len(word) < 3 or len(word) > MOST_CHARS or _is_data(word):
        return None
    if _is_path(word):
        return "path"
    if word in _ERRNOS or _ERROR.fullmatch(word):
        return "error"
    return "name" if _is_name(word) else None


def _words(candidate: str) -> Iterator[str]:
    """The candidate without what punctuates it; what escapes glued together, one by one."""
    if candidate.endswith("\t"):
        return
    word = candidate.lstrip("*:!?&").rstrip(".,:;!?*&-)")
    if "\\" in word and not _WINDOWS.fullmatch(word):
        yield from (part for part in _ESCAPE.split(word) if part and not _PLAIN.fullmatch(part))
    elif word:
        yield word


def _is_data(word: str) -> bool:
    """Whether it is a stretch of base64 or the like: one long run, or letters and digits change so often."""
    if _HEX.fullmatch(word):
        return False
    dense = _DENSE.fullmatch(word) and len(_CHANGES.findall(word)) > CHANGING_SHARE * len(word)
    return bool(dense or _LONG_RUN.search(word))


def _is_path(word: str) -> bool:
    if "\\" in word:
        return bool(_WINDOWS.fullmatch(word))
    if "/" not in word:
        return bool(_FILE.fullmatch(word) and _LETTER.search(word))
    return bool(_POSIX.fullmatch(word) and _LETTER.search(word)) and not word.startswith("//")


def _is_name(word: str) -> bool:
    if _HEX.fullmatch(word) or _VERSION.fullmatch(word) or _REFERENCE.fullmatch(word):
        return True
    if _ODD.search(word) or not _LETTER.search(word):
        return False
    if _FLAG.fullmatch(word) or _DOTTED.fullmatch(word):
        return len(word) > 3
    return "_" in word or any(map(str.isdigit, word)) or bool(_CASES.search(word))


_NAMED = pattern(
    r"(?<![\w./-])(?P<name>(?:[A-Za-z][\w-]{0,30}+ ){0,3}[A-Za-z][\w.-]{1,40}+)"
    r"(?P<says> ?[=:] ?| (?:is|are)(?: now)? "
    r"| (?:is|are|was|were|ha(?:s|ve) been)(?: now)? (?:\w{2,12}ed|set|cut) to )"
    r"(?=\S{0,60}[\d_])(?P<value>[^\s\"'`,;|<>()\[\]{}]{1,60}(?: (?:%|[A-Za-z]{1,7}))?)"
)
_BEFORE_NAME = pattern(r".*\b(?:the|our|my|your|its|this|that|an?|and) ", re.IGNORECASE)
_COUNTED = pattern(
    r"(?<![\w./-])([A-Za-z][\w-]{1,30}+)(?: | ?[=:] ?)([-+−]?\d{1,15}(?:\.\d{1,12})?)(?![\w/%]|[.,:-]\d| ?%)"
)
_BARE = pattern(r"[-+−]?\d{1,15}(?:\.\d{1,12})?")


def named_values(text: str) -> Iterator[tuple[str, str]]:
    """Each name, of three words at most and without an article, with the value it is given, in order.

    A value is a number, with its unit where it has one; where the text says "is", any exact name as well.
    Linear in the text.

    Example:
        >>> list(named_values("The deploy port is 8443, the timeout was raised to 30 s."))
        [('deploy port', '8443'), ('timeout', '30 s')]
    """
    for match in _NAMED.finditer(text):
        plain = match["says"].strip() in ("=", ":")
        if value := _value(match["value"], kinds=("number",) if plain else ("number", "name")):
            yield " ".join(_BEFORE_NAME.sub("", match["name"]).split()[-3:]), value


def counted(text: str) -> dict[str, str]:
    """Bare numbers of a text with the word before each: `{"8443": "port"}` for "port 8443"."""
    return {number: word for word, number in _COUNTED.findall(text)}


def is_bare(text: str) -> bool:
    """Whether the text is a number without a unit."""
    return bool(_BARE.fullmatch(text))


def _value(found: str, *, kinds: tuple[str, ...]) -> str | None:
    for text in (found, found.split(" ")[0]):
        word = text.rstrip(".,:;!?")
        if is_bare(word) or kind_of(word) in kinds:
            return word
    return None
