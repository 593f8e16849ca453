"""`sessions export` and `sessions import`."""

from collections.abc import Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

import click

from agentloop.cli import readings
from agentloop.cli.options import STORE, TTL, options
from agentloop.cli.output import StandardOutput
from agentloop.cli.sessions.importing import read_text, redacted_events
from agentloop.cli.sessions.reading import DAMAGED, pages_with, untold, warn
from agentloop.cli.sessions.selecting import SELECTION, check_there, filter_of
from agentloop.cli.sessions.texts import FORMATS, texts_of
from agentloop.cli.sessions.work import Opened, done, named
from agentloop.cli.sessions.writing import whole_file
from agentloop.cli.settings import Settings
from agentloop.context import count_message, counter_for
from agentloop.errors import ConflictError, UsageError
from agentloop.events import Described, Event, EventFilter, MessageAdded
from agentloop.messages import Message
from agentloop.run import title_of
from agentloop.sessions import importing, new_session_id
from agentloop.stores import checked_session_id


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
        info = await named(opened, name)
        if only:
            await check_there(only, partial(pages_with(damaged, untold), opened.store, info))
        async with aclosing(texts_of(opened, info, shape, only, read=pages_with(damaged, warn))) as texts:
            if path is None or path == "-":
                async for text in texts:
                    await output.write(text)
            else:
                with whole_file(readings.path(path)) as file:
                    async for text in texts:
                        file.write(text)

    return done(work)


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
    session_id = new_session_id() if new_id is None else checked_session_id(new_id)
    # Read here and not in the event loop, where a silent pipe would keep a signal waiting.
    text = read_text(path)

    async def work(opened: Opened, output: StandardOutput) -> None:
        exists = UsageError(f"session {session_id!r} exists already: choose another id with --session")
        events = _events(text, opened.settings)
        if await opened.store.info(session_id):
            raise exists
        try:
            await opened.store.append(session_id, events, expect=0)
        except ConflictError as error:
            raise exists from error
        await output.write(f"{session_id}\n")

    return done(work)


def _events(text: str, settings: Settings) -> list[Event]:
    """The events of the file, and that they are a session of this folder."""
    counter = counter_for(settings.model)

    def count(message: Message) -> int:
        return count_message(message, counter)

    events = list(redacted_events(importing.parse(text, count=count), settings.redact, count))
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
    said = (event.message for event in events if isinstance(event, MessageAdded))
    return next((title_of(message) for message in said if message.role == "user"), None) or None
