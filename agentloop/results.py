"""What a run came to, and the words of the exit table."""

import asyncio
from dataclasses import dataclass

from agentloop.callbacks import CompactionResult
from agentloop.errors import (
    ContextOverflowError,
    ContextTooLongError,
    ModelUnavailableError,
    UsageError,
)
from agentloop.messages import Message, Usage
from agentloop.stream import ContextStatus, RunStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What a run came to.

    `status` is `answered`, or `limit` where a limit ended it. `messages` is what the model sees at the end;
    the whole history stands in the log. `usage` and `cost` (US dollars, None where no price is known) count
    every request, those for summaries too. `compactions` lists all that were begun, failed ones as well.
    """

    output: str
    status: RunStatus
    session_id: str
    run_id: str
    usage: Usage
    cost: float | None
    messages: tuple[Message, ...]
    compactions: tuple[CompactionResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPreview:
    """What a compaction asked for now would cover: positions, messages, and tokens by our count."""

    first: int
    last: int
    messages: int
    tokens: int
    context: ContextStatus


def status_of(error: BaseException) -> RunStatus:
    """The word of the exit table for what ended a run."""
    match error:
        case asyncio.CancelledError() | KeyboardInterrupt():
            return "interrupted"
        case UsageError():
            return "usage"
        case ContextOverflowError() | ContextTooLongError():
            return "too_large"
        case ModelUnavailableError():
            return "try_later"
    return "failed"
