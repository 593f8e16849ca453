"""How far back a compaction reaches: earlier runs, and the turns or exchanges of one."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from agentloop.budget import Budget
from agentloop.checks import count, whole
from agentloop.context import Context
from agentloop.entries import Entry
from agentloop.errors import UsageError
from agentloop.events import Ranges
from agentloop.exchanges import Unit
from agentloop.ranges import ranges_between

SUMMARY_TOKENS = 2_000
"""The longest summary of one run (phi-core's `max_summary_tokens`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """How many runs before the newest one are taken in; made by `fixed` or `token_budget`.

    A run is one call of `Runner.run`; what was imported is one run. The newest earlier run is always taken
    in. The rule and the default of 3 are phi-core's (`CompactionScope`).

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

    most_runs: int | None = None
    max_tokens: int | None = None
    summary_tokens: int = SUMMARY_TOKENS

    def __post_init__(self) -> None:
        whole("most_runs", self.most_runs, 1)
        whole("max_tokens", self.max_tokens, 1)
        count("summary_tokens", self.summary_tokens, 20)

    @classmethod
    def fixed(cls, n: int = 3) -> "Scope":
        """The newest `n` earlier runs.

        Raises:
            UsageError: `n` is no whole number of at least 1.
        """
        count("n", n, 1)
        return cls(most_runs=n)

    @classmethod
    def token_budget(cls, max_tokens: int | None = None, summary_tokens: int = SUMMARY_TOKENS) -> "Scope":
        """Earlier runs, newest first, as long as they fit into `max_tokens` together as summaries.

        A run counts as many tokens as it has, and at most the `summary_tokens` that its summary may take: so
        runs are taken in whose messages alone exceed the budget. None: what the window has room for.

        Raises:
            UsageError: `max_tokens` is below 1, or `summary_tokens` below 20.
        """
        return cls(max_tokens=max_tokens, summary_tokens=summary_tokens)

    def runs(self, context: Context, budget: Budget) -> tuple[str, ...]:
        """The ids of the earlier runs that are taken in, newest first."""
        tokens = _tokens_of_earlier_runs(context)
        if self.most_runs is not None:
            return tuple(tokens)[: self.most_runs]
        left = budget.room(context) if self.max_tokens is None else self.max_tokens
        taken: list[str] = []
        for run, size in tokens.items():
            left -= min(size, self.summary_tokens)
            if taken and left < 0:
                break
            taken.append(run)
        return tuple(taken)


def check_scope(scope: object) -> None:
    """Refuse what is no scope.

    Raises:
        UsageError: it is none.
    """
    if not isinstance(scope, Scope):
        raise UsageError(f"scope must be a Scope, made by Scope.fixed or Scope.token_budget, not {scope!r}")


def newest_run(context: Context) -> list[Entry]:
    """All that was said in the newest run, whether in sight or not."""
    newest = context.said[-1].run_id if context.said else ""
    return [entry for entry in context.said if entry.run_id == newest]


def turns_in(units: Iterable[Unit]) -> list[list[Unit]]:
    """The units by turns; what stands before the first user message belongs to the first turn."""
    turns: list[list[Unit]] = [[]]
    begun = False
    for unit in units:
        if unit.first.is_user and begun:
            turns.append([])
        begun = begun or unit.first.is_user
        turns[-1].append(unit)
    return turns if turns[0] else []


def positions(context: Context, wanted: Collection[int]) -> Ranges:
    """These positions of what was said, as ranges that hold nothing else that was said."""
    return ranges_between(wanted, [entry.seq for entry in context.said if entry.seq not in wanted])


def seqs_of(units: Iterable[Unit]) -> set[int]:
    """The positions of all entries of these units."""
    return {seq for unit in units for seq in unit.seqs}


def answers_in(units: Sequence[Unit]) -> list[Unit]:
    """The exchanges and answers among these units: what the assistant did, one by one."""
    return [unit for unit in units if unit.first.kind == "said" and not unit.first.is_user]


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
