"""What a model is: anything that answers a request with parts, the whole answer last.

A model may yield any number of `TextPart` and `Retry`, then yields exactly one `Answer`. It raises the
`ModelError`s of `errors` and nothing else. Streaming is the only way in: a model that does not stream
yields its `Answer` alone.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from agentloop.messages import Json, Message, Usage

Purpose: TypeAlias = Literal["agent", "summary", "memory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One request: messages and tool schemas in wire form, valid for a strict provider.

    `max_output_tokens` is the most the answer may have; None leaves it to the model.
    """

    messages: tuple[Json, ...]
    tools: tuple[Json, ...] = ()
    purpose: Purpose = "agent"
    max_output_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPart:
    """A piece of the answer's text, as it comes."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """A try failed and another follows after `wait_seconds`; text parts so far are void."""

    attempt: int
    wait_seconds: float
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The whole answer.

    `finish` is the server's finish reason; `usage` is None where it reported none, and so is `cost` (US
    dollars) where no price is known.
    """

    message: Message
    usage: Usage | None = None
    finish: str | None = None
    cost: float | None = None


ModelPart: TypeAlias = TextPart | Retry | Answer


class ChatModel(Protocol):
    """Anything that answers requests.

    `window` is the most tokens a request and its answer may have together, None where it is not known.
    `max_output_tokens` is what each answer is limited to, None for no limit of ours.
    """

    @property
    def name(self) -> str: ...

    @property
    def window(self) -> int | None: ...

    @property
    def max_output_tokens(self) -> int | None: ...

    def stream(self, request: ModelRequest, /) -> AsyncGenerator[ModelPart, None]:
        """Answer the request: any number of parts, then one `Answer`."""
        ...
