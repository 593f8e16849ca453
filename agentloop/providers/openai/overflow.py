"""Is a request too long for the model, and what sizes does its server name?

There is no common code for it: OpenAI and those after it send `context_length_exceeded`, llama.cpp
`exceed_context_size_error`, GLM 1261, Mistral 3051, others a sentence alone. Nor does a status tell: 413 is
also said to an image, or where a minute's allowance is used up; 429 to a request larger than all of it.

Of the sizes in tokens in such a sentence, a sum of prompt and answer is told apart where the server does so;
bytes, characters and pixels are no tokens.
"""

import re
from collections.abc import Iterable, Set
from dataclasses import dataclass, replace

from agentloop._plumbing.amounts import MOST_TOKENS
from agentloop.providers.openai.fields import NUMBER, believed_window, codes_in, objects_in, said, tokens_in

_N = rf"\(?({NUMBER})"
_OF = r"(?: is| of|:| at least| about| a total of| up to)*"
_OTHER_UNITS = re.compile(
    r"\(?(?<![\d,_.])\d[\d,_.]{0,30}(?: \d{3}\b){0,5} ?"
    r"(?:bytes?|[kmg]i?b|(?:input )?char(?:acter)?s?|pixels?|px|images?|tools?|pages?)\b",
    re.IGNORECASE,
)

_PROMPT_N, _ANSWER_N, _WINDOW_N = (rf"\(?(?P<{name}>{NUMBER})" for name in ("prompt", "answer", "window"))
_MODEL_LENGTH = r"max_(?:model|seq)_len(?: ?[=:] ?(?:max_total_tokens ?= ?)?| )"
_SUMS = (
    rf"{_PROMPT_N} \+ {_ANSWER_N} > {_WINDOW_N}",
    rf"{_ANSWER_N} > {_WINDOW_N} - {_PROMPT_N}",
    rf"(?i:max_\w{{0,20}}tokens`? ?[=:] ?{_ANSWER_N} (?:cannot|must not) be (?:greater|larger) than "
    rf"{_MODEL_LENGTH}{_WINDOW_N})",
)
"""All sizes in one formula. In the last one the answer's limit alone is more than the window."""

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
    rf"(?:{_N} maximum|maximum is {_N}|{_MODEL_LENGTH}{_N}|max_num_tokens {_N}|n_ctx: {_N})",
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
_TOKEN_PATTERNS = (
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
    for formula in _SUMS:
        if found := re.search(formula, text):
            named = {name: tokens_in(number) for name, number in found.groupdict().items()}
            window, answer = believed_window(named["window"]), named["answer"]
            tokens = (named["prompt"] or 0) + (answer or 0) if "prompt" in named else None
            return NamedSizes(window=window, tokens=tokens, output_tokens=answer)
    return _apart(text)


def _apart(text: str) -> NamedSizes:
    output, total, prompt = (_first(patterns, text) for patterns in (_ANSWER, _TOTAL, _PROMPT))
    whole = _first((_WHOLE,), text) if output is not None else None
    window = believed_window(whole or _first(_WINDOW, text))
    if output is not None and (total or prompt):
        return NamedSizes(window=window, tokens=max(total or 0, (prompt or 0) + output), output_tokens=output)
    tokens = total or _first(_TOKEN_PATTERNS, text) or prompt
    if whole is not None and tokens == output:
        return NamedSizes(window=window, tokens=None, output_tokens=output)
    return NamedSizes(window=window, tokens=tokens)


def _first(patterns: Iterable[str], text: str) -> int | None:
    for pattern in patterns:
        if found := re.search(pattern, text, re.IGNORECASE):
            return tokens_in(next(filter(None, found.groups())))
    return None


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
_OF_USE = re.compile(
    r"""
    \b (today | this \s (day|week|month) | (dai|hour|week|month)ly | allowance | credits?
        | (?<! thinking \s) (?<! reasoning \s) budget
        | (?<! upgrade \s) your \s (\w{1,12} \s)? (plan|tier|subscription|organi[sz]ation)) \b
    | \b (deadline | timed? [\s-]? (out|limit) | concurrent | wait | in \s flight) \b
    | 频率 | 速率 | 额度 | 配额 | 余额 | 并发 | 套餐 | 每分钟 | 每[日天] | [今当]日 | 今天
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""Words of time, load and money. They are also said beside an overflow: upgrade your plan, wait a moment."""

_BETWEEN_SENTENCES = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")
_OF_THE_ANSWER = re.compile(
    r"\b(max_(?!num_)\w*tokens|maxOutputTokens|budget_tokens"
    r"|(output|completion|reasoning|thinking|budget) tokens|(for|of) output)\b",
    re.IGNORECASE,
)
_OF_THE_PROMPT = re.compile(
    r"(?<!invalid )\b(prompts?|inputs?|messages|conversation)\b|\btotal (number of )?tokens\b", re.IGNORECASE
)
_SURELY_LENGTH = re.compile(
    r"""
    maximum \s ((context|prompt|input) \s (length|size) | model \s length)
    | (exceed\w* | (longer|larger|greater|more) \s than | too \s (long|large|many) .{0,20} \b (for|to \s fit))
      .{0,60} \b (context [\s_]? (length|size|window) | (prompt|input|sequence) [\s_] (length|len)
                  | max_(seq|model)_len | (model'?s? | available) \s context) \b
    | \b context \s (length|size|window) \b .{0,40} (exceed | too \s (long|large|small) | reached)
    | \b (prompts? | inputs? | messages? | conversation | context | request \s (body|payload|entity)) ['"`]?
      (\s (length|size|text|prompt|tokens?|count)){0,3} (\s? \(? \d[\d,.]{0,20} (\s tokens)? \)?)?
      (\s (is|are|was|were))? (\s (far|much|way))? \s too \s (long|large|big) \b
    | 'messages': \s array \s too \s long \b
    | \b (reached|exceed(s|ed)) \s (the \s)? (maximum \s)? context \s (length|size|window) \b
    | context_?window_?exceeded | \b n_keep \b .{0,20} \b n_ctx \b
    | \b max_num_tokens \b .{0,20} - \s? prompt_len \b
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
"""What is sure by itself: of the context, the prompt or the messages it is said that they are too long.

"Too long", "too large" and "limit" are also said of time, queues, allowances, headers and other fields.
"""

_LENGTH = re.compile(
    r"""
    (exceed\w* .{0,60} | reached \s (the \s)? (maximum \s)?) \b (context|prompt|input|sequence) [\s_] limit \b
    | \b context \s limit \b .{0,40} (exceed | too \s (long|large|small) | reached)
    | (too \s (long|large|many) .{0,20} \b (for|to \s fit) | (longer|larger|greater|more) \s than)
      .{0,60} \b (context|prompt|input|sequence) [\s_] limit \b
    | \b request \s ((is|was) \s)? ((far|much|way) \s)? too \s (long|large|big)
      (?= [.!]? \s* $ | [^.]{0,80} \b (tokens? | context | for \s (this|the) \s (\w{1,12} \s)? model) \b)
    | \b (prompts? | inputs? | conversation | context | request \s (body|payload|entity)) \b ['"`]?
      (\s (length|size|text|tokens?|count)){0,3} [\s\d(),]{1,20} (tokens \)? \s)?
      ((has|have) \s)? (exceed\w* | (is|are) \s (longer|larger|greater) \s than)
      \s ((the|its) \s)? ((model'?s?|configured) \s)? (max|limit)
    | \b conversation \s length \s exceeded | reached \s its \s conversation \s limit
    | \b ((input|prompt|total|requested|context|message) \s tokens? | number \s of \s (\w{1,9} \s)? tokens
          | tokens \s (in|of|for) \s (the|your|this) \s (\w{1,9} \s)? (prompt|input|messages?|request)
          | token \s count) \b .{0,60}
      (exceed | must \s be \s (<=|at \s most) | (more|greater) \s than \s max | too \s (many|large|long))
    | (inputs?|prompt) ['"`]? \s tokens \b .{0,60} must \s be \s (<=|at \s most)
    | \b (must \s have|have \s to \s be|should \s be) \s (less|fewer) \s than \s \d+ \s tokens
    | \b too \s many \s ((input|prompt|total) \s tokens \b | tokens (?= [:.]? $ | : | \s in \b))
    | \b token \s length \s too \s long | \b length \s \d+ \s is \s not \s possible
    | \b (input|prompt|messages?|context|sequence) \b .{0,30} \b length \b .{0,80}
      (should|must) \s not \s exceed
    | \b input \s token \s count \s is \b | exceed\w* \s (the \s)? model'?s? \s token \s limit
    | (range \s of|maximum) \s (input|prompt) \s length | when \s context \s the \s overflows
    | reduce \s the \s length \s of \s (the|your|either) \s (messages|prompt|input)
    | (输入|上下文|提示词?|请求(体|内容|长度)|消息|prompt|tokens?) \S{0,12}? \s? (超过|超出|超长|过长|过大)
    | (超过|超出) \S{0,8} (上下文|最大长度|输入长度)
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
"""What is of length where no word of time, load or money stands beside it."""

_TOKENS = re.compile(r"\btokens?\b", re.IGNORECASE)


_ALLOWANCE = re.compile(
    rf"\b(?:tokens per min(?:ute)?|TPM)\b.{{0,40}}?\blimit(?: is|:)? ({NUMBER})"
    rf".{{0,60}}?\brequested:? ({NUMBER})",
    re.IGNORECASE | re.DOTALL,
)
"""OpenAI's words and Groq's: https://platform.openai.com/docs/guides/rate-limits."""


def minute_in(body: object) -> NamedSizes | None:
    """A whole minute's allowance of tokens, as the window, and the request's; None where none is named."""
    found = _ALLOWANCE.search(said(body))
    if found is None:
        return None
    window, tokens = map(tokens_in, found.groups())
    return NamedSizes(window=window, tokens=tokens) if window and tokens else None


def overflow_in(status: int, body: object) -> NamedSizes | None:
    """The sizes of the overflow that a refusal speaks of, None where it speaks of something else.

    `status` is the HTTP status, 200 for an error in place of an answer; `body` is the error object, or the
    text of a body that is no JSON. A request larger than a whole minute's allowance is one, whatever the
    status: no waiting helps.
    """
    text = said(body)
    if (minute := minute_in(body)) is not None:
        is_larger = (minute.tokens or 0) > (minute.window or 0)
        return replace(minute, window=believed_window(minute.window)) if is_larger else None
    sizes = sizes_in(text)
    if not _is_of_length(status, text, codes_in(body), sizes):
        return None
    return replace(
        sizes,
        window=believed_window(_field(body, "n_ctx")) or sizes.window,
        tokens=_field(body, "n_prompt_tokens") or sizes.tokens,
    )


def _field(body: object, name: str) -> int | None:
    found = (tokens_in(each.get(name)) for each in objects_in(body))
    return next((tokens for tokens in found if tokens is not None), None)


def _is_of_length(status: int, text: str, codes: Set[str], sizes: NamedSizes) -> bool:
    if status not in _STATUSES:
        is_named = status > 500 and not codes.isdisjoint(_SURE_CODES)
        return is_named or _is_inference_servers(status, text)
    if not codes.isdisjoint(_CODES):
        return True
    if not codes.isdisjoint(_OTHER_CODES) or _NOT_LENGTH.search(text) or _is_of_the_answer(text, sizes):
        return False
    if _SURELY_LENGTH.search(text):
        return True
    if _OF_USE.search(text):
        rest = " ".join(each for each in _BETWEEN_SENTENCES.split(text) if not _OF_USE.search(each))
        return _names_more_than_fits(rest, sizes_in(rest))
    return status == 413 or bool(_LENGTH.search(text)) or _names_more_than_fits(text, sizes)


def _is_of_the_answer(text: str, sizes: NamedSizes) -> bool:
    """Whether the answer's limit alone is refused: that is lowered, and the prompt not compacted for it.

    Where the window is named beside it, both count together.
    """
    if sizes.window and sizes.output_tokens:
        return False
    return bool(_OF_THE_ANSWER.search(text)) and not _OF_THE_PROMPT.search(text)


def _names_more_than_fits(text: str, sizes: NamedSizes) -> bool:
    """Whether more tokens are named than a window beside them takes, in whatever words."""
    return bool(_TOKENS.search(text)) and (sizes.tokens or 0) > (sizes.window or MOST_TOKENS)


def _is_inference_servers(status: int, text: str) -> bool:
    """Text Generation Inference, and who runs it, say it with 422, a status that else is never about length.

    https://huggingface.co/docs/text-generation-inference/reference/api_reference
    """
    return status == 422 and "`inputs`" in text and bool(_LENGTH.search(text))
