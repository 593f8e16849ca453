"""The items of a response as one message, without loss.

The message's typed fields hold what was said and called; its field `response_items` holds the items in
order, without what the typed fields hold: a text there is its length, and a call has neither its id, name
nor arguments. So nothing is stored twice, and what is shown shortened or renamed later is so everywhere.
`to_items` turns it round.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agentloop.context import RESPONSE_ITEMS
from agentloop.messages import Json, Message
from agentloop.openai_api.said_once import arguments_once

BETWEEN_MESSAGES = "\n\n"
"""Stands in the text of a message between what came as messages of their own."""

TEXT_FIELDS: Json = {"output_text": "text", "refusal": "refusal"}
"""The parts of a message item that are text, and the field that holds it."""

INPUT_FIELDS: Json = {"function_call": "arguments", "custom_tool_call": "input"}
"""The items that are calls for us to answer, and the field that holds what is given to them."""


def message_of(items: Sequence[Json]) -> Message:
    """The items as one assistant message.

    Raises:
        UsageError: they are nested too deep.
    """
    ours = our_calls(items)
    text = text_of(items)
    data: dict[str, Any] = {"role": "assistant", "content": text or (None if ours else "")}
    if ours:
        data["tool_calls"] = [_tool_call(items[at]) for at in ours]
    if items:
        data[RESPONSE_ITEMS] = [
            _without_call(item) if at in ours else _without_texts(item) for at, item in enumerate(items)
        ]
    return Message.from_openai(data)


def text_of(items: Iterable[Json]) -> str:
    """The text of all message items."""
    texts = ("".join(map(_text_in, texts_of(item))) for item in items)
    return BETWEEN_MESSAGES.join(text for text in texts if text)


def texts_of(item: Json) -> list[Json]:
    """The parts of a message item that are text; none of any other item."""
    content = item.get("content") if item.get("type") == "message" else None
    return [part for part in content if _is_text(part)] if isinstance(content, list) else []


def _text_in(part: Json) -> str:
    """The text of a part."""
    text = part.get(TEXT_FIELDS[part["type"]])
    return text if isinstance(text, str) else ""


def our_calls(items: Sequence[Json]) -> list[int]:
    """Where the calls stand that wait for our answer; others have their output behind them."""
    ours: list[int] = []
    answered: set[tuple[str, str]] = set()
    for at in reversed(range(len(items))):
        kind, call_id = str(items[at].get("type")), str(items[at].get("call_id"))
        if kind in INPUT_FIELDS and (f"{kind}_output", call_id) not in answered:
            ours.append(at)
        answered.add((kind, call_id))
    return ours[::-1]


def _is_text(part: object) -> bool:
    return isinstance(part, Mapping) and str(part.get("type")) in TEXT_FIELDS


def _tool_call(item: Json) -> Json:
    given = item.get(INPUT_FIELDS[item["type"]])
    if item["type"] == "custom_tool_call":
        given = {"input": given}
    arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    function = {"name": str(item.get("name") or ""), "arguments": arguments_once(arguments)}
    return {"id": str(item.get("call_id") or ""), "type": "function", "function": function}


def _without_call(item: Json) -> Json:
    held = ("call_id", "name", INPUT_FIELDS[item["type"]])
    return {key: value for key, value in item.items() if key not in held}


def _without_texts(item: Json) -> Json:
    if not texts_of(item):
        return item
    return {**item, "content": [_without_text(part) for part in item["content"]]}


def _without_text(part: Any) -> Any:
    return {**part, TEXT_FIELDS[part["type"]]: len(_text_in(part))} if _is_text(part) else part
