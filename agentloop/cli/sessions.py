"""`sessions`: the stored sessions."""

import json
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

import click

from agentloop import exports
from agentloop.cli import standard_input
from agentloop.cli.console import error_console, say
from agentloop.cli.event_loop import run_to_end
from agentloop.cli.finding import find_session, new_session_id
from agentloop.cli.importing import redacted_events
from agentloop.cli.options import STORE, flags_of, options
from agentloop.cli.output import StandardOutput, printable
from agentloop.cli.selecting import SELECTION, check_there, filter_of
from agentloop.cli.settings import Settings, settings_for
from agentloop.cli.writing import write_whole
from agentloop.errors import UsageError
from agentloop.events import Described, Record
from agentloop.filters import EventFilter, select
from agentloop.markdown import to_markdown
from agentloop.messages import Message
from agentloop.redaction import redacted
from agentloop.stores import SessionInfo, SessionStore, checked_session_id, open_store
from agentloop.tokens import count_message, counter_for

FORMATS = ("openai", "events", "markdown")

Work: TypeAlias = Callable[[SessionStore, Settings], Coroutine[Any, Any, str]]
"""Does something with the store and returns what standard output gets."""


@click.group()
def sessions() -> None:
    """The stored sessions; each is named by its id, a unique prefix of it, or its title."""


@sessions.command("list")
@click.option("--json", "as_json", is_flag=True, help="A JSON list.")
@click.option("--all", "everywhere", is_flag=True, help="Those of all folders, not only of this one.")
@options(STORE)
def list_(as_json: bool, everywhere: bool, **_: Any) -> int:
    """List them, newest first."""

    async def work(store: SessionStore, settings: Settings) -> str:
        found = await store.list(folder=None if everywhere else str(settings.workdir))
        stored = redacted(list(found), settings.redact)
        if as_json:
            return json.dumps([asdict(info) for info in stored], indent=2) + "\n"
        if not stored:
            hint = "" if everywhere else " of this folder; --all lists those of all folders"
            say(error_console(), f"no sessions{hint}")
        return "".join(map(_row, stored))

    return _done(work)


@sessions.command()
@click.argument("name", metavar="ID")
@options(STORE)
def show(name: str, **_: Any) -> int:
    """Show what was said, whole, and where it was compacted."""

    async def work(store: SessionStore, settings: Settings) -> str:
        info = await find_session(name, store)
        said = f"{_row(info)}\n{to_markdown(await store.read(info.id))}"
        return redacted(said, settings.redact)

    return _done(work)


@sessions.command()
@click.argument("name", metavar="ID")
@click.argument("title")
@options(STORE)
def rename(name: str, title: str, **_: Any) -> int:
    """Give a session a title."""

    async def work(store: SessionStore, settings: Settings) -> str:
        if not title.strip():
            raise UsageError("the title is empty: say what the session is about")
        info = await find_session(name, store)
        described = Described(title=redacted(title.strip(), settings.redact))
        await store.append(info.id, [described], expect=info.length)
        return ""

    return _done(work)


@sessions.command()
@click.argument("name", metavar="ID")
@click.option("--format", "shape", type=click.Choice(FORMATS), default="openai", show_default=True)
@click.option("-o", "--output", "path", metavar="FILE", help="Write it there instead of standard output.")
@options(SELECTION, STORE)
def export(name: str, shape: str, path: str | None, **selection: Any) -> int:
    """Write a session out: chat-completions messages, its events, or text to read.

    Of what is left of it by --branch, --kind, --run and --range together; an events export then holds each
    record's position in the log, and comes back in where all that its records point at is in it.
    """
    only = filter_of(selection, shape)

    async def work(store: SessionStore, settings: Settings) -> str:
        records = await store.read((await find_session(name, store)).id)
        if only:
            check_there(only, records)
        text = _exported(redacted(list(records), settings.redact), shape, only)
        if path is None or path == "-":
            return text
        if not path:
            raise UsageError("--output is empty: name a file, or leave it out for standard output")
        write_whole(Path(path), text)
        return ""

    return _done(work)


def _exported(records: Sequence[Record], shape: str, only: EventFilter | None) -> str:
    if shape == "openai":
        return json.dumps(exports.to_openai(records, only=only), indent=2) + "\n"
    if shape == "events":
        return "".join(f"{line}\n" for line in exports.to_events(records, only=only))
    return to_markdown(select(records, only))


@sessions.command("import")
@click.argument("path", metavar="FILE")
@click.option("--session", "new_id", metavar="ID", help="The id it gets. [default: a new one]")
@options(STORE)
def import_(path: str, new_id: str | None, **_: Any) -> int:
    """Read a session in from messages or events, as a JSON list or JSON Lines; - is standard input."""
    session_id = new_session_id() if new_id is None else checked_session_id(new_id)
    # Read here and not in the event loop, where a silent pipe would keep a signal waiting.
    text = _read(path)

    async def work(store: SessionStore, settings: Settings) -> str:
        counter = counter_for(settings.model)

        def count(message: Message) -> int:
            return count_message(message, counter)

        events = redacted_events(exports.parse(text, count=count), settings.redact, count)
        if await store.read(session_id):
            raise UsageError(f"session {session_id!r} exists already: choose another id with --session")
        folder = Described(folder=str(settings.workdir))
        await store.append(session_id, [*events, folder], expect=0)
        return f"{session_id}\n"

    return _done(work)


@sessions.command()
@click.argument("name", metavar="ID")
@click.option("--yes", is_flag=True, help="Do not ask.")
@options(STORE)
def delete(name: str, yes: bool, **_: Any) -> int:
    """Delete a session and its whole log; transcripts on disc stay."""
    asks = standard_input.is_terminal() and not yes

    async def look(store: SessionStore, settings: Settings) -> str:
        return (await find_session(name, store)).id

    async def work(store: SessionStore, settings: Settings) -> str:
        await store.delete(session_id)
        return ""

    if not asks and not yes:
        raise UsageError("deleting cannot be taken back, and there is no terminal to ask in: say --yes")
    session_id = run_to_end(_with_store(look, settings_for(flags_of(click.get_current_context()))))
    question = f"Delete session {session_id} and its whole log? (Transcripts on disc stay.)"
    if asks and not click.confirm(question, err=True):
        return 0
    return _done(work)


def _done(work: Work) -> int:
    output = StandardOutput.claimed()
    settings = settings_for(flags_of(click.get_current_context()))

    async def whole() -> int:
        await output.write(await _with_store(work, settings))
        return 0

    return run_to_end(whole())


async def _with_store(work: Work, settings: Settings) -> str:
    store = open_store(settings.store)
    try:
        return await work(store, settings)
    finally:
        await store.close()


def _row(info: SessionInfo) -> str:
    fields = (info.id, _moment(info.updated), f"{info.length} records", info.title or "-", info.folder or "-")
    return "\t".join(" ".join(printable(field).split()) for field in fields) + "\n"


def _moment(seconds: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
    except (OverflowError, ValueError, OSError):
        return "-"  # no date has a year that large


def _read(path: str) -> str:
    if path == "-":
        return standard_input.read_all()
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise UsageError(f"{path!r} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"nothing imported: line {line} of {path!r} is not in UTF-8: convert it") from error
