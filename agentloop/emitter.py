"""Shows a run's events: to the stream's reader, to callbacks, and to the host's log.

Where the host has configured structlog, each event of a run but its text deltas becomes one log line; where
it has not, those that are warnings do, in standard logging.
"""

import asyncio
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, TypeAlias, TypeVar

from agentloop._plumbing.host_logging import Level, logs_at
from agentloop._plumbing.to_text import strict
from agentloop.callbacks import CallbackList, Callbacks, Work, WorkOutcome
from agentloop.events import ModelCalled
from agentloop.messages import ToolCall
from agentloop.models import Answer, ChatModel, ModelRequest, OnPart, PassingPart, Retry, call_model
from agentloop.stream import (
    AnyStreamEvent,
    CallbackFailed,
    CallRepeated,
    CompactionEnded,
    CompactionSkipped,
    CompactionStarted,
    ContextWarning,
    MessageAdded,
    OutputDelta,
    ResultsCleared,
    Retrying,
    RunEnded,
    RunStarted,
    RunStatus,
    TextDelta,
    ToolProgress,
    event_type,
    to_json,
)

T = TypeVar("T")

Sink: TypeAlias = Callable[[AnyStreamEvent], None]
"""Takes the events of a run."""

CALLBACK_SECONDS = 30.0
"""The time limit of one callback, unless the runner is given another."""

_MAKES_TEXT_VOID = (CompactionStarted, ResultsCleared, Retrying, RunEnded)
"""What follows text that never became a message."""


def drop_event(event: AnyStreamEvent) -> None:
    """A sink for what nobody watches."""


class HoldsText(Protocol):
    """Holds back what of a text in pieces may still become a secret."""

    def add(self, piece: str) -> str:
        """What can be shown with this piece; it is often nothing."""
        ...

    def rest(self) -> str:
        """What is left, now that nothing follows."""
        ...

    def drop(self) -> None:
        """Forget what is held back."""
        ...


class Hides(Protocol):
    """Takes secrets out of all that a run says."""

    def hide(self, value: T) -> T:
        """The value without the secrets in it, itself where it has none."""
        ...

    def hide_or_say_why(self, value: T) -> T:
        """The same; where that fails, the words of the error stand for every text."""
        ...

    def hide_in(self, error: BaseException) -> None:
        """Take the secrets out of what an error says, in place."""
        ...

    def held(self) -> HoldsText | None:
        """What holds back a text in pieces, None where all can be shown at once."""
        ...


@dataclass(slots=True)
class Emitter:
    """Shows one run's events: `sink` takes each at once, callbacks are awaited after it.

    What is shown is without what `redaction` hides. Of an answer's text what may still become a secret is
    held back until more of it is there, at the latest until the answer stands in the log.
    """

    session_id: str
    run_id: str
    sink: Sink
    redaction: Hides
    callbacks: tuple[Callbacks, ...] = ()
    limit_seconds: float = CALLBACK_SECONDS
    callback_list: CallbackList = field(init=False)
    failures: list[CallbackFailed] = field(default_factory=list, init=False)
    """The callbacks that failed so far, one that is shown events once for each kind of error."""
    _held: HoldsText | None = field(default=None, init=False)
    _reported: set[tuple[str, str]] = field(default_factory=set, init=False)
    _beside: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    _ended: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._held = self.redaction.held()
        self.callback_list = CallbackList(
            callbacks=self.callbacks, limit_seconds=self.limit_seconds, failed=self._failed
        )

    def hide(self, value: T) -> T:
        """The value without the secrets in it: as it is stored, and as the model sees it."""
        return self.redaction.hide(value)

    def hide_in(self, error: BaseException) -> None:
        """Take the secrets out of what an error says, in place."""
        self.redaction.hide_in(error)

    async def emit(self, event: AnyStreamEvent) -> None:
        """Show the event, its session, run and time filled in; nothing is shown after `RunEnded`."""
        if isinstance(event, RunEnded):
            await self._end(event.status)
        for each in self._due(event) if self._held else (event,):
            shown = self._show(each)
            if isinstance(shown, CompactionEnded) and _went_wrong(shown):
                outcome = "failed" if shown.status == "failed" else "is done by other means"
                _warn(f"the compaction by {shown.strategy} {outcome}: {shown.error}")
            if self.callbacks:
                await self.callback_list.on_event(shown)

    def emit_beside(self, event: AnyStreamEvent) -> None:
        """Show the event while the run goes on with something else; dropped once the run has ended."""
        if self._ended:
            return
        event = self._show(self.redaction.hide_or_say_why(event))
        if self.callbacks:
            task = asyncio.create_task(self.callback_list.on_event(event))
            self._beside.add(task)
            task.add_done_callback(self._beside.discard)

    def around(
        self,
        kind: Literal["run", "model", "tool", "compaction"],
        name: str,
        asked: ModelRequest | ToolCall | None = None,
        *,
        carrier: Mapping[str, str] | None = None,
    ) -> AbstractAsyncContextManager[WorkOutcome]:
        """The callbacks that stand `around` this work, whose outcome is to be set in the block."""
        work = Work(
            kind=kind,
            name=name,
            session_id=self.session_id,
            run_id=self.run_id,
            asked=asked,
            carrier=carrier,
        )
        return self.callback_list.around(work)

    async def ask(
        self, model: ChatModel, request: ModelRequest, *, counted: int, on_part: OnPart | None = None
    ) -> tuple[Answer, ModelCalled]:
        """One call of a model, see `call_model`; without `on_part` its retries are shown, and no text.

        Where there are callbacks, secrets are taken out of the answer.
        """
        async with self.around("model", model.name, request) as outcome:
            on_part = on_part or self.emit_retry
            answer, called = await call_model(model, request, counted=counted, on_part=on_part)
            if self.callbacks:
                answer = replace(answer, message=self.hide(answer.message))
            outcome.value = answer
        return answer, called

    async def emit_retry(self, part: PassingPart) -> None:
        """Show that a request is tried again; other parts are passed over."""
        if isinstance(part, Retry):
            await self.emit(Retrying(attempt=part.attempt, wait_seconds=part.wait_seconds, error=part.error))

    async def _end(self, status: RunStatus) -> None:
        self._ended = True
        if status == "interrupted":
            self.callback_list.hurry()
            for task in self._beside:
                task.cancel()
        await asyncio.gather(*self._beside, return_exceptions=True)

    def _due(self, event: AnyStreamEvent) -> Iterator[AnyStreamEvent]:
        """What is to be shown now that this is said: text that was held back before it, or not yet all."""
        assert self._held
        text = ""
        if isinstance(event, TextDelta):
            text = self._held.add(event.text)
        elif isinstance(event, MessageAdded) and event.message.role == "assistant":
            text = self._held.rest()
        elif isinstance(event, _MAKES_TEXT_VOID):
            self._held.drop()
        if text:
            yield TextDelta(text=text)
        if isinstance(event, RunEnded):
            yield self.redaction.hide_or_say_why(event)
        elif not isinstance(event, TextDelta | OutputDelta):
            yield self.hide(event)

    def _show(self, event: AnyStreamEvent) -> AnyStreamEvent:
        event = replace(event, session_id=self.session_id, run_id=self.run_id, time=time.time())
        log_event(event)
        self.sink(event)
        return event

    async def _failed(self, failed: CallbackFailed) -> None:
        event = self.hide(failed)
        if event.point != "on_event":
            self._note_failure(event)
            await self.emit(event)
        elif (kind := (event.callback, failed.error.partition(":")[0])) not in self._reported:
            self._reported.add(kind)
            self._note_failure(event)
            self._show(event)

    def _note_failure(self, event: CallbackFailed) -> None:
        known = {(each.callback, each.point) for each in self.failures}
        self.failures.append(replace(event, session_id=self.session_id, run_id=self.run_id, time=time.time()))
        if (event.callback, event.point) not in known:
            at = f" at {event.where}" if event.where else ""
            _warn(f"the callback {event.callback} failed in {event.point}{at}: {event.error}")


def _warn(text: str) -> None:
    """A Python warning; where these are errors, too, it never ends a run."""
    with suppress(RuntimeWarning):
        warnings.warn(strict(text), RuntimeWarning, stacklevel=2)


_NOTEWORTHY = (CallRepeated, CompactionEnded, CompactionSkipped, CompactionStarted, RunEnded, RunStarted)
_LEFT_OUT = frozenset({"type", "time", "message", "output", "arguments"})


def log_event(event: AnyStreamEvent) -> None:
    """Log the event where the host listens; what was said stays out, also by a tool while it runs."""
    log = None if isinstance(event, TextDelta | OutputDelta) else logs_at(_level(event))
    if log is None:
        return
    left_out = _LEFT_OUT | {"text"} if isinstance(event, ToolProgress) else _LEFT_OUT
    fields = {name: value for name, value in to_json(event).items() if name not in left_out}
    log(event_type(event), **fields)


def _level(event: AnyStreamEvent) -> Level:
    match event:
        case ContextWarning(level="none") | ContextWarning(of="threshold"):  # what compaction is for
            return "info"
        case CallbackFailed() | ContextWarning() | Retrying():
            return "warning"
        case CompactionEnded() if _went_wrong(event):
            return "warning"
    return "info" if isinstance(event, _NOTEWORTHY) else "debug"


def _went_wrong(event: CompactionEnded) -> bool:
    """Whether it failed, or was done by other means than it was to be."""
    return event.status in ("done", "failed") and event.error is not None
