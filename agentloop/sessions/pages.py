"""A stored log read in pages, so that no long one is in memory whole; damaged records refused or left out."""

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from agentloop.errors import DamagedError, StoreError
from agentloop.events import EventFilter, MessageRecord, Record, archived_in, holds, visible_in
from agentloop.messages import Message
from agentloop.sessions.importing import points_at
from agentloop.stores import SessionInfo, SessionStore

PAGE_RECORDS = 200
"""So many records are in memory at a time where a log is read through."""
Tell: TypeAlias = Callable[[str], None]
Pages: TypeAlias = Callable[[SessionStore, SessionInfo, EventFilter | None], AsyncGenerator[Sequence[Record]]]
"""What reads a log as `read_pages` does."""


def page_reader(damaged: str, tell: Tell) -> Pages:
    """How to read a log, as the option says it; of what is left out, this is told."""
    return read_pages if damaged == "refuse" else partial(read_good_pages, tell=tell)


async def read_pages(
    store: SessionStore, info: SessionInfo, only: EventFilter | None = None
) -> AsyncGenerator[Sequence[Record]]:
    """The log of a session in pieces, as long as it was when it was found.

    With `only`, the records of its range; what lies outside is not read, and may be damaged.

    Raises:
        StoreError: it cannot be read, is damaged, or was deleted meanwhile.
    """
    for after, most in _pieces(info, only):
        yield await _page(store, info, after, most)


async def read_good_pages(
    store: SessionStore, info: SessionInfo, only: EventFilter | None = None, *, tell: Tell
) -> AsyncGenerator[Sequence[Record]]:
    """The same without the records that are damaged or missing; each is told, with its position.

    Raises:
        StoreError: the store itself cannot be read, or the session was deleted meanwhile.
    """
    for after, most in _pieces(info, only):
        yield await _good(store, info, after, most, tell)


def in_sight(read: Pages, archived: bool) -> Pages:
    """The same without what the model sees, or without what it sees no more.

    The log is read twice: what hides a record stands behind it.
    """

    async def pages_of(
        store: SessionStore, info: SessionInfo, only: EventFilter | None = None
    ) -> AsyncGenerator[Sequence[Record]]:
        marks = [_mark(record) async for page in read(store, info, None) for record in page]
        wanted = archived_in(marks) if archived else visible_in(marks)
        async for page in read(store, info, only):
            yield [record for record in page if holds(wanted, record.seq)]

    return pages_of


def _mark(record: Record) -> Record:
    """The record without its message, which may be long."""
    event = record.event
    return (
        replace(record, event=replace(event, message=_NOTHING))
        if isinstance(event, MessageRecord)
        else record
    )


_NOTHING = Message.user("")


async def drop_dangling(
    read: AsyncGenerator[Sequence[Record]], only: EventFilter | None = None, *, tell: Tell
) -> AsyncGenerator[Sequence[Record]]:
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


async def _ended_early(store: SessionStore, info: SessionInfo, at: int) -> StoreError:
    """The fault of a log that holds no more than `at` records, without one being damaged."""
    ends = f"session {info.id!r} ends at record {at} of {info.length}"
    now = await store.info(info.id)
    if now is None or now.length < info.length:
        return StoreError(f"{ends}: it was deleted meanwhile")
    return DamagedError(f"{ends}: the store is damaged: restore a copy")


def say_nothing(_: str) -> None:
    """Nothing: what is read here is told of elsewhere, or was not asked about."""
