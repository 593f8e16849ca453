"""Values in a log of their own, which many processes append to, each decided on in view of all before it."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

from agentloop._plumbing.aio import to_its_end
from agentloop._plumbing.to_text import first_line
from agentloop.codec import converters_of
from agentloop.errors import ConflictError, DamagedError
from agentloop.events import Noted, Record
from agentloop.stores.base import SessionStore

T = TypeVar("T")


class ValueLog(Generic[T]):
    """A log of values of one frozen dataclass; what was read of it is remembered."""

    def __init__(self, store: SessionStore, log: str, kind: type[T], *, source: str) -> None:
        self._store, self._log, self._source = store, log, source
        self._to_json, self._from_json = converters_of(kind)
        self._values: Sequence[T] = ()

    async def values(self) -> Sequence[T]:
        """All of them, oldest first.

        Raises:
            DamagedError: a record holds none.
            StoreError: the log could not be read.
        """
        known = self._values
        new = await self._store.read(self._log, after=len(known))
        self._values = (*known, *map(self._value, new)) if new else known
        return self._values

    async def append(self, decide: Callable[[Sequence[T]], T | None]) -> T | None:
        """Append what is decided on in view of all others, behind them; None where that is nothing.

        Raises:
            StoreError: the log could not be read or written.
        """
        while True:
            values = await self.values()
            if (value := decide(values)) is None:
                return None
            event = Noted(source=self._source, data=self._to_json(value))
            with suppress(ConflictError):
                await to_its_end(self._store.append(self._log, [event], expect=len(values)))
                return value
            self._values = ()  # others wrote, or it was begun anew

    def _value(self, record: Record) -> T:
        try:
            value: T = self._from_json(record.event.data if isinstance(record.event, Noted) else None)
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            why = first_line(error)
            raise DamagedError(f"record {record.seq} of {self._log!r} is damaged: {why}") from error
        return value
