"""Your code at fixed points of a run: before and after each compaction, and at each stream event.

A callback that raises or takes longer than its time limit is reported as a `CallbackFailed` event; it
never replaces the run's outcome and never loses a compaction.
"""

import asyncio
import copy
import inspect
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from agentloop.errors import UsageError
from agentloop.events import Ranges
from agentloop.filters import EventFilter
from agentloop.messages import Message, Usage
from agentloop.plain_values import error_text
from agentloop.stream import CompactionReason, CompactionStatus, Level, StreamEvent, level_of
from agentloop.threads import DeadlineError, SelfCancelledError, in_thread, within


@dataclass(frozen=True, slots=True, kw_only=True)
class Positioned:
    """A message as the log holds it, its position, and the run that it was said in."""

    seq: int
    message: Message
    run_id: str = ""


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

    def select(self, only: EventFilter) -> tuple[Positioned, ...]:
        """The messages about to go that the filter takes; all of them stand on the main line."""
        return tuple(
            each
            for each in self.messages
            if only.takes(seq=each.seq, kind="message_added", branch=None, run_id=each.run_id)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    """What a compaction came to; sizes in tokens, of the next request by one and the same measure.

    `tier` is the rung of the ladder: 0 results cleared, 1 a summary, 2 one with a smaller tail, 3 no model's
    text (a digest or a note), 4 what was left shortened. `archived` are the positions it hides, `compacted`
    how many messages of the log are among them that no earlier one hid, `shortened` the positions that are
    shown shortened, `lost` the identifiers of what is hidden that are no longer in sight, `unread` the
    positions for which no summary stands: more than the summariser could read, or dropped by the strategy.
    `error` says what went wrong, also where a compaction was done by other means than the strategy asked for.
    `usage` and `cost` (US dollars) are what its requests took, also where it failed, and `unreported` is what
    those took whose answers reported nothing, by our own count. `seq` is the position of its record where
    it was done, and what `undo` takes back.
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
    unread: tuple[int, ...] = ()
    error: str | None = None
    usage: Usage = field(default_factory=Usage)
    unreported: Usage = field(default_factory=Usage)
    cost: float | None = None
    seq: int | None = None
    compacted: int = 0
    shortened: tuple[int, ...] = ()
    window: int = 0

    @property
    def tokens_saved(self) -> int:
        """By so much the next request is smaller."""
        return self.tokens_before - self.tokens_after

    @property
    def events_removed(self) -> int:
        """By so many messages the context is shorter."""
        return self.messages_before - self.messages_after

    @property
    def level(self) -> Level:
        """How full the window is after it: none under 80 %, warning to 90 %, critical above."""
        return level_of(self.tokens_after, self.window)


MOST_FOCUS_CHARS = 4_000
"""So much may be asked of one summary; more would crowd out what is to be summarised."""


@dataclass(frozen=True, slots=True)
class Veto:
    """Do not compact now. Raises `UsageError` where the reason is no text."""

    reason: str

    def __post_init__(self) -> None:
        _text_of(self, self.reason)


@dataclass(frozen=True, slots=True)
class Focus:
    """More to ask of the summary: at most `MOST_FOCUS_CHARS` characters, else `UsageError`."""

    text: str

    def __post_init__(self) -> None:
        if (length := len(_text_of(self, self.text))) > MOST_FOCUS_CHARS:
            raise UsageError(
                f"Focus takes at most {MOST_FOCUS_CHARS:,} characters, not {length:,}: ask for less"
            )


@dataclass(frozen=True, slots=True)
class Replace:
    """Use this text as the summary; the model is not asked. `UsageError` where it is blank or no text."""

    summary: str

    def __post_init__(self) -> None:
        if not _text_of(self, self.summary).strip():
            raise UsageError("Replace takes a summary that says something: return a Veto to keep everything")


def _text_of(reply: "Veto | Focus | Replace", value: object) -> str:
    if isinstance(value, str):
        return value
    raise UsageError(f"{type(reply).__name__} takes a text, not {type(value).__name__}")


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
        request = replace(request, messages=tuple(map(_copied, request.messages)))
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
        """What the callback answers; whatever else comes of it is reported, and the answer is None."""
        try:
            return await self._answer(callback, point, argument)
        except DeadlineError:
            await self._report(callback, point, f"took longer than {self.limit_seconds:g} s")
        except SelfCancelledError as error:
            await self._report(callback, point, str(error))
        except _RaisedError as error:
            await self._report(callback, point, error_text(error.raised))
        return None

    async def _answer(self, callback: Callbacks, point: str, argument: Any) -> Any:
        method = _called(getattr, callback, point)
        if point != "on_event" and not inspect.iscoroutinefunction(method):
            return await self._within(_in_thread(method, argument))
        answer = _called(method, argument)
        return await self._within(answer) if inspect.isawaitable(answer) else answer

    async def _within(self, answer: Awaitable[Any]) -> Any:
        return await within(_awaited(answer), seconds=self.limit_seconds)

    async def _report(self, callback: Callbacks, point: str, error: str) -> None:
        await self.failed(type(callback).__name__, point, error)


class _RaisedError(Exception):
    """Holds what a callback raised: bare, a `SystemExit` would end the event loop, others the run."""

    def __init__(self, raised: BaseException) -> None:
        super().__init__()
        self.raised = raised


def _copied(each: Positioned) -> Positioned:
    """The message with parts and fields of its own, which a callback may change without harm."""
    message = each.message
    shared = isinstance(message.content, tuple) or message.extra or message.tool_calls
    return replace(each, message=copy.deepcopy(message)) if shared else each


def _called(method: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return method(*arguments)
    except BaseException as error:  # whatever a user's callback raises is an event
        raise _held(error) from error


async def _in_thread(method: Callable[[Any], Any], argument: Any) -> Any:
    answer = await in_thread(_called, method, argument)
    return await answer if inspect.isawaitable(answer) else answer


async def _awaited(answer: Awaitable[Any]) -> Any:
    try:
        return await answer
    except (asyncio.CancelledError, GeneratorExit, _RaisedError):
        raise  # `within` knows whose they are
    except BaseException as error:  # whatever a user's callback raises is an event
        raise _held(error) from error


def _held(error: BaseException) -> BaseException:
    """The error held, save a Ctrl-C: only the main thread gets one."""
    main = threading.current_thread() is threading.main_thread()
    return error if isinstance(error, KeyboardInterrupt) and main else _RaisedError(error)
