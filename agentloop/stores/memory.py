"""Sessions that live as long as the process."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from agentloop.codec import encode
from agentloop.errors import ConflictError
from agentloop.events import Event, Record
from agentloop.stores.base import SessionInfo, checked_session_id
from agentloop.stores.index import described


@dataclass(slots=True, kw_only=True)
class _Log:
    info: SessionInfo
    records: list[Record] = field(default_factory=list)


class InMemoryStore:
    """A `SessionStore` that writes nothing to disc.

    It takes what the stores on disc take and refuses what they refuse. Usable from several threads and
    event loops.
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
            records = log.records if log else []
            if len(records) != expect:
                there = records[max(expect, 0) : expect + len(texts)]
                if not texts or [encode(record.event) for record in there] != texts:
                    raise ConflictError(session_id, expected=expect, actual=len(records))
            elif events:
                info = described(log.info if log else None, session_id, events)
                log = self._logs.setdefault(session_id, _Log(info=info))
                log.info = info
                log.records += [Record(seq=seq, event=e) for seq, e in enumerate(events, start=expect + 1)]
            return expect + len(texts)

    async def read(self, session_id: str, *, after: int = 0) -> Sequence[Record]:
        """The records behind position `after`, in order; none for a session that does not exist."""
        checked_session_id(session_id)
        with self._lock:
            log = self._logs.get(session_id)
            return tuple(log.records[max(after, 0) :]) if log else ()

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
