"""The runner without `await`: one small portal to an event loop in the background, not a second copy."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, Self

from agentloop._plumbing.portal import Portal
from agentloop.callbacks import Callbacks
from agentloop.emitter import CALLBACK_SECONDS
from agentloop.events import EventFilter, Record
from agentloop.messages import Message
from agentloop.redaction import Redact
from agentloop.results import CompactionPreview, Output_co, RunResult
from agentloop.run import Agent, Limits
from agentloop.runner import Runner
from agentloop.sessions import Leases, WhenBusy
from agentloop.stores.base import SessionInfo, SessionStore
from agentloop.strategies import Strategy
from agentloop.stream import AnyStreamEvent, CompactionResult, ContextStatus
from agentloop.triggers import Trigger


class SyncRunner(Generic[Output_co]):
    """`Runner`, method by method, without `await`. It takes what `Runner` takes.

    Closing it stops its loop; it is a context manager for that. One that was made before a fork works on both
    sides of it, each with a loop of its own.
    """

    def __init__(
        self,
        agent: Agent[Output_co],
        *,
        store: str | SessionStore = "memory:",
        callbacks: Iterable[Callbacks] = (),
        transcripts: Path | str | None = Path(".transcripts"),
        folder: str | None = None,
        callback_seconds: float = CALLBACK_SECONDS,
        redact: Redact | None = None,
        when_busy: WhenBusy | Leases = "refuse",
        owner: str | None = None,
        ttl_seconds: float | None = None,
    ) -> None:
        self._runner = Runner(
            agent,
            store=store,
            callbacks=callbacks,
            transcripts=transcripts,
            folder=folder,
            callback_seconds=callback_seconds,
            redact=redact,
            when_busy=when_busy,
            owner=owner,
            ttl_seconds=ttl_seconds,
        )
        self._portal = Portal()

    def __repr__(self) -> str:
        return f"Sync{self._runner!r}"

    def run(
        self,
        prompt: str | Message,
        *,
        session_id: str | None = None,
        deps: Any = None,
        limits: Limits | None = None,
    ) -> RunResult[Output_co]:
        """See `Runner.run`."""
        return self._portal.run(self._runner.run(prompt, session_id=session_id, deps=deps, limits=limits))

    def resume(
        self, session_id: str, *, deps: Any = None, limits: Limits | None = None
    ) -> RunResult[Output_co]:
        """See `Runner.resume`."""
        return self._portal.run(self._runner.resume(session_id, deps=deps, limits=limits))

    def stream(
        self,
        prompt: str | Message | None,
        *,
        session_id: str | None = None,
        deps: Any = None,
        limits: Limits | None = None,
    ) -> Iterator[AnyStreamEvent]:
        """See `Runner.stream`; leaving the iteration cancels the run.

        It ends where it began: a child of a fork leaves one of its parent alone, and is refused it.
        """
        return self._portal.each(self._runner.stream(prompt, session_id=session_id, deps=deps, limits=limits))

    def compact(
        self,
        session_id: str,
        *,
        focus: str | None = None,
        trigger: Trigger | None = None,
        strategy: Strategy | None = None,
    ) -> CompactionResult:
        """See `Runner.compact`."""
        return self._portal.run(
            self._runner.compact(session_id, focus=focus, trigger=trigger, strategy=strategy)
        )

    def preview(self, session_id: str, *, strategy: Strategy | None = None) -> CompactionPreview | None:
        """See `Runner.preview`."""
        return self._portal.run(self._runner.preview(session_id, strategy=strategy))

    def undo(self, session_id: str) -> int | None:
        """See `Runner.undo`."""
        return self._portal.run(self._runner.undo(session_id))

    def rewind(self, session_id: str, *, turns: int = 1) -> int:
        """See `Runner.rewind`."""
        return self._portal.run(self._runner.rewind(session_id, turns=turns))

    def events(self, session_id: str, *, only: EventFilter | None = None) -> list[Record]:
        """See `Runner.events`."""
        return self._portal.run(self._runner.events(session_id, only=only))

    def branches(self, session_id: str) -> Sequence[SessionInfo]:
        """See `Runner.branches`."""
        return self._portal.run(self._runner.branches(session_id))

    def status(self, session_id: str) -> ContextStatus:
        """See `Runner.status`."""
        return self._portal.run(self._runner.status(session_id))

    def close(self) -> None:
        """Cancel what other threads run, close the store and stop the background loop.

        What was cancelled raises `AgentLoopError` in its thread; its session can be resumed.
        """
        self._portal.close(self._runner.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
