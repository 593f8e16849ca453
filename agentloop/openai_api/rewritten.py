"""Bodies of requests brought into the form that a server takes; one that needs no change is left as it is."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from agentloop.context import SYSTEM_ROLES
from agentloop.messages import Json, text_of
from agentloop.openai_api.error_bodies import FieldPath
from agentloop.prompts import INSTRUCTIONS_IN_FRONT

Instructions: TypeAlias = Literal["as they come", "system", "in front"]
"""Who says the instructions: whoever does in the request, a system message, or the first user message."""

WAYS: tuple[Instructions, ...] = ("as they come", "system", "in front")
"""In the order in which they are tried: one that is refused is not gone back to."""


def without(value: Any, path: FieldPath) -> Any:
    """The value without what stands at this path, in every item of the lists on the way."""
    if isinstance(value, list | tuple):
        return [without(item, path) for item in value]
    if not isinstance(value, Mapping) or path[0] not in value:
        return value
    if len(path) == 1:
        return {key: item for key, item in value.items() if key != path[0]}
    return {**value, path[0]: without(value[path[0]], path[1:])}


def at_most(body: dict[str, Any], names: Sequence[str], most: int) -> dict[str, Any]:
    """The body with no field of these names above that number."""
    high = {name: most for name in names if isinstance(body.get(name), int) and body[name] > most}
    return {**body, **high}


def instructed(messages: Sequence[Json], way: Instructions) -> Sequence[Json]:
    """The messages with the instructions that begin them said in that way."""
    if way == "as they come" or not messages or messages[0].get("role") not in SYSTEM_ROLES:
        return messages
    first, *rest = messages
    if way == "system":
        return [{**first, "role": "system"}, *rest]
    label = INSTRUCTIONS_IN_FRONT.format(instructions=text_of(first.get("content")))
    at = next((at for at, message in enumerate(rest) if message.get("role") == "user"), None)
    if at is None:
        return [{"role": "user", "content": label.strip()}, *rest]
    return [*rest[:at], {**rest[at], "content": _behind(label, rest[at].get("content"))}, *rest[at + 1 :]]


def with_reasoning(messages: Sequence[Json]) -> Sequence[Json]:
    """The messages with empty reasoning in those with calls that have none."""
    return [
        {**message, "reasoning_content": ""}
        if message.get("tool_calls") and not isinstance(message.get("reasoning_content"), str)
        else message
        for message in messages
    ]


def _behind(label: str, content: object) -> str | list[Any]:
    if isinstance(content, list | tuple):
        return [{"type": "text", "text": label}, *content]
    return f"{label}{content or ''}"
