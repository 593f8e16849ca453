"""How many tokens a text, a message and tool schemas are.

Counting never raises, never waits for a network, and takes time linear in the text whatever the script.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from agentloop.messages import Json, Message
from agentloop.models import ModelRequest
from agentloop.own_fields import RESPONSE_ITEMS
from agentloop.vocabularies import ByVocabulary
from agentloop.wire_form import to_wire

__all__ = [
    "CALL_OVERHEAD",
    "IMAGE_TOKENS",
    "LOW_DETAIL_IMAGE_TOKENS",
    "MESSAGE_OVERHEAD",
    "REQUEST_OVERHEAD",
    "TOOL_OVERHEAD",
    "TokenCounter",
    "count_message",
    "count_request",
    "count_tools",
    "counter_for",
]

MESSAGE_OVERHEAD = 5
"""Tokens around each message: 3 and 1 for the role by OpenAI's cookbook ("How to count tokens with
tiktoken"), and 1 since the templates of other models are a little longer."""

CALL_OVERHEAD = 4
"""Tokens around one tool call: its kind and the names of its fields."""

TOOL_OVERHEAD = 8
"""Tokens around one tool schema, beside its JSON text (the cookbook's figure is 7)."""

REQUEST_OVERHEAD = 3
"""Tokens of a request beside its messages and tools: it is primed for the answer (the cookbook's figure)."""

IMAGE_TOKENS = 1445
"""One image: 85 and 170 for each of at most 8 tiles of 512 pixels, the most an image can have after it was
scaled to 768 by 2048 (OpenAI, "Images and vision", costs of GPT-4o). Other blobs of data count as one."""

LOW_DETAIL_IMAGE_TOKENS = 85
"""One image that is asked for in low detail, of any size (same source)."""

SEALED_CHARS_PER_TOKEN = 5
"""So long is a token of reasoning that a server has encrypted, on the safe side: four bytes of text and more
are over five characters in base 64."""

_ITEMS_IN_FIELDS = frozenset({"message", "function_call", "custom_tool_call"})


class TokenCounter(Protocol):
    """Anything that says how many tokens a text is: 0 for an empty text, else more.

    Example:
        >>> def by_words(text: str) -> int:
        ...     return len(text.split())
        >>> count_message(Message.user("How are you?"), by_words) - MESSAGE_OVERHEAD
        3
    """

    def __call__(self, text: str, /) -> int: ...


def counter_for(model: str) -> TokenCounter:
    """The counter of a model: the vocabulary tiktoken knows for its name, `o200k_base` for any other name.

    Nothing is loaded before the first count; what is loaded is kept for the process and shared by threads.

    Example:
        >>> counter_for("gpt-4o")("How are you?")
        4
    """
    return ByVocabulary(model)


def count_message(message: Message, counter: TokenCounter) -> int:
    """The tokens of a message as it goes over the wire, its overhead and every field included.

    Images count by the provider's flat rule and other blobs of data as an image, never by their length.

    Example:
        >>> count_message(Message.user("How are you?"), counter_for("gpt-4o"))
        9
    """
    return _wire_tokens(to_wire(message), counter)


def count_tools(schemas: Sequence[Json], counter: TokenCounter) -> int:
    """The tokens of tool schemas in wire form: their JSON text and the overhead of each.

    Example:
        >>> count_tools([{"type": "function", "function": {"name": "look"}}], counter_for("gpt-4o"))
        23
    """
    return sum(TOOL_OVERHEAD + counter(_json(schema)) for schema in schemas)


def count_request(request: ModelRequest, counter: TokenCounter) -> int:
    """The tokens of a whole request: its messages, its tools and its overhead.

    Example:
        >>> request = ModelRequest(messages=({"role": "user", "content": "How are you?"},))
        >>> count_request(request, counter_for("gpt-4o"))
        12
    """
    messages = sum(_wire_tokens(message, counter) for message in request.messages)
    return REQUEST_OVERHEAD + messages + count_tools(request.tools, counter)


def _wire_tokens(message: Json, counter: TokenCounter) -> int:
    fields = (
        sum(_item(item, counter) for item in value)
        if key == RESPONSE_ITEMS and isinstance(value, list)
        else _value(value, counter)
        for key, value in message.items()
        if key != "role"
    )
    return MESSAGE_OVERHEAD + sum(fields)


def _item(item: Any, counter: TokenCounter) -> int:
    """An item of a response: what the typed fields say is counted there, sealed reasoning by its length."""
    if not isinstance(item, Mapping) or not isinstance(sealed := item.get("encrypted_content", ""), str):
        return _part(item, counter)
    if str(item.get("type")) in _ITEMS_IN_FIELDS and not item.keys() & {"arguments", "input"}:
        return 0
    rest = {key: value for key, value in item.items() if key != "encrypted_content"}
    return len(sealed) // SEALED_CHARS_PER_TOKEN + _part(rest, counter)


def _value(value: Any, counter: TokenCounter) -> int:
    if isinstance(value, str):
        return counter(value)
    if isinstance(value, list | tuple):
        return sum(_part(part, counter) for part in value)
    if isinstance(value, Mapping):
        return _part(value, counter)
    return 0 if value is None else counter(_json(value))


def _part(part: Any, counter: TokenCounter) -> int:
    if not isinstance(part, Mapping):
        return _value(part, counter)
    kind = part.get("type")
    if kind == "text" and isinstance(part.get("text"), str):
        return counter(part["text"])
    if kind == "function" and isinstance(part.get("function"), Mapping):
        return _call(part, counter)
    if isinstance(kind, str) and "image" in kind:
        return LOW_DETAIL_IMAGE_TOKENS if _asks_low_detail(part) else IMAGE_TOKENS
    blobs: list[str] = []
    return counter(_json(_without_blobs(part, blobs))) + IMAGE_TOKENS * len(blobs)


def _call(call: Json, counter: TokenCounter) -> int:
    others = {key: value for key, value in call.items() if key not in ("id", "type", "function")}
    texts = (call.get("id"), *call["function"].values())
    plain = CALL_OVERHEAD + sum(_value(text, counter) for text in texts)
    return plain + (counter(_json(others)) if others else 0)


def _asks_low_detail(part: Json) -> bool:
    image = part.get("image_url")
    holder = image if isinstance(image, Mapping) else part
    return holder.get("detail") == "low"


def _without_blobs(value: Any, blobs: list[str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_blobs(item, blobs) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_blobs(item, blobs) for item in value]
    if isinstance(value, str) and _BLOB.match(value):
        blobs.append(value)
        return ""
    return value


_BLOB = re.compile(r"data:[^,]{0,200};base64,|[A-Za-z0-9+/_=\r\n-]{1024,}+\Z")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
