"""The bodies of requests for chat completions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentloop.context import for_chat_completions
from agentloop.models import ModelRequest
from agentloop.openai_api.dialect import Dialect
from agentloop.openai_api.request_fields import OWN_FIELDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Bodies:
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
        return {**self.fields, **body}
