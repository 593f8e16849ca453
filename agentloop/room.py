"""Makes room: decides before each request, and after an overflow, whether the ladder is to be climbed."""

from dataclasses import dataclass

from agentloop.budget import Budget, overflow
from agentloop.callbacks import CompactionResult
from agentloop.compaction import Compaction
from agentloop.compactor import Plan
from agentloop.context import Context
from agentloop.errors import ContextTooLongError
from agentloop.ladder import WORTH, Ladder
from agentloop.sessions import Session
from agentloop.stream import ContextStatus, ContextWarning, Level
from agentloop.triggers import WindowFraction


@dataclass(slots=True, kw_only=True)
class Room:
    """One run's window. `budget` changes when an overflow teaches more about the server.

    `policy` None switches everything off: what does not fit is then an error.
    """

    policy: Compaction | None
    budget: Budget
    ladder: Ladder
    _level: Level = "none"

    async def make(self, session: Session) -> Session:
        """The session with room for its next request.

        Raises:
            ContextOverflowError: it cannot be made to fit; the text names what is too big.
        """
        self.ladder.guard.step()
        if self.policy is not None:
            session = await self.ladder.clear_in_batches(session, self.budget)
            if why := self._due(session.context, self.policy):
                session = await self.ladder.climb(session, self.budget, reason="threshold", why=why)
        await self._warn(session.context)
        self.budget.check(session.context)
        return session

    async def shrink(self, session: Session, error: ContextTooLongError) -> Session:
        """The session made smaller after the server refused its request as too long.

        Raises:
            ContextOverflowError: it cannot be made smaller, or compaction is off.
        """
        if self.policy is None:
            raise overflow(error, self.budget, session.context) from error
        tokens = error.tokens or self.budget.size(session.context)
        self.budget = self.budget.learnt(session.context, error)
        why = f"the server refused {tokens:,} tokens"
        return await self.ladder.climb(session, self.budget, reason="overflow", why=why)

    async def asked(self, session: Session, focus: str | None) -> tuple[Session, CompactionResult | None]:
        """Compact since a person asked; None where there is nothing to compact.

        A summary that is refused changes nothing.
        """
        plan = self.preview(session.context, focus)
        return await self.ladder.carry_out(session, self.budget, plan) if plan else (session, None)

    async def wished(self, session: Session, focus: str | None) -> tuple[Session, CompactionResult | None]:
        """Compact since the model asked; None where too little is to be gained, or it asked just before."""
        why = "the model asked for it"
        plan = self.ladder.plan(session.context, self.budget, reason="tool", why=why, focus=focus)
        if plan is None or plan.tokens < WORTH * self.budget.limit or not self.ladder.guard.grants():
            return session, None
        return await self.ladder.carry_out(session, self.budget, plan)

    def preview(self, context: Context, focus: str | None = None) -> Plan | None:
        """What a compaction asked for now would cover; nothing is done."""
        return self.ladder.plan(context, self.budget, reason="manual", why="asked for", focus=focus)

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
        size, limit = self.budget.size(context), self.budget.limit
        if size > limit:
            return f"tokens {size:,} > {limit:,}, all that fits"
        fired = policy.trigger(context, self.budget) if policy.trigger else None
        return fired.why if fired and self.ladder.guard.allows(size=size, limit=limit) else None

    async def _warn(self, context: Context) -> None:
        size = self.budget.size(context)
        level = level_of(size, self.budget.window)
        if level != self._level:
            self._level = level
            warning = ContextWarning(level=level, tokens=size, window=self.budget.window)
            await self.ladder.compactor.watch.say(warning)


def level_of(tokens: int, window: int) -> Level:
    """How full: none under 80 % of the window, warning to 90 %, critical above."""
    if tokens > window * 0.9:
        return "critical"
    return "warning" if tokens >= window * 0.8 else "none"
