"""What a compaction is about to do, for the code that is asked first, and what it came to."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from agentloop.events import Ranges
from agentloop.filters import EventFilter
from agentloop.messages import Message
from agentloop.ranges import united
from agentloop.stream import CompactionReason, CompactionStatus, Level, level_of
from agentloop.usage import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Positioned:
    """A message as the log holds it, its position, and the run that it was said in.

    `shortened` tells that it stays in the context and is only shown shortened from now on; otherwise it goes.
    """

    seq: int
    message: Message
    run_id: str = ""
    shortened: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionRequest:
    """What is about to be hidden or shown shortened, and why.

    `messages` are exactly those about to go, and those about to be shown shortened, which say so; oldest
    first, untruncated. `tokens_before` is the size of the next request as it stands.

    Example:
        >>> said = [Positioned(seq=1, message=Message.user("Mend the tests."), run_id="a")]
        >>> said += [Positioned(seq=2, message=Message.assistant("They pass."), run_id="a")]
        >>> request = CompactionRequest(
        ...     session_id="s", run_id="b", reason="manual", why="asked for", messages=tuple(said),
        ...     tokens_before=900,
        ... )
        >>> [each.message.text for each in request.select(EventFilter(first=2))]
        ['They pass.']
    """

    session_id: str
    run_id: str
    reason: CompactionReason
    why: str
    messages: tuple[Positioned, ...]
    tokens_before: int
    focus: str | None = None

    def select(self, only: EventFilter) -> tuple[Positioned, ...]:
        """Those of the messages that the filter takes; all of them stand on the main line."""
        return tuple(
            each
            for each in self.messages
            if only.takes(seq=each.seq, kind="message_added", branch=None, run_id=each.run_id)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    """What a compaction came to; sizes in tokens, of the next request by one and the same measure.

    `tier` is the rung of the ladder: 0 results cleared, 1 a summary, 2 one with a smaller tail, 3 no model's
    text (a digest or a note), 4 what was left shortened. `archived` are the positions it hides, `compacted`
    how many messages of the log are among them that no earlier one hid, `shortened` the positions that are
    shown shortened, `lost` the identifiers of what is hidden that are no longer in sight, `unread` the
    positions for which no summary stands: more than the summariser could read, or dropped by the strategy.
    `error` says what went wrong, also where a compaction was done by other means than the strategy asked for.
    `usage` and `cost` (US dollars) are what its requests took, also where it failed, and `unreported` is what
    those took whose answers reported nothing, by our own count. `seq` is the position of its record where
    it was done, and what `undo` takes back. `unsaved` says why its transcript could not be saved.

    Example:
        >>> from agentloop.compaction import compact_messages
        >>> from agentloop.strategies import SlidingWindow
        >>> chat = [{"role": "user", "content": f"question {n}"} for n in range(30)]
        >>> [result] = compact_messages(chat, SlidingWindow(4), window="8k").results
        >>> result.status, result.strategy, result.tokens_saved == result.tokens_before - result.tokens_after
        ('done', 'SlidingWindow', True)
    """

    status: CompactionStatus
    reason: CompactionReason
    why: str
    strategy: str
    tier: int
    tokens_before: int
    tokens_after: int
    messages_before: int
    messages_after: int
    archived: Ranges = ()
    transcript: str | None = None
    duration_seconds: float = 0.0
    summary: str = ""
    summary_tokens: int = 0
    lost: tuple[str, ...] = ()
    unread: tuple[int, ...] = ()
    error: str | None = None
    usage: Usage = field(default_factory=Usage)
    unreported: Usage = field(default_factory=Usage)
    cost: float | None = None
    seq: int | None = None
    compacted: int = 0
    shortened: tuple[int, ...] = ()
    window: int = 0
    unsaved: str | None = None

    @property
    def tokens_saved(self) -> int:
        """By so much the next request is smaller."""
        return self.tokens_before - self.tokens_after

    @property
    def events_removed(self) -> int:
        """By so many messages the context is shorter."""
        return self.messages_before - self.messages_after

    @property
    def level(self) -> Level:
        """How full the window is after it: none under 80 %, warning to 90 %, critical above."""
        return level_of(self.tokens_after, self.window)


def together(results: Sequence[CompactionResult]) -> CompactionResult:
    """What the steps of one compaction, oldest first, came to together.

    It is done where any step was; `error` then says what went wrong in the others.
    """
    first, last = results[0], results[-1]
    done = [each for each in results if each.status == "done"]
    told = done[-1] if done else last
    costs = [each.cost for each in results if each.cost is not None]
    return replace(
        told,
        error="; ".join(each.error for each in results if each.error) or None,
        tier=max(each.tier for each in done or results),
        tokens_before=first.tokens_before,
        messages_before=first.messages_before,
        tokens_after=last.tokens_after,
        messages_after=last.messages_after,
        archived=united(*(each.archived for each in results)),
        compacted=sum(each.compacted for each in results),
        shortened=tuple(sorted({seq for each in results for seq in each.shortened})),
        unread=tuple(sorted({seq for each in results for seq in each.unread})),
        duration_seconds=sum(each.duration_seconds for each in results),
        usage=sum((each.usage for each in results), Usage()),
        unreported=sum((each.unreported for each in results), Usage()),
        cost=sum(costs) if costs else None,
    )
