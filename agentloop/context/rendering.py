"""A conversation as labelled text and back.

`render` puts messages below labels, which are shown behind a mark that none of them holds (`mark_of`);
`parse` reads such text.
"""

import json
import re
import sys
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from agentloop._plumbing.patterns import pattern
from agentloop._plumbing.truncate import ends, head
from agentloop.context.entries import Entry
from agentloop.context.pairing import says_nothing
from agentloop.events import Made
from agentloop.media import label_of
from agentloop.messages import Message, ToolCall
from agentloop.prompts import COMPRESSED, SUMMARY_MATERIAL, SUMMARY_RECORD, mark_of

MOST_NAME_CHARS = 64
"""OpenAI allows a tool's name so many characters; a longer one was made up and is shown at its head."""

_USUAL_NAME = pattern(r"[\w.-]{1,64}", re.ASCII)
_NAME = r"\"(?:[^\"\\\n]|\\.){0,999}\"|[\w.-]{1,64}"
_LABEL = pattern(
    r"(?:\A|(?<=\n\n))\[(?P<mark>\d{9})\] "
    rf"(?:(?P<role>{_NAME})|(?P<record>Earlier record)"
    rf"|Tool result of (?P<tool>{_NAME})|Assistant calls (?P<call>{_NAME})): ",
    re.ASCII,
)
_ANY_MARK = "417026958"


@dataclass(frozen=True, slots=True)
class Labelled:
    """What one message or one call says, below the label that tells whose it is.

    As a string it is as long as it is shown, with a mark that stands for any.
    """

    label: str
    text: str

    def __str__(self) -> str:
        return self.marked(_ANY_MARK)

    def marked(self, mark: str) -> str:
        """As it is shown behind its mark."""
        return f"[{mark}] {self.label}: {self.text}"


def earlier_record(text: str) -> Labelled:
    """The text as an earlier record."""
    return Labelled("Earlier record", text)


def stands_below(text: str) -> Labelled:
    """The record that is to stand below what is written now; no part of the conversation (`parse`)."""
    return Labelled("Stands below", text)


def labelled(material: Sequence[Labelled], *, beside: str) -> str:
    """The conversation between marks that neither it nor what stands beside holds."""
    mark = mark_of(beside, *map(str, material))
    shown = "\n\n".join(each.marked(mark) for each in material)
    return SUMMARY_MATERIAL.format(mark=mark, material=shown)


def render(
    entries: Iterable[Entry], *, max_result_chars: int, max_chars: int = sys.maxsize
) -> list[tuple[Labelled, ...]]:
    """Each entry as the log holds it: what was said, and each call, below its label.

    Results, arguments, and what says nothing are cut to head and tail at `max_result_chars`, and a message of
    the user or the assistant as a whole at about `max_chars`; all else is byte for byte what it was.
    """
    names: dict[str, str] = {}
    found = []
    for entry in entries:
        names.update((call.id, call.name) for call in entry.original.tool_calls)
        found.append(tuple(_labelled(entry, names, max_result_chars, max_chars)))
    return found


def _labelled(entry: Entry, names: dict[str, str], result_chars: int, max_chars: int) -> Iterator[Labelled]:
    message = entry.original
    if entry.kind == "summary":
        yield earlier_record(record_in(message)[1])
        return
    if message.role == "tool":
        name = _shown_name(names.get(message.tool_call_id or "", "tool"))
        yield Labelled(f"Tool result of {name}", ends(message.text, max_chars=result_chars))
        return
    says = bool(message.text) or not message.tool_calls
    max_chars //= says + len(message.tool_calls)
    short = min(result_chars, max_chars)
    if says:
        text = ends(message.text, max_chars=short if says_nothing(message) else max_chars)
        yield Labelled(_shown_name(message.role.capitalize()), f"{text}{_other_parts(message)}")
    for call in message.tool_calls:
        name = _shown_name(call.name)
        yield Labelled(f"Assistant calls {name}", ends(call.arguments, max_chars=short))


def _shown_name(name: str) -> str:
    return name if _USUAL_NAME.fullmatch(name) else json.dumps(head(name, MOST_NAME_CHARS))


def _other_parts(message: Message) -> str:
    if not isinstance(message.content, tuple):
        return ""
    others = (part for part in message.content if not isinstance(part.get("text"), str))
    kinds = [str(part.get("type")) for part in others if label_of(part) is None]
    return f" [{', '.join(kinds)}]" if kinds else ""


_COMPRESSED = COMPRESSED.partition("{")[0]
_OPENING = pattern(r"<((summary|digest)(?: [^>\n]{1,40})?)>\n")


def record_in(message: Message) -> tuple[Made, str]:
    """Who made the record that a message holds, and the record; what is in none of our shapes is a summary.

    Only what we wrote around a text says that it is a digest, and so that its headings are ours.
    """
    text = message.text
    begin = _OPENING.search(text) if message.role == "user" and text.startswith(_COMPRESSED) else None
    if begin is None or not text.endswith(end := f"\n</{begin[1]}>"):
        return "summary", text
    return "digest" if begin[2] == "digest" else "summary", text[begin.end() : -len(end)]


def prose_of(record: str) -> tuple[str, str]:
    """A summary that a model wrote, without the record that stands below it, and that record."""
    prose, line, below = record.rpartition(f"\n{SUMMARY_RECORD}\n")
    return (prose.rstrip("\n"), below) if line else (record, "")


def as_prose(text: str) -> str:
    """The text as a summary that is all prose, though it holds what parts a record from it."""
    return f"{text}\n\n{SUMMARY_RECORD}\n" if prose_of(text)[1] else text


def parse(text: str, mark: str) -> tuple[list[str], list[Message]]:
    """The earlier records and the messages that text below labels with this mark was made of.

    What stands before the first label is left out. A result answers the first open call of its tool's name,
    and has that name where none is open; calls get ids by their order. Linear in the text.

    Example:
        >>> _, said = parse("[123456789] User: Hi.\\n\\n[123456789] Assistant: Hello.", "123456789")
        >>> [message.role for message in said]
        ['user', 'assistant']
    """
    labels = [label for label in _LABEL.finditer(text) if label["mark"] == mark]
    records: list[str] = []
    messages: list[Message] = []
    waiting: defaultdict[str, deque[str]] = defaultdict(deque)
    ends_at = [*(following.start() - len("\n\n") for following in labels[1:]), len(text)]
    for number, (label, end) in enumerate(zip(labels, ends_at, strict=False)):
        body = text[label.end() : end]
        if label["record"]:
            records.append(body)
        elif label["call"]:
            call = ToolCall(id=f"call_{number}", name=_name_of(label["call"]), arguments=body)
            waiting[call.name].append(call.id)
            _add_call(messages, call)
        elif label["tool"]:
            messages.append(_result(_name_of(label["tool"]), body, number, waiting))
        else:
            messages.append(Message(role=_name_of(label["role"]).lower(), content=body))
    return records, messages


def _name_of(shown: str) -> str:
    return str(json.loads(shown)) if shown.startswith('"') else shown


def _add_call(messages: list[Message], call: ToolCall) -> None:
    """Add the call to what the assistant has just said, else as a message of its own."""
    if messages and messages[-1].role == "assistant":
        messages[-1] = replace(messages[-1], tool_calls=(*messages[-1].tool_calls, call))
    else:
        messages.append(Message.assistant(None, [call]))


def _result(name: str, body: str, number: int, waiting: dict[str, deque[str]]) -> Message:
    if open_calls := waiting.get(name):
        return Message.tool(open_calls.popleft(), body)
    return replace(Message.tool(f"result_{number}", body), name=name)
