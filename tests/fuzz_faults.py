"""What goes wrong on the client's side: a disc that dies, a callback that interferes."""

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from agentloop.callbacks import Callbacks, Focus, Replace, Veto
from agentloop.compaction import CompactionRequest
from agentloop.errors import StoreError
from agentloop.events import Event, Record
from agentloop.stores.base import KeepsCheckpoints


class OddCallback(Callbacks):
    """Interferes with every third compaction."""

    def __init__(self, kind: str, draw: Random) -> None:
        self._kind, self._draw = kind, draw

    async def before_compaction(self, request: CompactionRequest) -> Any:
        if self._draw.random() > 0.3:
            return None
        match self._kind:
            case "raises":
                raise RuntimeError("callback \ud800")
            case "focus":
                return Focus("the numbers")
            case "veto":
                return Veto("not now")
        return Replace(f"REPLACED It was about {len(request.messages)} things.")


class DyingStore:
    """A store whose machine dies at an append, before or after it is written, once that is arranged."""

    def __init__(self, inner: Any, *, on_death: Callable[[], None]) -> None:
        self._inner, self._on_death = inner, on_death
        self._left, self._writes_last = math.inf, False
        self.info, self.list, self.delete, self.sweep = inner.info, inner.list, inner.delete, inner.sweep
        self.take_lease, self.free_lease, self.close = inner.take_lease, inner.free_lease, inner.close
        if isinstance(inner, KeepsCheckpoints):
            self.checkpoint, self.keep_checkpoint = inner.checkpoint, inner.keep_checkpoint
            self.drop_checkpoint = inner.drop_checkpoint

    def lives(self) -> None:
        """From now on it is well."""
        self._left = math.inf

    def dies(self, at: int, *, writes_last: bool) -> None:
        """From now on it dies at the `at`th append."""
        self._left, self._writes_last = at, writes_last

    async def append(self, session_id: str, events: Sequence[Event], *, expect: int) -> int:
        self._left -= 1
        if self._left > 0:
            length: int = await self._inner.append(session_id, events, expect=expect)
            return length
        if self._left == 0:
            if self._writes_last:
                await self._inner.append(session_id, events, expect=expect)
            self._on_death()
        raise StoreError("the disc is gone")

    async def read(self, session_id: str, *, after: int = 0, most: int | None = None) -> Sequence[Record]:
        if self._left <= 0:
            raise StoreError("the disc is gone")
        records: Sequence[Record] = await self._inner.read(session_id, after=after, most=most)
        return records
