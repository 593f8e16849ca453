"""What goes with a session that is deleted, in words; and its transcripts, taken from their folder."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass

from agentloop.cli.lines import few, moment
from agentloop.cli.sessions.work import Opened, pages
from agentloop.errors import StoreError, UsageError
from agentloop.events import Compacted, MessageAdded, Record
from agentloop.messages import Message
from agentloop.ondisc import refuse_link, refused
from agentloop.redaction import redacted
from agentloop.stores import SessionInfo
from agentloop.transcripts import Loaded, listed, load


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A session, and what was read of its log: how many messages it holds, None where nobody has looked.

    `transcripts` are the names that its compactions give; `fault` says why the log could not be read whole.
    """

    info: SessionInfo
    messages: int | None = None
    transcripts: Sequence[str] = ()
    fault: str | None = None


async def history_of(opened: Opened, info: SessionInfo) -> History:
    """The history of a session, its log read; a log that cannot be read is no reason to keep it."""
    messages, fault, names = 0, None, dict[str, None]()
    try:
        async with aclosing(pages(opened.store, info)) as read:
            async for page in read:
                messages += sum(isinstance(record.event, MessageAdded) for record in page)
                names |= dict.fromkeys(_named(page))
    except StoreError as error:
        fault = str(error)
    return History(info=info, messages=messages, transcripts=tuple(names), fault=fault)


def in_words(history: History, *, go: Collection[str]) -> str:
    """What a session is, in one line, and what becomes of its transcripts: these go, the others stay."""
    info = history.info
    messages = "" if history.messages is None else f", {history.messages} messages"
    parts = [
        f"{info.id}{f' {info.title!r}' if info.title else ''}",
        f"{info.length} records{messages}, {moment(info.created)} to {moment(info.updated)}",
        *([f"folder {info.folder}"] if info.folder else []),
        *([f"owner {info.owner}"] if info.owner else []),
        *([f"its log cannot be read whole ({history.fault})"] if history.fault else []),
        *_fates(history.transcripts, go),
    ]
    return "; ".join(parts)


def _fates(names: Sequence[str], go: Collection[str]) -> Iterator[str]:
    going, staying = [name for name in names if name in go], [name for name in names if name not in go]
    if going:
        yield f"transcripts go: {few(going)}"
    if staying:
        yield f"transcripts stay: {few(staying)}"
    if not names:
        yield "transcripts stay"


def check_in_folder(opened: Opened, histories: Iterable[History]) -> None:
    """That the transcripts lie where they do by default, unless the call names their folder.

    Raises:
        UsageError: one does not, so that nobody can say where it is.
        StoreError: the folder cannot be read.
    """
    if any(option[0] == "--transcripts" for option in opened.settings.given):
        return
    folder = opened.settings.transcripts
    there = {path.name for path in listed(folder)}
    for history in histories:
        for name in history.transcripts:
            if name not in there:
                raise UsageError(
                    f"transcript {name[:80]} of session {history.info.id!r} is not in {folder}: name its "
                    "folder with --transcripts, or leave --with-transcripts out; nothing is deleted"
                )


async def remove_transcripts(opened: Opened, history: History, tell: Callable[[str], None]) -> Sequence[str]:
    """Delete what the history names in the folder of transcripts, and nothing else; the names that went.

    What stays is told, and why.

    Only a file whose messages are all of this session is taken for its transcript: another folder may hold
    a file of the same name.

    Raises:
        StoreError: the folder is a symbolic link, or a file cannot be read or removed.
    """
    folder, went = opened.settings.transcripts, list[str]()
    try:
        refuse_link(folder)
        there = {path.name: path for path in listed(folder)}
        said = await _said(opened, history.info) if there.keys() & history.transcripts else set()
        for name in history.transcripts:
            if name not in there:
                tell(f"transcript {name[:80]} is not in {folder}")
            elif _is_of(load(there[name]), said, opened):
                there[name].unlink()
                went.append(name)
            else:
                tell(f"transcript {there[name]} is not known to be this session's: it stays")
    except OSError as error:
        raise refused(folder, error) from error
    return went


def _is_of(transcript: Loaded, said: Collection[int], opened: Opened) -> bool:
    """Whether all of the transcript can be read, and was said in the session."""
    hashes = set(_hashes(transcript.messages, opened))
    return bool(hashes) and not transcript.damaged and hashes.issubset(said)


async def _said(opened: Opened, info: SessionInfo) -> set[int]:
    """The messages of the log, as far as it can be read, as hashes."""
    said: set[int] = set()
    with suppress(StoreError):
        async with aclosing(pages(opened.store, info)) as read:
            async for page in read:
                events = [record.event for record in page]
                said.update(_hashes((e.message for e in events if isinstance(e, MessageAdded)), opened))
    return said


def _named(page: Iterable[Record]) -> Iterator[str]:
    for record in page:
        if isinstance(record.event, Compacted) and record.event.transcript:
            yield record.event.transcript


def _hashes(messages: Iterable[Message], opened: Opened) -> Iterator[int]:
    """Each message as it is without secrets: a log may be older than its redaction."""
    redact = opened.settings.redact
    return (hash(json.dumps(redacted(message, redact).to_openai())) for message in messages)
