"""A text as sentences and words, in scripts with blanks and without.

`sentences` parts a text where people end sentences, and says which look pasted; `words` parts a sentence.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from agentloop._plumbing.patterns import pattern
from agentloop._plumbing.truncate import head, tail
from agentloop.compaction.digest.language import FUNCTION_WORDS

HEAD_SHARE = 2 / 3
"""Of a text that is too long, so much of what is looked at, or stays, is its head."""

LONGEST = 400
"""A sentence with more characters is parted at a blank: people write without full stops, machines too."""

_ENDS = pattern(r"(?<=[.!?…])[\"'”’)\]]*\s+|(?<=[。！？])(?![。！？」』）])")
_GOES_ON = pattern(
    r"(?:^|[\s(])(?:[^\W\d_]|\d{1,3}|e\.g|i\.e|z\.\s?B|u\.a|d\.h|p\.ej|etc|vs|cf|approx|resp|incl|max|min|"
    r"no|nr|"
    r"fig|eq|sec|ch|pp|mr|mrs|ms|dr|prof|st|inc|ltd|bzw|ca|evtl|ggf)\.$",
    re.IGNORECASE,
)
_MARKER = pattern(r"\s*(?:[-*•‣–·]|\d{1,2}[.)])\s+")
_FENCE = pattern(r"\s*(?:```|~~~)")
_QUOTE = pattern(r"\s*(?:>\s?)+")
_TAG = pattern(r"</?[\w -]{1,60}>|[-=_*#~]{3,}")
_STAMP = pattern(r"\W{0,3}(?:\d{4}-\d\d-\d\d[T ]\d\d:|\d\d:\d\d:\d\d)")
_BREAKS = pattern(r"[,;:)\s、，；]")
_SYMBOL = pattern(r"[{}\[\]()<>=;|\\/*&^$#@+_\"]")
_DIGIT = pattern(r"[0-9]")

_WORD = pattern(
    r"https?://[^\s\"'<>()]+"
    r"|[\u30a0-\u30ff]+|[\u3040-\u309f\u3400-\u9fff\uac00-\ud7af]"
    r"|[$€£¥]?[^\W_\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
    r"(?:[\w'’./:@#+~%-]*[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[+#])?[%°]?"
    r"|[~./_-]+[\w][\w./-]*"
)
_HARD = pattern(r"[0-9_/@\\]|[a-z][A-Z]|[A-Z]{2}|\w[.:]\w|\w-\w+-\w")
_KINDS = (
    ("url", pattern(r"\w+://")),
    ("mail", pattern(r"[^@\s]+@[^@\s]+")),
    ("date", pattern(r"\d{4}-\d\d|\d\d?[./]\d\d?[./]\d\d")),
    ("path", pattern(r"[~.]*/|[\w.-]+/")),
    ("number", pattern(r"[$€£¥]?[\d.,]+(?:[a-zA-Z%°]{0,4}|/\w+)$")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """A sentence as it was written.

    `before` is what parts it from the one before in the same text: nothing, a blank or a newline. `pasted`
    says that it looks like code or output and not like something a person wrote; `quoted` that it stood in a
    quote or between fences, and so is somebody else's.
    """

    text: str
    before: str = ""
    pasted: bool = False
    quoted: bool = False


def sentences(text: str, *, most_chars: int) -> list[Sentence]:
    """The sentences of a text in order; of a longer text those of its head and its tail."""
    if len(text) <= most_chars:
        return list(_sentences(text))
    first = int(most_chars * HEAD_SHARE)
    return [*_sentences(head(text, first)), *_sentences(tail(text, most_chars - first))]


def _sentences(text: str) -> Iterator[Sentence]:
    fenced = False
    before = ""
    for line in text.splitlines():
        if _FENCE.match(line):
            fenced = not fenced
            continue
        quote = _QUOTE.match(line)
        quoted = fenced or bool(quote)
        pasted = quoted or looks_pasted(line)
        for piece in _pieces(line[quote.end() :] if quote else line, pasted):
            yield Sentence(text=piece, before=before, pasted=pasted, quoted=quoted)
            before = " "
        before = "\n" if before else ""


def _pieces(line: str, pasted: bool) -> Iterator[str]:
    marker = _MARKER.match(line)
    parts = [line] if pasted else _parts(line[marker.end() :] if marker else line)
    for part in parts:
        rest = part.strip()
        while len(rest) > LONGEST:
            end = _last_break(rest)
            yield rest[:end].strip()
            rest = rest[end:].strip()
        if rest:
            yield rest


def _parts(line: str) -> Iterator[str]:
    start = 0
    for end in _ENDS.finditer(line):
        if end.end() > end.start() and _GOES_ON.search(line[max(0, end.start() - 8) : end.start()]):
            continue
        yield line[start : end.end()]
        start = end.end()
    yield line[start:]


def _last_break(text: str) -> int:
    breaks = [match.end() for match in _BREAKS.finditer(text, LONGEST // 2, LONGEST)]
    return breaks[-1] if breaks else len(head(text, LONGEST))


def looks_pasted(line: str) -> bool:
    """Whether a line looks like code, output or data: many symbols or digits for its words."""
    seen = line[:LONGEST]
    if len(seen) > 80 and " " not in seen.strip() and seen.isascii():
        return True
    if _TAG.fullmatch(seen.strip()):
        return True
    if _STAMP.match(seen):
        return True
    digits = len(_DIGIT.findall(seen)) * (2.5 if seen.isascii() else 1.5)
    return len(seen) > 8 and 4 * len(_SYMBOL.findall(seen)) + digits > len(seen)


def words(text: str) -> list[str]:
    """The words in order; where a script has no blanks, its characters."""
    return _WORD.findall(text)


def is_hard(word: str) -> bool:
    """Whether a word is of use only if it is exact: a number, a name of code, a path, a code."""
    return bool(_HARD.search(word))


def is_proper(word: str) -> bool:
    """Whether a word that begins no sentence is a name."""
    return len(word) > 1 and word[0].isupper() and not word.startswith(("I'", "I’"))


def bare(word: str) -> str:
    """The word as it is compared: in small letters, a genitive gone."""
    return word.lower().removesuffix("'s").removesuffix("’s")


def singular(word: str) -> str:
    """The word without the s of a plural, so that one and many compare as the same."""
    plural = len(word) > 3 and word.isalpha() and word.endswith("s") and not word.endswith("ss")
    return word[:-1] if plural else word


def content_words(found: Iterable[str]) -> Iterator[str]:
    """The words that carry meaning, as they are compared."""
    return (low for word in found if (low := bare(word)) not in FUNCTION_WORDS and not _is_kana(low))


def kind_of_value(word: str) -> str:
    """What kind of exact value a word is, so that only like takes the place of like."""
    return next((kind for kind, pattern in _KINDS if pattern.match(word)), "name")


def _is_kana(word: str) -> bool:
    return "\u3040" <= word <= "\u309f"
