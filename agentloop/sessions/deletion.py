"""What goes with a session that is deleted: its log, those of its sub-agents, and the files that they name.

Transcripts and long results go where they hold what this session said, and where no session that stays names
them. They go first: a deletion that is killed can be repeated, since the log that names what is left is
still there.
"""

import json
import math
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath

from agentloop._plumbing.patterns import pattern
from agentloop._plumbing.private_files import refuse_link, refused
from agentloop._plumbing.truncate import few
from agentloop.bounds import MOST_RECORD_BYTES
from agentloop.errors import SessionBusyError, StoreError
from agentloop.events import Compacted, Event, MessageRecord, NotCompacted
from agentloop.messages import Message
from agentloop.prompts import COMPRESSED, SPILLED, ends_of
from agentloop.redaction import Redact, redacted
from agentloop.sessions.lease import Leases
from agentloop.sessions.pages import Tell, read_good_pages, say_nothing
from agentloop.sessions.transcripts import files_in, records_in
from agentloop.stores.base import SessionInfo, SessionStore

_BEFORE_NAMES = tuple(text.partition("{")[0] for text in (SPILLED, COMPRESSED))
"""What a text says right before the name of a file that holds what it does not."""
_LEAST_SHOWN = 50
"""So many characters of a long result have to be those of the file; as many are shown of any."""
_MOST_BYTES = 4
"""What a character takes in UTF-8."""
_FILE = pattern(r"result_[A-Za-z0-9_-]{1,255}\.txt|transcript_[0-9-]{1,255}\.jsonl")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """Deletes sessions of a store, and what is theirs in the folder of transcripts."""

    store: SessionStore
    transcripts: Path
    redact: Redact | None = None

    async def delete(
        self,
        going: Sequence[History],
        gone: Callable[[History, bool, Collection[str]], object],
        *,
        force: bool = False,
        keep_files: bool = False,
        tell: Tell = say_nothing,
    ) -> None:
        """Delete them, or none where a run works on one of them, unless it is to be by `force`.

        Of each it is told whether it was there, and the files that went so far; of files that stay, why.

        Raises:
            SessionBusyError: a run works on one of them.
            StoreError: see `remove_files`.
        """
        async with AsyncExitStack() as holding:
            for history in () if force else going:
                try:
                    await holding.enter_async_context(Leases().held(history.info.id, self.store))
                except SessionBusyError as error:
                    who = str(error).partition("; ")[0]  # what follows is advice for runs
                    raise SessionBusyError(
                        f"{who}: wait for its end, or delete it all the same by force (force=True, --force)"
                    ) from error
            went = set[str]()
            for history in going:
                if not keep_files:
                    went.update(await self.remove_files(history, tell, went))
                gone(history, await self.store.delete(history.info.id), went)

    async def history_of(self, info: SessionInfo) -> History:
        """The history of a session, its log read; a log that cannot be read is no reason to keep it."""
        messages, faults = 0, list[str]()
        transcripts, results = dict[str, float](), dict[str, float]()
        try:
            async with aclosing(self._events(info, faults.append)) as events:
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

    async def _events(self, info: SessionInfo, tell: Tell = say_nothing) -> AsyncGenerator[Event]:
        """What a session's log says, as far as it can be read; of the rest this is told."""
        async with aclosing(read_good_pages(self.store, info, tell=tell)) as read:
            async for page in read:
                for record in page:
                    yield record.event

    async def mark_shared(self, histories: Sequence[History]) -> Sequence[History]:
        """The histories, and which of their files the logs of sessions name that are not among them.

        Those of all owners and folders are looked at, since a file may be a session's and its copy's. A
        copy has the records of the first: one that has ended before a file was named, and was written, does
        not name it. What their texts say counts as well, since a copy that came as messages has nothing
        else; a forged one only keeps a file.
        """
        there = self._files()
        times = [(name, time) for history in histories for name, time in history.files.items()]
        written = (there[name].stat().st_mtime for name, _ in times if name in there)
        since = min((*(time for _, time in times), *written), default=math.inf)
        going, named = {history.info.id for history in histories}, set[str]()
        for info in await self.store.list():
            if info.updated >= since and info.id not in going:
                named |= await self._files_named_in(info)
        return [replace(history, shared=named.intersection(history.files)) for history in histories]

    def _files(self) -> Mapping[str, Path]:
        """The transcripts and the files of long results that are there, by their names."""
        folder = self.transcripts
        return {name: folder / name for name in files_in(folder) if _FILE.fullmatch(name)}

    async def _files_named_in(self, info: SessionInfo) -> set[str]:
        """The files that the records of a log name, or texts in it; as far as it can be read."""
        names = set[str]()
        with suppress(StoreError):
            async with aclosing(self._events(info)) as events:
                async for event in events:
                    names.update(filter(None, [file_named_by(event)]), _files_told_in(_text_of(event)))
        return names

    async def remove_files(
        self, history: History, tell: Tell, went_before: Collection[str] = ()
    ) -> Sequence[str]:
        """Delete what the history names in the folder of transcripts, and nothing else; the names that went.

        What stays is told, and why; what another session names that is not to go stays, too. Of the files
        that went with a session before it, nothing is said.

        Only a file that holds what was said in this session is taken for its own: another folder may hold a
        file of the same name.

        Raises:
            StoreError: the folder is a symbolic link, or a file cannot be read or removed.
        """
        folder, went = self.transcripts, list[str]()
        try:
            refuse_link(folder)
            there = self._files()
            said = await self._said(history.info) if there.keys() & history.own else _Said()
            for name in (name for name in history.own if name not in went_before):
                why = self._reason_to_stay(name, there, said)
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

    def _reason_to_stay(self, name: str, there: Mapping[str, Path], said: _Said) -> str | None:
        """Why the file is not to go with the session; None where it is."""
        if (path := there.get(name)) is None:
            return f"is not in {self.transcripts}"
        result = said.results.get(name)
        is_own = _holds_whole(path, result) if result else self._was_said_in(path, said.messages)
        return None if is_own else f"in {self.transcripts} is not known to be this session's: it stays"

    def _was_said_in(self, path: Path, said: Set[int]) -> bool:
        """Whether all of the transcript can be read, and was said in the session."""
        is_empty = True
        for message in records_in(path):
            if message is None or not set(self._hashes([message])) <= said:
                return False
            is_empty = False
        return not is_empty

    async def _said(self, info: SessionInfo) -> _Said:
        said = _Said()
        with suppress(StoreError):
            async with aclosing(self._events(info)) as events:
                async for event in events:
                    if isinstance(event, MessageRecord):
                        said.messages.update(self._hashes([event.message]))
                        if (name := file_named_by(event)) is not None:
                            said.results[name] = event
        return said

    def _hashes(self, messages: Iterable[Message]) -> Iterator[int]:
        """Each message as it is without secrets: a log may be older than its redaction."""
        redact = self.redact
        return (hash(json.dumps(redacted(message, redact).to_openai())) for message in messages)


def file_named_by(event: Event) -> str | None:
    """The transcript, or the file with the whole of a long result, that a record names."""
    match event:
        case MessageRecord(spilled=str(path)):
            return PurePath(path).name
        case Compacted(transcript=name) | NotCompacted(transcript=name):
            return name
    return None


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


def _label(name: str, history: History) -> str:
    return f"{'transcript' if name in history.transcripts else 'long result'} {name[:80]}"


def _holds_whole(path: Path, result: MessageRecord) -> bool:
    """Whether the file holds the text of which the result shows the two ends, and says how long it is.

    A log may come from somebody else: a letter or two prove nothing.
    """
    begins, ends, total = ends_of(result.message.text, result.spilled or "")
    most_bytes = min(total * _MOST_BYTES, MOST_RECORD_BYTES)
    if len(begins) + len(ends) < _LEAST_SHOWN or path.stat().st_size > most_bytes:
        return False
    whole = path.read_bytes().decode("utf-8", "replace")
    return len(whole) == total and whole.startswith(begins) and whole.endswith(ends)
