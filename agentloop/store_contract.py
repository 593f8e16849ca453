"""What every store must do, as checks for the tests of a store of your own.

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    async def test_my_store(check: Check) -> None:
        await check(MyStore())

Each check uses session ids that nobody else has, so the store may hold other sessions. A check raises
AssertionError where the store breaks its promise. They need nothing but the store: no pytest.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from agentloop.codec import decode, encode
from agentloop.errors import ConflictError, UsageError
from agentloop.events import Described, Event, MessageAdded, Record, Unknown
from agentloop.messages import Message
from agentloop.stores.base import SessionInfo, SessionStore

Check: TypeAlias = Callable[[SessionStore], Awaitable[None]]

BAD_IDS = ("", ".", "..", ".hidden", "../../x", "/etc/x", "a/b", "a\\b", "a\0b", "a\n", "é", "a" * 129)


async def store_contract(make_store: Callable[[], SessionStore]) -> None:
    """Every check on a store of its own, closed after it.

    Raises:
        AssertionError: a check failed; the text begins with its name.
    """
    for check in CHECKS:
        store = make_store()
        try:
            await check(store)
        except AssertionError as error:
            raise AssertionError(f"{check.__name__}: {error}") from error
        finally:
            await store.close()


async def keeps_every_record_in_order(store: SessionStore) -> None:
    """Records come back as they were, ids and times included, in the order and at the positions written."""
    name, events = _new_id(), [_said(text) for text in ("one", "two\0", "three\ud800", "четыре 🙂")]
    _same(await store.append(name, events[:3], expect=0), 3, "the new length is returned")
    _same(await store.append(name, events[3:], expect=3), 4, "the new length is returned")
    records = await store.read(name)
    _same([record.seq for record in records], [1, 2, 3, 4], "positions begin at 1 without gaps")
    _same(_texts(records), list(map(encode, events)), "what is read is what was written")


async def reads_what_lies_behind_a_position(store: SessionStore) -> None:
    """`after` leaves out the records up to that position; a session that is not there has none."""
    name = _new_id()
    _same(list(await store.read(name)), [], "no records before the first append")
    await store.append(name, [_said("one"), _said("two"), _said("three")], expect=0)
    for after, seqs in ((0, [1, 2, 3]), (1, [2, 3]), (3, []), (9, [])):
        records = await store.read(name, after=after)
        _same([record.seq for record in records], seqs, f"records after {after}")


async def refuses_another_length(store: SessionStore) -> None:
    """An append at any other length than the log's raises ConflictError and writes nothing."""
    name = _new_id()
    await _conflicts(store, name, [_said("too early")], expect=1, actual=0)
    await store.append(name, [_said("one"), _said("two")], expect=0)
    for expect in (-1, 0, 1, 3, 7):
        await _conflicts(store, name, [_said("late")], expect=expect, actual=2)
    await _conflicts(store, name, [], expect=1, actual=2)


async def takes_a_repeated_append_as_written(store: SessionStore) -> None:
    """The very same events sent again at the same place count as written, whatever follows them."""
    name, events, later = _new_id(), [_said("one"), _said("two")], [_said("three")]
    await store.append(name, events, expect=0)
    _same(await store.append(name, events, expect=0), 2, "a repeated append returns the same length")
    await store.append(name, later, expect=2)
    _same(await store.append(name, events, expect=0), 2, "also with other records behind it")
    _same(await store.append(name, later, expect=2), 3, "also for the newest record")
    _same(_texts(await store.read(name)), list(map(encode, events + later)), "nothing is written twice")


async def tells_equal_looking_events_apart(store: SessionStore) -> None:
    """Events of another writer that only look the same conflict; so does a half that is the same."""
    name, events = _new_id(), [_said("yes"), _said("go on")]
    await store.append(name, events, expect=0)
    await _conflicts(store, name, [_said("yes"), _said("go on")], expect=0, actual=2)
    await _conflicts(store, name, [events[0], _said("go on")], expect=0, actual=2)
    await _conflicts(store, name, [*events, _said("more")], expect=0, actual=2)
    await _conflicts(store, name, events[::-1], expect=0, actual=2)


async def writes_all_or_nothing(store: SessionStore) -> None:
    """One event that cannot be stored keeps back all of its append."""
    name = _new_id()
    await store.append(name, [_said("one")], expect=0)
    unsayable = MessageAdded(message=Message(role="user", extra={"x": object()}), tokens=1)
    try:
        await store.append(name, [_said("two"), unsayable], expect=1)
    except UsageError:
        _same(len(await store.read(name)), 1, "records after a refused append")
    else:
        raise AssertionError("an event that JSON cannot say must raise UsageError")


async def writes_nothing_for_no_events(store: SessionStore) -> None:
    """An append of no events makes no session."""
    name = _new_id()
    _same(await store.append(name, [], expect=0), 0, "the length of an empty log")
    _same([info for info in await store.list() if info.id == name], [], "sessions made by no events")


async def keeps_unknown_kinds(store: SessionStore) -> None:
    """A record that a newer version wrote comes back to the byte."""
    name, text = _new_id(), '{ "v":9, "kind":"dreamt", "id":"d1", "time":5, "of":["sheep"] }'
    await store.append(name, [_said("one"), decode(text)], expect=0)
    event = (await store.read(name))[1].event
    _same(type(event), Unknown, "the type of a record of an unknown kind")
    _same(encode(event), text, "the text of a record of an unknown kind")


async def lists_sessions(store: SessionStore) -> None:
    """The list has title, folder, times and length, newest update first; `folder` picks."""
    folder, old, new, other = f"/tmp/\udce9/{_new_id()}", _new_id(), _new_id(), _new_id()
    await store.append(new, [Described(folder=folder, time=10.0), _said("one", time=30.0)], expect=0)
    await store.append(old, [Described(title="Old", folder=folder, time=5.0)], expect=0)
    await store.append(other, [_said("elsewhere", time=40.0)], expect=0)
    await store.append(old, [Described(title="A\ud800", time=20.0)], expect=1)
    found = [_line(info) for info in await store.list(folder=folder)]
    _same(found, [(new, None, folder, 10.0, 30.0, 2), (old, "A\ud800", folder, 5.0, 20.0, 2)], "the list")
    every = [info.id for info in await store.list() if info.id in (old, new, other)]
    _same(every, [other, new, old], "the list of all folders")


async def deletes_a_session(store: SessionStore) -> None:
    """Deleting removes one session wholly; its id can be used again."""
    name, beside = _new_id(), _new_id()
    _same(await store.delete(name), False, "deleting what is not there")
    await store.append(name, [_said("one")], expect=0)
    await store.append(beside, [_said("other")], expect=0)
    _same(await store.delete(name), True, "deleting what is there")
    _same(list(await store.read(name)), [], "records of a deleted session")
    _same([info for info in await store.list() if info.id == name], [], "the list after deleting")
    _same(len(await store.read(beside)), 1, "records of another session")
    _same(await store.append(name, [_said("anew")], expect=0), 1, "the length of a session begun anew")


async def refuses_bad_ids(store: SessionStore) -> None:
    """A session id that is no plain name raises UsageError in every call; two cases are two sessions."""
    for bad in BAD_IDS:
        for call in (store.append(bad, [_said("x")], expect=0), store.read(bad), store.delete(bad)):
            try:
                await call
            except UsageError:
                continue
            raise AssertionError(f"the session id {bad[:20]!r} must raise UsageError")
    longest = "x" * 96 + _new_id()
    await store.append(longest, [_said("lower")], expect=0)
    _same(list(await store.read(longest.upper())), [], "records of the id in other case")


async def lets_racing_writers_lose_nothing(store: SessionStore) -> None:
    """Of writers that race, each wrote all of its records once or got a conflict and wrote none."""
    name, writers, rounds = _new_id(), 8, 5

    async def write(writer: int) -> None:
        for number in range(rounds):
            pair = [_said(f"{writer}.{number}.{half}") for half in (1, 2)]
            await _append_at_end(store, name, pair)

    await asyncio.gather(*(write(writer) for writer in range(writers)))
    said = [_text(record) for record in await store.read(name)]
    _same(len(said), writers * rounds * 2, "records after the race")
    for writer in range(writers):
        mine = [text for text in said if text.startswith(f"{writer}.")]
        wanted = [f"{writer}.{number}.{half}" for number in range(rounds) for half in (1, 2)]
        _same(mine, wanted, f"records of writer {writer}, in its order")
    pairs = [text[:-2] for text in said]
    _same(pairs[::2], pairs[1::2], "records of one append stand together")


async def closes_more_than_once(store: SessionStore) -> None:
    """Closing again is harmless."""
    await store.append(_new_id(), [_said("one")], expect=0)
    await store.close()
    await store.close()


async def _append_at_end(store: SessionStore, name: str, events: Sequence[Event]) -> None:
    while True:
        try:
            await store.append(name, events, expect=len(await store.read(name)))
        except ConflictError:
            await asyncio.sleep(0)
        else:
            return


async def _conflicts(
    store: SessionStore, name: str, events: Sequence[Event], *, expect: int, actual: int
) -> None:
    before = _texts(await store.read(name))
    try:
        await store.append(name, events, expect=expect)
    except ConflictError as error:
        _same((error.session_id, error.expected, error.actual), (name, expect, actual), "what it says")
    else:
        raise AssertionError(f"an append at {expect} to a log of {actual} records must raise ConflictError")
    _same(_texts(await store.read(name)), before, "the log after a conflict")


def _same(found: object, wanted: object, what: str) -> None:
    if found != wanted:
        raise AssertionError(f"{what}: wanted {wanted!r}, found {found!r}")


def _new_id() -> str:
    return uuid.uuid4().hex


def _said(text: str, *, time: float = 1.5) -> MessageAdded:
    return MessageAdded(message=Message.user(text), tokens=1, time=time)


def _text(record: Record) -> str:
    return record.event.message.text if isinstance(record.event, MessageAdded) else ""


def _texts(records: Sequence[Record]) -> list[str]:
    return [encode(record.event) for record in records]


def _line(info: SessionInfo) -> tuple[str, str | None, str | None, float, float, int]:
    return info.id, info.title, info.folder, info.created, info.updated, info.length


CHECKS: tuple[Check, ...] = (
    keeps_every_record_in_order,
    reads_what_lies_behind_a_position,
    refuses_another_length,
    takes_a_repeated_append_as_written,
    tells_equal_looking_events_apart,
    writes_all_or_nothing,
    writes_nothing_for_no_events,
    keeps_unknown_kinds,
    lists_sessions,
    deletes_a_session,
    refuses_bad_ids,
    lets_racing_writers_lose_nothing,
    closes_more_than_once,
)
