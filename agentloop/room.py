"""Makes room: decides before each request, and after an overflow, whether the ladder is to be climbed."""

from dataclasses import dataclass, replace
from math import ceil

from agentloop.context import (
    Budget,
    Context,
    is_believed,
    learnt,
    overflow_error,
    refusing,
    with_shorter_answer,
)
from agentloop.errors import ContextTooLongError
from agentloop.guard import Guard
from agentloop.ladder import Ladder
from agentloop.plans import Occasion
from agentloop.policy import Compaction
from agentloop.results import CompactionPreview
from agentloop.rungs import WORTH, fired_by
from agentloop.sessions import Session
from agentloop.stream import CompactionResult, ContextStatus, ContextWarning, Level, level_of
from agentloop.triggers import Overflow, threshold_of

_OVERFLOW = Overflow()


@dataclass(slots=True, kw_only=True)
class Room:
    """One run's window. `budget` changes when an overflow teaches more about the server.

    A compaction is decided on with the whole log in the context; clearing and plain steps never read it.
    `policy` None switches everything off: what does not fit is then an error. `_lowered_at` is how long the
    context was when a shorter answer was last asked for, which is tried once for each request.
    """

    policy: Compaction | None
    budget: Budget
    ladder: Ladder
    _level: Level = "none"
    _said_fixed: bool = False
    _lowered_at: int | None = None

    async def make(self, session: Session) -> Session:
        """The session with room for its next request.

        Raises:
            ContextOverflowError: it cannot be made to fit; the text names what is too big.
        """
        self.ladder.guard.step()
        if self.policy is not None:
            session = await self.ladder.clear_in_batches(session, self.budget)
            if occasion := self._due(session.context, self.policy, self.ladder.guard):
                session = await self.ladder.climb(await session.whole(), self.budget, occasion)
            await self._say_fixed(session.context)
        await self._warn(session.context)
        self.budget.check(session.context)
        return session

    def is_due(self, context: Context) -> bool:
        """Whether `make` would compact now, as far as can be told before old results are cleared."""
        if self.policy is None:
            return False
        guard = replace(self.ladder.guard)
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
        self.budget = learnt(self.budget, session.context, error)
        occasion = Occasion(reason="overflow", why=f"the server refused {tokens:,} tokens")
        budget = refusing(self.budget, session.context)
        return await self.ladder.climb(await session.whole(), budget, occasion)

    async def asked(self, session: Session, focus: str | None) -> tuple[Session, CompactionResult | None]:
        """Compact since a person asked; None where there is nothing to compact.

        A summary that is refused changes nothing.
        """
        return await self.ladder.carry_out(await session.whole(), self.budget, _asked_for(focus))

    async def wished(self, session: Session, focus: str | None) -> tuple[Session, CompactionResult | None]:
        """Compact since the model asked; None where too little is to be gained, or it asked just before.

        Once it is done the guard lets go of what it holds against compaction.
        """
        occasion = Occasion(reason="tool", why="the model asked for it", focus=focus)
        session = await session.whole()
        gain = self.ladder.rungs(session, self.budget, occasion).gain()
        if gain < WORTH * self.budget.limit or not self.ladder.guard.grant():
            return session, None
        session, result = await self.ladder.carry_out(session, self.budget, occasion)
        if result and result.status == "done":
            self.ladder.guard.release()
        return session, result

    async def if_due(self, session: Session) -> tuple[Session, CompactionResult | None]:
        """Compact where the trigger fires now, outside of a run; None where it doesn't."""
        trigger = self.policy.trigger if self.policy else None
        fired = fired_by(trigger, session.context, self.budget)
        if fired is None:
            return session, None
        occasion = Occasion(reason="idle", why=fired.why)
        return await self.ladder.carry_out(await session.whole(), self.budget, occasion)

    def preview(self, context: Context, focus: str | None = None) -> CompactionPreview | None:
        """What a compaction asked for now would do first; nothing is done."""
        return self.ladder.preview(context, self.budget, _asked_for(focus), self.status(context))

    def status(self, context: Context) -> ContextStatus:
        """How full the window is."""
        trigger = self.policy.trigger if self.policy else None
        return ContextStatus(
            tokens=self.budget.size(context),
            window=self.budget.window,
            threshold=threshold_of(trigger, self.budget) if trigger else None,
            measured=self.budget.measured(context),
        )

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
        await self.ladder.compactor.watch.say(warning)

    async def _warn(self, context: Context) -> None:
        size = self.budget.size(context)
        level = level_of(size, self.budget.window)
        if level != self._level:
            self._level = level
            warning = ContextWarning(level=level, tokens=size, window=self.budget.window)
            await self.ladder.compactor.watch.say(warning)


def _asked_for(focus: str | None) -> Occasion:
    return Occasion(reason="manual", why="asked for", focus=focus)
