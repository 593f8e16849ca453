"""When a text cannot stand for a conversation: the check of every summary."""

import re
from collections.abc import Sequence

from agentloop.context import Context, Entry, TokenCounter, neutral, summary_in
from agentloop.models import CUT_SHORT
from agentloop.prompts import summary_message

SHORT_CHARS = 300
"""Texts up to this length are looked at for words that errors and refusals begin with."""

LEAST_WORDS = 2
"""Fewer words stand for nothing."""

_THINKING = re.compile(r"\A(?:\s*<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z))+", re.DOTALL | re.IGNORECASE)
_ERROR_TEXT = re.compile(
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
_LONGEST_NAME = "transcript_1700000000-100.jsonl"


def without_thinking(text: str) -> str:
    """The text without what a model thought aloud before it."""
    return _THINKING.sub("", text).strip()


def fault_in(text: str, finish: str | None) -> str | None:
    """Why the text stands for nothing, whatever it is to stand for, in words; None where it may."""
    if finish == "tool_calls":
        return "it was a tool call"
    if not text.strip():
        return "it was blank"
    if finish in CUT_SHORT:
        return "it was cut off"
    if len(text) < SHORT_CHARS and _ERROR_TEXT.match(text):
        return "it was an error text"
    if len(re.findall(r"\w+", text)) < LEAST_WORDS:
        return "it says nothing"
    return None


def fault_of(
    text: str, finish: str | None, covered: Sequence[Entry], context: Context, counter: TokenCounter
) -> str | None:
    """Why the text cannot stand for the covered entries of the context, in words; None where it can."""
    if fault := fault_in(text, finish):
        return fault
    if neutral(text.strip()) in _known_texts(covered, context):
        return "it repeats an old message"
    if room_left(text, covered, counter) <= 0:
        tokens, stood_for = counter(summary_message(text, _LONGEST_NAME)), _tokens(covered)
        return f"it takes {tokens:,} tokens, what it stands for takes {stood_for:,}"
    return None


def room_left(text: str, covered: Sequence[Entry], counter: TokenCounter) -> int:
    """By how many tokens the text, as a summary message, is smaller than what it stands for."""
    return _tokens(covered) - counter(summary_message(text, _LONGEST_NAME))


def _tokens(covered: Sequence[Entry]) -> int:
    return sum(entry.tokens for entry in covered)


def _known_texts(covered: Sequence[Entry], context: Context) -> set[str]:
    return {neutral(summary_in(entry.original.text).strip()) for entry in (*covered, *context.visible)}
