"""How far back a compaction reaches: earlier runs, and the turns or exchanges of one."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from agentloop._plumbing.checks import shown, whole, whole_or_none
from agentloop.context import Budget, Context, Entry, Unit, newest_within
from agentloop.errors import UsageError
from agentloop.events import Ranges, ranges_between

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
        >>> from agentloop.events import MessageAdded, Record
        >>> from agentloop.messages import Message
        >>> events = [MessageAdded(message=Message.user("?"), tokens=900, run_id=run) for run in "abcd"]
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


def check_scope(scope: object) -> None:
    """Refuse what is no scope.

    Raises:
        UsageError: it is none.
    """
    if not isinstance(scope, Scope):
        raise UsageError(
            f"scope must be a Scope, made by Scope.fixed or Scope.token_budget, not {shown(scope)}"
        )


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
