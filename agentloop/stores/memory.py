"""Sessions that live as long as the process."""

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from agentloop.checks import above_zero, whole, whole_or_none
from agentloop.codec import decode, encode
from agentloop.errors import ConflictError
from agentloop.events import Cleared, Event, MessageAdded, Noted, Record
from agentloop.messages import Message
from agentloop.stores.base import Checkpoint, Found, Lease, SessionInfo, checked_owner, checked_session_id
from agentloop.stores.index import described
from agentloop.stores.words import Query, found_in


@dataclass(slots=True, kw_only=True)
class _Log:
    """The texts are the log; the records save decoding them, as far as nobody can have changed them."""

    info: SessionInfo
    texts: list[str] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    checkpoint: Checkpoint | None = None

    def add(self, texts: Sequence[str], events: Sequence[Event]) -> None:
        records = [Record(seq=seq, event=event) for seq, event in enumerate(events, len(self.texts) + 1)]
        self.texts += texts
        self.records += records

    def after(self, position: int, most: int | None = None) -> tuple[Record, ...]:
        end = None if most is None else position + most
        both = zip(self.records[position:end], self.texts[position:end], strict=True)
        return tuple(
            record if _unchangeable(record.event) else Record(seq=record.seq, event=decode(text))
            for record, text in both
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """A lease, and when it runs out by the process's own clock."""

    lease: Lease
    until: float


class InMemoryStore:
    """A `SessionStore` that writes nothing to disc, with all that a store may have beside.

    It takes what the stores on disc take and refuses what they refuse, and who keeps a message and changes a
    dict in it changes nothing of the log. Usable from several threads and event loops. A search reads the
    logs concerned.
    """

    def __init__(self) -> None:
        self._logs: dict[str, _Log] = {}
        self._leases: dict[str, _Held] = {}
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

    async def read(self, session_id: str, *, after: int = 0, most: int | None = None) -> Sequence[Record]:
        """The records behind position `after`, at most `most`; none for a session that does not exist."""
        checked_session_id(session_id)
        whole_or_none("most", most, 0)
        with self._lock:
            log = self._logs.get(session_id)
            return log.after(max(after, 0), most) if log else ()

    async def info(self, session_id: str) -> SessionInfo | None:
        """The session's line in the list; None for a session that does not exist."""
        checked_session_id(session_id)
        with self._lock:
            log = self._logs.get(session_id)
            return log.info if log else None

    async def list(self, *, folder: str | None = None, owner: str | None = None) -> Sequence[SessionInfo]:
        """The sessions, newest update first; with `folder` those of it, with `owner` those of that owner."""
        checked_owner(owner)
        with self._lock:
            every = [log.info for log in self._logs.values()]
        found = (info for info in every if folder in (None, info.folder) and owner in (None, info.owner))
        return tuple(sorted(found, key=lambda info: (-info.updated, info.id)))

    async def delete(self, session_id: str) -> bool:
        """Remove a session and all that was kept beside it; False where there was none."""
        checked_session_id(session_id)
        with self._lock:
            self._leases.pop(session_id, None)
            return self._logs.pop(session_id, None) is not None

    async def sweep(self, *, now: float | None = None) -> Sequence[SessionInfo]:
        """Delete the sessions whose time to live is over, and return what they were; see `SessionStore`."""
        moment = time.time() if now is None else now
        gone = []
        for info in await self.list():
            with self._lock:
                log = self._logs.get(info.id)
                if log and log.info.expires is not None and log.info.expires <= moment:
                    del self._logs[info.id]
                    self._leases.pop(info.id, None)
                    gone.append(log.info)
        return tuple(gone)

    async def search(
        self, text: str, *, session_id: str | None = None, owner: str | None = None, most: int = 50
    ) -> Sequence[Found]:
        """The records that hold all these words; see `FindsWords`."""
        query = Query.of(text)
        whole("most", most, 1)
        if session_id is not None:
            checked_session_id(session_id)
        infos = await self.list(owner=owner)
        found = (each for info in infos if session_id in (None, info.id) for each in self._found(info, query))
        return tuple(islice(found, most))

    async def checkpoint(self, session_id: str) -> Checkpoint | None:
        """The newest checkpoint; None where there is none."""
        checked_session_id(session_id)
        with self._lock:
            log = self._logs.get(session_id)
            return log.checkpoint if log else None

    async def keep_checkpoint(self, session_id: str, checkpoint: Checkpoint) -> None:
        """Keep this one in place of an older one; see `KeepsCheckpoints`."""
        checked_session_id(session_id)
        with self._lock:
            log = self._logs.get(session_id)
            if log and (log.checkpoint is None or log.checkpoint.seq <= checkpoint.seq):
                log.checkpoint = checkpoint

    async def drop_checkpoint(self, session_id: str) -> None:
        """Forget the checkpoint; harmless where there is none."""
        checked_session_id(session_id)
        with self._lock:
            if log := self._logs.get(session_id):
                log.checkpoint = None

    async def take_lease(
        self, session_id: str, lease: Lease, *, seconds: float, over: str | None = None
    ) -> Lease:
        """Who holds the session from now on; see `GrantsLeases`."""
        checked_session_id(session_id)
        above_zero("seconds", seconds)
        with self._lock:
            held, now = self._leases.get(session_id), time.monotonic()
            if held and held.until > now and held.lease.holder not in (lease.holder, over):
                return held.lease
            self._leases[session_id] = _Held(lease=lease, until=now + seconds)
            return lease

    async def free_lease(self, session_id: str, holder: str) -> None:
        """Let go of the session; harmless where somebody else holds it, or nobody."""
        checked_session_id(session_id)
        with self._lock:
            held = self._leases.get(session_id)
            if held and held.lease.holder == holder:
                del self._leases[session_id]

    async def close(self) -> None:
        """Harmless: there is nothing to let go of."""

    def _found(self, info: SessionInfo, query: Query) -> Iterator[Found]:
        with self._lock:
            log = self._logs.get(info.id)
            records = log.after(0) if log else ()
        found = (found_in(info.id, record, query) for record in reversed(records))
        return (each for each in found if each)


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
