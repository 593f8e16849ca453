"""A model behind one path of a server's API: each request in the dialect that the server speaks.

What both models share: connections, tries, dialects, errors, window and price. A text delta passes five
generators: the bytes that are received here, their events and their parts (`sse`), the request and the tries
(`RetryPolicy.run`).

The prepared body goes in by `extra_body` and the raw response is read here, since the client otherwise
walks every message against its type hints on every call and builds a model object for every chunk.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from dataclasses import replace
from typing import Any, ClassVar, Literal, TypeAlias

import httpx2
import openai
from openai import AsyncAPIResponse

from agentloop._plumbing.amounts import named_tokens_or_none
from agentloop._plumbing.checks import above_zero, flag, instance_or_none, shown
from agentloop._plumbing.host_logging import warn
from agentloop.bounds import BYTES_A_TOKEN, BYTES_A_VALUE, LEAST_ANSWER_BYTES, MOST_ANSWER_BYTES
from agentloop.errors import (
    AgentLoopError,
    BadAnswerError,
    ContextTooLongError,
    ModelError,
    ModelRefusedError,
    ModelUnavailableError,
    UsageError,
)
from agentloop.events import RunSetup
from agentloop.messages import Usage
from agentloop.models import Answer, ModelPart, ModelRequest, Price, RetryPolicy
from agentloop.models import price as published_price
from agentloop.providers.openai.connections import LoopClients, check_coding
from agentloop.providers.openai.dialect import BodyChange, Dialect
from agentloop.providers.openai.errors import (
    BORDER_ERRORS,
    VENDOR_ERRORS,
    Failure,
    sent_bytes,
    understand,
    unexplained_bytes,
)
from agentloop.providers.openai.fields import common_fields
from agentloop.providers.openai.refusals import Refusal, refuses_tools
from agentloop.providers.openai.server import Server, ServerChoice, is_loopback, place_of
from agentloop.providers.openai.sse import GrowingAnswer, streamed
from agentloop.providers.openai.window import ModelWindow

Body: TypeAlias = Mapping[str, Any]
Response: TypeAlias = AsyncAPIResponse[Any]
Posted: TypeAlias = AbstractAsyncContextManager[Response]
"""A response before its body is read."""

MOST_CHANGES = 8
"""So often one request is sent again in another form, each time one that the server has not refused."""

_NO_TOOLS = (
    "take a model that calls tools, have the server offer them (llama.cpp: --jinja; vLLM: "
    "--enable-auto-tool-choice with a --tool-call-parser), or give the agent none (--tools none)"
)
"""What helps where tools are refused that the agent needs."""

_SURELY_SHORT_BYTES = 16_000
"""Some 4,000 tokens, which every model in use takes: a smaller request fails since the server is ill."""


_Asker: TypeAlias = Literal["agent", "side"]
"""Whose request it is: the agent's own, or one beside it, such as that for a summary."""

_LEARN_FROM: Mapping[_Asker, tuple[_Asker, ...]] = {"agent": ("agent", "side"), "side": ("side",)}
"""Whose dialects a refusal changes: what a side request is refused may be its own fault."""


class ServedModel:
    """A model behind one path of a server's API; what differs between the paths, a subclass says.

    That is how a request becomes a body and is sent, and what comes back an answer. The arguments are those
    of `OpenAIChat`.
    """

    api: ClassVar[str]
    """The path, in the word of `RunSetup`."""
    _growing: ClassVar[type[GrowingAnswer]]
    """Reads an answer, as events or in one piece."""
    _missing: ClassVar[str] = ""
    """What helps where the server has no such path."""
    _kept: ClassVar[frozenset[str]] = frozenset()
    """The fields that a user gave and no refusal takes out."""

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        window: int | str | None = None,
        price: Price | None = None,
        max_output_tokens: int | str | None = None,
        stream: bool = True,
        retry: RetryPolicy = RetryPolicy(),  # noqa: B008 — a frozen value
        timeout_seconds: float = 300.0,
        temperature: float | None = None,
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        tokens = named_tokens_or_none("window", window)
        limit = named_tokens_or_none("max_output_tokens", max_output_tokens)
        fields = common_fields(temperature, extra_body)
        self._check_fields(fields)
        choice = ServerChoice(model=model, base_url=base_url, api_key=api_key, headers=headers)
        above_zero("timeout_seconds", timeout_seconds)
        flag("stream", stream)
        if not isinstance(retry, RetryPolicy):
            raise UsageError(f"retry must be a RetryPolicy(…), not {shown(retry)}")
        instance_or_none("price", price, Price)
        self._choice = choice
        self._fields = fields
        self._given_window = tokens
        self._window = ModelWindow(model, tokens, timeout_seconds=timeout_seconds)
        self._price = price
        self._max_output_tokens = limit
        self._asks_for_streams = stream
        self._retry = retry
        self._dialects: dict[_Asker, Dialect] = {"agent": Dialect(), "side": Dialect()}
        self._silence_seconds = timeout_seconds
        self._clients = LoopClients(timeout_seconds)
        self._longest_answered_bytes = _SURELY_SHORT_BYTES

    def _check_fields(self, fields: Body) -> None:
        """Refuse further fields that this path cannot take, by a `UsageError`."""

    def _body(self, request: ModelRequest, dialect: Dialect, streams: bool) -> dict[str, Any]:
        raise NotImplementedError

    def _post(self, client: openai.AsyncOpenAI, streams: bool, body: Body) -> Posted:
        """Send a body; it goes in as it is, since the client would walk every message."""
        raise NotImplementedError

    def __repr__(self) -> str:
        choice = self._choice
        return f"{type(self).__name__}({choice.model!r}, base_url={choice.place!r}, window={self._window})"

    @property
    def name(self) -> str:
        """The model's name, as the server knows it."""
        return self._choice.model

    @property
    def window(self) -> int | None:
        """The most tokens a request and its answer may have together.

        Where none was given, the one published for a model of that name, else what `ask_window` found out;
        None where none is known.
        """
        return self._window.tokens

    @property
    def takes_media(self) -> bool:
        """Whether images and files are sent: until the server refuses one since its model takes none."""
        return not self._dialects["agent"].without_media

    def setup(self) -> RunSetup:
        """The API, the server's address without its secrets, the window given, and the headers' names."""
        url, headers = self._choice.url, tuple(self._choice.headers or ())
        place = place_of(url)
        cut = place != url
        return RunSetup(api=self.api, server=place, cut=cut, window=self._given_window, headers=headers)

    async def ask_window(self) -> int | None:
        """The window; where none is given nor published, the server is asked for it, once and for 3 seconds.

        Ollama is asked a second time, since it names the window once the model is loaded. A server that does
        not say, or not in time, leaves it unknown. OpenAI's own never says, and is not asked. Never raises.
        """
        return await self._window.ask(self._choice.server, self._clients)

    def price(self, usage: Usage, /) -> float | None:
        """What this usage costs in US dollars, by the given price, else the published one.

        None where none is known: a server on this machine has no published price. Never raises.
        """
        if self._price is not None:
            return self._price.of(usage)
        try:
            url = self._choice.server().base_url
        except UsageError:
            return None
        return None if is_loopback(url) else published_price(self._choice.model, usage, url)

    @property
    def max_output_tokens(self) -> int | None:
        """The most tokens of an answer, None for no limit of ours."""
        return self._max_output_tokens

    def stream(self, request: ModelRequest, /) -> AsyncGenerator[ModelPart, None]:
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
        return self._retry.run(lambda: self._answer_to(request), self._given_up)

    async def close(self) -> None:
        """Close the connections of the running event loop; those of others close when these end."""
        await self._clients.close()

    async def _answer_to(self, request: ModelRequest) -> AsyncGenerator[ModelPart, None]:
        """One try, in the dialect that the server turns out to speak."""
        server = self._choice.server()
        asker = _asker_of(request)
        learnt: list[BodyChange] = []
        for changes_left in range(MOST_CHANGES, -1, -1):
            dialect, told = self._dialects[asker], False
            streams, body = self._adapted(request, dialect)
            most_bytes = _most_bytes(request.max_output_tokens or self._max_output_tokens)
            try:
                client = await self._clients.client(server)
                posted = self._post(client, streams, body)
                async with (
                    posted as response,
                    aclosing(_received(response, server, most_bytes)) as data,
                    aclosing(streamed(self._growing(), data, self._silence_seconds)) as parts,
                ):
                    async for part in parts:
                        told = True
                        if isinstance(part, Answer):
                            part = self._counted(part, sent_bytes(response.http_request))
                        yield part
                return
            except BORDER_ERRORS as error:
                failure = understand(error, server)
            if changes_left and not told and (refusal := failure.refusal) is not None:
                kept = self._kept & self._fields.keys()
                sent = {name: value for name, value in body.items() if name not in kept}
                is_new = self._learn(refusal, {**sent, "stream": streams}, dialect, server, learnt, request)
                if is_new and self._adapted(request, self._dialects[asker]) != (streams, body):
                    continue
            if failure.is_final:
                self._take_back(learnt, asker)
            raise self._with_what_helps(failure, body)

    def _adapted(self, request: ModelRequest, dialect: Dialect) -> tuple[bool, dict[str, Any]]:
        streams = self._asks_for_streams if dialect.streams is None else dialect.streams
        return streams, dialect.adapt_body(self._body(dialect.adapt_request(request), dialect, streams))

    def _counted(self, answer: Answer, request_bytes: int) -> Answer:
        """The answer with its cost; the size of what it answers is remembered."""
        self._longest_answered_bytes = max(request_bytes, self._longest_answered_bytes)
        return replace(answer, cost=None if answer.usage is None else self.price(answer.usage))

    def _learn(
        self,
        refusal: Refusal,
        sent: Body,
        spoken: Dialect,
        server: Server,
        learnt: list[BodyChange],
        request: ModelRequest,
    ) -> bool:
        """Whether the refusal tells of another dialect; a request beside it may have found it before."""
        asker = _asker_of(request)
        before = self._dialects[asker]
        for each in _LEARN_FROM[asker]:
            self._dialects[each] = self._dialects[each].after(refusal, sent, needs_tools=request.needs_tools)
        now = self._dialects[asker]
        learnt.append((before, now))
        if changes := now.changes(before):
            warn("dialect_changed", model=server.model, server=server.place, **changes)
        helps = spoken.after(refusal, sent, needs_tools=request.needs_tools) != spoken
        return helps and now != spoken

    def _take_back(self, learnt: list[BodyChange], asker: _Asker) -> None:
        """Go back on what this try left out in vain; what was found beside it stays."""
        for change in reversed(learnt):
            for each in _LEARN_FROM[asker]:
                self._dialects[each] = self._dialects[each].taken_back(*change)

    def _with_what_helps(self, failure: Failure, sent: Body) -> AgentLoopError:
        error, helps = failure.error, ""
        if failure.refusal is not None and refuses_tools(failure.refusal, sent):
            helps = _NO_TOOLS
            if isinstance(error, ModelRefusedError):
                error.takes_no_tools = True
        elif isinstance(error, ModelRefusedError) and error.status == 404:
            helps = self._missing
        if helps:
            error.args = (f"{error}; {helps}",)
        return error

    def _given_up(self, error: ModelUnavailableError) -> ModelError:
        """What the last failure is: some servers say nothing else to a request that is too large for them."""
        if (unexplained_bytes(error) or 0) <= self._longest_answered_bytes:
            return error
        return ContextTooLongError(
            f"{error}; it is larger than any request answered so far: taken as too long"
        )


def _asker_of(request: ModelRequest) -> _Asker:
    return "agent" if request.purpose == "agent" else "side"


def _most_bytes(tokens: int | None) -> int:
    """So much of an answer is taken, by its limit of tokens where it has one."""
    given = MOST_ANSWER_BYTES if tokens is None else LEAST_ANSWER_BYTES + tokens * BYTES_A_TOKEN
    return min(given, MOST_ANSWER_BYTES)


async def _received(response: Response, server: Server, most_bytes: int) -> AsyncGenerator[bytes, None]:
    """The body's bytes as they come.

    Raises:
        BadAnswerError: they are more than that, or hold more values than an honest answer of that length.
    """
    most_values = most_bytes // BYTES_A_VALUE
    bytes_left, values_left = most_bytes, most_values
    received, failure = response.http_response.aiter_raw(), None
    try:
        check_coding(response.headers)
        async for data in received:
            bytes_left -= len(data)
            values_left -= sum(map(data.count, (b",", b"[", b"{", b"\n", b"\r")))
            if bytes_left < 0 or values_left < 0:
                raise BadAnswerError(
                    f"the server's answer has no end: it is longer than {most_bytes / 1e6:.0f} MB, or "
                    f"holds more than {most_values:,} values"
                )
            yield data
    except VENDOR_ERRORS as error:
        failure = understand(error, server)
    finally:
        # Left unfinished, the client's own generators would each be closed by a task of the event loop.
        await response.close()
        with suppress(*VENDOR_ERRORS, httpx2.StreamError):
            async for _ in received:
                pass
    if failure is not None:
        raise failure.error
