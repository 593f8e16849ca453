"""A conversation as labelled text: how a summariser, a digest or a memory reads what is about to go."""

import re
from collections.abc import Iterable

from agentloop.context import Entry
from agentloop.messages import Message

_DELIMITER = re.compile(r"<(?=/?\s*(?:summary|conversation)\b)", re.IGNORECASE)


def neutral(text: str) -> str:
    """The text with our own delimiters made harmless: what a tool said can't close a labelled section."""
    return _DELIMITER.sub("‹", text)


def head_and_tail(text: str, max_chars: int) -> str:
    """The text itself, or its first two thirds and last third of `max_chars` with the gap named."""
    if len(text) <= max_chars:
        return text
    head = max_chars * 2 // 3
    tail = max_chars - head
    gap = len(text) - head - tail
    return f"{text[:head]}\n... [{gap:,} characters left out] ...\n{text[len(text) - tail :]}"


def labelled(entries: Iterable[Entry], *, max_result_chars: int) -> list[str]:
    """Each entry as the log holds it, as one labelled block; user and assistant text whole.

    Results and arguments are cut to head and tail at `max_result_chars`.
    """
    names: dict[str, str] = {}
    blocks = []
    for entry in entries:
        names.update((call.id, call.name) for call in entry.original.tool_calls)
        blocks.append(neutral(_block(entry, names, max_result_chars)))
    return blocks


def _block(entry: Entry, names: dict[str, str], max_chars: int) -> str:
    message = entry.original
    if entry.kind == "summary":
        return f"Earlier record: {record_of(message.text)}"
    match message.role:
        case "tool":
            name = names.get(message.tool_call_id or "", "tool")
            return f"Tool result of {name}: {head_and_tail(message.text, max_chars)}"
        case "assistant":
            return "\n".join(_said(message, max_chars))
    return f"{message.role.capitalize()}: {message.text}{_other_parts(message)}"


def _said(message: Message, max_chars: int) -> Iterable[str]:
    if message.text or not message.tool_calls:
        yield f"Assistant: {message.text}{_other_parts(message)}"
    for call in message.tool_calls:
        yield f"Assistant calls {call.name}({head_and_tail(call.arguments, max_chars)})"


def _other_parts(message: Message) -> str:
    if not isinstance(message.content, tuple):
        return ""
    kinds = [str(part.get("type")) for part in message.content if not isinstance(part.get("text"), str)]
    return f" [{', '.join(kinds)}]" if kinds else ""


def record_of(text: str) -> str:
    """The record inside a summary message: what stands between its delimiters."""
    start, end = text.find("<summary>"), text.rfind("</summary>")
    return text[start + len("<summary>") : end].strip() if 0 <= start < end else text
