"""Judges compactions by their outcome, so that none is tried again in vain."""

from dataclasses import dataclass
from itertools import takewhile

from agentloop.budget import Budget
from agentloop.context import Context

STRIKES = 3
"""So many compactions in a row that did not help pause automatic compaction."""

GROWTH = 0.1
"""Automatic compaction waits until the request has grown by this share of the limit since the last one."""

RELEASE = 0.25
"""Growth by this share of the limit ends a pause; so does new user input."""

STEPS_BETWEEN_REQUESTED = 3
"""The model's own wish to compact is granted at most once in so many of its calls."""


@dataclass(slots=True, kw_only=True)
class Guard:
    """What one run has seen of its compactions; `heard` is how much of the log it knows."""

    strikes: int = 0
    last_size: int | None = None
    heard: int = 0

    def allows(self, context: Context, budget: Budget) -> bool:
        """Whether an automatic compaction may be tried now."""
        if self._hears_a_user(context):
            self.strikes, self.last_size = 0, None
        if self.last_size is None:
            return True
        wanted = RELEASE if self.strikes >= STRIKES else GROWTH
        return budget.size(context) >= self.last_size + wanted * budget.limit

    def judge(self, *, helped: bool, size: int) -> None:
        """Take note of one compaction: a strike, or a clean slate."""
        self.strikes = 0 if helped else self.strikes + 1
        self.last_size = size

    def _hears_a_user(self, context: Context) -> bool:
        """Whether a user said something since it last asked; looks at nothing older."""
        heard, self.heard = self.heard, context.length
        new = takewhile(lambda entry: entry.at > heard, reversed(context.visible))
        return any(entry.is_user for entry in new)
