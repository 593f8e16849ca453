"""Telling a request that is too long from any other refusal, in the words of many servers.

There is no common code for it: OpenAI and those after it send `context_length_exceeded`, llama.cpp
`exceed_context_size_error`, GLM 1261, others a sentence alone. Numbers are read where they are named.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_LONGEST_TEXT = 4_000
_STATUSES = frozenset({200, 400, 413, 500})
_CODES = frozenset(
    {
        "1261",
        "context_length_exceeded",
        "context_window_exceeded",
        "exceed_context_size_error",
        "model_max_prompt_tokens_exceeded",
        "request_too_large",
        "tokens_limit_reached",
    }
)
_NOT_LENGTH = re.compile(
    r"\b(unknown|unrecogni[sz]ed|unsupported|not permitted|invalid schema|extra inputs|rate limit|quota)\b"
    r"|completion tokens, whereas|number of output tokens",
    re.IGNORECASE,
)
_LENGTH = re.compile(
    r"""
    maximum \s (context|model|prompt|input) \s (length|size)
    | (exceed\w* | (longer|larger|greater|more) \s than | too \s (long|large|many) | overflow\w*)
      .{0,60} \b (context|prompt|input|model) \s (length|size|window|limit)
    | \b context \s (length|size|window|limit) \b .{0,40} (exceed | too \s (long|large|small) | reached)
    | \b (prompt|input|messages?|conversation|request) \b [^.]{0,60} \b too \s (long|large)
    | \b (prompt|input|messages?|conversation) (\s length)? [\s\d()]{1,20} exceeds? \s (the \s)? (max|limit)
    | context_?window_?exceeded
    | \b (tokens | token \s count) \b .{0,60} (exceed | must \s be \s (<=|at \s most) | more \s than \s max)
    | \b input \s token \s count \s is \b
    | exceed\w* \s (the \s)? (model \s)? (token \s limit | max\w* \s tokens)
    | (range \s of|maximum) \s (input|prompt) \s length | when \s context \s the \s overflows
    | reduce \s the \s length \s of \s (the|your) \s (messages|prompt|input)
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)

_N = r"\(?(\d[\d,_]*)"
_SUM = re.compile(rf"{_N} \+ {_N} > {_N}")
_REMAINDER = re.compile(rf"{_N} > {_N} - {_N}")
_GIVEN_SUM = re.compile(rf"given: {_N} `?inputs`? tokens and {_N}", re.IGNORECASE)
_WINDOW = (
    rf"> {_N}",
    rf"(?:maximum|max|model'?s?) (?:context|model|prompt|input|allowed)? ?(?:length|size)(?: is| of|:)? {_N}",
    rf"(?:{_N} maximum|maximum is {_N}|max_model_len {_N})",
    rf"context (?:length|size|window|limit)(?: of only| of| is|:)? {_N}",
    rf"(?:limit|max size|token limit)(?: of| is|:) {_N}",
    rf"(?:must be <=|cannot exceed|supports up to|tokens allowed|maximum of) {_N}",
    rf"length should be \[\d+, {_N}\]",
)
_TOKENS = (
    rf"{_N} tokens >",
    rf"(?:requested|requested a total of|requested about|requested:|resulted in|contains|received) {_N}",
    rf"(?:has|token count|token count of|token count is|keep the first|requested tokens) {_N}",
    rf"(?:prompt|input|request|input length|prompt length|current length is|too long:) {_N}",
    rf"\(length {_N}\)",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overflow:
    """A request was too long: the window and the request's size in tokens, None where not named.

    Where the server names input and answer apart, `tokens` is both together, as the window is for both.
    """

    window: int | None
    tokens: int | None


def overflow_in(status: int, body: object) -> Overflow | None:
    """The overflow that a refusal speaks of, None where it speaks of something else.

    `status` is the HTTP status, 200 for an error in place of an answer; `body` is the error object, or the
    text of a body that is no JSON.
    """
    text, codes = said(body), _codes(body)
    known = status == 413 or not codes.isdisjoint(_CODES)
    if status not in _STATUSES or not (known or (_LENGTH.search(text) and not _NOT_LENGTH.search(text))):
        return None
    window, tokens = _numbers(text)
    if isinstance(body, Mapping):
        window, tokens = _count(body.get("n_ctx")) or window, _count(body.get("n_prompt_tokens")) or tokens
    return Overflow(window=window, tokens=tokens)


def said(body: object) -> str:
    """The server's own words in an error object, on one line; a gateway's quotation of its provider too."""
    if isinstance(body, Mapping):
        texts = [body.get(key) for key in ("message", "detail", "error", "loc", "msg")]
        metadata = body.get("metadata")
        texts.append(metadata.get("raw") if isinstance(metadata, Mapping) else None)
        body = " ".join(said(text) for text in texts if text)
    if isinstance(body, list):
        body = " ".join(said(item) for item in body)
    return " ".join(body[:_LONGEST_TEXT].split()) if isinstance(body, str) else ""


def _codes(body: object) -> set[str]:
    if not isinstance(body, Mapping):
        return set()
    return {str(body.get(key)) for key in ("code", "type", "error_type")}


def _numbers(text: str) -> tuple[int | None, int | None]:
    """The window and the request's size named in a sentence."""
    if found := _SUM.search(text):
        prompt, answer, window = map(_count, found.groups())
        return window, (prompt or 0) + (answer or 0)
    if found := _REMAINDER.search(text):
        answer, window, prompt = map(_count, found.groups())
        return window, (prompt or 0) + (answer or 0)
    window = _first(_WINDOW, text)
    if found := _GIVEN_SUM.search(text):
        return window, sum(_count(number) or 0 for number in found.groups())
    return window, _first(_TOKENS, text)


def _first(patterns: Iterable[str], text: str) -> int | None:
    for pattern in patterns:
        if found := re.search(pattern, text, re.IGNORECASE):
            return _count(next(filter(None, found.groups())))
    return None


def _count(number: object) -> int | None:
    """A positive number, as a number or as digits with separators."""
    if isinstance(number, str):
        digits = number.replace(",", "").replace("_", "")
        number = int(digits) if digits.isdecimal() and len(digits) < 16 else None
    return number if isinstance(number, int) and number > 0 else None
