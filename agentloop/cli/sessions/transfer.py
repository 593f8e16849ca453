"""`sessions export` and `sessions import`: a session for people and other programs, and back in."""

import re
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias, get_args

import click

from agentloop._plumbing.files import read_path, text_of, utf8_text
from agentloop._plumbing.truncate import few
from agentloop.bounds import MOST_IMPORT_BYTES
from agentloop.cli import input
from agentloop.cli.files import whole_file
from agentloop.cli.options import STORE, TTL, Option, WholeNumber, options
from agentloop.cli.process import leave_at_once, on_signals
from agentloop.cli.sessions.command import (
    DAMAGED,
    Opened,
    on_store,
    run_work,
    stored_sessions,
    warn_of,
)
from agentloop.cli.settings import settings_of_call
from agentloop.cli.terminal import error_console, say
from agentloop.errors import UsageError
from agentloop.events import (
    KINDS,
    MAIN,
    Event,
    EventFilter,
    MessageRecord,
    Record,
    RunStartRecord,
)
from agentloop.sessions import ExportFormat, new_session_id, page_reader, say_nothing, to_blocks
from agentloop.stores.base import check_trunk

SELECTION: Sequence[Option[Any]] = (
    click.option(
        "--branch", metavar="NAME", help="What that branch and those below it said; main: all of no branch."
    ),
    click.option(
        "--kind",
        "kinds",
        metavar="KIND",
        multiple=True,
        type=click.Choice(KINDS),
        help="Records of this kind, e.g. message_added or compacted. Repeatable.",
    ),
    click.option("--run", "run_id", metavar="RUN_ID", help="The messages and the edges of this run."),
    click.option("--range", "positions", metavar="FIRST-LAST", help="Positions: 12-40, 12-, -40 or 7."),
)
Read: TypeAlias = Callable[[EventFilter | None], AsyncGenerator[Sequence[Record]]]
"""Reads a session page by page: the records of a range, or all."""
_RANGE = re.compile(r"([0-9]{1,15})(-?)|([0-9]{0,15})-([0-9]{1,15})")
FORMATS = get_args(ExportFormat)
_LONG_CHARS = 5_000_000
"""A file of so many characters takes some seconds to read."""


@click.command()
@click.argument("name", metavar="ID")
@click.option("--format", "shape", type=click.Choice(FORMATS), default="openai", show_default=True)
@click.option("-o", "--output", "path", metavar="FILE", help="Write it there instead of standard output.")
@options(SELECTION, DAMAGED, STORE)
@on_store
async def export(
    opened: Opened, name: str, shape: ExportFormat, path: str | None, damaged: str, **selection: Any
) -> None:
    """Write a session out.

    As chat-completions messages, its events, or text to read. Of what is left of it by --branch, --kind,
    --run and --range together, or of what is good by --damaged skip; an events export then holds each
    record's position in the log, and comes back in where all that its records point at is in it.
    """
    only = filter_of(selection, shape) or (EventFilter() if damaged == "skip" else None)
    if path == "":
        raise UsageError("--output is empty: name a file, or leave it out for standard output")
    info, wanted = await opened.session(name), only
    if only and only.branch and (logs := await opened.branches(info, only.branch)):
        if len(logs) > 1:
            ids = few([log.id for log in logs])
            raise UsageError(f"--branch: {only.branch!r} may be any of {ids}: export one by its id")
        info, wanted = logs[0], replace(only, branch=None)
    if wanted:
        look = partial(page_reader(damaged, say_nothing), opened.store, info)
        await check_there(wanted, look, shape, logs=await opened.branch_names(info))
    read = page_reader(damaged, warn_of)
    async with aclosing(opened.sessions.texts(info, shape, wanted, read=read, tell=warn_of)) as texts:
        if path is None or path == "-":
            async for text in texts:
                await opened.output.write(text)
        else:
            with whole_file(read_path(path)) as write:
                async for text in texts:
                    write(text)


def filter_of(selection: Mapping[str, Any], shape: str) -> EventFilter | None:
    """The filter that these options ask for; None where none of them is given.

    Raises:
        UsageError: an option is empty or no range, or an export of that shape can't hold what is asked for.
    """
    branch, run_id, kinds = selection["branch"], selection["run_id"], selection["kinds"]
    for name, value in (("--branch", branch), ("--run", run_id)):
        if value is not None and not value.strip():
            raise UsageError(f"{name} is empty: give it a value or leave it out")
    if shape == "openai" and kinds and "message_added" not in kinds:
        raise UsageError(
            "--format openai holds messages alone: take --kind message_added, or --format events"
        )
    first, last = _range(selection["positions"])
    only = EventFilter(branch=branch, kinds=kinds or None, run_id=run_id, first=first, last=last)
    if only == EventFilter():
        return None
    return only if shape != "openai" else replace(only, branch=branch or MAIN, kinds=("message_added",))


def _range(text: str | None) -> tuple[int | None, int | None]:
    if text is None:
        return None, None
    match = _RANGE.fullmatch(text.strip())
    alone, dash, first, last = match.groups() if match else ("0", "", "", "")
    low = int(alone or first or 1)
    high = int(last) if last else None if dash else low
    if low < 1 or (high is not None and high < low):
        raise UsageError(f"--range must be like 12-40, 12-, -40 or 7, positions from 1 on, not {text[:40]!r}")
    return low, high


async def check_there(only: EventFilter, read: Read, shape: str, *, logs: Sequence[str] = ()) -> bool:
    """Whether an export in that shape has anything of what is asked for; where not, says what there is.

    `logs` are branches in logs of their own. Outside of the range, records are looked at only where nothing
    in it is taken.

    Raises:
        UsageError: the session has no such branch or run; with those that it has.
    """
    async with aclosing(read(only)) as pages:
        async for record in _each(pages):
            if is_shown(record, only, shape):
                return True
    branches, runs = dict.fromkeys((MAIN, *logs)), dict[str, None]()
    async with aclosing(read(None)) as pages:
        async for record in _each(pages):
            event = record.event
            if isinstance(event, MessageRecord) and event.branch:
                branches[event.branch] = None
            if isinstance(event, MessageRecord | RunStartRecord) and event.run_id:
                runs[event.run_id] = None
    for name, wanted, known in (("--branch", only.branch, branches), ("--run", only.run_id, runs)):
        if wanted not in (None, MAIN, *known):
            listed = f"it has {few(list(map(ascii, reversed(known))))}" if known else "it has none"
            raise UsageError(f"{name}: the session has no {str(wanted)[:60]!r}; {listed}")
    texts = "" if shape == "events" else ", or it holds no text: --json or --format events shows that"
    say(error_console(), f"nothing in the session is all of what was asked for{texts}")
    return False


def is_shown(record: Record, only: EventFilter, shape: str) -> bool:
    """Whether an export in that shape has something to show of a record that the filter takes."""
    return only(record) and (shape != "markdown" or any(to_blocks((record,))))


async def _each(pages: AsyncIterable[Iterable[Record]]) -> AsyncGenerator[Record]:
    async for page in pages:
        for record in page:
            yield record


@click.command()
@click.argument("name", metavar="ID")
@click.option("--at", metavar="N", type=WholeNumber(), help="Up to this position of its log. [all of it]")
@click.option("--session", "new_id", metavar="ID", help="The id of the new one. [default: a new one]")
@options(STORE)
@on_store
async def fork(opened: Opened, name: str, at: int | None, new_id: str | None) -> None:
    """Begin another session with the log of one.

    Both go on by themselves from there. `sessions show` names the positions.
    """
    info = await opened.session(name)
    await opened.output.write(f"{await opened.sessions.fork(info.id, at=at, new_id=new_id)}\n")


@click.command("import")
@click.argument("path", metavar="FILE")
@click.option("--session", "new_id", metavar="ID", help="The id it gets. [default: a new one]")
@options(TTL, STORE)
def import_(path: str, new_id: str | None, **_: Any) -> int:
    """Read a session in.

    From messages, as a JSON list or JSON Lines, or from events, as JSON Lines; - is standard input. It
    becomes a session of this folder, and of the owner and with the time to live that are given; else those
    that the events name stay.
    """
    session_id = new_session_id() if new_id is None else check_trunk(new_id)
    # Read here and not in the event loop, where a silent pipe or a long text would keep a signal waiting.
    if path == "-":
        text = utf8_text(input.read_bytes(), "standard input")
    else:
        text = text_of(read_path(path), most_bytes=MOST_IMPORT_BYTES)
    with _reading_progress(len(text)) as tell:
        events = stored_sessions(settings_of_call()).events_of(text, tell)
    if empty := [at for at, event in enumerate(events, 1) if _says_nothing(event)]:
        warn_of(f"without any content: {few([f'position {at}' for at in empty])}")

    async def work(opened: Opened) -> None:
        # Nothing could be lost yet: what is not committed is nowhere.
        with on_signals(leave_at_once):
            await opened.sessions.begin(session_id, events)
        await opened.output.write(f"{session_id}\n")

    return run_work(work)


def _says_nothing(event: Event) -> bool:
    if not isinstance(event, MessageRecord):
        return False
    message = event.message
    is_result = message.role in ("tool", "function")
    return not (is_result or message.content or message.tool_calls or message.extra)


@contextmanager
def _reading_progress(chars: int) -> Iterator[Callable[[int], object]]:
    """What tells how many records are read; who waits at a terminal for long sees it."""
    console = error_console()
    if chars < _LONG_CHARS or not console.is_terminal:
        yield lambda records: None
        return
    with console.status("reading") as line:
        yield lambda records: line.update(f"reading: {records:,} records")
