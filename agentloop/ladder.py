"""The ladder: what is done, rung by rung, until the next request fits.

0 clear old results, superseded ones first → 1 the policy's strategy, step by step → 2 summarise with a
smaller tail → 3 a plain digest computed from the log → 4 shorten what is left. The rungs below a refused
summary are climbed only where the request would not fit otherwise. After the last rung the request fits, or
`ContextOverflowError` names what is too big.
"""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from agentloop.compactor import Compactor
from agentloop.context import Budget, Context
from agentloop.errors import ConflictError, ModelRefusedError
from agentloop.events import Cleared, ClearedItem
from agentloop.guard import Guard
from agentloop.models import ChatModel
from agentloop.plans import Occasion, Plan
from agentloop.policy import Compaction
from agentloop.previews import foreseen
from agentloop.results import CompactionPreview
from agentloop.rungs import Rungs, steps_of
from agentloop.sessions import Session
from agentloop.standing import NOTHING, Standing
from agentloop.strategies import Clearing, Summary, superseded_items
from agentloop.stream import CompactionResult, ContextStatus, ResultsCleared, together
from agentloop.summary import TakeNote
from agentloop.writers import Writer, Writers

LIKELY_NAME = "transcript_1700000000.jsonl"
"""The name of a transcript that is still to be saved is as long as this one."""


@dataclass(slots=True, kw_only=True)
class Ladder:
    """The rungs for one run, climbed. `model` is the agent's, None where none writes summaries.

    `outcomes` lists what its compactions came to.
    """

    policy: Compaction
    model: ChatModel | None
    compactor: Compactor
    guard: Guard = field(default_factory=Guard)
    outcomes: list[CompactionResult] = field(default_factory=list)
    clearing: Clearing | None = field(init=False)
    _refused: bool = field(default=False, init=False)

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

    async def climb(self, session: Session, budget: Budget, occasion: Occasion) -> Session:
        """The session with a request that fits, by as few rungs as that takes.

        Raises:
            ContextOverflowError: it cannot be made to fit.
        """
        session, result = await self._clear_enough(session, budget, occasion)
        if self._may_summarise(self.rungs(session, budget, occasion), result):
            session, result = await self._by_the_policy(session, budget, occasion)
        if not budget.fits(session.context) and prevented(result) is None:
            plan = self.rungs(session, budget, occasion).digest()
            session, result = await self._carry_out(session, budget, plan)
        if not budget.fits(session.context) and prevented(result) is None:
            plan = self.rungs(session, budget, occasion).shortened(self.compactor.counter)
            session, result = await self._carry_out(session, budget, plan)
        budget.check(session.context, prevented=prevented(result))
        return session

    async def carry_out(
        self, session: Session, budget: Budget, occasion: Occasion
    ) -> tuple[Session, CompactionResult | None]:
        """Carry out the policy's strategy, and what came of it, all steps of a chain together.

        None where it found nothing to do. A chain goes on until the request is down to its target. Steps are
        passed over that would only repeat one that came to nothing, and those that need a summary once the
        server refused to write one.
        """
        group = uuid.uuid4().hex
        results: list[CompactionResult] = []
        in_vain: list[Plan] = []
        self._refused = False
        for name, step, goal in steps_of(self.policy.strategy, self.rungs(session, budget, occasion).budget):
            if results and (prevented(results[-1]) or budget.size(session.context) <= goal):
                break
            plan = self.rungs(session, budget, occasion).plan(step, name)
            if plan is None or self._is_refused(plan) or any(plan.repeats(other) for other in in_vain):
                continue
            session, result = await self._carry_out(session, budget, replace(plan, group=group))
            results += [result] if result else []
            in_vain = [] if result and result.status == "done" else [*in_vain, plan]
        return session, together(results) if results else None

    def preview(
        self, context: Context, budget: Budget, occasion: Occasion, status: ContextStatus
    ) -> CompactionPreview | None:
        """What the first step that finds something to do would come to; nothing is done."""
        rungs = Rungs.of(self.policy, context, budget, occasion)
        plan = next(rungs.plans(), None)
        if plan is None:
            return None
        standing = self._foreseen(plan, rungs)
        longest, model = rungs.longest(plan), self.model
        return foreseen(
            plan,
            standing,
            context,
            budget,
            status=status,
            longest=longest,
            model=model,
            transcript=LIKELY_NAME if self.compactor.transcripts else None,
        )

    def rungs(self, session: Session, budget: Budget, occasion: Occasion) -> Rungs:
        """What each rung would do to the session as it stands."""
        return Rungs.of(self.policy, session.context, budget, occasion)

    def _foreseen(self, plan: Plan, rungs: Rungs) -> Standing | None:
        """What would stand instead; None where that is for a model to say."""
        if not plan.covered:
            return NOTHING
        match plan.instead:
            case Summary():
                return None
            case computed:
                return self._writers(rungs).without_a_model(computed, plan, rungs.context)

    def _may_summarise(self, rungs: Rungs, cleared: CompactionResult | None) -> bool:
        size = rungs.budget.size(rungs.context)
        if cleared is not None and (prevented(cleared) or size <= rungs.budget.target):
            return False
        if self.guard.allows(size=size, limit=rungs.budget.limit):
            return True
        return rungs.occasion.reason == "overflow" and self.guard.use_bypass()

    async def _by_the_policy(
        self, session: Session, budget: Budget, occasion: Occasion
    ) -> tuple[Session, CompactionResult | None]:
        """Rungs 1 and 2, and what the guard has to know of them."""
        first = len(self.outcomes)
        if not budget.fits(session.context) or self.rungs(session, budget, occasion).is_worth():
            session, _ = await self.carry_out(session, budget, occasion)
        by_a_model = any(each.status == "done" and each.tier == 1 for each in self.outcomes[first:])
        if by_a_model and not budget.fits(session.context):
            plan = self.rungs(session, budget, occasion).small_tail()
            session, _ = await self._carry_out(session, budget, plan)
        outcomes = self.outcomes[first:]
        helped = bool(outcomes) and all(_as_planned(each) for each in outcomes)
        self.guard.judge(helped=helped, size=budget.size(session.context))
        return session, outcomes[-1] if outcomes else None

    async def _carry_out(
        self, session: Session, budget: Budget, plan: Plan | None
    ) -> tuple[Session, CompactionResult | None]:
        if plan is None:
            return session, None
        write = self._noting_refusals(self._writers(self.rungs(session, budget, plan.occasion)).write)
        session, result = await self.compactor.carry_out(session, plan, budget, write)
        self.outcomes.append(result)
        return session, result

    def _writers(self, rungs: Rungs) -> Writers:
        counter, on_part = self.compactor.counter, self.compactor.watch.retrying
        return Writers(rungs=rungs, model=self.model, counter=counter, on_part=on_part)

    def _noting_refusals(self, write: Writer) -> Writer:
        async def noting(plan: Plan, context: Context, focus: str | None, take_note: TakeNote) -> Standing:
            try:
                return await write(plan, context, focus, take_note)
            except ModelRefusedError:
                self._refused = True
                raise

        return noting

    def _is_refused(self, plan: Plan) -> bool:
        """Whether the plan can only come to what the server refused just now."""
        instead = plan.instead
        needs_a_model = isinstance(instead, Summary) and instead.on_failure is None
        return self._refused and bool(plan.covered) and needs_a_model

    async def _clear_enough(
        self, session: Session, budget: Budget, occasion: Occasion
    ) -> tuple[Session, CompactionResult | None]:
        """Rung 0: show as few results shortened as bring the request to the target; none where none do."""
        rungs = self.rungs(session, budget, occasion)
        for name, items in self._clearable(session.context):
            if items and rungs.size_after(items) <= rungs.budget.target:
                session, result = await self._carry_out(session, budget, rungs.shown(items, name, 0))
                if prevented(result):
                    self.guard.judge(helped=False, size=budget.size(session.context))
                return session, result
        return session, None

    def _clearable(self, context: Context) -> Iterator[tuple[str, tuple[ClearedItem, ...]]]:
        if self.clearing is not None:
            replaced = superseded_items(context, self.compactor.counter)
            yield "superseded results", replaced
            others = self.clearing.batch(context, min_gain_tokens=0)
            yield "old results", tuple({item.seq: item for item in (*others, *replaced)}.values())

    async def _clear(self, session: Session, budget: Budget, items: tuple[ClearedItem, ...]) -> Session:
        before = budget.size(session.context)
        await session.newer()  # a log of the same length may be another's
        try:
            session = await session.append(Cleared(items=items))
        except ConflictError as conflict:  # what would be shown may be hidden now: it is seen to next time
            return await self.compactor.catch_up(session, conflict)
        cleared = ResultsCleared(
            positions=tuple(item.seq for item in items),
            tokens_before=before,
            tokens_after=budget.size(session.context),
        )
        await self.compactor.watch.say(cleared)
        return session


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
