"""The keeper of a run's window: whether to compact, and by which rung of the ladder.

The rungs, climbed until the next request fits:

clear old results, superseded ones first → the policy's strategy, step by step → summarise with a smaller
tail → a plain digest computed from the log → shorten what is left → a smaller record, then a note. The
rungs below a refused summary are climbed only where the request would not fit otherwise. After the last rung
the request fits, or `ContextOverflowError` names what is too big.

`ContextKeeper` decides and climbs: `make_room` before each request, `shrink` after an overflow. The `Guard`
of a context sees to it that no compaction is tried again in vain. What a rung would do `plan.py` says, and
`Compactor` does it.
"""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import ceil

from agentloop._plumbing.aio import in_thread
from agentloop._plumbing.callables import name_of
from agentloop.compaction.compactor import Compactor
from agentloop.compaction.plan import (
    PARTIAL,
    SUMMARY,
    WORTH,
    Occasion,
    Plan,
    clear_plan,
    digest_plan,
    fired_by,
    gain_of,
    longest_record,
    note_plan,
    shorten_kept_plan,
    shorten_plan,
    size_after,
    small_tail_plan,
    smaller_record_plan,
    step_plans,
    steps_of,
    why_nothing,
    with_threshold,
)
from agentloop.compaction.policy import Compaction
from agentloop.compaction.warnings import ContextWarnings
from agentloop.context import (
    Budget,
    Context,
    is_believed,
    learn_from_overflow,
    overflow_error,
    too_small_for,
    with_shorter_answer,
)
from agentloop.errors import ConflictError, ContextTooLongError
from agentloop.events import Cleared, ClearedItem, NotCompacted
from agentloop.results import CompactionPreview
from agentloop.sessions import Session
from agentloop.strategies import (
    Clearing,
    Computed,
    Note,
    Strategy,
    Summary,
    cleared_item,
    strategy_name,
    superseded_items,
)
from agentloop.stream import (
    CompactionResult,
    CompactionSkipped,
    CompactionStatus,
    ContextStatus,
    ResultsCleared,
    together,
)
from agentloop.triggers import Overflow, Trigger, threshold_of

_OVERFLOW = Overflow()

AS_GOOD = 0.5
"""Where results shown shortened gain this share of what a record would, no record is made yet."""


@dataclass(slots=True, kw_only=True)
class ContextKeeper:
    """One run's window. `budget` changes when an overflow teaches more about the server.

    `policy` None switches everything off: what does not fit is then an error, and only what somebody asks for
    is compacted, by the compactor's own. `outcomes` lists what the compactions came to. One is decided on
    with the whole log in the context; clearing and plain steps never read it. `_lowered_at` is how long the
    context was when a shorter answer was last asked for, which is tried once for each request.
    """

    policy: Compaction | None
    budget: Budget
    compactor: Compactor
    outcomes: list[CompactionResult] = field(default_factory=list)
    _clearing: Clearing | None = field(default=None, init=False)
    _warnings: ContextWarnings = field(init=False)
    _lowered_at: int | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        micro = self.policy.micro if self.policy else None
        self._clearing = Clearing(micro, self.budget.counter) if micro else None
        self._warnings = ContextWarnings(self.compactor.emitter, self.budget.cuts.window)

    async def make_room(self, session: Session) -> Session:
        """The session with room for its next request.

        Raises:
            ContextOverflowError: it cannot be made to fit; the text names what is too big.
        """
        if self.policy is not None:
            session = await self._clear_in_batches(session)
            occasion, held = self._due(session.context, self.policy)
            if occasion and held is None:
                session = await self.escalate(await session.whole(), self.budget, occasion)
            elif occasion and not session.context.guard.told:
                session = await self._skip(session, occasion, self._strategy, str(held))
        status = self.status(session.context)
        await self._warnings.show(session.context, self.budget, status, compacts=self.policy is not None)
        self.budget.check(session.context)
        return session

    def is_due(self, context: Context) -> bool:
        """Whether `make_room` would compact now, as far as can be told before old results are cleared."""
        if self.policy is None:
            return False
        occasion, held = self._due(context, self.policy)
        return occasion is not None and held is None

    async def shrink(self, session: Session, error: ContextTooLongError) -> Session:
        """The session made smaller after the server refused its request as too long.

        It stays as it is where a shorter answer fits beside it; that is tried once for each request.

        Raises:
            ContextOverflowError: it cannot be made smaller, compaction is off, or the request is so short
                that the refusal must have another reason.
        """
        lowered = with_shorter_answer(self.budget, session.context, error)
        if lowered is not None and self._lowered_at != session.context.length:
            self.budget, self._lowered_at = lowered, session.context.length
            return session
        if self.policy is None or not is_believed(self.budget, session.context, error):
            raise overflow_error(error, self.budget, session.context) from error
        tokens = error.tokens or self.budget.size(session.context)
        self.budget = learn_from_overflow(self.budget, session.context, error)
        occasion = Occasion(reason="overflow", why=f"the server refused {tokens:,} tokens")
        budget = too_small_for(self.budget, session.context)
        return await self.escalate(await session.whole(), budget, occasion)

    async def compact_for_user(
        self,
        session: Session,
        focus: str | None = None,
        *,
        trigger: Trigger | None = None,
        strategy: Strategy | None = None,
    ) -> tuple[Session, CompactionResult]:
        """Compact since a person asked, where this trigger fires now (None: in any case), by this strategy.

        The policy's own strategy is taken where none is given. Where the trigger is still or there is nothing
        to do, the result is `not_due`. What a trigger asks for is no wish: it is `skipped` where the guard
        holds it back, which the log notes once. A summary that is refused changes nothing.
        """
        occasion, strategy = _asked_for(focus), strategy or self._strategy
        if trigger is not None:
            due, held = self._asked_of(trigger, session.context)
            if due is None:
                still = f"the trigger {name_of(trigger)} does not fire"
                return session, self._not_due(session.context, occasion, strategy, still)
            occasion = replace(due, focus=focus)
            if held is not None:
                if not session.context.guard.told:
                    session = await self._skip(session, occasion, strategy, held)
                return session, self._not_due(session.context, occasion, strategy, held, "skipped")
        return await self._as_asked(await session.whole(), occasion, strategy)

    async def _as_asked(
        self, session: Session, occasion: Occasion, strategy: Strategy
    ) -> tuple[Session, CompactionResult]:
        budget = self._with_threshold(self.budget)
        session, result = await self._by_the_steps(session, budget, occasion, strategy)
        if result is None:
            why = await in_thread(why_nothing, strategy, session.context, budget)
            result = self._not_due(session.context, occasion, strategy, why)
        return session, result

    async def compact_for_model(
        self, session: Session, focus: str | None
    ) -> tuple[Session, CompactionResult]:
        """Compact since the model asked; `skipped` where too little is to be gained, or it asked just before.

        Once it is done the guard lets go of what it holds against compaction.
        """
        occasion = Occasion(reason="tool", why="the model asked for it", focus=focus)
        session = await session.whole()
        if refusal := await in_thread(self._refused_wish, session.context, occasion):
            session = await self._skip(session, occasion, self._strategy, refusal)
            return session, self._not_due(session.context, occasion, self._strategy, refusal, "skipped")
        return await self._as_asked(session, occasion, self._strategy)

    def _refused_wish(self, context: Context, occasion: Occasion) -> str | None:
        """Why the model's wish is not granted, and when it may be; None where it is."""
        gain = gain_of(self._strategy, context, self._with_threshold(self.budget), occasion)
        least, steps = ceil(WORTH * self.budget.limit), context.guard.steps_to_wish
        if gain < least:
            return f"it would save about {gain:,} tokens, and is done from {least:,} on: ask again later"
        answers = "answer" if steps == 1 else "answers"
        return f"it was done just before: ask again after {steps} more {answers}" if steps else None

    async def _skip(
        self,
        session: Session,
        occasion: Occasion,
        strategy: Strategy,
        error: str,
        status: CompactionStatus = "skipped",
    ) -> Session:
        """The session with the record that a compaction was due, or wished for, and why it was not begun."""
        record = NotCompacted(
            status=status,
            reason=occasion.reason,
            why=occasion.why,
            strategy=strategy_name(strategy),
            error=error,
            before=self.budget.size(session.context),
        )
        session = await self.compactor.note(session, record)
        skipped = CompactionSkipped(
            reason=occasion.reason,
            why=record.why,
            strategy=record.strategy,
            tokens=record.before,
            error=record.error,
        )
        await self.compactor.emitter.emit(skipped)
        return session

    async def preview(self, context: Context, strategy: Strategy | None = None) -> CompactionPreview | None:
        """What a compaction asked for now would do first, by this strategy or its own; nothing is done."""
        return await in_thread(self._foreseen, context, strategy or self._strategy)

    def _foreseen(self, context: Context, strategy: Strategy) -> CompactionPreview | None:
        budget = self._with_threshold(self.budget)
        plan = next(step_plans(strategy, context, budget, _asked_for(None)), None)
        return self.compactor.preview(plan, self.status(context)) if plan else None

    def status(self, context: Context) -> ContextStatus:
        """How full the window is."""
        return ContextStatus(
            tokens=self.budget.size(context),
            window=self.budget.window,
            threshold=threshold_of(self._trigger, self.budget) if self._trigger else None,
            measured=self.budget.measured(context),
        )

    async def escalate(self, session: Session, budget: Budget, occasion: Occasion) -> Session:
        """The session with a request that fits, by as few rungs as that takes.

        After an overflow it leaves some doubt of how much the server counts, where the first rungs get there.

        Raises:
            ContextOverflowError: it cannot be made to fit.
            StoreError: it could, but a compaction could not be stored.
        """
        budget, first = self._with_threshold(budget), len(self.outcomes)
        doubted = budget.doubted() if occasion.reason == "overflow" else budget
        plan = await in_thread(self._clear_plan, session.context, budget, occasion)
        session, result = await self._carry_out(session, plan)
        if self._may_summarise(session.context, budget, occasion, result):
            session, result = await self._summarise(session, budget, occasion)
        for most, plan_of_rung in (
            (doubted, digest_plan),
            (doubted, shorten_plan),
            (budget, smaller_record_plan),
            (budget, note_plan),
            (budget, shorten_kept_plan),
        ):
            if not most.fits(session.context) and prevented(result) is None:
                plan = await in_thread(plan_of_rung, session.context, most, occasion)
                session, result = await self._carry_out(session, plan)
        newest = next(reversed(self.outcomes[first:]), None)
        if newest and newest.store_fault and not budget.fits(session.context):
            raise newest.store_fault
        budget.check(session.context, prevented=prevented(result))
        return session

    def _clear_plan(self, context: Context, budget: Budget, occasion: Occasion) -> Plan | None:
        """As few results shown shortened as bring the request to the target, or gain as much as a record."""
        for name, items in self._clearable(context):
            if items and size_after(items, context, budget) <= budget.target:
                return clear_plan(items, name, context, budget, occasion)
        if self._clearing is None or occasion.eager:
            return None
        plan = next(step_plans(self._strategy, context, budget, occasion), None)
        return self._as_good(plan) if plan else None

    def _as_good(self, plan: Plan) -> Plan | None:
        """What it covers shown shortened instead, where that gains about as much."""
        micro, context, budget = self.compactor.policy.micro, plan.context, plan.budget
        if micro is None or isinstance(plan.instead, Note):
            return None
        found = (cleared_item(entry, micro, budget.counter) for entry in plan.entries if not entry.cleared)
        items = tuple(item for item in found if item)
        record = self.compactor.longest(longest_record, plan)
        after = size_after(items, context, budget)
        gain = budget.size(context) - after
        least = AS_GOOD * budget.ratio(context) * (plan.tokens - record)
        if after > budget.limit or gain < max(least, _least_gain(context, budget)):
            return None
        return clear_plan(items, "old results", context, budget, plan.occasion)

    def _clearable(self, context: Context) -> Iterator[tuple[str, tuple[ClearedItem, ...]]]:
        if self._clearing is not None:
            replaced = superseded_items(context, self.budget.counter)
            yield "superseded results", replaced
            others = self._clearing.batch(context, min_gain_tokens=0)
            yield "old results", tuple({item.seq: item for item in (*others, *replaced)}.values())

    def _may_summarise(
        self, context: Context, budget: Budget, occasion: Occasion, cleared: CompactionResult | None
    ) -> bool:
        size = budget.size(context)
        if cleared is not None and (prevented(cleared) or size <= budget.target):
            return False
        guard = context.guard
        if guard.allows(size=size, limit=budget.limit, eager=occasion.eager):
            return True
        return occasion.reason == "overflow" and guard.may_bypass()

    async def _summarise(
        self, session: Session, budget: Budget, occasion: Occasion
    ) -> tuple[Session, CompactionResult | None]:
        """The policy's strategy, and a smaller tail; where nothing was to be done, the guard has to know."""
        first, least = len(self.outcomes), _least_gain(session.context, budget)
        gain = await in_thread(gain_of, self._strategy, session.context, budget, occasion)
        if gain >= least or not budget.fits(session.context):
            session, _ = await self._by_the_steps(session, budget, occasion, self._strategy)
        by_a_model = any(each.tier in (SUMMARY, PARTIAL) for each in self.outcomes[first:])
        if by_a_model and not budget.fits(session.context):
            plan = await in_thread(small_tail_plan, session.context, budget, occasion)
            session, _ = await self._carry_out(session, plan)
        if len(self.outcomes) == first:
            why = f"it would save about {gain:,} tokens, and is done from {least:,} on"
            if not gain:
                why = await in_thread(why_nothing, self._strategy, session.context, budget)
            session = await self._skip(session, occasion, self._strategy, why, "ineffective")
            return session, None
        return session, self.outcomes[-1]

    async def _by_the_steps(
        self, session: Session, budget: Budget, occasion: Occasion, strategy: Strategy
    ) -> tuple[Session, CompactionResult | None]:
        """Carry out a strategy, and what came of it, all steps of a chain together.

        None where it found nothing to do. A chain goes on until the request is down to its target. Steps that
        need a summary are passed over once the server refused to write one.
        """
        results: list[CompactionResult] = []
        refused, group = False, uuid.uuid4().hex
        for step in steps_of(strategy, budget):
            if results and prevented(results[-1]):
                break
            if results and budget.size(session.context) <= step.goal:
                continue
            plan = await in_thread(step.plan, session.context, budget, occasion)
            if plan is None or (refused and _needs_a_model(plan)):
                continue
            session, result = await self._carry_out(session, replace(plan, group=group))
            refused = refused or self.compactor.server_refused
            results += [result] if result else []
        return session, together(results) if results else None

    async def _carry_out(
        self, session: Session, plan: Plan | None
    ) -> tuple[Session, CompactionResult | None]:
        if plan is None:
            return session, None
        session, result = await self.compactor.compact(session, plan)
        self.outcomes.append(result)
        return session, result

    def _not_due(
        self,
        context: Context,
        occasion: Occasion,
        strategy: Strategy,
        error: str,
        status: CompactionStatus = "not_due",
    ) -> CompactionResult:
        """The result where nothing was to do, or nothing was begun."""
        size, messages = self.budget.size(context), len(context.visible)
        return CompactionResult(
            status=status,
            reason=occasion.reason,
            why=occasion.why,
            strategy=strategy_name(strategy),
            tier=0,
            tokens_before=size,
            tokens_after=size,
            messages_before=messages,
            messages_after=messages,
            kept_events=context.records_of(context.visible),
            compacted_events=tuple(context.messages),
            error=error,
            window=self.budget.window,
        )

    async def _clear_in_batches(self, session: Session) -> Session:
        """Clear old results once that saves enough (layer one, before every request)."""
        if self._clearing is None:
            return session
        wanted = self._clearing.policy.min_gain_tokens
        least = self.budget.room(session.context) // 4 if wanted is None else wanted
        if not self._clearing.may_save(session.context, least):
            return session
        items = await in_thread(self._clearing.batch, session.context, min_gain_tokens=least)
        return await self._clear(session, items) if items else session

    async def _clear(self, session: Session, items: tuple[ClearedItem, ...]) -> Session:
        before = self.budget.size(session.context)
        await session.newer()  # a log of the same length may be another's
        try:
            session = await session.append(Cleared(items=items))
        except ConflictError as conflict:  # what would be shown may be hidden now: it is seen to next time
            return await self.compactor.rebase(session, conflict)
        cleared = ResultsCleared(
            positions=tuple(item.seq for item in items),
            tokens_before=before,
            tokens_after=self.budget.size(session.context),
        )
        await self.compactor.emitter.emit(cleared)
        return session

    @property
    def _strategy(self) -> Strategy:
        return self.compactor.policy.strategy

    @property
    def _trigger(self) -> Trigger | None:
        return self.policy.trigger if self.policy else None

    def _with_threshold(self, budget: Budget) -> Budget:
        return with_threshold(self.compactor.policy, budget)

    def _due(self, context: Context, policy: Compaction) -> tuple[Occasion | None, str | None]:
        """What a compaction is due for now, None for nothing; and what the guard has against it."""
        if too_late := _OVERFLOW(context, self.budget):
            return Occasion(reason=too_late.reason, why=too_late.why), None
        return self._asked_of(policy.trigger, context)

    def _asked_of(self, trigger: Trigger | None, context: Context) -> tuple[Occasion | None, str | None]:
        """What this trigger wants a compaction for, None for nothing; and what the guard has against it."""
        fired = fired_by(trigger, context, self.budget)
        if fired is None:
            return None, None
        size, threshold = self.budget.size(context), self.status(context).threshold
        occasion = Occasion(reason=fired.reason, why=fired.why, eager=threshold is None or size <= threshold)
        limit = self.budget.limit
        return occasion, context.guard.refusal(size=size, limit=limit, eager=occasion.eager)


def prevented(result: CompactionResult | None) -> str | None:
    """What kept the compaction, and would keep the next one, from being done, and what to do; else None."""
    if result is not None and result.status == "vetoed":
        return f"a callback vetoed the compaction ({result.error}): let it pass"
    if result is not None and result.status == "failed" and result.unsaved:
        return f"{result.unsaved}; nothing is hidden without it but by transcript_failure='go_on'"
    return None


def _needs_a_model(plan: Plan) -> bool:
    """Whether the plan comes to nothing without a model's summary."""
    return (
        bool(plan.covered)
        and isinstance(plan.instead, Summary)
        and not isinstance(plan.instead.on_failure, Computed)
    )


def _least_gain(context: Context, budget: Budget) -> int:
    return max(1, ceil(WORTH * budget.size(context)))


def _asked_for(focus: str | None) -> Occasion:
    return Occasion(reason="manual", why="asked for", focus=focus)
