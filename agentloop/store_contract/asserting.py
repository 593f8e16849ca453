"""What the checks share: events to write, and a finding said in words."""

import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from agentloop.codec import encode
from agentloop.errors import ConflictError
from agentloop.events import Event, MessageAdded, Record
from agentloop.messages import Message
from agentloop.stores.base import SessionStore

Check: TypeAlias = Callable[[SessionStore], Awaitable[None]]


def same(found: object, wanted: object, what: str) -> None:
    """Raise AssertionError, with both values, where they differ."""
    if found != wanted:
        raise AssertionError(f"{what}: wanted {wanted!r}, found {found!r}")


def new_id() -> str:
    """A session id, or a word, that nobody else has."""
    return uuid.uuid4().hex


def said(text: str, *, time: float = 1.5) -> MessageAdded:
    """What a user said at this time."""
    return MessageAdded(message=Message.user(text), tokens=1, time=time)


def text_of(record: Record) -> str:
    """What the record says, where it is a message."""
    return record.event.message.text if isinstance(record.event, MessageAdded) else ""


def texts_of(records: Sequence[Record]) -> list[str]:
    """The records as they are stored."""
    return [encode(record.event) for record in records]


async def conflicts(
    store: SessionStore, name: str, events: Sequence[Event], *, expect: int, actual: int
) -> None:
    """Raise AssertionError unless the append is refused and the log stays as it was."""
    before = texts_of(await store.read(name))
    try:
        await store.append(name, events, expect=expect)
    except ConflictError as error:
        same((error.session_id, error.expected, error.actual), (name, expect, actual), "what it says")
    else:
        raise AssertionError(f"an append at {expect} to a log of {actual} records must raise ConflictError")
    same(texts_of(await store.read(name)), before, "the log after a conflict")
