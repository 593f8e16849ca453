"""The one border where the errors of the openai client and the words of servers become ours."""

from dataclasses import dataclass

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
from agentloop.openai_api.error_bodies import is_of_the_answer, parsed, said, trimmed
from agentloop.openai_api.overflow import overflow_in
from agentloop.openai_api.refused import Refusal, refuses_a_part, refuses_call_ids, refuses_system
from agentloop.openai_api.retry_after import retry_after_seconds
from agentloop.openai_api.server import Server
from agentloop.openai_api.server_events import BROKEN_OFF, ServerSaidError
from agentloop.openai_api.stands_for import is_unpaid, status_said
from agentloop.redaction import redact_error

VENDOR_ERRORS = (openai.OpenAIError, httpx2.HTTPError, ServerSaidError)

_REDIRECTED = (httpx2.TooManyRedirects, httpx2.UnsupportedProtocol, httpx2.InvalidURL)
_PLAIN_ERRORS = (
    *(ValueError, TypeError, LookupError, AttributeError, AssertionError, RecursionError, ArithmeticError),
)
_MOST_CAUSES = 20
_OF_THE_REQUEST = 400

_SHOWN_CHARS = 300
"""So much of what a server says stands in our own text: three lines of a terminal."""

_UNEXPLAINED = frozenset({"", "internal server error"})

BORDER_ERRORS = (*VENDOR_ERRORS, AgentLoopError, *_PLAIN_ERRORS)
"""All that may be raised where an answer is read; the plain ones by what nobody thought of."""


class ClientSaidError(Exception):
    """What a client's or a parser's error said, without the request and the response that it held."""


def wipe(error: AgentLoopError, server: Server) -> None:
    """Take the key and the credentials out of all that an error and its causes say, in place.

    Servers repeat what they were sent, and what they and the client say stands in every traceback. What is
    not ours holds requests with their headers, and whole answers: words stay of it.
    """
    each: BaseException = error
    for _ in range(_MOST_CAUSES):
        cause = each.__cause__ or each.__context__
        each.__cause__ = None if cause is None else _plain(cause)
        each.__context__ = None
        if each.__cause__ is None:
            break
        each = each.__cause__
    each.__cause__ = each.__context__ = None
    redact_error(error, server.without_secrets)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    """What a server says in an error, secrets and all, and how long it asks to wait."""

    status: int
    body: object
    wait_seconds: float | None = None


def at_the_border(error: Exception, server: Server) -> AgentLoopError:
    """Our error for one of `BORDER_ERRORS`; what is ours stays the same object. Never raises.

    Nothing that hangs on it has the key, a header or a body: raise it outside of the `except`.
    """
    try:
        if not isinstance(error, AgentLoopError):
            return _ours(error, server)
        wipe(error, server)
        return error
    except Exception as odd:  # noqa: BLE001 — an error that gets out of here has the request and its key with it
        kinds = f"{type(error).__name__}, {type(odd).__name__}"
        return BadAnswerError(f"{server.place} sent what cannot be read ({kinds}): check the base URL")


def refusal_in(error: Exception) -> Refusal | None:
    """What a server says that it refuses, secrets and all; None where the error is not a server's.

    One that comes in place of an answer, and names no status, is of the request as a 400 is. It is to be
    understood and then forgotten: words of a key in it may be words of the server too.
    """
    heard = _heard(error)
    if heard is None or is_of_the_answer(heard.body):
        return None
    if isinstance(error, ServerSaidError) and error.begun and heard.status == 200:
        return None
    return Refusal.of(_OF_THE_REQUEST if heard.status == 200 else heard.status, heard.body)


def _ours(error: Exception, server: Server) -> AgentLoopError:
    if (heard := _heard(error)) is None:
        ours = _translated(error, server)
        ours.__cause__ = _plain(error)
    else:
        kept = trimmed(heard.body, server.without_secrets)
        ours = _refusal(heard, _words_of(kept, server), server)
        ours.__cause__ = ServerSaidError(kept, unexplained_bytes=_bare(error, heard))
    redact_error(ours, server.without_secrets)
    return ours


def _heard(error: Exception) -> _Said | None:
    """What a server said, as far as it is looked at; None where the error is not a server's."""
    match error:
        case openai.APIStatusError():
            wait = retry_after_seconds(error.response.headers)
            body = trimmed(parsed(error.response.content))
            return _Said(status=error.status_code, body=body, wait_seconds=wait)
        case ServerSaidError():
            body = trimmed(error.body)
            return _Said(status=status_said(body, begun=error.begun), body=body)
    return None


def _plain(error: BaseException) -> BaseException:
    """The error itself where it is ours, else its words."""
    if isinstance(error, AgentLoopError | ServerSaidError | ClientSaidError):
        return error
    try:
        said = " ".join(str(error)[:_SHOWN_CHARS].split())
    except ValueError:
        said = ""
    return ClientSaidError(f"{type(error).__name__}: {said}")


def _translated(error: Exception, server: Server) -> AgentLoopError:
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
        case openai.APIConnectionError() | httpx2.NetworkError() | httpx2.ProxyError():
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


def _bare(error: Exception, heard: _Said) -> int | None:
    """The bytes of the request that an error with no reason answers."""
    if not isinstance(error, openai.APIStatusError) or error.status_code != 500:
        return None
    is_bare = _shown(said(heard.body)).lower() in _UNEXPLAINED
    return len(error.response.request.content) if is_bare else None


def _refusal(heard: _Said, words: str, server: Server) -> AgentLoopError:
    status = heard.status
    if is_of_the_answer(heard.body):
        return SpoiltAnswerError(f"{server.place} cannot read what its model said: {words or status}")
    if (overflow := overflow_in(status, heard.body)) is not None:
        text = f"the request is too long for {server.model}: {words or status}; shorten it"
        return ContextTooLongError(
            text, window=overflow.window, tokens=overflow.tokens, output_tokens=overflow.output_tokens
        )
    if status == 200:
        return BadAnswerError(f"the server sent an error in place of an answer: {words or 'with no reason'}")
    if _may_pass(status, heard.body):
        return ModelUnavailableError(
            _unavailable(status, server, words), retry_after_seconds=heard.wait_seconds
        )
    return ModelRefusedError(_refused(status, server, words), status=status)


def _may_pass(status: int, body: object) -> bool:
    if status == 429:
        return not is_unpaid(body)
    if status == 500:
        return not any(refuses(said(body)) for refuses in (refuses_system, refuses_call_ids, refuses_a_part))
    return status in (408, 409) or status > 500


def _unavailable(status: int, server: Server, words: str) -> str:
    if status == 500 and words.lower() in _UNEXPLAINED:
        return f"{server.place} failed (500) with no reason: try again later"
    why = "is overloaded or a limit of yours is reached" if status == 429 else "cannot answer now"
    return _with_words(f"{server.place} {why} ({status}): try again later", words)


def _refused(status: int, server: Server, words: str) -> str:
    match status:
        case 401 | 403:
            text = f"{server.place} refused the key ({status}): check OPENAI_API_KEY and what it may use"
        case 404:
            text = f"{server.place} has no model {server.model!r}, or no such path (404): check both"
        case 429:
            text = f"{server.place} wants its bill settled first (429): check the plan, its credit and limits"
        case _:
            return f"{server.place} refused the request ({status}): {words or 'with no reason'}"
    return _with_words(text, words)


def _words_of(body: object, server: Server) -> str:
    """What the server said, short enough for one line, without markup and without the key."""
    words = server.without_secrets(_shown(said(body)))
    return words if len(words) <= _SHOWN_CHARS else words[:_SHOWN_CHARS] + "…"


def _shown(words: str) -> str:
    """The words, as far as they can be shown; secrets in them make them longer or shorter."""
    return "" if words.startswith("<") else words[: 2 * _SHOWN_CHARS]


def _with_words(text: str, words: str) -> str:
    return f"{text}; it says: {words}" if words else text


def _reason(error: BaseException, server: Server) -> str:
    """The innermost reason on one line, without secrets."""
    while error.__cause__ is not None:
        error = error.__cause__
    words = _plain(error) if isinstance(error, _PLAIN_ERRORS) else error
    return " ".join(server.without_secrets(str(words)).split())[:_SHOWN_CHARS] or type(error).__name__
