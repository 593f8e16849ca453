"""`sessions delete` and `sessions sweep`: what goes with a session, said before it goes.

The files that a log names, transcripts and long results, go with it where they hold what this session said,
and where no session that stays names them. They go first: a deletion that is killed can be repeated, since
the log that names what is left is still there.
"""

import json
import math
import os
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any

import click
from rich.console import Console

from agentloop._plumbing.private_files import refuse_link, refused
from agentloop.cli import input
from agentloop.cli.options import STORE, options
from agentloop.cli.sessions.command import (
    HEADING,
    Opened,
    as_data,
    find_in_store,
    missing_store,
    row,
    run_work,
)
from agentloop.cli.sessions.pages import Tell, good_pages, say_nothing, warn
from agentloop.cli.terminal import StandardOutput, error_console, few, listing, moment, say
from agentloop.errors import SessionBusyError, StoreError, UsageError
from agentloop.events import Compacted, Event, MessageRecord, NotCompacted
from agentloop.messages import Message
from agentloop.prompts import COMPRESSED, SPILLED, ends_of
from agentloop.redaction import redacted
from agentloop.sessions import Leases, load
from agentloop.stores import SessionInfo
from agentloop.stores.base import TellsLeases, check_trunk, trunk_of

_WITH_FILES = ", with the files that no other session of this store names (other stores are not looked at)"
_BEFORE_NAMES = tuple(text.partition("{")[0] for text in (SPILLED, COMPRESSED))
"""What a text says right before the name of a file that holds what it does not."""
_LEAST_SHOWN = 50
"""So many characters of a long result have to be those of the file; as many are shown of any."""
_MOST_BYTES = 4
"""What a character takes in UTF-8."""
_FILE = re.compile(r"result_[\w-]{1,255}\.txt|transcript_[\d-]{1,255}\.jsonl", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    """What a log says, as far as it can be read, that its files are held against.

    `messages` are hashes of all messages, `results` the long results by the names of their files.
    """

    messages: set[int] = field(default_factory=set)
    results: dict[str, MessageRecord] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A session, and what was read of its log: how many messages it holds, None where nobody has looked.

    `transcripts` are the names that its compactions give, `results` those of the files that hold the whole
    of a long result, each with the time of the record that names it first; `shared` are those of them that
    other sessions name, too. `fault` says why the log could not be read whole.
    """

    info: SessionInfo
    messages: int | None = None
    transcripts: Mapping[str, float] = field(default_factory=dict)
    results: Mapping[str, float] = field(default_factory=dict)
    shared: Collection[str] = ()
    fault: str | None = None

    @property
    def files(self) -> Mapping[str, float]:
        """All the files that the log names, each with that time."""
        return {**self.transcripts, **self.results}

    @property
    def own(self) -> Sequence[str]:
        """The files that go with it, where files are to go."""
        return [name for name in self.files if name not in self.shared]


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
        trunks = [await _trunk(opened, name) for name in names]
        found = [line for info in trunks for line in (*(await opened.branches(info)), info)]
        infos = {info.id: redacted(info, opened.settings.redact) for info in found}.values()
        if keep_files:
            return [await history_of(opened, info) if asks else History(info=info) for info in infos]
        return await mark_shared(opened, [await history_of(opened, info) for info in infos])

    going = find_in_store(look)
    files = [name for each in going for name in each.own] if not keep_files else []
    if asks and not _confirm(console, going, files):
        return 0

    async def work(opened: Opened, _: StandardOutput) -> None:
        async with AsyncExitStack() as holding:
            for history in going if not force else ():
                await holding.enter_async_context(hold_free(opened, history.info.id))
            went = set[str]()
            for history in going:
                if not keep_files:
                    went.update(await remove_files(opened, history, warn, went))
                await _delete(opened, history, went, console)

    return run_work(work)


async def _trunk(opened: Opened, name: str) -> SessionInfo:
    """The session that is meant.

    Raises:
        UsageError: the log of a sub-agent is, which goes with its session alone.
    """
    info = await opened.session(name)
    check_trunk(info.id)
    return info


async def _delete(opened: Opened, history: History, went: Collection[str], console: Console) -> None:
    """Delete the session, and say that it went, and of its files which."""
    there = await opened.store.delete(history.info.id)
    what = "deleted" if there else "was gone already"
    if trunk_of(history.info.id) is None:
        say(console, f"{what}: {describe_history(history, go=went)}")


@click.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only list what has expired.")
@click.option("--json", "as_json", is_flag=True, help="A JSON list.")
@options(STORE)
def sweep(yes: bool, dry_run: bool, as_json: bool, **_: Any) -> int:
    """Delete the sessions that have expired.

    Those of all folders whose time to live is over, with --owner of that owner alone; lists what went.
    """
    console, now = error_console(), time.time()

    async def look(opened: Opened) -> Sequence[History]:
        due = await expired_sessions(opened, now)
        return [History(info=redacted(info, opened.settings.redact)) for info in due]

    async def work(opened: Opened, output: StandardOutput) -> None:
        if dry_run or not (yes or going):  # what nobody was asked about stays
            went = await expired_sessions(opened, now)
        else:
            went = await opened.store.sweep(owner=opened.settings.owner, now=now)
        if not went:
            say(console, missing_store(opened.settings) or "nothing has expired")
        if as_json:
            data = [as_data(info, opened.settings) for info in went]
            return await output.write(json.dumps(data, indent=2) + "\n")
        rows = [row(redacted(info, opened.settings.redact)) for info in went]
        return await output.write(listing(HEADING, rows, output))

    going = find_in_store(look) if not (dry_run or yes) else ()
    if going and _must_ask(yes) and not _confirm(console, going):
        return 0
    return run_work(work)


async def expired_sessions(opened: Opened, now: float) -> Sequence[SessionInfo]:
    """What a sweep at that time would take: what has expired and no run works on. Nothing is written.

    Of a store that does not tell who holds a session, it is all that has expired.
    """
    stored = await opened.store.list(owner=opened.settings.owner)
    due = [info for info in stored if info.expires is not None and info.expires <= now]
    if not isinstance(opened.store, TellsLeases):
        return due
    return [info for info in due if await opened.store.lease(info.id) is None]


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


@asynccontextmanager
async def hold_free(opened: Opened, session_id: str) -> AsyncIterator[None]:
    """No run works on the session within the block.

    Raises:
        SessionBusyError: one does now.
    """
    try:
        async with Leases().held(session_id, opened.store):
            yield
    except SessionBusyError as error:
        who = str(error).partition("; ")[0]  # what follows is advice for runs
        raise SessionBusyError(f"{who}: wait for its end, or delete it all the same with --force") from error


async def history_of(opened: Opened, info: SessionInfo) -> History:
    """The history of a session, its log read; a log that cannot be read is no reason to keep it."""
    messages, faults = 0, list[str]()
    transcripts, results = dict[str, float](), dict[str, float]()
    try:
        async with aclosing(_events(opened, info, faults.append)) as events:
            async for event in events:
                is_said = isinstance(event, MessageRecord)
                messages += is_said
                if (name := file_named_by(event)) is not None:
                    (results if is_said else transcripts).setdefault(name, event.time)
    except StoreError as error:
        faults.append(str(error))
    return History(
        info=info,
        messages=messages,
        transcripts=transcripts,
        results=results,
        fault=faults[0] if faults else None,
    )


async def _events(opened: Opened, info: SessionInfo, tell: Tell = say_nothing) -> AsyncGenerator[Event]:
    """What a session's log says, as far as it can be read; of the rest this is told."""
    async with aclosing(good_pages(opened.store, info, tell=tell)) as read:
        async for page in read:
            for record in page:
                yield record.event


def file_named_by(event: Event) -> str | None:
    """The transcript, or the file with the whole of a long result, that a record names."""
    match event:
        case MessageRecord(spilled=str(path)):
            return PurePath(path).name
        case Compacted(transcript=name) | NotCompacted(transcript=name):
            return name
    return None


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


async def mark_shared(opened: Opened, histories: Sequence[History]) -> Sequence[History]:
    """The histories, and which of their files the logs of sessions name that are not among them.

    Those of all owners and folders are looked at, since a file may be a session's and its copy's. A copy has
    the records of the first: one that has ended before a file was named, and was written, does not name it.
    What their texts say counts as well, since a copy that came as messages has nothing else; a forged one
    only keeps a file.
    """
    there = _files_in(opened.settings.transcripts)
    times = [(name, time) for history in histories for name, time in history.files.items()]
    written = (there[name].stat().st_mtime for name, _ in times if name in there)
    since = min((*(time for _, time in times), *written), default=math.inf)
    going, named = {history.info.id for history in histories}, set[str]()
    for info in await opened.store.list():
        if info.updated >= since and info.id not in going:
            named |= await _files_named_in(opened, info)
    return [replace(history, shared=named.intersection(history.files)) for history in histories]


async def _files_named_in(opened: Opened, info: SessionInfo) -> set[str]:
    """The files that the records of a log name, or texts in it; as far as it can be read."""
    names = set[str]()
    with suppress(StoreError):
        async with aclosing(_events(opened, info)) as events:
            async for event in events:
                names.update(filter(None, [file_named_by(event)]), _files_told_in(_text_of(event)))
    return names


def _text_of(event: Event) -> str:
    """What was said, or stands instead of something."""
    match event:
        case MessageRecord(message=message):
            return message.text
        case Compacted(replacement=text):
            return text
    return ""


def _files_told_in(text: str) -> Iterator[str]:
    """The files of which the text says that they hold what it does not."""
    for before in _BEFORE_NAMES:
        for behind in text.split(before)[1:]:
            yield from _FILE.findall(behind.partition("\n")[0])


async def remove_files(
    opened: Opened, history: History, tell: Tell, went_before: Collection[str] = ()
) -> Sequence[str]:
    """Delete what the history names in the folder of transcripts, and nothing else; the names that went.

    What stays is told, and why; what another session names that is not to go stays, too. Of the files that
    went with a session before it, nothing is said.

    Only a file that holds what was said in this session is taken for its own: another folder may hold a file
    of the same name.

    Raises:
        StoreError: the folder is a symbolic link, or a file cannot be read or removed.
    """
    folder, went = opened.settings.transcripts, list[str]()
    try:
        refuse_link(folder)
        there = _files_in(folder)
        said = await _said(opened, history.info) if there.keys() & history.own else _Said()
        for name in (name for name in history.own if name not in went_before):
            why = _reason_to_stay(name, history, there, said, opened)
            if why is None:
                there[name].unlink()
                went.append(name)
            else:
                tell(f"{_label(name, history)} {why}")
    except OSError as error:
        raise refused(folder, error) from error
    if history.shared:
        tell(f"what other sessions name, too, stays: {few(sorted(history.shared))}")
    return went


def _files_in(folder: Path) -> Mapping[str, Path]:
    """The transcripts and the files of long results in the folder, by their names.

    Raises:
        StoreError: it cannot be read.
    """
    try:
        with os.scandir(folder) as entries:
            there = [each.name for each in entries if each.is_file(follow_symlinks=False)]
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise refused(folder, error) from error
    return {name: folder / name for name in there if _FILE.fullmatch(name)}


def _label(name: str, history: History) -> str:
    return f"{'transcript' if name in history.transcripts else 'long result'} {name[:80]}"


def _reason_to_stay(
    name: str, history: History, there: Mapping[str, Path], said: _Said, opened: Opened
) -> str | None:
    """Why the file is not to go with the session; None where it is."""
    folder = opened.settings.transcripts
    if name not in there:
        return f"is not in {folder}"
    result = said.results.get(name)
    is_own = _holds_whole(there[name], result) if result else _was_said_in(there[name], said.messages, opened)
    return None if is_own else f"in {folder} is not known to be this session's: it stays"


def _was_said_in(path: Path, said: Collection[int], opened: Opened) -> bool:
    """Whether all of the transcript can be read, and was said in the session."""
    transcript = load(path)
    hashes = set(_hashes(transcript.messages, opened))
    return bool(hashes) and not transcript.damaged and hashes.issubset(said)


def _holds_whole(path: Path, result: MessageRecord) -> bool:
    """Whether the file holds the text of which the result shows the two ends, and says how long it is.

    A log may come from somebody else: a letter or two prove nothing.
    """
    begins, ends, total = ends_of(result.message.text, result.spilled or "")
    if len(begins) + len(ends) < _LEAST_SHOWN or path.stat().st_size > total * _MOST_BYTES:
        return False
    whole = path.read_bytes().decode("utf-8", "replace")
    return len(whole) == total and whole.startswith(begins) and whole.endswith(ends)


async def _said(opened: Opened, info: SessionInfo) -> _Said:
    said = _Said()
    with suppress(StoreError):
        async with aclosing(_events(opened, info)) as events:
            async for event in events:
                if isinstance(event, MessageRecord):
                    said.messages.update(_hashes([event.message], opened))
                    if (name := file_named_by(event)) is not None:
                        said.results[name] = event
    return said


def _hashes(messages: Iterable[Message], opened: Opened) -> Iterator[int]:
    """Each message as it is without secrets: a log may be older than its redaction."""
    redact = opened.settings.redact
    return (hash(json.dumps(redacted(message, redact).to_openai())) for message in messages)
