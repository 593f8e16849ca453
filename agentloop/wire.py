"""The messages of a request, in wire form: valid for a strict provider, whatever the log holds.

Chat completions want each assistant message with calls followed at once by exactly one result per call,
ids non-empty and unique, arguments that decode to a JSON object, no empty assistant message, `content`
always present, and one system message, first. Logs hold late, repeated, missing and interrupted results,
imported histories, broken arguments and lone surrogates. The log is never touched: this is its view.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from agentloop.messages import Message, ToolCall
from agentloop.pairing import answers
from agentloop.prompts import INTERRUPTED, SYSTEM_IN_LOG

_SYSTEM_ROLES = ("system", "developer")


def wire_messages(
    messages: Iterable[Message], *, instructions: str | None = None
) -> tuple[dict[str, Any], ...]:
    """The request's messages: the instructions as its one system message, then the conversation.

    Without instructions, a system message that begins the conversation stands first; system messages
    anywhere else are shown as labelled user text.
    """
    said = list(messages)
    system = [Message(role="system", content=instructions)] if instructions else []
    if said and not system and said[0].role in _SYSTEM_ROLES:
        system = [said.pop(0)]
    body = (_as_user(message) if message.role in _SYSTEM_ROLES else message for message in said)
    return tuple(to_wire(message) for message in (*system, *arranged(tuple(body))))


def arranged(messages: Sequence[Message]) -> Iterator[Message]:
    """The messages with each call followed by its one result.

    A late result moves to its call, a missing one is answered as interrupted, one that answers no call or
    repeats another is left out, and so is an assistant message with neither text nor call. Ids that are
    empty or were used before get new ones.
    """
    answered = answers(messages)
    used: set[str] = set()
    for at, message in enumerate(messages):
        if message.role == "tool" or _says_nothing(message):
            continue
        if not message.tool_calls:
            yield message
            continue
        calls = tuple(_named(call, used) for call in message.tool_calls)
        yield replace(message, tool_calls=calls) if calls != message.tool_calls else message
        for call, place in zip(calls, answered[at], strict=True):
            yield _answer(call.id, None if place is None else messages[place])


def to_wire(message: Message) -> dict[str, Any]:
    """The message as it is sent: strict UTF-8, content present, arguments a JSON object."""
    data = message.to_openai()
    data.setdefault("content", "" if message.role == "tool" else None)
    if message.tool_calls:
        data["tool_calls"] = [_call_to_wire(call) for call in message.tool_calls]
    elif "tool_calls" in data:
        del data["tool_calls"]
    if not isinstance(data["content"], str | list) and message.role != "assistant":
        data["content"] = "" if data["content"] is None else str(data["content"])
    return data if _is_clean(message) else _cleaned(data)


def _answer(call_id: str, result: Message | None) -> Message:
    if result is None:
        return Message.tool(call_id, INTERRUPTED)
    return result if result.tool_call_id == call_id else replace(result, tool_call_id=call_id)


def _named(call: ToolCall, used: set[str]) -> ToolCall:
    given = _cleaned(call.id)
    name, number = given, 1
    while not name or name in used:
        number += 1
        name = f"{given or 'call'}_{number}"
    used.add(name)
    return call if name == call.id else replace(call, id=name)


def _says_nothing(message: Message) -> bool:
    return message.role == "assistant" and not message.tool_calls and not message.text.strip()


def _as_user(message: Message) -> Message:
    return Message.user(SYSTEM_IN_LOG + message.text)


def _call_to_wire(call: ToolCall) -> dict[str, Any]:
    arguments = call.arguments
    if call.decoded() is None:
        arguments = json.dumps({"unreadable_arguments": arguments})
    elif not arguments.strip():
        arguments = "{}"
    function = {"name": call.name, "arguments": arguments}
    extra = {key: value for key, value in call.extra.items() if key not in ("id", "type", "function")}
    return {"id": call.id, "type": "function", "function": function, **extra}


def _is_clean(message: Message) -> bool:
    if message.extra or isinstance(message.content, tuple):
        return False
    texts = [message.content or "", message.tool_call_id or "", message.name or ""]
    for call in message.tool_calls:
        if call.extra:
            return False
        texts += (call.id, call.name, call.arguments)
    return _encodes("".join(texts))


def _encodes(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _cleaned(value: Any) -> Any:
    """The value as strict JSON in strict UTF-8: lone surrogates become U+FFFD, NaN and infinities text."""
    match value:
        case str():
            return (
                value
                if _encodes(value)
                else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            )
        case dict():
            return {_cleaned(str(key)): _cleaned(item) for key, item in value.items()}
        case list() | tuple():
            return [_cleaned(item) for item in value]
        case float() if value != value or value in (float("inf"), float("-inf")):
            return str(value)
    return value
