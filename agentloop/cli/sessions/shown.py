"""`sessions list` and `sessions show`."""

import json
from contextlib import aclosing
from typing import Any

import click

from agentloop.cli.console import error_console, say
from agentloop.cli.lines import listing
from agentloop.cli.options import STORE, options
from agentloop.cli.output import StandardOutput
from agentloop.cli.sessions.reading import DAMAGED, pages_with, warn
from agentloop.cli.sessions.texts import texts_of
from agentloop.cli.sessions.work import HEADING, Opened, as_data, done, named, no_store, row
from agentloop.redaction import redacted


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="A JSON list.")
@click.option("--all", "everywhere", is_flag=True, help="Those of all folders, not only of this one.")
@options(STORE)
def list_(as_json: bool, everywhere: bool, **_: Any) -> int:
    """List them, newest first."""

    async def work(opened: Opened, output: StandardOutput) -> None:
        settings = opened.settings
        folder = None if everywhere else str(settings.workdir)
        stored = await opened.store.list(folder=folder, owner=settings.owner)
        if as_json:
            data = [as_data(info, settings) for info in stored]
            return await output.write(json.dumps(data, indent=2) + "\n")
        if not stored:
            hint = "" if everywhere else " of this folder; --all lists those of all folders"
            missing = no_store(settings)
            say(error_console(), f"no sessions: {missing}" if missing else f"no sessions{hint}")
        rows = [row(redacted(info, settings.redact)) for info in stored]
        return await output.write(listing(HEADING, rows, output))

    return done(work)


@click.command()
@click.argument("name", metavar="ID")
@options(DAMAGED, STORE)
def show(name: str, damaged: str, **_: Any) -> int:
    """Show what was said, whole, and where it was compacted."""

    async def work(opened: Opened, output: StandardOutput) -> None:
        info = await named(opened, name)
        await output.write(f"{row(redacted(info, opened.settings.redact))}\n")
        async with aclosing(texts_of(opened, info, "markdown", read=pages_with(damaged, warn))) as texts:
            async for text in texts:
                await output.write(text)

    return done(work)
