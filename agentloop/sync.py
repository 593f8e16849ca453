"""The runner without `await`: one small portal to an event loop in the background, not a second copy."""

from collections.abc import Callable, Coroutine, Iterable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from agentloop._plumbing.portal import Portal
from agentloop.approvals import Answers, Approver
from agentloop.callbacks import Callbacks
from agentloop.emitter import CALLBACK_SECONDS
from agentloop.redaction import Redact
from agentloop.results import Output_co, RunResult
from agentloop.rules import Rules
from agentloop.run import Agent, Limits, Prompt
from agentloop.runner import Runner
from agentloop.sessions import Conversation, Leases, StoredSessions, WhenBusy
from agentloop.stores.base import SessionStore
from agentloop.stream import AnyStreamEvent

P = ParamSpec("P")
T = TypeVar("T")


def _without_await(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """The method of what an object here stands for (its `_awaited`), called through its portal."""

    @wraps(method)
    def called(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        portal: Portal = self._portal
        return portal.run(method(self._awaited, *args, **kwargs))

    return called


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
        self._awaited = Runner(
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
        return SyncSessions(self._awaited.sessions, self._portal)

    def __repr__(self) -> str:
        return f"Sync{self._awaited!r}"

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
        run = self._awaited.run(prompt, session_id=session_id, history=history, deps=deps, limits=limits)
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
        resuming = self._awaited.resume(session_id, answers=answers, deps=deps, limits=limits)
        return self._portal.run(resuming)

    pending = _without_await(Runner.pending)

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
        events = self._awaited.stream(
            prompt, session_id=session_id, history=history, answers=answers, deps=deps, limits=limits
        )
        return self._portal.each(events)

    compact = _without_await(Runner.compact)
    preview = _without_await(Runner.preview)
    undo = _without_await(Runner.undo)
    rewind = _without_await(Runner.rewind)
    events = _without_await(Runner.events)
    branches = _without_await(Runner.branches)
    status = _without_await(Runner.status)

    def close(self) -> None:
        """Cancel what other threads run, close the store and stop the background loop.

        What was cancelled raises `AgentLoopError` in its thread; its session can be resumed.
        """
        self._portal.close(self._awaited.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SyncSessions:
    """`StoredSessions`, method by method, without `await`."""

    def __init__(self, sessions: StoredSessions, portal: Portal) -> None:
        self._awaited = sessions
        self._portal = portal

    list = _without_await(StoredSessions.list)
    info = _without_await(StoredSessions.info)
    messages = _without_await(StoredSessions.messages)
    export = _without_await(StoredSessions.export)
    import_ = _without_await(StoredSessions.import_)
    rename = _without_await(StoredSessions.rename)
    fork = _without_await(StoredSessions.fork)
    search = _without_await(StoredSessions.search)
    delete = _without_await(StoredSessions.delete)
    sweep = _without_await(StoredSessions.sweep)
