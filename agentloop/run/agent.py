"""What runs: a model, its tools, its instructions and its policy, frozen."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from agentloop._plumbing.checks import shown, text_or_none, whole
from agentloop.compaction import COMPACT, COMPACT_SCHEMA, Compaction
from agentloop.errors import ToolDefinitionError, UsageError
from agentloop.events import RunSetup
from agentloop.messages import Json
from agentloop.models import ChatModel, TellsSetup, check_model
from agentloop.recall import RECALL_TOOLS
from agentloop.run.limits import MOST_STEPS
from agentloop.tools import Tool, ToolRegistry
from agentloop.triggers import WindowFraction


@dataclass(frozen=True)
class Agent:
    """What a runner runs.

    `tools` are `Tool`s or functions with type hints and a docstring; `instructions` become the system
    message; `compaction=None` switches all compaction off; a run makes at most `max_steps` model calls.

    `recall=True` offers the model `recall` and `search_sessions` (see `recall_tools`), once something in its
    session was hidden or shortened. So the tools change at most once, where the messages behind them change
    anyhow and a provider's prompt cache is worth little.

    Raises:
        ToolDefinitionError: a function cannot become a tool, or two tools share a name.
        UsageError: something is not what it is to be, or `max_steps` is no whole number of at least 1.
    """

    model: ChatModel
    tools: Iterable[Tool | Callable[..., Any]] = field(default=(), kw_only=True)
    instructions: str | None = field(default=None, kw_only=True)
    compaction: Compaction | None = field(default_factory=Compaction, kw_only=True)
    max_steps: int = field(default=MOST_STEPS, kw_only=True)
    recall: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        check_model("model", self.model)
        text_or_none("instructions", self.instructions)
        whole("max_steps", self.max_steps, 1)
        if not isinstance(self.compaction, Compaction | None):
            raise UsageError(f"compaction must be a Compaction(…), or None, not {shown(self.compaction)}")
        if isinstance(self.tools, str | Tool) or not isinstance(self.tools, Iterable):
            raise UsageError(f"tools must be a list of functions and tools, not {shown(self.tools)}")
        object.__setattr__(self, "tools", tuple(self.tools))
        if self.offers_compact and COMPACT in self.registry:
            raise ToolDefinitionError(
                f"the name {COMPACT!r} is taken by compaction: rename the tool, or use Compaction(tool=False)"
            )
        if self.recall and (taken := [name for name in RECALL_TOOLS if name in self.registry]):
            raise ToolDefinitionError(
                f"the name {taken[0]!r} is taken by recall: rename the tool, or use Agent(…, recall=False)"
            )

    @property
    def models(self) -> tuple[ChatModel, ...]:
        """Who answers, and who writes summaries where that is another."""
        writer = self.compaction.model if self.compaction else None
        return (self.model, writer) if writer else (self.model,)

    @property
    def setup(self) -> RunSetup:
        """What its runs are made with, as their records say it."""
        known = self.model.setup() if isinstance(self.model, TellsSetup) else RunSetup()
        if self.compaction is None:
            return replace(known, compact_at=0.0)
        trigger = self.compaction.trigger
        return replace(known, compact_at=trigger.fraction if isinstance(trigger, WindowFraction) else None)

    @cached_property
    def registry(self) -> ToolRegistry:
        """The tools by name, in order."""
        return ToolRegistry(self.tools)

    @property
    def offers_compact(self) -> bool:
        """Whether the model is offered the tool `compact`."""
        return self.compaction is not None and self.compaction.tool

    @cached_property
    def schemas(self) -> tuple[Json, ...]:
        """The tools as every request names them."""
        own = tuple(self.registry.schemas)
        return (*own, COMPACT_SCHEMA) if self.offers_compact else own
