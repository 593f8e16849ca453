"""What goes with a session that is deleted: its log and the files that this names, in words."""

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from pathlib import PurePath

from agentloop.cli.lines import few, moment
from agentloop.cli.sessions.reading import good_pages, untold
from agentloop.cli.sessions.work import Opened
from agentloop.errors import StoreError
from agentloop.events import Compacted, MessageAdded, Record
from agentloop.prompts import COMPRESSED, SPILLED
from agentloop.stores import SessionInfo

_SAID_BEHIND = tuple(text.partition("{")[0] for text in (SPILLED, COMPRESSED))
"""What a text says right before the name of a file that holds what it does not."""

_FILE = re.compile(r"result_[\w-]{1,255}\.txt|transcript_[\d-]{1,255}\.jsonl", re.ASCII)


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


async def history_of(opened: Opened, info: SessionInfo) -> History:
    """The history of a session, its log read; a log that cannot be read is no reason to keep it."""
    messages, faults = 0, list[str]()
    transcripts, results = dict[str, float](), dict[str, float]()
    try:
        async with aclosing(good_pages(opened.store, info, tell=faults.append)) as read:
            async for page in read:
                messages += sum(isinstance(record.event, MessageAdded) for record in page)
                for name, time in _transcripts(page):
                    transcripts.setdefault(name, time)
                for result in results_in(page):
                    results.setdefault(result_name(result), result.time)
    except StoreError as error:
        faults.append(str(error))
    return History(
        info=info,
        messages=messages,
        transcripts=transcripts,
        results=results,
        fault=faults[0] if faults else None,
    )


async def with_shared(opened: Opened, histories: Sequence[History]) -> Sequence[History]:
    """The histories, and which of their files the logs of sessions name that are not among them.

    Those of all owners and folders are looked at, since a file may be a session's and its copy's. A copy has
    the records of the first: one that has ended before a file was named does not name it. What their texts
    say counts as well, since a copy that came as messages has nothing else; a forged one only keeps a file.
    """
    since = min((time for history in histories for time in history.files.values()), default=math.inf)
    going, named = {history.info.id for history in histories}, set[str]()
    for info in await opened.store.list():
        if info.updated >= since and info.id not in going:
            named |= await _named_in(opened, info)
    return [replace(history, shared=named.intersection(history.files)) for history in histories]


def results_in(page: Iterable[Record]) -> Iterator[MessageAdded]:
    """The results of which a file holds the whole."""
    for record in page:
        if isinstance(record.event, MessageAdded) and record.event.spilled:
            yield record.event


def result_name(result: MessageAdded) -> str:
    """How the file is called that holds the whole of this result."""
    return PurePath(result.spilled or "").name


def in_words(history: History, *, go: Collection[str]) -> str:
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
        *([] if history.files else ["transcripts and long results stay"]),
    ]
    return "; ".join(parts)


def _fates(what: str, names: Iterable[str], go: Collection[str]) -> Iterator[str]:
    going, staying = [name for name in names if name in go], [name for name in names if name not in go]
    if going:
        yield f"{what} go: {few(going)}"
    if staying:
        yield f"{what} stay: {few(staying)}"


async def _named_in(opened: Opened, info: SessionInfo) -> set[str]:
    """The files that the records of a log name, or texts in it; as far as it can be read."""
    names = set[str]()
    with suppress(StoreError):
        async with aclosing(good_pages(opened.store, info, tell=untold)) as read:
            async for page in read:
                names.update(name for name, _ in _transcripts(page))
                names.update(map(result_name, results_in(page)))
                names.update(name for text in _texts(page) for name in _told_in(text))
    return names


def _texts(page: Iterable[Record]) -> Iterator[str]:
    """What was said, and what stands instead of something."""
    for record in page:
        match record.event:
            case MessageAdded(message=message):
                yield message.text
            case Compacted(replacement=str(text)):
                yield text


def _told_in(text: str) -> Iterator[str]:
    """The files of which the text says that they hold what it does not."""
    for before in _SAID_BEHIND:
        for behind in text.split(before)[1:]:
            yield from _FILE.findall(behind.partition("\n")[0])


def _transcripts(page: Iterable[Record]) -> Iterator[tuple[str, float]]:
    for record in page:
        if isinstance(record.event, Compacted) and record.event.transcript:
            yield record.event.transcript, record.event.time
