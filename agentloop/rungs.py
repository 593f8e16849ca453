"""What each rung of the ladder would do to one context: decided here, carried out elsewhere."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from agentloop._plumbing.callables import name_of
from agentloop._plumbing.checks import shown
from agentloop.context import Budget, Context, TokenCounter
from agentloop.errors import AgentLoopError, UsageError
from agentloop.events import ClearedItem
from agentloop.plans import Occasion, Plan, plan_of
from agentloop.policy import Compaction
from agentloop.strategies import (
    Chain,
    Cut,
    Digest,
    KeepRecentFraction,
    MicroCompact,
    Strategy,
    cleared_item,
    replaced_by,
    strategy_name,
)
from agentloop.triggers import Fired, Trigger, threshold_of

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
