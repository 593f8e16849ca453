"""`sessions list` and `sessions show`: which sessions are stored, and what one says."""

import json
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any

import click

from agentloop._plumbing.truncate import few
from agentloop.cli.options import STORE, WholeNumber, options
from agentloop.cli.sessions.command import (
    DAMAGED,
    HEADING,
    Opened,
    as_data,
    missing_store,
    row,
    run_work,
    warn_of,
)
from agentloop.cli.sessions.transfer import SELECTION, Read, check_there, filter_of, is_shown
from agentloop.cli.terminal import (
    StandardOutput,
    error_console,
    escaped,
    listing,
    printable,
    say,
)
from agentloop.events import EventFilter
from agentloop.redaction import redacted
from agentloop.sessions import PAGE_RECORDS, ExportFormat, in_sight, page_reader, say_nothing
from agentloop.stores import SessionInfo


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="A JSON list.")
@click.option("--all", "everywhere", is_flag=True, help="Those of all folders, not only of this one.")
@click.option("-n", "most", metavar="N", type=WholeNumber(), help="The newest N alone.")
@options(STORE)
def list_(as_json: bool, everywhere: bool, most: int | None, **_: Any) -> int:
    """List those of this folder, newest last.

    The JSON list has the newest first.
    """

    async def work(opened: Opened, output: StandardOutput) -> None:
        settings = opened.settings
        folder = None if everywhere else str(settings.workdir)
        stored = (await opened.sessions.list(folder=folder))[:most]
        if as_json:
            data = list(map(as_data, stored))
            return await output.write(json.dumps(data, indent=2) + "\n")
        if not stored:
            hint = "" if everywhere else " of this folder; --all lists those of all folders"
            missing = missing_store(settings)
            say(error_console(), f"no sessions: {missing}" if missing else f"no sessions{hint}")
        rows = list(map(row, reversed(stored)))
        return await output.write(listing(HEADING, rows, output))

    return run_work(work)


@click.command()
@click.argument("name", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="A JSON list of the records.")
@click.option("--tail", metavar="N", type=WholeNumber(), help="The newest N of what is otherwise shown.")
@click.option("--grep", "regex", metavar="REGEX", help="What matches; (?i) in front ignores case.")
@click.option("--archived/--visible", default=None, help="What the model sees no more, or what it sees.")
@click.option("--synthetic/--real", default=None, help="Summaries and notes alone, or messages alone.")
@options(SELECTION, DAMAGED, STORE)
def show(
    name: str, as_json: bool, tail: int | None, damaged: str, archived: bool | None, **selection: Any
) -> int:
    """Show what was said and what was compacted, or a part of it.

    Each message stands whole, also one that was taken back.

    With --branch the logs of the session's sub-agents of that name, one after the other.
    """
    shape: ExportFormat = "events" if as_json else "markdown"
    asked = filter_of(selection, shape) or EventFilter()
    asked = replace(asked, regex=selection["regex"], synthetic=selection["synthetic"])

    async def write(opened: Opened, info: SessionInfo, of_it: EventFilter, output: StandardOutput) -> None:
        read, look = page_reader(damaged, warn_of), page_reader(damaged, say_nothing)
        if archived is not None:
            read, look = in_sight(read, archived), in_sight(look, archived)
        looked = partial(look, opened.store, info)
        if archived is not None or of_it != EventFilter():
            logs = await opened.branch_names(info)
            if not await check_there(of_it, looked, shape, archived=archived, logs=logs):
                return
        if not as_json:
            await output.write(f"{row(redacted(info, opened.settings.redact))}\n")
        if tail:
            of_it = await _newest(of_it, looked, tail, info.length, shape)
        only_these = None if of_it == EventFilter() else of_it
        shown = opened.sessions.texts(info, shape, only_these, read=read, tell=warn_of)
        async with aclosing(shown) as texts:
            async for text in texts:
                lines = map(escaped, text.splitlines())
                await (write_items(lines, output) if as_json else output.write(printable(text)))

    has_items = False

    async def write_items(lines: Iterable[str], output: StandardOutput) -> None:
        nonlocal has_items
        for line in lines:
            await output.write(f",\n{line}" if has_items else f"[\n{line}")
            has_items = True

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
            await output.write("\n]\n" if has_items else "[]\n")

    return run_work(work)


async def _newest(only: EventFilter, read: Read, most: int, length: int, shape: str) -> EventFilter:
    """The filter for the last records alone that are shown of what it takes; far older ones are not read."""
    low, end = only.first or 1, min(only.last or length, length)
    span = max(most, PAGE_RECORDS)
    while True:
        first, places = max(low, end - span + 1), list[int]()
        async with aclosing(read(replace(only, first=first, last=end))) as pages:
            async for page in pages:
                places += (record.seq for record in page if is_shown(record, only, shape))
        if len(places) >= most or first == low:
            return replace(only, first=(places[-most:] or [first])[0], last=end)
        span *= 4
