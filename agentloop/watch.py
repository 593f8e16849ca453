"""Shows what happens in a run to whoever watches: the stream's reader first, then the callbacks."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentloop.callbacks import CallbackList, Callbacks
from agentloop.log import log_event
from agentloop.stream import AnyStreamEvent, CallbackFailed, StreamEvent

Sink = Callable[[AnyStreamEvent], None]

CALLBACK_SECONDS = 30.0
"""The time limit of one callback, unless the runner is given another."""


@dataclass(slots=True)
class Watch:
    """One run's watchers. `sink` takes each event at once; callbacks are awaited after it."""

    session_id: str
    run_id: str
    sink: Sink
    callbacks: Sequence[Callbacks] = ()
    limit_seconds: float = CALLBACK_SECONDS
    called: CallbackList = field(init=False)
    _reported: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self.called = CallbackList(
            callbacks=tuple(self.callbacks), limit_seconds=self.limit_seconds, failed=self._failed
        )

    async def say(self, kind: type[StreamEvent], **fields: Any) -> None:
        """Show an event of this kind with these fields."""
        event: Any = kind(session_id=self.session_id, run_id=self.run_id, time=time.time(), **fields)
        log_event(event)
        self.sink(event)
        if self.callbacks:
            await self.called.on_event(event)

    async def _failed(self, callback: str, point: str, error: str) -> None:
        fields = {"callback": callback, "point": point, "error": error}
        if point != "on_event":
            await self.say(CallbackFailed, **fields)
        elif callback not in self._reported:
            self._reported.add(callback)
            self.sink(
                CallbackFailed(session_id=self.session_id, run_id=self.run_id, time=time.time(), **fields)
            )
