"""What all runs of a runner share; what a caller gave, checked."""

import contextlib
import copy
import uuid
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentloop._plumbing.checks import shown, text_or_none
from agentloop._plumbing.truncate import head
from agentloop.callbacks import Callbacks
from agentloop.compaction import Compaction, Compactor, ContextKeeper
from agentloop.context import Budget, Context, TokenCounter, counter_for
from agentloop.emitter import CALLBACK_SECONDS, Emitter, Sink, unseen
from agentloop.errors import UsageError
from agentloop.events import MessageRecord, Record
from agentloop.messages import Message
from agentloop.models import AsksWindow
from agentloop.redaction import Redact, checked_redaction
from agentloop.run.agent import Agent
from agentloop.run.limits import Limits
from agentloop.run.state import Run
from agentloop.sessions import Holder, Leases, Rebase, rebase_any, rebase_beside
from agentloop.stores.base import SessionStore

MOST_TITLE_CHARS = 60

_METHODS = [name for name in vars(Callbacks) if not name.startswith("_")]


def title_of(message: Message) -> str:
    """The first words of what is said, on one line of at most 60 characters."""
    title = " ".join(message.text.split())
    if len(title) <= MOST_TITLE_CHARS:
        return title
    return head(title, MOST_TITLE_CHARS - 1).rstrip() + "…"


def check_prompt(budget: Budget, said: MessageRecord | None) -> None:
    """Refuse what can never fit before anything is stored.

    Raises:
        ContextOverflowError: the fixed part, or it together with the prompt, is larger than the window.
    """
    alone = [Record(seq=1, event=said)] if said else []
    budget.check(Context.of(alone))


def instances(callbacks: Iterable[Callbacks]) -> tuple[Callbacks, ...]:
    """The callbacks given: any object with one of their methods is one, and those that it lacks are blank.

    Raises:
        UsageError: they are no list, or one of them is a class, or has none of the methods.
    """
    if isinstance(callbacks, Callbacks) or not isinstance(callbacks, Iterable):
        raise UsageError(f"callbacks must be a list of Callbacks objects, not {shown(callbacks)}")
    given = tuple(callbacks)
    for each in given:
        if isinstance(each, type):
            raise UsageError(f"callbacks takes objects, not classes: give {each.__name__}() instead")
        if not any(hasattr(type(each), method) for method in _METHODS):
            raise UsageError(f"callbacks must be a list of Callbacks objects, with no {shown(each)} in it")
    return given


def folder_of(given: str | None) -> str | None:
    """The folder that new sessions belong to.

    Raises:
        UsageError: it is no text.
    """
    text_or_none("folder", given)
    return given


def transcripts_folder(given: Path | str | None) -> Path | None:
    """The folder of the transcripts; it need not be there yet.

    Raises:
        UsageError: it is no path, or a file stands there.
    """
    if not isinstance(given, str | Path | None) or given == "":
        raise UsageError(f"transcripts must be the path of a folder, or None, not {shown(given)}")
    if given is not None and Path(given).is_file():
        raise UsageError(f"transcripts must be the path of a folder, not of a file: {shown(str(given))}")
    return None if given is None else Path(given)


def as_user_message(prompt: object) -> Message:
    """The prompt as a user's message, a copy of what was given.

    Raises:
        UsageError: it is neither text nor a user's message, or it says nothing.
    """
    message = Message.user(prompt) if isinstance(prompt, str) else prompt
    if not isinstance(message, Message) or message.role != "user" or message.tool_calls:
        raise UsageError("the prompt must be text, or a user message")
    parts = message.content if isinstance(message.content, tuple) else ()
    if not message.text.strip() and all(isinstance(part.get("text"), str) for part in parts):
        raise UsageError("the prompt is empty: say what is to be done")
    return copy.deepcopy(message)


@dataclass(slots=True)
class Learnt:
    """What the runs so far learnt of the server; None before the first of them."""

    budget: Budget | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Who runs, where sessions live and how runs come by them, where files go, who watches.

    What one run learns of the server, the next begins with.
    """

    agent: Agent
    store: SessionStore
    leases: Leases = field(default_factory=Leases)
    callbacks: tuple[Callbacks, ...] = ()
    transcripts: Path | None = None
    folder: str | None = None
    owner: str | None = None
    ttl_seconds: float | None = None
    callback_seconds: float = CALLBACK_SECONDS
    redact: Redact | None = None
    learnt: Learnt = field(default_factory=Learnt)

    @property
    def counter(self) -> TokenCounter:
        """What counts the agent's tokens."""
        return counter_for(self.agent.model.name)

    async def new_run(
        self,
        session_id: str,
        sink: Sink,
        *,
        run_id: str | None = None,
        rebase: Rebase | None = None,
        hold: Holder | None = None,
        deps: Any = None,
        limits: Limits | None = None,
    ) -> Run:
        """A run that has not begun; `sink` takes its events.

        `rebase` says when what it writes still holds though others wrote: by default as `rebase_beside`.
        """
        emitter = self._emitter(session_id, uuid.uuid4().hex if run_id is None else run_id, sink)
        rebase = rebase or rebase_beside(emitter.run_id)
        keeper = await self._keeper(emitter, rebase)
        return Run(
            agent=self.agent,
            keeper=keeper,
            emitter=emitter,
            counter=self.counter,
            rebase=rebase,
            spills=self.transcripts,
            limits=limits or Limits(),
            hold=hold,
            deps=deps,
        )

    @contextlib.asynccontextmanager
    async def beside(self, session_id: str) -> AsyncIterator[ContextKeeper]:
        """Room for looking at a session or compacting it, whoever runs on it."""
        emitter = self._emitter(session_id, uuid.uuid4().hex, unseen)
        with contextlib.closing(emitter.callback_list):
            yield await self._keeper(emitter, rebase_any)

    def _emitter(self, session_id: str, run_id: str, sink: Sink) -> Emitter:
        return Emitter(session_id, run_id, sink, self.callbacks, self.callback_seconds, self.redact)

    async def _keeper(self, emitter: Emitter, rebase: Rebase) -> ContextKeeper:
        await self._ask_windows()
        policy = self.agent.compaction
        compactor = Compactor(
            policy=policy or Compaction(),
            model=self.agent.model,
            transcripts=self.transcripts,
            emitter=emitter,
            rebase=rebase,
        )
        return ContextKeeper(policy=policy, budget=self._first_budget(), compactor=compactor)

    def learn(self, run: Run) -> None:
        """Keep what this run learnt of the server for the next one."""
        self.learnt.budget = self._first_budget().keeping(run.keeper.budget)

    async def _ask_windows(self) -> None:
        """Let models whose window nobody knows ask their servers, before it is first reckoned with."""
        if self.learnt.budget is None:
            for model in self.agent.models:
                if model.window is None and isinstance(model, AsksWindow):
                    await model.ask_window()

    def _first_budget(self) -> Budget:
        """What the next run begins with; made when first asked for, since counting loads a vocabulary."""
        if self.learnt.budget is None:
            agent = self.agent
            self.learnt.budget = Budget.of(agent.model, agent.instructions, agent.schemas, self.counter)
        return self.learnt.budget


def run_config(
    agent: Agent,
    store: SessionStore,
    *,
    callbacks: Iterable[Callbacks],
    transcripts: Path | str | None,
    folder: str | None,
    redact: Redact | None,
) -> RunConfig:
    """The setting of the runs of this agent; what its caller gave is checked.

    Raises:
        UsageError: the agent or a callback is none, `redact` is no function or gives no text, or
            `transcripts` or `folder` is no path.
    """
    if not isinstance(agent, Agent):
        raise UsageError(f"agent must be an Agent(model, …), not {shown(agent)}")
    return RunConfig(
        agent=agent,
        store=store,
        callbacks=instances(callbacks),
        transcripts=transcripts_folder(transcripts),
        folder=folder_of(folder),
        redact=None if redact is None else checked_redaction(redact),
    )
