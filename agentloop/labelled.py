"""A conversation as labelled text: how a summariser, a digest or a memory reads what is about to go."""

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

from agentloop._plumbing.truncate import ends
from agentloop.entries import Entry
from agentloop.messages import Message, ToolCall
from agentloop.prompts import summary_message

_DELIMITER = re.compile(r"<(?=[\s/]*(?:summary|conversation)\b)", re.IGNORECASE)
_CALL = r"Assistant calls (?P<call>[^(\n]{0,200})\("
_LABEL = re.compile(
    r"(?:\A|(?<=\n\n))(?:(?P<role>User|Assistant|System|Developer): ?|(?P<earlier>Earlier record): ?"
    rf"|Tool result of (?P<tool>[^:\n]{{0,200}}): ?)|^{_CALL}",
    re.MULTILINE,
)
_LIKE_A_LABEL = re.compile(
    r"(?<=\n)(?=(?:User|Assistant|System|Developer|Earlier record):|Tool result of |Assistant calls )"
)


def neutral(text: str) -> str:
    """The text with our own delimiters made harmless: what a tool said can't close a labelled section."""
    return _DELIMITER.sub("‹", text)


def labelled(entries: Iterable[Entry], *, max_result_chars: int) -> list[str]:
    """Each entry as the log holds it, as one labelled block; user and assistant text whole.

    Results and arguments are cut to head and tail at `max_result_chars`; a line of a result that reads like a
    label is moved by a blank.
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
        return f"Earlier record: {_LIKE_A_LABEL.sub(' ', summary_in(message.text))}"
    match message.role:
        case "tool":
            name = names.get(message.tool_call_id or "", "tool")
            text = ends(message.text, max_chars=max_chars)
            return f"Tool result of {name}: {_LIKE_A_LABEL.sub(' ', text)}"
        case "assistant":
            return "\n".join(_said(message, max_chars))
    return f"{message.role.capitalize()}: {message.text}{_other_parts(message)}"


def _said(message: Message, max_chars: int) -> Iterable[str]:
    if message.text or not message.tool_calls:
        yield f"Assistant: {message.text}{_other_parts(message)}"
    for call in message.tool_calls:
        yield f"Assistant calls {call.name}({ends(call.arguments, max_chars=max_chars)})"


def _other_parts(message: Message) -> str:
    if not isinstance(message.content, tuple):
        return ""
    kinds = [str(part.get("type")) for part in message.content if not isinstance(part.get("text"), str)]
    return f" [{', '.join(kinds)}]" if kinds else ""


def summary_in(text: str) -> str:
    """The summary inside its message: what stands between the delimiters."""
    start, end = text.find("<summary>"), text.rfind("</summary>")
    return text[start + len("<summary>") : end].strip() if 0 <= start < end else text


def unlabelled(text: str) -> list[Message]:
    """The messages that labelled text was made of, as far as it tells.

    Blocks are parted by blank lines, as `labelled` makes them; text without any label is a user's, and what
    stands before the first label is left out. A result answers the first open call of its tool's name, and
    has that name where none is open; calls get ids by their order. An earlier record comes back as a summary
    message. Linear in the text.

    Example:
        >>> [message.role for message in unlabelled("User: Hi.\\n\\nAssistant: Hello.")]
        ['user', 'assistant']
    """
    labels = list(_labels(text))
    if not labels:
        return [Message.user(text)]
    messages: list[Message] = []
    waiting: defaultdict[str, deque[str]] = defaultdict(deque)
    for number, (label, following) in enumerate(zip(labels, [*labels[1:], None], strict=True)):
        body = _body(text, label, following)
        if label["call"] is None:
            messages.append(_message(label, body, number, waiting))
            continue
        call = ToolCall(id=f"call_{number}", name=label["call"], arguments=body.removesuffix(")"))
        waiting[call.name].append(call.id)
        if _begins_block(text, label):
            messages.append(Message.assistant(None, [call]))
        else:
            messages[-1] = replace(messages[-1], tool_calls=(*messages[-1].tool_calls, call))
    return messages


def _labels(text: str) -> Iterator[re.Match[str]]:
    """The labels; a call stands at the beginning of a block or below what an assistant said."""
    is_assistant = False
    for label in _LABEL.finditer(text):
        if label["call"] is None or is_assistant or _begins_block(text, label):
            is_assistant = label["call"] is not None or label["role"] == "Assistant"
            yield label


def _begins_block(text: str, label: re.Match[str]) -> bool:
    return label.start() == 0 or text.endswith("\n\n", 0, label.start())


def _body(text: str, label: re.Match[str], following: re.Match[str] | None) -> str:
    if following is None:
        return text[label.end() :]
    body = text[label.end() : following.start()]
    return body.removesuffix("\n\n") if body.endswith("\n\n") else body.removesuffix("\n")


def _message(label: re.Match[str], body: str, number: int, waiting: dict[str, deque[str]]) -> Message:
    if label["earlier"]:
        return Message.user(summary_message(body, None))
    if label["tool"] is not None:
        if open_calls := waiting.get(label["tool"]):
            return Message.tool(open_calls.popleft(), body)
        return replace(Message.tool(f"result_{number}", body), name=label["tool"])
    return Message(role=label["role"].lower(), content=body)
