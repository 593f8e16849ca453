"""Checks of the log: what is appended, what is read, and who is refused."""

import asyncio
import math
from collections.abc import Sequence
from typing import Any

from agentloop.codec import decode, encode
from agentloop.errors import ConflictError, UsageError
from agentloop.events import Cleared, ClearedItem, Described, Event, MessageAdded, Noted, Unknown
from agentloop.messages import Message, ToolCall
from agentloop.store_contract.asserting import Check, conflicts, new_id, said, same, text_of, texts_of
from agentloop.stores.base import SessionStore


async def keeps_every_record_in_order(store: SessionStore) -> None:
    """Records come back as they were, ids and times included, in the order and at the positions written."""
    name, events = new_id(), [said(text) for text in ("one", "two\0", "three\ud800", "четыре 🙂")]
    same(await store.append(name, events[:3], expect=0), 3, "the new length is returned")
    same(await store.append(name, events[3:], expect=3), 4, "the new length is returned")
    records = await store.read(name)
    same([record.seq for record in records], [1, 2, 3, 4], "positions begin at 1 without gaps")
    same(texts_of(records), list(map(encode, events)), "what is read is what was written")


async def reads_what_lies_behind_a_position(store: SessionStore) -> None:
    """`after` leaves out the records up to that position; a session that is not there has none."""
    name = new_id()
    same(list(await store.read(name)), [], "no records before the first append")
    await store.append(name, [said("one"), said("two"), said("three")], expect=0)
    for after, seqs in ((0, [1, 2, 3]), (1, [2, 3]), (3, []), (9, [])):
        records = await store.read(name, after=after)
        same([record.seq for record in records], seqs, f"records after {after}")


async def hands_out_nothing_that_changes_the_log(store: SessionStore) -> None:
    """Who keeps what was appended or read, and changes a dict in it, changes nothing of the log."""
    name, written = new_id(), _changeable()
    texts = list(map(encode, written))
    await store.append(name, written, expect=0)
    for event in written:
        _scribble(event)
    same(texts_of(await store.read(name)), texts, "records once what was appended was changed")
    for record in await store.read(name):
        _scribble(record.event)
    same(texts_of(await store.read(name)), texts, "records once what was read was changed")


async def reads_no_more_than_asked(store: SessionStore) -> None:
    """`most` bounds how many of the records behind a position are read."""
    name = new_id()
    await store.append(name, [said("one"), said("two"), said("three")], expect=0)
    for after, most, seqs in ((0, 2, [1, 2]), (1, 1, [2]), (1, 5, [2, 3]), (3, 1, []), (0, 0, [])):
        records = await store.read(name, after=after, most=most)
        same([record.seq for record in records], seqs, f"at most {most} records after {after}")


async def refuses_another_length(store: SessionStore) -> None:
    """An append at any other length than the log's raises ConflictError and writes nothing."""
    name = new_id()
    await conflicts(store, name, [said("too early")], expect=1, actual=0)
    await store.append(name, [said("one"), said("two")], expect=0)
    for expect in (-1, 0, 1, 3, 7):
        await conflicts(store, name, [said("late")], expect=expect, actual=2)
    await conflicts(store, name, [], expect=1, actual=2)


async def takes_positions_of_any_size(store: SessionStore) -> None:
    """A position or number that no log gets near is beyond its end, or before its beginning."""
    name, huge = new_id(), 2**70
    await store.append(name, [said("one"), said("two")], expect=0)
    for after, most, seqs in (
        (huge, None, []),
        (-huge, None, [1, 2]),
        (1, huge, [2]),
        (huge, huge, []),
        (-huge, 1, [1]),
    ):
        records = await store.read(name, after=after, most=most)
        same([record.seq for record in records], seqs, f"at most {most} records after {after}")
    for expect in (huge, -huge):
        await conflicts(store, name, [said("late")], expect=expect, actual=2)
        await conflicts(store, new_id(), [said("early"), Described(title="T")], expect=expect, actual=0)
        await conflicts(store, name, [], expect=expect, actual=2)


async def refuses_a_time_that_is_no_number(store: SessionStore) -> None:
    """A record whose time no list can be sorted by raises UsageError, and keeps back all of its append."""
    name = new_id()
    await store.append(name, [said("one", time=1.0)], expect=0)
    before = await store.info(name)
    for bad in (math.nan, math.inf, -math.inf, 10**400):
        for event in (
            said("two", time=bad),
            Unknown(kind="dreamt", body='{"v":1,"kind":"dreamt"}', time=bad),
        ):
            try:
                await store.append(name, [said("fine"), event], expect=1)
            except UsageError:
                continue
            raise AssertionError(f"a record of the time {str(bad)[:20]} must raise UsageError")
    same(await store.info(name), before, "the session's line after refused times")
    for large in (-1e308, 10**300, 1e308):
        await store.append(name, [said("far", time=large)], expect=len(await store.read(name)))
        info = await store.info(name)
        same(info and info.updated, max(float(large), 1.0), "the latest time of all")


async def takes_a_repeated_append_as_written(store: SessionStore) -> None:
    """The very same events sent again at the same place count as written, whatever follows them."""
    name, events, later = new_id(), [said("one"), said("two")], [said("three")]
    await store.append(name, events, expect=0)
    same(await store.append(name, events, expect=0), 2, "a repeated append returns the same length")
    await store.append(name, later, expect=2)
    same(await store.append(name, events, expect=0), 2, "also with other records behind it")
    same(await store.append(name, later, expect=2), 3, "also for the newest record")
    same(texts_of(await store.read(name)), list(map(encode, events + later)), "nothing is written twice")


async def tells_equal_looking_events_apart(store: SessionStore) -> None:
    """Events of another writer that only look the same conflict; so does a half that is the same."""
    name, events = new_id(), [said("yes"), said("go on")]
    await store.append(name, events, expect=0)
    await conflicts(store, name, [said("yes"), said("go on")], expect=0, actual=2)
    await conflicts(store, name, [events[0], said("go on")], expect=0, actual=2)
    await conflicts(store, name, [*events, said("more")], expect=0, actual=2)
    await conflicts(store, name, events[::-1], expect=0, actual=2)


async def writes_all_or_nothing(store: SessionStore) -> None:
    """One event that cannot be stored keeps back all of its append."""
    name = new_id()
    await store.append(name, [said("one")], expect=0)
    unsayable = MessageAdded(message=Message(role="user", extra={"x": object()}), tokens=1)
    try:
        await store.append(name, [said("two"), unsayable], expect=1)
    except UsageError:
        same(len(await store.read(name)), 1, "records after a refused append")
    else:
        raise AssertionError("an event that JSON cannot say must raise UsageError")


async def writes_nothing_for_no_events(store: SessionStore) -> None:
    """An append of no events makes no session."""
    name = new_id()
    same(await store.append(name, [], expect=0), 0, "the length of an empty log")
    same([info for info in await store.list() if info.id == name], [], "sessions made by no events")


async def keeps_unknown_kinds(store: SessionStore) -> None:
    """A record that a newer version wrote comes back to the byte."""
    name, text = new_id(), '{ "v":9, "kind":"dreamt", "id":"d1", "time":5, "of":["sheep"] }'
    await store.append(name, [said("one"), decode(text)], expect=0)
    event = (await store.read(name))[1].event
    same(type(event), Unknown, "the type of a record of an unknown kind")
    same(encode(event), text, "the text of a record of an unknown kind")


async def lets_racing_writers_lose_nothing(store: SessionStore) -> None:
    """Of writers that race, each wrote all of its records once or got a conflict and wrote none."""
    name, writers, rounds = new_id(), 8, 5

    async def write(writer: int) -> None:
        for number in range(rounds):
            pair = [said(f"{writer}.{number}.{half}") for half in (1, 2)]
            await _append_at_end(store, name, pair)

    await asyncio.gather(*(write(writer) for writer in range(writers)))
    found = [text_of(record) for record in await store.read(name)]
    same(len(found), writers * rounds * 2, "records after the race")
    for writer in range(writers):
        mine = [text for text in found if text.startswith(f"{writer}.")]
        wanted = [f"{writer}.{number}.{half}" for number in range(rounds) for half in (1, 2)]
        same(mine, wanted, f"records of writer {writer}, in its order")
    pairs = [text[:-2] for text in found]
    same(pairs[::2], pairs[1::2], "records of one append stand together")


def _changeable() -> list[Event]:
    """Events that hold what Python lets one change."""
    parts = Message.from_openai({"role": "user", "content": [{"type": "text", "text": "a"}], "x": ["b"]})
    call = ToolCall(id="c", name="n", extra={"signature": {"a": 1}})
    return [
        said("plain"),
        MessageAdded(message=parts, tokens=1),
        MessageAdded(message=Message.assistant(None, [call]), tokens=1),
        Cleared(items=(ClearedItem(seq=1, message=parts, tokens=1),)),
        Noted(source="p", data={"k": ["v"]}),
    ]


def _scribble(event: Event) -> None:
    """Change all of it that can be changed."""
    match event:
        case Noted(data=data):
            data["k"].append("more")
        case MessageAdded(message=message):
            _scribble_on(message)
        case Cleared(items=items):
            for item in items:
                _scribble_on(item.message)


def _scribble_on(message: Message) -> None:
    changeable: list[Any] = [message.extra, *(call.extra for call in message.tool_calls)]
    changeable += message.content if isinstance(message.content, tuple) else ()
    for fields in changeable:
        fields.update(more=1, text="scribbled", signature="scribbled")


async def _append_at_end(store: SessionStore, name: str, events: Sequence[Event]) -> None:
    while True:
        try:
            await store.append(name, events, expect=len(await store.read(name)))
        except ConflictError:
            await asyncio.sleep(0)
        else:
            return


CHECKS: tuple[Check, ...] = (
    keeps_every_record_in_order,
    reads_what_lies_behind_a_position,
    hands_out_nothing_that_changes_the_log,
    reads_no_more_than_asked,
    refuses_another_length,
    takes_positions_of_any_size,
    refuses_a_time_that_is_no_number,
    takes_a_repeated_append_as_written,
    tells_equal_looking_events_apart,
    writes_all_or_nothing,
    writes_nothing_for_no_events,
    keeps_unknown_kinds,
    lets_racing_writers_lose_nothing,
)
