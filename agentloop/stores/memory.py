"""Sessions that live as long as the process."""

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from agentloop._plumbing.aio import in_thread
from agentloop._plumbing.processes import free_in_forks
from agentloop.codec import decode, encode
from agentloop.errors import ConflictError
from agentloop.events import Cleared, Event, MessageRecord, Noted, Record
from agentloop.messages import Message
from agentloop.stores.base import (
    FindsWords,
    Found,
    GrantsLeases,
    Lease,
    SessionInfo,
    SessionScope,
    SessionStore,
    TellsLeases,
    checked_append,
    checked_holder,
    checked_lease_seconds,
    checked_now,
    checked_page,
    checked_search,
    checked_session_id,
    stays_with,
    trunk_of,
)
from agentloop.stores.lines import change_of, changed, newest_first, of_trunk
from agentloop.stores.words import Query, found_among

_LOCK = free_in_forks(threading.Lock())
"""Held while something is read or changed of any store: that is short."""


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

    def after(self, position: int, most: int | None = None) -> tuple[Record, ...]:
        end = None if most is None else position + most
        both = zip(self.records[position:end], self.texts[position:end], strict=True)
        return tuple(_as_written(record, text) for record, text in both)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """A lease, and when it runs out by the process's own clock."""

    lease: Lease
    until: float


class InMemoryStore(SessionStore, FindsWords, GrantsLeases, TellsLeases):
    """A store that writes nothing to disc, with search and leases.

    It keeps no checkpoints: its records need no decoding, so that folding them again is the quicker way.

    It takes what the stores on disc take and refuses what they refuse, and who keeps a message and changes a
    dict in it changes nothing of the log. Usable from several threads and event loops. A search reads the
    logs concerned.
    """

    def __init__(self) -> None:
        self._logs: dict[str, _Log] = {}
        self._leases: dict[str, _Held] = {}

    async def append(self, session_id: str, events: Sequence[Event], *, expect: int) -> int:
        written = checked_append(session_id, events, expect)
        texts = [encode(event) for event in written]
        with _LOCK:
            log = self._logs.get(session_id)
            there = log.texts if log else []
            if len(there) != expect:
                if not texts or there[max(expect, 0) : expect + len(texts)] != texts:
                    raise ConflictError(session_id, expected=expect, actual=len(there))
            elif written:
                info = changed(log.info if log else None, session_id, change_of(written))
                log = self._logs.setdefault(session_id, _Log(info=info))
                log.info = info
                log.add(texts, written)
            return expect + len(texts)

    async def read(self, session_id: str, *, after: int = 0, most: int | None = None) -> Sequence[Record]:
        after, most = checked_page(session_id, after, most)
        with _LOCK:
            log = self._logs.get(session_id)
            return log.after(after, most) if log else ()

    async def info(self, session_id: str) -> SessionInfo | None:
        checked_session_id(session_id)
        with _LOCK:
            log = self._logs.get(session_id)
            return log.info if log else None

    async def list(
        self, *, folder: str | None = None, owner: str | None = None, branches_of: str | None = None
    ) -> Sequence[SessionInfo]:
        return of_trunk(self._listed(SessionScope(folder=folder, owner=owner)), branches_of)

    async def delete(self, session_id: str) -> bool:
        checked_session_id(session_id)
        with _LOCK:
            return self._remove(session_id)

    async def sweep(self, *, owner: str | None = None, now: float | None = None) -> Sequence[SessionInfo]:
        whose = SessionScope(owner=owner)
        moment = time.time() if now is None else checked_now(now)
        with _LOCK:
            self._leases = {name: held for name, held in self._leases.items() if self._live_lease(name)}
            lines = [log.info for log in self._logs.values() if whose.takes(log.info)]
            due = [info for info in lines if info.expires is not None and info.expires <= moment]
            gone = [info for info in due if info.id not in self._leases]
            for info in gone:
                self._remove(info.id)
        return tuple(gone)

    async def search(
        self,
        text: str,
        *,
        session_id: str | None = None,
        folder: str | None = None,
        owner: str | None = None,
        most: int = 50,
    ) -> Sequence[Found]:
        scope, most = checked_search(session_id, folder, owner, most)
        return await in_thread(self._found, [info.id for info in self._listed(scope)], text, most)

    async def take_lease(
        self, session_id: str, lease: Lease, *, seconds: float, over: str | None = None
    ) -> Lease:
        seconds = checked_lease_seconds(session_id, seconds, over)
        with _LOCK:
            held = self._live_lease(session_id)
            if held and stays_with(held, lease, over):
                return held
            self._leases[session_id] = _Held(lease=lease, until=time.monotonic() + seconds)
            return lease

    async def free_lease(self, session_id: str, holder: str) -> None:
        checked_holder(session_id, holder)
        with _LOCK:
            held = self._leases.get(session_id)
            if held and held.lease.holder == holder:
                del self._leases[session_id]

    async def lease(self, session_id: str) -> Lease | None:
        checked_session_id(session_id)
        with _LOCK:
            return self._live_lease(session_id)

    async def close(self) -> None:
        """Harmless: there is nothing to let go of."""

    def _listed(self, scope: SessionScope) -> tuple[SessionInfo, ...]:
        with _LOCK:
            lines = [log.info for log in self._logs.values()]
        return newest_first(lines, scope)

    def _remove(self, session_id: str) -> bool:
        for kept in (self._logs, self._leases):
            for name in [name for name in kept if trunk_of(name) == session_id]:
                del kept[name]
        return self._logs.pop(session_id, None) is not None

    def _live_lease(self, session_id: str) -> Lease | None:
        held = self._leases.get(session_id)
        return held.lease if held and held.until > time.monotonic() else None

    def _found(self, names: Sequence[str], text: str, most: int) -> tuple[Found, ...]:
        query = Query.of(text)
        records = ((name, record) for name in names for record in self._newest_first(name))
        return tuple(islice(found_among(records, query), most))

    def _newest_first(self, name: str) -> Iterator[Record]:
        with _LOCK:
            log = self._logs.get(name)
            there = [*zip(log.records, log.texts, strict=True)] if log else []
        return (_as_written(record, text) for record, text in reversed(there))


def _as_written(record: Record, text: str) -> Record:
    return record if _unchangeable(record.event) else Record(seq=record.seq, event=decode(text))


def _unchangeable(event: Event) -> bool:
    """Whether no dict in the event holds anything: what was written with one, or was given one since, may."""
    match event:
        case MessageRecord(message=message):
            return _text_alone(message)
        case Cleared(items=items):
            return all(_text_alone(item.message) for item in items)
        case _:
            return not isinstance(event, Noted)


def _text_alone(message: Message) -> bool:
    text = message.content is None or isinstance(message.content, str)
    return text and not message.extra and not any(call.extra for call in message.tool_calls)
