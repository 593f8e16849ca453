"""What a compaction would do, in tokens and in US dollars, before anything is done."""

from math import ceil

from agentloop.context import Budget, Context
from agentloop.events import Record
from agentloop.messages import Usage
from agentloop.models import ChatModel, Priced
from agentloop.plans import Plan
from agentloop.results import CompactionPreview
from agentloop.standing import Standing, record_of
from agentloop.stream import ContextStatus

SHARE_OF_SUMMARY = 0.2
"""What a model's summary is taken to need of what it stands for, where that is less than it may take."""

EMPTY = Standing(text="", made="summary")
"""What a summary is before a model has written it: the words around it."""


def foreseen(
    plan: Plan,
    standing: Standing | None,
    context: Context,
    budget: Budget,
    *,
    status: ContextStatus,
    longest: int,
    model: ChatModel | None,
    transcript: str | None,
) -> CompactionPreview:
    """What the plan comes to with this standing instead; `transcript` is a file name like the one to come.

    None: a model writes it, in at most `longest` tokens; it is taken to need `SHARE_OF_SUMMARY` of what it
    stands for.
    """
    before, ratio = budget.size(context), budget.ratio(context)
    record = record_of(standing or EMPTY, plan, context, transcript=transcript, counter=budget.counter)
    unwritten = 0 if standing else min(longest, ceil(plan.tokens * SHARE_OF_SUMMARY))
    rewritten = context.add(Record(seq=context.length + 1, event=record))
    after = budget.size_of_rewritten(context, rewritten) + ceil(ratio * unwritten)
    touched = plan.touched
    lost = ceil(ratio * sum(entry.tokens for entry in context.visible if entry.at >= touched[0].at))
    priced = model if isinstance(model, Priced) else None
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
        cost_saved=_difference(priced, Usage(input_tokens=before), Usage(input_tokens=after)),
        cache_cost=_difference(
            priced, Usage(input_tokens=lost), Usage(input_tokens=lost, cached_tokens=lost)
        ),
    )


def _difference(model: Priced | None, more: Usage, less: Usage) -> float | None:
    dear, cheap = (model.price(usage) if model else None for usage in (more, less))
    return None if dear is None or cheap is None else max(0.0, dear - cheap)
