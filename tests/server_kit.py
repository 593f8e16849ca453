"""Models that talk to a strict provider, and what they answer; no wait is real."""

import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest

from agentloop.errors import ModelError
from agentloop.models import Answer, ChatModel, ModelPart, ModelRequest, RetryPolicy, TextPart
from agentloop.providers.openai import OpenAIChat
from tests.strict_provider import StrictProvider
from tests.strict_replies import Raw

LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
"""A tool as it is offered."""


class Waits:
    """A clock that passes at once and remembers how long it was asked to wait."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def at_once(attempts: int = 5) -> RetryPolicy:
    """So many attempts, with nothing between them."""
    return RetryPolicy(first_wait_seconds=0.0, jitter_seconds=0.0, attempts=attempts)


def chat(server: StrictProvider, waits: Waits | None = None, **options: Any) -> OpenAIChat:
    """Chat completions of this server; retries wait by `waits`."""
    retry = RetryPolicy(sleep=waits or Waits(), chance=lambda: 0.0)
    fixed: dict[str, Any] = {"base_url": server.url, "api_key": "sk-test", "retry": retry}
    return OpenAIChat("strict", **(fixed | options))


def saying(*texts: str, **fields: Any) -> ModelRequest:
    """A request in which the user says these texts."""
    return ModelRequest(messages=tuple({"role": "user", "content": text} for text in texts), **fields)


async def pieces_of(body: bytes, cuts: list[int]) -> AsyncIterator[bytes]:
    """The bytes in pieces, cut at these places."""
    places = [0, *sorted(cuts), len(body)]
    for start, end in itertools.pairwise(places):
        yield body[start:end]


def bytewise(body: bytes, content_type: str = "text/event-stream") -> Raw:
    """An answer of these bytes, each sent by itself."""
    return Raw(pieces=tuple(bytes([each]) for each in body), content_type=content_type)


async def parts_of(model: ChatModel, request: ModelRequest | None = None) -> list[ModelPart]:
    """All that comes for a request."""
    return [part async for part in model.stream(request or saying("Hello"))]


async def answer_of(model: ChatModel, request: ModelRequest | None = None) -> Answer:
    """The answer to a request."""
    last = (await parts_of(model, request))[-1]
    assert isinstance(last, Answer)
    return last


async def error_of(model: ChatModel, request: ModelRequest | None = None) -> ModelError:
    """The error that a request ends in, told in one line."""
    with pytest.raises(ModelError) as caught:
        await parts_of(model, request)
    assert "\n" not in str(caught.value)
    return caught.value


def shown_in(parts: list[ModelPart]) -> str:
    """The text that was shown while it came."""
    return "".join(part.text for part in parts if isinstance(part, TextPart))
