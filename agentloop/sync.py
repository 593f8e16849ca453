"""The runner without `await`: one small portal to an event loop in the background, not a second copy."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, Self

from agentloop._plumbing.portal import Portal
from agentloop.approvals import Answers, Approver, Pending
from agentloop.callbacks import Callbacks
from agentloop.emitter import CALLBACK_SECONDS
from agentloop.events import EventFilter, Record
from agentloop.messages import Message
from agentloop.redaction import Redact
from agentloop.results import CompactionPreview, Output_co, RunResult
from agentloop.rules import Rules
from agentloop.run import Agent, Limits, Prompt
from agentloop.runner import Runner
from agentloop.sessions import Conversation, ExportFormat, Leases, StoredSessions, WhenBusy
from agentloop.stores.base import Found, SessionInfo, SessionStore
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
        approver: Approver | None = None,
        rules: Rules | None = None,
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
            approver=approver,
            rules=rules,
        )
        self._portal = Portal()

    @property
    def sessions(self) -> "SyncSessions":
        """See `Runner.sessions`."""
        return SyncSessions(self._runner.sessions, self._portal)

    def __repr__(self) -> str:
        return f"Sync{self._runner!r}"

    def run(
        self,
        prompt: Prompt,
        *,
        session_id: str | None = None,
        history: Conversation = (),
        deps: Any = None,
        limits: Limits | None = None,
    ) -> RunResult[Output_co]:
        """See `Runner.run`."""
        run = self._runner.run(prompt, session_id=session_id, history=history, deps=deps, limits=limits)
        return self._portal.run(run)

    def resume(
        self,
        session_id: str,
        *,
        answers: Answers | None = None,
        deps: Any = None,
        limits: Limits | None = None,
    ) -> RunResult[Output_co]:
        """See `Runner.resume`."""
        resuming = self._runner.resume(session_id, answers=answers, deps=deps, limits=limits)
        return self._portal.run(resuming)

    def pending(self, session_id: str) -> tuple[Pending, ...]:
        """See `Runner.pending`."""
        return self._portal.run(self._runner.pending(session_id))

    def stream(
        self,
        prompt: Prompt | None,
        *,
        session_id: str | None = None,
        history: Conversation = (),
        answers: Answers | None = None,
        deps: Any = None,
        limits: Limits | None = None,
    ) -> Iterator[AnyStreamEvent]:
        """See `Runner.stream`; leaving the iteration cancels the run.

        It ends where it began: a child of a fork leaves one of its parent alone, and is refused it.
        """
        events = self._runner.stream(
            prompt, session_id=session_id, history=history, answers=answers, deps=deps, limits=limits
        )
        return self._portal.each(events)

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


class SyncSessions:
    """`StoredSessions`, method by method, without `await`."""

    def __init__(self, sessions: StoredSessions, portal: Portal) -> None:
        self._sessions = sessions
        self._portal = portal

    def list(self, *, folder: str | None = None) -> Sequence[SessionInfo]:
        """See `StoredSessions.list`."""
        return self._portal.run(self._sessions.list(folder=folder))

    def info(self, session_id: str) -> SessionInfo:
        """See `StoredSessions.info`."""
        return self._portal.run(self._sessions.info(session_id))

    def messages(self, session_id: str, *, shown: bool = False) -> Sequence[Message]:
        """See `StoredSessions.messages`."""
        return self._portal.run(self._sessions.messages(session_id, shown=shown))

    def export(
        self, session_id: str, *, format: ExportFormat = "openai", only: EventFilter | None = None
    ) -> str:
        """See `StoredSessions.export`."""
        return self._portal.run(self._sessions.export(session_id, format=format, only=only))

    def import_(self, conversation: Conversation, *, session_id: str | None = None) -> str:
        """See `StoredSessions.import_`."""
        return self._portal.run(self._sessions.import_(conversation, session_id=session_id))

    def rename(self, session_id: str, title: str) -> None:
        """See `StoredSessions.rename`."""
        self._portal.run(self._sessions.rename(session_id, title))

    def fork(self, session_id: str, *, at: int | None = None, new_id: str | None = None) -> str:
        """See `StoredSessions.fork`."""
        return self._portal.run(self._sessions.fork(session_id, at=at, new_id=new_id))

    def search(
        self, words: str, *, session_id: str | None = None, folder: str | None = None, most: int = 50
    ) -> Sequence[Found]:
        """See `StoredSessions.search`."""
        return self._portal.run(self._sessions.search(words, session_id=session_id, folder=folder, most=most))

    def delete(self, session_id: str, *, force: bool = False, keep_files: bool = False) -> None:
        """See `StoredSessions.delete`."""
        self._portal.run(self._sessions.delete(session_id, force=force, keep_files=keep_files))

    def sweep(self, *, now: float | None = None) -> Sequence[SessionInfo]:
        """See `StoredSessions.sweep`."""
        return self._portal.run(self._sessions.sweep(now=now))
