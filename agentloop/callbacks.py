"""Your code at fixed points of a run: around calls of models and tools, around compactions, at each event.

First stand the replies (`Veto`, `Focus`, `Replace`, `Deny`), `Work` and the `Callbacks` to override, then
what is refused as one (`checked_callbacks`), then how those of one run are called (`CallbackList`). One that
raises or takes longer than its time limit is reported as a `CallbackFailed` event; it never replaces the
run's outcome and never loses a compaction.
"""

import asyncio
import copy
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from typing import Any, Literal, TypeAlias, TypeVar

from agentloop._plumbing.aio import (
    CANCEL_GRACE_SECONDS,
    DeadlineError,
    SelfCancelledError,
    WorkThread,
    call_sync_or_async,
    in_thread,
    in_turn,
    is_ctrl_c,
    within,
)
from agentloop._plumbing.checks import shown
from agentloop._plumbing.to_text import error_text, raised_at
from agentloop.errors import UsageError
from agentloop.messages import ToolCall
from agentloop.models import Answer, ModelRequest
from agentloop.prompts import CHECK_FAILED, DENIED
from agentloop.stream import (
    CallbackFailed,
    CompactionRequest,
    CompactionResult,
    Positioned,
    RunEnded,
    StreamEvent,
)

T = TypeVar("T")

MOST_FOCUS_CHARS = 4_000
"""So much may be asked of one summary; more would crowd out what is to be summarised."""


@dataclass(frozen=True, slots=True)
class Veto:
    """Do not compact now: the reason is what the result then says.

    Example:
        >>> from agentloop import Callbacks, compact_messages
        >>> class NotNow(Callbacks):
        ...     def before_compaction(self, request):
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
        >>> from agentloop import Callbacks, compact_messages
        >>> class Brief(Callbacks):
        ...     def before_compaction(self, request):
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


@dataclass(frozen=True, slots=True)
class Deny:
    """Do not run this call: the reason is what the model is told.

    Example:
        >>> Callbacks(before_tool=lambda call: Deny("not on Fridays") if call.name == "deploy" else None)
        Callbacks(before_tool)

    Raises:
        UsageError: the reason is no text.
    """

    reason: str

    def __post_init__(self) -> None:
        _text_of(self, self.reason)


def _text_of(reply: "Veto | Focus | Replace | Deny", value: object) -> str:
    if isinstance(value, str):
        return value
    raise UsageError(f"{type(reply).__name__} takes a text, not {type(value).__name__}")


CompactionReply: TypeAlias = Veto | Focus | Replace | None
"""What a `before_compaction` may return."""

ModelReply: TypeAlias = ModelRequest | Answer | None
ToolReply: TypeAlias = Deny | ToolCall | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What `around` stands around: a run, a call of a model or of a tool, a compaction.

    `name` is that of the model, the tool or the strategy, and of a run its model's. `asked` is what a model
    or a tool is asked. `carrier` is what came with a durable run, whose every worker has a work of its own;
    None in all else.
    """

    kind: Literal["run", "model", "tool", "compaction"]
    name: str
    session_id: str
    run_id: str
    asked: ModelRequest | ToolCall | None = None
    carrier: Mapping[str, str] | None = None


@dataclass(slots=True)
class WorkOutcome:
    """What a work came to, or the `error` that ended it.

    `value` is the `RunEnded` of a run, the `Answer` of a model, what a tool answered (`text` and `status`),
    or the `CompactionResult`.
    """

    value: Any = None
    error: BaseException | None = None


AroundReply: TypeAlias = Callable[[WorkOutcome], object] | None


class Callbacks:
    """Blank methods: override what you need, as plain functions or as coroutines.

    Functions may be given by the names of the methods instead: `Callbacks(before_tool=check)`.

    Plain functions run in threads, never on the event loop: in one of their own each time, `on_event` in one
    that this callback keeps for the whole run, one event after the other. The run waits for each of them; one
    that takes longer than its time limit is left to itself, and an `on_event` that did is shown no more
    events of this run. A coroutine is cancelled when its time is up; one that never awaits holds up
    everything, as anything on an event loop does.

    A subclass that overrides nothing is refused. So is one with a method that is nearly one of these, and one
    whose method does not take the arguments that it is called with. What failed stands in the run's
    result, and is a `CallbackFailed` event, a log line and a Python warning.

    Example:
        >>> from agentloop.compaction import compact_messages
        >>> class Watching(Callbacks):
        ...     def after_compaction(self, result: CompactionResult) -> None:
        ...         print(f"{result.strategy}: {result.status}")
        >>> chat = [{"role": "user", "content": "What of the invoice of May? " * 9} for _ in range(30)]
        >>> short = compact_messages(chat, window="8k", callbacks=[Watching()])
        KeepRecentFraction: done
    """

    def __init__(self, **functions: Callable[..., Any]) -> None:
        for name, function in functions.items():
            if name not in _METHODS or not callable(function):
                methods = ", ".join(_METHODS)
                raise UsageError(
                    f"Callbacks takes functions by the names of {methods}, not {name}={shown(function)}"
                )
            setattr(self, name, function)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(filter(vars(self).__contains__, _METHODS))})"

    def before_model(self, request: ModelRequest) -> "ModelReply | Awaitable[ModelReply]":
        """Called before the agent's model is asked.

        May give another request to send, or an `Answer` in its place: then nobody is asked. Both are for this
        once: the log, and what compaction counts, stay as they are.
        """

    def after_model(self, answer: Answer) -> Answer | Awaitable[Answer | None] | None:
        """Called with the agent's answer before it is stored; may give another in its place.

        Its text was shown by then, piece by piece.
        """

    def before_tool(self, call: ToolCall) -> "ToolReply | Awaitable[ToolReply]":
        """Called before a call of a tool is run.

        May deny it, or give the call with other arguments. Where this fails, the call is not run; so it is
        where it gives a call of another tool. The
        `compact` tool is no such call: `before_compaction` may veto what it asks for.
        """

    def after_tool(self, call: ToolCall, result: str) -> str | Awaitable[str | None] | None:
        """Called with the result of a call before it is stored; may give another in its place."""

    def before_compaction(self, request: CompactionRequest) -> CompactionReply | Awaitable[CompactionReply]:
        """Called before a compaction hides anything or shows it shortened, whatever the reason for it.

        May veto, focus or replace the summary. Layer one, which shows old results shortened before a request,
        is no compaction: it asks nobody, and a `ResultsCleared` event tells of it.
        """

    def after_compaction(self, result: CompactionResult) -> Awaitable[None] | None:
        """Called once the compaction stands in the log, or came to nothing: the status of the result says."""

    def on_event(self, event: StreamEvent) -> Awaitable[None] | None:
        """Called with each stream event."""

    def around(self, work: Work) -> AroundReply:
        """Called as a work begins; the function that it returns is called with what the work came to.

        Both are called at once, in the task that does the work: a context variable that is set here is seen
        by the work and by all that it begins. So both are plain functions that wait for nothing.
        """
        return None


_METHODS = [name for name in vars(Callbacks) if not name.startswith("_")]
_NEARLY = 0.85
"""How alike a name and a method are where it is taken for a slip, such as `before_compact`."""


def checked_callbacks(callbacks: Iterable[Callbacks]) -> tuple[Callbacks, ...]:
    """The callbacks given: any object with one of their methods is one, and those that it lacks are blank.

    Raises:
        UsageError: they are no list, or one of them is a class, has none of the methods, overrides none, has
            one that is nearly one of them, or one that does not take its one argument.
    """
    if isinstance(callbacks, Callbacks) or not isinstance(callbacks, Iterable):
        raise UsageError(f"callbacks must be a list of Callbacks objects, not {shown(callbacks)}")
    given = tuple(callbacks)
    for each in given:
        if isinstance(each, type):
            raise UsageError(f"callbacks takes objects, not classes: give {each.__name__}() instead")
        _check_called(each)
    return given


def _check_called(callback: Callbacks) -> None:
    """Refuse one that would never be called, or not where its author believes, or not as it is called."""
    kind = type(callback)
    names = {name for name in dir(kind) if not name.startswith("_")}
    own = {name for name in names if getattr(kind, name) is not getattr(Callbacks, name, None)}
    own |= {point for point in _METHODS if _is_given(callback, point)}
    for name in sorted(own.difference(_METHODS)):
        if slip := next((method for method in _METHODS if _is_slip(kind, name, method)), None):
            raise UsageError(
                f"{kind.__name__} has a method {name!r}, which nobody calls: did you mean {slip!r}?"
            )
    overridden = own.intersection(_METHODS)
    if not overridden and isinstance(callback, Callbacks):
        methods = ", ".join(_METHODS)
        raise UsageError(f"{kind.__name__} overrides none of {methods}: nothing of it would be called")
    if not overridden:
        raise UsageError(f"callbacks must be a list of Callbacks objects, with no {shown(callback)} in it")
    if inspect.iscoroutinefunction(callback.around if "around" in overridden else None):
        raise UsageError(f"{kind.__name__}.around must be a plain function: it is called at once")
    for point in sorted(overridden):
        _check_signature(callback, point)


def _is_slip(kind: type, name: str, method: str) -> bool:
    """Whether the name is nearly the method's; not where a class has both, since one then helps the other."""
    said, meant = name.replace("_", "").lower(), method.replace("_", "")
    if SequenceMatcher(None, said, meant).ratio() < _NEARLY:
        return False
    return not any({name, method} <= vars(each).keys() for each in kind.__mro__)


def _check_signature(callback: Callbacks, point: str) -> None:
    """Refuse what cannot be called with the arguments of that point, as far as can be seen before."""
    _, *arguments = inspect.signature(getattr(Callbacks, point)).parameters
    try:
        taken = inspect.signature(getattr(callback, point))
    except Exception:  # noqa: BLE001 — what only a call can tell is reported where it is called
        return
    try:
        taken.bind(*arguments)
    except TypeError:
        kind, many = type(callback).__name__, "one argument" if len(arguments) == 1 else "two arguments"
        names = ", ".join(arguments)
        if _is_given(callback, point):
            raise UsageError(f"the function for {point} must take {many}, ({names}), not {taken}") from None
        raise UsageError(
            f"{kind}.{point}{taken} must take {many}: write def {point}(self, {names})"
        ) from None


def _is_given(callback: object, point: str) -> bool:
    """Whether the point is a function that was given to it, and no method."""
    return point in getattr(callback, "__dict__", ())


_FAILED = object()
"""What stands for the answer of a callback that failed."""

Failed: TypeAlias = Callable[[CallbackFailed], Awaitable[None]]
"""Is told of a callback that failed."""


@dataclass(slots=True, kw_only=True)
class CallbackList:
    """The callbacks of one run, called in order, each within `limit_seconds`.

    Once the run is cancelled (`hurry`) each has `CANCEL_GRACE_SECONDS` at the most. `close` ends the threads
    that events are heard in; the end of the run does it too.
    """

    callbacks: tuple[Callbacks, ...]
    limit_seconds: float
    failed: Failed
    _listeners: "list[_Listener]" = field(init=False)

    def __post_init__(self) -> None:
        self._listeners = [_Listener(each) for each in self._overriding("on_event")]

    @asynccontextmanager
    async def around(self, work: Work) -> AsyncIterator[WorkOutcome]:
        """The callbacks that stand around this work are told of its beginning, and of its end in any case."""
        ends: list[tuple[Callbacks, Callable[[WorkOutcome], object]]] = []
        for callback in self._overriding("around"):
            end = await self._now(callback, functools.partial(callback.around, work))
            if callable(end):
                ends.append((callback, end))
            elif end is not None:
                await self._report(callback, "around", f"returned {shown(end)}: return a function or None")
        outcome = WorkOutcome()
        try:
            yield outcome
        except BaseException as error:  # whatever ended it is told; raised again
            outcome.error = error
            raise
        finally:
            for callback, end in reversed(ends):
                await self._now(callback, functools.partial(end, outcome))

    async def before_model(self, request: ModelRequest) -> ModelRequest | Answer:
        """What is to be sent, or the answer to take without sending anything."""
        for callback in self._overriding("before_model"):
            own = await in_thread(copy.deepcopy, request)  # its schemas are the agent's
            reply = await self._reply(callback, "before_model", own, kinds=(ModelRequest, Answer))
            if isinstance(reply, Answer):
                return reply
            request = reply if isinstance(reply, ModelRequest) else request
        return request

    async def after_model(self, answer: Answer) -> Answer:
        """The answer to store."""
        return await self._after("after_model", Answer, answer)

    async def before_tool(self, call: ToolCall) -> ToolCall | Deny:
        """The call to run, which has the id and the name of this one, or why none is run."""
        for callback in self._overriding("before_tool"):
            reply = await self._reply(callback, "before_tool", call, kinds=(ToolCall, Deny))
            if isinstance(reply, Deny):
                return Deny(DENIED.format(reason=reply.reason))
            if isinstance(reply, ToolCall) and reply.name != call.name:
                error = f"gave a call of {reply.name!r} for one of {call.name!r}: give other arguments alone"
                await self._report(callback, "before_tool", error)
                reply = _FAILED
            if reply is _FAILED:
                return Deny(CHECK_FAILED)
            call = replace(call, arguments=reply.arguments) if isinstance(reply, ToolCall) else call
        return call

    async def after_tool(self, call: ToolCall, result: str) -> str:
        """The result to store."""
        return await self._after("after_tool", str, result, call)

    async def _after(self, point: str, kind: type[T], value: T, *before: Any) -> T:
        """The value, or what callbacks give in its place; they are called with it behind the others."""
        for callback in self._overriding(point):
            reply = await self._reply(callback, point, *before, value, kinds=(kind,))
            value = reply if isinstance(reply, kind) else value
        return value

    async def _reply(self, callback: Callbacks, point: str, *arguments: Any, kinds: tuple[type, ...]) -> Any:
        """What the callback returns; `_FAILED` where it is of none of these kinds, which is reported."""
        reply = await self._call(callback, point, *arguments)
        if reply is None or reply is _FAILED:
            return reply
        if isinstance(reply, kinds):
            if not (fault := _fault_of(reply)):
                return reply
            await self._report(callback, point, fault)
            return _FAILED
        names = ", ".join("a text" if kind is str else f"{kind.__name__}(…)" for kind in kinds)
        await self._report(callback, point, f"returned {shown(reply)}: return {names} or None")
        return _FAILED

    async def before_compaction(self, request: CompactionRequest) -> list[Veto | Focus | Replace]:
        """What the callbacks ask for, in order; what is no reply is reported and passed over."""
        replies: list[Veto | Focus | Replace] = []
        asked = self._overriding("before_compaction")
        if asked:
            messages = await in_thread(lambda: tuple(map(_copy, request.messages)))
            request = replace(request, messages=messages)
        for callback in asked:
            reply = await self._reply(callback, "before_compaction", request, kinds=(Veto, Focus, Replace))
            replies += [reply] if isinstance(reply, Veto | Focus | Replace) else []
        return replies

    async def after_compaction(self, result: CompactionResult) -> None:
        """Tell all callbacks."""
        for callback in self._overriding("after_compaction"):
            await self._call(callback, "after_compaction", result)

    async def on_event(self, event: StreamEvent) -> None:
        """Show all callbacks the event, save those that took too long over an earlier one."""
        try:
            for listener in self._listeners:
                await self._show(listener, event)
        finally:
            if isinstance(event, RunEnded):
                self.close()

    def hurry(self) -> None:
        """From now on no callback may take longer than `CANCEL_GRACE_SECONDS`."""
        self.limit_seconds = min(self.limit_seconds, CANCEL_GRACE_SECONDS)

    def close(self) -> None:
        """End the threads of the listeners once they are through with what they have; returns at once."""
        for listener in self._listeners:
            listener.close()

    def _overriding(self, point: str) -> Sequence[Callbacks]:
        blank = getattr(Callbacks, point)
        return [
            each
            for each in self.callbacks
            if _is_given(each, point) or getattr(type(each), point, blank) is not blank
        ]

    async def _show(self, listener: "_Listener", event: StreamEvent) -> None:
        async with listener.turn:
            if not listener.is_cut_off:
                await self._call(listener.callback, "on_event", event, listener=listener)

    async def _call(
        self, callback: Callbacks, point: str, *arguments: Any, listener: "_Listener | None" = None
    ) -> Any:
        """What the callback answers; whatever else comes of it is reported, and the answer is `_FAILED`."""
        where = ""
        try:
            call = listener.call if listener else None
            asking = call_sync_or_async(getattr(callback, point), *arguments, call=call)
            return await within(asking, seconds=self.limit_seconds)
        except DeadlineError:
            error = f"took longer than {self.limit_seconds:g} s"
            if listener:
                listener.is_cut_off = True
                error += ": it is shown no more events of this run"
        except SelfCancelledError as own:
            error = str(own)
        except Exception as raised:  # noqa: BLE001 — whatever a user's callback raises is an event
            error, where = error_text(raised), raised_at(raised)
        await self._report(callback, point, error, where)
        return _FAILED

    async def _now(self, callback: Callbacks, function: Callable[[], object]) -> object:
        """What the function gives, called here and now; None where it raised, which is reported."""
        try:
            return function()
        except BaseException as error:  # whatever a user's callback raises is an event
            if is_ctrl_c(error):
                raise
            await self._report(callback, "around", error_text(error), raised_at(error))
        return None

    async def _report(self, callback: Callbacks, point: str, error: str, where: str = "") -> None:
        name = type(callback).__name__
        await self.failed(CallbackFailed(callback=name, point=point, error=error, where=where))


class _Listener:
    """A callback that is shown events; a plain function in a thread of its own, in turn."""

    def __init__(self, callback: Callbacks) -> None:
        self.callback = callback
        self.is_cut_off = False
        later = inspect.iscoroutinefunction(getattr(callback, "on_event", None))
        self.turn: AbstractAsyncContextManager[Any] = nullcontext() if later else asyncio.Lock()
        self._thread: WorkThread | None = None

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        if self._thread is None:
            self._thread = WorkThread("agentloop-callback")
        return await in_turn(self._thread, function, *arguments)

    def close(self) -> None:
        if self._thread:
            self._thread.stop()
            self._thread = None


def _fault_of(reply: object) -> str:
    """What is wrong with a reply, though it is of a right kind; empty for nothing."""
    if isinstance(reply, Answer) and reply.message.role != "assistant":
        return f"returned an answer of the role {reply.message.role}: give Message.assistant(…)"
    if isinstance(reply, ToolCall) and not isinstance(reply.arguments, str):
        return f"returned arguments that are no text of JSON: {shown(reply.arguments)}"
    return ""


def _copy(each: Positioned) -> Positioned:
    """The message with parts and fields of its own, which a callback may change without harm."""
    message = each.message
    shared = isinstance(message.content, tuple) or message.extra or message.tool_calls
    return replace(each, message=copy.deepcopy(message)) if shared else each
