"""What a run came to, what a compaction would, and the words of the exit table."""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic

from agentloop._plumbing.checks import shown
from agentloop._plumbing.to_text import error_text
from agentloop._plumbing.truncate import beginning
from agentloop.approvals import Pending
from agentloop.errors import (
    AgentLoopError,
    ContextOverflowError,
    ContextTooLongError,
    ModelUnavailableError,
    SessionBusyError,
    TakenOverError,
    UsageError,
)
from agentloop.messages import Message, Usage
from agentloop.stream import CallbackFailed, CompactionResult, ContextStatus, LimitName, RunStatus

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Output_co = TypeVar("Output_co", covariant=True, default=str)
    """What an agent answers: text, unless it says another type."""
else:
    from typing import TypeVar

    Output_co = TypeVar("Output_co", covariant=True)

TOO_LITTLE = "nothing worth compacting yet"
NOTHING_TO_DO = (
    f"{TOO_LITTLE}: the task, while it is short, and the newest exchange stay; what stands between them has "
    "to take more than a summary of it, some hundreds of tokens"
)
"""What a compaction says that was asked for in vain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult(Generic[Output_co]):
    """What a run came to.

    `output` is the answer: text, or a value of the agent's `output`. `status` is `answered`, or
    `needs_approval` where the calls in `pending` wait for a yes, or `limit` where a limit ended it: `limit`
    is then its name in `Limits`, `reason` says it in words. At both `output` is all the text that the model
    said since the prompt. An answer that was cut short by the model's output limit or by a filter has the
    `reason` `length` or `content_filter`.

    `messages` is what the model sees at the end; the whole history stands in the log. `usage` and `cost` (US
    dollars, None where no price is known) count every request, those for summaries too. `compactions` lists
    all that were begun, failed ones as well; `callback_failures` the callbacks that raised or took too long.
    """

    output: Output_co
    status: RunStatus
    session_id: str
    run_id: str
    usage: Usage
    cost: float | None
    messages: tuple[Message, ...]
    compactions: tuple[CompactionResult, ...]
    reason: str | None = None
    limit: LimitName | None = None
    callback_failures: tuple[CallbackFailed, ...] = ()
    pending: tuple[Pending, ...] = ()

    def __repr__(self) -> str:
        said = repr(beginning(self.output, 60)) if isinstance(self.output, str) else shown(self.output)
        return (
            f"RunResult(status={self.status!r}, output={said}, "
            f"session_id={self.session_id!r}, {len(self.messages)} messages, "
            f"{len(self.compactions)} compactions)"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPreview:
    """What a compaction asked for now would do first; nothing is done, no model is asked.

    `first` to `last` are positions, `messages` how many are covered or shortened, `tokens` what they take now
    beyond what they are shortened to. What stands instead takes `summary_tokens` and leaves a
    next request of `tokens_after`: exact where it is computed, an estimate where a model is to write it.
    Behind position `first` a provider's prompt cache is worthless once: `cache_tokens_lost` are sent anew.
    Costs are US dollars, None where no price is known: each further request costs `cost_saved` less, and
    losing the cache costs `cache_cost` once.

    Example:
        >>> from agentloop import Agent, SyncRunner
        >>> from agentloop.testing.models import ScriptedModel
        >>> with SyncRunner(Agent(ScriptedModel(["hello"] * 9)), transcripts=None) as runner:
        ...     for number in range(9):
        ...         done = runner.run(f"question {number}", session_id="s")
        ...     preview = runner.preview("s")
        >>> preview.strategy, preview.messages > 4, preview.context.window
        ('KeepRecentFraction', True, 128000)
    """

    first: int
    last: int
    messages: int
    tokens: int
    context: ContextStatus
    strategy: str = ""
    summary_tokens: int = 0
    tokens_after: int = 0
    cache_tokens_lost: int = 0
    cost_saved: float | None = None
    cache_cost: float | None = None


def status_of(error: BaseException) -> RunStatus:
    """The word of the exit table for what ended a run."""
    match error:
        case asyncio.CancelledError() | KeyboardInterrupt() | TakenOverError():
            return "interrupted"
        case UsageError():
            return "usage"
        case ContextOverflowError() | ContextTooLongError():
            return "too_large"
        case ModelUnavailableError() | SessionBusyError():
            return "try_later"
    return "failed"


def as_run_failure(error: BaseException) -> AgentLoopError:
    """A run's failure by what ends tasks or programs, though nobody asked for that: a model may raise it."""
    return AgentLoopError(f"ended by {error_text(error)}, which nobody here asked for")
