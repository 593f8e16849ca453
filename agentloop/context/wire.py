"""One message as it is sent: strict JSON in strict UTF-8, of a shape that every provider takes.

It is built from the typed fields of a message; of its other fields only those are added that say nothing
about role, content or calls. The same message gives the same bytes, always, and is counted as it is here.
"""

import json
from collections.abc import Mapping
from typing import Any

from agentloop._plumbing.patterns import pattern
from agentloop._plumbing.strict_json import cleaned, cleaned_json, encodes
from agentloop._plumbing.truncate import ends
from agentloop.context.parts import sent_part
from agentloop.messages import INLINE_REASONING, Content, Message, ToolCall
from agentloop.prompts import OTHER_ROLE_IN_LOG

ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})

MOST_UNREADABLE_CHARS = 2_000
"""So much of arguments that are no JSON object is shown, two thirds of it from their head."""

UNNAMED = "unnamed"
"""The name of a call that has none."""


def to_wire(message: Message) -> dict[str, Any]:
    """The message as it is sent; one of a role that chat completions do not know is labelled user text.

    A developer's is the system's: OpenAI takes it for the same, and other servers do not know the word.
    """
    if message.role not in ROLES:
        message = labelled_user(message, OTHER_ROLE_IN_LOG.format(role=_label(message)))
    role = "system" if message.role == "developer" else message.role
    data: dict[str, Any] = {"role": role, "content": _content(message.content, role)}
    if message.role == "assistant" and message.tool_calls:
        data["tool_calls"] = [_call(call) for call in message.tool_calls]
    if message.role == "tool":
        data["tool_call_id"] = message.tool_call_id or ""
    if message.name:
        data["name"] = _NO_NAME.sub("_", message.name)[:_MOST_NAME_CHARS]
    if message.extra:
        data |= _others(message)
    return data if _is_clean(message) else cleaned(data)


def labelled_user(message: Message, label: str) -> Message:
    """What the message says as a user's, behind a label that says whose it is."""
    if isinstance(message.content, tuple):
        return Message(role="user", content=({"type": "text", "text": label}, *message.content))
    return Message.user(label + (message.content or ""))


def _content(content: Content, role: str) -> str | list[Any]:
    if isinstance(content, str):
        return content
    sent = (sent_part(part, role) for part in content or ())
    return [part for part in sent if part is not None] or ""


def _call(call: ToolCall) -> dict[str, Any]:
    name = _NO_FUNCTION_NAME.sub("_", call.name)[:_MOST_NAME_CHARS] or UNNAMED
    function = {"name": name, "arguments": _arguments(call), **_others_inside(call.extra.get("function"))}
    extra = {key: value for key, value in call.extra.items() if key not in _TYPED_OF_A_CALL}
    return {"id": call.id, "type": "function", "function": function, **extra}


def _others_inside(function: object) -> dict[str, Any]:
    """The fields of a call's function that no typed field stands for."""
    if not isinstance(function, Mapping):
        return {}
    return {key: value for key, value in function.items() if key not in ("name", "arguments")}


def _arguments(call: ToolCall) -> str:
    if call.decoded() is None:
        shown = ends(call.arguments, max_chars=MOST_UNREADABLE_CHARS)
        return json.dumps({"unreadable_arguments": shown}, ensure_ascii=False)
    return cleaned_json(call.arguments) if call.arguments.strip() else "{}"


def _others(message: Message) -> dict[str, Any]:
    others = {key: value for key, value in message.extra.items() if key not in _TYPED}
    if message.content is not None and others.get("refusal") == message.content:
        del others["refusal"]
    return others


def _label(message: Message) -> str:
    said = f"{message.role} {message.name or ''}".strip()
    return _NO_LABEL.sub(" ", said)[:_MOST_NAME_CHARS].strip() or "unknown"


def _is_clean(message: Message) -> bool:
    if message.extra or isinstance(message.content, tuple):
        return False
    texts = [message.content or "", message.tool_call_id or "", message.name or ""]
    for call in message.tool_calls:
        if call.extra:
            return False
        texts += (call.id, call.name, call.arguments)
    return encodes("".join(texts))


# What OpenAI's API accepts as names of functions, and of those who speak.
_NO_FUNCTION_NAME = pattern(r"[^A-Za-z0-9_-]")
_NO_NAME = pattern(r"[\s<|\\/>]")
_NO_LABEL = pattern(r"[^\w -]|\n")
_MOST_NAME_CHARS = 64

_TYPED = frozenset(
    {"role", "content", "tool_calls", "tool_call_id", "name", "function_call", INLINE_REASONING}
)
_TYPED_OF_A_CALL = frozenset({"id", "type", "function", "custom"})
