"""The policy: three layers and their numbers, as one frozen value."""

from dataclasses import dataclass, field

from agentloop.checks import above_zero, fraction
from agentloop.micro import MicroCompact
from agentloop.models import ChatModel
from agentloop.strategies import KeepRecentFraction, Strategy
from agentloop.triggers import Trigger, WindowFraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """How a run keeps its requests inside the window.

    `micro` shortens old results (None: off); `trigger` decides when the older part is summarised (None:
    never before the window is full); `strategy` decides what is covered; `tool` offers the model
    `compact(focus=…)`; `model` writes the summaries (None: the agent's own). A summary takes at most
    `summary_share` of the window and `summary_seconds` of time. An agent without any of this has
    `compaction=None`: a request that does not fit then fails.

    Raises:
        UsageError: a number is out of its range.
    """

    micro: MicroCompact | None = field(default_factory=MicroCompact)
    trigger: Trigger | None = field(default_factory=WindowFraction)
    strategy: Strategy = field(default_factory=KeepRecentFraction)
    tool: bool = True
    model: ChatModel | None = None
    summary_share: float = 0.25
    summary_seconds: float = 300.0

    def __post_init__(self) -> None:
        fraction("summary_share", self.summary_share, most=0.5)
        above_zero("summary_seconds", self.summary_seconds)
