"""`OpenAIChat`, a model behind chat completions, and how its requests are made."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentloop.context import for_chat_completions
from agentloop.models import ModelRequest
from agentloop.providers.openai.chat_answer import GrowingCompletion, whole
from agentloop.providers.openai.dialect import Dialect
from agentloop.providers.openai.endpoint import Form, ServedModel, post_chat
from agentloop.providers.openai.fields import OWN_FIELDS, fields_for


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatBodies:
    """Makes the bodies of one model's requests; `max_output_tokens` limits those that name no limit."""

    fields: Mapping[str, Any]
    max_output_tokens: int | None

    def of(self, request: ModelRequest, dialect: Dialect, streams: bool) -> dict[str, Any]:
        """The body of this request, without the model's name."""
        body: dict[str, Any] = {"messages": for_chat_completions(request.messages)}
        if request.tools:
            body["tools"] = request.tools
        if limit := request.max_output_tokens or self.max_output_tokens:
            body[dialect.limit_field] = limit
        if streams:
            body["stream_options"] = OWN_FIELDS["stream_options"]
        return {**fields_for(self.fields, request), **body}


class OpenAIChat(ServedModel):
    """A model behind chat completions.

    Args:
        model: Its name, as the server knows it.
        base_url: The API's address; by default `OPENAI_BASE_URL` of the environment, else OpenAI's own.
        api_key: By default `OPENAI_API_KEY` of the environment; with a base URL and no key a placeholder
            is sent, as servers on one's own machine want none.
        headers: Sent with each request to that address, and to no other, such as a gateway's token. They are
            kept secret like the key; an `Authorization` among them is sent in its place.
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
        UsageError: a size, a number, a header or the base URL makes no sense.
    """

    api = "chat"

    @staticmethod
    def _form_of(fields: Mapping[str, Any], limit: int | None) -> Form:
        bodies = ChatBodies(fields=fields, max_output_tokens=limit)
        return Form(post=post_chat, body=bodies.of, growing=GrowingCompletion, whole=whole)
