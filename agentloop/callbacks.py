"""Your code at fixed points of a run: before and after each compaction, and at each stream event.

A callback that raises or takes longer than its time limit is reported as a `CallbackFailed` event; it
never replaces the run's outcome and never loses a compaction.
"""

import asyncio
import copy
import inspect
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from agentloop.compactions import CompactionRequest, CompactionResult, Positioned
from agentloop.errors import UsageError
from agentloop.plain_values import error_text
from agentloop.stream import StreamEvent
from agentloop.threads import DeadlineError, SelfCancelledError, in_thread, within

MOST_FOCUS_CHARS = 4_000
"""So much may be asked of one summary; more would crowd out what is to be summarised."""


@dataclass(frozen=True, slots=True)
class Veto:
    """Do not compact now: the reason is what the result then says.

    Example:
        >>> from agentloop.compaction import compact_messages
        >>> class NotNow(Callbacks):
        ...     def before_compaction(self, request: CompactionRequest) -> Reply:
        ...         return Veto("a migration runs")
        >>> chat = [{"role": "user", "content": "What of the invoice of May? " * 9} for _ in range(30)]
        >>> compact_messages(chat, window="8k", callbacks=[NotNow()]).results[0].error
        'a migration runs'

    Raises:
        UsageError: the reason is no text.
    """

    reason: str

    def __post_init__(self) -> None:
        _text_of(self, self.reason)


@dataclass(frozen=True, slots=True)
class Focus:
    """More to ask of the summary, beside what a person or the model asked of it.

    Example:
        >>> Focus("keep every ticket number").text
        'keep every ticket number'

    Raises:
        UsageError: the text is none, or longer than `MOST_FOCUS_CHARS` characters.
    """

    text: str

    def __post_init__(self) -> None:
        if (length := len(_text_of(self, self.text))) > MOST_FOCUS_CHARS:
            raise UsageError(
                f"Focus takes at most {MOST_FOCUS_CHARS:,} characters, not {length:,}: ask for less"
            )


@dataclass(frozen=True, slots=True)
class Replace:
    """Use this text as the summary; the model is not asked.

    Example:
        >>> from agentloop.compaction import compact_messages
        >>> class Brief(Callbacks):
        ...     def before_compaction(self, request: CompactionRequest) -> Reply:
        ...         return Replace("All about the invoice of May.")
        >>> chat = [{"role": "user", "content": "What of the invoice of May? " * 9} for _ in range(30)]
        >>> short = compact_messages(chat, window="8k", callbacks=[Brief()])
        >>> "All about the invoice of May." in short.results[0].summary
        True

    Raises:
        UsageError: the summary is blank or no text.
    """

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

    Example:
        >>> from agentloop.compaction import compact_messages
        >>> class Watching(Callbacks):
        ...     def after_compaction(self, result: CompactionResult) -> None:
        ...         print(f"{result.strategy}: {result.status}")
        >>> chat = [{"role": "user", "content": "What of the invoice of May? " * 9} for _ in range(30)]
        >>> short = compact_messages(chat, window="8k", callbacks=[Watching()])
        KeepRecentFraction: done
    """

    def before_compaction(self, request: CompactionRequest) -> Reply | Awaitable[Reply]:
        """Called before anything is hidden or shown shortened; may veto, focus or replace the summary."""

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
