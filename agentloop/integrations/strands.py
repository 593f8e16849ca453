"""Compaction for agents of strands (https://strandsagents.com).

agent = Agent(model, conversation_manager=CompactConversation(window="128k"))
"""

import base64
import json
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, TypeAlias

from agentloop._plumbing.aio import in_own_loop
from agentloop.extras import missing_extra
from agentloop.integrations.door import Door, schema_of
from agentloop.messages import Json, ToolCall
from agentloop.triggers import TokenCount, Trigger

try:
    from strands.agent.conversation_manager import ConversationManager
    from strands.hooks import BeforeModelCallEvent, HookRegistry
    from strands.types.exceptions import ContextWindowOverflowException
except ImportError as error:
    raise missing_extra("strands needs", "strands") from error

__all__ = ["CompactConversation"]

_Item: TypeAlias = tuple[Json, list[Json]]
"""A message, and those of its blocks that are one chat message: a result, or all that is none."""


class CompactConversation(Door[_Item], ConversationManager):
    """Keeps an agent's messages inside the window: the `conversation_manager` of an `Agent`.

    What leaves the messages is replaced by a record of it, in `agent.messages` too. What stays is as it was,
    with thoughts and all. The arguments are as `compact_messages` has them; without a `trigger` nothing is
    done below 75 % of the window. Where a server refuses a request as too large all the same, the messages
    are compacted once more, as far as that goes.
    """

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        """Make the messages fit before each request."""
        super().register_hooks(registry, **kwargs)
        registry.add_callback(BeforeModelCallEvent, self._before_model_call)

    async def _before_model_call(self, event: BeforeModelCallEvent) -> None:
        await self._fit(event.agent)

    def apply_management(self, agent: Any, **kwargs: Any) -> None:
        """Do nothing: the next request is made to fit when it is made."""

    def reduce_context(self, agent: Any, e: Exception | None = None, **kwargs: Any) -> None:
        """Make the messages fewer, since a server refused them as too many.

        Raises:
            ContextWindowOverflowException: they cannot become fewer.
        """
        if not in_own_loop(self._fit(agent, TokenCount(1))):
            raise e or ContextWindowOverflowException("the messages cannot become fewer")

    async def _fit(self, agent: Any, trigger: Trigger | None = None) -> bool:
        """Whether the agent's messages had to become others."""
        items = list(_items(agent.messages))
        tools = [
            schema_of(spec["name"], spec["description"], spec["inputSchema"]["json"])
            for spec in agent.tool_registry.get_all_tool_specs()
        ]
        kept = await self._fold(items, system=agent.system_prompt, tools=tools, trigger=trigger)
        if kept is not items:
            agent.messages[:] = _messages(kept)
        return kept is not items

    def _read(self, item: _Item) -> Json:
        message, blocks = item
        if blocks and "toolResult" in blocks[0]:
            result = blocks[0]["toolResult"]
            text = "\n".join(_text(each) for each in result["content"])
            return {"role": "tool", "tool_call_id": result["toolUseId"], "content": text}
        if any("image" in block for block in blocks):
            return {"role": message["role"], "content": [_part(block) for block in blocks]}
        said = [
            _text(block) for block in blocks if not {"toolUse", "reasoningContent", "cachePoint"} & set(block)
        ]
        calls = [_call(block["toolUse"]) for block in blocks if "toolUse" in block]
        read: Json = {"role": message["role"], "content": "\n\n".join(said)}
        return {**read, "tool_calls": calls} if calls else read

    def _write(self, message: Json) -> _Item:
        blocks: list[Json] = [{"text": message["content"]}]
        return {"role": message["role"], "content": blocks}, blocks

    def _change(self, item: _Item, text: str) -> _Item:
        message, (block,) = item
        return message, [{"toolResult": {**block["toolResult"], "content": [{"text": text}]}}]


def _items(messages: Iterable[Any]) -> Iterator[_Item]:
    for message in messages:
        others = [block for block in message["content"] if "toolResult" not in block]
        yield from ((message, [block]) for block in message["content"] if "toolResult" in block)
        if others or not message["content"]:
            yield message, others


def _messages(items: Iterable[_Item]) -> Iterator[Json]:
    """The messages of these items: those in a row of one message stand in one again."""
    for _, row in groupby(items, lambda item: id(item[0])):
        (message, blocks), *more = row
        whole = [*blocks, *(block for _, others in more for block in others)]
        same = len(whole) == len(message["content"]) and all(block in message["content"] for block in whole)
        yield message if same else {**message, "content": whole}


def _text(block: Json) -> str:
    """What a block says; of what chat completions have no form for, all that it holds."""
    if "json" in block:
        return json.dumps(block["json"], ensure_ascii=False)
    return block["text"] if "text" in block else repr(block)


def _part(block: Json) -> Json:
    image = block.get("image", {})
    if data := image.get("source", {}).get("bytes"):
        url = f"data:image/{image['format']};base64,{base64.b64encode(data).decode()}"
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "text", "text": _text(block)}


def _call(use: Json) -> Json:
    arguments = json.dumps(use["input"], ensure_ascii=False)
    return ToolCall(id=use["toolUseId"], name=use["name"], arguments=arguments).to_openai()
