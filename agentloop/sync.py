"""The runner without `await`: one small portal to an event loop in the background, not a second copy."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterable, Iterator
from pathlib import Path
from typing import Any, Self, TypeVar

from agentloop.agent import Agent
from agentloop.callbacks import Callbacks, CompactionResult
from agentloop.messages import Message
from agentloop.results import CompactionPreview, RunResult
from agentloop.runner import Runner
from agentloop.stores.base import SessionStore
from agentloop.stream import AnyStreamEvent, ContextStatus
from agentloop.watch import CALLBACK_SECONDS

T = TypeVar("T")


class Portal:
    """An event loop in a daemon thread, and a way to run coroutines on it and wait for them."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="agentloop-portal")
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What the coroutine returns; an interruption of the waiting thread cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            if future.cancel():
                asyncio.run_coroutine_threadsafe(_others_done(), self._loop).result()
            raise

    def close(self) -> None:
        """Stop the loop; harmless when called again."""
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


class SyncRunner:
    """`Runner`, method by method, without `await`. It takes what `Runner` takes.

    Closing it stops its loop; it is a context manager for that.
    """

    def __init__(
        self,
        agent: Agent,
        *,
        store: str | SessionStore = "memory:",
        callbacks: Iterable[Callbacks] = (),
        transcripts: Path | str | None = Path(".transcripts"),
        folder: str | None = None,
        callback_seconds: float = CALLBACK_SECONDS,
    ) -> None:
        self._runner = Runner(
            agent,
            store=store,
            callbacks=callbacks,
            transcripts=transcripts,
            folder=folder,
            callback_seconds=callback_seconds,
        )
        self._portal = Portal()

    def run(self, prompt: str | Message, *, session_id: str | None = None, deps: Any = None) -> RunResult:
        """See `Runner.run`."""
        return self._portal.run(self._runner.run(prompt, session_id=session_id, deps=deps))

    def resume(self, session_id: str, *, deps: Any = None) -> RunResult:
        """See `Runner.resume`."""
        return self._portal.run(self._runner.resume(session_id, deps=deps))

    def stream(
        self, prompt: str | Message | None, *, session_id: str | None = None, deps: Any = None
    ) -> Iterator[AnyStreamEvent]:
        """See `Runner.stream`; leaving the iteration cancels the run."""
        events = self._runner.stream(prompt, session_id=session_id, deps=deps)
        try:
            while (event := self._portal.run(_next(events))) is not None:
                yield event
        finally:
            self._portal.run(events.aclose())

    def compact(self, session_id: str, *, focus: str | None = None) -> CompactionResult | None:
        """See `Runner.compact`."""
        return self._portal.run(self._runner.compact(session_id, focus=focus))

    def preview(self, session_id: str) -> CompactionPreview | None:
        """See `Runner.preview`."""
        return self._portal.run(self._runner.preview(session_id))

    def undo(self, session_id: str) -> int | None:
        """See `Runner.undo`."""
        return self._portal.run(self._runner.undo(session_id))

    def status(self, session_id: str) -> ContextStatus:
        """See `Runner.status`."""
        return self._portal.run(self._runner.status(session_id))

    def close(self) -> None:
        """Close the store and stop the background loop."""
        self._portal.run(self._runner.close())
        self._portal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _next(events: AsyncGenerator[AnyStreamEvent, None]) -> AnyStreamEvent | None:
    return await anext(events, None)


async def _others_done() -> None:
    """Wait until everything else on this loop has ended: what was cancelled puts its things in order."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others)
