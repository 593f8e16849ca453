"""A session: an id, its log in a store, and the context folded from it; and the sessions of a store.

A store that keeps checkpoints is given one now and then, so that opening a long session reads the end of its
log alone. Its context then holds what a step needs; `whole` reads the rest for what needs more.
"""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeAlias

from agentloop._plumbing.aio import in_thread
from agentloop._plumbing.host_logging import note
from agentloop._plumbing.strict_json import cleaned
from agentloop._plumbing.to_text import words_of
from agentloop._plumbing.truncate import head
from agentloop.context import Context
from agentloop.errors import AgentLoopError, BegunAnewError, ConflictError, SessionNotFoundError, UsageError
from agentloop.events import Described, Event, Record, Restored
from agentloop.messages import Message
from agentloop.sessions.checkpoint import CHECKPOINT_EVERY, checkpoint_of, context_in, is_due
from agentloop.sessions.lease import Holder, Leases
from agentloop.stores import InMemoryStore
from agentloop.stores.base import Checkpoint, KeepsCheckpoints, SessionStore, checked_session_id

Conversation: TypeAlias = str | Iterable[Message | Mapping[str, Any]]
"""A conversation from elsewhere: the text of an export, or messages, also as chat-completions dicts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One conversation as it was when read or last written; a change makes a new value.

    `kept` is how much of the log the newest checkpoint covers that it knows of, `newest` the id of the last
    record that it does, empty where that is not known: the log of another session, begun anew under this id,
    has another one there.
    """

    id: str
    store: SessionStore
    context: Context
    kept: int = 0
    newest: str = ""

    def __repr__(self) -> str:
        return f"Session({self.id!r}, {self.context.length} records, store={type(self.store).__name__})"

    @classmethod
    async def open(cls, session_id: str, store: SessionStore) -> Self:
        """The session with that id; one that does not exist yet is empty.

        What a checkpoint covers is not read again: see `whole`.

        Raises:
            UsageError: the id is not allowed.
            StoreError: it could not be read.
        """
        empty = cls(id=checked_session_id(session_id), store=store, context=Context())
        if isinstance(store, KeepsCheckpoints) and (session := await empty._from_checkpoint(store)):
            return session
        records = await store.read(session_id)
        session = await empty._with([record.event for record in records])
        return await session._keep_checkpoint() if records else session

    async def append(self, *events: Event) -> Self:
        """This session with these events at the end of its log: all of them are stored, or none.

        Raises:
            ConflictError: somebody else wrote to the log meanwhile.
            StoreError: it could not be written.
        """
        session = await self._ready_for(events)
        await self.store.append(self.id, events, expect=self.context.length)
        session = await session._with(events)
        return await session._keep_checkpoint() if events else session

    async def beginning_with(self, events: Sequence[Event]) -> Self:
        """What appending these events would make of this empty session; nothing is stored."""
        return await replace(self, store=InMemoryStore()).append(*events)

    async def reload(self) -> Self:
        """The session as it is in the store now.

        Raises:
            ConflictError: see `newer`.
            StoreError: it could not be read.
        """
        return await self.with_newer(await self.newer())

    async def newer(self) -> Sequence[Record]:
        """The records that the log holds behind what this session knows of.

        Raises:
            ConflictError: the session was deleted meanwhile; `BegunAnewError` where its id is another's now.
            StoreError: it could not be read.
        """
        length = self.context.length
        records = await self.store.read(self.id, after=max(length - 1, 0))
        if not length:
            return records
        if not records:
            line = await self.store.info(self.id)
            raise ConflictError(self.id, expected=length, actual=line.length if line else 0)
        if self.newest and records[0].event.id != self.newest:
            raise BegunAnewError(self.id, length=length)
        return records[1:]

    async def since(self, seq: int) -> Sequence[Record]:
        """The records that it knows of behind that position.

        Raises:
            StoreError: it could not be read.
        """
        return await self.store.read(self.id, after=seq, most=self.context.length - seq)

    async def with_newer(self, newer: Sequence[Record]) -> Self:
        """This session with these records, which the log holds behind what it knows of."""
        events = [record.event for record in newer]
        session = await self._ready_for(events)
        return await session._with(events)

    async def whole(self) -> Self:
        """This session with all that was ever said in its context, read from the log where it is not there.

        Compactions need it, and taking one back; no step between does.

        Raises:
            StoreError: it could not be read.
        """
        if not self.context.starts_after:
            return self
        records = await self.store.read(self.id, most=self.context.length)
        return replace(self, context=await _extend(Context(), records))

    async def _ready_for(self, events: Sequence[Event]) -> Self:
        """The session with a context that these events can be added to."""
        return await self.whole() if any(isinstance(event, Restored) for event in events) else self

    async def _with(self, events: Sequence[Event]) -> Self:
        records = [Record(seq=seq, event=event) for seq, event in enumerate(events, self.context.length + 1)]
        newest = events[-1].id if events else self.newest
        return replace(self, context=await _extend(self.context, records), newest=newest)

    async def _from_checkpoint(self, store: KeepsCheckpoints) -> Self | None:
        """The session from its newest checkpoint on.

        None where none can be read, where the log is another, or where its end takes a compaction back.
        """
        if (kept := await _read_checkpoint(store, self.id)) is None:
            return None
        checkpoint, context = kept
        records = await self.store.read(self.id, after=checkpoint.seq - 1)
        if not records or records[0].event.id != checkpoint.event_id:
            await _drop_checkpoint(store, self.id)
            return None
        events = [record.event for record in records]
        if context.starts_after and any(isinstance(event, Restored) for event in events[1:]):
            return None
        covered = replace(self, context=context, kept=checkpoint.seq, newest=checkpoint.event_id)
        return await (await covered._with(events[1:]))._keep_checkpoint()

    async def _keep_checkpoint(self) -> Self:
        """This session, with a checkpoint kept where it is time for one."""
        if not (isinstance(self.store, KeepsCheckpoints) and self.newest and is_due(self.context, self.kept)):
            return self
        try:
            checkpoint = await in_thread(checkpoint_of, self.context, self.newest)
            if not self.kept:
                await _drop_checkpoint(self.store, self.id)  # a damaged one may say that it is the newer one
            await self.store.keep_checkpoint(self.id, checkpoint)
        except Exception as error:  # noqa: BLE001 — the log is written; what is kept beside it can be lost
            _note("a checkpoint could not be kept", self.id, error)
        return replace(self, kept=self.context.length)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """The sessions of a store, as one owner sees them: opened, and held by one run at a time.

    Without an `owner` all are seen. New ones are the owner's and belong to the `folder`; they may be swept
    `ttl_seconds` after their newest record, None for never.
    """

    store: SessionStore
    leases: Leases = field(default_factory=Leases)
    owner: str | None = None
    folder: str | None = None
    ttl_seconds: float | None = None

    async def open(self, session_id: str) -> Session:
        """See `Session.open`."""
        return await Session.open(session_id, self.store)

    def held(self, session_id: str) -> AbstractAsyncContextManager[Holder]:
        """See `Leases.held`."""
        return self.leases.held(session_id, self.store)

    async def check_seen(self, session_id: str) -> None:
        """Refuse a session that is not this owner's, as if it were not there.

        Raises:
            SessionNotFoundError: it is somebody else's, or nobody's.
            UsageError: the id is not allowed.
        """
        if await self._hides(session_id):
            raise SessionNotFoundError(f"there is no session {session_id!r}")

    async def check_free(self, session_id: str) -> None:
        """Refuse to begin or go on with a session that is not this owner's.

        Raises:
            UsageError: it is somebody else's, or nobody's, or the id is not allowed.
        """
        if await self._hides(session_id):
            raise UsageError(
                f"session id {session_id!r} is taken by another owner: choose another id, or name its owner "
                "(owner=, --owner)"
            )

    async def _hides(self, session_id: str) -> bool:
        if self.owner is None:
            return False
        info = await self.store.info(checked_session_id(session_id))
        return info is not None and info.owner != self.owner

    async def beside(self, session_id: str) -> Self:
        """The same for logs that belong to that session: its owner's, of its folder, kept as long."""
        line = await self.store.info(session_id)
        owner, folder = (line.owner, line.folder) if line else (None, None)
        return replace(self, owner=owner, folder=folder, ttl_seconds=None)

    def description(self, title: str | None) -> Described:
        """What a new one is called, and whose it is."""
        return Described(title=title, folder=self.folder, owner=self.owner, ttl_seconds=self.ttl_seconds)


MOST_TITLE_CHARS = 60


def title_of(message: Message) -> str:
    """The first words of what is said, on one line of at most 60 characters; no half of one is among them."""
    title = " ".join(str(cleaned(message.text)).split())
    if len(title) <= MOST_TITLE_CHARS:
        return title
    return head(title, MOST_TITLE_CHARS - 1).rstrip() + "…"


def new_session_id() -> str:
    """An id that no session has."""
    return uuid.uuid4().hex[:12]


async def _extend(context: Context, records: Sequence[Record]) -> Context:
    """The context with these records; adding many takes a second, so it is done on a thread."""
    if len(records) > CHECKPOINT_EVERY:
        return await in_thread(context.add, *records)
    return context.add(*records)


async def _read_checkpoint(store: KeepsCheckpoints, session_id: str) -> tuple[Checkpoint, Context] | None:
    """The newest checkpoint with the context in it; None where there is none that can be read."""
    try:
        checkpoint = await store.checkpoint(session_id)
    except AgentLoopError as error:
        _note("a checkpoint could not be read", session_id, error)
        return None
    if checkpoint is None:
        return None
    context = await in_thread(context_in, checkpoint)
    if context is None:
        await _drop_checkpoint(store, session_id)
        return None
    return checkpoint, context


async def _drop_checkpoint(store: KeepsCheckpoints, session_id: str) -> None:
    """Forget a checkpoint that is wrong, or of another log; a new one takes its place in any case."""
    try:
        await store.drop_checkpoint(session_id)
    except AgentLoopError as error:
        _note("a checkpoint could not be dropped", session_id, error)


def _note(what: str, session_id: str, error: Exception) -> None:
    note(what, session_id=session_id, error=words_of(error))
