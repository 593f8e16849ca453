"""The MCP servers of a call: those that `--mcp` names, and those of the folder's `.mcp.json` after a yes."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from agentloop.cli.settings import Settings
from agentloop.cli.terminal import say, show, warn
from agentloop.errors import AgentLoopError
from agentloop.redaction import redact_error, redacted
from agentloop.run import Agent

FILE = ".mcp.json"


def found_unnamed(settings: Settings) -> Path | None:
    """The `.mcp.json` of the folder, where there is one that the call does not name."""
    file = settings.workdir / FILE
    named = {path.resolve() for path in settings.mcp}
    return file if file.is_file() and file.resolve() not in named else None


def unused_notice(settings: Settings) -> str | None:
    """That the servers of such a file are not used; None where there is none."""
    file = found_unnamed(settings)
    return f"the MCP servers of {file} are not used: --mcp {FILE} uses them" if file else None


def ask_for_found(settings: Settings, console: Console) -> Settings:
    """The settings with the servers of such a file, where who sits at the terminal says yes to them."""
    if (file := found_unnamed(settings)) is None:
        return settings
    say(console, f"{file} names MCP servers, which would be started with your rights:")
    for name, entry in import_module("agentloop.integrations.mcp_config").entries_in(file).items():
        show(console, f"  {name}: {json.dumps(entry, ensure_ascii=False)}")
    if click.confirm("Use them?", default=False, err=True):
        return replace(settings, mcp=(*settings.mcp, file))
    return settings


@asynccontextmanager
async def with_mcp(agent: Agent[Any], settings: Settings, console: Console) -> AsyncIterator[Agent[Any]]:
    """The agent with the tools of the servers that the call names, which end with the block.

    Raises:
        UsageError: a file is none, or a server does not start.
    """
    if not settings.mcp:
        yield agent
        return

    def tell(line: str) -> None:
        warn(console, redacted(line, settings.redact))

    mcp_tools = import_module("agentloop.integrations.mcp").mcp_tools
    try:
        async with mcp_tools(*settings.mcp, taken=agent.registry.names, tell=tell) as tools:
            yield replace(agent, tools=(*agent.tools, tools))
    except AgentLoopError as error:
        # It may repeat what a server printed before it ended.
        redact_error(error, settings.redact)
        raise
