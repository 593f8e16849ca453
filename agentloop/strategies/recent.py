"""Keep the newest part, by its share of the context or by turns; fold what is older."""

from collections.abc import Sequence
from dataclasses import dataclass

from agentloop._plumbing.checks import fraction, share_below_one, whole
from agentloop.context import Budget, Context, Unit, newest_within, turns_of, units_of
from agentloop.strategies.base import Cut, cut_of, foldable


@dataclass(frozen=True, slots=True)
class KeepRecentFraction:
    """Walks back from the end to `fraction` of the context's tokens; what is older is folded.

    The tail is smaller where the request would not come down to the target otherwise. It begins between
    exchanges; where a turn begins in its older half, it begins there. Tokens are by our own count of what is
    shown. A share kept verbatim is Gemini CLI's rule, whose 0.3 is the default here.

    Raises:
        UsageError: the fraction is not at least 0 and below 1.

    Example:
        >>> from agentloop.events import MessageAdded, Record
        >>> from agentloop.messages import Message
        >>> said = [Message.user("hi"), Message.assistant("ok"), Message.user("go"), Message.assistant("no")]
        >>> added = [MessageAdded(message=message, tokens=1_000) for message in said]
        >>> context = Context.of(Record(seq=seq, event=event) for seq, event in enumerate(added, 1))
        >>> cut = KeepRecentFraction(0.2)(context, Budget(window=8_000, fixed=0, model="m"))
        >>> cut.covers, cut.at
        (((1, 2),), 3)
    """

    fraction: float = 0.3

    def __post_init__(self) -> None:
        share_below_one("fraction", self.fraction)

    def __call__(self, context: Context, budget: Budget, /) -> Cut | None:
        units = foldable(context, budget)
        keep = min(int(self.fraction * context.tokens), _room_at_target(context, budget, units))
        split = newest_within([unit.tokens for unit in units], keep)
        return cut_of(context, units[: _turn_start(context, units, split)])


@dataclass(frozen=True, slots=True)
class KeepRecentTurns:
    """Keeps the last `turns` turns, each up to a cap, and folds what is older and what is over the cap.

    The cap of a turn is `share` of the largest request that may be sent, but at least `least_tokens` and at
    most `most_tokens`. Of a turn over its cap stay its user message, which counts first, and its newest
    exchanges without a gap; of a turn whose user message alone is over it, nothing. The live request, the
    task while it is short and the newest exchange stay whatever their size. The summary stands before the
    oldest turn kept. Tokens are by our own count of what is shown. Two turns, a quarter, 2,000 and 8,000 are
    the numbers of OpenCode, which has one cap for all turns together.

    Raises:
        UsageError: `turns` or a number of tokens is no whole number of at least 1, `share` is not above 0 and
            at most 1, or `most_tokens` is below `least_tokens`.

    Example:
        >>> from agentloop.events import MessageAdded, Record
        >>> from agentloop.messages import Message
        >>> said = [Message.user("hi"), Message.assistant("ok"), Message.user("go"), Message.assistant("no")]
        >>> added = [MessageAdded(message=message, tokens=10) for message in said]
        >>> context = Context.of(Record(seq=seq, event=event) for seq, event in enumerate(added, 1))
        >>> cut = KeepRecentTurns(1)(context, Budget(window=8_000, fixed=0, model="m"))
        >>> cut.covers, cut.at
        (((2, 2),), 3)
    """

    turns: int = 2
    share: float = 0.25
    least_tokens: int = 2_000
    most_tokens: int = 8_000

    def __post_init__(self) -> None:
        whole("turns", self.turns, 1)
        fraction("share", self.share)
        whole("least_tokens", self.least_tokens, 1)
        whole("most_tokens", self.most_tokens, self.least_tokens)

    def cap(self, context: Context, budget: Budget) -> int:
        """The most that one turn keeps, in tokens of our own count."""
        share = budget.own(int(self.share * budget.limit), context)
        return min(max(share, self.least_tokens), self.most_tokens)

    def __call__(self, context: Context, budget: Budget, /) -> Cut | None:
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
    """What the target leaves for the tail beside all that stays, if the new summary is like the last."""
    earlier = sum(unit.tokens for unit in units if not unit.is_said)
    stays = context.tokens - sum(unit.tokens for unit in units)
    return budget.own(budget.target, context) - budget.fixed - stays - earlier


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
