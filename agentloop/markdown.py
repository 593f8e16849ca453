"""A session as text to read."""

import re
from collections.abc import Iterable, Iterator

from agentloop.events import Compacted, Described, Event, MessageAdded, Record, Restored
from agentloop.messages import Message


def to_markdown(records: Iterable[Record]) -> str:
    """The session in Markdown: its title, all that was said, whole, and where it was compacted.

    The title is the newest that the records give, and stands above all that was said.
    Tool calls and results stand in fences that they cannot close. The text is strict UTF-8: lone
    surrogates are shown escaped.

    Example:
        >>> from agentloop.events import MessageAdded
        >>> hello = MessageAdded(message=Message.user("Hello."), tokens=2)
        >>> print(to_markdown([Record(seq=1, event=hello)]), end="")
        ## 1 User
        <BLANKLINE>
        Hello.
    """
    every = tuple(records)
    titles = [each.event.title for each in every if isinstance(each.event, Described) and each.event.title]
    return "\n\n".join([*map(heading, titles[-1:]), *to_blocks(every)]) + "\n"


def heading(title: str) -> str:
    """The block that a title is."""
    return f"# {' '.join(title.split())}".encode("utf-8", "backslashreplace").decode()


def to_blocks(records: Iterable[Record]) -> Iterator[str]:
    """What was said, block by block: a blank line belongs between two, a line end behind the last."""
    for record in records:
        for block in _blocks(record.seq, record.event):
            yield block.encode("utf-8", "backslashreplace").decode()


def _blocks(seq: int, event: Event) -> list[str]:
    match event:
        case MessageAdded():
            return _said(seq, event)
        case Compacted():
            places = ", ".join(f"{first}–{last}" for first, last in event.covers)
            sizes = f"{event.before:,} tokens before, {event.after:,} after"
            return [f"*{seq}: {places} compacted ({event.reason}): {sizes}*", _fenced(event.replacement)]
        case Restored():
            return [f"*{seq}: the compaction at {event.seq} was taken back*"]
    return []


def _said(seq: int, event: MessageAdded) -> list[str]:
    message = event.message
    who = message.role.capitalize() + (f" in {' '.join(event.branch.split())}" if event.branch else "")
    if message.role == "tool":
        answered = message.tool_call_id or message.name or ""
        return [f"## {seq} {who}: result of `{answered}`", _fenced(_content(message))]
    calls = [
        block
        for call in message.tool_calls
        for block in (f"Calls `{call.name}`{_named(call.id)}:", _fenced(call.arguments))
    ]
    content = _content(message)
    return [f"## {seq} {who}", *([content] if content else []), *calls]


def _named(call_id: str) -> str:
    return f" (`{call_id}`)" if call_id else ""


def _content(message: Message) -> str:
    others = (
        []
        if isinstance(message.content, str)
        else [f"[{part.get('type', 'part')}]" for part in message.content or () if part.get("type") != "text"]
    )
    return "\n".join([message.text, *others]) if message.text else "\n".join(others)


def _fenced(text: str) -> str:
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"
