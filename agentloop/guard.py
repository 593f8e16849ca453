"""Judges compactions by their outcome, so that none is tried again in vain.

A guard is made anew for each run: that is how new user input lets go of a pause.
"""

from dataclasses import dataclass

STRIKES = 3
"""So many compactions in a row that did not help pause automatic compaction."""

GROWTH = 0.1
"""Automatic compaction waits until the request has grown by this share of the limit since the last one."""

RELEASE = 0.25
"""Growth by this share of the limit ends a pause."""

STEPS_BETWEEN_WISHES = 3
"""The model's own wish to compact is granted at most once in so many of its calls."""


@dataclass(slots=True, kw_only=True)
class Guard:
    """What one run has seen of its compactions; sizes and limits in tokens."""

    strikes: int = 0
    last_size: int | None = None
    steps: int = STEPS_BETWEEN_WISHES

    def step(self) -> None:
        """Take note of one model call."""
        self.steps += 1

    def allows(self, *, size: int, limit: int) -> bool:
        """Whether an automatic compaction may be tried now."""
        if self.last_size is None:
            return True
        wanted = RELEASE if self.strikes >= STRIKES else GROWTH
        return size >= self.last_size + wanted * limit

    def grants(self) -> bool:
        """Whether the model's wish to compact is granted now; if so, the next one has to wait."""
        granted = self.steps >= STEPS_BETWEEN_WISHES
        if granted:
            self.steps = 0
        return granted

    def judge(self, *, helped: bool, size: int) -> None:
        """Take note of one compaction: a strike, or a clean slate."""
        self.strikes = 0 if helped else self.strikes + 1
        self.last_size = size
