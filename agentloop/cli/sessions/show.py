"""`sessions list` and `show`: what the stored sessions hold."""

import json
import math
import re
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import PurePath
from textwrap import indent
from typing import Any, TypeAlias

import click

from agentloop.cli.options import STORE, Option, options
from agentloop.cli.sessions.command import HEADING, Opened, as_data, done, named, no_store, row
from agentloop.cli.terminal import StandardOutput, error_console, few, listing, moment, say
from agentloop.errors import DamagedError, StoreError
from agentloop.events import Compacted, EventFilter, MessageRecord, Record, select
from agentloop.prompts import COMPRESSED, SPILLED
from agentloop.redaction import redacted
from agentloop.sessions import export, heading, points_at, to_blocks
from agentloop.stores import SessionInfo, SessionStore

PAGE_RECORDS = 200
"""So many records are in memory at a time where a log is read through."""

DAMAGED: Sequence[Option[Any]] = (
    click.option(
        "--damaged",
        type=click.Choice(("refuse", "skip")),
        default="refuse",
        show_default=True,
        help="Stop at a damaged record, or leave each out and say so.",
    ),
)

Tell: TypeAlias = Callable[[str], None]
Pages: TypeAlias = Callable[[SessionStore, SessionInfo, EventFilter | None], AsyncGenerator[Sequence[Record]]]
"""What reads a log as `pages` does."""


async def pages(
    store: SessionStore, info: SessionInfo, only: EventFilter | None = None
) -> AsyncGenerator[Sequence[Record]]:
    """The log of a session in pieces, as long as it was when it was found.

    With `only`, the records of its range; what lies outside is not read, and may be damaged.

    Raises:
        StoreError: it cannot be read, is damaged, or was deleted meanwhile.
    """
    for after, most in _pieces(info, only):
        yield await _page(store, info, after, most)


async def good_pages(
    store: SessionStore, info: SessionInfo, only: EventFilter | None = None, *, tell: Tell
) -> AsyncGenerator[Sequence[Record]]:
    """The same without the records that are damaged or missing; each is told, with its position.

    Raises:
        StoreError: the store itself cannot be read, or the session was deleted meanwhile.
    """
    for after, most in _pieces(info, only):
        yield await _good(store, info, after, most, tell)


async def without_dangling(
    read: AsyncGenerator[list[Record]], only: EventFilter | None = None, *, tell: Tell
) -> AsyncGenerator[list[Record]]:
    """The pages without what points at a record that is left out of them, since no import takes that.

    Each is told, with its position. What lies outside of the range is not left out, but was not asked for.
    """
    lost, expected = set[int](), (only and only.first) or 1
    async for page in read:
        kept = list[Record]()
        for record in page:
            lost.update(range(expected, record.seq))
            expected = record.seq + 1
            gone = lost.intersection(points_at(record.event))
            if gone:
                lost.add(record.seq)
                tell(f"record {record.seq} is left out: it points at record {min(gone)}, which is left out")
            else:
                kept.append(record)
        yield kept


def pages_with(damaged: str, tell: Tell) -> Pages:
    """How to read a log, as the option says it; of what is left out, this is told."""
    return pages if damaged == "refuse" else partial(good_pages, tell=tell)


def warn(text: str) -> None:
    """A warning, on standard error."""
    say(error_console(), text, style="yellow")


def untold(_: str) -> None:
    """Nothing: what is read here is told of elsewhere, or was not asked about."""


def _pieces(info: SessionInfo, only: EventFilter | None) -> Iterator[tuple[int, int]]:
    """Behind which positions to read, and how many records."""
    first, last = (only.first or 1, only.last or info.length) if only else (1, info.length)
    end = min(last, info.length)
    return ((at, min(PAGE_RECORDS, end - at)) for at in range(first - 1, end, PAGE_RECORDS))


async def _page(store: SessionStore, info: SessionInfo, after: int, most: int) -> Sequence[Record]:
    page = await store.read(info.id, after=after, most=most)
    if len(page) < most:
        raise await _ended_early(store, info, after + len(page))
    return page


async def _ended_early(store: SessionStore, info: SessionInfo, at: int) -> StoreError:
    """The fault of a log that holds no more than `at` records, without one being damaged."""
    ends = f"session {info.id!r} ends at record {at} of {info.length}"
    now = await store.info(info.id)
    if now is None or now.length < info.length:
        return StoreError(f"{ends}: it was deleted meanwhile")
    return DamagedError(f"{ends}: the store is damaged: restore a copy")


async def _good(
    store: SessionStore, info: SessionInfo, after: int, most: int, tell: Tell
) -> Sequence[Record]:
    """What is good of a page: where it cannot be read, of each of its halves."""
    try:
        return await _page(store, info, after, most)
    except DamagedError as error:
        if await store.info(info.id) is None:  # which raises where it is the store that cannot be read
            raise
        if most == 1:
            tell(f"record {after + 1} is left out: {error}")
            return ()
    half = most // 2
    older = await _good(store, info, after, half, tell)
    return [*older, *await _good(store, info, after + half, most - half, tell)]


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
                messages += sum(isinstance(record.event, MessageRecord) for record in page)
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


def results_in(page: Iterable[Record]) -> Iterator[MessageRecord]:
    """The results of which a file holds the whole."""
    for record in page:
        if isinstance(record.event, MessageRecord) and record.event.spilled:
            yield record.event


def result_name(result: MessageRecord) -> str:
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
            case MessageRecord(message=message):
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


FORMATS = ("openai", "events", "markdown")


async def texts_of(
    opened: Opened,
    info: SessionInfo,
    shape: str,
    only: EventFilter | None = None,
    *,
    read: Pages = pages,
) -> AsyncGenerator[str]:
    """What an export in that format holds of the session, or of what the filter takes of it.

    Of a range, no other records are read; `read` is how.

    Events and Markdown hold one page in memory at a time. The list of messages holds the messages, since a
    result may stand anywhere behind its call.

    Raises:
        StoreError: the log cannot be read.
    """
    async with aclosing(_redacted(opened, read(opened.store, info, only))) as records:
        match shape:
            case "openai":
                said = [record async for page in records for record in page if _is_said(record)]
                for text in _list(export.to_openai(said, only=only)):
                    yield text
            case "events":
                async with aclosing(without_dangling(records, only, tell=warn)) as kept:
                    async for page in kept:
                        yield "".join(f"{line}\n" for line in export.to_events(page, only=only))
            case _:
                between = ""
                if info.title and (only is None or "described" in (only.kinds or ("described",))):
                    yield heading(redacted(info.title, opened.settings.redact))
                    between = "\n\n"
                async for page in records:
                    for block in to_blocks(select(page, only)):
                        yield between + block
                        between = "\n\n"
                yield "\n"


async def _redacted(opened: Opened, read: AsyncGenerator[Sequence[Record]]) -> AsyncGenerator[list[Record]]:
    async with aclosing(read):
        async for page in read:
            yield redacted(list(page), opened.settings.redact)


def _is_said(record: Record) -> bool:
    return isinstance(record.event, MessageRecord)


def _list(items: Sequence[Any]) -> Iterator[str]:
    """The items as one JSON list, indented, in pieces."""
    between = "[\n"
    for start in range(0, len(items), PAGE_RECORDS):
        yield between + ",\n".join(map(_item, items[start : start + PAGE_RECORDS]))
        between = ",\n"
    yield "\n]\n" if items else "[]\n"


def _item(data: Any) -> str:
    """Strict JSON: NaN and the infinities, which a model's server may have sent, become null."""
    try:
        text = json.dumps(data, indent=2, allow_nan=False)
    except ValueError:
        strict = json.loads(json.dumps(data), parse_constant=lambda _: None)
        text = json.dumps(strict, indent=2)
    return indent(text, "  ")


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="A JSON list.")
@click.option("--all", "everywhere", is_flag=True, help="Those of all folders, not only of this one.")
@options(STORE)
def list_(as_json: bool, everywhere: bool, **_: Any) -> int:
    """List them, newest first."""

    async def work(opened: Opened, output: StandardOutput) -> None:
        settings = opened.settings
        folder = None if everywhere else str(settings.workdir)
        stored = await opened.store.list(folder=folder, owner=settings.owner)
        if as_json:
            data = [as_data(info, settings) for info in stored]
            return await output.write(json.dumps(data, indent=2) + "\n")
        if not stored:
            hint = "" if everywhere else " of this folder; --all lists those of all folders"
            missing = no_store(settings)
            say(error_console(), f"no sessions: {missing}" if missing else f"no sessions{hint}")
        rows = [row(redacted(info, settings.redact)) for info in stored]
        return await output.write(listing(HEADING, rows, output))

    return done(work)


@click.command()
@click.argument("name", metavar="ID")
@options(DAMAGED, STORE)
def show(name: str, damaged: str, **_: Any) -> int:
    """Show what was said, whole, and where it was compacted."""

    async def work(opened: Opened, output: StandardOutput) -> None:
        info = await named(opened, name)
        await output.write(f"{row(redacted(info, opened.settings.redact))}\n")
        async with aclosing(texts_of(opened, info, "markdown", read=pages_with(damaged, warn))) as texts:
            async for text in texts:
                await output.write(text)

    return done(work)
