"""What makes a text unfit to stand for a conversation, in whatever language it is.

A call, JSON, a question, an error and an old reply are refused. No list of words tells every apology from a
summary; but a summary speaks of what it stands for (`speaks_of`): it shares names, numbers or words with it,
beside those that the instruction holds. A text that does not is in doubt.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from agentloop._plumbing.patterns import pattern
from agentloop._plumbing.strict_json import list_or_object
from agentloop.context import Context, Entry, TokenCounter, identifiers, prose_of, record_in
from agentloop.models import CUT_SHORT, is_call
from agentloop.prompts import summary_message

SHORT_CHARS = 300
"""Texts up to this length are looked at for words that errors and refusals begin with."""

LEAST_WORDS = 2
"""Fewer words stand for nothing."""

SHARED = 0.2
"""A text speaks of what holds so much of its words."""

SHARED_PAIRS = 0.4
"""So much of its pairs of characters, in a script without blanks, where chance shares more."""

FEW = 4
"""Of more words than these, one in common is chance."""

MOST_LOOKED_AT = 200
"""So many words of a text are looked at."""

LEAST_LETTERS, ENDING = 4, 2
"""Shorter words say little; of longer ones all but the ending counts."""

_THINKING = pattern(
    r"\A(?:\s*<(?P<tag>think(?:ing)?|thoughts?|reasoning)>.*?(?:</(?P=tag)>|\Z))+", re.DOTALL | re.IGNORECASE
)
_THOUGHT_END = pattern(r"(?:^|\s)</(?:think(?:ing)?|thoughts?|reasoning)>", re.IGNORECASE)
_JSON_BEGUN = pattern(r"\s*(?:```\w{0,20}\s*)?(?:\[\s*)?\{\s*\"")
_NO_BLANKS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"
_WORD = pattern(r"(?:[^\W_]|[\u0300-\u036f\u0610-\u065f\u0900-\u0dff])+")
_RUN = pattern(f"[{_NO_BLANKS}]{{2,}}")
_HANGUL = pattern("[\uac00-\ud7af]{2,}")
_QUESTIONS = pattern(r"[^.!。！।؟?？;;]*[?？؟;](?:\s+[^.!。！।؟?？;;]*[?？؟;])*")
_ERROR_TEXT = pattern(
    r"""[\W_]* (?:
        (?: http\S* \s* )? (?: error \s* )? [45]\d\d \s* (?: [:\-–] | error | client | server | bad | internal
            | service | too \s many | not \s found | unauthori | forbidden | gateway | $ )
        | (?: \w+ )? (?: error | exception ) \s* (?: [:!(\-–.*"] | $ | code | occurred | while )
        | an? \s (?: \w+ \s )? error \b | traceback \b | internal \s server | bad \s gateway | gateway \s time
        | (?: the \s )? (?: service | server | model | system ) \s (?: is \s | was \s | temporarily \s )*
            (?: unavailable | overloaded | busy | down ) \b | too \s many \s requests | rate \s limit
        | (?: request \s )? time[sd]? [\s-]? out \b | something \s went \s wrong
        | no \s (?: content | response | output | text ) \b | unable \s to \b | sorry \b | as \s an \s ai \b
        | i (?: ['’]m | \s am ) \s (?: sorry | unable | not \s able | afraid ) \b
        | i \s (?: can ['’]? t | cannot | can \s not | don['’]t | do \s not ) \b
        | please \s (?: provide | share | paste | give ) \b | upstream \b | object \s object
        | <!doctype | <html )""",
    re.IGNORECASE | re.VERBOSE,
)
_HEADED_BY = ("transcript_1700000000-100.jsonl", "12345–67890")
"""As long as the file name and the positions in the header of a summary message are as a rule."""


def without_thinking(text: str) -> str:
    """The text without what a model thought aloud before it, also where the server kept the opening mark."""
    text = _THINKING.sub("", text)
    ends = _THOUGHT_END.search(text)
    return (text[ends.end() :] if ends else text).strip()


def fault_in(text: str, finish: str | None) -> str | None:
    """Why the text stands for nothing, whatever it is to stand for, in words; None where it may."""
    if finish == "tool_calls":
        return "it was a tool call"
    if not text.strip():
        return "it was blank"
    if finish in CUT_SHORT:
        return "it was cut off"
    if is_call(text):
        return "it was a tool call, written as text"
    if len(text) < SHORT_CHARS and _ERROR_TEXT.match(text):
        return "it was an error text"
    if len(_WORD.findall(text)) < LEAST_WORDS and not _RUN.search(text):
        return "it says nothing"
    if _QUESTIONS.fullmatch(text.strip()):
        return "it was a question"
    return None


def summary_fault(
    text: str, finish: str | None, covered: Sequence[Entry], context: Context, counter: TokenCounter
) -> str | None:
    """Why the text cannot stand for the covered entries of the context, in words; None where it can."""
    if fault := fault_in(text, finish):
        return fault
    if text.strip() in _known_texts(covered, context):
        return "it repeats an old message"
    return size_fault(text, covered, counter)


def is_json(text: str) -> bool:
    """Whether the text is JSON, whole or torn, also in a block of code."""
    return _JSON_BEGUN.match(text) is not None or list_or_object(text) is not None


def speaks_of(text: str, covered: Iterable[Entry], *, beside: str) -> bool:
    """Whether the text shares an exact name or number with what is covered, or enough of its words.

    What `beside` holds counts for nothing: any text may be an echo of it.
    """
    there = list(chain.from_iterable(map(_texts_of, covered)))
    known = set(identifiers(beside))
    exact = [word for word in identifiers(text) if word not in known and len(word) > 2]
    if any(word in each for word in exact for each in there):
        return True
    stems_there, known = set(chain.from_iterable(map(_stems, there))), set(_stems(beside))
    if not stems_there:
        return True
    words: list[str] = []
    pairs: list[str] = []
    for stem in dict.fromkeys(_stems(text)):
        if stem not in known and len(words) + len(pairs) < MOST_LOOKED_AT:
            (pairs if _RUN.match(stem) else words).append(stem)
    return any(
        stems
        and sum(stem in stems_there for stem in stems) >= max(1 + (len(stems) > FEW), share * len(stems))
        for stems, share in ((words, SHARED), (pairs, SHARED_PAIRS))
    )


def _texts_of(entry: Entry) -> Iterator[str]:
    yield record_in(entry.original)[1] if entry.kind == "summary" else entry.original.text
    for call in entry.original.tool_calls:
        yield call.name
        yield call.arguments


def _stems(text: str) -> Iterator[str]:
    """What a text can be known by, whatever endings its words have; pairs where no blanks part words."""
    for word in _WORD.findall(text.casefold()):
        for run in _RUN.findall(word):
            yield from (run[at : at + 2] for at in range(len(run) - 1))
        if _HANGUL.match(word):
            yield word[:2]
        elif (len(word) >= LEAST_LETTERS or (word.isdecimal() and len(word) > 1)) and not _RUN.search(word):
            yield word[: max(LEAST_LETTERS, len(word) - ENDING)]


def size_fault(text: str, covered: Sequence[Entry], counter: TokenCounter) -> str | None:
    """That the text takes no less than what it is to stand for, in words; None where it does."""
    if room_left(text, covered, counter) > 0:
        return None
    tokens, stood_for = counter(summary_message(text, *_HEADED_BY)), _tokens(covered)
    return f"it takes {tokens:,} tokens, what it stands for takes {stood_for:,}"


def room_left(text: str, covered: Sequence[Entry], counter: TokenCounter) -> int:
    """By how many tokens the text, as a summary message, is smaller than what it stands for."""
    return _tokens(covered) - counter(summary_message(text, *_HEADED_BY))


def _tokens(covered: Sequence[Entry]) -> int:
    return sum(entry.tokens for entry in covered)


def _known_texts(covered: Sequence[Entry], context: Context) -> set[str]:
    texts = {record_in(entry.original)[1] for entry in (*covered, *context.visible)}
    return {part.strip() for text in texts for part in (text, prose_of(text)[0])}
