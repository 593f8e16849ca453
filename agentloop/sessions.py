"""A session: an id, its log in a store, and the context folded from it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from agentloop.context import Context
from agentloop.events import Event, Record
from agentloop.stores.base import SessionStore, checked_session_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One conversation as it was when read or last written; a change makes a new value."""

    id: str
    store: SessionStore
    context: Context

    @classmethod
    async def open(cls, session_id: str, store: SessionStore) -> Self:
        """The session with that id; one that does not exist yet is empty.

        Raises:
            UsageError: the id is not allowed.
            StoreError: it could not be read.
        """
        records = await store.read(checked_session_id(session_id))
        return cls(id=session_id, store=store, context=Context.of(records))

    async def append(self, *events: Event) -> Self:
        """This session with these events at the end of its log: all of them are stored, or none.

        Raises:
            ConflictError: somebody else wrote to the log meanwhile.
            StoreError: it could not be written.
        """
        await self.store.append(self.id, events, expect=self.context.length)
        return self._with(events)

    async def reload(self) -> Self:
        """The session as it is in the store now."""
        records = await self.store.read(self.id, after=self.context.length)
        return self._with([record.event for record in records])

    def _with(self, events: Sequence[Event]) -> Self:
        records = (Record(seq=seq, event=event) for seq, event in enumerate(events, self.context.length + 1))
        return replace(self, context=self.context.add(*records))
