"""`sessions rename` and `sessions expire`: what is said of a session, also while it runs."""

from typing import Any

import click

from agentloop._plumbing.amounts import seconds_of
from agentloop.cli.input import decode_typed
from agentloop.cli.options import STORE, options
from agentloop.cli.sessions.command import Opened, expiry_text, run_work
from agentloop.cli.settings import Choice, read
from agentloop.cli.terminal import StandardOutput, error_console, say
from agentloop.errors import ConflictError, SessionNotFoundError, UsageError
from agentloop.events import Described
from agentloop.redaction import redacted
from agentloop.stores import SessionInfo, SessionStore

_MOST_TRIES = 20
"""So often a log that grows meanwhile is written to: the steps of a run take longer than a try."""


@click.command()
@click.argument("name", metavar="ID")
@click.argument("title")
@options(STORE)
def rename(name: str, title: str, **_: Any) -> int:
    """Give a session a title."""
    title = decode_typed(title)
    if not title.strip():
        raise UsageError("the title is empty: say what the session is about")

    async def work(opened: Opened, output: StandardOutput) -> None:
        info = await opened.session(name)
        # A new name is no news: the session is as new as it was.
        said = Described(title=redacted(title.strip(), opened.settings.redact), time=info.updated)
        await describe(opened.store, info, said)

    return run_work(work)


@click.command()
@click.argument("name", metavar="ID")
@click.argument("after", metavar="TIME|never")
@options(STORE)
def expire(name: str, after: str, **_: Any) -> int:
    """Set when a session may be swept.

    After that time without a new record, e.g. 30d, `sessions sweep` deletes it; after `never`, never.
    """
    never = after.strip().lower() == "never"
    seconds = 0.0 if never else read(Choice(value=after, source="TIME"), seconds_of)

    async def work(opened: Opened, output: StandardOutput) -> None:
        info = await opened.session(name)
        said = Described(ttl_seconds=seconds)
        await describe(opened.store, info, said)
        when = expiry_text(said.time + seconds, seconds, on="on ") if seconds else "never"
        unless = ", unless it goes on before" if seconds else ""
        say(error_console(), f"{info.id} expires {when}{unless}")

    return run_work(work)


async def describe(store: SessionStore, info: SessionInfo, said: Described) -> None:
    """Append it, behind what others append meanwhile.

    Raises:
        ConflictError: they never stop.
        SessionNotFoundError: the session was deleted meanwhile.
    """
    length = info.length
    for _ in range(_MOST_TRIES - 1):
        try:
            await store.append(info.id, [said], expect=length)
            return
        except ConflictError as conflict:
            length = conflict.actual
        if not length:
            raise SessionNotFoundError(f"session {info.id!r} was deleted meanwhile")
    await store.append(info.id, [said], expect=length)
