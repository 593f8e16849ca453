"""`sessions list` and `sessions show`: which sessions are stored, and what one says."""

import json
from contextlib import aclosing
from typing import Any

import click

from agentloop.cli.options import STORE, options
from agentloop.cli.sessions.command import HEADING, Opened, as_data, missing_store, row, run_work
from agentloop.cli.sessions.pages import DAMAGED, page_reader, warn
from agentloop.cli.sessions.transfer import export_texts
from agentloop.cli.terminal import StandardOutput, error_console, listing, say
from agentloop.redaction import redacted


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="A JSON list.")
@click.option("--all", "everywhere", is_flag=True, help="Those of all folders, not only of this one.")
@click.option("-n", "most", metavar="N", type=click.IntRange(1), help="The newest N alone.")
@options(STORE)
def list_(as_json: bool, everywhere: bool, most: int | None, **_: Any) -> int:
    """List them, newest last; the JSON list has the newest first."""

    async def work(opened: Opened, output: StandardOutput) -> None:
        settings = opened.settings
        folder = None if everywhere else str(settings.workdir)
        stored = (await opened.store.list(folder=folder, owner=settings.owner))[:most]
        if as_json:
            data = [as_data(info, settings) for info in stored]
            return await output.write(json.dumps(data, indent=2) + "\n")
        if not stored:
            hint = "" if everywhere else " of this folder; --all lists those of all folders"
            missing = missing_store(settings)
            say(error_console(), f"no sessions: {missing}" if missing else f"no sessions{hint}")
        rows = [row(redacted(info, settings.redact)) for info in reversed(stored)]
        return await output.write(listing(HEADING, rows, output))

    return run_work(work)


@click.command()
@click.argument("name", metavar="ID")
@options(DAMAGED, STORE)
def show(name: str, damaged: str, **_: Any) -> int:
    """Show what was said, whole, and where it was compacted."""

    async def work(opened: Opened, output: StandardOutput) -> None:
        info = await opened.session(name)
        await output.write(f"{row(redacted(info, opened.settings.redact))}\n")
        async with aclosing(export_texts(opened, info, "markdown", read=page_reader(damaged, warn))) as texts:
            async for text in texts:
                await output.write(text)

    return run_work(work)
