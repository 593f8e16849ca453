"""Vendor errors become ours, once: `understand` reads what failed and says it in our words.

Which HTTP status an error stands for that came in place of an answer, or in the middle of one, is told here
too. Servers that have said 200 tell the rest in fields: a number in `code` or `status`, a name of OpenAI's,
of gRPC's (https://grpc.io/docs/guides/status-codes/) or of their own, or in words alone.
"""

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from itertools import islice

import httpx2
import openai

from agentloop.errors import (
    AgentLoopError,
    BadAnswerError,
    ContextTooLongError,
    ModelRefusedError,
    ModelUnavailableError,
    SpoiltAnswerError,
)
from agentloop.providers.openai.connections import RedirectError
from agentloop.providers.openai.fields import (
    codes_in,
    is_of_the_answer,
    objects_in,
    parsed,
    said,
    trimmed,
    wait_in,
)
from agentloop.providers.openai.overflow import minute_in, overflow_in
from agentloop.providers.openai.refusals import CALL_IDS, CONTENT_PART, MEDIA, NO_TOOLS, SYSTEM_ROLE, Refusal
from agentloop.providers.openai.server import Server
from agentloop.providers.openai.sse import BROKEN_OFF, PAGE_HINT, ServerSaidError
from agentloop.redaction import redact_error

VENDOR_ERRORS = (openai.OpenAIError, httpx2.HTTPError, ServerSaidError)

_REDIRECTED = (RedirectError, httpx2.UnsupportedProtocol, httpx2.InvalidURL)
_PLAIN_ERRORS = (
    *(ValueError, TypeError, LookupError, AttributeError, AssertionError, RecursionError, ArithmeticError),
)
BORDER_ERRORS = (*VENDOR_ERRORS, AgentLoopError, *_PLAIN_ERRORS)
"""All that may be raised where an answer is read; the plain ones by what nobody thought of."""

_MOST_CAUSES = 20
_OF_THE_REQUEST = 400
_SHOWN_CHARS = 300
"""So much of what a server says stands in our own text: three lines of a terminal."""

_UNEXPLAINED = frozenset({"", "internal server error"})


class ClientSaidError(Exception):
    """What a client's or a parser's error said, without the request and the response that it held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a request has no answer.

    `error` is ours: nothing that hangs on it has the key, a header or a body. Raise it outside of the
    `except`. `status` and `body` are what a server says, secrets and all, as far as it is looked at; the
    status is None where it says nothing of the request. They are to be understood and then forgotten: words
    of a key may be words of the server too.
    """

    error: AgentLoopError
    status: int | None = None
    body: object = field(default=None, repr=False)

    @property
    def is_final(self) -> bool:
        """Whether the request was not understood: sent once more as it is, it would fail again."""
        is_refused = isinstance(self.error, ModelRefusedError | BadAnswerError)
        return is_refused and not isinstance(self.error, SpoiltAnswerError)

    @property
    def refusal(self) -> Refusal | None:
        """What the server does not take of the request; None where it says no such thing.

        An error in place of an answer that names no status is of the request, as a 400 is.
        """
        if self.status is None or not self.is_final:
            return None
        return Refusal.of(_OF_THE_REQUEST if self.status == 200 else self.status, self.body)


def understand(error: Exception, server: Server) -> Failure:
    """Why a request has no answer, by one of `BORDER_ERRORS`; what is said is parsed once. Never raises."""
    try:
        return _understood(error, server)
    except Exception as odd:  # noqa: BLE001 — an error that gets out of here has the request and its key with it
        return Failure(error=_unreadable(server, type(error), type(odd)))


def _understood(error: Exception, server: Server) -> Failure:
    match error:
        case openai.APIStatusError():
            body, status = trimmed(parsed(error.response.content)), error.status_code
            wait = retry_after_seconds(error.response.headers) or wait_in(body)
            is_bare = status == 500 and _shown(body).lower() in _UNEXPLAINED
            bare_bytes = sent_bytes(error.response.request) if is_bare else None
            return Failure(error=_error_of(status, body, server, wait, bare_bytes), status=status, body=body)
        case ServerSaidError():
            body = trimmed(error.body)
            status = http_status_of(body, begun=error.begun)
            ours = _error_of(status, body, server, wait_in(body))
            of_the_request = not (error.begun and status == 200)
            return Failure(error=ours, status=status if of_the_request else None, body=body)
        case AgentLoopError():
            ours = error
        case _:
            ours = _translate(error, server)
            ours.__cause__ = _words_only(error)
    _wipe(ours, server)
    return Failure(error=ours)


def _unreadable(server: Server, *kinds: type[BaseException]) -> BadAnswerError:
    names = ", ".join(kind.__name__ for kind in kinds)
    return BadAnswerError(f"{server.place} sent what cannot be read ({names}): check the base URL")


def _wipe(error: AgentLoopError, server: Server) -> None:
    """Take the key and the credentials out of all that an error and its causes say, in place.

    Servers repeat what they were sent, and what they and the client say stands in every traceback. What is
    not ours holds requests with their headers, and whole answers: words stay of it.
    """
    each: BaseException = error
    for _ in range(_MOST_CAUSES):
        cause = each.__cause__ or each.__context__
        each.__cause__ = None if cause is None else _words_only(cause)
        each.__context__ = None
        if each.__cause__ is None:
            break
        each = each.__cause__
    each.__cause__ = each.__context__ = None
    redact_error(error, server.wipe_secrets)


def sent_bytes(request: httpx2.Request) -> int:
    """How long the request's body is; that of one that was led elsewhere is no longer there to be counted."""
    return int(request.headers.get("content-length", 0))


def _error_of(
    status: int, body: object, server: Server, wait_seconds: float | None, bare_bytes: int | None = None
) -> AgentLoopError:
    """Our error for what a server says; its words are wiped before they are cut.

    Where it gives no reason, `bare_bytes` is the length of the request.
    """
    kept = trimmed(body, server.wipe_secrets)
    words = _shown(kept)
    short = words if len(words) <= _SHOWN_CHARS else words[:_SHOWN_CHARS] + "…"
    error = _in_our_words(status, body, short, server, wait_seconds)
    error.__cause__ = ServerSaidError(kept, unexplained_bytes=bare_bytes)
    return error


def _in_our_words(
    status: int, body: object, words: str, server: Server, wait_seconds: float | None
) -> AgentLoopError:
    if is_of_the_answer(body):
        return SpoiltAnswerError(f"{server.place} cannot read what its model said: {words or status}")
    if (sizes := overflow_in(status, body)) is not None:
        return ContextTooLongError(
            f"the request is too long for {server.model}: {words or status}; shorten it",
            window=sizes.window,
            tokens=sizes.tokens,
            output_tokens=sizes.output_tokens,
        )
    if status == 200:
        return BadAnswerError(f"the server sent an error in place of an answer: {words or 'with no reason'}")
    if _may_pass(status, body):
        text = _unavailable(status, server, words)
        return ModelUnavailableError(text, retry_after_seconds=wait_seconds)
    refused = _refused(status, server, words)
    return ModelRefusedError(
        f"{refused}; it answers with a web page: {PAGE_HINT}" if _is_page(body) else refused,
        status=status,
    )


def _may_pass(status: int, body: object) -> bool:
    if status in (413, 429) and minute_in(body) is not None:
        return True
    if status == 429:
        return not is_unpaid(body)
    if status == 500:
        lessons = (SYSTEM_ROLE, CALL_IDS, CONTENT_PART, MEDIA, NO_TOOLS)
        return not any(subject.stands_in(said(body)) for subject in lessons)
    return status in (408, 409) or status > 500


def _unavailable(status: int, server: Server, words: str) -> str:
    if status == 500 and words.lower() in _UNEXPLAINED:
        return f"{server.place} failed (500) with no reason: try again later"
    why = "is overloaded or a limit of yours is reached" if status == 429 else "cannot answer now"
    return _with_words(f"{server.place} {why} ({status}): try again later", words)


def _refused(status: int, server: Server, words: str) -> str:
    match status:
        case 401 if not server.lets_in:
            text = f"{server.place} asks who you are (401): set OPENAI_API_KEY, or give the header it wants"
        case 401 | 403:
            text = f"{server.place} refused the key ({status}): check OPENAI_API_KEY and what it may use"
        case 404:
            text = f"{server.place} has no model {server.model!r}, or no such path (404): check both"
        case 407:
            text = (
                f"a proxy on the way to {server.place} wants to know who asks (407): check HTTP_PROXY, "
                "ALL_PROXY and NO_PROXY"
            )
        case 429:
            text = f"{server.place} wants its bill settled first (429): check the plan, its credit and limits"
        case _:
            return f"{server.place} refused the request ({status}): {words or 'with no reason'}"
    return _with_words(text, words)


def _is_page(body: object) -> bool:
    return said(body).startswith("<")


def _shown(body: object) -> str:
    return "" if _is_page(body) else said(body)


def _with_words(text: str, words: str) -> str:
    return f"{text}; it says: {words}" if words else text


def _reason(error: BaseException, server: Server) -> str:
    """The innermost reason on one line, without secrets."""
    while error.__cause__ is not None:
        error = error.__cause__
    words = _words_only(error) if isinstance(error, _PLAIN_ERRORS) else error
    return " ".join(server.wipe_secrets(str(words)).split())[:_SHOWN_CHARS] or type(error).__name__


def _words_only(error: BaseException) -> BaseException:
    """The error itself where it is ours, else its words."""
    if isinstance(error, AgentLoopError | ServerSaidError | ClientSaidError):
        return error
    try:
        words = " ".join(str(error)[:_SHOWN_CHARS].split())
    except ValueError:
        words = ""
    return ClientSaidError(f"{type(error).__name__}: {words}")


def _translate(error: Exception, server: Server) -> AgentLoopError:
    match error:
        case openai.APITimeoutError() | httpx2.TimeoutException():
            return ModelUnavailableError(
                f"{server.place} did not answer in time: try again later, or allow it more seconds"
            )
        case openai.APIConnectionError(__cause__=cause) if isinstance(cause, _REDIRECTED):
            return BadAnswerError(
                f"{server.place} sends requests on to where no API is ({_reason(error, server)}): "
                "check the base URL"
            )
        case openai.APIConnectionError(__cause__=httpx2.ProxyError()) | httpx2.ProxyError():
            return ModelUnavailableError(
                f"the proxy on the way to {server.place} refused it ({_reason(error, server)}): check "
                "HTTPS_PROXY, ALL_PROXY and NO_PROXY, and whom the proxy lets through"
            )
        case openai.APIConnectionError() | httpx2.NetworkError():
            return ModelUnavailableError(
                f"cannot reach {server.place} ({_reason(error, server)}): check the network, the base URL "
                "and that the server runs"
            )
        case httpx2.RemoteProtocolError():
            return ModelUnavailableError(BROKEN_OFF)
        case _:
            return BadAnswerError(
                f"{server.place} sent what is no answer ({_reason(error, server)}): check the base URL"
            )


def unexplained_bytes(error: ModelUnavailableError) -> int | None:
    """The bytes of the request that was answered by a bare 500, None where anything else was said.

    Is the server ill then, or the request too large for it? A server that says when to come back is ill.
    """
    told = error.__cause__
    if not isinstance(told, ServerSaidError) or error.retry_after_seconds is not None:
        return None
    return told.unexplained_bytes


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
_BLAMES_REQUEST = re.compile(
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


def http_status_of(body: object, *, begun: bool) -> int:
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
    if _FINAL.search(text):
        return 200
    return 500 if begun or (_PASSING.search(text) and not _BLAMES_REQUEST.search(text)) else 200


def _numbers(body: object) -> Iterator[int]:
    values = (str(each.get(key)) for each in objects_in(body) for key in _NUMBERED)
    return (int(value) for value in values if _STATUS.fullmatch(value))


def _named(body: object) -> Iterator[int]:
    values = (each.get(key) for each in objects_in(body) for key in _NAMED)
    for name in (re.sub(r"[\s-]+", "_", value.strip()) for value in values if isinstance(value, str)):
        found = (status for status, says in _STATUS_OF_NAMES if re.search(says, name, re.IGNORECASE))
        yield from islice(found, 1)


_NUMBER = re.compile(r"\s*[0-9]+(\.[0-9]+)?\s*")
_UNREADABLE = (ValueError, OverflowError, TypeError, LookupError)
"""What `parsedate_to_datetime` raises, and the dates that no calendar has."""


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """How long the server asks to wait, from `retry-after-ms` or `retry-after` (seconds or an HTTP date).

    Advice that cannot be read is none. Never raises.

    Example:
        >>> retry_after_seconds({"retry-after": "20"}), retry_after_seconds({"retry-after-ms": "1500"})
        (20.0, 1.5)
        >>> retry_after_seconds({"retry-after": "soon"}) is None
        True
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "")
        if _NUMBER.fullmatch(text):
            return float(text) * unit
    try:
        return max(0.0, parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - time.time())
    except _UNREADABLE:
        return None
