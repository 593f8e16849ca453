"""Compaction for agents of pydantic-ai (https://ai.pydantic.dev).

agent = Agent(model, capabilities=[CompactHistory(window="128k")])
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any, TypeAlias

from agentloop.extras import missing_extra
from agentloop.integrations.door import Door, schema_of
from agentloop.messages import Json, ToolCall

try:
    from pydantic_ai import RunContext
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.messages import (
        ImageUrl,
        ModelMessage,
        ModelRequest,
        ModelRequestPart,
        ModelResponse,
        SystemPromptPart,
        TextPart,
        ThinkingPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )
    from pydantic_ai.models import ModelRequestContext
except ImportError as error:
    raise missing_extra("pydantic-ai needs", "pydantic-ai") from error

__all__ = ["CompactHistory"]

_Item: TypeAlias = ModelResponse | tuple[ModelRequest, ModelRequestPart]
"""An answer, or one part of a request, with that request."""


class CompactHistory(Door[_Item], AbstractCapability[Any]):
    """Keeps an agent's history inside the window: a capability, for its list of `capabilities`.

    What leaves the history is replaced by a record of it, also in `all_messages()` of the result. What stays
    is as it was, with thoughts and all. See `compact_messages` for the arguments; without a `trigger` nothing
    is done below 75 % of the window.
    """

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Make the history fit before each request."""
        asked = request_context.model_request_parameters
        items = list(_items(request_context.messages))
        kept = await self._fold(
            items,
            system="\n\n".join(part.content for part in asked.instruction_parts or ()) or None,
            tools=[
                schema_of(tool.name, tool.description, tool.parameters_json_schema)
                for tool in (*asked.function_tools, *asked.output_tools)
            ],
        )
        if kept is not items:
            request_context.messages = list(_messages(kept))
            ctx.messages[:] = request_context.messages
        return request_context

    def _read(self, item: _Item) -> Json:
        if isinstance(item, ModelResponse):
            texts = [part.content for part in item.parts if isinstance(part, TextPart)]
            others = [
                _part_text(part)
                for part in item.parts
                if not isinstance(part, (TextPart, ToolCallPart, ThinkingPart))
            ]
            calls = [part for part in item.parts if isinstance(part, ToolCallPart)]
            message: Json = {"role": "assistant", "content": "\n\n".join((*texts, *others))}
            return {**message, "tool_calls": [_call(part) for part in calls]} if calls else message
        match item[1]:
            case SystemPromptPart(content=text):
                return {"role": "system", "content": text}
            case UserPromptPart(content=str(text)):
                return {"role": "user", "content": text}
            case UserPromptPart(content=content):
                return {"role": "user", "content": [_content(each) for each in content]}
            case ToolReturnPart() as part:
                text = part.model_response_str()
                return {"role": "tool", "tool_call_id": part.tool_call_id, "content": text}
            case part:
                return {"role": "user", "content": _part_text(part)}

    def _write(self, message: Json) -> _Item:
        text = str(message["content"])
        if message["role"] == "assistant":
            return ModelResponse(parts=[TextPart(text)])
        request = ModelRequest(parts=[UserPromptPart(text)])
        return request, request.parts[0]

    def _change(self, item: _Item, text: str) -> _Item:
        assert isinstance(item, tuple)
        request, part = item
        assert isinstance(part, ToolReturnPart)
        return request, ToolReturnPart(part.tool_name, text, part.tool_call_id, timestamp=part.timestamp)


def _items(messages: Iterable[ModelMessage]) -> Iterator[_Item]:
    for message in messages:
        if isinstance(message, ModelResponse):
            yield message
        else:
            yield from ((message, part) for part in message.parts)


def _messages(items: Iterable[_Item]) -> Iterator[ModelMessage]:
    """The messages of these items: parts in a row of one request stand in one again."""
    for _, row in groupby(items, lambda item: id(item[0] if isinstance(item, tuple) else item)):
        first, *more = row
        if isinstance(first, ModelResponse):
            yield first
        else:
            yield replace(first[0], parts=[each[1] for each in (first, *more) if isinstance(each, tuple)])


def _call(part: ToolCallPart) -> Json:
    return ToolCall(id=part.tool_call_id, name=part.tool_name, arguments=part.args_as_json_str()).to_openai()


def _content(each: Any) -> Json:
    if isinstance(each, ImageUrl):
        return {"type": "image_url", "image_url": {"url": each.url}}
    return {"type": "text", "text": each if isinstance(each, str) else _part_text(each)}


def _part_text(part: Any) -> str:
    """What a part says that chat completions have no form for."""
    say = getattr(part, "model_response", None)
    return str(say()) if callable(say) else repr(part)
