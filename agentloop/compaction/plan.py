"""A compaction decided on, as data; what stands instead (was plans, standing, rungs)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from agentloop._plumbing.callables import name_of
from agentloop._plumbing.checks import shown
from agentloop.compaction.policy import Compaction
from agentloop.context import (
    Budget,
    Context,
    Entry,
    TokenCounter,
    Unit,
    clamped,
    count_message,
    covered_ranges,
    safe_cover,
)
from agentloop.errors import AgentLoopError, UsageError
from agentloop.events import ClearedItem, Compacted, Made, Ranges, holds
from agentloop.messages import Message
from agentloop.prompts import question_message, summary_message
from agentloop.strategies import (
    Chain,
    Cut,
    Digest,
    Instead,
    KeepRecentFraction,
    MicroCompact,
    Strategy,
    cleared_item,
    replaced_by,
    strategy_name,
)
from agentloop.stream import CompactionReason
from agentloop.triggers import Fired, Trigger, threshold_of


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


WORTH = 0.05
"""A compaction that no person asked for must save at least this share of what the request takes."""

LEAST_SUMMARY_TOKENS = 100
MOST_SUMMARY_TOKENS = 8_000
"""A summary is allowed at least and at most so many tokens, however small or large the window."""

SHARE_OF_ROOM = 0.8
"""A summary takes at most this share of what the kept part leaves: the conversation is to go on."""

SMALL_TAIL = KeepRecentFraction(0.1)
SMALL_TAIL_TIER = 2

SHORTENING = tuple(
    MicroCompact(keep_messages=0, max_chars=most, max_argument_chars=most) for most in (4_000, 1_000, 200, 40)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rungs:
    """The rungs for one context, by a policy, within a budget, on one occasion."""

    policy: Compaction
    context: Context
    budget: Budget
    occasion: Occasion

    @classmethod
    def of(cls, policy: Compaction, context: Context, budget: Budget, occasion: Occasion) -> "Rungs":
        """The rungs that lead below the place where the policy's trigger fires."""
        return cls(policy=policy, context=context, budget=aimed(policy, budget), occasion=occasion)

    def plan(self, strategy: Strategy, name: str = "") -> Plan | None:
        """What the strategy would do now; None where nothing may go.

        Raises:
            UsageError: it answered with something else.
            AgentLoopError: it failed.
        """
        name = name or strategy_name(strategy)
        cut: object = _answer_of("strategy", name, lambda: strategy(self.context, self.budget))
        if cut is None:
            return None
        if not isinstance(cut, Cut):
            raise UsageError(f"the strategy {name} answered {shown(cut)}: it must answer with a Cut, or None")
        return plan_of(cut, self.context, self.budget, occasion=self.occasion, strategy=name)

    def plans(self) -> Iterator[Plan]:
        """What each step of the policy's strategy would do now."""
        for name, step, _ in steps_of(self.policy.strategy, self.budget):
            if plan := self.plan(step, name):
                yield plan

    def gain(self) -> int:
        """The most that a step of the policy's strategy would save, in tokens of our own count."""
        return max((plan.tokens for plan in self.plans()), default=0)

    def is_worth(self) -> bool:
        """Whether the policy saves enough of the request to rewrite it."""
        return self.gain() >= max(1, WORTH * self.budget.size(self.context))

    def small_tail(self) -> Plan | None:
        """Rung 2: less is kept than the policy says."""
        plan = self.plan(SMALL_TAIL)
        return plan and replace(plan, tier=SMALL_TAIL_TIER)

    def digest(self) -> Plan | None:
        """Rung 3: a digest instead, which needs no model."""
        return self.plan(replaced_by(SMALL_TAIL, Digest()), "digest")

    def shown(self, items: tuple[ClearedItem, ...], name: str, tier: int) -> Plan | None:
        """Rungs 0 and 4: these are shown shortened; None where there are none."""
        cut = Cut(cleared=items)
        return plan_of(cut, self.context, self.budget, occasion=self.occasion, strategy=name, tier=tier)

    def shortened(self, counter: TokenCounter) -> Plan | None:
        """Rung 4: whatever is left shown so short that the request fits, or as short as it can be."""
        items: tuple[ClearedItem, ...] = ()
        for policy in SHORTENING:
            found = (cleared_item(entry, policy, counter) for entry in self.context.visible)
            items = tuple(item for item in found if item)
            if self.size_after(items) <= self.budget.limit:
                break
        return self.shown(items, "shorten", 4)

    def size_after(self, items: Sequence[ClearedItem]) -> int:
        """The size of the next request once these are shown shortened, never above what it is."""
        shown = {entry.seq: entry.tokens for entry in self.context.visible} if items else {}
        gain = sum(shown[item.seq] - item.tokens for item in items)
        return int(self.budget.size(self.context) - self.budget.ratio(self.context) * gain)

    def longest(self, plan: Plan) -> int:
        """The longest summary: a share of the window, and most of what the kept part leaves of it."""
        kept = self.context.tokens - plan.tokens
        left = int(SHARE_OF_ROOM * (self.budget.room(self.context) - kept))
        most = min(int(self.budget.window * self.policy.summary_share), left, MOST_SUMMARY_TOKENS)
        return max(LEAST_SUMMARY_TOKENS, most)


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


def aimed(policy: Compaction, budget: Budget) -> Budget:
    """The budget with the place where the trigger fires: compaction must get below it."""
    return replace(budget, threshold=threshold_of(policy.trigger, budget) if policy.trigger else None)


def steps_of(
    strategy: Strategy, budget: Budget, goal: int | None = None
) -> Iterator[tuple[str, Strategy, int]]:
    """The steps of a strategy, each with its name and with the size in tokens at which no more is needed."""
    goal = budget.target if goal is None else goal
    if not isinstance(strategy, Chain):
        yield strategy_name(strategy), strategy, goal
        return
    goal = goal if strategy.target is None else int(strategy.target * budget.limit)
    for step in strategy.steps:
        for name, inner, target in steps_of(step, budget, goal):
            yield f"{strategy.name}: {name}", inner, target


WITHOUT_A_MODEL = 3
"""The tier of a compaction whose text no model wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What stands instead, and how it was made; `unread` are the positions that it does not stand for.

    With `shadow` it is an assistant's answer, and that is what a user is shown to have asked. `fault` says
    why the model's text could not stand, where something else had to.
    """

    text: str
    made: Made
    unread: tuple[int, ...] = ()
    shadow: str | None = None
    fault: str | None = None


NOTHING = Standing(text="", made="note")
"""What stands for nothing: a compaction that only shortens covers no message."""


def record_of(
    standing: Standing, plan: Plan, context: Context, *, transcript: str | None, counter: TokenCounter
) -> Compacted:
    """The record of the plan with this standing instead; `transcript` is a file name."""
    covers = plan.covers(context)
    replacement, answer = _texts(standing, transcript) if covers else ("", "")
    tokens = count_message(Message.user(replacement), counter) if replacement else 0
    answer_tokens = count_message(Message.assistant(answer), counter) if answer else 0
    return Compacted(
        covers=covers,
        replacement=replacement,
        at=plan.at,
        tokens=tokens + answer_tokens,
        answer=answer,
        answer_tokens=answer_tokens,
        made=standing.made,
        cleared=plan.cleared,
        group=plan.group,
        reason=plan.occasion.reason,
        why=plan.occasion.why,
        strategy=plan.strategy,
        tier=WITHOUT_A_MODEL if covers and standing.made != "summary" else plan.tier,
        transcript=transcript,
    )


def _texts(standing: Standing, transcript: str | None) -> tuple[str, str]:
    """What a user is shown to say, and what an assistant answers, if anything."""
    if standing.shadow is not None:
        return question_message(standing.shadow, transcript), standing.text
    if standing.made == "note":
        return question_message(standing.text, transcript), ""
    return summary_message(standing.text, transcript), ""
