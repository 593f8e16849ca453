"""The words of a sentence: which carry its meaning, and which are values that must be exact."""

import re
from collections.abc import Iterable, Iterator, Mapping

_WORD = re.compile(
    r"https?://[^\s\"'<>()]+"
    r"|[\u30a0-\u30ff]+|[\u3040-\u309f\u3400-\u9fff\uac00-\ud7af]"
    r"|[$€£¥]?[^\W_\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
    r"(?:[\w'’./:@#+~%-]*[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[+#])?[%°]?"
    r"|[~./_-]+[\w][\w./-]*"
)
_HARD = re.compile(r"[0-9_/@\\]|[a-z][A-Z]|[A-Z]{2}|\w[.:]\w|\w-\w+-\w")
_KINDS = (
    ("url", re.compile(r"\w+://")),
    ("mail", re.compile(r"[^@\s]+@[^@\s]+")),
    ("date", re.compile(r"\d{4}-\d\d|\d\d?[./]\d\d?[./]\d\d")),
    ("path", re.compile(r"[~.]*/|[\w.-]+/")),
    ("number", re.compile(r"[$€£¥]?[\d.,]+(?:[a-zA-Z%°]{0,4}|/\w+)$")),
)
_FUNCTION_TEXT = """
a an the this that these those it its is are was were be been being am to of in on at by for from with as
and or but so then there here we i you they he she our my your their his her us me them do does did has
have had will would can could please just der die das den dem des ein eine einen einem einer ist sind war
und oder zu von im in am auf für mit wir ich le la les un une des du de est sont et ou à au aux en pour
nous je vous sur el los las una uno es son y o del al por para con nosotros que se il lo gli i di è e nel
per noi che os as um uma é são do da no na это и в на с для по мы я
的 了 是 在 把 我 们 请 は が を に の で と も です ます
이 가 을 를 은 는 의
"""
_FUNCTION = frozenset(_FUNCTION_TEXT.split())


def words(text: str) -> list[str]:
    """The words in order; where a script has no blanks, its characters."""
    return _WORD.findall(text)


def is_hard(word: str) -> bool:
    """Whether a word is of use only if it is exact: a number, a name of code, a path, a code."""
    return bool(_HARD.search(word))


def bare(word: str) -> str:
    """The word as it is compared: in small letters, a genitive gone."""
    return word.lower().removesuffix("'s").removesuffix("’s")


def singular(word: str) -> str:
    """The word without the s of a plural, so that one and many compare as the same."""
    plural = len(word) > 3 and word.isalpha() and word.endswith("s") and not word.endswith("ss")
    return word[:-1] if plural else word


def content_words(found: Iterable[str]) -> Iterator[str]:
    """The words that carry meaning, as they are compared."""
    return (low for word in found if (low := bare(word)) not in _FUNCTION and not _is_kana(low))


def kind_of_value(word: str) -> str:
    """What kind of exact value a word is, so that only like takes the place of like."""
    return next((kind for kind, pattern in _KINDS if pattern.match(word)), "name")


def _is_kana(word: str) -> bool:
    return "\u3040" <= word <= "\u309f"


def novelty(found: Iterable[str], uses: Mapping[str, int]) -> float:
    """The share of the meaning words that stand in few other sentences, 0 to 1: what was said but once."""
    content = set(content_words(found))
    return sum(1 / max(1, uses.get(word, 1)) for word in content) / len(content) if content else 0.0
