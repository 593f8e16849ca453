"""When to compact: each trigger answers "now?" with its reason in words.

A trigger is any function of a context and a budget that returns `Fired` or None. Budget triggers fire where a
measure crosses a limit, structural ones where something happened, temporal ones where time passed; `any_of`,
`all_of` and `not_` combine them with each other and with functions of yours:

    all_of(TokenCount(80_000), any_of(NeedsFollowUp(), On("request")))

What a trigger is stands first; then those of the window, of counts, of events and of time, what combines
them, and at last how a counter of yours is asked about no text twice. The clock of temporal triggers is
handed to them and gives seconds since the epoch: one that was set back makes them fire late, never early,
since all they do is subtract two of its times.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, is_dataclass
from operator import is_
from typing import Any, Literal, Protocol, TypeAlias, get_args, runtime_checkable

from agentloop._plumbing.callables import name_of
from agentloop._plumbing.checks import above_zero, called, fraction, whole
from agentloop._plumbing.remembered import Remembered
from agentloop.context import (
    AskModel,
    Budget,
    Context,
    Entry,
    Finish,
    RunTools,
    Shown,
    TokenCounter,
    next_step,
)
from agentloop.errors import UsageError
from agentloop.messages import Message, ToolCall, text_of

__all__ = [
    "Budget",
    "Buffer",
    "Context",
    "Every",
    "Fired",
    "HasThreshold",
    "Headroom",
    "Idle",
    "NeedsFollowUp",
    "On",
    "Overflow",
    "TokenCount",
    "Trigger",
    "TurnCount",
    "WindowFraction",
    "all_of",
    "any_of",
    "not_",
    "threshold_of",
]

Cause: TypeAlias = Literal["threshold", "idle"]
"""A limit was crossed or something happened; nothing happened for long."""


@dataclass(frozen=True, slots=True)
class Fired:
    """Now; `why` says it in words, e.g. `tokens 81,204 > 80,000`.

    `reason` is what a compaction made for it in a run records; outside of one, by `Runner.compact`, every
    compaction records `manual`.

    Example:
        >>> Fired("the deployment is over")
        Fired(why='the deployment is over', reason='threshold')

    Raises:
        UsageError: `why` is no text, or `reason` neither `threshold` nor `idle`.
    """

    why: str
    reason: Cause = "threshold"

    def __post_init__(self) -> None:
        if not isinstance(self.why, str) or not self.why.strip():
            raise UsageError(f"why must be a text that is not blank, not {self.why!r}")
        if self.reason not in get_args(Cause):
            raise UsageError(f"reason must be 'threshold' or 'idle', not {self.reason!r}")


class Trigger(Protocol):
    """Decides when. It is asked before each request to the model.

    Of a session that was opened by a checkpoint it sees what a step needs: all that is in sight, the newest
    few dozen messages said and the newest compaction (see `Context.starts_after`).

    Example:
        >>> def on_error(context: Context, budget: Budget) -> Fired | None:
        ...     return Fired("an error") if any("Error" in m.text for m in context.messages[-1:]) else None
        >>> on_error(Context(), Budget(window=8_000, fixed=100, model="m"))
    """

    def __call__(self, context: Context, budget: Budget, /) -> Fired | None:
        """The reason to compact now, or None."""
        ...


@runtime_checkable
class HasThreshold(Protocol):
    """A trigger that fires at a certain size of the next request.

    Example:
        >>> from agentloop.triggers import Overflow
        >>> isinstance(Overflow(), HasThreshold)
        True
    """

    def threshold(self, budget: Budget, /) -> int | None:
        """Where it fires, in tokens by `budget.size`; None where, as it was made, it has no such place."""
        ...


def threshold_of(trigger: Trigger, budget: Budget) -> int | None:
    """Where a trigger fires, in tokens by `budget.size`; None where it has no such place.

    Of `any_of` it is the least of its parts, of `all_of` the largest. Functions have none, nor what counts
    turns, time, or by a counter of its own.

    Example:
        >>> from agentloop.triggers import NeedsFollowUp, TokenCount, WindowFraction, all_of
        >>> budget = Budget(window=10_000, fixed=100, model="m")
        >>> threshold_of(WindowFraction(0.8), budget)
        7000
        >>> threshold_of(all_of(TokenCount(4000), NeedsFollowUp()), budget)
        4000
        >>> threshold_of(NeedsFollowUp(), budget)
    """
    # A protocol is met by a field of that name too, such as a number that a trigger of yours keeps.
    if isinstance(trigger, HasThreshold) and callable(trigger.threshold):
        return trigger.threshold(budget)
    return None


def last_compaction(context: Context) -> int:
    """The position of the newest compaction that stands; 0 where there is none."""
    return context.compactions[-1][0] if context.compactions else 0


@dataclass(frozen=True, slots=True)
class WindowFraction:
    """Fires when the next request is larger than this share of what the window leaves after the reserve.

    Example:
        >>> budget = Budget(window=10_000, fixed=8_000, model="m")  # 1,250 are kept free for the answer
        >>> WindowFraction(0.8)(Context(), budget)
        Fired(why='tokens 8,000 > 7,000', reason='threshold')

    Raises:
        UsageError: the fraction is not above 0 and at most 1.
    """

    fraction: float = 0.8

    def __post_init__(self) -> None:
        fraction("fraction", self.fraction)

    def threshold(self, budget: Budget, /) -> int:
        """That share, in tokens."""
        return int(budget.limit * self.fraction)

    def __call__(self, context: Context, budget: Budget, /) -> Fired | None:
        return _larger(context, budget, self.threshold(budget))


@dataclass(frozen=True, slots=True)
class Headroom:
    """Fires when less than the share `below` of the window is left under the mark at its share `at`.

    With the defaults that is above 85 % of the window, the answer's reserve counted in: less than 5 % is left
    under the 90 % mark. It fires no later than where a request no longer fits beside that reserve.

    Example:
        >>> budget = Budget(window=10_000, fixed=8_600, model="m")
        >>> Headroom(at=0.90, below=0.05)(Context(), budget).why
        'tokens 8,600 > 8,500: less than 5% of the window is left under its 90% mark'

    Raises:
        UsageError: `at` is not above 0 and at most 1, or `below` not above 0 and at most `at`.
    """

    at: float = 0.90
    below: float = 0.05

    def __post_init__(self) -> None:
        fraction("at", self.at)
        fraction("below", self.below, most=self.at)

    def threshold(self, budget: Budget, /) -> int:
        """The mark less that share, in tokens."""
        return min(_share(budget.window, self.at - self.below), budget.limit)

    def __call__(self, context: Context, budget: Budget, /) -> Fired | None:
        left = f": less than {_percent(self.below)} of the window is left under its {_percent(self.at)} mark"
        return _larger(context, budget, self.threshold(budget), left)


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """Fires when less than a slack is left of the window, the answer's reserve counted in.

    The slack is `slack_tokens` (20,000) for windows larger than `large_window` (200,000 tokens), and `share`
    (20 %) of smaller ones. It fires no later than where a request no longer fits beside the reserve.

    Example:
        >>> Buffer()(Context(), Budget(window=262_144, fixed=250_000, model="m")).why
        'tokens 250,000 > 242,144: less than 20,000 is left of the window of 262,144'
        >>> Buffer().threshold(Budget(window=100_000, fixed=100, model="m"))
        80000

    Raises:
        UsageError: a number of tokens is no whole number of at least 0, or `share` not above 0 and at most 1.
    """

    slack_tokens: int = 20_000
    large_window: int = 200_000
    share: float = 0.2

    def __post_init__(self) -> None:
        whole("slack_tokens", self.slack_tokens, 0)
        whole("large_window", self.large_window, 0)
        fraction("share", self.share)

    def slack(self, budget: Budget, /) -> int:
        """What is to stay free of this window, in tokens."""
        large = budget.window > self.large_window
        return min(self.slack_tokens if large else _share(budget.window, self.share), budget.window)

    def threshold(self, budget: Budget, /) -> int:
        """The window less the slack, in tokens."""
        return min(budget.window - self.slack(budget), budget.limit)

    def __call__(self, context: Context, budget: Budget, /) -> Fired | None:
        left = f": less than {self.slack(budget):,} is left of the window of {budget.window:,}"
        return _larger(context, budget, self.threshold(budget), left)


@dataclass(frozen=True, slots=True)
class Overflow:
    """Fires when the next request is larger than what may be sent: the budget trigger that fires late.

    What may be sent is the window less the answer's reserve, in tokens. Room is made then whatever other
    trigger a policy has.

    Example:
        >>> Overflow()(Context(), Budget(window=8_192, fixed=9_123, model="m")).why
        'tokens 9,123 > 7,168, all that fits'
    """

    def threshold(self, budget: Budget, /) -> int:
        """The largest request that may be sent, in tokens."""
        return budget.limit

    def __call__(self, context: Context, budget: Budget, /) -> Fired | None:
        return _larger(context, budget, self.threshold(budget))


def _larger(context: Context, budget: Budget, threshold: int, words: str = "") -> Fired | None:
    size = budget.size(context)
    if size <= threshold:
        return None
    words = ", all that fits" if threshold >= budget.limit else words
    return Fired(f"tokens {size:,} > {threshold:,}{words}")


def _share(tokens: int, share: float) -> int:
    """Whole tokens; rounded first, since 0.95 - 0.05 is a little less than 0.9."""
    return int(round(tokens * share, 6))


def _percent(share: float) -> str:
    return f"{100 * share:g}%"


@dataclass(frozen=True, slots=True)
class TurnCount:
    """Fires when more than `turns` complete turns stand behind the newest summary.

    A turn begins with a real user's message on the main line: summaries and what sub-agents were told begin
    none. The newest is complete once the model's answer ended it.

    Example:
        >>> from agentloop.messages import Message
        >>> from agentloop.testing import context_of
        >>> said = [Message.user("hi"), Message.assistant("hello"), Message.user("and now?")]
        >>> context = context_of(*said, tokens=8)
        >>> budget = Budget(window=8_000, fixed=100, model="m")
        >>> TurnCount(0)(context, budget)
        Fired(why='complete turns 1 > 0', reason='threshold')
        >>> TurnCount(20)(context, budget)

    Raises:
        UsageError: `turns` is no whole number of at least 0.
    """

    turns: int

    def __post_init__(self) -> None:
        whole("turns", self.turns, 0)

    def __call__(self, context: Context, budget: Budget, /) -> Fired | None:
        if context.turns <= self.turns:
            return None
        answered = isinstance(next_step(Shown(context.said)), Finish)
        turns = context.turns if answered else context.turns - 1
        return Fired(f"complete turns {turns:,} > {self.turns:,}") if turns > self.turns else None


@dataclass(frozen=True, slots=True)
class TokenCount:
    """Fires at `tokens` or above.

    Without a counter what is measured is the next request, fixed part included, by `budget.size`. With one it
    is what the visible messages say: their text, and names and arguments of their calls, as the counter
    counts them; it is asked about each text once in its life, and images count nothing. What it said is
    remembered beside the value, shared by all that hold it, and no part of what compares: several threads may
    ask at once, and at worst a text is counted once in each.

    Example:
        >>> TokenCount(4000)(Context(), Budget(window=8_000, fixed=4_012, model="m"))
        Fired(why='tokens 4,012 >= 4,000', reason='threshold')
        >>> TokenCount(4000, counter=len)(Context(), Budget(window=8_000, fixed=4_012, model="m"))

    Raises:
        UsageError: `tokens` is no whole number of at least 1, or the counter cannot be called.
    """

    tokens: int
    counter: TokenCounter | None = field(default=None, repr=False)
    _tally: "Tally | None" = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        whole("tokens", self.tokens, 1)
        if self.counter is not None:
            called("counter", self.counter, "a function that gives the tokens of a text")
        object.__setattr__(self, "_tally", Tally(self.counter) if self.counter else None)

    def threshold(self, budget: Budget, /) -> int | None:
        """The limit itself; None with a counter, since what that counts is no size of a request."""
        return None if self._tally else self.tokens

    def __call__(self, context: Context, budget: Budget, /) -> Fired | None:
        if self._tally is None:
            tokens, words = budget.size(context), ""
        else:
            tokens, words = self._tally(context), ", by the trigger's own counter"
        return Fired(f"tokens {tokens:,} >= {self.tokens:,}{words}") if tokens >= self.tokens else None


Happening: TypeAlias = Literal["message", "result", "compaction", "request"]
"""What `On` can wait for."""


@dataclass(frozen=True, slots=True)
class On:
    """Fires when what happened last is of this kind.

    | kind | what stands newest |
    |---|---|
    | `message` | something said since the last compaction, by anybody |
    | `result` | a tool's result |
    | `request` | a real user's message, no summary |
    | `compaction` | a compaction: nothing was said since |

    Example:
        >>> from agentloop.messages import Message
        >>> from agentloop.testing import context_of
        >>> context = context_of(Message.user("hi"))
        >>> budget = Budget(window=8_000, fixed=100, model="m")
        >>> On("request")(context, budget)
        Fired(why='the user asked at position 1', reason='threshold')
        >>> On("result")(context, budget)

    Raises:
        UsageError: there is no such kind.
    """

    kind: Happening

    def __post_init__(self) -> None:
        if self.kind not in get_args(Happening):
            kinds = ", ".join(map(repr, get_args(Happening)))
            raise UsageError(f"kind must be one of {kinds}, not {self.kind!r}")

    def __call__(self, context: Context, budget: Budget, /) -> Fired | None:
        why = _compacted(context) if self.kind == "compaction" else self._said(context)
        return Fired(why) if why else None

    def _said(self, context: Context) -> str | None:
        newest = context.visible[-1] if context.visible else None
        if newest is None:
            return None
        match self.kind:
            case "message" if newest.seq > last_compaction(context):
                return f"{_named(newest)} is new"
            case "result" if newest.message.role == "tool":
                return f"a tool's result came at position {newest.seq:,}"
            case "request" if newest.is_user:
                return f"the user asked at position {newest.seq:,}"
        return None


@dataclass(frozen=True, slots=True)
class NeedsFollowUp:
    """Fires when calls wait for their results, or input for the model: compaction then serves what goes on.

    It keeps still once the model's answer ended a turn, and before anything was said.

    Example:
        >>> from agentloop.messages import Message
        >>> from agentloop.testing import context_of
        >>> asked, answered = Message.user("hi"), Message.assistant("hello")
        >>> budget = Budget(window=8_000, fixed=100, model="m")
        >>> NeedsFollowUp()(context_of(asked), budget)
        Fired(why='the user message at position 1 waits for the model', reason='threshold')
        >>> NeedsFollowUp()(context_of(asked, answered), budget)
    """

    def __call__(self, context: Context, budget: Budget, /) -> Fired | None:
        if not context.said:
            return None
        match next_step(Shown(context.said)):
            case RunTools(calls):
                return Fired(_waiting(calls))
            case AskModel():
                return Fired(f"{_named(context.said[-1])} waits for the model")
        return None


def _compacted(context: Context) -> str | None:
    seq = last_compaction(context)
    if not seq or (context.said and context.said[-1].seq > seq):
        return None
    return f"a compaction was done at position {seq:,} and nothing was said since"


def _named(entry: Entry) -> str:
    return f"the {entry.message.role} message at position {entry.seq:,}"


def _waiting(calls: Sequence[ToolCall]) -> str:
    return (
        "1 call waits for its result" if len(calls) == 1 else f"{len(calls):,} calls wait for their results"
    )


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
        >>> from agentloop.messages import Message
        >>> from agentloop.testing import context_of
        >>> context = context_of(Message.user("hi"), time=1_000.0)
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
        >>> from agentloop.messages import Message
        >>> from agentloop.testing import context_of
        >>> context = context_of(Message.assistant("done"), time=1_000.0)
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


def any_of(*triggers: Trigger) -> Trigger:
    """Fires when at least one of these does; says why of all that do.

    Example:
        >>> from agentloop.triggers import TokenCount, TurnCount
        >>> either = any_of(TokenCount(80_000), TurnCount(20))
        >>> either(Context(), Budget(window=128_000, fixed=81_204, model="m")).why
        'tokens 81,204 >= 80,000'

    Raises:
        UsageError: none is given, or one of them is no trigger.
    """
    return AnyOf(_checked("any_of", triggers))


def all_of(*triggers: Trigger) -> Trigger:
    """Fires when all of these do; those behind one that does not are not asked.

    Example:
        >>> from agentloop.triggers import NeedsFollowUp, On, TokenCount
        >>> busy = all_of(TokenCount(80_000), any_of(NeedsFollowUp(), On("request")))
        >>> busy(Context(), Budget(window=128_000, fixed=81_204, model="m"))  # nothing waits for the model

    Raises:
        UsageError: none is given, or one of them is no trigger.
    """
    return AllOf(_checked("all_of", triggers))


def not_(trigger: Trigger) -> Trigger:
    """Fires when this one does not.

    Example:
        >>> from agentloop.triggers import NeedsFollowUp
        >>> not_(NeedsFollowUp())(Context(), Budget(window=8_000, fixed=100, model="m")).why
        'not NeedsFollowUp()'

    Raises:
        UsageError: it is no trigger.
    """
    return Not(*_checked("not_", (trigger,)))


Parts: TypeAlias = tuple[Trigger, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """What `any_of` makes."""

    parts: Parts

    def threshold(self, budget: Budget, /) -> int | None:
        """The least of its parts' thresholds, in tokens."""
        return min(_thresholds(self.parts, budget), default=None)

    def __call__(self, context: Context, budget: Budget, /) -> Fired | None:
        answers = [trigger(context, budget) for trigger in self.parts]
        return _together([fired for fired in answers if fired])


@dataclass(frozen=True, slots=True)
class AllOf:
    """What `all_of` makes."""

    parts: Parts

    def threshold(self, budget: Budget, /) -> int | None:
        """The largest of its parts' thresholds, in tokens."""
        return max(_thresholds(self.parts, budget), default=None)

    def __call__(self, context: Context, budget: Budget, /) -> Fired | None:
        answers: list[Fired] = []
        for trigger in self.parts:
            fired = trigger(context, budget)
            if not fired:
                return None
            answers.append(fired)
        return _together(answers)


@dataclass(frozen=True, slots=True)
class Not:
    """What `not_` makes."""

    trigger: Trigger

    def __call__(self, context: Context, budget: Budget, /) -> Fired | None:
        return None if self.trigger(context, budget) else Fired(f"not {_name(self.trigger)}")


def _together(answers: Sequence[Fired]) -> Fired | None:
    if not answers:
        return None
    idle = any(fired.reason == "idle" for fired in answers)
    return Fired(" and ".join(fired.why for fired in answers), reason="idle" if idle else "threshold")


def _thresholds(parts: Parts, budget: Budget) -> list[int]:
    found = (threshold_of(trigger, budget) for trigger in parts)
    return [threshold for threshold in found if threshold is not None]


def _checked(name: str, triggers: Parts) -> Parts:
    if not triggers:
        raise UsageError(f"{name} needs at least 1 trigger, not 0")
    for trigger in triggers:
        check_trigger(f"each trigger of {name}", trigger)
    return triggers


def check_trigger(name: str, trigger: object) -> None:
    """Refuse what is no trigger.

    Raises:
        UsageError: with that name, and a trigger to write.
    """
    called(name, trigger, such_as="TokenCount(80_000) of agentloop.triggers")


def _name(trigger: Trigger) -> str:
    return repr(trigger) if is_dataclass(trigger) else name_of(trigger)


class Tally:
    """The tokens of what is visible, by `counter`; one for all sessions that share a trigger.

    The last sum is carried on while the context only grows. Counts of texts are remembered beside it, so that
    a rewritten context, or another session's, asks the counter about nothing that it has seen. Safe to share
    between threads: the sum is replaced as a whole and never changed.
    """

    __slots__ = ("_counter", "_last", "_tokens")

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._last: tuple[int, int, tuple[object, ...]] = (0, 0, ())
        self._tokens = Remembered(counter)

    def __reduce__(self) -> tuple[Any, ...]:
        # Hashes of texts and identities mean nothing in another process.
        return Tally, (self._counter,)

    def __call__(self, context: Context, /) -> int:
        tokens, length, known = self._last
        if not all(map(is_, known, _marks(context, length))):
            tokens = length = 0
        tokens += sum(map(self._tokens, _texts(context.visible[length:])))
        length = len(context.visible)
        self._last = (tokens, length, _marks(context, length))
        return tokens


def _marks(context: Context, length: int) -> tuple[object, ...]:
    """What stays the same object while a context of that length only grows."""
    newest = context.visible[length - 1] if 0 < length <= len(context.visible) else None
    return newest, context.clearings, context.compactions


def _texts(entries: Iterable[Entry]) -> Iterator[str]:
    for entry in entries:
        yield from filter(None, _texts_of(entry.message))


def _texts_of(message: Message) -> Iterator[str]:
    yield text_of(message.content) if message.has_media else message.text
    for call in message.tool_calls:
        yield from (call.name, call.arguments)
