"""Judges compactions by their outcome, so that none is tried again in vain.

A guard is made anew for each run: that is how new user input lets go of a pause. All sizes that it sees are
of the same measure, that of the next request. Its terms:

- a compaction that did nothing, failed, or fell back on a digest is a strike; one that helped wipes them out
- one that helped, but came within `REFILL_STEPS` model calls of the one before, is a strike too
- after a strike the next try waits for `COOLDOWN_STEPS` model calls, twice as many after each further one
- `STRIKES` of them pause automatic compaction
- growth by `RELEASE` of the limit (twice as much with each strike in a pause), or a compaction that was asked
  for and done, ends any wait
- after one that helped the next waits for growth by `GROWTH` of the limit, or by half of what it left
- an overflow that the provider proved passes once through a pause
"""

from dataclasses import dataclass

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
    """What one run has seen of its compactions; sizes and limits in tokens, steps in model calls."""

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
