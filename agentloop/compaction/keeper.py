"""The keeper of a run's window: whether to compact, and by which rung of the ladder.

The rungs, climbed until the next request fits:

0 clear old results, superseded ones first → 1 the policy's strategy, step by step → 2 summarise with a
smaller tail → 3 a plain digest computed from the log → 4 shorten what is left. The rungs below a refused
summary are climbed only where the request would not fit otherwise. After the last rung the request fits, or
`ContextOverflowError` names what is too big.

`ContextKeeper` decides and climbs: `make_room` before each request, `shrink` after an overflow. `Guard` sees
to it that no compaction is tried again in vain. What a rung would do `plan.py` says, and `Compactor` does it.
"""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import ceil

from agentloop._plumbing.callables import name_of
from agentloop.compaction.compactor import Compactor
from agentloop.compaction.plan import (
    WORTH,
    Occasion,
    Plan,
    clear_plan,
    digest_plan,
    fired_by,
    gain_of,
    shorten_plan,
    size_after,
    small_tail_plan,
    step_plans,
    steps_of,
    strategy_plan,
    with_threshold,
)
from agentloop.compaction.policy import Compaction
from agentloop.compaction.preview import preview_of
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
from agentloop.events import Cleared, ClearedItem
from agentloop.results import NOTHING_TO_DO, CompactionPreview
from agentloop.sessions import Session
from agentloop.strategies import Clearing, Strategy, Summary, strategy_name, superseded_items
from agentloop.stream import (
    CompactionResult,
    ContextStatus,
    ContextWarning,
    Level,
    ResultsCleared,
    level_of,
    together,
)
from agentloop.triggers import Overflow, Trigger, threshold_of

STRIKES = 3
"""So many strikes in a row pause automatic compaction."""

GROWTH = 0.1
"""After a compaction that helped, the next one waits until this share of the limit was added."""

REGROWTH = 0.5
"""In a context that is small beside its window it waits for this share of its own size instead."""

RELEASE = 0.25
"""Growth by this share of the limit ends a wait and a pause."""

COOLDOWN_STEPS = 2
"""Model calls to wait after the first strike."""

REFILL_STEPS = 3
"""A context that is full again within fewer model calls is not helped by compaction."""

STEPS_BETWEEN_WISHES = 3
"""The model's own wish to compact is granted at most once in so many of its calls."""


@dataclass(slots=True, kw_only=True)
class Guard:
    """Judges a run's compactions by their outcome; sizes and limits in tokens, steps in model calls.

    A guard is made anew for each run: that is how new user input lets go of a pause. All sizes that it sees
    are of the same measure, that of the next request. Its terms:

    - a compaction that did nothing, failed, or fell back on a digest is a strike; one that helped wipes them
      out
    - one that helped, but came within `REFILL_STEPS` model calls of the one before, is a strike too
    - after a strike the next try waits for `COOLDOWN_STEPS` model calls, twice as many after each further one
    - `STRIKES` of them pause automatic compaction
    - growth by `RELEASE` of the limit (twice as much with each strike in a pause), or a compaction that was
      asked for and done, ends any wait
    - after one that helped the next waits for growth by `GROWTH` of the limit, or by half of what it left
    - an overflow that the provider proved passes once through a pause
    """

    strikes: int = 0
    last_size: int | None = None
    bypassed: bool = False
    since_last: int = 0
    since_wish: int = STEPS_BETWEEN_WISHES

    def step(self) -> None:
        """Take note of one model call."""
        self.since_last += 1
        self.since_wish += 1

    def allows(self, *, size: int, limit: int) -> bool:
        """Whether an automatic compaction may be tried now."""
        if self.last_size is None or size >= self.last_size + self._release() * limit:
            return True
        if self.strikes:
            return self.strikes < STRIKES and self.since_last >= COOLDOWN_STEPS * 2 ** (self.strikes - 1)
        return size >= self.last_size + min(GROWTH * limit, REGROWTH * self.last_size)

    def _release(self) -> float:
        """Twice as much with each strike in a pause: growth that compaction cannot stem is no reason."""
        return RELEASE * float(2 ** max(0, self.strikes - STRIKES))

    def use_bypass(self) -> bool:
        """Let an overflow that the provider proved pass although nothing else may; True once a pause."""
        granted, self.bypassed = not self.bypassed, True
        return granted

    def grant(self) -> bool:
        """Grant the model's wish to compact; True unless it wished just before."""
        granted = self.since_wish >= STEPS_BETWEEN_WISHES
        if granted:
            self.since_wish = 0
        return granted

    def judge(self, *, helped: bool, size: int) -> None:
        """Take note of one compaction: its outcome, and the size after it."""
        refilled = self.last_size is not None and self.since_last < REFILL_STEPS
        self.strikes = 0 if helped and not refilled else self.strikes + 1
        self.bypassed = self.bypassed and self.strikes > 0
        self.last_size, self.since_last = size, 0

    def release(self) -> None:
        """Forget all strikes: a compaction that was asked for is done."""
        self.strikes, self.last_size, self.bypassed = 0, None, False


_OVERFLOW = Overflow()


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
    guard: Guard = field(default_factory=Guard)
    outcomes: list[CompactionResult] = field(default_factory=list)
    _clearing: Clearing | None = field(default=None, init=False)
    _level: Level = field(default="none", init=False)
    _said_fixed: bool = field(default=False, init=False)
    _lowered_at: int | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        micro = self.policy.micro if self.policy else None
        self._clearing = Clearing(micro, self.budget.counter) if micro else None

    async def make_room(self, session: Session) -> Session:
        """The session with room for its next request.

        Raises:
            ContextOverflowError: it cannot be made to fit; the text names what is too big.
        """
        self.guard.step()
        if self.policy is not None:
            session = await self._clear_in_batches(session)
            if occasion := self._due(session.context, self.policy, self.guard):
                session = await self.escalate(await session.whole(), self.budget, occasion)
            await self._say_fixed(session.context)
        await self._warn(session.context)
        self.budget.check(session.context)
        return session

    def is_due(self, context: Context) -> bool:
        """Whether `make_room` would compact now, as far as can be told before old results are cleared."""
        if self.policy is None:
            return False
        guard = replace(self.guard)
        guard.step()
        return self._due(context, self.policy, guard) is not None

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
        to do, the result is `not_due`. A summary that is refused changes nothing.
        """
        occasion, strategy = _asked_for(focus), strategy or self._strategy
        if trigger is not None:
            fired = fired_by(trigger, session.context, self.budget)
            if fired is None:
                still = f"the trigger {name_of(trigger)} does not fire"
                return session, self._not_due(session.context, occasion, strategy, still)
            occasion = replace(occasion, why=fired.why)
        session, result = await self._by_the_steps(await session.whole(), self.budget, occasion, strategy)
        return session, result or self._not_due(session.context, occasion, strategy, NOTHING_TO_DO)

    async def compact_for_model(
        self, session: Session, focus: str | None
    ) -> tuple[Session, CompactionResult | None]:
        """Compact since the model asked; None where too little is to be gained, or it asked just before.

        Once it is done the guard lets go of what it holds against compaction.
        """
        occasion = Occasion(reason="tool", why="the model asked for it", focus=focus)
        session = await session.whole()
        gain = gain_of(self._strategy, session.context, self._with_threshold(self.budget), occasion)
        if gain < WORTH * self.budget.limit or not self.guard.grant():
            return session, None
        session, result = await self._by_the_steps(session, self.budget, occasion, self._strategy)
        if result and result.status == "done":
            self.guard.release()
        return session, result

    def preview(self, context: Context, strategy: Strategy | None = None) -> CompactionPreview | None:
        """What a compaction asked for now would do first, by this strategy or its own; nothing is done."""
        budget = self._with_threshold(self.budget)
        plan = next(step_plans(strategy or self._strategy, context, budget, _asked_for(None)), None)
        return preview_of(plan, context, budget, self.compactor, self.status(context)) if plan else None

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

        Raises:
            ContextOverflowError: it cannot be made to fit.
        """
        budget = self._with_threshold(budget)
        session, result = await self._clear_enough(session, budget, occasion)
        if self._may_summarise(session.context, budget, occasion, result):
            session, result = await self._summarise(session, budget, occasion)
        for plan_of_rung in (digest_plan, shorten_plan):
            if not budget.fits(session.context) and prevented(result) is None:
                plan = plan_of_rung(session.context, budget, occasion)
                session, result = await self._carry_out(session, budget, plan)
        budget.check(session.context, prevented=prevented(result))
        return session

    async def _clear_enough(
        self, session: Session, budget: Budget, occasion: Occasion
    ) -> tuple[Session, CompactionResult | None]:
        """Rung 0: show as few results shortened as bring the request to the target; none where none do."""
        for name, items in self._clearable(session.context):
            if items and size_after(items, session.context, budget) <= budget.target:
                plan = clear_plan(items, name, session.context, budget, occasion)
                session, result = await self._carry_out(session, budget, plan)
                if prevented(result):
                    self.guard.judge(helped=False, size=budget.size(session.context))
                return session, result
        return session, None

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
        if self.guard.allows(size=size, limit=budget.limit):
            return True
        return occasion.reason == "overflow" and self.guard.use_bypass()

    async def _summarise(
        self, session: Session, budget: Budget, occasion: Occasion
    ) -> tuple[Session, CompactionResult | None]:
        """Rungs 1 and 2, and what the guard has to know of them."""
        first = len(self.outcomes)
        if not budget.fits(session.context) or self._is_worth(session.context, budget, occasion):
            session, _ = await self._by_the_steps(session, budget, occasion, self._strategy)
        by_a_model = any(each.status == "done" and each.tier == 1 for each in self.outcomes[first:])
        if by_a_model and not budget.fits(session.context):
            plan = small_tail_plan(session.context, budget, occasion)
            session, _ = await self._carry_out(session, budget, plan)
        outcomes = self.outcomes[first:]
        helped = bool(outcomes) and all(_as_planned(each) for each in outcomes)
        self.guard.judge(helped=helped, size=budget.size(session.context))
        return session, outcomes[-1] if outcomes else None

    def _is_worth(self, context: Context, budget: Budget, occasion: Occasion) -> bool:
        """Whether the policy saves enough of the request to rewrite it."""
        return gain_of(self._strategy, context, budget, occasion) >= max(1, WORTH * budget.size(context))

    async def _by_the_steps(
        self, session: Session, budget: Budget, occasion: Occasion, strategy: Strategy
    ) -> tuple[Session, CompactionResult | None]:
        """Carry out a strategy, and what came of it, all steps of a chain together.

        None where it found nothing to do. A chain goes on until the request is down to its target. Steps are
        passed over that would only repeat one that came to nothing, and those that need a summary once the
        server refused to write one.
        """
        budget, group = self._with_threshold(budget), uuid.uuid4().hex
        results: list[CompactionResult] = []
        in_vain: list[Plan] = []
        refused = False
        for name, step, goal in steps_of(strategy, budget):
            if results and (prevented(results[-1]) or budget.size(session.context) <= goal):
                break
            plan = strategy_plan(step, session.context, budget, occasion, name)
            if plan is None or (refused and _needs_a_model(plan)) or any(map(plan.repeats, in_vain)):
                continue
            session, result = await self._carry_out(session, budget, replace(plan, group=group))
            refused = refused or self.compactor.server_refused
            results += [result] if result else []
            in_vain = [] if result and result.status == "done" else [*in_vain, plan]
        return session, together(results) if results else None

    async def _carry_out(
        self, session: Session, budget: Budget, plan: Plan | None
    ) -> tuple[Session, CompactionResult | None]:
        if plan is None:
            return session, None
        session, result = await self.compactor.compact(session, plan, budget)
        self.outcomes.append(result)
        return session, result

    def _not_due(
        self, context: Context, occasion: Occasion, strategy: Strategy, error: str
    ) -> CompactionResult:
        """The result where nothing was to do, and so nothing was written."""
        size, messages = self.budget.size(context), len(context.visible)
        return CompactionResult(
            status="not_due",
            reason=occasion.reason,
            why=occasion.why,
            strategy=strategy_name(strategy),
            tier=0,
            tokens_before=size,
            tokens_after=size,
            messages_before=messages,
            messages_after=messages,
            error=error,
            window=self.budget.window,
        )

    async def _clear_in_batches(self, session: Session) -> Session:
        """Clear old results once that saves enough (layer one, before every request)."""
        if self._clearing is None:
            return session
        wanted = self._clearing.policy.min_gain_tokens
        least = self.budget.room(session.context) // 4 if wanted is None else wanted
        items = self._clearing.batch(session.context, min_gain_tokens=least)
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

    def _due(self, context: Context, policy: Compaction, guard: Guard) -> Occasion | None:
        if too_late := _OVERFLOW(context, self.budget):
            return Occasion(reason=too_late.reason, why=too_late.why)
        fired = fired_by(policy.trigger, context, self.budget)
        if fired is None:
            return None
        if not guard.allows(size=self.budget.size(context), limit=self.budget.limit):
            return None
        return Occasion(reason=fired.reason, why=fired.why)

    async def _say_fixed(self, context: Context) -> None:
        """Say once that what compaction cannot shrink is larger than what it aims at."""
        fixed, target = ceil(self.budget.ratio(context) * self.budget.fixed), self.budget.target
        if fixed <= target or self._said_fixed:
            return
        self._said_fixed = True
        warning = ContextWarning(
            level=level_of(self.budget.size(context), self.budget.window),
            tokens=fixed,
            window=self.budget.window,
            text=f"instructions and tool schemas take {fixed:,} tokens, more than the {target:,} that "
            "compaction aims at: shorten them, or use a larger window",
        )
        await self.compactor.emitter.emit(warning)

    async def _warn(self, context: Context) -> None:
        size = self.budget.size(context)
        level = level_of(size, self.budget.window)
        if level != self._level:
            self._level = level
            warning = ContextWarning(level=level, tokens=size, window=self.budget.window)
            await self.compactor.emitter.emit(warning)


def prevented(result: CompactionResult | None) -> str | None:
    """What kept the compaction, and would keep the next one, from being done, and what to do; else None."""
    if result is not None and result.status == "vetoed":
        return f"a callback vetoed the compaction ({result.error}): let it pass"
    if result is not None and result.status == "failed" and result.unsaved:
        return f"{result.unsaved}; nothing is hidden without it but by transcript_failure='go_on'"
    return None


def _as_planned(result: CompactionResult) -> bool:
    """Whether it was done by the means the policy asked for; a transcript that is missing is none of them."""
    return result.status == "done" and result.error == result.unsaved


def _needs_a_model(plan: Plan) -> bool:
    """Whether the plan comes to nothing without a model's summary."""
    return bool(plan.covered) and isinstance(plan.instead, Summary) and plan.instead.on_failure is None


def _asked_for(focus: str | None) -> Occasion:
    return Occasion(reason="manual", why="asked for", focus=focus)
