"""The ladder: what is done, rung by rung, until the next request fits.

0 clear old results, superseded ones first → 1 the policy's strategy, step by step → 2 summarise with a
smaller tail → 3 a plain digest computed from the log → 4 shorten what is left. The rungs below a refused
summary are climbed only where the request would not fit otherwise. After the last rung the request fits, or
`ContextOverflowError` names what is too big.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from agentloop.budget import Budget
from agentloop.callbacks import CompactionResult
from agentloop.compactor import Compactor
from agentloop.context import Context
from agentloop.events import Cleared, ClearedItem
from agentloop.guard import Guard
from agentloop.instead import Digest, Summary
from agentloop.micro import Clearing, MicroCompact, cleared_item
from agentloop.models import ChatModel
from agentloop.plans import Plan, Why, plan_of
from agentloop.policy import Compaction
from agentloop.previews import foreseen
from agentloop.results import CompactionPreview
from agentloop.sessions import Session
from agentloop.standing import NOTHING, Standing
from agentloop.strategies import Chain, KeepRecentFraction, Strategy, replaced_by, strategy_name
from agentloop.strategies.base import Cut
from agentloop.stream import ContextStatus, ResultsCleared
from agentloop.summary import Summariser, summary_budget
from agentloop.superseded_items import superseded_items
from agentloop.triggers import threshold_of
from agentloop.writers import Writers

WORTH = 0.05
"""A compaction that no person asked for must save at least this share of what the request takes."""

LEAST_SUMMARY_TOKENS = 100
MOST_SUMMARY_TOKENS = 8_000
"""A summary is allowed at least and at most so many tokens, however small or large the window."""

INDEX_SHARE = 0.15
"""The index beside a summary may take this share of the longest summary."""

SMALL_TAIL = KeepRecentFraction(0.1)

SHORTENING = tuple(
    MicroCompact(keep_messages=0, max_chars=most, max_argument_chars=most) for most in (4_000, 1_000, 200, 40)
)


@dataclass(slots=True, kw_only=True)
class Ladder:
    """The rungs for one run. `model` is the agent's, None where none writes summaries.

    `outcomes` lists what its compactions came to.
    """

    policy: Compaction
    model: ChatModel | None
    compactor: Compactor
    guard: Guard = field(default_factory=Guard)
    outcomes: list[CompactionResult] = field(default_factory=list)
    clearing: Clearing | None = field(init=False)

    def __post_init__(self) -> None:
        micro = self.policy.micro
        self.clearing = Clearing(micro, self.compactor.counter) if micro else None

    async def clear_in_batches(self, session: Session, budget: Budget) -> Session:
        """Clear old results once that saves enough (layer one, before every request)."""
        if self.policy.micro is None or self.clearing is None:
            return session
        wanted = self.policy.micro.min_gain_tokens
        items = self.clearing.batch(
            session.context, min_gain_tokens=budget.room(session.context) // 4 if wanted is None else wanted
        )
        return await self._clear(session, budget, items) if items else session

    async def climb(self, session: Session, budget: Budget, why: Why) -> Session:
        """The session with a request that fits, by as few rungs as that takes.

        Raises:
            ContextOverflowError: it cannot be made to fit.
        """
        budget = self.aimed(budget)
        session, result = await self._clear_enough(session, budget, why)
        if self._may_summarise(session, budget, why, result):
            session, result = await self._by_the_policy(session, budget, why)
        if not budget.fits(session.context) and veto_of(result) is None:
            session = await self._digest(session, budget, why)
        if not budget.fits(session.context) and veto_of(result) is None:
            session = await self._shorten(session, budget, why)
        budget.check(session.context, vetoed=veto_of(result))
        return session

    async def carry_out(
        self, session: Session, budget: Budget, why: Why, strategy: Strategy | None = None
    ) -> tuple[Session, CompactionResult | None]:
        """Carry out a strategy, the policy's where none is given, and what came of it.

        None where it found nothing to do. A chain goes on until the request is down to its target.
        """
        budget, last = self.aimed(budget), None
        for name, step, goal in steps_of(strategy or self.policy.strategy, budget):
            if last is not None and (last.status == "vetoed" or budget.size(session.context) <= goal):
                break
            plan = self.plan(session.context, budget, why, step, name)
            if plan is not None:
                session, last = await self._carry_out(session, budget, plan)
        return session, last

    def plan(
        self, context: Context, budget: Budget, why: Why, strategy: Strategy, name: str = ""
    ) -> Plan | None:
        """The compaction that the strategy makes now; None where nothing may go."""
        cut = strategy(context, self.aimed(budget))
        if cut is None:
            return None
        return plan_of(cut, context, budget, why=why, strategy=name or strategy_name(strategy))

    def plans(self, context: Context, budget: Budget, why: Why) -> Iterator[Plan]:
        """What each step of the policy's strategy would do now."""
        for name, step, _ in steps_of(self.policy.strategy, self.aimed(budget)):
            if plan := self.plan(context, budget, why, step, name):
                yield plan

    def preview(
        self, context: Context, budget: Budget, why: Why, status: ContextStatus
    ) -> CompactionPreview | None:
        """What the first step that finds something to do would come to; nothing is done."""
        plan = next(self.plans(context, budget, why), None)
        if plan is None:
            return None
        standing = self._foreseen(plan, context, budget)
        longest, model = self.longest(plan, context, budget), self.model
        return foreseen(plan, standing, context, budget, status=status, longest=longest, model=model)

    def aimed(self, budget: Budget) -> Budget:
        """The budget with the place where the trigger fires: compaction must get below it."""
        trigger = self.policy.trigger
        return replace(budget, threshold=threshold_of(trigger, budget) if trigger else None)

    def longest(self, plan: Plan, context: Context, budget: Budget) -> int:
        """The longest summary: a share of the window, and most of what the kept part leaves of it."""
        kept = context.tokens - plan.tokens
        left = int(0.8 * (budget.room(context) - kept))
        return max(
            LEAST_SUMMARY_TOKENS,
            min(int(budget.window * self.policy.summary_share), left, MOST_SUMMARY_TOKENS),
        )

    def _foreseen(self, plan: Plan, context: Context, budget: Budget) -> Standing | None:
        """What would stand instead; None where that is for a model to say."""
        if not plan.covered:
            return NOTHING
        match plan.instead:
            case Summary():
                return None
            case computed:
                return self._writers(budget).without_a_model(computed, plan, context)

    def _may_summarise(
        self, session: Session, budget: Budget, why: Why, cleared: CompactionResult | None
    ) -> bool:
        if cleared is not None and (
            cleared.status == "vetoed" or budget.size(session.context) <= budget.target
        ):
            return False
        if self.guard.allows(size=budget.size(session.context), limit=budget.limit):
            return True
        return why.reason == "overflow" and self.guard.bypass()

    async def _by_the_policy(
        self, session: Session, budget: Budget, why: Why
    ) -> tuple[Session, CompactionResult | None]:
        """Rungs 1 and 2, and what the guard has to know of them."""
        first = len(self.outcomes)
        result = None
        if self._is_worth(session.context, budget, why) or not budget.fits(session.context):
            session, result = await self.carry_out(session, budget, why)
        if result and result.status == "done" and not budget.fits(session.context):
            session, result = await self._with_a_small_tail(session, budget, why)
        done = [each for each in self.outcomes[first:] if each.status == "done"]
        helped = bool(done) and not any(each.error for each in done)
        self.guard.judge(helped=helped, size=budget.size(session.context))
        return session, result

    def _is_worth(self, context: Context, budget: Budget, why: Why) -> bool:
        """Whether a step of the policy saves enough of the request to rewrite it."""
        worth = WORTH * budget.size(context)
        return any(plan.tokens >= worth for plan in self.plans(context, budget, why))

    async def _with_a_small_tail(
        self, session: Session, budget: Budget, why: Why
    ) -> tuple[Session, CompactionResult | None]:
        plan = self.plan(session.context, budget, why, SMALL_TAIL)
        if plan is None:
            return session, None
        return await self._carry_out(session, budget, replace(plan, tier=2))

    async def _carry_out(
        self, session: Session, budget: Budget, plan: Plan
    ) -> tuple[Session, CompactionResult]:
        write = self._writers(budget).write
        session, result = await self.compactor.carry_out(session, plan, budget, write)
        self.outcomes.append(result)
        return session, result

    def _writers(self, budget: Budget) -> Writers:
        return Writers(
            summariser=lambda spec, plan, context: self._summariser(spec, plan, context, budget),
            counter=self.compactor.counter,
            longest=lambda plan, context: self.longest(plan, context, budget),
        )

    def _summariser(self, spec: Summary, plan: Plan, context: Context, budget: Budget) -> Summariser | None:
        model = self.policy.model or self.model
        if model is None:
            return None
        longest = self.longest(plan, context, budget)
        index = int(longest * INDEX_SHARE)
        return Summariser(
            model=model,
            counter=self.compactor.counter,
            budget=summary_budget(model, budget, longest=longest - index),
            limit_seconds=self.policy.summary_seconds,
            on_part=self.compactor.watch.retrying,
            spec=spec,
            index_tokens=index,
        )

    async def _clear_enough(
        self, session: Session, budget: Budget, why: Why
    ) -> tuple[Session, CompactionResult | None]:
        """Rung 0: show as few results shortened as bring the request to the target; none where none do."""
        for name, items in self._clearable(session.context):
            if items and size_after(session.context, items, budget) <= budget.target:
                return await self._show(session, budget, why, items, name=name, tier=0)
        return session, None

    def _clearable(self, context: Context) -> Iterator[tuple[str, tuple[ClearedItem, ...]]]:
        if self.clearing is not None:
            replaced = superseded_items(context, self.compactor.counter)
            yield "superseded results", replaced
            others = self.clearing.batch(context, min_gain_tokens=0)
            yield "old results", tuple({item.seq: item for item in (*others, *replaced)}.values())

    async def _digest(self, session: Session, budget: Budget, why: Why) -> Session:
        """Rung 3."""
        strategy = replaced_by(SMALL_TAIL, Digest())
        plan = self.plan(session.context, budget, why, strategy, "digest")
        return (await self._carry_out(session, budget, plan))[0] if plan else session

    async def _shorten(self, session: Session, budget: Budget, why: Why) -> Session:
        """Rung 4."""
        items: tuple[ClearedItem, ...] = ()
        for policy in SHORTENING:
            found = (cleared_item(entry, policy, self.compactor.counter) for entry in session.context.visible)
            items = tuple(item for item in found if item)
            if size_after(session.context, items, budget) <= budget.limit:
                break
        return (await self._show(session, budget, why, items, name="shorten", tier=4))[0]

    async def _show(
        self,
        session: Session,
        budget: Budget,
        why: Why,
        items: tuple[ClearedItem, ...],
        *,
        name: str,
        tier: int,
    ) -> tuple[Session, CompactionResult | None]:
        """A compaction that only shows these shortened."""
        plan = plan_of(Cut(cleared=items), session.context, budget, why=why, strategy=name, tier=tier)
        return await self._carry_out(session, budget, plan) if plan else (session, None)

    async def _clear(self, session: Session, budget: Budget, items: tuple[ClearedItem, ...]) -> Session:
        before = budget.size(session.context)
        session = await session.append(Cleared(items=items))
        cleared = ResultsCleared(
            positions=tuple(item.seq for item in items),
            tokens_before=before,
            tokens_after=budget.size(session.context),
        )
        await self.compactor.watch.say(cleared)
        return session


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


def size_after(context: Context, items: Sequence[ClearedItem], budget: Budget) -> int:
    """The size of the next request once these are shown shortened, never above what it is."""
    if not items:
        return budget.size(context)
    shown = {entry.seq: entry.tokens for entry in context.visible}
    gain = sum(shown[item.seq] - item.tokens for item in items)
    return int(budget.size(context) - budget.ratio(context) * gain)


def veto_of(result: CompactionResult | None) -> str | None:
    """The reason of a callback that forbade the compaction, if one did."""
    return result.error if result is not None and result.status == "vetoed" else None
