"""One call of a model, drained to its answer, with the record of it."""

import hashlib
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from agentloop.errors import BadAnswerError
from agentloop.events import ModelCalled
from agentloop.models import Answer, ChatModel, ModelRequest, Retry, TextPart

OnPart = Callable[[TextPart | Retry], Awaitable[None]]


async def call(
    model: ChatModel, request: ModelRequest, *, counted: int, on_part: OnPart
) -> tuple[Answer, ModelCalled]:
    """The model's answer, and the record that it was asked; `counted` is the request by our own count.

    Raises:
        ModelError: it gave none.
    """
    started = time.monotonic()
    async with aclosing(model.stream(request)) as parts:
        async for part in parts:
            if not isinstance(part, Answer):
                await on_part(part)
                continue
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


def _hash(request: ModelRequest) -> str:
    body = _ENCODER.encode((request.messages, request.tools))
    return hashlib.sha256(body.encode()).hexdigest()


_ENCODER = json.JSONEncoder(separators=(",", ":"), check_circular=False)
