"""The sizes in tokens that servers name in a sentence about a request that is too long.

A sum of prompt and answer is told apart where the server does so; bytes, characters and pixels are no tokens.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from agentloop.openai_api.numbers import NUMBER, believed_window, tokens_in

_N = rf"\(?({NUMBER})"
_OF = r"(?: is| of|:| at least| about| a total of| up to)*"
_OTHER_UNITS = re.compile(
    r"\(?(?<![\d,_.])\d[\d,_.]{0,30}(?: \d{3}\b){0,5} ?"
    r"(?:bytes?|[kmg]i?b|(?:input )?char(?:acter)?s?|pixels?|px|images?|tools?|pages?)\b",
    re.IGNORECASE,
)

_SUM = re.compile(rf"{_N} \+ {_N} > {_N}")
_REMAINDER = re.compile(rf"{_N} > {_N} - {_N}")
_MODEL_LENGTH = rf"max_(?:model|seq)_len(?: ?[=:] ?(?:max_total_tokens ?= ?)?| ){_N}"
_BEYOND = re.compile(
    rf"max_\w{{0,20}}tokens`? ?[=:] ?{_N} (?:cannot|must not) be (?:greater|larger) than {_MODEL_LENGTH}",
    re.IGNORECASE,
)
"""The answer's limit alone is more than the window: nothing is said of the prompt."""

_ANSWER = (
    rf"{_N} (?:requested )?output tokens",
    rf"{_N} `?max_(?:new|completion|output)?_?tokens",
    rf"max_(?:new_|completion_|output_)?tokens`? ?(?:is|of|=|:)? ?{_N}",
    rf"{_N} (?:tokens )?(?:for|in|from|of) (?:the |your )?(?:completion|output|response|answer|generation)",
    rf"generation length {_N}",
    rf"and {_N} (?:more|new tokens)",
)
_PROMPT = (
    rf"{_N} `?inputs`? tokens",
    rf"prompt contains{_OF} {_N} (?:input )?tokens",
    rf"has {_N} input tokens",
    rf"{_N} (?:tokens )?(?:in|from|of) (?:the |your )?(?:input |text )?(?:messages|prompt|input)",
    rf"prompt (?:is|length) {_N} tokens",
    rf"prompt length {_N}",
    rf"{_N} input tokens",
)
_TOTAL = (
    rf"total of(?: at least)? {_N}",
    rf"requested{_OF} {_N} tokens(?! ?(?:of|in|from) )",
    rf"sequence length of {_N}",
)
_WHOLE = rf"context (?:length|size|window|limit)(?: limit)?(?: is| of|:)?(?: only)? {_N}"
"""The window itself, whatever is named beside it: a server may name what it leaves for the input, too."""

_WINDOW = (
    rf"> {_N}",
    rf"(?:maximum|max|model'?s?) (?:context|model|prompt|input|allowed|supported sequence)? ?"
    rf"(?:length|size)(?: is(?: just)?| of|:)? {_N}",
    rf"(?:{_N} maximum|maximum is {_N}|{_MODEL_LENGTH}|max_num_tokens {_N}|n_ctx: {_N})",
    _WHOLE,
    rf"(?:maximum number of (?:input )?tokens(?: allowed)?|max input tokens)(?: is| of|:)? {_N}",
    rf"(?:limit|max size|token limit)(?: of| is|:) {_N}",
    rf"(?:tokens? limit|max context tokens is) {_N}",
    rf"(?:must be <=|(?:cannot|not) exceed|supports(?: up to)?|tokens allowed|maximum of|max is) {_N}",
    rf"(?:less|fewer) than {_N} tokens",
    rf"length should be \[\d+, {_N}\]",
    rf"exceeds(?: the)? (?:max(?:imum)?|context) {_N}",
    rf"(?:more|greater|larger|longer) than(?: the)? {_N}",
    rf"(?:exceeded|too long|too large):? {NUMBER} ?/ ?{_N}",
)
_TOKENS = (
    rf"(?:{_N} tokens >|prompt_len {_N})",
    rf"(?:requested|requested a total of|requested about|requested:|resulted in|contains|received) {_N}",
    rf"(?:has|have|token count(?: of| is|:)?|keep the first|requested tokens) {_N}",
    rf"(?:prompt|input|request|(?:input|prompt) length|current length is|given:|tokens) {_N}",
    rf"too (?:long|large): {_N}",
    rf"\(length {_N}\)",
    rf"prompt'?s? (?:length|tokens:?) {_N}",
    rf"n_keep: {_N}",
    rf"(?:{_N} >|but got {_N})",
    rf"(?:\(({NUMBER}) tokens?[;,]|(?:exceeded|too long|too large):? {_N} ?/ ?{NUMBER})",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedSizes:
    """What a server that finds a request too long says of the window and the request, in tokens.

    None stands for what it does not name. Where it names input and answer apart, `tokens` is both together,
    as the window is for both, and `output_tokens` the answer's, which some name beside the window alone.
    """

    window: int | None
    tokens: int | None
    output_tokens: int | None = None


def sizes_in(text: str) -> NamedSizes:
    """The sizes that a sentence names; none where it counts messages."""
    if "array too long" in text:
        return NamedSizes(window=None, tokens=None)
    text = _OTHER_UNITS.sub("", text)
    if found := _SUM.search(text):
        prompt, answer, window = (tokens_in(number) or 0 for number in found.groups())
        return NamedSizes(
            window=believed_window(window), tokens=prompt + answer, output_tokens=answer or None
        )
    if found := _REMAINDER.search(text):
        answer, window, prompt = (tokens_in(number) or 0 for number in found.groups())
        return NamedSizes(
            window=believed_window(window), tokens=prompt + answer, output_tokens=answer or None
        )
    if found := _BEYOND.search(text):
        longest, most = map(tokens_in, found.groups())
        return NamedSizes(window=believed_window(most), tokens=None, output_tokens=longest)
    return _apart(text)


def _apart(text: str) -> NamedSizes:
    output, total, prompt = (_first(patterns, text) for patterns in (_ANSWER, _TOTAL, _PROMPT))
    whole = _first((_WHOLE,), text) if output is not None else None
    window = believed_window(whole or _first(_WINDOW, text))
    if output is not None and (total or prompt):
        return NamedSizes(window=window, tokens=max(total or 0, (prompt or 0) + output), output_tokens=output)
    tokens = total or _first(_TOKENS, text) or prompt
    if whole is not None and tokens == output:
        return NamedSizes(window=window, tokens=None, output_tokens=output)
    return NamedSizes(window=window, tokens=tokens)


def _first(patterns: Iterable[str], text: str) -> int | None:
    for pattern in patterns:
        if found := re.search(pattern, text, re.IGNORECASE):
            return tokens_in(next(filter(None, found.groups())))
    return None
