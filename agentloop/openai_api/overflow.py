"""Telling a request that is too long from any other refusal, in the words of many servers.

There is no common code for it: OpenAI and those after it send `context_length_exceeded`, llama.cpp
`exceed_context_size_error`, GLM 1261, Mistral 3051, others a sentence alone. Nor does a status tell: 413 is
also said to a request that is too large for a minute's allowance, or to an image.
"""

import re
from collections.abc import Set
from dataclasses import replace

from agentloop.openai_api.error_bodies import codes_in, objects_in, said
from agentloop.openai_api.named_sizes import NamedSizes, sizes_in
from agentloop.openai_api.numbers import believed_window, tokens_in

_STATUSES = frozenset({200, 400, 413, 500})
_CODES = frozenset(
    {
        "1261",
        "3051",
        "context_length_exceeded",
        "context_window_exceeded",
        "exceed_context_size_error",
        "model_max_prompt_tokens_exceeded",
        "request_too_large",
        "tokens_limit_reached",
    }
)
_SURE_CODES = _CODES - {"1261", "3051", "request_too_large", "tokens_limit_reached"}
"""Codes that say so whatever the status; a gateway's may be that of an outage."""

_OTHER_CODES = frozenset({"rate_limit_exceeded", "rate_limit_error", "insufficient_quota", "content_filter"})
_NOT_LENGTH = re.compile(
    r"""
    \b(unknown|unrecogni[sz]ed|unsupported|not \s permitted|invalid \s schema|extra \s inputs|quota) \b
    | \b rate \s limit | \b per [\s-] (second|min(ute)?|hour|day) \b | \( (TPM|TPD|RPM|ITPM) \)
    | completion \s tokens, \s whereas | (number|range) \s of \s (max_)? output \s tokens
    | maximum \s tokens \s (that \s)? you \s request | \b string \s too \s long \b
    | \b (tools?|functions?|stop|schema)\b [^.]{0,40} \b too \s (long|many|large)
    | \b too \s many \s (tools|functions|images|stop)
    | \b (images?|audio|video|pdf|file)\b [^.]{0,40}
      ( size | dimension | too \s (large|big|long) | exceeds? \s \d )
    | \b content [\s_] (filter|policy) | \b content \s management \s policy
    """,
    re.IGNORECASE | re.VERBOSE,
)
_LENGTH = re.compile(
    r"""
    maximum \s (context|model|prompt|input) \s (length|size)
    | (exceed\w* | (longer|larger|greater|more) \s than | too \s (long|large|many) | overflow\w*)
      .{0,60} \b ((context|prompt|input|model|sequence|session) [\s_] (length|size|window|limit|len)
                  | max_(seq|model)_len) \b
    | \b context \s (length|size|window|limit) \b .{0,40} (exceed | too \s (long|large|small) | reached)
    | \b (prompt|input|messages?|conversation|request|context) \b [^.]{0,60} \b too \s (long|large)
    | \b (prompt|input|messages?|conversation) (\s length)? [\s\d()]{1,20} exceeds? \s (the \s)? (max|limit)
    | \b reached \s (the \s)? (maximum \s)? context \s (length|size|window|limit) \b
    | \b conversation \s length \s exceeded | reached \s its \s conversation \s limit
    | context_?window_?exceeded | \b n_keep \b .{0,20} \b n_ctx \b
    | \b (tokens | token \s count) \b .{0,60}
      (exceed | must \s be \s (<=|at \s most) | (more|greater) \s than \s max | too \s (many|large))
    | \b (must \s have|have \s to \s be|should \s be) \s (less|fewer) \s than \s \d+ \s tokens
    | \b too \s many \s (input|prompt|total)? \s? tokens \b | \b token \s length \s too \s long
    | \b length \b .{0,80} (should|must) \s not \s exceed | \b length \s \d+ \s is \s not \s possible
    | \b input \s token \s count \s is \b
    | exceed\w* \s (the \s)? (model \s)? (token \s limit | max\w* \s tokens)
    | (range \s of|maximum) \s (input|prompt) \s length | when \s context \s the \s overflows
    | reduce \s the \s length \s of \s (the|your|either) \s (messages|prompt|input)
    | \b request \s (body|payload|entity) \b .{0,20} (too \s large | exceed)
    | (输入|上下文|提示词?|请求|消息|prompt|tokens?) \S{0,12}? \s? (超过|超出|超长|过长|过大)
    | (超过|超出) \S{0,8} (上下文|最大长度|输入长度)
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)


def overflow_in(status: int, body: object) -> NamedSizes | None:
    """The sizes of the overflow that a refusal speaks of, None where it speaks of something else.

    `status` is the HTTP status, 200 for an error in place of an answer; `body` is the error object, or the
    text of a body that is no JSON.
    """
    text = said(body)
    if not _is_of_length(status, text, codes_in(body)):
        return None
    sizes = sizes_in(text)
    return replace(
        sizes,
        window=believed_window(_field(body, "n_ctx")) or sizes.window,
        tokens=_field(body, "n_prompt_tokens") or sizes.tokens,
    )


def _field(body: object, name: str) -> int | None:
    """The first number of tokens in a field of this name."""
    found = (tokens_in(each.get(name)) for each in objects_in(body))
    return next((tokens for tokens in found if tokens is not None), None)


def _is_of_length(status: int, text: str, codes: Set[str]) -> bool:
    if status not in _STATUSES:
        is_named = status > 500 and not codes.isdisjoint(_SURE_CODES)
        return is_named or _is_inference_servers(status, text, codes)
    if not codes.isdisjoint(_CODES):
        return True
    if not codes.isdisjoint(_OTHER_CODES) or _NOT_LENGTH.search(text):
        return False
    return status == 413 or bool(_LENGTH.search(text))


def _is_inference_servers(status: int, text: str, codes: Set[str]) -> bool:
    """Text Generation Inference says it with 422, a status that elsewhere is never about length.

    https://huggingface.co/docs/text-generation-inference/reference/api_reference
    """
    return status == 422 and "validation" in codes and "`inputs`" in text and "tokens" in text
