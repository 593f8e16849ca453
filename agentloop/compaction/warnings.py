"""What a run says of its window: how full it is, and what compaction cannot mend."""

from dataclasses import dataclass, field
from math import ceil

from agentloop.context import Budget, Context
from agentloop.emitter import Emitter
from agentloop.stream import ContextStatus, ContextWarning, Level, LevelOf


@dataclass(slots=True)
class ContextWarnings:
    """Shows one run's warnings of its window, each once.

    `said_cuts` is the window to which the server is known to cut prompts in silence.
    """

    emitter: Emitter
    said_cuts: int | None
    _levels: dict[LevelOf, Level] = field(default_factory=dict, init=False)
    _said_fixed: bool = field(default=False, init=False)

    async def show(self, context: Context, budget: Budget, status: ContextStatus, *, compacts: bool) -> None:
        """Warn of what is new before a request; `compacts` says whether a run makes room by itself."""
        if compacts:
            await self._of_fixed_part(context, budget, status)
        await self._of_cuts(budget, status)
        await self._of_levels(status)

    async def _of_fixed_part(self, context: Context, budget: Budget, status: ContextStatus) -> None:
        """Say once that what compaction cannot shrink is larger than what it aims at, or fires at."""
        fixed = ceil(budget.ratio(context) * budget.fixed_beside(context))
        fires, target = status.threshold or budget.limit, budget.target
        if fixed <= min(fires, target) or self._said_fixed:
            return
        wanted = (
            f"the {target:,} that compaction aims at: shorten them, or use a larger window"
            if fixed > target
            else f"the {fires:,} at which it is to compact, so no compaction gets there: let it do so later"
        )
        self._said_fixed = True
        await self._say(
            f"instructions and tool schemas take {fixed:,} tokens, more than {wanted}", fixed, status
        )

    async def _of_cuts(self, budget: Budget, status: ContextStatus) -> None:
        """Say once that the server cuts prompts in silence, and to which window it does."""
        window = budget.cuts.window
        if window in (None, self.said_cuts):
            return
        self.said_cuts = window
        text = (
            f"the server seems to cut longer prompts in silence: it reports at most {window:,} tokens "
            f"of requests of up to {budget.answered:,}; a larger window on its side helps"
        )
        await self._say(text, status.tokens, status)

    async def _say(self, text: str, tokens: int, status: ContextStatus) -> None:
        warning = ContextWarning(level=status.window_level, tokens=tokens, window=status.window, text=text)
        await self.emitter.emit(warning)

    async def _of_levels(self, status: ContextStatus) -> None:
        """Say which levels have changed since the last request."""
        levels: dict[LevelOf, Level] = {"threshold": status.threshold_level, "window": status.window_level}
        for of, level in levels.items():
            if level != self._levels.get(of, "none"):
                warning = ContextWarning(
                    level=level,
                    of=of,
                    tokens=status.tokens,
                    window=status.window,
                    threshold=status.threshold,
                )
                await self.emitter.emit(warning)
        self._levels = levels
