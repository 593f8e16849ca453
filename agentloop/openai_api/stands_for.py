"""Which HTTP status an error stands for that came in place of an answer, or in the middle of one.

Servers that have said 200 tell the rest in fields: a number in `code` or `status`, a name of OpenAI's, of
gRPC's (https://grpc.io/docs/guides/status-codes/) or of their own, or in words alone.
"""

import re
from collections.abc import Iterator

from agentloop.openai_api.error_bodies import codes_in, objects_in, said

_NUMBERED = ("code", "status", "status_code", "statusCode", "http_status", "error_code")
_NAMED = ("code", "status", "type", "error_type", "error_code", "__type")
_STATUS = re.compile(r"[45][0-9][0-9]")
_STATUS_OF_NAMES = (
    (422, r"^validation$"),
    (502, r"^(invalid|bad|empty)_response$|^bad_response_(status_code|body)$"),
    (
        200,
        r"invalid|bad_?request|authentication|unauthori[sz]ed|unauthenticated|permission|forbidden|denied"
        r"|not_?found|unsupported|unprocessable|validation|content_?filter|policy|safety|moderation"
        r"|failed_?precondition|out_?of_?range|unimplemented|already_?exists|too_?(large|long|big)"
        r"|inspection|deactivated",
    ),
    (429, r"rate_?limit|too_?many_?requests|resource_?exhausted|throttl"),
    (503, r"overload|unavailable|busy|capacity|aborted|connection_?error"),
    (504, r"time_?d?_?out|deadline_?exceeded"),
    (
        500,
        r"server_?error|^api_?error$|internal|provider_?error|upstream|bad_?gateway|^(incomplete_)?generation$",
    ),
)
"""The first one that fits says it; 200 stands for a fault of the request, which no second try helps."""

_PASSING = re.compile(
    r"\b(over-?loaded|busy|(temporar(il)?y )?unavailable|at (full )?capacity|timed? ?out|timeout)\b"
    r"|\b(try|retry)\b.{0,30}\b(again|later|request)\b|\btoo many requests\b|\brate limit"
    r"|\b(internal|upstream) (server )?error\b|\bbad gateway\b|\bserver (is )?down\b"
    r"|繁忙|稍后再?(重?试|尝试)|速率限制|限流|频繁|过载|超时|暂时不可用",
    re.IGNORECASE,
)
_OF_THE_REQUEST = re.compile(
    r"\b(invalid|unknown|unsupported|unrecogni[sz]ed|malformed|incorrect|unauthori[sz]ed|forbidden)\b"
    r"|\bnot (supported|allowed|permitted|found|authorized)\b|\bmust (be|have|not)\b|\bdoes not exist\b"
    r"|\b(api|access) key\b|\bcredentials\b|\bpermission\b|\b(content|usage) policy\b|\bcontent filter",
    re.IGNORECASE,
)
_UNPAID = frozenset(
    {
        *("insufficient_quota", "billing_hard_limit_reached", "billing_not_active"),
        *("exceeded_current_quota_error", "insufficient_balance", "insufficient_credits"),
        *("payment_required", "billing_error"),
    }
)
_FINAL = re.compile(
    r"\binsufficient (quota|balance|credits?|funds)\b|\bcredit balance\b|\bbilling\b|\bpayment required\b"
    r"|\bexceeded your current quota\b|\b(no|out of|not enough) credits?\b|\btop[ -]?up\b|余额不足|欠费"
    r"|\bcontent (policy|filter(s|ed|ing)?|management)\b|敏感|不安全"
    r"|\bsafety (systems?|filters?|polic(y|ies))\b"
    r"|\bunauthori[sz]ed\b|\b(un|not )available in your (region|country|location)\b",
    re.IGNORECASE,
)


def is_unpaid(body: object) -> bool:
    """Whether no waiting helps: https://platform.openai.com/docs/guides/error-codes#api-errors."""
    return not _UNPAID.isdisjoint(codes_in(body))


def status_said(body: object, *, begun: bool) -> int:
    """The status that the error stands for, 200 where it says of none that a second try could help.

    Once an answer has `begun`, the request was good: what then breaks it off may pass, unless it says that
    somebody has to pay or that the content is not wanted, or names a fault of the request.
    """
    if (numbered := next(_numbers(body), None)) is not None:
        return numbered
    if is_unpaid(body):
        return 429
    text = said(body)
    if (named := next(_named(body), None)) is not None:
        return 200 if named == 500 and _FINAL.search(text) else named
    if _FINAL.search(text) or not (begun or _may_pass(text)):
        return 200
    return 500


def _numbers(body: object) -> Iterator[int]:
    values = (str(each.get(key)) for each in objects_in(body) for key in _NUMBERED)
    return (int(value) for value in values if _STATUS.fullmatch(value))


def _named(body: object) -> Iterator[int]:
    """What the fields for names stand for, as far as they are known."""
    values = (each.get(key) for each in objects_in(body) for key in _NAMED)
    for name in (re.sub(r"[\s-]+", "_", value.strip()) for value in values if isinstance(value, str)):
        if (status := _status_of(name)) is not None:
            yield status


def _status_of(name: str) -> int | None:
    found = (status for status, pattern in _STATUS_OF_NAMES if re.search(pattern, name, re.IGNORECASE))
    return next(found, None)


def _may_pass(text: str) -> bool:
    return bool(_PASSING.search(text)) and not _OF_THE_REQUEST.search(text)
