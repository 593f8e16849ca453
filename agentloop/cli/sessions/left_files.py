"""The files of a session in the folder of transcripts, which go with it where that is asked for."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from agentloop._plumbing.private_files import refuse_link, refused
from agentloop.cli.lines import few
from agentloop.cli.sessions.history import History, result_name, results_in
from agentloop.cli.sessions.reading import Tell, good_pages, untold
from agentloop.cli.sessions.work import Opened
from agentloop.errors import StoreError, UsageError
from agentloop.events import MessageAdded
from agentloop.messages import Message
from agentloop.prompts import head_and_tail
from agentloop.redaction import redacted
from agentloop.sessions import listed, load
from agentloop.stores import SessionInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a log says, as far as it can be read, that its files are held against.

    `messages` are hashes of all messages, `results` the long results by the names of their files.
    """

    messages: set[int] = field(default_factory=set)
    results: dict[str, MessageAdded] = field(default_factory=dict)


def check_in_folder(opened: Opened, histories: Iterable[History]) -> None:
    """That the files lie where they do by default, unless the call names their folder.

    Raises:
        UsageError: one does not, so that nobody can say where it is.
        StoreError: the folder cannot be read.
    """
    if any(option[0] == "--transcripts" for option in opened.settings.given):
        return
    folder = opened.settings.transcripts
    there = _there(folder)
    for history in histories:
        for name in history.files:
            if name not in there:
                raise UsageError(
                    f"{_called(name, history)} of session {history.info.id!r} is not in {folder}: name its "
                    "folder with --transcripts, or leave --with-transcripts out; nothing is deleted"
                )


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
        there = _there(folder)
        said = await _said(opened, history.info) if there.keys() & history.own else Said()
        for name in (name for name in history.own if name not in went_before):
            why = _why_it_stays(name, history, there, said, opened)
            if why is None:
                there[name].unlink()
                went.append(name)
            else:
                tell(f"{_called(name, history)} {why}")
    except OSError as error:
        raise refused(folder, error) from error
    if history.shared:
        tell(f"what other sessions name, too, stays: {few(sorted(history.shared))}")
    return went


def _there(folder: Path) -> Mapping[str, Path]:
    """The transcripts and the files of long results in the folder, by their names."""
    results = (path for path in folder.glob("result_*.txt") if path.is_file() and not path.is_symlink())
    return {path.name: path for path in (*listed(folder), *results)}


def _called(name: str, history: History) -> str:
    return f"{'transcript' if name in history.transcripts else 'long result'} {name[:80]}"


def _why_it_stays(
    name: str, history: History, there: Mapping[str, Path], said: Said, opened: Opened
) -> str | None:
    """Why the file is not to go with the session; None where it is."""
    folder = opened.settings.transcripts
    if name not in there:
        return f"is not in {folder}"
    result = said.results.get(name)
    is_own = _is_whole_of(there[name], result) if result else _is_of(there[name], said.messages, opened)
    return None if is_own else f"in {folder} is not known to be this session's: it stays"


def _is_of(path: Path, said: Collection[int], opened: Opened) -> bool:
    """Whether all of the transcript can be read, and was said in the session."""
    transcript = load(path)
    hashes = set(_hashes(transcript.messages, opened))
    return bool(hashes) and not transcript.damaged and hashes.issubset(said)


def _is_whole_of(path: Path, result: MessageAdded) -> bool:
    """Whether the file holds the text of which the result shows the two ends."""
    shown = head_and_tail(result.message.text, result.spilled or "")
    begins, ends = (part.encode("utf-8", "backslashreplace") for part in shown)
    whole = path.read_bytes()
    return bool(begins or ends) and whole.startswith(begins) and whole.endswith(ends)


async def _said(opened: Opened, info: SessionInfo) -> Said:
    said = Said()
    with suppress(StoreError):
        async with aclosing(good_pages(opened.store, info, tell=untold)) as read:
            async for page in read:
                events = [record.event for record in page]
                messages = (event.message for event in events if isinstance(event, MessageAdded))
                said.messages.update(_hashes(messages, opened))
                said.results.update({result_name(result): result for result in results_in(page)})
    return said


def _hashes(messages: Iterable[Message], opened: Opened) -> Iterator[int]:
    """Each message as it is without secrets: a log may be older than its redaction."""
    redact = opened.settings.redact
    return (hash(json.dumps(redacted(message, redact).to_openai())) for message in messages)
