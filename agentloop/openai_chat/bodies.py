"""The bodies of requests: what every one of them carries, in the form that a server understands."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentloop.checks import at_least_or_none
from agentloop.errors import UsageError
from agentloop.models import ModelRequest
from agentloop.openai_api.dialect import Dialect


@dataclass(frozen=True, slots=True, kw_only=True)
class Bodies:
    """Makes the bodies of one model's requests; `max_output_tokens` limits those that name no limit."""

    fields: Mapping[str, Any]
    max_output_tokens: int | None
    streams: bool

    def of(self, request: ModelRequest, dialect: Dialect) -> dict[str, Any]:
        """The body of this request, without the model's name."""
        body: dict[str, Any] = {"messages": request.messages}
        if request.tools:
            body["tools"] = request.tools
        if limit := request.max_output_tokens or self.max_output_tokens:
            body[dialect.limit_field] = limit
        if self.streams and dialect.asks_for_usage:
            body["stream_options"] = {"include_usage": True}
        return {**self.fields, **body}


def common_fields(temperature: float | None, extra_body: Mapping[str, Any] | None) -> dict[str, Any]:
    """The fields that every request carries.

    Raises:
        UsageError: the temperature is no finite number of at least 0, or the others cannot be sent as JSON.
    """
    at_least_or_none("temperature", temperature, 0)
    fields = ({} if temperature is None else {"temperature": temperature}) | dict(extra_body or {})
    try:
        json.dumps(fields, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"extra_body cannot be sent as JSON: {error}") from error
    return fields
