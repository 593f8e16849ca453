"""The policy: three layers and their numbers, as one frozen value."""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from agentloop._plumbing.checks import above_zero, flag, fraction, instance_or_none, shown
from agentloop.errors import UsageError
from agentloop.models import ChatModel, check_model
from agentloop.strategies import KeepRecentFraction, MicroCompact, Strategy, check_strategy
from agentloop.triggers import Trigger, WindowFraction, check_trigger

TranscriptFailure: TypeAlias = Literal["stop", "go_on"]
"""What becomes of a compaction whose transcript cannot be saved: nothing is hidden, or it goes on without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """How a run keeps its requests inside the window.

    `micro` shortens old results (None: off); `trigger` decides when the older part is summarised (None:
    never before the window is full); `strategy` decides what is covered; `tool` offers the model
    `compact(focus=…)`; `model` writes the summaries (None: the agent's own). A summary takes at most
    `summary_share` of the window and `summary_seconds` of time. Where the transcript cannot be saved,
    `transcript_failure` says whether the compaction fails and the run goes on while its request fits
    (`"stop"`), or the compaction is done without one (`"go_on"`): the log holds everything in any case, and
    `CompactionEnded.error` says so. An agent without any of this has
    `compaction=None`: a request that does not fit then fails.

    Example:
        >>> from agentloop.strategies import KeepRecentTurns
        >>> policy = Compaction(trigger=WindowFraction(0.7), strategy=KeepRecentTurns(4))
        >>> policy.micro.keep_messages, policy.tool
        (6, True)

    Raises:
        UsageError: a number is out of its range, the trigger or the strategy is no function of a context and
            a budget, `micro` is no `MicroCompact`, `model` no model, or `transcript_failure` neither word.
    """

    micro: MicroCompact | None = field(default_factory=MicroCompact)
    trigger: Trigger | None = field(default_factory=WindowFraction)
    strategy: Strategy = field(default_factory=KeepRecentFraction)
    tool: bool = True
    model: ChatModel | None = None
    summary_share: float = 0.25
    summary_seconds: float = 300.0
    transcript_failure: TranscriptFailure = "stop"

    def __post_init__(self) -> None:
        instance_or_none("micro", self.micro, MicroCompact)
        check_parts(self.trigger, None)
        check_strategy("strategy", self.strategy)
        flag("tool", self.tool)
        if self.model is not None:
            check_model("model", self.model)
        fraction("summary_share", self.summary_share, most=0.5)
        above_zero("summary_seconds", self.summary_seconds)
        if self.transcript_failure not in get_args(TranscriptFailure):
            raise UsageError(
                f"transcript_failure must be 'stop' or 'go_on', not {shown(self.transcript_failure)}"
            )


def check_parts(trigger: Trigger | None, strategy: Strategy | None) -> None:
    """Refuse what is no trigger or no strategy; None is none given.

    Raises:
        UsageError: one of them is no function of a context and a budget.
    """
    if trigger is not None:
        check_trigger("trigger", trigger)
    if strategy is not None:
        check_strategy("strategy", strategy)
