"""`sessions rename` and `sessions expire`: what is said of a session, also while it runs."""

from typing import Any

import click

from agentloop._plumbing.amounts import seconds_of
from agentloop.cli.input import decode_typed
from agentloop.cli.options import STORE, options
from agentloop.cli.sessions.command import Opened, expiry_text, run_work
from agentloop.cli.settings import Choice, read
from agentloop.cli.terminal import StandardOutput, error_console, say
from agentloop.events import Described


@click.command()
@click.argument("name", metavar="ID")
@click.argument("title")
@options(STORE)
def rename(name: str, title: str, **_: Any) -> int:
    """Give a session a title."""
    title = decode_typed(title)

    async def work(opened: Opened, output: StandardOutput) -> None:
        await opened.sessions.rename((await opened.session(name)).id, title)

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
        await opened.sessions.describe(info, said)
        when = expiry_text(said.time + seconds, seconds, on="on ") if seconds else "never"
        unless = ", unless it goes on before" if seconds else ""
        say(error_console(), f"{info.id} expires {when}{unless}")

    return run_work(work)
