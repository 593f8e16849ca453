"""Keep the newest part: what is older is summarised, or dropped by a window.

No summary stands for what a window drops, only one line that says how much is gone; summaries that stand
already stay. `replaced_by` makes a record stand where the line would. Tokens are those of what is shown, by
`counter` where a strategy has one, else by the agent's.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from agentloop._plumbing.amounts import named_tokens, tokens_of
from agentloop._plumbing.checks import fraction, share_below_one, shown, whole
from agentloop.context import Budget, Context, Unit, newest_within, next_turn_start, turns_of, units_of
from agentloop.errors import UsageError
from agentloop.strategies.base import CountingStrategy, Cut, Note, cut_of, foldable

Border: TypeAlias = Literal["exchange", "turn"]
"""Where a tail may begin: between exchanges, or at a user's message."""


@dataclass(frozen=True, slots=True)
class KeepRecentFraction(CountingStrategy):
    """Walks back from the end to `fraction` of the context's tokens; what is older is folded.

    The tail is smaller where the request would not come down to the target otherwise. It begins between
    exchanges; where a turn begins in its older half, it begins there. With `at="turn"` it begins at a user's
    message in any case, and only inside one long turn between exchanges: that and a share of 0.3 kept
    verbatim are Gemini CLI's rule.

    Raises:
        UsageError: the fraction is not at least 0 and below 1, or `at` neither `exchange` nor `turn`.

    Example:
        >>> said = [Message.user("hi"), Message.assistant("ok"), Message.user("go"), Message.assistant("no")]
        >>> context = context_of(*said, tokens=1_000)
        >>> cut = KeepRecentFraction(0.2)(context, Budget(window=8_000, fixed=0, model="m"))
        >>> cut.covers, cut.at
        (((1, 2),), 3)
    """

    fraction: float = 0.3
    at: Border = "exchange"

    def _check(self) -> None:
        share_below_one("fraction", self.fraction)
        if self.at not in get_args(Border):
            raise UsageError(f"at must be 'exchange' or 'turn', not {shown(self.at)}")

    def _cut(self, context: Context, budget: Budget) -> Cut | None:
        units = foldable(context, budget)
        keep = min(int(self.fraction * context.tokens), _room_at_target(context, budget, units))
        split = newest_within([unit.tokens for unit in units], keep)
        begin = next_turn_start if self.at == "turn" else _turn_start
        return cut_of(context, units[: begin(context, units, split)])


@dataclass(frozen=True, slots=True)
class KeepRecentTurns(CountingStrategy):
    """Keeps the last `turns` turns, each up to a cap, and folds what is older and what is over the cap.

    The cap of a turn is `share` of the largest request that may be sent, but at least `least_tokens` and at
    most `most_tokens`. Of a turn over its cap stay its user message, which counts first, and its newest
    exchanges without a gap; of a turn whose user message alone is over it, nothing. The live request, the
    task while it is short and the newest exchange stay whatever their size. The summary stands before the
    oldest turn kept. Two turns, a quarter, 2,000 and 8,000 are the numbers
    of OpenCode, which has one cap for all turns together.

    Raises:
        UsageError: `turns` or a number of tokens is no whole number of at least 1, `share` is not above 0 and
            at most 1, or `most_tokens` is below `least_tokens`.

    Example:
        >>> said = [Message.user("hi"), Message.assistant("ok"), Message.user("go"), Message.assistant("no")]
        >>> context = context_of(*said)
        >>> cut = KeepRecentTurns(1)(context, Budget(window=8_000, fixed=0, model="m"))
        >>> cut.covers, cut.at
        (((2, 2),), 3)
    """

    turns: int = 2
    share: float = 0.25
    least_tokens: int = 2_000
    most_tokens: int = 8_000

    def _check(self) -> None:
        whole("turns", self.turns, 1)
        fraction("share", self.share)
        whole("least_tokens", self.least_tokens, 1)
        whole("most_tokens", self.most_tokens, self.least_tokens)

    def cap(self, context: Context, budget: Budget) -> int:
        """The most that one turn keeps, in tokens."""
        share = budget.own(int(self.share * budget.limit), context)
        return min(max(share, self.least_tokens), self.most_tokens)

    def _cut(self, context: Context, budget: Budget) -> Cut | None:
        turns = turns_of(unit for unit in units_of(context.visible) if unit.is_said)[-self.turns :]
        if not turns:
            return None
        cap = self.cap(context, budget)
        kept = {seq for turn in turns for seq in _within(turn, cap)}
        folded = [unit for unit in foldable(context, budget) if unit.first.seq not in kept]
        return cut_of(context, folded, at=turns[0][0].first.at)


def _within(turn: Sequence[Unit], room: int) -> list[int]:
    """Where the units of a turn that stay begin: what the user said, and the newest within the room."""
    asked = 1 if turn[0].is_user else 0
    room -= sum(unit.tokens for unit in turn[:asked])
    if room < 0:
        return []
    start = asked + newest_within([unit.tokens for unit in turn[asked:]], room)
    return [unit.first.seq for unit in (*turn[:asked], *turn[start:])]


def _room_at_target(context: Context, budget: Budget, units: Sequence[Unit]) -> int:
    """What the target leaves for the tail beside all that stays, if the new summary is like the last.

    The first, as long as it may be, must not come to where the trigger fires.
    """
    earlier = sum(unit.tokens for unit in units if not unit.is_said)
    stays = context.tokens - sum(unit.tokens for unit in units)
    most = budget.target
    if not earlier:
        most = min(most, (budget.threshold or budget.limit) - budget.record)
    return budget.own(most, context) - budget.fixed - budget.recall - stays - earlier


def _turn_start(context: Context, units: Sequence[Unit], split: int) -> int:
    """The first turn start that leaves at least half of the tail, else the split itself."""
    newest = context.newest_user
    left = kept = sum(unit.tokens for unit in units[split:])
    for at in range(split, len(units)):
        if left * 2 < kept:
            break
        begins_newest = newest is not None and units[at - 1].first.at < newest.at < units[at].first.at
        if units[at].is_user or (at > 0 and begins_newest):
            return at
        left -= units[at].tokens
    return split


@dataclass(frozen=True, slots=True)
class KeepUserMessages(CountingStrategy):
    """Keeps the newest user messages verbatim, up to `max_tokens` in all, and folds everything else.

    Newest first, until one is larger than what is left of the cap; it and all before it are folded. The live
    request counts too, and stays whatever its size, as do the task while it is short and the newest
    exchange. The summary stands right after the newest user message kept beside the live request, and so
    right before that one, which remains the last thing a user said. The rule and its 20,000 tokens are those
    of Codex, which cuts the message at the border where this one folds it, and puts the summary last.

    Raises:
        UsageError: `max_tokens` is no whole number of at least 1.

    Example:
        >>> said = [Message.user("hi"), Message.assistant("ok"), Message.user("go"), Message.assistant("no")]
        >>> said += [Message.user("and now?"), Message.assistant("done")]
        >>> context = context_of(*said)
        >>> cut = KeepUserMessages()(context, Budget(window=8_000, fixed=0, model="m"))
        >>> cut.covers, cut.at
        (((2, 2), (4, 4)), 5)
    """

    max_tokens: int = 20_000

    def _check(self) -> None:
        whole("max_tokens", self.max_tokens, 1)

    def _cut(self, context: Context, budget: Budget) -> Cut | None:
        users = [entry for entry in context.visible if entry.is_user]
        start = newest_within([entry.tokens for entry in users], self.max_tokens)
        kept = {entry.seq for entry in users[start:]}
        folded = [unit for unit in foldable(context, budget) if unit.first.seq not in kept]
        return cut_of(context, folded, at=users[-1].at if users else None)


@dataclass(frozen=True, slots=True)
class SlidingWindow(CountingStrategy):
    """Keeps the last `max_events` messages that somebody said, and drops what is older.

    Summaries stay and take no place. The cut moves on to the next turn start, so that less than `max_events`
    may stay; where no turn begins in the window it falls between exchanges. What may never go (a leading
    system message, the task while it is short, the newest user message, the newest exchange) stays beside
    the window where it is older. The rule is that of Spring AI Session's sliding window.

    Raises:
        UsageError: `max_events` is no whole number of at least 1.

    Example:
        >>> said = [Message.user("hi"), Message.assistant("ok"), Message.user("go"), Message.assistant("no")]
        >>> context = context_of(*said)
        >>> SlidingWindow(3)(context, Budget(window=8_000, fixed=0, model="m"))
        Cut(covers=((2, 2),), at=3, instead=Note(text=None), cleared=(), reads=None)
    """

    max_events: int

    def _check(self) -> None:
        whole("max_events", self.max_events, 1)

    def _cut(self, context: Context, budget: Budget) -> Cut | None:
        said = [unit for unit in units_of(context.visible) if unit.is_said]
        start = newest_within([len(unit.entries) for unit in said], self.max_events)
        if start == 0:
            return None
        start = next((at for at in range(start, len(said)) if said[at].is_user), start)
        return _dropped(context, budget, {unit.first.seq for unit in said[:start]})


@dataclass(frozen=True, slots=True)
class TurnWindow(CountingStrategy):
    """Keeps the last `max_turns` turns whole, and drops the turns before them.

    What stands before the first user message stays, such as a greeting, and so do summaries, which start no
    turn. Keeping the last n turns is how OpenAI's Agents SDK cookbook trims a session, and Spring AI
    Session's turn window.

    Raises:
        UsageError: `max_turns` is no whole number of at least 1.

    Example:
        >>> said = [Message.user("hi"), Message.assistant("ok"), Message.user("go"), Message.assistant("no")]
        >>> context = context_of(*said)
        >>> TurnWindow(1)(context, Budget(window=8_000, fixed=0, model="m")).covers
        ((2, 2),)
    """

    max_turns: int

    def _check(self) -> None:
        whole("max_turns", self.max_turns, 1)

    def _cut(self, context: Context, budget: Budget) -> Cut | None:
        task = context.task
        if task is None:
            return None
        turns = turns_of(unit for unit in units_of(context.visible) if unit.is_said)
        older = (unit.first for turn in turns[: -self.max_turns] for unit in turn)
        return _dropped(context, budget, {first.seq for first in older if first.at >= task.at})


@dataclass(frozen=True, slots=True)
class TokenWindow(CountingStrategy):
    """Keeps the newest messages without a gap while they take at most `max_tokens`, and drops what is older.

    The cost of summaries is deducted first, and that of what may never go (a leading system message, the task
    while it is short, the newest user message, the newest exchange), so that all that stays is within
    `max_tokens` (also as `"8k"`), the line for what is gone aside, unless those alone are over it. The cut
    moves on to the next turn start, so that less may stay; only inside one long turn it falls between
    exchanges. The first message too large ends the suffix, as in Spring AI Session's token count; to deduct
    what must stay first is LangChain's `trim_messages` with `include_system`.

    Raises:
        UsageError: `max_tokens` is no number of tokens from 1 to 1,000,000,000.

    Example:
        >>> said = [Message.user("hi"), Message.assistant("ok"), Message.user("go"), Message.assistant("no")]
        >>> context = context_of(*said)
        >>> TokenWindow("0.03k")(context, Budget(window=8_000, fixed=0, model="m")).covers
        ((2, 2),)
        >>> TokenWindow(40)(context, Budget(window=8_000, fixed=0, model="m")) is None
        True
    """

    max_tokens: int | str

    def _check(self) -> None:
        object.__setattr__(self, "max_tokens", named_tokens("max_tokens", self.max_tokens))

    def _cut(self, context: Context, budget: Budget) -> Cut | None:
        units = foldable(context, budget)
        said = [unit for unit in units if unit.is_said]
        free = sum(unit.tokens for unit in units if unit.is_said or _is_note(unit))
        stays = sum(entry.tokens for entry in context.visible) - free
        start = newest_within([unit.tokens for unit in said], tokens_of(self.max_tokens) - stays)
        start = next_turn_start(context, said, start) if start else 0
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
