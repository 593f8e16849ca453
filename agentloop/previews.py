"""What a compaction would do, in tokens and in US dollars, before anything is done."""

from math import ceil

from agentloop.budget import Budget
from agentloop.context import Context
from agentloop.instead import Digest, Note
from agentloop.messages import Usage
from agentloop.models import ChatModel, Priced
from agentloop.plans import Plan
from agentloop.prompts import NOTE
from agentloop.results import CompactionPreview
from agentloop.stream import ContextStatus


def foreseen(
    plan: Plan, context: Context, budget: Budget, status: ContextStatus, longest: int, model: ChatModel | None
) -> CompactionPreview:
    """What the plan comes to; what stands instead takes at most `longest` tokens."""
    summary = _summary_tokens(plan, budget, longest)
    ratio = budget.ratio(context)
    before = budget.size(context)
    after = min(before, ceil(before - ratio * (plan.tokens - summary)))
    lost = ceil(ratio * sum(entry.tokens for entry in context.visible if entry.at >= plan.touched[0].at))
    priced = model if isinstance(model, Priced) else None
    return CompactionPreview(
        first=min(entry.seq for entry in plan.touched),
        last=max(entry.seq for entry in plan.touched),
        messages=len(plan.touched),
        tokens=plan.tokens,
        context=status,
        strategy=plan.strategy,
        summary_tokens=summary,
        tokens_after=after,
        cache_tokens_lost=lost,
        cost_saved=_difference(priced, Usage(input_tokens=before), Usage(input_tokens=after)),
        cache_cost=_difference(
            priced, Usage(input_tokens=lost), Usage(input_tokens=lost, cached_tokens=lost)
        ),
    )


def _summary_tokens(plan: Plan, budget: Budget, longest: int) -> int:
    if not plan.covered:
        return 0
    match plan.instead:
        case Note():
            return budget.counter(NOTE.format(count=len(plan.entries)))
        case Digest(max_tokens=most):
            return min(most or longest, longest)
        case spec:
            return min(spec.max_tokens or longest, longest)


def _difference(model: Priced | None, more: Usage, less: Usage) -> float | None:
    dear, cheap = (model.price(usage) if model else None for usage in (more, less))
    return None if dear is None or cheap is None else max(0.0, dear - cheap)
