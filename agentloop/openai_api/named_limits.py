"""The longest answer that a model gives, out of the words of a server that was asked for a longer one."""

import re

from agentloop.openai_api.numbers import tokens_in

_LIMIT = re.compile(
    r"max_?(completion_?|output_?|new_?)?tokens|maximum tokens|\brequested (completion|output) tokens\b"
    r"|\bmodel\b.{0,80}\b(completion|output) tokens|\b(completion|output) tokens\b.{0,80}\bmodel\b",
    re.IGNORECASE,
)
_ALLOWANCE = re.compile(
    r"\b(monthly|daily|hourly|weekly|quota|tier|per (second|minute|hour|day|month)|allowance|credits?)\b",
    re.IGNORECASE,
)
_LOWER_BOUND = re.compile(
    r"(\b(must|should|has to|have to|needs? to) be (greater|more|larger|higher|bigger|above)\b( than)?"
    r"|\bat least\b|>=|≥|\bminimum\b|\bno less than\b)[^\d]{0,60}(?:\d[\d,]*)",
    re.IGNORECASE,
)
_LEAST_OUTPUT = 16
"""No model's answer is limited to fewer tokens, and OpenAI's own take no smaller limit."""

_BOUND = re.compile(
    r"at most|less than|lower|<=|≤|>|range|maximum|exceed|too (large|high|big)|up to|between|limit",
    re.IGNORECASE,
)

_NUMBER = re.compile(r"(?<![\w.-])(\d{1,3}(?:,\d{3})+|\d+)(?![\w-]|\.\d)( \(exclusive\))?")


def most_output_in(text: str, asked: int) -> int | None:
    """The longest answer in tokens that may be asked for, less than `asked`; None where none is named.

    A number counts where the words are of this limit, and neither of what may be used in a month nor of
    the least that may be asked for.

    Example:
        >>> most_output_in("max_tokens must be at most 8192", 100_000)
        8192
    """
    if _ALLOWANCE.search(text) or not (_LIMIT.search(text) and _BOUND.search(text)):
        return None
    text = _LOWER_BOUND.sub("", text)
    named = ((tokens_in(number) or 0) - bool(exclusive) for number, exclusive in _NUMBER.findall(text))
    return max((number for number in named if _LEAST_OUTPUT <= number < asked), default=None)
