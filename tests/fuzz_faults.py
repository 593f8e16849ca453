"""What goes wrong on the client's side: a disc that dies, a callback that interferes."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from agentloop.callbacks import Callbacks, Focus, Replace, Veto
from agentloop.compaction import CompactionRequest
from agentloop.errors import StoreError
from agentloop.events import Event, Record
from agentloop.stores.base import SessionInfo, SessionStore


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
    """A store whose machine dies at the `at`th append, before or after it is written."""

    def __init__(
        self, inner: SessionStore, at: int, *, writes_last: bool, on_death: Callable[[], None]
    ) -> None:
        self._inner, self._left, self._writes_last, self._on_death = inner, at, writes_last, on_death

    async def append(self, session_id: str, events: Sequence[Event], *, expect: int) -> int:
        self._left -= 1
        if self._left > 0:
            return await self._inner.append(session_id, events, expect=expect)
        if self._left == 0:
            if self._writes_last:
                await self._inner.append(session_id, events, expect=expect)
            self._on_death()
        raise StoreError("the disc is gone")

    async def read(self, session_id: str, *, after: int = 0) -> Sequence[Record]:
        if self._left <= 0:
            raise StoreError("the disc is gone")
        return await self._inner.read(session_id, after=after)

    async def list(self, *, folder: str | None = None) -> Sequence[SessionInfo]:
        return await self._inner.list(folder=folder)

    async def delete(self, session_id: str) -> bool:
        return await self._inner.delete(session_id)

    async def close(self) -> None:
        await self._inner.close()
