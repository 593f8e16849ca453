"""The ladder: what is done, rung by rung, until the next request fits.

0 clear old results → 1 summarise → 2 summarise with a smaller tail → 3 a plain digest computed from the log
→ 4 shorten what is left. The rungs below a refused summary are climbed only where the request would not fit
otherwise. After the last rung the request fits, or `ContextOverflowError` names what is too big.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from agentloop.budget import TARGET, Budget
from agentloop.callables import name_of
from agentloop.callbacks import CompactionResult
from agentloop.compaction import Compaction
from agentloop.compactor import Compactor, Plan
from agentloop.context import Context
from agentloop.digest import digest
from agentloop.entries import Entry
from agentloop.events import Cleared, ClearedItem
from agentloop.exchanges import Unit, clamped, safe_cover
from agentloop.guard import Guard
from agentloop.micro import Clearing, MicroCompact, cleared_item
from agentloop.models import ChatModel
from agentloop.sessions import Session
from agentloop.strategies import KeepRecentFraction, Strategy
from agentloop.stream import CompactionReason, ResultsCleared
from agentloop.summary import Note, Summariser, Written, summary_budget

WORTH = 0.05
"""A compaction that no person asked for must cover at least this share of the limit."""

LEAST_SUMMARY_TOKENS = 100
MOST_SUMMARY_TOKENS = 8_000
"""A summary is allowed at least and at most so many tokens, however small or large the window."""

SMALL_TAIL = KeepRecentFraction(0.1)

SHORTENING = tuple(
    MicroCompact(keep_messages=0, max_chars=most, max_argument_chars=most) for most in (4_000, 1_000, 200, 40)
)


@dataclass(slots=True, kw_only=True)
class Ladder:
    """The rungs for one run. `model` is the agent's; `outcomes` lists what its compactions came to."""

    policy: Compaction
    model: ChatModel
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

    async def climb(self, session: Session, budget: Budget, *, reason: CompactionReason, why: str) -> Session:
        """The session with a request that fits, by as few rungs as that takes.

        Raises:
            ContextOverflowError: it cannot be made to fit.
        """
        session, enough = await self._clear_enough(session, budget)
        if enough:
            return session
        result = None
        if self.guard.allows(size=budget.size(session.context), limit=budget.limit):
            plan = self.plan(session.context, budget, reason=reason, why=why)
            session, result = await self._summarise(session, budget, plan)
        if result and result.status == "done" and not budget.fits(session.context):
            plan = self.plan(session.context, budget, reason=reason, why=why, strategy=SMALL_TAIL)
            session, result = await self._summarise(session, budget, plan and replace(plan, tier=2))
        if not budget.fits(session.context) and veto_of(result) is None:
            session = await self._digest(session, budget, reason=reason, why=why)
        if not budget.fits(session.context):
            session = await self._shorten(session, budget)
        budget.check(session.context, vetoed=veto_of(result))
        return session

    def plan(
        self,
        context: Context,
        budget: Budget,
        *,
        reason: CompactionReason,
        why: str,
        focus: str | None = None,
        strategy: Strategy | None = None,
    ) -> Plan | None:
        """The compaction to make now; None where the strategy finds nothing that may go."""
        strategy = strategy or self.policy.strategy
        cut = strategy(context, budget)
        if cut is None:
            return None
        covered = safe_cover(context, cut.positions, task_tokens=budget.task_tokens)
        if not covered:
            return None
        return Plan(
            reason=reason,
            why=why,
            strategy=name_of(strategy),
            tier=1,
            covered=covered,
            at=clamped(context, cut.at, budget.task_tokens),
            write=self._summariser(budget, self._longest(context, budget, covered)).write,
            focus=focus,
        )

    async def carry_out(
        self, session: Session, budget: Budget, plan: Plan
    ) -> tuple[Session, CompactionResult]:
        """Carry out the plan, and note how it went."""
        session, result = await self.compactor.carry_out(session, plan, budget)
        self.outcomes.append(result)
        self.guard.judge(helped=result.status == "done", size=budget.size(session.context))
        return session, result

    def _summariser(self, budget: Budget, longest: int) -> Summariser:
        model = self.policy.model or self.model
        return Summariser(
            model=model,
            counter=self.compactor.counter,
            budget=summary_budget(model, budget, longest=longest),
            limit_seconds=self.policy.summary_seconds,
            on_part=self.compactor.watch.retrying,
        )

    def _longest(self, context: Context, budget: Budget, covered: Sequence[Unit]) -> int:
        """The longest summary: a share of the window, and most of what the kept part leaves of it."""
        kept = context.tokens - sum(unit.tokens for unit in covered)
        left = int(0.8 * (budget.room(context) - kept))
        return max(
            LEAST_SUMMARY_TOKENS,
            min(int(budget.window * self.policy.summary_share), left, MOST_SUMMARY_TOKENS),
        )

    async def _clear_enough(self, session: Session, budget: Budget) -> tuple[Session, bool]:
        """Clear all that may be cleared, where that alone brings the request to the target."""
        if self.clearing is None:
            return session, False
        items = self.clearing.batch(session.context, min_gain_tokens=0)
        if not items or size_after(session.context, items, budget) > TARGET * budget.limit:
            return session, False
        return await self._clear(session, budget, items), True

    async def _summarise(
        self, session: Session, budget: Budget, plan: Plan | None
    ) -> tuple[Session, CompactionResult | None]:
        if plan and (plan.tokens >= WORTH * budget.limit or not budget.fits(session.context)):
            return await self.carry_out(session, budget, plan)
        self.guard.judge(helped=False, size=budget.size(session.context))
        return session, None

    async def _digest(
        self, session: Session, budget: Budget, *, reason: CompactionReason, why: str
    ) -> Session:
        plan = self.plan(session.context, budget, reason=reason, why=why, strategy=SMALL_TAIL)
        if plan is None:
            return session
        most = self._longest(session.context, budget, plan.covered)

        async def write(
            covered: tuple[Entry, ...], context: Context, focus: str | None, note: Note
        ) -> Written:
            return Written(text=digest(covered, max_tokens=most, counter=self.compactor.counter))

        plan = replace(plan, tier=3, strategy="digest", write=write)
        session, _ = await self.carry_out(session, budget, plan)
        return session

    async def _shorten(self, session: Session, budget: Budget) -> Session:
        items: tuple[ClearedItem, ...] = ()
        for policy in SHORTENING:
            found = (cleared_item(entry, policy, self.compactor.counter) for entry in session.context.visible)
            items = tuple(item for item in found if item)
            if size_after(session.context, items, budget) <= budget.limit:
                break
        return await self._clear(session, budget, items) if items else session

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
