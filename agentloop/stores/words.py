"""What a word is, what of a record can be searched, and what a search asks for: one idea for all stores.

A word is a run of letters and digits of any script with the marks on them, in one case and in Unicode's form
NFKC (https://unicode.org/reports/tr15/). Scripts written without blanks (Chinese, Japanese, Thai and their
neighbours) and Korean, which joins endings to its words, have each character for a word, so that a part of
a sentence is found as a phrase. Of a run longer than 200 characters each 200 are a word.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Self

from agentloop._plumbing.checks import shown
from agentloop._plumbing.patterns import pattern
from agentloop._plumbing.truncate import head, tail
from agentloop.errors import UsageError
from agentloop.events import (
    Compacted,
    Described,
    Event,
    MessageRecord,
    Noted,
    Record,
)
from agentloop.messages import ToolCall
from agentloop.stores.base import Found

MOST_WORD_CHARS = 200
MOST_MARKS = 20
_ONE_BY_ONE = (
    *((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF)),  # Thai and Lao, Burmese, Khmer
    *((0x3005, 0x3007), (0x3040, 0x30FF), (0x31F0, 0x31FF)),  # Japanese
    *((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF)),  # Chinese
    (0xAC00, 0xD7A3),  # Korean
)
_LAST_SCANNED = 0x1FFFF
_RARE = "\\U00020000-\\U000323af"
"""More Chinese: the two planes behind the last character that is looked at, which hold nothing else."""
_ASCII_WORD = pattern(f"[a-z0-9]{{1,{MOST_WORD_CHARS}}}")
_QUOTED = pattern(r'"([^"]*)"?|([^\s"]+)')


def words_of(text: str) -> list[str]:
    """The words of the text, in order.

    >>> words_of('Read the FILE "naïve_1.md": 東京!')
    ['read', 'the', 'file', 'naïve', '1', 'md', '東', '京']
    """
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    return [word for word, _ in _places(text)]


def searchable(event: Event) -> str:
    """What can be found of a record: what was said or asked for, summaries, titles and noted data."""
    match event:
        case MessageRecord(message=message):
            return _lines(message.text, *map(_call, message.tool_calls))
        case Compacted(replacement=replacement, answer=answer):
            return _lines(replacement, answer)
        case Described(title=title):
            return title or ""
        case Noted(data=data):
            return _lines(*_texts(data))
        case _:
            return ""


@dataclass(frozen=True, slots=True)
class Query:
    """What is looked for: each phrase must occur, its words one behind the other; a word is a phrase of one.

    >>> Query.of('error "connection refused"').phrases
    (('error',), ('connection', 'refused'))
    """

    phrases: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, text: str) -> Self:
        """The query that a user wrote: words in any order, and phrases in double quotes.

        What stands between blanks and comes to several words (`max_tokens`, `東京`) is a phrase.

        Raises:
            UsageError: the text holds no word.
        """
        if not isinstance(text, str):
            raise UsageError(f"text must be the words to search for, not {shown(text)}")
        found = (tuple(words_of(quoted or plain)) for quoted, plain in _QUOTED.findall(text))
        phrases = tuple(dict.fromkeys(phrase for phrase in found if phrase))
        if not phrases:
            raise UsageError(f"nothing to search for in {shown(text)}: give a word of letters or digits")
        return cls(phrases)

    def matches(self, words: Sequence[str]) -> bool:
        """Whether a text of these words holds all that is looked for."""
        joined = _joined(words)
        return all(_joined(phrase) in joined for phrase in self.phrases)


def excerpt(text: str, query: Query, *, chars: int = 160) -> str:
    """Some of the text around the first place of what is looked for, on one line of whole characters.

    >>> excerpt("one two three four five six seven", Query.of("five"), chars=20)
    '…four five six seven'
    """
    start = _first_place(text, query)
    before = tail(text[:start], chars // 3)
    after = head(text[start:], chars - len(before))
    cut_before, cut_after = len(before) < start, start + len(after) < len(text)
    line = " ".join(f"{before}{after}".split())
    return f"{'…' if cut_before else ''}{line}{'…' if cut_after else ''}"


def found_among(records: Iterable[tuple[str, Record | None]], query: Query) -> Iterator[Found]:
    """Those of these records, each with its session's id, that hold what is looked for."""
    for session_id, record in records:
        if record and query.matches(words_in(record)):
            yield Found(session_id=session_id, record=record)


def words_in(record: Record) -> list[str]:
    """The words by which the record is found, in order."""
    return words_of(searchable(record.event))


def _first_place(text: str, query: Query) -> int:
    """Where the first of its phrases begins in the text; 0 where none does."""
    words, starts = [], []
    for word, start in _places(text):
        words.append(word)
        starts.append(start)
    joined = _joined(words)
    places = (joined.find(_joined(phrase)) for phrase in query.phrases)
    first = min((place for place in places if place >= 0), default=None)
    return 0 if first is None else starts[joined.count(" ", 0, first)]


def _places(text: str) -> Iterator[tuple[str, int]]:
    """The words, and where in the text each begins."""
    for found in _any_word().finditer(text):
        for word in _folded(found.group()):
            yield word, found.start()


@lru_cache(maxsize=10_000)
def _folded(run: str) -> tuple[str, ...]:
    """The run in one case and form; it is short, as ordering the marks of one character is quadratic."""
    if run.isascii():
        return (run.lower(),)
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", run).casefold())
    return tuple(_any_word().findall(folded))


def _joined(words: Sequence[str]) -> str:
    return f" {' '.join(words)} "


@cache
def _any_word() -> re.Pattern[str]:
    """Made when first asked for: going through the characters takes a while."""
    chars = [chr(code) for code in range(_LAST_SCANNED + 1)]
    letters = {char for char in chars if char.isalnum()}
    marks = _ranges([char for char in chars if unicodedata.category(char) in ("Mn", "Mc")])
    single = letters & {chr(code) for first, last in _ONE_BY_ONE for code in range(first, last + 1)}
    others, alone = _ranges(sorted(letters - single)), _ranges(sorted(single))
    run = f"[{others}][{others}{marks}]{{0,{MOST_WORD_CHARS - 1}}}"
    return re.compile(f"[{alone}{_RARE}][{marks}]{{0,{MOST_MARKS}}}|{run}")


def _ranges(chars: Sequence[str]) -> str:
    """These characters, ascending, as ranges for a set of a regular expression."""
    ranges: list[tuple[int, int]] = []
    for code in map(ord, chars):
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1] = (ranges[-1][0], code)
        else:
            ranges.append((code, code))
    return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges)


def _call(call: ToolCall) -> str:
    decoded = call.decoded()
    return _lines(call.name, *([call.arguments] if decoded is None else _texts(decoded)))


def _texts(value: Any) -> Iterator[str]:
    """All texts and numbers in a value of JSON, with the names of its fields, in order."""
    waiting = [value]
    while waiting:
        match waiting.pop():
            case Mapping() as fields:
                waiting += [each for pair in reversed(list(fields.items())) for each in reversed(pair)]
            case list() | tuple() as items:
                waiting += reversed(items)
            case None | bool():
                continue
            case other:
                yield str(other)


def _lines(*texts: str) -> str:
    return "\n".join(text for text in texts if text)
