"""The guard: what a session's compactions came to so far, folded from its log, and what it allows next."""

from dataclasses import dataclass, replace

from agentloop.events import Compacted, Event, ModelCalled, NotCompacted

STRIKES = 3
"""So many strikes in a row pause automatic compaction."""

GROWTH = 0.1
"""After a compaction that helped, the next one waits until this share of the limit was added."""

REGROWTH = 0.5
"""In a context that is small beside its window it waits for this share of its own size instead."""

RELEASE, MOST_RELEASE = 0.25, 0.6
"""Growth by this share of the limit ends a wait and a pause; so much does after many more strikes."""

COOLDOWN_STEPS = 2
"""Model calls to wait after the first strike."""

REFILL_STEPS = 3
"""A context that is full again within fewer model calls is not helped by compaction."""

STEPS_BETWEEN_WISHES = 3
"""The model's own wish to compact is granted at most once in so many of its calls."""

FAILURES = 2
"""After so many failures in a row a model is not asked for summaries for a while."""

RETRY_STEPS, MOST_RETRY_STEPS = 16, 256
"""Model calls until it is asked again, twice as many after each further failure, and the most."""

AUTOMATIC = ("threshold", "overflow", "idle")
"""The reasons of compactions that nobody asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """Judges a session's compactions by their outcome; sizes and limits in tokens, steps in model calls.

    It is folded from the log (`after`), so it outlives a run and a process. All sizes that it sees are of the
    same measure, that of the next request. Its terms:

    - a compaction that did nothing, failed, or fell back on a digest is a strike; one that helped wipes them
      out
    - one that helped, but came within `REFILL_STEPS` model calls of the one before, is a strike too
    - after a strike the next try waits for `COOLDOWN_STEPS` model calls, twice as many after each further one
    - `STRIKES` of them pause automatic compaction
    - growth by `RELEASE` of the limit (twice as much with each strike in a pause, at most `MOST_RELEASE`), or
      a compaction that was asked for and done, ends any wait
    - after one that helped the next waits for growth by `GROWTH` of the limit, or by half of what it left
    - an eager one, whose trigger fired for what happened and not for a size, waits for no growth and may come
      at once after one that helped: that is what it was asked for
    - an overflow that the provider proved passes once through a pause
    - after `FAILURES` of the model that writes summaries a digest stands without a request, for a while

    Its fields:

    - `strikes`: so many in a row
    - `last_size`: the size that the last one left; None where nothing waits
    - `bypassed`: an overflow has passed through this pause
    - `since_last`, `since_wish`: model calls since the last one judged, and since the model's last wish
    - `attempt`: the group of the attempt judged last, whose steps are judged together
    - `base`: the strikes before it
    - `refilled`: that attempt came too soon after the one before
    - `told`: the log knows of the wait that goes on
    - `failures`, `since_failure`: summaries that failed in a row, and model calls since the last of them
    """

    strikes: int = 0
    last_size: int | None = None
    bypassed: bool = False
    since_last: int = 0
    since_wish: int = STEPS_BETWEEN_WISHES
    attempt: str = ""
    base: int = 0
    refilled: bool = False
    told: bool = False
    failures: int = 0
    since_failure: int = 0

    def after(self, *events: Event) -> "Guard":
        """The guard once these stand in the log too."""
        guard = self
        for event in events:
            match event:
                case ModelCalled(purpose="agent"):
                    guard = guard.stepped()
                case Compacted():
                    guard = guard._after_done(event)._after_summary(event)
                case NotCompacted():
                    guard = guard._after_none(event)
                    wrote_none = event.status == "failed" and event.fault is not None
                    guard = guard._after_failure() if wrote_none else guard
        return guard

    def stepped(self) -> "Guard":
        """The guard after one model call more."""
        return replace(
            self,
            since_last=self.since_last + 1,
            since_wish=self.since_wish + 1,
            since_failure=self.since_failure + 1,
        )

    @property
    def trusts_summaries(self) -> bool:
        """Whether a model may be asked for a summary: it has not just failed again and again."""
        more = self.failures - FAILURES
        return more < 0 or self.since_failure >= min(MOST_RETRY_STEPS, RETRY_STEPS * 2 ** min(more, 8))

    def allows(self, *, size: int, limit: int, eager: bool = False) -> bool:
        """Whether an automatic compaction may be tried now."""
        return self.refusal(size=size, limit=limit, eager=eager) is None

    def refusal(self, *, size: int, limit: int, eager: bool = False) -> str | None:
        """Why no automatic compaction may be tried now, in words; None where one may."""
        if self.last_size is None or size >= self.last_size + self._release() * limit:
            return None
        if self.strikes >= STRIKES:
            until = self.last_size + int(self._release() * limit)
            return f"paused after {self.strikes} that did not help, until {until:,} tokens"
        if self.strikes:
            left = COOLDOWN_STEPS * 2 ** (self.strikes - 1) - self.since_last
            return f"the last one did not help; {left} more model calls to wait" if left > 0 else None
        until = self.last_size + int(min(GROWTH * limit, REGROWTH * self.last_size))
        return (
            None if eager or size >= until else f"the last one left {self.last_size:,} tokens: at {until:,}"
        )

    def may_bypass(self) -> bool:
        """Whether an overflow that the provider proved may pass although nothing else may; once a pause."""
        return not self.bypassed

    @property
    def steps_to_wish(self) -> int:
        """So many model calls are still to come before the model's wish to compact is granted again."""
        return max(0, STEPS_BETWEEN_WISHES - self.since_wish)

    def judged(
        self, *, helped: bool, size: int, attempt: str = "", eager: bool = False, overflow: bool = False
    ) -> "Guard":
        """The guard after one compaction, or one step of an attempt: its outcome, and the size after it."""
        goes_on = bool(attempt) and attempt == self.attempt
        base = self.base if goes_on else self.strikes
        early = self.last_size is not None and self.since_last < REFILL_STEPS and not eager
        refilled = self.refilled if goes_on else early
        went_well = helped and not refilled and not (goes_on and self.strikes)
        strikes = 0 if went_well else base + 1
        return replace(
            self,
            strikes=strikes,
            last_size=size,
            bypassed=(self.bypassed or overflow) and strikes > 0,
            since_last=0,
            attempt=attempt,
            base=base,
            refilled=refilled,
            told=False,
        )

    def released(self) -> "Guard":
        """The guard without all strikes: a compaction that was asked for is done."""
        return replace(self, strikes=0, last_size=None, bypassed=False, attempt="", told=False)

    def _release(self) -> float:
        """Twice as much with each strike in a pause: growth that compaction cannot stem is no reason."""
        return min(RELEASE * float(2 ** max(0, self.strikes - STRIKES)), MOST_RELEASE)

    def _after_done(self, event: Compacted) -> "Guard":
        if event.reason not in AUTOMATIC:
            return replace(self.released(), since_wish=0 if event.reason == "tool" else self.since_wish)
        if event.group:
            return self.judged(
                helped=event.fault is None,
                size=event.after,
                attempt=event.group,
                eager=event.eager,
                overflow=event.reason == "overflow",
            )
        if self.last_size is None:
            return self
        return replace(self, last_size=min(self.last_size, event.after))  # a rung that no policy names

    def _after_summary(self, event: Compacted) -> "Guard":
        if event.fault is not None:
            return self._after_failure()
        return replace(self, failures=0) if event.made == "summary" and event.covers else self

    def _after_failure(self) -> "Guard":
        return replace(self, failures=self.failures + 1, since_failure=0)

    def _after_none(self, event: NotCompacted) -> "Guard":
        if event.status == "skipped":
            return replace(self, told=self.told or event.reason in AUTOMATIC)
        if event.reason in AUTOMATIC:
            overflow = event.reason == "overflow"
            return self.judged(helped=False, size=event.before, attempt=event.group, overflow=overflow)
        return replace(self, since_wish=0) if event.reason == "tool" else self
