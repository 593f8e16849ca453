"""Who writes a summary: a model within its room and a time limit, with an index beside its prose."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from agentloop._plumbing.truncate import ends
from agentloop.context import Budget, Context, Entry, TokenCounter, neutral
from agentloop.errors import BadAnswerError
from agentloop.index import index_of
from agentloop.model_call import OnPart
from agentloop.models import ChatModel
from agentloop.pieces import BETWEEN
from agentloop.prompts import SUMMARY_INDEX
from agentloop.refusal import room_left
from agentloop.strategies import Summary
from agentloop.summary.draft import Asked, Draft, TakeNote

FOCUS_CHARS = 1_000
"""So much of a focus is passed on, head and tail together."""

INDEX_OVERHEAD = 8
"""Tokens around the index, and what two counts may come to more as one."""

LEAST_INDEX = 20
"""Below so many tokens there is no index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What stands instead, and the positions that were too much to be read for it.

    `text` is the `prose` of the model with the index below it, where there is one.
    """

    text: str
    unread: tuple[int, ...] = ()
    prose: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summariser:
    """Writes the summary of what a compaction covers.

    `budget` is the summariser's own (its window, and as its output the longest summary); `limit_seconds`
    bounds one summary, all of its requests together. `spec` says how it is to be written and read;
    `index_tokens` is the longest index below it, 0 for none; it takes what the prose leaves of the longest
    summary.
    """

    model: ChatModel
    counter: TokenCounter
    budget: Budget
    limit_seconds: float
    on_part: OnPart
    spec: Summary = field(default_factory=Summary)
    index_tokens: int = 0

    async def write(
        self,
        covered: Sequence[Entry],
        context: Context,
        focus: str | None,
        note: TakeNote,
        reads: Sequence[Entry] | None = None,
    ) -> Written:
        """The summary that stands for the covered entries, made from `reads` (None: from them).

        What fits into one request, earlier records too, is read by one. Else each piece is read by one of its
        own, and one more makes one record of theirs, with the earlier ones: n pieces, n + 1 requests. A text
        that cannot be used is asked for once more.

        Raises:
            SummaryRefusedError: two texts in a row were blank, cut off, too long, a call, an error, or old.
            ModelError: the model gave no answer at all, or none in time.
            StoreError: a trim could not keep what it cut.
        """
        asked = Asked(
            covered=covered,
            reads=covered if reads is None else reads,
            context=context,
            spec=self.spec,
            focus=neutral(ends(focus, max_chars=FOCUS_CHARS)) if focus else None,
            longest=self._longest,
            note=note,
        )
        try:
            async with asyncio.timeout(self.limit_seconds):
                prose, unread = await self._draft(asked).done()
        except TimeoutError as error:
            raise BadAnswerError(f"the summary took longer than {self.limit_seconds:g} s") from error
        return Written(text=self._with_index(prose, covered), unread=unread, prose=prose)

    def _draft(self, asked: Asked) -> Draft:
        return Draft(
            model=self.model, counter=self.counter, budget=self.budget, on_part=self.on_part, asked=asked
        )

    @property
    def _longest(self) -> int:
        """The longest summary, index included, in tokens."""
        return min(self.budget.reserve, self.spec.max_tokens or self.budget.reserve)

    def _with_index(self, prose: str, covered: Sequence[Entry]) -> str:
        """The prose, with as much of the index as it leaves room for.

        The whole keeps to the longest summary, and stays smaller than what it stands for.
        """
        spare = min(room_left(prose, covered, self.counter), self._longest - self.counter(prose))
        most = min(self.index_tokens, spare - self.counter(SUMMARY_INDEX) - INDEX_OVERHEAD)
        if most < LEAST_INDEX:
            return prose
        index = index_of(covered, max_tokens=most, counter=self.counter, known=prose)
        whole = f"{prose}{BETWEEN}{SUMMARY_INDEX}\n{index}"
        return whole if index and room_left(whole, covered, self.counter) > 0 else prose
