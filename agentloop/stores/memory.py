"""Sessions that live as long as the process."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from agentloop.codec import decode, encode
from agentloop.errors import ConflictError
from agentloop.events import Cleared, Event, MessageAdded, Noted, Record
from agentloop.messages import Message
from agentloop.stores.base import SessionInfo, checked_session_id
from agentloop.stores.index import described


@dataclass(slots=True, kw_only=True)
class _Log:
    """The texts are the log; the records save decoding them, as far as nobody can have changed them."""

    info: SessionInfo
    texts: list[str] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)

    def add(self, texts: Sequence[str], events: Sequence[Event]) -> None:
        records = [Record(seq=seq, event=event) for seq, event in enumerate(events, len(self.texts) + 1)]
        self.texts += texts
        self.records += records

    def after(self, position: int) -> tuple[Record, ...]:
        both = zip(self.records[position:], self.texts[position:], strict=True)
        return tuple(
            record if _unchangeable(record.event) else Record(seq=record.seq, event=decode(text))
            for record, text in both
        )


class InMemoryStore:
    """A `SessionStore` that writes nothing to disc.

    It takes what the stores on disc take and refuses what they refuse, and who keeps a message and changes a
    dict in it changes nothing of the log. Usable from several threads and event loops.
    """

    def __init__(self) -> None:
        self._logs: dict[str, _Log] = {}
        self._lock = threading.Lock()

    async def append(self, session_id: str, events: Sequence[Event], *, expect: int) -> int:
        """Write all events after record `expect`, or none; see `SessionStore`."""
        checked_session_id(session_id)
        texts = [encode(event) for event in events]
        with self._lock:
            log = self._logs.get(session_id)
            there = log.texts if log else []
            if len(there) != expect:
                if not texts or there[max(expect, 0) : expect + len(texts)] != texts:
                    raise ConflictError(session_id, expected=expect, actual=len(there))
            elif events:
                info = described(log.info if log else None, session_id, events)
                log = self._logs.setdefault(session_id, _Log(info=info))
                log.info = info
                log.add(texts, events)
            return expect + len(texts)

    async def read(self, session_id: str, *, after: int = 0) -> Sequence[Record]:
        """The records behind position `after`, in order; none for a session that does not exist."""
        checked_session_id(session_id)
        with self._lock:
            log = self._logs.get(session_id)
            return log.after(max(after, 0)) if log else ()

    async def list(self, *, folder: str | None = None) -> Sequence[SessionInfo]:
        """The sessions, newest update first; with `folder`, those described by it."""
        with self._lock:
            found = [log.info for log in self._logs.values() if folder in (None, log.info.folder)]
        return tuple(sorted(found, key=lambda info: (-info.updated, info.id)))

    async def delete(self, session_id: str) -> bool:
        """Remove a session and its log; False where there was none."""
        checked_session_id(session_id)
        with self._lock:
            return self._logs.pop(session_id, None) is not None

    async def close(self) -> None:
        """Harmless: there is nothing to let go of."""


def _unchangeable(event: Event) -> bool:
    """Whether no dict in the event holds anything: what was written with one, or was given one since, may."""
    match event:
        case MessageAdded(message=message):
            return _text_alone(message)
        case Cleared(items=items):
            return all(_text_alone(item.message) for item in items)
        case _:
            return not isinstance(event, Noted)


def _text_alone(message: Message) -> bool:
    text = message.content is None or isinstance(message.content, str)
    return text and not message.extra and not any(call.extra for call in message.tool_calls)
