"""`sessions list` and `sessions show`: which sessions are stored, and what one says."""

import json
from contextlib import aclosing
from dataclasses import replace
from itertools import chain, repeat
from typing import Any

import click

from agentloop.cli.options import STORE, WholeNumber, options
from agentloop.cli.sessions.command import HEADING, Opened, as_data, missing_store, row, run_work
from agentloop.cli.sessions.pages import DAMAGED, in_sight, page_reader, warn
from agentloop.cli.sessions.transfer import SELECTION, export_texts, filter_of
from agentloop.cli.terminal import StandardOutput, error_console, few, listing, say
from agentloop.errors import UsageError
from agentloop.events import EventFilter
from agentloop.redaction import redacted
from agentloop.stores import SessionInfo


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="A JSON list.")
@click.option("--all", "everywhere", is_flag=True, help="Those of all folders, not only of this one.")
@click.option("-n", "most", metavar="N", type=WholeNumber(), help="The newest N alone.")
@options(STORE)
def list_(as_json: bool, everywhere: bool, most: int | None, **_: Any) -> int:
    """List those of this folder, newest last; the JSON list has the newest first."""

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
@click.option("--json", "as_json", is_flag=True, help="A JSON list of the records.")
@click.option("--tail", metavar="N", type=WholeNumber(), help="Of the newest N records alone.")
@click.option("--grep", "regex", metavar="REGEX", help="What matches; (?i) in front ignores case.")
@click.option("--archived/--visible", default=None, help="What the model sees no more, or what it sees.")
@click.option("--synthetic/--real", default=None, help="Summaries and notes alone, or messages alone.")
@options(SELECTION, DAMAGED, STORE)
def show(
    name: str, as_json: bool, tail: int | None, damaged: str, archived: bool | None, **selection: Any
) -> int:
    """Show what was said, whole, and what was compacted or taken back; or what of it is asked for.

    With --branch the logs of the session's sub-agents of that name, one after the other.
    """
    shape = "events" if as_json else "markdown"
    asked = filter_of(selection, shape) or EventFilter()
    asked = replace(asked, regex=selection["regex"], synthetic=selection["synthetic"])
    if tail and (asked.first or asked.last):
        raise UsageError("--tail and --range: give one of them")

    async def write(opened: Opened, info: SessionInfo, of_it: EventFilter, output: StandardOutput) -> None:
        if not as_json:
            await output.write(f"{row(redacted(info, opened.settings.redact))}\n")
        read = page_reader(damaged, warn)
        if archived is not None:
            read = in_sight(read, archived)
        only = replace(of_it, first=max(1, info.length - tail + 1)) if tail else of_it
        only_these = None if only == EventFilter() else only
        async with aclosing(export_texts(opened, info, shape, only_these, read=read)) as texts:
            async for text in texts:
                for piece in text.splitlines() if as_json else (text,):
                    await output.write(f"{between()}{piece}")

    marks = chain(["[\n"], repeat(",\n"))

    def between() -> str:
        return next(marks) if as_json else ""

    async def work(opened: Opened, output: StandardOutput) -> None:
        info = await opened.session(name)
        logs = await opened.branches(info, asked.branch)
        if asked.branch is not None and logs:
            for log in logs:
                await write(opened, log, replace(asked, branch=None), output)
        else:
            await write(opened, info, asked, output)
            if logs and not as_json:
                say(error_console(), f"its sub-agents: {few([log.id for log in logs])}; --branch shows them")
        if as_json:
            await output.write("[]\n" if between() == "[\n" else "\n]\n")

    return run_work(work)
