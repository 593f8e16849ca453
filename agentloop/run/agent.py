"""What runs: a model, its tools, its instructions and its policy, frozen."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import UnionType
from typing import TYPE_CHECKING, Any, Generic

from agentloop._plumbing.checks import finite, flag, instance_or_none, several, shown, text_or_none, whole
from agentloop.bounds import MOST_STEPS
from agentloop.compaction import COMPACT, COMPACT_SCHEMA, Compaction
from agentloop.errors import ToolDefinitionError, UsageError
from agentloop.events import RunSetup
from agentloop.messages import Json
from agentloop.models import ChatModel, TellsSetup, check_model
from agentloop.results import Output_co
from agentloop.run.limits import Limits
from agentloop.tools import RunContext, Tool, ToolAnswer, ToolRegistry, ToolSet
from agentloop.toolsets import RECALL_TOOLS
from agentloop.triggers import WindowFraction

if TYPE_CHECKING:
    from agentloop.tools import OutputType

SUB_AGENT_SECONDS = 3_600.0
MOST_NESTED = 12
"""So many levels of sub-agents may stand below an agent. The id of a log that deep is of a length that every
store takes, whatever the names."""
_TASK: Json = {
    "type": "object",
    "properties": {
        "task": {"type": "string", "description": "What it is to do; it knows nothing but this text."}
    },
    "required": ["task"],
}


@dataclass(frozen=True, slots=True)
class Native(Generic[Output_co]):
    """Has the provider held to JSON of this type, by its `response_format`, in place of a tool.

    Example:
        >>> from agentloop import Agent, OfflineModel
        >>> agent = Agent(OfflineModel(), output=Native(list[int]))
    """

    type: type[Output_co]


@dataclass(frozen=True)
class Agent(Generic[Output_co]):
    """What a runner runs.

    `tools` are `Tool`s, functions with type hints and a docstring, and sets of tools such as `Todo()`;
    `instructions` become the system message, with those of the sets behind them; `compaction=None` switches
    all compaction off; a run makes at most `max_steps` model calls.

    `output` is the type of its answers: a pydantic model, a dataclass, a `TypedDict`, a `Literal`, any type
    that JSON can give, or a union. The model gives one by the tool `final_answer`, with `Native(…)` by the
    format that the provider holds it to, and where a server takes neither, as JSON in its text. What does not
    fit goes back to it with what is wrong, twice. A JSON schema, as a dict, is such a type too. By default an
    answer is the model's text.

    `recall=True` offers the model `recall` and `search_sessions` (see `recall_tools`), once something in its
    session was hidden or shortened and where the window has room for them. So the tools change at most once,
    where the messages behind them change anyhow and a provider's prompt cache is worth little.

    Raises:
        ToolDefinitionError: a function cannot become a tool, two tools share a name, or sub-agents stand more
            than `MOST_NESTED` deep.
        UsageError: something is not what it is to be, or `max_steps` is no whole number of at least 1.
    """

    model: ChatModel
    tools: Iterable[Tool | ToolSet | Callable[..., Any]] = field(default=(), kw_only=True)
    instructions: str | None = field(default=None, kw_only=True)
    compaction: Compaction | None = field(default_factory=Compaction, kw_only=True)
    max_steps: int = field(default=MOST_STEPS, kw_only=True)
    recall: bool = field(default=False, kw_only=True)
    output: type[Output_co] | Native[Output_co] | UnionType | Json | None = field(default=None, kw_only=True)
    tools_changed: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_model("model", self.model)
        text_or_none("instructions", self.instructions)
        whole("max_steps", self.max_steps, 1)
        if not isinstance(self.compaction, Compaction | None):
            raise UsageError(
                f"compaction must be a Compaction(…), or None, not {shown(self.compaction)}: "
                "write one such as Compaction(strategy=KeepRecentTurns(8))"
            )
        flag("recall", self.recall)
        several("tools", self.tools, "a list of functions and tools")
        object.__setattr__(self, "tools", tuple(self.tools))
        object.__setattr__(self, "tools_changed", self.tools_changed_now)
        for each in self.tools:
            if isinstance(each, type) and issubclass(each, ToolSet):
                raise UsageError(
                    f"tools takes sets of tools, not their classes: give {each.__name__}(…) instead"
                )
        self._check_tool_sets()
        self._check_names()
        if self.depth > MOST_NESTED:
            raise ToolDefinitionError(
                f"sub-agents stand {self.depth} deep in it: at most {MOST_NESTED} levels are run"
            )

    def _check_tool_sets(self) -> None:
        for each in self.tool_sets:
            kind = type(each).__name__
            finite(f"{kind}.priority", each.priority)
            text_or_none(f"{kind}.instructions", each.instructions)
            several(f"{kind}.tools", each.tools, "a list of tools")
            several(f"{kind}.needs", each.needs, "a list of names")
        known = (*self.registry, *(RECALL_TOOLS if self.recall else ()))
        for each in self.tool_sets:
            if missing := [name for name in each.needs if name not in known]:
                has = f"it has {', '.join(known)}" if known else "it has none"
                raise UsageError(f"{type(each).__name__} needs the agent's tool {missing[0]!r}: {has}")

    def _check_names(self) -> None:
        """Refuse tools of names that something else has."""
        taken: dict[str, str] = {}
        if self.offers_compact:
            taken[COMPACT] = "compaction: rename the tool, or use Compaction(tool=False)"
        if output := self.output_type:
            taken |= {each.name: "output: rename the tool" for each in output.forms}
        if self.recall:
            taken |= dict.fromkeys(RECALL_TOOLS, "recall: rename the tool, or use Agent(…, recall=False)")
        for name in filter(taken.get, self.registry):
            raise ToolDefinitionError(f"the name {name!r} is taken by {taken[name]}")

    @property
    def models(self) -> tuple[ChatModel, ...]:
        """Who answers, and who writes summaries where that is another."""
        writer = self.compaction.model if self.compaction else None
        return (self.model, writer) if writer else (self.model,)

    @property
    def all_models(self) -> tuple[ChatModel, ...]:
        """The same, and those of its sub-agents: all that a run may ask."""
        return (*self.models, *(model for agent in self.sub_agents for model in agent.all_models))

    @property
    def sub_agents(self) -> "Sequence[Agent[Any]]":
        """The agents that became tools of this one."""
        return [tool.function.agent for tool in self.registry.values() if isinstance(tool.function, SubAgent)]

    @cached_property
    def depth(self) -> int:
        """How many levels of sub-agents are below it; at most `MOST_NESTED`."""
        return max((1 + agent.depth for agent in self.sub_agents), default=0)

    def as_tool(
        self,
        name: str,
        description: str,
        *,
        limits: Limits | None = None,
        timeout_seconds: float = SUB_AGENT_SECONDS,
    ) -> Tool:
        """This agent as a tool of another one: the model gives it a `task`, its answer is the result.

        Each call is a run in a log of its own, which knows nothing of the conversation but the task. That log
        belongs to the session: its id is the session's, `~`, and the branch, which is `name` and a mark of
        the call (`s~scout.1f0a9c3e`). It stands in no list of sessions, and goes where the session goes. A
        sub-agent of a sub-agent is a branch of that branch.

        What it uses is a part of the run that calls it, of its `usage`, `cost` and limits; `limits` hold for
        each call by itself, where its steps are the agent's `max_steps`. At a limit its call fails, with what
        there is of an answer; so it does where its run fails. Cancelling the run cancels it. After a crash a
        call that was in flight goes on where it stood, and one that had its answer is not done again.

        `callbacks` of the runner hear its run with that log as the session; who watches the run that calls it
        sees the tools that it calls as `ToolProgress`.

        Example:
            >>> from agentloop import Agent, OfflineModel
            >>> scout = Agent(OfflineModel(), instructions="Find out one thing.")
            >>> lead = Agent(OfflineModel(), tools=[scout.as_tool("scout", "Finds out one thing.")])

        Raises:
            ToolDefinitionError: the name or the description is none that a tool may have, or the time limit
                is no number of more than 0.
            UsageError: the limits are none.
        """
        instance_or_none("limits", limits, Limits)
        return Tool(
            name=name,
            description=description,
            parameters=_TASK,
            function=SubAgent(agent=self, name=name, limits=limits),
            idempotent=True,
            timeout_seconds=timeout_seconds,
        )

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
        """The tools by name, in order, those of sets too."""
        each = ((given.tools if isinstance(given, ToolSet) else (given,)) for given in self.tools)
        return ToolRegistry(tool for tools in each for tool in tools)

    @property
    def tool_sets(self) -> tuple[ToolSet, ...]:
        """The sets among its tools, in order."""
        return tuple(given for given in self.tools if isinstance(given, ToolSet))

    @property
    def tools_changed_now(self) -> tuple[int, ...]:
        """How often the tools of each set have changed; `tools_changed` is what it was for those it has."""
        return tuple(each.tools_changed for each in self.tool_sets)

    @cached_property
    def system(self) -> str | None:
        """Its instructions with those of its tool sets, as every request begins with them; None for none."""
        parts = (self.instructions, *(each.instructions for each in self.tool_sets))
        return "\n\n".join(part for part in parts if part) or self.instructions

    @property
    def offers_compact(self) -> bool:
        """Whether the model is offered the tool `compact`."""
        return self.compaction is not None and self.compaction.tool

    @cached_property
    def output_type(self) -> "OutputType | None":
        """What its answers are held to, None where any text is one."""
        if self.output is None or self.output is str:
            return None
        from agentloop.tools import OutputType  # here, so that pydantic loads with the first type

        native = isinstance(self.output, Native)
        return OutputType.of(
            self.output.type if isinstance(self.output, Native) else self.output, native=native
        )

    @cached_property
    def schemas(self) -> tuple[Json, ...]:
        """The tools as every request names them."""
        own = tuple(self.registry.schemas)
        own = (*own, COMPACT_SCHEMA) if self.offers_compact else own
        return (*own, *self.output_type.schemas) if self.output_type else own


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextOfRun(RunContext[Any]):
    """What a tool may know of the run that calls it, and how the tool of a sub-agent has that run."""

    run_agent: "Callable[[SubAgent, str], Awaitable[ToolAnswer]]" = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubAgent:
    """What the tool does that an agent became; `limits` hold for each call of it."""

    agent: Agent[Any]
    name: str
    limits: Limits | None = None

    async def __call__(self, context: RunContext[Any], task: str) -> ToolAnswer:
        if not isinstance(context, ContextOfRun):
            raise UsageError(
                "a sub-agent works inside of a run: give its tool to an agent that a Runner runs"
            )
        return await context.run_agent(self, task)
