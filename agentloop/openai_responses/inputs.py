"""The messages of a request in wire form as the `instructions` and `input` of the Responses API."""

import json
from collections.abc import Mapping, Sequence

from agentloop.context import SYSTEM_ROLES
from agentloop.messages import Json, text_of
from agentloop.openai_responses.pairs import Pairs
from agentloop.openai_responses.sent_calls import SentCalls
from agentloop.openai_responses.to_items import Item, items_of

_INPUT_PARTS = frozenset({"input_text", "input_image", "input_file"})


def instructions_of(messages: Sequence[Json]) -> str | None:
    """The text of the system message that begins the request; None where there is none."""
    if not messages or messages[0].get("role") not in SYSTEM_ROLES:
        return None
    return text_of(messages[0].get("content"))


def inputs_of(messages: Sequence[Json], *, with_reasoning: bool) -> list[Item]:
    """The items that the messages stand for, the system message that begins them left out.

    The same messages give the same items, and more messages the same ones first.
    """
    rest = messages if instructions_of(messages) is None else messages[1:]
    pairs, calls = Pairs(with_reasoning=with_reasoning), SentCalls()
    items: list[Item] = []
    for message in rest:
        match message.get("role"):
            case "assistant":
                ours = {call["id"] for call in message.get("tool_calls") or ()}
                items += pairs.of(item and calls.of_item(item, ours) for item in items_of(message))
            case "tool":
                content = message["content"]
                output = content if isinstance(content, str) else _content(message)
                items.append(calls.of_output(message["tool_call_id"], output))
            case role:
                items.append({"type": "message", "role": role, "content": _content(message)})
    return items


def _content(message: Json) -> list[Item]:
    content = message.get("content")
    if isinstance(content, list):
        return [_part(part) for part in content]
    return [{"type": "input_text", "text": content or ""}]


def _part(part: Json) -> Item:
    """A part of what a user said or a tool gave; one of a kind that this API lacks as its JSON."""
    match part:
        case {"type": "text", "text": str(text)}:
            return {"type": "input_text", "text": text}
        case {"type": "image_url", "image_url": {"url": str(url), **rest}}:
            return {"type": "input_image", "image_url": url, "detail": rest.get("detail") or "auto"}
        case {"type": "file", "file": Mapping() as file}:
            return {"type": "input_file", **file}
        case {"type": str(kind)} if kind in _INPUT_PARTS:
            return dict(part)
    return {"type": "input_text", "text": json.dumps(part, ensure_ascii=False)}
