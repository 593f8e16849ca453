"""Chat completions of any OpenAI-compatible server."""

from collections.abc import Mapping
from typing import Any

from agentloop._plumbing.checks import named_tokens_or_none
from agentloop.model_call import RetryPolicy
from agentloop.models import Price
from agentloop.openai_api.endpoint import Endpoint
from agentloop.openai_api.forms import Form, post_chat
from agentloop.openai_api.request_fields import common_fields
from agentloop.openai_api.served import ServedModel
from agentloop.openai_api.server import ServerChoice
from agentloop.openai_chat.bodies import Bodies
from agentloop.openai_chat.stream import streamed, whole


class OpenAIChat(ServedModel):
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
        timeout_seconds: The longest silence of the server: 300 by default. One that goes on saying that it
            lives, and nothing more, is waited for four times as long.
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
        bodies = Bodies(fields=fields, max_output_tokens=limit)
        endpoint = Endpoint(
            ServerChoice(model=model, base_url=base_url, api_key=api_key),
            Form(post=post_chat, body=bodies.of, streamed=streamed, whole=whole),
            window=tokens,
            price=price,
            stream=stream,
            retry=retry,
            timeout_seconds=timeout_seconds,
        )
        super().__init__(endpoint, limit)
