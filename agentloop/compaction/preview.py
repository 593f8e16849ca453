"""What a compaction would come to, foreseen without doing it."""

from math import ceil

from agentloop.compaction.compactor import Compactor
from agentloop.compaction.plan import Plan, longest_record, longest_summary
from agentloop.compaction.replacement import NOTHING, Replacement, compacted_record, computed
from agentloop.context import Budget, Context
from agentloop.events import Record
from agentloop.messages import Usage
from agentloop.models import Priced
from agentloop.results import CompactionPreview
from agentloop.strategies import Computed, Summary
from agentloop.stream import ContextStatus

SHARE_OF_SUMMARY = 0.2
"""What a model's summary is taken to need of what it stands for, where that is less than it may take."""

LIKELY_NAME = "transcript_1700000000.jsonl"
"""The name of a transcript that is still to be saved is as long as this one."""

_UNWRITTEN = Replacement(text="", made="summary")
"""A summary before a model has written it: the words around it."""


def preview_of(
    plan: Plan, context: Context, budget: Budget, compactor: Compactor, status: ContextStatus
) -> CompactionPreview:
    """What this plan comes to where the compactor carries it out.

    Of a summary, which is still to be written, the length is guessed by what it stands for.
    """
    pinned = compactor.pinned(plan, context, budget)
    length = longest_record if isinstance(plan.instead, Computed) else longest_summary
    longest = compactor.longest(length, plan, context, budget, pinned=pinned)
    replacement, unwritten = _replacement(plan, context, budget, longest)
    transcript = LIKELY_NAME if compactor.transcripts else None
    record = compacted_record(
        plan, replacement, context, transcript=transcript, counter=budget.counter, pinned=pinned
    )
    rewritten = context.add(Record(seq=context.length + 1, event=record))
    before, ratio, touched = budget.size(context), budget.ratio(context), plan.touched
    after = budget.size_of_rewritten(context, rewritten) + ceil(ratio * unwritten)
    lost = ceil(ratio * sum(entry.tokens for entry in context.visible if entry.at >= touched[0].at))
    model = compactor.model if isinstance(compactor.model, Priced) else None
    return CompactionPreview(
        first=min(entry.seq for entry in touched),
        last=max(entry.seq for entry in touched),
        messages=len(touched),
        tokens=plan.tokens,
        context=status,
        strategy=plan.strategy,
        summary_tokens=record.tokens + unwritten,
        tokens_after=min(before, after),
        cache_tokens_lost=lost,
        cost_saved=_difference(model, Usage(input_tokens=before), Usage(input_tokens=after)),
        cache_cost=_difference(model, Usage(input_tokens=lost), Usage(input_tokens=lost, cached_tokens=lost)),
    )


def _replacement(plan: Plan, context: Context, budget: Budget, longest: int) -> tuple[Replacement, int]:
    """What would stand instead, and the tokens of what of it a model is still to write."""
    if not plan.covered:
        return NOTHING, 0
    match plan.instead:
        case Summary():
            return _UNWRITTEN, min(longest, ceil(plan.tokens * SHARE_OF_SUMMARY))
        case other:
            return computed(other, plan, context, max_tokens=longest, counter=budget.counter), 0


def _difference(model: Priced | None, more: Usage, less: Usage) -> float | None:
    dear, cheap = (model.price(usage) if model else None for usage in (more, less))
    return None if dear is None or cheap is None else max(0.0, dear - cheap)
