"""`sessions delete` and `sessions sweep`: what goes is said, and asked for in a terminal."""

import json
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import click
from rich.console import Console

from agentloop.cli import standard_input
from agentloop.cli.console import error_console, say
from agentloop.cli.lines import listing
from agentloop.cli.options import STORE, options
from agentloop.cli.output import StandardOutput
from agentloop.cli.sessions.free import expired, kept_free
from agentloop.cli.sessions.history import History, history_of, in_words, with_shared
from agentloop.cli.sessions.left_files import check_in_folder, remove_files
from agentloop.cli.sessions.reading import warn
from agentloop.cli.sessions.work import HEADING, Opened, as_data, done, looked, named, no_store, row
from agentloop.errors import UsageError
from agentloop.redaction import redacted
from agentloop.stores import SessionInfo

_WITH_FILES = ", with the files that no other session of this store names (other stores are not looked at)"


@click.command()
@click.argument("names", metavar="ID…", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help="Delete them also where a run works on them, which then fails.")
@click.option("--with-transcripts", is_flag=True, help="Delete also the files that its log names.")
@click.option("--transcripts", metavar="DIR", help="Where these lie. [default: .transcripts]")
@options(STORE)
def delete(names: Sequence[str], yes: bool, force: bool, with_transcripts: bool, **_: Any) -> int:
    """Delete sessions and their whole logs.

    Says what goes. Transcripts and files of long results stay on disc, unless they are asked for, and
    where another session of this store names them, too. Where one of several names is wrong, a run works
    on one of the sessions, or a file to delete is not in .transcripts and no folder is named, nothing is
    deleted.
    """
    asks, console = _asks(yes), error_console()

    async def look(opened: Opened) -> Sequence[History]:
        found = [await named(opened, name) for name in names]
        infos = {info.id: redacted(info, opened.settings.redact) for info in found}.values()
        if with_transcripts:
            return await _with_files(opened, infos)
        return [await history_of(opened, info) if asks else History(info=info) for info in infos]

    going = looked(look)
    files = [name for each in going for name in each.own] if with_transcripts else []
    if asks and not _agreed(console, going, files):
        return 0

    async def work(opened: Opened, _: StandardOutput) -> None:
        async with AsyncExitStack() as holding:
            for history in going if not force else ():
                await holding.enter_async_context(kept_free(opened, history.info.id))
            went = set[str]()
            for history in going:
                if with_transcripts:
                    went.update(await remove_files(opened, history, warn, went))
                await _delete(opened, history, went, console)

    return done(work)


@click.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only list what has expired.")
@click.option("--json", "as_json", is_flag=True, help="A JSON list.")
@options(STORE)
def sweep(yes: bool, dry_run: bool, as_json: bool, **_: Any) -> int:
    """Delete the sessions that have expired.

    Those of all folders whose time to live is over, with --owner of that owner alone; lists what went.
    """
    asks, console, now = not dry_run and _asks(yes), error_console(), time.time()

    async def look(opened: Opened) -> Sequence[History]:
        due = await expired(opened, now)
        return [History(info=redacted(info, opened.settings.redact)) for info in due]

    async def work(opened: Opened, output: StandardOutput) -> None:
        if dry_run:
            went = await expired(opened, now)
        else:
            went = await opened.store.sweep(owner=opened.settings.owner, now=now)
        if not went:
            say(console, no_store(opened.settings) or "nothing has expired")
        if as_json:
            data = [as_data(info, opened.settings) for info in went]
            return await output.write(json.dumps(data, indent=2) + "\n")
        rows = [row(redacted(info, opened.settings.redact)) for info in went]
        return await output.write(listing(HEADING, rows, output))

    if asks and not _agreed(console, looked(look)):
        return 0
    return done(work)


async def _with_files(opened: Opened, infos: Iterable[SessionInfo]) -> Sequence[History]:
    """The histories of sessions whose files are to go with them; see `check_in_folder` for what it raises."""
    histories = [await history_of(opened, info) for info in infos]
    check_in_folder(opened, histories)
    return await with_shared(opened, histories)


async def _delete(opened: Opened, history: History, went: Collection[str], console: Console) -> None:
    """Delete the session, and say that it went, and of its files which."""
    there = await opened.store.delete(history.info.id)
    what = "deleted" if there else "was gone already"
    say(console, f"{what}: {in_words(history, go=went)}")


def _asks(yes: bool) -> bool:
    """Whether somebody is to be asked.

    Raises:
        UsageError: somebody should be, and nobody is there.
    """
    if not yes and not standard_input.is_terminal():
        raise UsageError("deleting cannot be taken back, and there is no terminal to ask in: say --yes")
    return not yes


def _agreed(console: Console, going: Sequence[History], files: Sequence[str] = ()) -> bool:
    """Say what goes, these files too, and ask; where nothing does, nobody is asked."""
    for history in going:
        say(console, f"to be deleted: {in_words(history, go=files)}")
    several = f"these {len(going)} sessions and their whole logs"
    what = f"session {going[0].info.id} and its whole log" if len(going) == 1 else several
    return not going or click.confirm(f"Delete {what}{_WITH_FILES if files else ''}?", err=True)
