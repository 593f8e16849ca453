"""`doctor`: what works here, and what does not."""

import os
from collections.abc import AsyncGenerator
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

import click

from agentloop._plumbing.files import read_path
from agentloop._plumbing.truncate import few
from agentloop.cli.build import make_model
from agentloop.cli.models import names_at
from agentloop.cli.options import MODEL, OFFLINE, STORE, flags_of, options
from agentloop.cli.sessions.command import missing_store
from agentloop.cli.settings import Settings, sound_settings
from agentloop.cli.terminal import StandardOutput, columns, counted, run_to_end
from agentloop.errors import AgentLoopError
from agentloop.extras import installing
from agentloop.messages import Usage
from agentloop.models import AsksWindow
from agentloop.redaction import redacted, without_credentials
from agentloop.run import Agent
from agentloop.runner import Runner
from agentloop.stores import open_store
from agentloop.stream import TextDelta, ToolEnded
from agentloop.tools import tool

_Finding: TypeAlias = tuple[str, str, str]
"""A word (`ok`, `fault`, `note`), what it is of, and what there is to say."""

_QUESTION = "Call the tool agentloop_check once, then answer with its result in one short sentence."
_EXTRAS = {
    "postgres": ("psycopg", "sessions in PostgreSQL"),
    "durable": ("dbos", "durable runs"),
    "mcp": ("mcp", "tools of MCP servers"),
    "otel": ("opentelemetry", "traces"),
    "pydantic-ai": ("pydantic_ai", "our compaction in pydantic-ai"),
    "openai-agents": ("agents", "our compaction in openai-agents"),
    "langchain": ("langchain", "our compaction in langchain"),
    "strands": ("strands", "our compaction in strands"),
}
"""What else can be installed: its module, and what it is for."""


@click.command()
@options(MODEL, STORE)
def doctor(**_: object) -> int:
    """Say what works here and what does not.

    The model is asked one short question, which a server may charge for. Status 1 if anything is wrong.
    """
    output, settings = StandardOutput.claimed(), sound_settings(flags_of(click.get_current_context()))

    async def whole() -> int:
        faults = 0
        async for word, what, detail in _findings(settings):
            faults += word == "fault"
            await output.write(columns(word, what, redacted(detail, settings.redact)))
        return int(faults > 0)

    return run_to_end(whole())


async def _findings(settings: Settings) -> AsyncGenerator[_Finding]:
    for fault in settings.faults:
        yield "fault", "settings", str(fault)
    if settings.model == OFFLINE:
        why = "no OPENAI_API_KEY and no base URL; " if settings.model_is_fallback else ""
        yield "note", "server", f"{why}the offline model needs none: a stand-in that reads files by rules"
    else:
        async for finding in _of_model(settings):
            yield finding
    yield await _of_store(settings)
    folder = settings.transcripts.absolute()
    if _can_be_made(folder):
        yield "ok", "transcripts", str(folder)
    else:
        yield "fault", "transcripts", f"{folder} cannot be written to: --transcripts names another folder"
    for extra, (module, use) in _EXTRAS.items():
        has = find_spec(module) is not None
        yield "ok" if has else "note", extra, use if has else f"optional, for {use}: {installing(extra)}"


async def _of_store(settings: Settings) -> _Finding:
    try:
        store = open_store(settings.store)
        try:
            count = len(await store.list(owner=settings.owner))
        finally:
            await store.close()
    except AgentLoopError as error:
        return "fault", "store", str(error)
    missing = missing_store(settings)
    if missing and not _can_be_made(read_path(settings.store.removeprefix("sqlite:///"))):
        return "fault", "store", f"{settings.store} cannot be made: --store names another"
    return "ok", "store", missing or f"{without_credentials(settings.store)}: {counted(count, 'session')}"


async def _of_model(settings: Settings) -> AsyncGenerator[_Finding]:
    place = without_credentials(settings.base_url or "OpenAI")
    try:
        names = await names_at(settings)
        if names is None:
            yield "fault", "server", f"{place} does not answer: check the address, and that it runs"
            return
        yield "ok", "server", f"{place} answers" + (f"; it has {few(names)}" if names else "")
        if settings.asks_for_model and names and len(names) > 1:
            yield "fault", "model", "no model is named: name one by -m"
            return
        name = names[0] if settings.asks_for_model and names else settings.model
        is_listed = not names or name in names
        yield "ok" if is_listed else "note", "model", name if is_listed else f"{name} is not in that list"
        model = make_model(name, settings)
        window = await model.ask_window() if isinstance(model, AsksWindow) else model.window
        known = f"{window or model.window} tokens" if window or model.window else ""
        yield "ok" if known else "note", "window", known or "not known: --window sets it"
        async for finding in _of_answer(Runner(Agent(model, tools=[agentloop_check], max_steps=3))):
            yield finding
    except AgentLoopError as error:
        yield "fault", "answer", str(error)


@tool
def agentloop_check() -> str:
    """Say the word of the day."""
    return "whale"


async def _of_answer(runner: Runner) -> AsyncGenerator[_Finding]:
    pieces, called, usage = 0, False, Usage()
    async with runner:
        async for event in runner.stream(_QUESTION):
            pieces += isinstance(event, TextDelta)
            called = called or isinstance(event, ToolEnded)
            usage = getattr(event, "usage", None) or usage
    streams = pieces > 1
    yield "ok" if streams else "note", "streaming", "yes" if streams else "the answer came in one piece"
    yield "ok" if called else "note", "tools", "yes" if called else "the model did not call the tool"
    said = f"yes: {usage.input_tokens} tokens in, {usage.output_tokens} out"
    none = "not reported: tokens are counted here"
    yield "ok" if usage.input_tokens else "note", "usage", said if usage.input_tokens else none


def _can_be_made(path: Path) -> bool:
    """Whether it is a folder that can be written to, or may be made in one."""
    path = path.absolute()
    there = next(each for each in (path, *path.parents) if os.path.lexists(each))
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)
