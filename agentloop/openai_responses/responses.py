"""The Responses API of OpenAI, and of servers that have it too."""

from collections.abc import Mapping
from typing import Any

from agentloop._plumbing.checks import named_tokens_or_none
from agentloop.model_call import RetryPolicy
from agentloop.models import Price
from agentloop.openai_api.endpoint import Endpoint
from agentloop.openai_api.forms import Form, post_responses
from agentloop.openai_api.request_fields import common_fields
from agentloop.openai_api.served import ServedModel
from agentloop.openai_api.server import ServerChoice
from agentloop.openai_responses.bodies import Bodies, check_lists
from agentloop.openai_responses.stream import streamed, whole

_MISSING = "a server without the Responses API has chat completions: use OpenAIChat, or --api chat"


class OpenAIResponses(ServedModel):
    """A model behind the Responses API.

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
        extra_body: Further fields of every request, such as `reasoning`; `tools` and `include` are joined
            with ours, and `store`, which is false, may be set and is then never left out.

    The server stores nothing: each request carries the whole conversation, reasoning in encrypted form.
    One instance serves several event loops; connections are kept for each, for as long as it runs.

    Example:
        >>> model = OpenAIResponses("gpt-5-mini", extra_body={"reasoning": {"effort": "low"}}, window="400k")
        >>> model.name, model.window
        ('gpt-5-mini', 400000)

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
        check_lists(fields)
        bodies = Bodies(fields=fields, max_output_tokens=limit)
        endpoint = Endpoint(
            ServerChoice(model=model, base_url=base_url, api_key=api_key),
            Form(
                post=post_responses,
                body=bodies.of,
                streamed=streamed,
                whole=whole,
                missing=_MISSING,
                kept=frozenset(fields.keys() & {"store"}),
            ),
            window=tokens,
            price=price,
            stream=stream,
            retry=retry,
            timeout_seconds=timeout_seconds,
        )
        super().__init__(endpoint, limit)
