"""A record that is written again and again, and blocks in three sections with a scope of runs."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from agentloop._plumbing.checks import shown, whole, whole_or_none
from agentloop.context import (
    Budget,
    Context,
    Entry,
    TokenCounter,
    Unit,
    newest_within,
    next_turn_start,
    originals_of,
    turns_of,
    units_of,
)
from agentloop.errors import UsageError
from agentloop.events import Ranges, ranges_between
from agentloop.prompts import RUNS_INSTRUCTION, SHADOW
from agentloop.strategies.base import (
    NEVER,
    Chain,
    CountingStrategy,
    Cut,
    Instead,
    Lines,
    Note,
    OnFailure,
    Summary,
    cut_of,
    foldable,
)
from agentloop.strategies.clearing import by_last_lines, newest_said, read_results

SUMMARY_TOKENS = 2_000
"""The longest summary of one run (phi-core's `max_summary_tokens`)."""


@dataclass(frozen=True, slots=True)
class NewestRuns:
    """The newest `n` earlier runs."""

    n: int = 3

    def __post_init__(self) -> None:
        whole("n", self.n, 1)

    def of(self, tokens: Mapping[str, int], room: int) -> tuple[str, ...]:
        """Those taken in of runs with so many tokens, newest first."""
        return tuple(tokens)[: self.n]


@dataclass(frozen=True, slots=True)
class RunsWithin:
    """Earlier runs, newest first, as long as they fit into `max_tokens` together as summaries."""

    max_tokens: int | None = None
    summary_tokens: int = SUMMARY_TOKENS

    def __post_init__(self) -> None:
        whole_or_none("max_tokens", self.max_tokens, 1)
        whole("summary_tokens", self.summary_tokens, 20)

    def of(self, tokens: Mapping[str, int], room: int) -> tuple[str, ...]:
        """Those taken in of runs with so many tokens, newest first; the newest always."""
        costs = [min(size, self.summary_tokens) for size in reversed(list(tokens.values()))]
        start = newest_within(costs, room if self.max_tokens is None else self.max_tokens)
        return tuple(tokens)[: max(1, len(costs) - start)]


@dataclass(frozen=True, slots=True)
class Scope:
    """Which runs before the newest one are taken in; made by `fixed` or `token_budget`.

    A run is one call of `Runner.run`; what was imported is one run. The newest earlier run is always taken
    in. The rule and the default of 3 are phi-core's (`CompactionScope`).

    Raises:
        UsageError: the rule is none of these two.

    Example:
        >>> events = [MessageRecord(message=Message.user("?"), tokens=900, run_id=run) for run in "abcd"]
        >>> context = Context.of(Record(seq=seq, event=event) for seq, event in enumerate(events, 1))
        >>> budget = Budget(window=4_000, fixed=100, model="m")
        >>> Scope.fixed(2).runs(context, budget)
        ('c', 'b')
        >>> Scope.token_budget(max_tokens=1_000, summary_tokens=400).runs(context, budget)
        ('c', 'b')
    """

    rule: NewestRuns | RunsWithin

    def __post_init__(self) -> None:
        if not isinstance(self.rule, NewestRuns | RunsWithin):
            raise UsageError(
                f"rule must be that of Scope.fixed or Scope.token_budget, not {shown(self.rule)}"
            )

    @classmethod
    def fixed(cls, n: int = 3) -> "Scope":
        """The newest `n` earlier runs.

        Raises:
            UsageError: `n` is no whole number of at least 1.
        """
        return cls(NewestRuns(n))

    @classmethod
    def token_budget(cls, max_tokens: int | None = None, summary_tokens: int = SUMMARY_TOKENS) -> "Scope":
        """Earlier runs, newest first, as long as they fit into `max_tokens` together as summaries.

        A run counts as many tokens as it has, and at most the `summary_tokens` that its summary may take: so
        runs are taken in whose messages alone exceed the budget. None: what the window has room for.

        Raises:
            UsageError: `max_tokens` is below 1, or `summary_tokens` below 20.
        """
        return cls(RunsWithin(max_tokens, summary_tokens))

    def runs(self, context: Context, budget: Budget) -> tuple[str, ...]:
        """The ids of the earlier runs that are taken in, newest first."""
        return self.rule.of(_tokens_of_earlier_runs(context), budget.room(context))


def newest_run(context: Context) -> list[Entry]:
    """All that was said in the newest run, whether in sight or not."""
    newest = context.said[-1].run_id if context.said else ""
    return [entry for entry in context.said if entry.run_id == newest]


def positions(context: Context, wanted: Collection[int]) -> Ranges:
    """These positions of what was said, as ranges that hold nothing else that was said."""
    return ranges_between(wanted, [entry.seq for entry in context.said if entry.seq not in wanted])


def seqs_of(units: Iterable[Unit]) -> set[int]:
    """The positions of all entries of these units."""
    return {seq for unit in units for seq in unit.seqs}


def answers_in(units: Sequence[Unit]) -> list[Unit]:
    """The exchanges and answers among these units: what the assistant did, one by one."""
    return [unit for unit in units if unit.is_said and not unit.is_user]


def holds_summary(unit: Unit) -> bool:
    """Whether it is a record of what an earlier compaction covered."""
    return any(entry.kind == "summary" for entry in unit.entries)


def _tokens_of_earlier_runs(context: Context) -> dict[str, int]:
    tokens: dict[str, int] = {}
    for entry in reversed(context.said):
        tokens[entry.run_id] = tokens.get(entry.run_id, 0) + entry.tokens
    if context.said:
        del tokens[context.said[-1].run_id]
    return tokens


NEWEST_THREE = Scope.fixed(3)


def Blocks(  # noqa: N802 — it reads like the strategies that are classes
    keep_first_turns: int = 2,
    keep_recent_turns: int = 10,
    max_summary_tokens: int = SUMMARY_TOKENS,
    tool_output_max_lines: int = 50,
    scope: Scope = NEWEST_THREE,
    counter: TokenCounter | None = None,
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
        >>> said = [Message.user("next?"), Message.assistant("done")] * 5
        >>> context = context_of(*said, tokens=500)
        >>> Blocks(1, 2)(context, Budget(window=4_000, fixed=100, model="m")).covers
        ((3, 6),)
    """
    whole("keep_first_turns", keep_first_turns, 0)
    whole("keep_recent_turns", keep_recent_turns, 0)
    whole("max_summary_tokens", max_summary_tokens, 20)
    whole("tool_output_max_lines", tool_output_max_lines, 1)
    if not isinstance(scope, Scope):
        made = "made by Scope.fixed or Scope.token_budget"
        raise UsageError(f"scope must be a Scope, {made}, not {shown(scope)}")
    run = NewestRun(
        keep_first=keep_first_turns,
        keep_recent=keep_recent_turns,
        max_lines=tool_output_max_lines,
        instead=in_lines(max_summary_tokens),
        counter=counter,
    )
    earlier = EarlierRuns(scope=scope, max_summary_tokens=max_summary_tokens, counter=counter)
    return Chain((earlier, run), target=NEVER, name="Blocks")


def in_lines(max_tokens: int, instruction: str | None = None) -> Summary:
    """A summary, with one line a turn in its place where no model writes it."""
    return Summary(max_tokens=max_tokens, instruction=instruction, on_failure=Lines(max_tokens=max_tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRuns(CountingStrategy):
    """All of the runs before the newest goes, for one summary of those that the scope takes in."""

    scope: Scope = NEWEST_THREE
    max_summary_tokens: int = SUMMARY_TOKENS

    def _cut(self, context: Context, budget: Budget) -> Cut | None:
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
class NewestRun(CountingStrategy):
    """The middle of the newest run goes for a summary, and its recent results show their last lines."""

    keep_first: int = 2
    keep_recent: int = 10
    max_lines: int = 50
    instead: Instead = field(default_factory=Summary)

    def _cut(self, context: Context, budget: Budget) -> Cut | None:
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
    return all(entry.run_id == run[0].run_id for entry in originals_of(context, unit.entries))


@dataclass(frozen=True, slots=True)
class RecursiveSummary(CountingStrategy):
    """The newest `keep` messages stay; what is older goes into one summary, with the earlier summary.

    The model reads the earlier summary, the messages that leave, and for continuity the `overlap` messages
    that come right behind them and stay. Its answer stands as a pair that the next pass builds on: a user
    asks `shadow` (None: a question of our own), the assistant answers with the summary. What stays begins at
    a user's message, so that less than `keep` messages may stay; only inside one long turn it begins between
    exchanges, and an exchange that the border runs through stays whole. `system` and `instruction` replace
    our own texts to the summariser, `max_tokens` is the longest summary (None: by the policy). Where the text
    is refused, `on_failure` says what stands instead, as in `Summary`. Done again at once, it finds
    nothing more.

    The rule, 10 and 2 are those of Spring AI Session's `RecursiveSummarizationCompactionStrategy`; the pair
    is also that of OpenAI's cookbook ("Context Engineering: Short-Term Memory Management with Sessions").

    Raises:
        UsageError: `keep` is below 1, `overlap` below 0 or not below `keep`, `max_tokens` below 20, or a text
            is blank.

    Example:
        >>> said = [Message.user("next?"), Message.assistant("done")] * 10
        >>> context = context_of(*said, tokens=100)
        >>> cut = RecursiveSummary(keep=4, overlap=1)(context, Budget(window=4_000, fixed=100, model="m"))
        >>> cut.covers, cut.reads
        (((2, 16),), ((2, 17),))
    """

    keep: int = 10
    overlap: int = 2
    system: str | None = None
    shadow: str | None = None
    instruction: str | None = None
    max_tokens: int | None = None
    on_failure: OnFailure | None = None

    def _check(self) -> None:
        whole("keep", self.keep, 1)
        whole("overlap", self.overlap, 0)
        if self.overlap >= self.keep:
            raise UsageError(
                f"keep must be above overlap (at least 0), which is {self.overlap}, not {self.keep}"
            )
        self._summary()

    def _cut(self, context: Context, budget: Budget) -> Cut | None:
        kept = {entry.seq for entry in newest_said(context, self.keep)}
        units = foldable(context, budget)
        split = next((at for at, unit in enumerate(units) if not kept.isdisjoint(unit.seqs)), len(units))
        folded = units[: next_turn_start(context, units, split)] if split else []
        cut = cut_of(context, folded, self._summary())
        return cut and replace(cut, reads=self._reads(context, folded))

    def _summary(self) -> Summary:
        return Summary(
            max_tokens=self.max_tokens,
            system=self.system,
            instruction=self.instruction,
            shadow=SHADOW if self.shadow is None else self.shadow,
            on_failure=self.on_failure,
        )

    def _reads(self, context: Context, folded: Sequence[Unit]) -> tuple[tuple[int, int], ...]:
        leaving = {entry.seq for unit in folded for entry in unit.entries if entry.kind == "said"}
        overlap = _said_after(context, leaving)[: self.overlap]
        return positions(context, leaving.union(entry.seq for entry in overlap))


def _said_after(context: Context, leaving: set[int]) -> list[Entry]:
    """What was said behind all that leaves, and stays."""
    last = max(leaving)
    return [entry for entry in context.visible if entry.kind == "said" and entry.seq > last]
