"""A conversation as labelled text: how a summariser, a digest or a memory reads what is about to go."""

import re
from collections.abc import Iterable

from agentloop.entries import Entry
from agentloop.messages import Message
from agentloop.tool_results import shortened

_DELIMITER = re.compile(r"<(?=/?\s*(?:summary|conversation)\b)", re.IGNORECASE)


def neutral(text: str) -> str:
    """The text with our own delimiters made harmless: what a tool said can't close a labelled section."""
    return _DELIMITER.sub("‹", text)


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
        return f"Earlier record: {summary_in(message.text)}"
    match message.role:
        case "tool":
            name = names.get(message.tool_call_id or "", "tool")
            return f"Tool result of {name}: {shortened(message.text, max_chars=max_chars)}"
        case "assistant":
            return "\n".join(_said(message, max_chars))
    return f"{message.role.capitalize()}: {message.text}{_other_parts(message)}"


def _said(message: Message, max_chars: int) -> Iterable[str]:
    if message.text or not message.tool_calls:
        yield f"Assistant: {message.text}{_other_parts(message)}"
    for call in message.tool_calls:
        yield f"Assistant calls {call.name}({shortened(call.arguments, max_chars=max_chars)})"


def _other_parts(message: Message) -> str:
    if not isinstance(message.content, tuple):
        return ""
    kinds = [str(part.get("type")) for part in message.content if not isinstance(part.get("text"), str)]
    return f" [{', '.join(kinds)}]" if kinds else ""


def summary_in(text: str) -> str:
    """The summary inside its message: what stands between the delimiters."""
    start, end = text.find("<summary>"), text.rfind("</summary>")
    return text[start + len("<summary>") : end].strip() if 0 <= start < end else text
