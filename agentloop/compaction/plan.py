"""A compaction decided on, as data: what goes, and by which rung of the ladder.

An `Occasion` says what a compaction is for, a `Plan` what it does. Each `…_plan` is one rung: what it would
do to a context within a budget, None where it finds nothing to do. The budget says by its `threshold` where
the trigger fires (`with_threshold`): a compaction must get below it. Nothing here asks a model or changes a
session.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace

from agentloop._plumbing.callables import name_of
from agentloop._plumbing.checks import shown
from agentloop.compaction.policy import Compaction
from agentloop.context import Budget, Context, Entry, Unit, clamped, covered_ranges, record_in, safe_cover
from agentloop.errors import AgentLoopError, UsageError
from agentloop.events import ClearedItem, Ranges, holds
from agentloop.results import NOTHING_TO_DO
from agentloop.strategies import (
    Chain,
    Cut,
    Digest,
    Instead,
    KeepRecentFraction,
    MicroCompact,
    Note,
    Strategy,
    Tiers,
    cleared_item,
    foldable,
    replaced_by,
    strategy_name,
)
from agentloop.stream import CompactionReason
from agentloop.triggers import Fired, Trigger, threshold_of

WORTH = 0.05
"""A compaction that no person asked for must save at least this share of what the request takes."""

LEAST_SUMMARY_TOKENS = 100
MOST_SUMMARY_TOKENS = 8_000
"""A summary is allowed at least and at most so many tokens, however small or large the window."""

LEAST_RECORD, MOST_OF_WINDOW = 2_750, 0.4
"""What is computed from the log may take so many tokens, though at most this share of a small window: what
people say has a size that does not depend on the window."""

AROUND_SUMMARY = 150
"""Tokens of the words around a summary, rounded up."""

SHARE_OF_COVERED = 0.8
"""What is computed takes at most this share of what it newly stands for, and what earlier records took: so
something is gained."""

SHARE_OF_ROOM = 0.8
"""A summary takes at most this share of what the kept part leaves: the conversation is to go on."""

STRIP, SUMMARY, PARTIAL, PLAIN = 1, 2, 3, 4
"""The tiers: results shown shortened, a summary, one of another part, what needs no model. 0 is nothing."""

LEAST_DIGEST_TOKENS = 20
"""In less room a note stands."""

SHORTEST_NOTE = "Earlier messages are not shown."

SMALL_TAIL = KeepRecentFraction(0.1)

SHORTENING = tuple(
    MicroCompact(keep_messages=0, max_chars=most, max_argument_chars=most) for most in (4_000, 1_000, 200, 40)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Occasion:
    """What a compaction is for: its reason, in words too, and what its summary is to keep above all.

    An `eager` one is due for what happened, not for a size.
    """

    reason: CompactionReason
    why: str
    focus: str | None = None
    eager: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What goes of a context, what is shown shortened, and what stands instead, as decided within a budget.

    What stands instead stands before the first message at or after position `at`. It is made from earlier
    records that are covered and from what was `said`, oldest first; None: from all that is covered. Plans
    that are steps of one compaction share `group`. The request must come to at most `most` tokens by it, or
    all is left as it was; None: it may come to anything smaller.
    """

    context: Context
    budget: Budget
    occasion: Occasion
    strategy: str
    tier: int
    covered: tuple[Unit, ...] = ()
    at: int = 0
    instead: Instead = field(default_factory=Note)
    said: tuple[Entry, ...] | None = None
    cleared: tuple[ClearedItem, ...] = ()
    shown: tuple[Entry, ...] = ()
    group: str = ""
    most: int | None = None

    @property
    def tokens(self) -> int:
        """What is covered or shortened takes so much less of the context, but for what stands instead."""
        longer = sum(entry.tokens for entry in self.shown) - sum(item.tokens for item in self.cleared)
        return sum(unit.tokens for unit in self.covered) + longer

    @property
    def gain(self) -> int:
        """The tokens of it that are saved for the first time: an earlier record is written anew."""
        anew = () if isinstance(self.instead, Note) else self.entries
        return self.tokens - sum(entry.tokens for entry in anew if entry.kind == "summary")

    @property
    def entries(self) -> tuple[Entry, ...]:
        """What is covered, oldest first."""
        return in_log_order(entry for unit in self.covered for entry in unit.entries)

    @property
    def reads(self) -> tuple[Entry, ...]:
        """What stands instead is made from these, oldest first."""
        if self.said is None:
            return self.entries
        return (*(entry for entry in self.entries if entry.kind != "said"), *self.said)

    @property
    def touched(self) -> tuple[Entry, ...]:
        """What is covered or shortened, oldest first."""
        return in_log_order((*self.entries, *self.shown))

    @property
    def covers(self) -> Ranges:
        """The positions of what is covered."""
        return covered_ranges(self.context, self.covered)


def plan_of(cut: Cut, context: Context, budget: Budget, *, occasion: Occasion, strategy: str) -> Plan | None:
    """The cut with all left out that must stay as it is, whoever chose it; None where nothing is left.

    Its tier is that of a summary where it covers anything.
    """
    covered = safe_cover(context, cut.positions, task_tokens=budget.task_tokens)
    gone = {seq for unit in covered for seq in unit.seqs}
    shown = {entry.seq: entry for entry in context.visible if entry.seq not in gone}
    items = tuple(item for item in cut.cleared if _may_be_shown(item, shown.get(item.seq)))
    if not covered and not items:
        return None
    return Plan(
        context=context,
        budget=budget,
        occasion=occasion,
        strategy=strategy,
        tier=SUMMARY if covered else STRIP,
        covered=covered,
        at=clamped(context, cut.at, budget.task_tokens),
        instead=cut.instead,
        said=None if cut.reads is None else _said_at(cut.reads, context),
        cleared=items,
        shown=tuple(shown[item.seq] for item in items),
    )


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


def _said_at(positions: Ranges, context: Context) -> tuple[Entry, ...]:
    return tuple(entry for entry in context.said if holds(positions, entry.seq))


def clear_plan(
    items: tuple[ClearedItem, ...], name: str, context: Context, budget: Budget, occasion: Occasion
) -> Plan | None:
    """These are shown shortened."""
    return plan_of(Cut(cleared=items), context, budget, occasion=occasion, strategy=name)


def strategy_plan(
    strategy: Strategy, context: Context, budget: Budget, occasion: Occasion, name: str = ""
) -> Plan | None:
    """What the strategy would do now.

    Raises:
        UsageError: it answered with something else.
        AgentLoopError: it failed.
    """
    name = name or strategy_name(strategy)
    cut: object = _answer_of("strategy", name, lambda: strategy(context, budget))
    if cut is None:
        return None
    if not isinstance(cut, Cut):
        raise UsageError(f"the strategy {name} answered {shown(cut)}: it must answer with a Cut, or None")
    return plan_of(cut, context, budget, occasion=occasion, strategy=name)


def small_tail_plan(context: Context, budget: Budget, occasion: Occasion) -> Plan | None:
    """Less is kept than the policy says."""
    plan = strategy_plan(SMALL_TAIL, context, budget, occasion)
    return plan and replace(plan, tier=PARTIAL)


def digest_plan(context: Context, budget: Budget, occasion: Occasion) -> Plan | None:
    """A digest instead, which needs no model."""
    return strategy_plan(replaced_by(SMALL_TAIL, Digest()), context, budget, occasion, "digest")


def shorten_plan(context: Context, budget: Budget, occasion: Occasion) -> Plan | None:
    """Whatever is left shown so short that the request fits, or as short as it can be."""
    items = _short_enough(context.visible, context, budget)
    plan = clear_plan(items, "shorten", context, budget, occasion)
    return plan and replace(plan, tier=PLAIN)


def shorten_kept_plan(context: Context, budget: Budget, occasion: Occasion) -> Plan | None:
    """The same with results of tools with `keep`, which no other plan shortens: the request comes first."""
    kept = {entry.seq: entry for entry in context.visible if entry.keep and entry.kind == "said"}
    items = _short_enough([replace(entry, keep=False) for entry in kept.values()], context, budget)
    if not items:
        return None
    return Plan(
        context=context,
        budget=budget,
        occasion=occasion,
        strategy="shorten kept",
        tier=PLAIN,
        cleared=items,
        shown=tuple(kept[item.seq] for item in items),
    )


def _short_enough(entries: Iterable[Entry], context: Context, budget: Budget) -> tuple[ClearedItem, ...]:
    items: tuple[ClearedItem, ...] = ()
    for policy in SHORTENING:
        found = (cleared_item(entry, policy, budget.counter) for entry in entries)
        items = tuple(item for item in found if item)
        if size_after(items, context, budget) <= budget.limit:
            break
    return items


def smaller_record_plan(context: Context, budget: Budget, occasion: Occasion) -> Plan | None:
    """A digest of half the length, or shorter, instead of the longest record in sight."""
    records = (unit for unit in foldable(context, budget) if unit.first.kind == "summary")
    unit = max(records, key=lambda unit: unit.tokens, default=None)
    if unit is None:
        return None
    takes = budget.counter(record_in(unit.first.original)[1])
    over = budget.own(budget.size(context) - budget.limit, context) + 1
    most = min(takes - over, takes // 2)
    if most < LEAST_DIGEST_TOKENS:
        return None
    return Plan(
        context=context,
        budget=budget,
        occasion=occasion,
        strategy="smaller record",
        tier=PLAIN,
        covered=(unit,),
        at=unit.first.at,
        instead=Digest(max_tokens=most),
    )


def note_plan(context: Context, budget: Budget, occasion: Occasion) -> Plan | None:
    """A note instead of all that may go, earlier records among it."""
    units = tuple(foldable(context, budget))
    if not units:
        return None
    behind = max(entry.at for unit in units for entry in unit.entries) + 1
    return Plan(
        context=context,
        budget=budget,
        occasion=occasion,
        strategy="note",
        tier=PLAIN,
        covered=units,
        at=clamped(context, behind, budget.task_tokens),
        instead=Note(SHORTEST_NOTE),
    )


def size_after(items: Sequence[ClearedItem], context: Context, budget: Budget) -> int:
    """The size of the next request once these are shown shortened, never above what it is."""
    shown = {entry.seq: entry.tokens for entry in context.visible} if items else {}
    gain = sum(shown[item.seq] - item.tokens for item in items)
    return int(budget.size(context) - budget.ratio(context) * gain)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a strategy, not needed where the request has come down to `goal` tokens.

    Of tiers tried in turn, `tier` is its number, and `most` what it must bring the request to.
    """

    name: str
    strategy: Strategy
    goal: int
    most: int | None = None
    tier: int | None = None

    def plan(self, context: Context, budget: Budget, occasion: Occasion) -> Plan | None:
        """What it would do now; None also where that is surely not enough.

        Raises:
            AgentLoopError: as for `strategy_plan`.
        """
        plan = strategy_plan(self.strategy, context, budget, occasion, self.name)
        if plan is None or (self.most is not None and budget.least_size(context, plan.tokens) > self.most):
            return None
        return replace(plan, most=self.most, tier=self.tier or plan.tier)


def steps_of(strategy: Strategy, budget: Budget, goal: int | None = None) -> Iterator[Step]:
    """The steps of a strategy, by default until the request is down to the target."""
    goal = budget.target if goal is None else goal
    if not isinstance(strategy, Chain):
        yield Step(name=strategy_name(strategy), strategy=strategy, goal=goal)
        return
    if strategy.target is not None:
        goal = int(strategy.target * budget.limit)
    if isinstance(strategy, Tiers):
        goal = strategy.most(budget)
    for number, part in enumerate(strategy.steps, 1):
        for step in steps_of(part, budget, goal):
            if isinstance(strategy, Tiers):
                step = replace(step, tier=number, most=goal if number < len(strategy.steps) else None)
            yield replace(step, name=f"{strategy.name}: {step.name}")


def step_plans(strategy: Strategy, context: Context, budget: Budget, occasion: Occasion) -> Iterator[Plan]:
    """What each step of the strategy would do now, of those that find something to do."""
    for step in steps_of(strategy, budget):
        if plan := step.plan(context, budget, occasion):
            yield plan


def gain_of(strategy: Strategy, context: Context, budget: Budget, occasion: Occasion) -> int:
    """The most that a step of the strategy would save anew, in tokens of our own count."""
    return max((plan.gain for plan in step_plans(strategy, context, budget, occasion)), default=0)


def why_nothing(strategy: Strategy, context: Context, budget: Budget) -> str:
    """Why no step of the strategy finds anything to do, in words."""
    units = [unit for unit in foldable(context, budget) if unit.is_said]
    if not units:
        return NOTHING_TO_DO
    messages, tokens = sum(len(unit.entries) for unit in units), sum(unit.tokens for unit in units)
    may_go = f"{_count(messages, 'message')} ({_count(tokens, 'token')}) may go"
    if any(step.strategy(context, budget) for step in steps_of(strategy, budget)):
        return f"{may_go}, and all that {strategy_name(strategy)} names must stay"
    return f"{may_go}, and {_with_numbers(strategy)} leaves all of them as they are"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _with_numbers(strategy: Strategy) -> str:
    """The strategy's name, with the numbers that it goes by."""
    names: list[str] = [each.name for each in fields(strategy)] if is_dataclass(strategy) else []
    values = ((name, getattr(strategy, name)) for name in names)
    numbers = ", ".join(f"{name}={value}" for name, value in values if isinstance(value, int | float))
    return f"{strategy_name(strategy)}({numbers})" if numbers else strategy_name(strategy)


def longest_summary(plan: Plan, share: float) -> int:
    """The longest summary, in tokens of our own count: this share of the window, and most of what is left.

    That is what the kept part leaves.
    """
    context, budget = plan.context, plan.budget
    left = int(SHARE_OF_ROOM * (budget.room(context) - (context.tokens - plan.tokens)))
    most = min(budget.own(int(budget.window * share), context), left, MOST_SUMMARY_TOKENS)
    return max(LEAST_SUMMARY_TOKENS, most)


def longest_record(plan: Plan, share: float) -> int:
    """The longest record that is computed: a larger share of a small window than a summary takes."""
    longest = longest_summary(plan, _share_of_record(plan.budget, share))
    earlier = plan.tokens - plan.gain
    return max(LEAST_SUMMARY_TOKENS, min(longest, earlier + int(SHARE_OF_COVERED * plan.gain)))


def _share_of_record(budget: Budget, share: float) -> float:
    return max(share, min(LEAST_RECORD / budget.window, MOST_OF_WINDOW))


def room_below(plan: Plan, *, pinned: str) -> int | None:
    """What a summary and its record may take so that the plan comes to what it must; None for no bound.

    What is `pinned` behind them has its room first.
    """
    if plan.most is None:
        return None
    budget = plan.budget
    spare = plan.most - budget.least_size(plan.context, plan.tokens)
    return int(spare / budget.ratio(plan.context)) - AROUND_SUMMARY - budget.counter(pinned)


def with_threshold(policy: Compaction, budget: Budget) -> Budget:
    """The budget with the place where the trigger fires: compaction must get below it, record and all."""
    return replace(
        budget,
        threshold=threshold_of(policy.trigger, budget) if policy.trigger else None,
        record=int(budget.window * _share_of_record(budget, policy.summary_share)),
    )


def fired_by(trigger: Trigger | None, context: Context, budget: Budget) -> Fired | None:
    """The trigger's reason to compact now.

    Raises:
        UsageError: it answered with something else.
        AgentLoopError: it failed.
    """
    if trigger is None:
        return None
    name = name_of(trigger)
    fired = _answer_of("trigger", name, lambda: trigger(context, budget))
    if fired is None or isinstance(fired, Fired):
        return fired
    raise UsageError(f"the trigger {name} answered {shown(fired)}: it must answer with Fired(…), or None")


def _answer_of(kind: str, name: str, ask: Callable[[], object]) -> object:
    """What a trigger or a strategy answers; what it raises is told as its own."""
    try:
        return ask()
    except AgentLoopError:
        raise
    except Exception as error:  # a user's own may raise anything
        raise AgentLoopError(f"the {kind} {name} failed: {type(error).__name__}: {error}") from error
