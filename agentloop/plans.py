"""A compaction decided on, as data: what a cut comes to once all that must stay stays."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from agentloop.context import Budget, Context, Entry, Unit, clamped, covered_ranges, safe_cover
from agentloop.events import ClearedItem, Ranges, holds
from agentloop.strategies import Cut, Instead
from agentloop.stream import CompactionReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Occasion:
    """What a compaction is for: its reason, in words too, and what its summary is to keep above all."""

    reason: CompactionReason
    why: str
    focus: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What goes, what is shown shortened, and what stands instead.

    What stands instead stands before the first message at or after position `at`, and is made from `reads`,
    oldest first. Plans that are steps of one compaction share `group`.
    """

    occasion: Occasion
    strategy: str
    tier: int
    covered: tuple[Unit, ...]
    at: int
    instead: Instead
    reads: tuple[Entry, ...]
    cleared: tuple[ClearedItem, ...] = ()
    shown: tuple[Entry, ...] = ()
    group: str = ""

    @property
    def tokens(self) -> int:
        """What is covered or shortened takes so much less of the context, but for what stands instead."""
        longer = sum(entry.tokens for entry in self.shown) - sum(item.tokens for item in self.cleared)
        return sum(unit.tokens for unit in self.covered) + longer

    @property
    def entries(self) -> tuple[Entry, ...]:
        """What is covered, oldest first."""
        return in_log_order(entry for unit in self.covered for entry in unit.entries)

    @property
    def touched(self) -> tuple[Entry, ...]:
        """What is covered or shortened, oldest first."""
        return in_log_order((*self.entries, *self.shown))

    def repeats(self, other: "Plan") -> bool:
        """Whether it does to the same context what the other does, by whatever strategy."""
        return self._work == other._work

    @property
    def _work(self) -> tuple[object, ...]:
        covered, read = (tuple(entry.seq for entry in part) for part in (self.entries, self.reads))
        return covered, read, tuple(item.seq for item in self.cleared), self.instead

    def covers(self, context: Context) -> Ranges:
        """The positions of what is covered, in the context it was decided for."""
        return covered_ranges(context, self.covered)


def plan_of(
    cut: Cut, context: Context, budget: Budget, *, occasion: Occasion, strategy: str, tier: int | None = None
) -> Plan | None:
    """The cut with all left out that must stay as it is, whoever chose it; None where nothing is left.

    Its tier is 1 where it covers anything, else 0, where no other is given.
    """
    covered = safe_cover(context, cut.positions, task_tokens=budget.task_tokens)
    gone = {seq for unit in covered for seq in unit.seqs}
    shown = {entry.seq: entry for entry in context.visible if entry.seq not in gone}
    items = tuple(item for item in cut.cleared if _may_be_shown(item, shown.get(item.seq)))
    if not covered and not items:
        return None
    tier = int(bool(covered)) if tier is None else tier
    plan = Plan(
        occasion=occasion,
        strategy=strategy,
        tier=tier,
        covered=covered,
        at=clamped(context, cut.at, budget.task_tokens),
        instead=cut.instead,
        reads=(),
        cleared=items,
        shown=tuple(shown[item.seq] for item in items),
    )
    return replace(plan, reads=_reads(cut, context, plan.entries))


def in_log_order(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """The entries as they stand in the context."""
    return tuple(sorted(entries, key=lambda entry: (entry.at, entry.seq)))


def _may_be_shown(item: ClearedItem, entry: Entry | None) -> bool:
    """Whether the item shortens a result or calls in sight, and changes nothing else of them."""
    if entry is None or entry.kind != "said" or entry.keep or item.tokens >= entry.tokens:
        return False
    before, after = entry.original, item.message
    same = before.role == after.role and before.tool_call_id == after.tool_call_id
    calls = [call.id for call in before.tool_calls] == [call.id for call in after.tool_calls]
    return same and calls and (before.role == "tool" or bool(before.tool_calls))


def _reads(cut: Cut, context: Context, covered: Sequence[Entry]) -> tuple[Entry, ...]:
    if cut.reads is None:
        return tuple(covered)
    earlier = (entry for entry in covered if entry.kind != "said")
    return (*earlier, *(entry for entry in context.said if holds(cut.reads, entry.seq)))
