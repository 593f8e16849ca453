"""A session with a record of most kinds, and how the tests of exports and imports write such."""

from agentloop.events import (
    Cleared,
    ClearedItem,
    Compacted,
    Described,
    Event,
    MessageRecord,
    ModelCalled,
    Record,
    Restored,
)
from agentloop.messages import Message, ToolCall


def said(message: Message, *, branch: str | None = None) -> MessageRecord:
    return MessageRecord(message=message, tokens=3, branch=branch)


def log(*events: Event | Message) -> list[Record]:
    every = [said(event) if isinstance(event, Message) else event for event in events]
    return [Record(seq=seq, event=event) for seq, event in enumerate(every, start=1)]


def asks(*ids: str) -> Message:
    return Message.assistant(None, [ToolCall(id=name, name="look") for name in ids])


def length(message: Message) -> int:
    return len(message.text)


TASK, DONE = Message.user("task"), Message.assistant("done")
WHOLE = log(
    Described(title="A day", folder="/home"),
    TASK,
    asks("a"),
    Message.tool("a", "x" * 500),
    said(Message.user("aside"), branch="helper"),
    Cleared(items=(ClearedItem(seq=4, message=Message.tool("a", "xx..."), tokens=1),)),
    Compacted(covers=((2, 4),), replacement="They looked.", at=2, tokens=4, before=900, after=80),
    ModelCalled(purpose="agent", model="m"),
    Restored(seq=7),
    DONE,
)
