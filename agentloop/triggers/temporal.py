"""Temporal triggers: time passed. Their clock is handed to them and gives seconds since the epoch.

A clock that was set back makes them fire late, never early: all they do is subtract two of its times.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from agentloop._plumbing.checks import above_zero, called
from agentloop.context import Budget, Context
from agentloop.triggers.base import Cause, Fired, last_compaction


@dataclass(frozen=True, slots=True)
class _Span:
    """So many seconds, by a clock that gives seconds since the epoch."""

    seconds: float
    clock: Callable[[], float] = field(default=time.time, repr=False, compare=False)

    def __post_init__(self) -> None:
        above_zero("seconds", self.seconds)
        called("clock", self.clock, "a function that gives seconds since the epoch")

    def _fired(self, passed: float, words: str, reason: Cause = "threshold") -> Fired | None:
        if not passed >= self.seconds:
            return None
        return Fired(f"{_figure(passed)} seconds {words} >= {_figure(self.seconds)}", reason)


@dataclass(frozen=True, slots=True)
class Every(_Span):
    """Fires when so many seconds have passed since the last compaction; before one, since the first message.

    Example:
        >>> from agentloop.events import MessageAdded, Record
        >>> from agentloop.messages import Message
        >>> asked = MessageAdded(message=Message.user("hi"), tokens=8, time=1_000.0)
        >>> context = Context.of([Record(seq=1, event=asked)])
        >>> budget = Budget(window=8_000, fixed=100, model="m")
        >>> Every(600, clock=lambda: 1_600.0)(context, budget)
        Fired(why='600 seconds since the first message >= 600', reason='threshold')
        >>> Every(600, clock=lambda: 1_599.0)(context, budget)

    Raises:
        UsageError: `seconds` is not above 0, or the clock cannot be called.
    """

    def __call__(self, context: Context, budget: Budget, /) -> Fired | None:
        if context.first is None:
            return None
        begun, words = context.first.time, "since the first message"
        if context.compactions:
            begun, words = context.compactions[-1][1].time, "since the last compaction"
        return self._fired(self.clock() - begun, words)


@dataclass(frozen=True, slots=True)
class Idle(_Span):
    """Fires when nothing was said for so many seconds, with the reason `idle`.

    Where the newest message is a user's, the pause before it counts too: the provider's prompt cache is cold
    anyway, so compaction costs nothing of it. A pause in which a compaction was done counts no more.

    Example:
        >>> from agentloop.events import MessageAdded, Record
        >>> from agentloop.messages import Message
        >>> answer = MessageAdded(message=Message.assistant("done"), tokens=8, time=1_000.0)
        >>> context = Context.of([Record(seq=1, event=answer)])
        >>> budget = Budget(window=8_000, fixed=100, model="m")
        >>> Idle(600, clock=lambda: 4_700.0)(context, budget)
        Fired(why='3,700 seconds without a message >= 600', reason='idle')
        >>> Idle(600, clock=lambda: 1_030.0)(context, budget)

    Raises:
        UsageError: `seconds` is not above 0, or the clock cannot be called.
    """

    def __call__(self, context: Context, budget: Budget, /) -> Fired | None:
        pauses = _pauses(context, self.clock())
        answers = (self._fired(passed, "without a message", "idle") for passed in pauses)
        return next(filter(None, answers), None)


def _pauses(context: Context, now: float) -> Iterator[float]:
    """The seconds since the newest message, and before it where it is a user's."""
    compacted = last_compaction(context)
    newest, before = context.said[-1:], context.said[-2:-1]
    for entry in newest:
        if entry.seq > compacted:
            yield now - entry.time
        yield from (entry.time - other.time for other in before if entry.is_user and other.seq > compacted)


def _figure(seconds: float) -> str:
    return f"{seconds:,.3f}".rstrip("0").rstrip(".")
