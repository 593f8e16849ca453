"""One call of a model, drained and recorded."""

import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import astuple, dataclass, field, replace

from agentloop._plumbing.checks import is_kept_number, is_kept_whole
from agentloop.errors import BadAnswerError
from agentloop.events import ModelCalled
from agentloop.messages import MOST_REPORTED_TOKENS, Usage
from agentloop.models.model import Answer, ChatModel, ModelRequest, PassingPart

OnPart = Callable[[PassingPart], Awaitable[None]]


async def call_model(
    model: ChatModel, request: ModelRequest, *, counted: int, on_part: OnPart
) -> tuple[Answer, ModelCalled]:
    """The model's answer, and the record that it was asked; `counted` is the request by our own count.

    A usage or a cost in it that cannot be true, or that no record may hold, was not told: an answer is not
    lost for it.

    Raises:
        ModelError: it gave none.
    """
    started = time.monotonic()
    async with aclosing(model.stream(request)) as parts:
        async for part in parts:
            if not isinstance(part, Answer):
                await on_part(part)
                continue
            part = _believed(part)
            return part, ModelCalled(
                purpose=request.purpose,
                model=model.name,
                counted=counted,
                request_hash=_hash(request),
                usage=part.usage,
                seconds=time.monotonic() - started,
                cost=part.cost,
            )
    raise BadAnswerError("the model ended without an answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """What model calls used; `unreported` is our count of what no answer reported."""

    usage: Usage = field(default_factory=Usage)
    unreported: Usage = field(default_factory=Usage)
    cost: float | None = None

    def __add__(self, other: "Used") -> "Used":
        is_known = self.cost is not None or other.cost is not None
        return Used(
            usage=self.usage + other.usage,
            unreported=self.unreported + other.unreported,
            cost=(self.cost or 0.0) + (other.cost or 0.0) if is_known else None,
        )


def used_by(calls: Sequence[ModelCalled], output_tokens: int) -> Used:
    """The sum of these calls; `output_tokens` is how long what they wrote is."""
    costs = [called.cost for called in calls if called.cost is not None]
    silent = [called.counted for called in calls if not (called.usage and called.usage.input_tokens)]
    return Used(
        usage=sum((called.usage for called in calls if called.usage), Usage()),
        unreported=Usage(input_tokens=sum(silent), output_tokens=output_tokens if silent else 0),
        cost=sum(costs) if costs else None,
    )


def _believed(answer: Answer) -> Answer:
    counts = astuple(answer.usage) if answer.usage else ()
    can_be_true = all(is_kept_whole(each) and each <= MOST_REPORTED_TOKENS for each in counts)
    cost = answer.cost if is_kept_number(answer.cost) else None
    return replace(answer, usage=answer.usage if can_be_true else None, cost=cost)


def _hash(request: ModelRequest) -> str:
    body = _ENCODER.encode((request.messages, request.tools))
    return hashlib.sha256(body.encode()).hexdigest()


_ENCODER = json.JSONEncoder(separators=(",", ":"), check_circular=False)
