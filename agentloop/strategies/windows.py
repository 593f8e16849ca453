"""Windows: the newest part stays, what is older is dropped, and one line says how much is gone.

No summary stands for what a window drops; summaries that stand already stay. `replaced_by` makes a record
stand where the line would.
"""

from collections.abc import Container
from dataclasses import dataclass

from agentloop._plumbing.checks import named_tokens, tokens_of, whole
from agentloop.context import Budget, Context, Unit, newest_within, turns_of, units_of
from agentloop.instead import Note
from agentloop.strategies.base import Cut, cut_of, foldable


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """Keeps the last `max_events` messages that somebody said, and drops what is older.

    Summaries stay and take no place. The cut moves on to the next turn start, so that less than `max_events`
    may stay; where no turn begins in the window it falls between exchanges. What may never go (a leading
    system message, the task while it is short, the newest user message, the newest exchange) stays beside
    the window where it is older. The rule is that of Spring AI Session's sliding window.

    Raises:
        UsageError: `max_events` is no whole number of at least 1.

    Example:
        >>> from agentloop.events import MessageAdded, Record
        >>> from agentloop.messages import Message
        >>> said = [Message.user("hi"), Message.assistant("ok"), Message.user("go"), Message.assistant("no")]
        >>> added = [MessageAdded(message=message, tokens=10) for message in said]
        >>> context = Context.of(Record(seq=seq, event=event) for seq, event in enumerate(added, 1))
        >>> SlidingWindow(3)(context, Budget(window=8_000, fixed=0, model="m"))
        Cut(covers=((2, 2),), at=3, instead=Note(), cleared=(), reads=None)
    """

    max_events: int

    def __post_init__(self) -> None:
        whole("max_events", self.max_events, 1)

    def __call__(self, context: Context, budget: Budget, /) -> Cut | None:
        said = [unit for unit in units_of(context.visible) if unit.is_said]
        start = newest_within([len(unit.entries) for unit in said], self.max_events)
        if start == 0:
            return None
        start = next((at for at in range(start, len(said)) if said[at].is_user), start)
        return _dropped(context, budget, {unit.first.seq for unit in said[:start]})


@dataclass(frozen=True, slots=True)
class TurnWindow:
    """Keeps the last `max_turns` turns whole, and drops the turns before them.

    What stands before the first user message stays, such as a greeting, and so do summaries, which start no
    turn. Keeping the last n turns is how OpenAI's Agents SDK cookbook trims a session, and Spring AI
    Session's turn window.

    Raises:
        UsageError: `max_turns` is no whole number of at least 1.

    Example:
        >>> from agentloop.events import MessageAdded, Record
        >>> from agentloop.messages import Message
        >>> said = [Message.user("hi"), Message.assistant("ok"), Message.user("go"), Message.assistant("no")]
        >>> added = [MessageAdded(message=message, tokens=10) for message in said]
        >>> context = Context.of(Record(seq=seq, event=event) for seq, event in enumerate(added, 1))
        >>> TurnWindow(1)(context, Budget(window=8_000, fixed=0, model="m")).covers
        ((2, 2),)
    """

    max_turns: int

    def __post_init__(self) -> None:
        whole("max_turns", self.max_turns, 1)

    def __call__(self, context: Context, budget: Budget, /) -> Cut | None:
        task = context.task
        if task is None:
            return None
        turns = turns_of(unit for unit in units_of(context.visible) if unit.is_said)
        older = (unit.first for turn in turns[: -self.max_turns] for unit in turn)
        return _dropped(context, budget, {first.seq for first in older if first.at >= task.at})


@dataclass(frozen=True, slots=True)
class TokenWindow:
    """Keeps the newest messages without a gap while they take at most `max_tokens`, and drops what is older.

    The cost of summaries is deducted first, and that of what may never go (a leading system message, the task
    while it is short, the newest user message, the newest exchange), so that all that stays is within
    `max_tokens`, the line for what is gone aside, unless those alone are over it. Tokens are by our own
    count of what is shown; `max_tokens` also as `"8k"`. What stays never begins inside an exchange. The first
    message too large ends the suffix, as in Spring AI Session's token count; to deduct what must stay first
    is LangChain's `trim_messages` with `include_system`.

    Raises:
        UsageError: `max_tokens` is no number of tokens from 1 to 1,000,000,000.

    Example:
        >>> from agentloop.events import MessageAdded, Record
        >>> from agentloop.messages import Message
        >>> said = [Message.user("hi"), Message.assistant("ok"), Message.user("go"), Message.assistant("no")]
        >>> added = [MessageAdded(message=message, tokens=10) for message in said]
        >>> context = Context.of(Record(seq=seq, event=event) for seq, event in enumerate(added, 1))
        >>> TokenWindow("0.03k")(context, Budget(window=8_000, fixed=0, model="m")).covers
        ((2, 2),)
        >>> TokenWindow(40)(context, Budget(window=8_000, fixed=0, model="m")) is None
        True
    """

    max_tokens: int | str

    def __post_init__(self) -> None:
        object.__setattr__(self, "max_tokens", named_tokens("max_tokens", self.max_tokens))

    def __call__(self, context: Context, budget: Budget, /) -> Cut | None:
        units = foldable(context, budget)
        said = [unit for unit in units if unit.is_said]
        free = sum(unit.tokens for unit in units if unit.is_said or _is_note(unit))
        stays = sum(entry.tokens for entry in context.visible) - free
        start = newest_within([unit.tokens for unit in said], tokens_of(self.max_tokens) - stays)
        return _dropped(context, budget, {unit.first.seq for unit in said[:start]})


def _is_note(unit: Unit) -> bool:
    """Whether it only says that something is gone: a question with its answer stands for what it covers."""
    return all(entry.kind == "note" for entry in unit.entries)


def _dropped(context: Context, budget: Budget, older: Container[int]) -> Cut | None:
    """The cut that drops what begins at these positions and may go, with the notes of earlier drops.

    Its note stands where the newest of it began.
    """
    gone = [unit for unit in foldable(context, budget) if _is_note(unit) or unit.first.seq in older]
    behind = max((unit.first.at + 1 for unit in gone if unit.is_said), default=0)
    return cut_of(context, gone, Note(), at=behind)
