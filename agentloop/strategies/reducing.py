"""Three reductions, each harder than the one before: shorter outputs, fewer turns, no middle."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from agentloop._plumbing.checks import fraction_or_none, whole
from agentloop.context import Budget, Context, Unit, hold_news, turns_of, units_of
from agentloop.instead import Instead, Note, Summary
from agentloop.strategies.base import Chain, Cut, cut_of, foldable
from agentloop.strategies.clearing import ResultTails
from agentloop.strategies.scope import SUMMARY_TOKENS, answers_in, holds_summary


def Reduce(  # noqa: N802 — it reads like the strategies that are classes
    *,
    tool_output_max_lines: int = 50,
    keep_turns: int = 2,
    max_summary_tokens: int = SUMMARY_TOKENS,
    target: float | None = None,
) -> Chain:
    """Three reductions, as many as it takes to bring the request to the target.

    1. Results are shown as their last `tool_output_max_lines` lines.
    2. All turns but the newest `keep_turns` are summarised, in at most `max_summary_tokens`. Where no such
       turn is left, exchanges and answers take the place of turns.
    3. What still stands between the first turn and the newest `keep_turns` is dropped for a line that says
       so; summaries stay.

    A summary that is refused is passed over. `target` is a share of the limit (None: where compaction aims
    at anyway). The order is yoagent's and phi-core's (`DefaultCompaction`).

    Raises:
        UsageError: a number is below its least (1 line, 1 turn, 20 tokens), or the target is not above 0 and
            at most 1.

    Example:
        >>> [type(step).__name__ for step in Reduce().steps]
        ['ResultTails', 'OlderTurns', 'DropMiddle']
    """
    whole("tool_output_max_lines", tool_output_max_lines, 1)
    whole("keep_turns", keep_turns, 1)
    whole("max_summary_tokens", max_summary_tokens, 20)
    fraction_or_none("target", target)
    steps = (
        ResultTails(max_lines=tool_output_max_lines),
        OlderTurns(keep_turns=keep_turns, instead=Summary(max_tokens=max_summary_tokens)),
        DropMiddle(keep_turns=keep_turns),
    )
    return Chain(steps, target=target, name="Reduce")


@dataclass(frozen=True, slots=True, kw_only=True)
class OlderTurns:
    """All turns but the newest `keep_turns` go, or all exchanges but so many where no such turn is left."""

    keep_turns: int = 2
    instead: Instead = field(default_factory=Summary)

    def __call__(self, context: Context, budget: Budget, /) -> Cut | None:
        units = foldable(context, budget)
        older = _before(_begin(_turns(context), self.keep_turns), units)
        if not hold_news(older):
            older = _before(_begin(_answers(context), self.keep_turns), units)
        return cut_of(context, older, self.instead)


@dataclass(frozen=True, slots=True, kw_only=True)
class DropMiddle:
    """What was said between the first turn and the newest ones goes without a summary.

    Where there is one turn only, it is what was done between its first exchange and its newest ones.
    """

    keep_turns: int = 2

    def __call__(self, context: Context, budget: Budget, /) -> Cut | None:
        starts = _turns(context)
        if len(starts) < 2:
            starts = _answers(context)
        if len(starts) <= self.keep_turns + 1:
            return None
        first, newest = starts[1], starts[-self.keep_turns]
        between = (unit for unit in foldable(context, budget) if first <= unit.first.at < newest)
        middle = [unit for unit in between if not holds_summary(unit)]
        return cut_of(context, middle, Note())


def _turns(context: Context) -> list[int]:
    """Where the turns in sight begin."""
    return [turn[0].at for turn in turns_of(context.visible) if turn[0].is_user]


def _answers(context: Context) -> list[int]:
    """Where the exchanges and answers in sight begin."""
    return [unit.first.at for unit in answers_in(units_of(context.visible))]


def _begin(starts: Sequence[int], keep: int) -> int:
    """Where the newest of these begin; 0 where there are no older ones."""
    return starts[-keep] if len(starts) > keep else 0


def _before(at: int, units: Sequence[Unit]) -> list[Unit]:
    """The units that begin before this place; a summary stands before what it was placed at."""
    return [unit for unit in units if unit.first.at < at + (not unit.is_said)]
