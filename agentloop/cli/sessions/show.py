"""`sessions list`, `show`, `search`, `rename`, `expire` and `check`: what is stored."""

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from itertools import chain, repeat
from typing import Any

import click

from agentloop._plumbing.aio import in_thread
from agentloop._plumbing.amounts import seconds_of
from agentloop._plumbing.truncate import few
from agentloop.cli.input import decode_typed
from agentloop.cli.options import AS_JSON, STORE, WholeNumber, options
from agentloop.cli.sessions.command import (
    DAMAGED,
    HEADING,
    Opened,
    as_data,
    expiry_text,
    missing_store,
    on_store,
    row,
    warn_of,
)
from agentloop.cli.sessions.transfer import SELECTION, Read, check_there, filter_of, is_shown
from agentloop.cli.terminal import (
    columns,
    counted,
    error_console,
    escaped,
    moment,
    printable,
    say,
    write_list,
)
from agentloop.cli.values import read
from agentloop.context import Context
from agentloop.errors import DamagedError, StoreError, UsageError
from agentloop.events import Described, EventFilter, MessageRecord, kind_name
from agentloop.redaction import redacted
from agentloop.sessions import (
    PAGE_RECORDS,
    ExportFormat,
    checkpoint_of,
    in_sight,
    page_reader,
    read_pages,
    say_nothing,
)
from agentloop.stores import Query, SessionInfo, SessionStore, excerpt, searchable
from agentloop.stores.base import ChecksItself, Found, KeepsCheckpoints

_MOST_FOUND = 1_000
_FOUND = columns("session", "position", "by", "time", "text")


@click.command("list")
@options(AS_JSON)
@click.option("--all", "everywhere", is_flag=True, help="Those of all folders, not only of this one.")
@click.option("-n", "most", metavar="N", type=WholeNumber(), help="The newest N alone.")
@options(STORE)
@on_store
async def list_(opened: Opened, as_json: bool, everywhere: bool, most: int | None) -> None:
    """List those of this folder, newest last.

    The JSON list has the newest first.
    """
    settings = opened.settings
    folder = None if everywhere else str(settings.workdir)
    stored = (await opened.sessions.list(folder=folder))[:most]
    if not stored and not as_json:
        hint = "" if everywhere else " of this folder; --all lists those of all folders"
        missing = missing_store(settings)
        say(error_console(), f"no sessions: {missing}" if missing else f"no sessions{hint}")
    found = stored if as_json else stored[::-1]
    await write_list(opened.output, found, HEADING, row, as_data, as_json=as_json)


@click.command()
@click.argument("name", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="A JSON list of the records.")
@click.option("--tail", metavar="N", type=WholeNumber(), help="The newest N of what is otherwise shown.")
@click.option("--grep", "regex", metavar="REGEX", help="What matches; (?i) in front ignores case.")
@click.option("--archived/--visible", default=None, help="What the model sees no more, or what it sees.")
@click.option("--synthetic/--real", default=None, help="Summaries and notes alone, or messages alone.")
@options(SELECTION, DAMAGED, STORE)
@on_store
async def show(
    opened: Opened,
    name: str,
    as_json: bool,
    tail: int | None,
    damaged: str,
    archived: bool | None,
    **selection: Any,
) -> None:
    """Show what was said and what was compacted, or a part of it.

    Each message stands whole, also one that was taken back.

    With --branch the logs of the session's sub-agents of that name, one after the other.
    """
    shape: ExportFormat = "events" if as_json else "markdown"
    asked = filter_of(selection, shape) or EventFilter()
    asked = replace(asked, regex=selection["regex"], synthetic=selection["synthetic"])
    before = chain("[", repeat(","))

    async def write(info: SessionInfo, of_it: EventFilter) -> None:
        read, look = page_reader(damaged, warn_of), page_reader(damaged, say_nothing)
        if archived is not None:
            read, look = in_sight(read, archived), in_sight(look, archived)
        looked = partial(look, opened.store, info)
        if archived is not None or of_it != EventFilter():
            logs = await opened.branch_names(info)
            if not await check_there(of_it, looked, shape, logs=logs):
                return
        if not as_json:
            await opened.output.write(f"{row(redacted(info, opened.settings.redact))}\n")
        if tail:
            of_it = await _newest(of_it, looked, tail, info.length, shape)
        only_these = None if of_it == EventFilter() else of_it
        shown = opened.sessions.texts(info, shape, only_these, read=read, tell=warn_of)
        async with aclosing(shown) as texts:
            async for text in texts:
                if not as_json:
                    await opened.output.write(printable(text))
                    continue
                for line in map(escaped, text.splitlines()):
                    await opened.output.write(f"{next(before)}\n{line}")

    info = await opened.session(name)
    logs = await opened.branches(info, asked.branch)
    if asked.branch is not None and logs:
        for log in logs:
            await write(log, replace(asked, branch=None))
    else:
        await write(info, asked)
        if logs and not as_json:
            say(error_console(), f"its sub-agents: {few([log.id for log in logs])}; --branch shows them")
    if as_json:
        await opened.output.write("[]\n" if next(before) == "[" else "\n]\n")


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


@click.command()
@click.argument("text")
@click.option("--session", "name", metavar="ID", help="Only in this session.")
@click.option("--all", "everywhere", is_flag=True, help="In those of all folders, not only of this one.")
@options(AS_JSON)
@click.option("-n", "most", metavar="N", type=WholeNumber(most=_MOST_FOUND), default=20, show_default=True)
@options(STORE)
@on_store
async def search(
    opened: Opened, text: str, name: str | None, everywhere: bool, as_json: bool, most: int
) -> None:
    """Search what was said for words.

    Also where a compaction has hidden it; newest first. A record is found that holds all the words; what
    stands in double quotes is found as it stands.
    """
    query = Query.of(text)
    settings = opened.settings
    session_id = (await opened.session(name)).id if name is not None else None
    folder = None if everywhere or session_id else str(settings.workdir)
    found = await opened.sessions.search(text, session_id=session_id, folder=folder, most=most)
    if not found:
        hint = " in this folder; --all searches the sessions of all folders" if folder else ""
        say(error_console(), missing_store(settings) or f"nothing found{hint}")
    shown = await in_thread(_as_shown, found, query)
    await write_list(opened.output, shown, _FOUND, _row, dict, as_json=as_json)


def _as_shown(found: Sequence[Found], query: Query) -> list[dict[str, Any]]:
    shown = []
    for each in found:
        event = each.record.event
        role = event.message.role if isinstance(event, MessageRecord) else None
        where = {"session_id": each.session_id, "seq": each.record.seq, "kind": kind_name(type(event))}
        what = {"role": role, "time": event.time, "text": excerpt(searchable(event), query)}
        shown.append(where | what)
    return shown


def _row(found: Mapping[str, Any]) -> str:
    what = found["role"] or found["kind"]
    return columns(found["session_id"], str(found["seq"]), what, moment(found["time"]), found["text"])


@click.command()
@click.argument("name", metavar="ID")
@click.argument("title")
@options(STORE)
@on_store
async def rename(opened: Opened, name: str, title: str) -> None:
    """Give a session a title."""
    await opened.sessions.rename((await opened.session(name)).id, decode_typed(title))


@click.command()
@click.argument("name", metavar="ID")
@click.argument("after", metavar="TIME|never")
@options(STORE)
@on_store
async def expire(opened: Opened, name: str, after: str) -> None:
    """Set when a session may be swept.

    After that time without a new record, e.g. 30d, `sessions sweep` deletes it; after `never`, never.
    """
    never = after.strip().lower() == "never"
    seconds = 0.0 if never else read("TIME", after, seconds_of)
    info = await opened.session(name)
    said = Described(ttl_seconds=seconds)
    await opened.sessions.describe(info, said)
    when = expiry_text(said.time + seconds, seconds, on="on ") if seconds else "never"
    unless = ", unless it goes on before" if seconds else ""
    say(error_console(), f"{info.id} expires {when}{unless}")


@click.command()
@click.argument("name", metavar="[ID]", required=False)
@options(STORE)
@on_store
async def check(opened: Opened, name: str | None) -> None:
    """Say what is wrong with the store, or a session.

    The whole store is looked through, with --owner the sessions of that owner. No log is changed.
    """
    if missing := missing_store(opened.settings):
        raise UsageError(missing)
    faults = await _faults(opened, name)
    await opened.output.write("".join(map(columns, faults)))
    if faults:
        raise StoreError(f"{counted(len(faults), 'fault')} found: restore a copy of what is damaged")
    say(error_console(), "all is well")


async def _faults(opened: Opened, name: str | None) -> Sequence[str]:
    owner, store = opened.settings.owner, opened.store
    whole = name is None and owner is None
    if whole and isinstance(store, ChecksItself) and (faults := await store.check()):
        return faults
    infos = await store.list(owner=owner) if name is None else [await opened.session(name)]
    logs = [each for info in infos for each in (info, *await store.list(branches_of=info.id))]
    return await faults_of(opened, logs)


async def faults_of(opened: Opened, infos: Sequence[SessionInfo]) -> Sequence[str]:
    """Read each log once: a line for each that is damaged, and its checkpoint held against it.

    Raises:
        StoreError: the store cannot be read, which tells nothing of what it holds.
    """
    return [fault for info in infos if (fault := await _fault(opened.store, info))]


async def _fault(store: SessionStore, info: SessionInfo) -> str | None:
    """What is damaged of the session; None for nothing, or where it was deleted meanwhile.

    A checkpoint that the log does not come to is dropped: who opens the session makes a new one.
    """
    keeps = store if isinstance(store, KeepsCheckpoints) else None
    context, last = Context(), ""
    try:
        checkpoint = await keeps.checkpoint(info.id) if keeps else None
        end = checkpoint.seq if checkpoint else 0
        line = await store.info(info.id) or info  # as new as the checkpoint: the session may go on meanwhile
        async with aclosing(read_pages(store, line)) as read:
            async for page in read:
                if records := [record for record in page if record.seq <= end]:
                    context, last = context.add(*records), records[-1].event.id
        if keeps and checkpoint and checkpoint_of(context, last) != checkpoint:
            await keeps.drop_checkpoint(info.id)
            say(error_console(), f"{info.id}: its checkpoint was not what its log comes to, and is dropped")
    except DamagedError as error:
        return str(error)
    except StoreError:
        if await store.info(info.id):  # which raises where the store itself cannot be read
            raise
    return None
