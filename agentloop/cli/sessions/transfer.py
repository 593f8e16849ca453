"""`sessions export` and `sessions import`: a session for people and other programs, and back in."""

import json
import os
import re
import stat
from collections import Counter
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
from pathlib import Path
from textwrap import indent
from typing import Any, TypeAlias

import click

from agentloop.bounds import MOST_IMPORT_BYTES
from agentloop.cli import input, settings
from agentloop.cli.options import STORE, TTL, Option, options
from agentloop.cli.output_file import whole_file
from agentloop.cli.process import leave_at_once, on_signals
from agentloop.cli.sessions.command import Opened, run_work
from agentloop.cli.sessions.pages import (
    DAMAGED,
    PAGE_RECORDS,
    Pages,
    drop_dangling,
    page_reader,
    pages,
    say_nothing,
    warn,
)
from agentloop.cli.settings import Settings, settings_of_call
from agentloop.cli.terminal import StandardOutput, error_console, few, say
from agentloop.context import count_message, counter_for
from agentloop.errors import ConflictError, UsageError
from agentloop.events import (
    KINDS,
    MAIN,
    Cleared,
    ClearedItem,
    Compacted,
    Described,
    Event,
    EventFilter,
    MessageRecord,
    Record,
    RunStartRecord,
    kind_name,
    select,
)
from agentloop.messages import Message
from agentloop.redaction import Redact, redacted
from agentloop.run import title_of
from agentloop.sessions import export as exports
from agentloop.sessions import heading, importing, new_session_id, to_blocks
from agentloop.stores import SessionInfo
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
FORMATS = ("openai", "events", "markdown")
_PIECE_BYTES = 1_000_000
_LONG_CHARS = 5_000_000
"""A file of so many characters takes some seconds to read."""


@click.command()
@click.argument("name", metavar="ID")
@click.option("--format", "shape", type=click.Choice(FORMATS), default="openai", show_default=True)
@click.option("-o", "--output", "path", metavar="FILE", help="Write it there instead of standard output.")
@options(SELECTION, DAMAGED, STORE)
def export(name: str, shape: str, path: str | None, damaged: str, **selection: Any) -> int:
    """Write a session out.

    As chat-completions messages, its events, or text to read. Of what is left of it by --branch, --kind,
    --run and --range together, or of what is good by --damaged skip; an events export then holds each
    record's position in the log, and comes back in where all that its records point at is in it.
    """
    only = filter_of(selection, shape) or (EventFilter() if damaged == "skip" else None)
    if path == "":
        raise UsageError("--output is empty: name a file, or leave it out for standard output")

    async def work(opened: Opened, output: StandardOutput) -> None:
        info, wanted = await opened.session(name), only
        if only and only.branch and (logs := await opened.branches(info, only.branch)):
            info, wanted = _the_one(logs, only.branch), replace(only, branch=None)
        if wanted:
            read = partial(page_reader(damaged, say_nothing), opened.store, info)
            await check_there(wanted, read, shape, logs=await opened.branch_names(info))
        async with aclosing(
            export_texts(opened, info, shape, wanted, read=page_reader(damaged, warn))
        ) as texts:
            if path is None or path == "-":
                async for text in texts:
                    await output.write(text)
            else:
                with whole_file(settings.read_path(path)) as file:
                    async for text in texts:
                        file.write(text)

    return run_work(work)


def _the_one(logs: Sequence[SessionInfo], branch: str) -> SessionInfo:
    """The log that is meant by the name of a branch.

    Raises:
        UsageError: there are several.
    """
    if len(logs) == 1:
        return logs[0]
    raise UsageError(
        f"--branch: {branch!r} may be any of {few([log.id for log in logs])}: export one by its id"
    )


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
    if match is None:
        raise _no_range(text)
    alone, dash, first, last = match.groups()
    low = int(alone or first or 1)
    high = int(last) if last else None if dash else low
    if low < 1 or (high is not None and high < low):
        raise _no_range(text)
    return low, high


def _no_range(text: str) -> UsageError:
    return UsageError(f"--range must be like 12-40, 12-, -40 or 7, positions from 1 on, not {text[:40]!r}")


async def check_there(
    only: EventFilter, read: Read, shape: str, *, archived: bool | None = None, logs: Sequence[str] = ()
) -> bool:
    """Whether an export in that shape has anything of what is asked for; where not, says what finds nothing.

    `archived` is what `read` was asked for, `logs` are branches in logs of their own. Outside of the range,
    records are looked at only where nothing in it is taken.

    Raises:
        UsageError: the session has no such branch or run; with those that it has.
    """
    taken = False
    async with aclosing(read(only)) as pages:
        async for record in _each(pages):
            taken = taken or only(record)
            if is_shown(record, only, shape):
                return True
    if taken:
        say(error_console(), "what was asked for holds no text: --json or --format events shows it")
        return False
    alone, kinds, last = dict(_alone(only)), Counter[str](), 0
    branches, runs = dict.fromkeys((MAIN, *logs)), dict[str, None]()
    async with aclosing(read(None)) as pages:
        async for record in _each(pages):
            alone = {option: each for option, each in alone.items() if not each(record)}
            event, last = record.event, record.seq
            kinds[kind_name(type(event))] += 1
            if isinstance(event, MessageRecord) and event.branch:
                branches[event.branch] = None
            if isinstance(event, MessageRecord | RunStartRecord) and event.run_id:
                runs[event.run_id] = None
    for name, wanted, known in (("--branch", only.branch, branches), ("--run", only.run_id, runs)):
        if name in alone and wanted != MAIN:
            listed = f"it has {few(list(map(ascii, reversed(known))))}" if known else "it has none"
            raise UsageError(f"{name}: the session has no {str(wanted)[:60]!r}; {listed}")
    has = {
        "--kind": f"it has {few(list(kinds))}" if kinds else "",
        "--range": f"its last position is {last}" if last else "",
    }
    if archived is not None and not kinds:
        alone = {"--archived" if archived else "--visible": only}
    found_nothing = [
        " ".join(filter(None, (option, has.get(option) and f"({has[option]})"))) for option in alone
    ]
    all_of_it = "nothing in the session is all of what was asked for"
    say(error_console(), f"nothing in the session for {', '.join(found_nothing)}" if alone else all_of_it)
    return False


def _alone(only: EventFilter) -> Iterator[tuple[str, EventFilter]]:
    """Each option that is asked for, and what it asks for by itself."""
    by_itself = {
        "--branch": EventFilter(branch=only.branch),
        "--run": EventFilter(run_id=only.run_id),
        "--kind": EventFilter(kinds=only.kinds),
        "--range": EventFilter(first=only.first, last=only.last),
        "--grep": EventFilter(regex=only.regex),
        "--synthetic" if only.synthetic else "--real": EventFilter(synthetic=only.synthetic),
    }
    return ((option, each) for option, each in by_itself.items() if each != EventFilter())


def is_shown(record: Record, only: EventFilter, shape: str) -> bool:
    """Whether an export in that shape has something to show of a record that the filter takes."""
    return only(record) and (shape != "markdown" or any(to_blocks((record,))))


async def _each(pages: AsyncIterable[Iterable[Record]]) -> AsyncGenerator[Record]:
    async for page in pages:
        for record in page:
            yield record


async def export_texts(
    opened: Opened,
    info: SessionInfo,
    shape: str,
    only: EventFilter | None = None,
    *,
    read: Pages = pages,
) -> AsyncGenerator[str]:
    """What an export in that format holds of the session, or of what the filter takes of it.

    Of a range, no other records are read; `read` is how.

    Events and Markdown hold one page in memory at a time. The list of messages holds the messages, since a
    result may stand anywhere behind its call.

    Raises:
        StoreError: the log cannot be read.
    """
    async with aclosing(_redacted(opened, read(opened.store, info, only))) as records:
        match shape:
            case "openai":
                said = [record async for page in records for record in page if _is_said(record)]
                for text in _list(exports.to_openai(said, only=only)):
                    yield text
            case "events":
                async with aclosing(drop_dangling(records, only, tell=warn)) as kept:
                    async for page in kept:
                        yield "".join(f"{line}\n" for line in exports.to_events(page, only=only))
            case _:
                between = ""
                if info.title and (only is None or "described" in (only.kinds or ("described",))):
                    yield heading(redacted(info.title, opened.settings.redact))
                    between = "\n\n"
                async for page in records:
                    for block in to_blocks(select(page, only)):
                        yield between + block
                        between = "\n\n"
                yield "\n"


async def _redacted(opened: Opened, read: AsyncGenerator[Sequence[Record]]) -> AsyncGenerator[list[Record]]:
    async with aclosing(read):
        async for page in read:
            yield redacted(list(page), opened.settings.redact)


def _is_said(record: Record) -> bool:
    return isinstance(record.event, MessageRecord)


def _list(items: Sequence[Any]) -> Iterator[str]:
    """The items as one JSON list, indented, in pieces."""
    between = "[\n"
    for start in range(0, len(items), PAGE_RECORDS):
        yield between + ",\n".join(map(_item, items[start : start + PAGE_RECORDS]))
        between = ",\n"
    yield "\n]\n" if items else "[]\n"


def _item(data: Any) -> str:
    """Strict JSON: NaN and the infinities, which a model's server may have sent, become null."""
    try:
        text = json.dumps(data, indent=2, allow_nan=False)
    except ValueError:
        strict = json.loads(json.dumps(data), parse_constant=lambda _: None)
        text = json.dumps(strict, indent=2)
    return indent(text, "  ")


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
    text = read_text(path)
    with _told(len(text)) as tell:
        events = _events(text, settings_of_call(), tell)
    if empty := [at for at, event in enumerate(events, 1) if _says_nothing(event)]:
        warn(f"without any content: {few([f'position {at}' for at in empty])}")

    async def work(opened: Opened, output: StandardOutput) -> None:
        exists = UsageError(f"session {session_id!r} exists already: choose another id with --session")
        if await opened.store.info(session_id):
            raise exists
        try:
            # Nothing could be lost yet: what is not committed is nowhere.
            with on_signals(leave_at_once):
                await opened.store.append(session_id, events, expect=0)
        except ConflictError as error:
            raise exists from error
        await output.write(f"{session_id}\n")

    return run_work(work)


def _says_nothing(event: Event) -> bool:
    if not isinstance(event, MessageRecord):
        return False
    message = event.message
    is_result = message.role in ("tool", "function")
    return not (is_result or message.content or message.tool_calls or message.extra)


@contextmanager
def _told(chars: int) -> Iterator[Callable[[int], object]]:
    """What tells how many records are read; who waits at a terminal for long sees it."""
    console = error_console()
    if chars < _LONG_CHARS or not console.is_terminal:
        yield lambda records: None
        return
    with console.status("reading") as line:
        yield lambda records: line.update(f"reading: {records:,} records")


def read_text(path: str) -> str:
    """What the file of that name holds, of at most `MOST_IMPORT_BYTES`; `-` is standard input.

    Raises:
        UsageError: it cannot be read, holds more, or is not in UTF-8.
    """
    try:
        data = input.read_bytes() if path == "-" else _bytes_of(settings.read_path(path))
    except UsageError:
        raise
    except (OSError, ValueError) as error:
        way = ": check the path" if isinstance(error, FileNotFoundError) else ""
        fault = getattr(error, "strerror", None) or error
        raise UsageError(f"{path!r} cannot be read: {fault}{way}") from error
    if len(data) > MOST_IMPORT_BYTES:
        raise UsageError(f"{path!r} holds more than {MOST_IMPORT_BYTES // 1_000_000} MB: import a part of it")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        name = "standard input" if path == "-" else repr(path)
        raise UsageError(f"nothing imported: line {line} of {name} is not in UTF-8: convert it") from error


def _bytes_of(path: Path) -> bytearray:
    """What the file holds, up to a piece more than may be imported.

    Raises:
        OSError: it cannot be read.
        UsageError: it is none.
    """
    # Without blocking: whoever opens a pipe waits for its other end.
    with open(
        path, "rb", buffering=0, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)
    ) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise UsageError(f"{str(path)!r} is no file with an end: name one, or pipe it in and import -")
        data = bytearray()
        while len(data) <= MOST_IMPORT_BYTES and (piece := file.read(_PIECE_BYTES)):
            data += piece
    return data


def _events(text: str, settings: Settings, tell: Callable[[int], object]) -> list[Event]:
    """The events of the file, and that they are a session of this folder."""
    counter = counter_for(settings.model)

    def count(message: Message) -> int:
        return count_message(message, counter)

    events = list(redacted_events(importing.parse(text, count=count, tell=tell), settings.redact, count))
    here = Described(
        title=_title(events),
        folder=str(settings.workdir),
        owner=settings.owner,
        ttl_seconds=settings.ttl_seconds,
    )
    return [*events, here]


def _title(events: Sequence[Event]) -> str | None:
    """What a session of these messages would be called; None where they name a title themselves."""
    if any(isinstance(event, Described) for event in events):
        return None
    said = (event.message for event in events if isinstance(event, MessageRecord))
    return next((title_of(message) for message in said if message.role == "user"), None) or None


def redacted_events(
    events: Iterable[Event], redact: Redact | None, count: Callable[[Message], int]
) -> Iterator[Event]:
    """The events redacted; what changes is counted again."""
    for event in events:
        clean = redacted(event, redact)
        yield event if clean is event else _recount(clean, count)


def _recount(event: Event, count: Callable[[Message], int]) -> Event:
    match event:
        case MessageRecord():
            return replace(event, tokens=count(event.message))
        case Cleared():
            return replace(event, items=_recount_items(event.items, count))
        case Compacted():
            answer = count(Message.assistant(event.answer)) if event.answer else 0
            shown = count(Message.user(event.replacement)) if event.replacement else 0
            items = _recount_items(event.cleared, count)
            return replace(event, tokens=shown + answer, answer_tokens=answer, cleared=items)
    return event


def _recount_items(items: Iterable[ClearedItem], count: Callable[[Message], int]) -> tuple[ClearedItem, ...]:
    return tuple(replace(item, tokens=count(item.message)) for item in items)
