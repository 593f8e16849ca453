"""`OpenAIResponses`, a model behind the Responses API, and how its requests are made."""

from collections.abc import Mapping
from typing import Any

from openai import AsyncOpenAI

from agentloop._plumbing.checks import shown
from agentloop.errors import UsageError
from agentloop.messages import Json
from agentloop.models import Answer, ModelRequest
from agentloop.providers.openai.dialect import Dialect
from agentloop.providers.openai.endpoint import Body, Posted, ServedModel
from agentloop.providers.openai.fields import ENCRYPTED_REASONING, fields_for
from agentloop.providers.openai.items import inputs_of, instructions_of
from agentloop.providers.openai.responses_answer import GrowingResponse, whole
from agentloop.providers.openai.schemas import answer_format


def _flat(tool: Json) -> Json:
    """The tool as this API has it; it takes a schema for strict unless told otherwise."""
    function = tool.get("function")
    if tool.get("type") != "function" or not isinstance(function, Mapping):
        return tool
    return {"type": "function", "strict": False, **function}


class OpenAIResponses(ServedModel):
    """A model behind the Responses API.

    It takes the arguments of `OpenAIChat`. Of `extra_body`, such as `reasoning`, `tools` and `include` are
    joined with ours; `store`, which is false, may be set and is then never left out.

    The server stores nothing: each request carries the whole conversation, reasoning in encrypted form.
    One instance serves several event loops; connections are kept for each, for as long as it runs.

    Example:
        >>> model = OpenAIResponses("gpt-5-mini", extra_body={"reasoning": {"effort": "low"}}, window="400k")
        >>> model.name, model.window
        ('gpt-5-mini', 400000)

    Raises:
        UsageError: a size, a number, a header or the base URL makes no sense.
    """

    api = "responses"

    _missing = "a server without the Responses API has chat completions: use OpenAIChat, or --api chat"
    _kept = frozenset({"store"})

    def _check_fields(self, fields: Body) -> None:
        for name, kind, what in (("include", str, "texts"), ("tools", Mapping, "objects")):
            value = fields.get(name, [])
            if not isinstance(value, list | tuple) or not all(isinstance(each, kind) for each in value):
                raise UsageError(f"extra_body: {name!r} must be a list of {what}, not {shown(value)}")

    def _body(self, request: ModelRequest, dialect: Dialect, streams: bool) -> dict[str, Any]:
        fields = fields_for(self._fields, request)
        asked = [name for name in fields.get("include", ()) if name != ENCRYPTED_REASONING]
        body: dict[str, Any] = {"store": False, **fields, "include": [ENCRYPTED_REASONING, *asked]}
        if (instructions := instructions_of(request.messages)) is not None:
            body["instructions"] = instructions
        body["input"] = inputs_of(request.messages, with_reasoning=dialect.reasoning != "none")
        if tools := [*fields.get("tools", ()), *map(_flat, request.tools)]:
            body["tools"] = tools
        if limit := request.max_output_tokens or self.max_output_tokens:
            body["max_output_tokens"] = limit
        if request.answer_schema is not None:
            wanted = {"type": "json_schema", **answer_format(request.answer_schema)}
            body["text"] = {**fields.get("text", {}), "format": wanted}
        return body

    def _post(self, client: AsyncOpenAI, streams: bool, body: Body) -> Posted:
        create = client.responses.with_streaming_response.create
        return create(model=self._choice.model, input=[], stream=streams, extra_body=body)

    def _growing(self) -> GrowingResponse:
        return GrowingResponse()

    def _whole(self, body: bytes) -> Answer:
        return whole(body)
