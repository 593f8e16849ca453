"""Putting together what a call runs: the model, its tools, its instructions and the runner."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from agentloop.callbacks import Callbacks
from agentloop.cli.console import say
from agentloop.cli.instructions import default_instructions
from agentloop.cli.loading import load_callbacks, load_tools
from agentloop.cli.process import before_leaving
from agentloop.cli.settings import OFFLINE, Settings
from agentloop.compaction import Compaction
from agentloop.context import DEFAULT_WINDOW
from agentloop.errors import UsageError
from agentloop.models import ChatModel
from agentloop.providers.offline import OfflineModel
from agentloop.run import Agent, Limits, check_priced
from agentloop.runner import Runner
from agentloop.sessions import Leases, told
from agentloop.stores import open_store
from agentloop.stores.base import Lease
from agentloop.triggers import WindowFraction
from agentloop.workspace import workspace_tools

MEMORY = "memory:"
_MODELS = {"chat": ("openai_chat", "OpenAIChat"), "responses": ("openai_responses", "OpenAIResponses")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What runs, and what the user should know about how it was chosen."""

    agent: Agent
    callbacks: tuple[Callbacks, ...]
    notices: tuple[str, ...]


def build(settings: Settings) -> Built:
    """The agent of a call.

    Raises:
        UsageError: a tool, a callback or the model cannot be had as asked for.
    """
    model = model_named(settings.model, settings)
    compaction = _compaction(settings)
    instructions, cut = _instructions(settings, settings.window or model.window)
    agent = Agent(
        model,
        tools=[*workspace_tools(settings.workdir, allow=settings.allow), *load_tools(settings.tools)],
        instructions=instructions,
        compaction=compaction,
        max_steps=settings.max_steps,
    )
    _check_cost_limit(settings.limits, agent)
    return Built(
        agent=agent,
        callbacks=tuple(load_callbacks(settings.callbacks)),
        notices=tuple(notice for notice in (cut, _fallback_notice(settings)) if notice),
    )


def model_named(name: str, settings: Settings) -> ChatModel:
    """The offline model, or the one of that name on the server of the settings."""
    if name == OFFLINE:
        return OfflineModel(window=settings.window)
    if settings.base_url is None and settings.api_key is None:
        raise UsageError(
            f"model {name!r} needs a server: set OPENAI_API_KEY or give --base-url; -m offline needs none"
        )
    # The client loads only here: it takes most of the start-up time.
    server = import_module("agentloop.providers.openai.client")
    server.ServerChoice(model=name, base_url=settings.base_url, api_key=settings.api_key).server()
    module, kind = _MODELS[settings.api]
    model: ChatModel = getattr(import_module(f"agentloop.{module}"), kind)(
        name,
        base_url=settings.base_url,
        api_key=settings.api_key,
        window=settings.window,
        stream=settings.streaming,
    )
    return model


def window_notice(model: ChatModel) -> str | None:
    """That nobody knows how much the model takes, once its server had its say; else None."""
    if model.window is not None or model.name == OFFLINE:
        return None
    return (
        f"the window of {model.name!r} is not known: {DEFAULT_WINDOW // 1000}k is assumed until the "
        "server says otherwise; --window sets it"
    )


def runner_for(built: Built, settings: Settings, console: Console) -> Runner:
    """A runner for the settings' store, to be closed at the end; a run that has to wait says so."""

    def waits(lease: Lease) -> None:
        say(console, f"waiting for the session: {told(lease)}", style="yellow")

    return Runner(
        built.agent,
        store=open_store(settings.store),
        callbacks=built.callbacks,
        transcripts=settings.transcripts,
        folder=str(settings.workdir),
        redact=settings.redact,
        when_busy=Leases(when_busy=settings.when_busy, waits=waits),
        owner=settings.owner,
        ttl_seconds=settings.ttl_seconds,
    )


@contextmanager
def stored_nowhere(settings: Settings, *, transcripts_given: bool) -> Iterator[Settings]:
    """The settings of a call that leaves nothing behind: transcripts go at its end, unless asked for."""
    folder = TemporaryDirectory(prefix="agentloop-")
    with folder, before_leaving(folder.cleanup):
        transcripts = settings.transcripts if transcripts_given else Path(folder.name)
        yield replace(settings, store=MEMORY, transcripts=transcripts)


def _compaction(settings: Settings) -> Compaction | None:
    if settings.compact_at is None:
        return None
    writer = model_named(settings.summary_model, settings) if settings.summary_model else None
    return Compaction(trigger=WindowFraction(settings.compact_at), model=writer)


def _instructions(settings: Settings, window: int | None) -> tuple[str, str | None]:
    if settings.system is not None:
        return settings.system, None
    return default_instructions(settings.workdir, window=window)


def _fallback_notice(settings: Settings) -> str | None:
    if not settings.model_is_fallback:
        return None
    return (
        "no OPENAI_API_KEY and no base URL: the offline model answers, a rule-based stand-in that only "
        "reads files and says what each one does"
    )


def _check_cost_limit(limits: Limits, agent: Agent) -> None:
    try:
        check_priced(limits, *agent.models)
    except UsageError as error:
        what = str(error).partition("; ")[0]  # what follows is advice for Python
        raise UsageError(f"--max-cost: {what}: limit --max-tokens instead") from error
