"""`sessions delete` and `sessions sweep`: what goes with a session, said before it goes.

The files that a log names, transcripts and long results, go with it where they hold what this session said,
and where no session that stays names them. They go first: a deletion that is killed can be repeated, since
the log that names what is left is still there.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import click
from rich.console import Console

from agentloop._plumbing.truncate import few
from agentloop.cli import input
from agentloop.cli.options import AS_JSON, STORE, options
from agentloop.cli.sessions.command import (
    HEADING,
    Opened,
    as_data,
    find_in_store,
    missing_store,
    row,
    run_work,
    warn_of,
)
from agentloop.cli.terminal import error_console, moment, say, write_list
from agentloop.errors import UsageError
from agentloop.redaction import redacted
from agentloop.sessions import History
from agentloop.stores.base import check_trunk, trunk_of

_WITH_FILES = ", with the files that no other session of this store names (other stores are not looked at)"


@click.command()
@click.argument("names", metavar="ID…", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help="Delete them also where a run works on them, which then fails.")
@click.option("--keep-files", is_flag=True, help="Leave the files that its log names.")
@click.option("--transcripts", metavar="DIR", help="Where these lie. [default: .transcripts]")
@options(STORE)
def delete(names: Sequence[str], yes: bool, force: bool, keep_files: bool, **_: Any) -> int:
    """Delete sessions and their whole logs.

    Says what goes. The logs of their sub-agents go with them, and their transcripts and files of long
    results, but for those that another session of this store names, too. Where one of several names is
    wrong, or a run works on one of the sessions, nothing is deleted.
    """
    asks, console = _must_ask(yes), error_console()

    async def look(opened: Opened) -> Sequence[History]:
        trunks = [await opened.session(name) for name in names]
        for trunk in trunks:
            check_trunk(trunk.id)
        found = [line for info in trunks for line in (*(await opened.branches(info)), info)]
        infos = {info.id: redacted(info, opened.settings.redact) for info in found}.values()
        deletion = opened.sessions.deletion()
        if keep_files:
            return [await deletion.history_of(info) if asks else History(info=info) for info in infos]
        return await deletion.mark_shared([await deletion.history_of(info) for info in infos])

    going = find_in_store(look)
    files = [name for each in going for name in each.own] if not keep_files else []
    if asks and not _confirm(console, going, files):
        return 0

    def gone(history: History, there: bool, went: Collection[str]) -> None:
        if trunk_of(history.info.id) is None:
            what = "deleted" if there else "was gone already"
            say(console, f"{what}: {describe_history(history, go=went)}")

    async def work(opened: Opened) -> None:
        deletion = opened.sessions.deletion()
        await deletion.delete(going, gone, force=force, keep_files=keep_files, tell=warn_of)

    return run_work(work)


@click.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only list what has expired.")
@options(AS_JSON)
@options(STORE)
def sweep(yes: bool, dry_run: bool, as_json: bool, **_: Any) -> int:
    """Delete the sessions that have expired.

    Those of all folders whose time to live is over, with --owner of that owner alone; lists what went.
    """
    console, now = error_console(), time.time()

    async def look(opened: Opened) -> Sequence[History]:
        return [History(info=info) for info in await opened.sessions.expired(now)]

    async def work(opened: Opened) -> None:
        if dry_run or not (yes or going):  # what nobody was asked about stays
            went = await opened.sessions.expired(now)
        else:
            went = await opened.sessions.sweep(now=now)
        if not went:
            say(console, missing_store(opened.settings) or "nothing has expired")
        await write_list(opened.output, went, HEADING, row, as_data, as_json=as_json)

    going = find_in_store(look) if not (dry_run or yes) else ()
    if going and _must_ask(yes) and not _confirm(console, going):
        return 0
    return run_work(work)


def _must_ask(yes: bool) -> bool:
    """Whether somebody is to be asked.

    Raises:
        UsageError: somebody should be, and nobody is there.
    """
    if not yes and not input.is_terminal():
        raise UsageError("deleting cannot be taken back, and there is no terminal to ask in: say --yes")
    return not yes


def _confirm(console: Console, going: Sequence[History], files: Sequence[str] = ()) -> bool:
    """Say what goes, these files too, and ask; where nothing does, nobody is asked."""
    trunks = [history for history in going if trunk_of(history.info.id) is None]
    for history in trunks:
        below = sum(trunk_of(each.info.id) == history.info.id for each in going)
        logs = f"; with {below} logs of sub-agents" if below else ""
        say(console, f"to be deleted: {describe_history(history, go=files)}{logs}")
    several = f"these {len(trunks)} sessions and their whole logs"
    what = f"session {trunks[0].info.id} and its whole log" if len(trunks) == 1 else several
    return not going or click.confirm(f"Delete {what}{_WITH_FILES if files else ''}?", err=True)


def describe_history(history: History, *, go: Collection[str]) -> str:
    """What a session is, in one line, and what becomes of its files: these go, the others stay."""
    info = history.info
    messages = "" if history.messages is None else f", {history.messages} messages"
    parts = [
        f"{info.id}{f' {info.title!r}' if info.title else ''}",
        f"{info.length} records{messages}, {moment(info.created)} to {moment(info.updated)}",
        *([f"folder {info.folder}"] if info.folder else []),
        *([f"owner {info.owner}"] if info.owner else []),
        *([f"its log cannot be read whole ({history.fault})"] if history.fault else []),
        *_fates("transcripts", history.transcripts, go),
        *_fates("long results", history.results, go),
        *(["transcripts and long results stay"] if history.messages is None else []),
    ]
    return "; ".join(parts)


def _fates(what: str, names: Iterable[str], go: Collection[str]) -> Iterator[str]:
    going, staying = [name for name in names if name in go], [name for name in names if name not in go]
    if going:
        yield f"{what} go: {few(going)}"
    if staying:
        yield f"{what} stay: {few(staying)}"
