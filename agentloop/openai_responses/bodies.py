"""The bodies of requests to the Responses API."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentloop._plumbing.checks import shown
from agentloop.errors import UsageError
from agentloop.messages import Json
from agentloop.models import ModelRequest
from agentloop.openai_api.dialect import Dialect
from agentloop.openai_api.request_fields import ENCRYPTED_REASONING
from agentloop.openai_responses.inputs import inputs_of, instructions_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Bodies:
    """Makes the bodies of one model's requests; `max_output_tokens` limits those that name no limit.

    Of `fields`, `tools` and `include` are joined with those of the request; `store` stands in place of ours.
    """

    fields: Mapping[str, Any]
    max_output_tokens: int | None

    def of(self, request: ModelRequest, dialect: Dialect, _streams: bool) -> dict[str, Any]:
        """The body of this request, without the model's name; it is the same for an answer that streams."""
        asked = [name for name in self.fields.get("include", ()) if name != ENCRYPTED_REASONING]
        body: dict[str, Any] = {"store": False, **self.fields, "include": [ENCRYPTED_REASONING, *asked]}
        if (instructions := instructions_of(request.messages)) is not None:
            body["instructions"] = instructions
        body["input"] = inputs_of(request.messages, with_reasoning=dialect.returns_reasoning)
        if tools := [*self.fields.get("tools", ()), *map(_flat, request.tools)]:
            body["tools"] = tools
        if limit := request.max_output_tokens or self.max_output_tokens:
            body["max_output_tokens"] = limit
        return body


def check_lists(fields: Mapping[str, Any]) -> None:
    """Refuse further fields that cannot be joined with ours.

    Raises:
        UsageError: `include` is no list of texts, or `tools` none of objects.
    """
    for name, kind, what in (("include", str, "texts"), ("tools", Mapping, "objects")):
        value = fields.get(name, [])
        if not isinstance(value, list | tuple) or not all(isinstance(each, kind) for each in value):
            raise UsageError(f"extra_body: {name!r} must be a list of {what}, not {shown(value)}")


def _flat(tool: Json) -> Json:
    """The tool as this API has it; it takes a schema for strict unless told otherwise."""
    function = tool.get("function")
    if tool.get("type") != "function" or not isinstance(function, Mapping):
        return tool
    return {"type": "function", "strict": False, **function}
