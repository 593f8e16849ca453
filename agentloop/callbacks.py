"""Your code at fixed points of a run: before and after each compaction, and at each stream event.

A callback that raises or takes longer than its time limit is reported as a `CallbackFailed` event; it
never replaces the run's outcome and never loses a compaction.
"""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from agentloop.events import Ranges
from agentloop.messages import Message, Usage
from agentloop.stream import CompactionReason, CompactionStatus, StreamEvent
from agentloop.threads import DeadlineError, in_thread, within


@dataclass(frozen=True, slots=True, kw_only=True)
class Positioned:
    """A message as the log holds it, and its position."""

    seq: int
    message: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionRequest:
    """What is about to be hidden, and why.

    `messages` are exactly those about to go, oldest first, untruncated; `tokens_before` is the size of
    the next request as it stands.
    """

    session_id: str
    run_id: str
    reason: CompactionReason
    why: str
    messages: tuple[Positioned, ...]
    tokens_before: int
    focus: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    """What a compaction came to; sizes in tokens.

    `tier` is the rung of the ladder: 1 a summary, 2 one with a smaller tail, 3 a digest without a model.
    `archived` are the positions it hides, `lost` the identifiers among them that are no longer in sight;
    `usage` and `cost` (US dollars) are what its requests took, also where it failed. `seq` is the position
    of its record where it was done, and what `undo` takes back.
    """

    status: CompactionStatus
    reason: CompactionReason
    why: str
    strategy: str
    tier: int
    tokens_before: int
    tokens_after: int
    messages_before: int
    messages_after: int
    archived: Ranges = ()
    transcript: str | None = None
    duration_seconds: float = 0.0
    summary: str = ""
    summary_tokens: int = 0
    lost: tuple[str, ...] = ()
    error: str | None = None
    usage: Usage = field(default_factory=Usage)
    cost: float | None = None
    seq: int | None = None


@dataclass(frozen=True, slots=True)
class Veto:
    """Do not compact now."""

    reason: str


@dataclass(frozen=True, slots=True)
class Focus:
    """More to ask of the summary."""

    text: str


@dataclass(frozen=True, slots=True)
class Replace:
    """Use this text as the summary; the model is not asked."""

    summary: str


Reply: TypeAlias = Veto | Focus | Replace | None


class Callbacks:
    """Blank methods: override what you need, as plain functions or as coroutines.

    `before_compaction` and `after_compaction` run in a thread when they are plain functions. A plain
    `on_event` runs on the event loop, before the run goes on: keep it short.
    """

    def before_compaction(self, request: CompactionRequest) -> Reply | Awaitable[Reply]:
        """Called before anything is hidden; may veto, focus or replace the summary."""

    def after_compaction(self, result: CompactionResult) -> Awaitable[None] | None:
        """Called once the compaction stands in the log."""

    def on_event(self, event: StreamEvent) -> Awaitable[None] | None:
        """Called with each stream event."""


Failed: TypeAlias = Callable[[str, str, str], Awaitable[None]]
"""Takes a callback's name, the point and the error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackList:
    """The callbacks of a runner, called in order, each within `limit_seconds`."""

    callbacks: tuple[Callbacks, ...]
    limit_seconds: float
    failed: Failed

    async def before_compaction(self, request: CompactionRequest) -> list[Veto | Focus | Replace]:
        """What the callbacks ask for, in order; what is no reply is reported and passed over."""
        replies: list[Veto | Focus | Replace] = []
        for callback in self._overriding("before_compaction"):
            reply = await self._call(callback, "before_compaction", request)
            if isinstance(reply, Veto | Focus | Replace):
                replies.append(reply)
            elif reply is not None:
                await self._report(callback, "before_compaction", f"returned {type(reply).__name__}")
        return replies

    async def after_compaction(self, result: CompactionResult) -> None:
        """Tell all callbacks."""
        for callback in self._overriding("after_compaction"):
            await self._call(callback, "after_compaction", result)

    async def on_event(self, event: StreamEvent) -> None:
        """Show all callbacks the event."""
        for callback in self._overriding("on_event"):
            await self._call(callback, "on_event", event)

    def _overriding(self, point: str) -> Sequence[Callbacks]:
        blank = getattr(Callbacks, point)
        return [each for each in self.callbacks if getattr(type(each), point, blank) is not blank]

    async def _call(self, callback: Callbacks, point: str, argument: Any) -> Any:
        method = getattr(callback, point)
        try:
            if point == "on_event":
                answer = _contained(method, argument)
                return await self._within(answer) if inspect.isawaitable(answer) else answer
            return await self._within(_called(method, argument))
        except DeadlineError:
            await self._report(callback, point, f"took longer than {self.limit_seconds:g} s")
        except Exception as error:  # noqa: BLE001 — whatever a user's callback raises is an event
            cause = error.__cause__ if isinstance(error, _ExitError) else error
            await self._report(callback, point, f"{type(cause).__name__}: {cause}")
        return None

    async def _within(self, answer: Awaitable[Any]) -> Any:
        return await within(_awaited(answer), seconds=self.limit_seconds)

    async def _report(self, callback: Callbacks, point: str, error: str) -> None:
        await self.failed(type(callback).__name__, point, error)


class _ExitError(Exception):
    """A callback wanted to end the program; on an event loop that would end the loop."""


def _contained(method: Callable[[Any], Any], argument: Any) -> Any:
    try:
        return method(argument)
    except SystemExit as error:
        raise _ExitError from error


async def _awaited(answer: Awaitable[Any]) -> Any:
    try:
        return await answer
    except SystemExit as error:
        raise _ExitError from error


async def _called(method: Callable[[Any], Any], argument: Any) -> Any:
    if inspect.iscoroutinefunction(method):
        return await method(argument)
    answer = await in_thread(_contained, method, argument)
    return await answer if inspect.isawaitable(answer) else answer
