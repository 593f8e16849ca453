"""A block a run: first turns as they are, the middle as a summary, recent turns with short tool output."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from agentloop._plumbing.checks import whole
from agentloop.context import Budget, Context, Entry, Unit, stood_for, turns_of, units_of
from agentloop.instead import Instead, Lines, Note, Summary
from agentloop.prompts import RUNS_INSTRUCTION
from agentloop.strategies.base import NEVER, Chain, Cut, cut_of, foldable
from agentloop.strategies.clearing import by_last_lines, read_results
from agentloop.strategies.scope import (
    SUMMARY_TOKENS,
    Scope,
    answers_in,
    check_scope,
    holds_summary,
    newest_run,
    positions,
    seqs_of,
)

NEWEST_THREE = Scope.fixed(3)


def Blocks(  # noqa: N802 — it reads like the strategies that are classes
    keep_first_turns: int = 2,
    keep_recent_turns: int = 10,
    max_summary_tokens: int = SUMMARY_TOKENS,
    tool_output_max_lines: int = 50,
    scope: Scope = NEWEST_THREE,
) -> Chain:
    """Earlier runs as a summary alone; the newest run in three sections.

    Of the newest run the first `keep_first_turns` turns stay as they are, and the newest `keep_recent_turns`
    stay with tool output shortened to its last `tool_output_max_lines` lines; what stands between them is
    summarised in at most `max_summary_tokens`. Where the run has one turn only, as an agent's mostly have,
    its exchanges and answers take the place of turns. Everything of earlier runs goes: a summary with one
    section a run stands for it, made from the runs that `scope` takes in (the newest 3) and from what
    stood for earlier ones before, in at most `max_summary_tokens` a run. Without a model, or where its text
    is refused, each turn becomes one line.

    Both steps are carried out, even where the first is enough. Done again at once, it finds nothing more. The
    sections and figures are phi-core's (`CompactionBlock`, `CompactionConfig`).

    Raises:
        UsageError: a number is below its least: 0 turns, 20 tokens, 1 line.

    Example:
        >>> from agentloop.events import MessageAdded, Record
        >>> from agentloop.messages import Message
        >>> said = [Message.user("next?"), Message.assistant("done")] * 5
        >>> events = [MessageAdded(message=message, tokens=500) for message in said]
        >>> context = Context.of(Record(seq=seq, event=event) for seq, event in enumerate(events, 1))
        >>> Blocks(1, 2)(context, Budget(window=4_000, fixed=100, model="m")).covers
        ((3, 6),)
    """
    whole("keep_first_turns", keep_first_turns, 0)
    whole("keep_recent_turns", keep_recent_turns, 0)
    whole("max_summary_tokens", max_summary_tokens, 20)
    whole("tool_output_max_lines", tool_output_max_lines, 1)
    check_scope(scope)
    run = NewestRun(
        keep_first=keep_first_turns,
        keep_recent=keep_recent_turns,
        max_lines=tool_output_max_lines,
        instead=in_lines(max_summary_tokens),
    )
    earlier = EarlierRuns(scope=scope, max_summary_tokens=max_summary_tokens)
    return Chain((earlier, run), target=NEVER, name="Blocks")


def in_lines(max_tokens: int, instruction: str | None = None) -> Summary:
    """A summary, with one line a turn in its place where no model writes it."""
    return Summary(max_tokens=max_tokens, instruction=instruction, on_failure=Lines(max_tokens=max_tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRuns:
    """All of the runs before the newest goes, for one summary of those that the scope takes in."""

    scope: Scope = NEWEST_THREE
    max_summary_tokens: int = SUMMARY_TOKENS

    def __call__(self, context: Context, budget: Budget, /) -> Cut | None:
        newest = newest_run(context)
        units = [unit for unit in foldable(context, budget) if not _is_of(unit, newest, context)]
        runs = set(self.scope.runs(context, budget))
        said = (unit for unit in units if unit.is_said and unit.first.run_id in runs)
        taken = seqs_of(said)
        known = taken or any(holds_summary(unit) for unit in units)
        cut = cut_of(context, units, self._summary(len(runs)) if known else Note())
        return cut and replace(cut, at=min(cut.at, newest[0].seq), reads=positions(context, taken))

    def _summary(self, runs: int) -> Summary:
        return in_lines(self.max_summary_tokens * max(1, runs), RUNS_INSTRUCTION)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestRun:
    """The middle of the newest run goes for a summary, and its recent results show their last lines."""

    keep_first: int = 2
    keep_recent: int = 10
    max_lines: int = 50
    instead: Instead = field(default_factory=Summary)

    def __call__(self, context: Context, budget: Budget, /) -> Cut | None:
        run = newest_run(context)
        parts = _parts(units_of(run))
        split = max(self.keep_first, len(parts) - self.keep_recent)
        middle = {seq for part in parts[self.keep_first : split] for seq in seqs_of(part)}
        recent = {seq for part in parts[split:] for seq in seqs_of(part)}
        shown = (entry for entry in read_results(context) if entry.seq in recent)
        cleared = by_last_lines(shown, self.max_lines, budget.counter)
        cut = cut_of(context, _wholly(context, budget, middle, run), self.instead)
        if cut is None:
            return Cut(cleared=cleared) if cleared else None
        return replace(cut, cleared=cleared)


def _parts(units: Sequence[Unit]) -> list[list[Unit]]:
    """The turns; where there is one only, its exchanges and answers one by one.

    What stands before the first user message belongs to the first turn.
    """
    turns = turns_of(units)
    if len(turns) > 1 and not turns[0][0].is_user:
        turns[:2] = [[*turns[0], *turns[1]]]
    return turns if len(turns) > 1 else [[unit] for unit in answers_in(units)]


def _wholly(context: Context, budget: Budget, middle: set[int], run: Sequence[Entry]) -> list[Unit]:
    """What may go of the middle, with what stands for parts of it already."""
    return [
        unit
        for unit in foldable(context, budget)
        if middle.issuperset(unit.seqs) or (not unit.is_said and _is_of(unit, run, context))
    ]


def _is_of(unit: Unit, run: Sequence[Entry], context: Context) -> bool:
    """Whether the unit begins in this run, or all that it stands for was said in it."""
    if unit.is_said:
        return unit.first.run_id == run[0].run_id
    return all(entry.run_id == run[0].run_id for entry in stood_for(context, unit.entries))
