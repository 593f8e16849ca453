"""Chat completions of any OpenAI-compatible server.

The prepared messages go in by `extra_body` and the raw response is read here, since the client otherwise
walks every message against its type hints on every call and builds a model object for every chunk.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from openai import AsyncAPIResponse

from agentloop.checks import above_zero
from agentloop.errors import ContextTooLongError, ModelRefusedError, UsageError
from agentloop.messages import Usage
from agentloop.models import Answer, ModelPart, ModelRequest, Price, TextPart
from agentloop.openai_chat.bodies import Bodies, common_fields
from agentloop.openai_chat.clients import LoopClients, checked_url, is_loopback, server_of
from agentloop.openai_chat.dialect import Dialect
from agentloop.openai_chat.errors import VENDOR_ERRORS, Server, UnexplainedError, translated
from agentloop.openai_chat.stream import streamed, whole
from agentloop.openai_chat.window import ModelWindow
from agentloop.retry import RetryPolicy
from agentloop.sizes import named_tokens_or_none
from agentloop.windows import price as published_price

_SURELY_SHORT_BYTES = 16_000


class OpenAIChat:
    """A model behind chat completions.

    Args:
        model: Its name, as the server knows it.
        base_url: The API's address; by default `OPENAI_BASE_URL` of the environment, else OpenAI's own.
        api_key: By default `OPENAI_API_KEY` of the environment; with a base URL and no key a placeholder
            is sent, as servers on one's own machine want none.
        window: The most tokens a request and its answer may have together, such as 128000 or "128k".
        price: What it costs, where that is not what is published for a model of that name.
        max_output_tokens: The most tokens of an answer; no limit is sent where it is None.
        stream: Whether answers are asked for piece by piece.
        retry: How failures that may pass are tried again.
        timeout_seconds: The longest silence of the server: 300 by default.
        temperature: Sent where it is not None.
        extra_body: Further fields of every request.

    One instance serves several event loops; connections are kept for each, for as long as it runs.

    Raises:
        UsageError: a size, a number or the base URL makes no sense.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        window: int | str | None = None,
        price: Price | None = None,
        max_output_tokens: int | str | None = None,
        stream: bool = True,
        retry: RetryPolicy = RetryPolicy(),  # noqa: B008 — a frozen value
        timeout_seconds: float = 300.0,
        temperature: float | None = None,
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        above_zero("timeout_seconds", timeout_seconds)
        tokens = named_tokens_or_none("window", window)
        limit = named_tokens_or_none("max_output_tokens", max_output_tokens)
        fields = common_fields(temperature, extra_body)
        self._name = _checked_name(model)
        self._base_url = checked_url(base_url) if base_url else None
        self._server = partial(server_of, model, self._base_url, api_key)
        self._window = ModelWindow(model, tokens, timeout_seconds=timeout_seconds)
        self._price = _checked_price(price)
        self._retry = retry
        self._bodies = Bodies(fields=fields, max_output_tokens=limit, streams=stream)
        self._dialect = Dialect()
        self._clients = LoopClients(timeout_seconds)
        self._longest_answered_bytes = _SURELY_SHORT_BYTES

    def __repr__(self) -> str:
        return f"OpenAIChat({self._name!r}, base_url={self._base_url!r}, window={self._window})"

    @property
    def name(self) -> str:
        """The model's name, as the server knows it."""
        return self._name

    @property
    def window(self) -> int | None:
        """The most tokens a request and its answer may have together.

        Where none was given, the one published for a model of that name, else what `ask_window` found out;
        None where none is known.
        """
        return self._window.tokens

    async def ask_window(self) -> int | None:
        """The window; where none is given nor published, the server is asked for it, once and for 3 seconds.

        A server that does not say, or not in time, leaves it unknown. OpenAI's own never says, and is not
        asked. Never raises.
        """
        return await self._window.ask(self._server, self._clients)

    def price(self, usage: Usage, /) -> float | None:
        """What this usage costs in US dollars, by the given price, else the published one.

        None where none is known: a server on this machine has no published price. Never raises.
        """
        if self._price is not None:
            return self._price.of(usage)
        try:
            url = self._server().base_url
        except UsageError:
            return None
        return None if is_loopback(url) else published_price(self._name, usage, url)

    @property
    def max_output_tokens(self) -> int | None:
        """The most tokens of an answer, None for no limit of ours."""
        return self._bodies.max_output_tokens

    async def stream(self, request: ModelRequest, /) -> AsyncGenerator[ModelPart, None]:
        """Answer the request: text as it comes, a `Retry` before each wait, then one `Answer`.

        Raises:
            UsageError: no server is named, or the key cannot be sent.
            ModelUnavailableError: no connection, 408, 409, 429 or 5xx, at the last try too.
            ModelRefusedError: any other 4xx; it is sent once.
            ContextTooLongError: the server says so, in whatever words; it is sent once.
            BadAnswerError: what came is no answer.
        """
        server = self._server()
        try:
            async with aclosing(self._retry.run(lambda: self._understood(request, server))) as parts:
                async for part in parts:
                    yield part
        except UnexplainedError as error:
            if error.request_bytes <= self._longest_answered_bytes:
                raise
            # Some servers say nothing else to a request that is too large for them.
            text = f"{error}; it is larger than any request answered so far: taken as too long"
            raise ContextTooLongError(text) from error

    async def close(self) -> None:
        """Close the connections of the running event loop; those of others close when these end."""
        await self._clients.close()

    async def _understood(self, request: ModelRequest, server: Server) -> AsyncGenerator[ModelPart, None]:
        """One try, in the dialect that the server turns out to speak."""
        while True:
            dialect = self._dialect
            try:
                async with aclosing(self._send(self._bodies.of(request, dialect), server)) as parts:
                    async for part in parts:
                        yield part
                return
            except ModelRefusedError as error:
                self._dialect = dialect.after(error)
                if self._dialect == dialect:
                    raise

    async def _send(self, body: dict[str, Any], server: Server) -> AsyncGenerator[ModelPart, None]:
        client = await self._clients.client(server)
        create = client.chat.completions.with_streaming_response.create
        asked = create(model=self._name, messages=[], stream=self._bodies.streams, extra_body=body)
        try:
            async with asked as response, aclosing(self._parts(response, server)) as parts:
                async for part in parts:
                    if isinstance(part, Answer):
                        self._note_size(len(response.http_request.content))
                        part = replace(part, cost=None if part.usage is None else self.price(part.usage))
                    yield part
        except VENDOR_ERRORS as error:
            raise translated(error, server) from error

    async def _parts(
        self, response: AsyncAPIResponse[Any], server: Server
    ) -> AsyncGenerator[ModelPart, None]:
        """The parts of an answer, in the form in which the server chose to send it."""
        form = response.headers.get("content-type", "")
        if "event-stream" in form or (self._bodies.streams and "json" not in form):
            async with aclosing(_received(response, server)) as data, aclosing(streamed(data)) as parts:
                async for part in parts:
                    yield part
        else:
            answer = whole(await response.read())
            if answer.message.text:
                yield TextPart(text=answer.message.text)
            yield answer

    def _note_size(self, answered_bytes: int) -> None:
        self._longest_answered_bytes = max(answered_bytes, self._longest_answered_bytes)


def _checked_name(model: str) -> str:
    if not model.strip() or not model.isprintable():
        raise UsageError(f"bad model name {model!r}: name one that the server offers")
    return model


def _checked_price(price: Price | None) -> Price | None:
    if not isinstance(price, Price | None):
        raise UsageError(f"price must be a Price(…) or None, not {price!r}")
    return price


async def _received(response: AsyncAPIResponse[Any], server: Server) -> AsyncGenerator[bytes, None]:
    """The body's bytes as they come."""
    received = response.http_response.aiter_bytes()
    try:
        async for data in received:
            yield data
    except VENDOR_ERRORS as error:
        raise translated(error, server) from error
    finally:
        # Left unfinished, the client's own generators would each be closed by a task of the event loop.
        await response.close()
        with suppress(*VENDOR_ERRORS):
            async for _ in received:
                pass
