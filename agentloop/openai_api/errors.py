"""The one border where the errors of the openai client and the words of servers become ours."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime

import httpx2
import openai

from agentloop.errors import (
    AgentLoopError,
    BadAnswerError,
    ContextTooLongError,
    ModelRefusedError,
    ModelUnavailableError,
)
from agentloop.openai_api.keyless import place_of, without_secrets
from agentloop.openai_api.overflow import overflow_in, said
from agentloop.openai_api.refused import refuses_system
from agentloop.openai_api.server_events import BROKEN_OFF, ServerSaidError
from agentloop.redaction import redact_error

VENDOR_ERRORS = (openai.OpenAIError, httpx2.HTTPError, ServerSaidError)

_SHOWN_WORDS = 300
_LATER = re.compile(r"rate_limit|overloaded|unavailable|server_error|internal|timeout", re.IGNORECASE)
_UNEXPLAINED = frozenset({"", "internal server error"})
_UNPAID = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})


class UnexplainedError(ModelUnavailableError):
    """A bare 500 to a request of so many bytes: is the server ill, or the request too large for it?"""

    def __init__(self, text: str, *, retry_after_seconds: float | None, request_bytes: int) -> None:
        super().__init__(text, retry_after_seconds=retry_after_seconds)
        self.request_bytes = request_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Where requests go, and to which model there; the key is kept out of every text."""

    model: str
    base_url: str = field(repr=False)
    key: str = field(repr=False)

    @property
    def place(self) -> str:
        """The base URL without any credentials in it."""
        return place_of(self.base_url)

    def without_secrets(self, text: str) -> str:
        """The text without the key, parts of it, and the credentials in the base URL."""
        return without_secrets(text, self.key, self.base_url)

    def words_of(self, body: object) -> str:
        """What the server said, short enough for one line, without markup and without the key."""
        words = said(body)
        if words.startswith("<"):
            return ""
        words = self.without_secrets(words[: 2 * _SHOWN_WORDS])
        return words if len(words) <= _SHOWN_WORDS else words[:_SHOWN_WORDS] + "…"


def wipe(error: AgentLoopError, server: Server) -> None:
    """Take the key and the credentials out of all that an error and its causes say, in place.

    Servers repeat what they were sent, and what they and the client say stands in every traceback.
    """
    redact_error(error, server.without_secrets)
    each: BaseException | None = error
    while each is not None:
        for name in {"request", "_request"} & vars(each).keys():
            if server.without_secrets(shown := repr(vars(each)[name])) != shown:
                setattr(each, name, None)
        each = each.__cause__ or each.__context__


def translated(error: Exception, server: Server) -> AgentLoopError:
    """Our error for one of `VENDOR_ERRORS`."""
    match error:
        case openai.APIStatusError():
            wait = retry_after_seconds(error.response.headers)
            if error.status_code == 500 and server.words_of(error.body).lower() in _UNEXPLAINED:
                return _unexplained(error, server, wait)
            return _refusal(error.status_code, error.body, server, wait)
        case ServerSaidError():
            return _refusal(_status_of(error.body), error.body, server, None)
        case openai.APITimeoutError() | httpx2.TimeoutException():
            return ModelUnavailableError(
                f"{server.place} did not answer in time: try again later, or allow it more seconds"
            )
        case openai.APIConnectionError() | httpx2.NetworkError() | httpx2.ProxyError():
            return ModelUnavailableError(
                f"cannot reach {server.place} ({_reason(error)}): check the network, the base URL and that "
                "the server runs"
            )
        case httpx2.RemoteProtocolError():
            return ModelUnavailableError(BROKEN_OFF)
        case _:
            return BadAnswerError(
                f"{server.place} sent what is no answer ({_reason(error)}): check the base URL"
            )


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """How long the server asks to wait, from `retry-after-ms` or `retry-after` (seconds or an HTTP date)."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "")
        if re.fullmatch(r"\s*\d+(\.\d+)?\s*", text):
            return float(text) * unit
    try:
        return max(0.0, parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - time.time())
    except ValueError:
        return None


def _refusal(status: int, body: object, server: Server, wait: float | None) -> AgentLoopError:
    words = server.words_of(body)
    if (overflow := overflow_in(status, body)) is not None:
        text = f"the request is too long for {server.model}: {words or status}; shorten it"
        return ContextTooLongError(
            text, window=overflow.window, tokens=overflow.tokens, output_tokens=overflow.output_tokens
        )
    match status:
        case 200:
            return BadAnswerError(
                f"the server sent an error in place of an answer: {words or 'with no reason'}"
            )
        case 401 | 403:
            text = f"{server.place} refused the key ({status}): check OPENAI_API_KEY and what it may use"
            return ModelRefusedError(_with_words(text, words), status=status)
        case 404:
            text = f"{server.place} has no model {server.model!r}, or no such path (404): check both"
            return ModelRefusedError(_with_words(text, words), status=status)
        case 429 if _is_unpaid(body):
            text = f"{server.place} wants its bill settled first (429): check the plan, its credit and limits"
            return ModelRefusedError(_with_words(text, words), status=status)
        case 429:
            text = f"{server.place} is overloaded or a limit of yours is reached (429): try again later"
            return ModelUnavailableError(_with_words(text, words), retry_after_seconds=wait)
        case 500 if refuses_system(said(body)):
            text = f"{server.place} refused the request (500): {words}"
            return ModelRefusedError(text, status=status)
        case _ if status in (408, 409) or status >= 500:
            text = f"{server.place} cannot answer now ({status}): try again later"
            return ModelUnavailableError(_with_words(text, words), retry_after_seconds=wait)
        case _:
            text = f"{server.place} refused the request ({status}): {words or 'with no reason'}"
            return ModelRefusedError(text, status=status)


def _unexplained(error: openai.APIStatusError, server: Server, wait: float | None) -> UnexplainedError:
    text = f"{server.place} failed (500) with no reason: try again later"
    size = len(error.response.request.content)
    return UnexplainedError(text, retry_after_seconds=wait, request_bytes=size)


def _status_of(body: object) -> int:
    """The HTTP status that an error in place of an answer stands for, 200 where it names none."""
    if not isinstance(body, Mapping):
        return 200
    code = body.get("code")
    if str(code).isdecimal() and 400 <= int(str(code)) < 600:
        return int(str(code))
    if _is_unpaid(body):
        return 429
    return 503 if _LATER.search(f"{code} {body.get('type')}") else 200


def _is_unpaid(body: object) -> bool:
    """Whether no waiting helps: https://platform.openai.com/docs/guides/error-codes#api-errors."""
    return isinstance(body, Mapping) and not _UNPAID.isdisjoint(
        {str(body.get(key)) for key in ("code", "type")}
    )


def _with_words(text: str, words: str) -> str:
    return f"{text}; it says: {words}" if words else text


def _reason(error: BaseException) -> str:
    """The innermost reason on one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split())[:_SHOWN_WORDS] or type(error).__name__
