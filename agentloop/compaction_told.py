"""What is told of a compaction: what is about to go, that it began, and how it ended."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

from agentloop.context import Context
from agentloop.events import ModelCalled
from agentloop.messages import Usage
from agentloop.plans import Plan
from agentloop.stream import (
    CompactionEnded,
    CompactionRequest,
    CompactionResult,
    CompactionStarted,
    Positioned,
    StreamEvent,
)


def request_for(plan: Plan, *, session_id: str, run_id: str, tokens: int) -> CompactionRequest:
    """What callbacks are asked before it: the exact messages about to go."""
    return CompactionRequest(
        session_id=session_id,
        run_id=run_id,
        reason=plan.occasion.reason,
        why=plan.occasion.why,
        messages=tuple(_messages(plan)),
        tokens_before=tokens,
        focus=plan.occasion.focus,
    )


def started(plan: Plan, context: Context, tokens: int) -> CompactionStarted:
    """The event that it begins; `tokens` is the size of the context."""
    touched = [entry.seq for entry in plan.touched]
    return CompactionStarted(
        reason=plan.occasion.reason,
        why=plan.occasion.why,
        strategy=plan.strategy,
        tokens_before=tokens,
        messages_before=len(context.visible),
        first=min(touched),
        last=max(touched),
    )


def ended(result: CompactionResult) -> CompactionEnded:
    """The event that it ended so."""
    return CompactionEnded(**{name: getattr(result, name) for name in _ENDED_FIELDS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    """What the model calls of a compaction took; `unreported` is our count of what no answer reported."""

    usage: Usage
    unreported: Usage
    cost: float | None


def took(calls: Sequence[ModelCalled], output_tokens: int) -> Took:
    """The sum of these calls; `output_tokens` is how long what they wrote is."""
    costs = [called.cost for called in calls if called.cost is not None]
    silent = [called.counted for called in calls if not (called.usage and called.usage.input_tokens)]
    return Took(
        usage=sum((called.usage for called in calls if called.usage), Usage()),
        unreported=Usage(input_tokens=sum(silent), output_tokens=output_tokens if silent else 0),
        cost=sum(costs) if costs else None,
    )


def _messages(plan: Plan) -> Iterator[Positioned]:
    shown = {item.seq for item in plan.cleared}
    for entry in plan.touched:
        if entry.kind == "said":
            yield Positioned(
                seq=entry.seq, message=entry.original, run_id=entry.run_id, shortened=entry.seq in shown
            )


_ENDED_FIELDS = [
    each.name
    for each in fields(CompactionEnded)
    if each.name not in {own.name for own in fields(StreamEvent)}
]
