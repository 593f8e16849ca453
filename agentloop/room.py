"""Makes room: decides before each request, and after an overflow, whether the ladder is to be climbed."""

from dataclasses import dataclass, replace

from agentloop.budget import Budget
from agentloop.callbacks import CompactionResult
from agentloop.compaction import Compaction
from agentloop.compactor import Plan
from agentloop.context import Context
from agentloop.errors import ContextOverflowError, ContextTooLongError
from agentloop.guard import STEPS_BETWEEN_REQUESTED
from agentloop.ladder import WORTH, Ladder, check_fits, fits
from agentloop.sessions import Session
from agentloop.stream import ContextStatus, ContextWarning
from agentloop.triggers import WindowFraction

UNTOLD_OVERFLOW = 0.85
"""Where an overflow names no limit, the limit is taken to be this share of the request refused."""


@dataclass(slots=True, kw_only=True)
class Room:
    """One run's window. `budget` changes when an overflow teaches more about the server.

    `policy` None switches everything off: what does not fit is then an error.
    """

    policy: Compaction | None
    budget: Budget
    ladder: Ladder
    _steps: int = STEPS_BETWEEN_REQUESTED
    _level: str = "none"

    async def make(self, session: Session) -> Session:
        """The session with room for its next request.

        Raises:
            ContextOverflowError: it cannot be made to fit; the text names what is too big.
        """
        self._steps += 1
        if self.policy is None:
            check_fits(session.context, self.budget)
            return session
        session = await self.ladder.clear_in_batches(session, self.budget)
        if why := self._due(session.context, self.policy):
            session = await self.ladder.climb(session, self.budget, reason="threshold", why=why)
        await self._warn(session.context)
        return session

    async def shrink(self, session: Session, error: ContextTooLongError) -> Session:
        """The session made smaller after the server refused its request as too long.

        Raises:
            ContextOverflowError: it cannot be made smaller, or compaction is off.
        """
        tokens = error.tokens or self.budget.size(session.context)
        if self.policy is None:
            window = error.window or self.budget.window
            raise ContextOverflowError(str(error), tokens=tokens, window=window) from error
        self.budget = learnt(self.budget, session.context, error)
        why = f"the server refused {tokens:,} tokens"
        return await self.ladder.climb(session, self.budget, reason="overflow", why=why)

    async def requested(
        self, session: Session, *, reason: str, why: str, focus: str | None = None
    ) -> tuple[Session, CompactionResult | None]:
        """Compact since somebody asked; None where there is nothing to compact.

        A wish of the model is granted only where something is to be gained and the last one is some steps
        ago. A summary that is refused changes nothing.
        """
        by_model = reason == "tool"
        if by_model and self._steps < STEPS_BETWEEN_REQUESTED:
            return session, None
        plan = self.ladder.plan(session.context, self.budget, reason=reason, why=why, focus=focus)
        if plan is None or (by_model and plan.tokens < WORTH * self.budget.limit):
            return session, None
        self._steps = 0
        return await self.ladder.carry_out(session, self.budget, plan)

    def preview(self, context: Context) -> Plan | None:
        """What a compaction asked for now would cover; nothing is done."""
        return self.ladder.plan(context, self.budget, reason="manual", why="asked for")

    def status(self, context: Context) -> ContextStatus:
        """How full the window is."""
        trigger = self.policy.trigger if self.policy else None
        return ContextStatus(
            tokens=self.budget.size(context),
            window=self.budget.window,
            threshold=trigger.threshold(self.budget) if isinstance(trigger, WindowFraction) else None,
            measured=self.budget.measured(context),
        )

    def _due(self, context: Context, policy: Compaction) -> str | None:
        if not fits(context, self.budget):
            return f"tokens {self.budget.size(context):,} > {self.budget.limit:,}, all that fits"
        fired = policy.trigger(context, self.budget) if policy.trigger else None
        return fired.why if fired and self.ladder.guard.allows(context, self.budget) else None

    async def _warn(self, context: Context) -> None:
        size = self.budget.size(context)
        level = level_of(size, self.budget.window)
        if level != self._level:
            self._level = level
            watch = self.ladder.compactor.watch
            await watch.say(ContextWarning, level=level, tokens=size, window=self.budget.window)


def level_of(tokens: int, window: int) -> str:
    """How full: none under 80 % of the window, warning to 90 %, critical above."""
    if tokens > window * 0.9:
        return "critical"
    return "warning" if tokens >= window * 0.8 else "none"


def learnt(budget: Budget, context: Context, error: ContextTooLongError) -> Budget:
    """The budget as it is after what an overflow said: its window, and how much more the server counts."""
    counted, size = budget.counted(context), budget.size(context)
    ratio = budget.least_ratio
    if error.tokens and error.tokens > size:
        ratio = max(ratio, error.tokens / counted)
    window = error.window
    if window is None and not (error.tokens and error.tokens > size):
        window = int(size * UNTOLD_OVERFLOW)
    window = min(window or budget.window, budget.window)
    return replace(budget, window=window, reserve=min(budget.reserve, window // 2), least_ratio=ratio)
