"""Chat completions of any OpenAI-compatible server."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from agentloop.messages import Usage
from agentloop.models import ModelPart, ModelRequest, Price
from agentloop.openai_api.clients import ServerChoice
from agentloop.openai_api.endpoint import Endpoint
from agentloop.openai_api.forms import Form, post_chat
from agentloop.openai_api.request_fields import common_fields
from agentloop.openai_chat.bodies import Bodies
from agentloop.openai_chat.stream import streamed, whole
from agentloop.retry import RetryPolicy
from agentloop.sizes import named_tokens_or_none


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
        tokens = named_tokens_or_none("window", window)
        limit = named_tokens_or_none("max_output_tokens", max_output_tokens)
        fields = common_fields(temperature, extra_body)
        self._bodies = Bodies(fields=fields, max_output_tokens=limit, streams=stream)
        self._endpoint = Endpoint(
            ServerChoice(model=model, base_url=base_url, api_key=api_key),
            Form(post=post_chat, body=self._bodies.of, streamed=streamed, whole=whole),
            window=tokens,
            price=price,
            stream=stream,
            retry=retry,
            timeout_seconds=timeout_seconds,
        )

    def __repr__(self) -> str:
        choice = self._endpoint.choice
        return f"OpenAIChat({choice.model!r}, base_url={choice.place!r}, window={self._endpoint.window})"

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
        async with aclosing(self._endpoint.answer(request)) as parts:
            async for part in parts:
                yield part

    async def close(self) -> None:
        """Close the connections of the running event loop; those of others close when these end."""
        await self._endpoint.close()
