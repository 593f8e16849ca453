"""Strategies of many steps: `Reduce` shortens, summarises and drops; `Tiered` tries four tiers in turn."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from agentloop._plumbing.checks import fraction, fraction_or_none, whole
from agentloop.context import Budget, Context, TokenCounter, Unit, hold_news, turns_of, units_of
from agentloop.strategies.base import (
    Chain,
    CountingStrategy,
    Cut,
    Digest,
    Instead,
    Note,
    Summary,
    Tiers,
    cut_of,
    foldable,
)
from agentloop.strategies.blocks import SUMMARY_TOKENS, answers_in, holds_summary
from agentloop.strategies.clearing import ResultTails, StubResults, newest_said


def Reduce(  # noqa: N802 — it reads like the strategies that are classes
    *,
    tool_output_max_lines: int = 50,
    keep_turns: int = 2,
    max_summary_tokens: int = SUMMARY_TOKENS,
    target: float | None = None,
    counter: TokenCounter | None = None,
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
        ResultTails(max_lines=tool_output_max_lines, counter=counter),
        OlderTurns(keep_turns=keep_turns, instead=Summary(max_tokens=max_summary_tokens), counter=counter),
        DropMiddle(keep_turns=keep_turns, counter=counter),
    )
    return Chain(steps, target=target, name="Reduce")


@dataclass(frozen=True, slots=True, kw_only=True)
class OlderTurns(CountingStrategy):
    """All turns but the newest `keep_turns` go, or all exchanges but so many where no such turn is left."""

    keep_turns: int = 2
    instead: Instead = field(default_factory=Summary)

    def _cut(self, context: Context, budget: Budget) -> Cut | None:
        units = foldable(context, budget)
        older = _before(_begin(_turns(context), self.keep_turns), units)
        if not hold_news(older):
            older = _before(_begin(_answers(context), self.keep_turns), units)
        return cut_of(context, older, self.instead)


@dataclass(frozen=True, slots=True, kw_only=True)
class DropMiddle(CountingStrategy):
    """What was said between the first turn and the newest ones goes without a summary.

    Where there is one turn only, it is what was done between its first exchange and its newest ones.
    """

    keep_turns: int = 2

    def _cut(self, context: Context, budget: Budget) -> Cut | None:
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


SMALL_WINDOW, LARGE_WINDOW = 128_000, 1_000_000
"""Chunks take their full share of windows up to the one, their least share from the other on, in tokens."""


def Tiered(  # noqa: N802 — it reads like the strategies that are classes
    *,
    keep: int = 4,
    max_chars: int = 200,
    chunk_share: float = 0.4,
    least_chunk_share: float = 0.15,
    chunk_tokens: int = 12_000,
    message_chars: int = 10_000,
    target: float | None = None,
    counter: TokenCounter | None = None,
) -> Tiers:
    """Four tiers, each tried on the context as it was; the first that makes the request fit wins.

    The newest `keep` messages stay.

    1. Results longer than `max_chars` characters are shown as stubs.
    2. The model summarises all but the newest `keep` messages, read in chunks of at most `chunk_tokens` and
       at most `chunk_share` of the window, each message capped at `message_chars` characters. From a window
       of 128,000 tokens to one of 1,000,000 the share falls evenly to `least_chunk_share`.
    3. It summarises the older half of them.
    4. A record computed without a model stands for all but the newest `keep` messages.

    A tier whose summary is refused, or leaves too much, is passed over; the last is carried out in any case.
    The request fits where the trigger no longer fires, or may be sent where that has no such place; `target`
    aims lower, at a share of the limit. The shares are OpenClaw's (`BASE_CHUNK_RATIO`, `MIN_CHUNK_RATIO`).

    Raises:
        UsageError: a number is below its least (1 message, 0, 20 tokens or 100 characters), a share or the
            target is not above 0 and at most 1, or the least share is above the share.

    Example:
        >>> said = [Message.user("next?"), Message.assistant("done")] * 5
        >>> context = context_of(*said, tokens=500)
        >>> cut = Tiered()(context, Budget(window=8_000, fixed=100, model="m"))
        >>> cut.covers, cut.instead.chunk_tokens
        (((2, 6),), 3200)
    """
    whole("keep", keep, 1)
    whole("max_chars", max_chars, 0)
    whole("chunk_tokens", chunk_tokens, 20)
    whole("message_chars", message_chars, 100)
    fraction("chunk_share", chunk_share)
    fraction("least_chunk_share", least_chunk_share, most=chunk_share)
    fraction_or_none("target", target)
    in_chunks = InChunks(
        keep=keep,
        share=chunk_share,
        least_share=least_chunk_share,
        most_tokens=chunk_tokens,
        message_chars=message_chars,
        counter=counter,
    )
    steps = (
        StubResults(keep_messages=keep, max_chars=max_chars, counter=counter),
        in_chunks,
        replace(in_chunks, part=0.5),
        AllBut(keep=keep, counter=counter),
    )
    return Tiers(steps, target=target, name="Tiered")


@dataclass(frozen=True, slots=True, kw_only=True)
class InChunks(CountingStrategy):
    """The model summarises the older `part` of all but the newest `keep` messages, chunk by chunk.

    Example:
        >>> [InChunks(most_tokens=10**9).chunk_tokens(window) for window in (10_000, 564_000, 2_000_000)]
        [4000, 155100, 300000]
    """

    keep: int = 4
    share: float = 0.4
    least_share: float = 0.15
    most_tokens: int = 12_000
    message_chars: int = 10_000
    part: float = 1.0

    def chunk_tokens(self, window: int) -> int:
        """The longest chunk in such a window, in tokens."""
        along = (window - SMALL_WINDOW) / (LARGE_WINDOW - SMALL_WINDOW)
        share = self.share - (self.share - self.least_share) * min(1.0, max(0.0, along))
        return max(20, min(int(window * share), self.most_tokens))

    def _cut(self, context: Context, budget: Budget) -> Cut | None:
        units = _all_but(context, budget, self.keep)
        summary = Summary(chunk_tokens=self.chunk_tokens(budget.window), message_chars=self.message_chars)
        return cut_of(context, units[: ceil(self.part * len(units))], summary)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllBut(CountingStrategy):
    """All but the newest `keep` messages goes, for a digest."""

    keep: int = 4

    def _cut(self, context: Context, budget: Budget) -> Cut | None:
        return cut_of(context, _all_but(context, budget, self.keep), Digest())


def _all_but(context: Context, budget: Budget, keep: int) -> list[Unit]:
    """What may go and holds none of the newest `keep` messages."""
    newest = {entry.seq for entry in newest_said(context, keep)}
    return [unit for unit in foldable(context, budget) if newest.isdisjoint(unit.seqs)]
