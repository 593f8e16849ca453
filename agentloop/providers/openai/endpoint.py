"""One request in the dialect the server speaks (base of both models).

A model behind one path of a server's API: connections, tries, dialects, errors, window and price.

The prepared body goes in by `extra_body` and the raw response is read here, since the client otherwise
walks every message against its type hints on every call and builds a model object for every chunk.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import openai
from openai import AsyncAPIResponse

from agentloop._plumbing.checks import above_zero, shown
from agentloop._plumbing.host_logging import warn
from agentloop.errors import (
    AgentLoopError,
    BadAnswerError,
    ContextTooLongError,
    ModelRefusedError,
    ModelUnavailableError,
    SpoiltAnswerError,
    UsageError,
)
from agentloop.messages import Usage
from agentloop.models import Answer, ModelPart, ModelRequest, Price, TextPart
from agentloop.models import price as published_price
from agentloop.providers.openai.client import LoopClients, Server, ServerChoice, is_loopback
from agentloop.providers.openai.dialect import BodyChange, Dialect
from agentloop.providers.openai.errors import (
    BORDER_ERRORS,
    VENDOR_ERRORS,
    at_the_border,
    refusal_in,
    unexplained_bytes,
)
from agentloop.providers.openai.refusals import Refusal
from agentloop.providers.openai.sse import begins_events, opening, rejoined
from agentloop.providers.openai.window import ModelWindow
from agentloop.retry import RetryPolicy

Body: TypeAlias = Mapping[str, Any]
Response: TypeAlias = AsyncAPIResponse[Any]
Post: TypeAlias = Callable[[openai.AsyncOpenAI, str, bool, Body], AbstractAsyncContextManager[Response]]
"""Sends a body to a model, streamed or not, and gives the response before its body is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One path of the API: how a request becomes a body, streamed or not, and what comes back an answer.

    `streamed` reads the bytes of a stream in which the server may be silent for so many seconds, `whole` the
    bytes of an answer in one piece. Both raise `BadAnswerError`, `ServerSaidError`, and
    `ModelUnavailableError` where the answer broke off.
    `missing` says what helps where the server has no such path, `kept` are fields that no refusal takes out.
    """

    post: Post
    body: Callable[[ModelRequest, Dialect, bool], dict[str, Any]]
    streamed: Callable[[AsyncIterator[bytes], float], AsyncGenerator[ModelPart, None]]
    whole: Callable[[bytes], Answer]
    missing: str = ""
    kept: frozenset[str] = frozenset()


def post_chat(
    client: openai.AsyncOpenAI, model: str, streams: bool, body: Body
) -> AbstractAsyncContextManager[Response]:
    """Ask for a chat completion; the body goes in as it is, since the client would walk every message."""
    create = client.chat.completions.with_streaming_response.create
    return create(model=model, messages=[], stream=streams, extra_body=body)


def post_responses(
    client: openai.AsyncOpenAI, model: str, streams: bool, body: Body
) -> AbstractAsyncContextManager[Response]:
    """Ask for a response; the body goes in as it is, since the client would walk every item."""
    create = client.responses.with_streaming_response.create
    return create(model=model, input=[], stream=streams, extra_body=body)


MOST_CHANGES = 8
"""So often one request is sent again in another form, each time one that the server has not refused."""

_SURELY_SHORT_BYTES = 16_000
"""Some 4,000 tokens, which every model in use takes: a smaller request fails since the server is ill."""


class Endpoint:
    """What the model classes of this server share; `form` says what differs between them.

    One instance serves several event loops; connections are kept for each, for as long as it runs.

    Raises:
        UsageError: a number, the price, `stream` or `retry` makes no sense.
    """

    def __init__(
        self,
        choice: ServerChoice,
        form: Form,
        *,
        window: int | None,
        price: Price | None,
        stream: bool,
        retry: RetryPolicy,
        timeout_seconds: float,
    ) -> None:
        above_zero("timeout_seconds", timeout_seconds)
        if not isinstance(stream, bool):
            raise UsageError(f"stream must be True or False, not {shown(stream)}")
        if not isinstance(retry, RetryPolicy):
            raise UsageError(f"retry must be a RetryPolicy(…), not {shown(retry)}")
        self.choice = choice
        self.window = ModelWindow(choice.model, window, timeout_seconds=timeout_seconds)
        self._form = form
        self._price = _checked_price(price)
        self._asks_for_streams = stream
        self._retry = retry
        self._dialect = Dialect()
        self._silence_seconds = timeout_seconds
        self._clients = LoopClients(timeout_seconds)
        self._longest_answered_bytes = _SURELY_SHORT_BYTES

    async def ask_window(self) -> int | None:
        """The window; where none is given nor published, the server is asked for it. Never raises."""
        return await self.window.ask(self.choice.server, self._clients)

    def price(self, usage: Usage, /) -> float | None:
        """What this usage costs in US dollars, by the given price, else the published one. Never raises."""
        if self._price is not None:
            return self._price.of(usage)
        try:
            url = self.choice.server().base_url
        except UsageError:
            return None
        return None if is_loopback(url) else published_price(self.choice.model, usage, url)

    async def answer(self, request: ModelRequest) -> AsyncGenerator[ModelPart, None]:
        """Answer the request; what it gives and raises is what `ServedModel.stream` promises."""
        server = self.choice.server()
        try:
            async with aclosing(self._retry.run(lambda: self._understood(request, server))) as parts:
                async for part in parts:
                    yield part
        except ModelUnavailableError as error:
            if (unexplained_bytes(error) or 0) <= self._longest_answered_bytes:
                raise
            # Some servers say nothing else to a request that is too large for them.
            text = f"{error}; it is larger than any request answered so far: taken as too long"
            raise ContextTooLongError(text) from error

    async def close(self) -> None:
        """Close the connections of the running event loop; those of others close when these end."""
        await self._clients.close()

    async def _understood(self, request: ModelRequest, server: Server) -> AsyncGenerator[ModelPart, None]:
        """One try, in the dialect that the server turns out to speak."""
        learnt: list[BodyChange] = []
        for changes_left in range(MOST_CHANGES, -1, -1):
            dialect, told = self._dialect, False
            refusals: list[Refusal] = []
            streams = dialect.streams_where(self._asks_for_streams)
            body = dialect.spoken(self._form.body(request, dialect, streams))
            try:
                async with aclosing(self._send(body, server, streams, refusals)) as parts:
                    async for part in parts:
                        told = True
                        yield part
                return
            except SpoiltAnswerError:
                raise  # The request was understood.
            except (ModelRefusedError, BadAnswerError):
                sent = {name: body[name] for name in body if name not in self._form.kept}
                sent["stream"] = streams
                may_learn = refusals and changes_left and not told
                if not (may_learn and self._learn(refusals[-1], sent, dialect, server, learnt)):
                    self._take_back(learnt)
                    raise

    def _take_back(self, learnt: list[BodyChange]) -> None:
        """Go back on what this try left out in vain; what was found beside it stays."""
        for change in reversed(learnt):
            self._dialect = self._dialect.taken_back(*change)

    def _learn(
        self, refusal: Refusal, sent: Body, spoken: Dialect, server: Server, learnt: list[BodyChange]
    ) -> bool:
        """Whether the refusal tells of another dialect; a request beside it may have found it before."""
        before = self._dialect
        self._dialect = before.after(refusal, sent)
        learnt.append((before, self._dialect))
        if changes := self._dialect.changes(before):
            warn("dialect_changed", model=server.model, server=server.place, **changes)
        return spoken.after(refusal, sent) != spoken and self._dialect != spoken

    async def _send(
        self, body: Body, server: Server, streams: bool, refusals: list[Refusal]
    ) -> AsyncGenerator[ModelPart, None]:
        """The parts of an answer; what the server refuses goes to `refusals`, in its own words."""
        failure = None
        try:
            client = await self._clients.client(server)
            asked = self._form.post(client, self.choice.model, streams, body)
            async with asked as response, aclosing(self._parts(response, server, streams)) as parts:
                async for part in parts:
                    if isinstance(part, Answer):
                        self._note_size(len(response.http_request.content))
                        part = replace(part, cost=None if part.usage is None else self.price(part.usage))
                    yield part
        except BORDER_ERRORS as error:
            failure = _ours(error, server, refusals)
            if self._form.missing and isinstance(failure, ModelRefusedError) and failure.status == 404:
                failure.args = (f"{failure}; {self._form.missing}",)
        if failure is not None:
            raise failure

    async def _parts(
        self, response: Response, server: Server, streams: bool
    ) -> AsyncGenerator[ModelPart, None]:
        """The parts of an answer, in the form in which the server chose to send it."""
        async with aclosing(_received(response, server)) as data:
            begun = await opening(data, self._silence_seconds)
            async with aclosing(rejoined(begun, data)) as body:
                if not begins_events(begun, response.headers.get("content-type", ""), asked=streams):
                    answer = self._form.whole(b"".join([piece async for piece in body]))
                    if answer.message.text:
                        yield TextPart(text=answer.message.text)
                    yield answer
                    return
                async with aclosing(self._form.streamed(body, self._silence_seconds)) as parts:
                    async for part in parts:
                        yield part

    def _note_size(self, answered_bytes: int) -> None:
        self._longest_answered_bytes = max(answered_bytes, self._longest_answered_bytes)


def _checked_price(price: Price | None) -> Price | None:
    if not isinstance(price, Price | None):
        raise UsageError(f"price must be a Price(…) or None, not {price!r}")
    return price


def _ours(error: Exception, server: Server, refusals: list[Refusal]) -> AgentLoopError:
    """Our error for one of `BORDER_ERRORS`; what the server refuses goes to `refusals`. Never raises."""
    ours = at_the_border(error, server)
    # A refusal that nobody understands teaches nothing; an error got out of here has the request with it.
    with suppress(Exception):
        is_final = isinstance(ours, ModelRefusedError | BadAnswerError)
        if is_final and (refusal := refusal_in(error)) is not None:
            refusals.append(refusal)
    return ours


async def _received(response: Response, server: Server) -> AsyncGenerator[bytes, None]:
    """The body's bytes as they come."""
    received = response.http_response.aiter_bytes()
    failure = None
    try:
        async for data in received:
            yield data
    except VENDOR_ERRORS as error:
        failure = at_the_border(error, server)
    finally:
        # Left unfinished, the client's own generators would each be closed by a task of the event loop.
        await response.close()
        with suppress(*VENDOR_ERRORS):
            async for _ in received:
                pass
    if failure is not None:
        raise failure


class ServedModel:
    """A model behind one path of a server's API; `max_output_tokens` limits answers that name no limit."""

    def __init__(self, endpoint: Endpoint, max_output_tokens: int | None) -> None:
        self._endpoint = endpoint
        self._max_output_tokens = max_output_tokens

    def __repr__(self) -> str:
        choice, window = self._endpoint.choice, self._endpoint.window
        return f"{type(self).__name__}({choice.model!r}, base_url={choice.place!r}, window={window})"

    @property
    def name(self) -> str:
        """The model's name, as the server knows it."""
        return self._endpoint.choice.model

    @property
    def window(self) -> int | None:
        """The most tokens a request and its answer may have together.

        Where none was given, the one published for a model of that name, else what `ask_window` found out;
        None where none is known.
        """
        return self._endpoint.window.tokens

    async def ask_window(self) -> int | None:
        """The window; where none is given nor published, the server is asked for it, once and for 3 seconds.

        A server that does not say, or not in time, leaves it unknown. OpenAI's own never says, and is not
        asked. Never raises.
        """
        return await self._endpoint.ask_window()

    def price(self, usage: Usage, /) -> float | None:
        """What this usage costs in US dollars, by the given price, else the published one.

        None where none is known: a server on this machine has no published price. Never raises.
        """
        return self._endpoint.price(usage)

    @property
    def max_output_tokens(self) -> int | None:
        """The most tokens of an answer, None for no limit of ours."""
        return self._max_output_tokens

    async def stream(self, request: ModelRequest, /) -> AsyncGenerator[ModelPart, None]:
        """Answer the request: text as it comes, a `Retry` before each wait, then one `Answer`.

        Raises:
            UsageError: no server is named, or the key cannot be sent.
            ModelUnavailableError: no connection, 408, 409, 429 or 5xx, at the last try too.
            ModelRefusedError: any other 4xx, and 429 for an unpaid bill; it is sent once, but where the
                refusal names what can be left out or said otherwise: that is found out once, and kept to by
                this instance.
            ContextTooLongError: the server says so, in whatever words; it is sent once.
            BadAnswerError: what came is no answer.
        """
        async with aclosing(self._endpoint.answer(request)) as parts:
            async for part in parts:
                yield part

    async def close(self) -> None:
        """Close the connections of the running event loop; those of others close when these end."""
        await self._endpoint.close()
