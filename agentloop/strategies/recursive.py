"""One rolling summary: each pass builds on the last one's."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agentloop._plumbing.checks import whole
from agentloop.context import Budget, Context, Entry, Unit
from agentloop.errors import UsageError
from agentloop.instead import Computed, Summary
from agentloop.prompts import SHADOW
from agentloop.strategies.base import Cut, cut_of, foldable
from agentloop.strategies.clearing import newest_said
from agentloop.strategies.scope import positions


@dataclass(frozen=True, slots=True)
class RecursiveSummary:
    """The newest `keep` messages stay; what is older goes into one summary, with the earlier summary.

    The model reads the earlier summary, the messages that leave, and for continuity the `overlap` messages
    that come right behind them and stay. Its answer stands as a pair that the next pass builds on: a user
    asks `shadow` (None: a question of our own), the assistant answers with the summary. An exchange that the
    border runs through stays whole, so more than `keep` messages may stay. `system` and `instruction` replace
    our own texts to the summariser, `max_tokens` is the longest summary (None: by the policy). Where the text
    is refused, `on_failure` stands instead; None leaves everything as it was. Done again at once, it finds
    nothing more.

    The rule, 10 and 2 are those of Spring AI Session's `RecursiveSummarizationCompactionStrategy`; the pair
    is also that of OpenAI's cookbook ("Context Engineering: Short-Term Memory Management with Sessions").

    Raises:
        UsageError: `keep` is below 1, `overlap` below 0 or not below `keep`, `max_tokens` below 20, or a text
            is blank.

    Example:
        >>> from agentloop.events import MessageAdded, Record
        >>> from agentloop.messages import Message
        >>> said = [Message.user("next?"), Message.assistant("done")] * 10
        >>> events = [MessageAdded(message=message, tokens=100) for message in said]
        >>> context = Context.of(Record(seq=seq, event=event) for seq, event in enumerate(events, 1))
        >>> cut = RecursiveSummary(keep=4, overlap=1)(context, Budget(window=4_000, fixed=100, model="m"))
        >>> cut.covers, cut.reads
        (((2, 16),), ((2, 17),))
    """

    keep: int = 10
    overlap: int = 2
    system: str | None = None
    shadow: str | None = None
    instruction: str | None = None
    max_tokens: int | None = None
    on_failure: Computed | None = None

    def __post_init__(self) -> None:
        whole("keep", self.keep, 1)
        whole("overlap", self.overlap, 0)
        if self.overlap >= self.keep:
            raise UsageError(
                f"overlap must be at least 0 and below keep, which is {self.keep}, not {self.overlap}"
            )
        self._summary()

    def __call__(self, context: Context, budget: Budget, /) -> Cut | None:
        kept = {entry.seq for entry in newest_said(context, self.keep)}
        folded = [unit for unit in foldable(context, budget) if kept.isdisjoint(unit.seqs)]
        cut = cut_of(context, folded, self._summary())
        return cut and replace(cut, reads=self._reads(context, folded))

    def _summary(self) -> Summary:
        return Summary(
            max_tokens=self.max_tokens,
            system=self.system,
            instruction=self.instruction,
            shadow=SHADOW if self.shadow is None else self.shadow,
            on_failure=self.on_failure,
        )

    def _reads(self, context: Context, folded: Sequence[Unit]) -> tuple[tuple[int, int], ...]:
        leaving = {entry.seq for unit in folded for entry in unit.entries if entry.kind == "said"}
        overlap = _behind(context, leaving)[: self.overlap]
        return positions(context, leaving.union(entry.seq for entry in overlap))


def _behind(context: Context, leaving: set[int]) -> list[Entry]:
    """What was said behind all that leaves, and stays."""
    last = max(leaving)
    return [entry for entry in context.visible if entry.kind == "said" and entry.seq > last]
