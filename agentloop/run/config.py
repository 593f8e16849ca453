"""What all runs of a runner share; what a caller gave, checked."""

import copy
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from agentloop import compaction
from agentloop._plumbing.checks import shown
from agentloop.approvals import Approver
from agentloop.callbacks import Callbacks
from agentloop.context import Budget, RequestPrefix, TokenCounter, counter_for
from agentloop.emitter import CALLBACK_SECONDS, Emitter, Hides, Sink
from agentloop.errors import UsageError
from agentloop.media import File, Image
from agentloop.messages import Json, Message
from agentloop.models import AsksWindow
from agentloop.rules import Rules
from agentloop.run.agent import Agent, SubAgent
from agentloop.sessions import Rebase, Sessions
from agentloop.tools import ToolAnswer, ToolRegistry
from agentloop.toolsets import recall_tools

RunsSubAgent: TypeAlias = Callable[[Any, str, SubAgent, str], Awaitable[ToolAnswer]]
"""Runs a sub-agent for a call, by its id, of a `Run`, with that task; what the call is answered."""


@dataclass(slots=True)
class Learnt:
    """What the runs so far learnt of the server, None before the first; of sub-agents, by their names."""

    budget: Budget | None = None
    of_sub_agents: "dict[str, Learnt]" = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Who runs, in which sessions, what keeps the context, where files go, who watches, what hides secrets.

    What one run learns of the server, the next begins with. `registry` holds the agent's tools and those of
    recall, `prefix` is what every request begins with.
    """

    agent: Agent[Any]
    sessions: Sessions
    run_sub_agent: RunsSubAgent
    redaction: Hides
    callbacks: tuple[Callbacks, ...] = ()
    callback_seconds: float = CALLBACK_SECONDS
    transcripts: Path | None = None
    approver: Approver | None = None
    rules: Rules | None = None
    learnt: Learnt = field(default_factory=Learnt)
    registry: ToolRegistry = field(init=False)
    prefix: RequestPrefix = field(init=False)

    def __post_init__(self) -> None:
        agent = self.agent
        recall = recall_tools(self.sessions.store) if agent.recall else ()
        schemas = tuple(tool.schema for tool in recall)
        output = agent.output_type
        prefix = RequestPrefix(
            instructions=agent.system,
            schemas=agent.schemas,
            recall=schemas,
            needs_tools=bool(agent.registry),
            answer_schema=output.answer_schema if output else None,
            answer_words=output.request_words if output else None,
        )
        tools = (*agent.registry.values(), *recall)
        object.__setattr__(self, "registry", ToolRegistry(tools, self.rules))
        object.__setattr__(self, "prefix", prefix)

    @property
    def counter(self) -> TokenCounter:
        """What counts the agent's tokens."""
        return counter_for(self.agent.model.name)

    def emitter(self, session_id: str, sink: Sink, *, run_id: str | None = None) -> Emitter:
        """What shows the events of a run, a new one where its id is not given."""
        run_id = uuid.uuid4().hex if run_id is None else run_id
        return Emitter(session_id, run_id, sink, self.redaction, self.callbacks, self.callback_seconds)

    async def keeper(self, emitter: Emitter, rebase: Rebase) -> "compaction.ContextKeeper":
        """What keeps the context of a run in its window, by the agent's policy.

        Its parts load with the first run: the face of compaction loads them when they are first named.
        """
        policy = self.agent.compaction
        compactor = compaction.Compactor(
            policy=policy or compaction.Compaction(),
            model=self.agent.model,
            prefix=self.prefix,
            transcripts=self.transcripts,
            emitter=emitter,
            rebase=rebase,
            tool_sets=self.agent.tool_sets,
        )
        return compaction.ContextKeeper(policy=policy, budget=await self._first_budget(), compactor=compactor)

    def learn(self, budget: Budget) -> None:
        """Keep what a run learnt of the server for the next one."""
        self.learnt.budget = self._budget().keeping(budget)

    async def _first_budget(self) -> Budget:
        """What the next run begins with; models whose window nobody knows ask their servers before."""
        if self.learnt.budget is None:
            for model in self.agent.models:
                if model.window is None and isinstance(model, AsksWindow):
                    await model.ask_window()
        return self._budget()

    def _budget(self) -> Budget:
        """Made when first asked for, since counting loads a vocabulary."""
        if self.learnt.budget is None:
            self.learnt.budget = Budget.of(self.agent.model, self.prefix, self.counter)
        return self.learnt.budget


def transcripts_folder(given: Path | str | None) -> Path | None:
    """The folder of the transcripts; it need not be there yet. It stays where it is though a tool moves on.

    Raises:
        UsageError: it is no path, or a file stands there.
    """
    if not isinstance(given, str | Path | None) or given == "":
        raise UsageError(f"transcripts must be the path of a folder, or None, not {shown(given)}")
    if given is not None and Path(given).is_file():
        raise UsageError(f"transcripts must be the path of a folder, not of a file: {shown(str(given))}")
    return None if given is None else Path(given).absolute()


def as_user_message(prompt: object) -> Message:
    """The prompt as a user's message, a copy of what was given.

    Raises:
        UsageError: it is neither text nor a user's message, or it says nothing.
    """
    message = _of_list(prompt) if isinstance(prompt, list | tuple) else prompt
    message = Message.user(message) if isinstance(message, str) else message
    if not isinstance(message, Message) or message.role != "user" or message.tool_calls:
        raise UsageError("the prompt must be text, a list of texts, Images and Files, or a user message")
    parts = message.content if isinstance(message.content, tuple) else ()
    if not message.text.strip() and all(isinstance(part.get("text"), str) for part in parts):
        raise UsageError("the prompt is empty: say what is to be done")
    return copy.deepcopy(message)


def _of_list(prompt: Sequence[object]) -> Message:
    parts: list[Json] = []
    for each in prompt:
        if isinstance(each, Image | File):
            parts += each.parts
        elif isinstance(each, str):
            parts.append({"type": "text", "text": each})
        else:
            raise UsageError(f"a prompt in parts holds texts, Images and Files, not {shown(each)}")
    return Message(role="user", content=tuple(parts))


Prompt: TypeAlias = str | Message | Sequence[str | Image | File]
"""What a user says: a text, a message, or texts with images and files between them."""
