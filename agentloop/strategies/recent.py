"""Keep the newest part, by its share of the context or by turns; fold what is older."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentloop.budget import Budget
from agentloop.checks import count, fraction
from agentloop.context import Context
from agentloop.errors import UsageError
from agentloop.exchanges import Unit, may_go, units_of
from agentloop.strategies.base import Cut, cut_at, cut_before


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
        if (
            isinstance(self.fraction, bool)
            or not isinstance(self.fraction, int | float)
            or not 0 <= self.fraction < 1
        ):
            raise UsageError(f"fraction must be at least 0 and below 1, not {self.fraction!r}")

    def __call__(self, context: Context, budget: Budget, /) -> Cut | None:
        units = may_go(context, task_tokens=budget.task_tokens)
        keep = min(int(self.fraction * context.tokens), _room_at_target(context, budget, units))
        split, kept = len(units), 0
        while split and kept + units[split - 1].tokens <= keep:
            split -= 1
            kept += units[split].tokens
        return cut_before(context, units[: _turn_start(context, units, split, kept)])


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
        count("turns", self.turns, 1)
        fraction("share", self.share)
        count("least_tokens", self.least_tokens, 1)
        count("most_tokens", self.most_tokens, self.least_tokens)

    def cap(self, context: Context, budget: Budget) -> int:
        """The most that one turn keeps, in tokens of our own count."""
        share = budget.own(int(self.share * budget.limit), context)
        return min(max(share, self.least_tokens), self.most_tokens)

    def __call__(self, context: Context, budget: Budget, /) -> Cut | None:
        said = [unit for unit in units_of(context.visible) if unit.first.kind == "said"]
        turns = list(_last_turns(said, self.turns))
        if not turns:
            return None
        cap = self.cap(context, budget)
        kept = {seq for turn in turns for seq in _within(turn, cap)}
        units = may_go(context, task_tokens=budget.task_tokens)
        folded = [unit for unit in units if unit.first.seq not in kept]
        return cut_at(context, budget, folded, turns[-1][-1].first.at)


def _last_turns(said: Sequence[Unit], most: int) -> Iterator[list[Unit]]:
    """The last turns, each with its units newest first; what stands before the first is one as well."""
    turn: list[Unit] = []
    for unit in reversed(said):
        turn.append(unit)
        if unit.first.is_user:
            yield turn
            turn, most = [], most - 1
        if not most:
            return
    if turn:
        yield turn


def _within(turn: Sequence[Unit], room: int) -> Iterator[int]:
    """Where the units of a turn that stay begin: what the user said, and the newest within the room."""
    asked = turn[-1] if turn[-1].first.is_user else None
    if asked is not None:
        room -= asked.tokens
    if asked is not None and room >= 0:
        yield asked.first.seq
    for unit in turn if asked is None else turn[:-1]:
        room -= unit.tokens
        if room < 0:
            return
        yield unit.first.seq


def _room_at_target(context: Context, budget: Budget, units: Sequence[Unit]) -> int:
    """What the target leaves for the tail beside all that stays, if the new summary is like the last."""
    earlier = sum(unit.tokens for unit in units if unit.first.kind != "said")
    stays = context.tokens - sum(unit.tokens for unit in units)
    return budget.own(budget.target, context) - budget.fixed - stays - earlier


def _turn_start(context: Context, units: Sequence[Unit], split: int, kept: int) -> int:
    """The first turn start that leaves at least half of the tail, else the split itself."""
    newest = context.newest_user
    left = kept
    for at in range(split, len(units)):
        if left * 2 < kept:
            break
        begins_newest = newest is not None and units[at - 1].first.at < newest.at < units[at].first.at
        if units[at].first.is_user or (at > 0 and begins_newest):
            return at
        left -= units[at].tokens
    return split
