"""What every store must do, as checks for the tests of a store of your own.

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    async def test_my_store(check: Check) -> None:
        await check(MyStore())

Each check uses session ids that nobody else has, so the store may hold other sessions. A check raises
AssertionError where the store breaks its promise. They need nothing but the store: no pytest. What a store
may have beside the log (`ChecksItself`, `FindsWords`, `KeepsCheckpoints`, `GrantsLeases`, `TellsLeases`) is
checked where it has it.

Laws first: the log, the list, sweeps, self-checks, searches, checkpoints, leases. What they are written with
(`begin`, `same`, `refused`) stands last.
"""

import asyncio
import math
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, wraps
from typing import Any, Protocol, TypeAlias

from agentloop.codec import decode, encode
from agentloop.errors import ConflictError, UsageError
from agentloop.events import (
    Cleared,
    ClearedItem,
    Compacted,
    Described,
    Event,
    MediaRecord,
    MessageRecord,
    ModelCalled,
    Noted,
    Record,
    Unknown,
    kind_name,
)
from agentloop.messages import Message, ToolCall
from agentloop.stores.base import (
    Checkpoint,
    ChecksItself,
    FindsWords,
    Found,
    GrantsLeases,
    KeepsCheckpoints,
    Lease,
    SessionInfo,
    SessionStore,
    TellsLeases,
    branch_id,
    media_log,
)

Check: TypeAlias = Callable[[SessionStore], Awaitable[None]]
_laws: list[Check] = []
LONG, SHORT = 600.0, 0.05
BAD_IDS = ("", ".", "..", ".hidden", "../../x", "/etc/x", "a/b", "a\\b", "a\0b", "a\n", "é", "a" * 129)
WORDLESS = ("", " ", '""', "*", "?!", '"', "\0", "\ud800", "🙂")


async def store_contract(make_store: Callable[[], SessionStore]) -> None:
    """Every check on a store of its own, closed after it.

    Raises:
        AssertionError: checks failed; for each a line that begins with its name.
    """
    failed = [line for check in CHECKS if (line := await _failure(check, make_store()))]
    if failed:
        raise AssertionError("\n".join(failed))


async def _failure(check: Check, store: SessionStore) -> str | None:
    """What the check finds wrong, in one line; None for nothing."""
    try:
        await check(store)
    except AssertionError as error:
        return f"{check.__name__}: {error}"
    except Exception as error:  # noqa: BLE001 — a store of somebody's own may raise anything
        return f"{check.__name__}: it raised {type(error).__name__}: {error}"
    finally:
        await store.close()
    return None


def law(*verbs: type) -> Callable[[Callable[[Any], Awaitable[None]]], Check]:
    """Adds a check to `CHECKS`; of verbs that a store need not have, one without them passes it."""

    def add(check: Callable[[Any], Awaitable[None]]) -> Check:
        @wraps(check)
        async def checked(store: SessionStore) -> None:
            if all(isinstance(store, each) for each in verbs):
                await check(store)

        _laws.append(checked)
        return checked

    return add


class _Store(SessionStore, ChecksItself, FindsWords, KeepsCheckpoints, GrantsLeases, TellsLeases, Protocol):
    """A store with all that it may have: a check calls only what its law names."""


@law()
async def keeps_every_record_in_order(store: SessionStore) -> None:
    """Records come back as they were, ids and times included, in the order and at the positions written."""
    name, events = new_id(), [said(text) for text in ("one", "two\0", "three\ud800", "четыре 🙂")]
    same(await store.append(name, events[:3], expect=0), 3, "the new length is returned")
    same(await store.append(name, events[3:], expect=3), 4, "the new length is returned")
    records = await store.read(name)
    same([record.seq for record in records], [1, 2, 3, 4], "positions begin at 1 without gaps")
    same(texts_of(records), list(map(encode, events)), "what is read is what was written")


@law()
async def reads_what_is_asked_for(store: SessionStore) -> None:
    """`after` leaves out the records up to that position, `most` bounds how many behind it are read.

    A number that no log gets near is beyond its end, or before its beginning; a session that is not there
    has no records.
    """
    same(list(await store.read(new_id())), [], "no records before the first append")
    name, huge = await begin(store, said("one"), said("two"), said("three")), 2**70
    for after, most, seqs in (
        (0, None, [1, 2, 3]),
        (1, None, [2, 3]),
        (3, None, []),
        (9, None, []),
        (huge, None, []),
        (-huge, None, [1, 2, 3]),
        (0, 2, [1, 2]),
        (1, 1, [2]),
        (1, 5, [2, 3]),
        (3, 1, []),
        (0, 0, []),
        (1, huge, [2, 3]),
        (huge, huge, []),
        (-huge, 1, [1]),
    ):
        records = await store.read(name, after=after, most=most)
        same([record.seq for record in records], seqs, f"at most {most} records after {after}")


@law()
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


@law()
async def refuses_another_length(store: SessionStore) -> None:
    """An append at any other length than the log's raises ConflictError and writes nothing."""
    huge = 2**70
    for expect in (1, huge, -huge):
        await conflicts(store, new_id(), [said("early"), Described(title="T")], expect=expect, actual=0)
    name = await begin(store, said("one"), said("two"))
    for expect in (-1, 0, 1, 3, 7, huge, -huge):
        await conflicts(store, name, [said("late")], expect=expect, actual=2)
    for expect in (1, huge, -huge):
        await conflicts(store, name, [], expect=expect, actual=2)


@law()
async def refuses_a_time_that_is_no_number(store: SessionStore) -> None:
    """A record whose time no list can be sorted by raises UsageError, and keeps back all of its append."""
    name = await begin(store, said("one", time=1.0))
    before = await store.info(name)
    for bad in (math.nan, math.inf, -math.inf, 10**400):
        for event in (
            said("two", time=bad),
            Unknown(kind="dreamt", body='{"v":1,"kind":"dreamt"}', time=bad),
        ):
            with refused(f"a record of the time {str(bad)[:20]}"):
                await store.append(name, [said("fine"), event], expect=1)
    same(await store.info(name), before, "the session's line after refused times")
    for large in (-1e308, 10**300, 1e308):
        await store.append(name, [said("far", time=large)], expect=len(await store.read(name)))
        info = await store.info(name)
        same(info and info.updated, max(float(large), 1.0), "the latest time of all")


@law()
async def takes_a_repeated_append_as_written(store: SessionStore) -> None:
    """The very same events sent again at the same place count as written, whatever follows them."""
    name, events, later = new_id(), [said("one"), said("two")], [said("three")]
    await store.append(name, events, expect=0)
    same(await store.append(name, events, expect=0), 2, "a repeated append returns the same length")
    await store.append(name, later, expect=2)
    same(await store.append(name, events, expect=0), 2, "also with other records behind it")
    same(await store.append(name, later, expect=2), 3, "also for the newest record")
    same(texts_of(await store.read(name)), list(map(encode, events + later)), "nothing is written twice")


@law()
async def tells_equal_looking_events_apart(store: SessionStore) -> None:
    """Events of another writer that only look the same conflict; so does a half that is the same."""
    events = [said("yes"), said("go on")]
    name = await begin(store, *events)
    await conflicts(store, name, [said("yes"), said("go on")], expect=0, actual=2)
    await conflicts(store, name, [events[0], said("go on")], expect=0, actual=2)
    await conflicts(store, name, [*events, said("more")], expect=0, actual=2)
    await conflicts(store, name, events[::-1], expect=0, actual=2)


@law()
async def writes_all_or_nothing(store: SessionStore) -> None:
    """One event that cannot be stored keeps back all of its append."""
    name = await begin(store, said("one"))
    unsayable = MessageRecord(message=Message(role="user", extra={"x": object()}), tokens=1)
    with refused("an event that JSON cannot say"):
        await store.append(name, [said("two"), unsayable], expect=1)
    same(len(await store.read(name)), 1, "records after a refused append")


@law()
async def writes_nothing_for_no_events(store: SessionStore) -> None:
    """An append of no events makes no session."""
    name = new_id()
    same(await store.append(name, [], expect=0), 0, "the length of an empty log")
    same([info for info in await store.list() if info.id == name], [], "sessions made by no events")


@law()
async def keeps_unknown_kinds(store: SessionStore) -> None:
    """A record that a newer version wrote comes back to the byte."""
    name, text = new_id(), '{ "v":9, "kind":"dreamt", "id":"d1", "time":5, "of":["sheep"] }'
    await store.append(name, [said("one"), decode(text)], expect=0)
    event = (await store.read(name))[1].event
    same(type(event), Unknown, "the type of a record of an unknown kind")
    same(encode(event), text, "the text of a record of an unknown kind")


@law()
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


async def _append_at_end(store: SessionStore, name: str, events: Sequence[Event]) -> None:
    while True:
        try:
            await store.append(name, events, expect=len(await store.read(name)))
        except ConflictError:
            await asyncio.sleep(0)
        else:
            return


def _changeable() -> list[Event]:
    """Events that hold what Python lets one change."""
    parts = Message.from_openai({"role": "user", "content": [{"type": "text", "text": "a"}], "x": ["b"]})
    call = ToolCall(id="c", name="n", extra={"signature": {"a": 1}})
    return [
        said("plain"),
        MessageRecord(message=parts, tokens=1),
        MessageRecord(message=Message.assistant(None, [call]), tokens=1),
        Cleared(items=(ClearedItem(seq=1, message=parts, tokens=1),)),
        Noted(source="p", data={"k": ["v"]}),
    ]


def _scribble(event: Event) -> None:
    """Change all of it that can be changed."""
    match event:
        case Noted(data=data):
            data["k"].append("more")
        case MessageRecord(message=message):
            _scribble_on(message)
        case Cleared(items=items):
            for item in items:
                _scribble_on(item.message)


def _scribble_on(message: Message) -> None:
    changeable: list[Any] = [message.extra, *(call.extra for call in message.tool_calls)]
    changeable += message.content if isinstance(message.content, tuple) else ()
    for fields in changeable:
        fields.update(more=1, text="scribbled", signature="scribbled")


@law()
async def lists_sessions(store: SessionStore) -> None:
    """The list has title, folder, times and length, newest update first; `folder` picks."""
    folder, old, new, other = f"/tmp/\udce9/{new_id()}", new_id(), new_id(), new_id()
    await store.append(new, [Described(folder=folder, time=10.0), said("one", time=30.0)], expect=0)
    await store.append(old, [Described(title="Old", folder=folder, time=5.0)], expect=0)
    await store.append(other, [said("elsewhere", time=40.0)], expect=0)
    await store.append(old, [Described(title="A\ud800", time=20.0)], expect=1)
    found = [_line(info) for info in await store.list(folder=folder)]
    same(found, [(new, None, folder, 10.0, 30.0, 2), (old, "A\ud800", folder, 5.0, 20.0, 2)], "the list")
    every = [info.id for info in await store.list() if info.id in (old, new, other)]
    same(every, [other, new, old], "the list of all folders")


@law()
async def knows_one_session(store: SessionStore) -> None:
    """`info` is the session's line in the list; None where there is no session."""
    name = new_id()
    same(await store.info(name), None, "the line of a session that is not there")
    await store.append(name, [Described(title="T", owner="me", ttl_seconds=5.0, time=1.0)], expect=0)
    await store.append(name, [said("one", time=3.0)], expect=1)
    wanted = SessionInfo(
        id=name, title="T", folder=None, created=1.0, updated=3.0, length=2, owner="me", ttl_seconds=5.0
    )
    same(await store.info(name), wanted, "the session's line")
    same([info for info in await store.list() if info.id == name], [wanted], "its line in the list")


@law()
async def keeps_the_latest_time(store: SessionStore) -> None:
    """A record of an earlier time, by a clock that was set back, makes no session older."""
    name = new_id()
    records = [Described(owner=name, ttl_seconds=60.0, time=1_000.0), said("before", time=5.0)]
    await store.append(name, records, expect=0)
    for at, event in ((2, said("long ago", time=1.0)), (3, Described(title="T", time=2.0))):
        await store.append(name, [event], expect=at)
        info = await store.info(name)
        same(info and (info.created, info.updated), (1_000.0, 1_000.0), "its times after an earlier record")
    same(list(await store.sweep(owner=name, now=1_050.0)), [], "what is swept of a session in use")


@law()
async def lists_an_owners_sessions(store: SessionStore) -> None:
    """With `owner` the list holds that owner's sessions alone, and those of a folder with both."""
    owner, folder, mine, also, others, nobodys = (new_id() for _ in range(6))
    await store.append(mine, [Described(owner=owner, folder=folder, time=1.0)], expect=0)
    await store.append(others, [Described(owner=f"{owner}2", folder=folder, time=2.0)], expect=0)
    await store.append(nobodys, [Described(folder=folder, time=3.0)], expect=0)
    await store.append(also, [said("one", time=4.0), Described(owner=owner, time=4.0)], expect=0)
    same([info.id for info in await store.list(owner=owner)], [also, mine], "an owner's sessions")
    same([info.id for info in await store.list(owner=owner, folder=folder)], [mine], "of a folder")
    same([info.id for info in await store.list(owner=new_id())], [], "sessions of an owner without any")
    await store.append(mine, [Described(owner=f"{owner}2", time=5.0)], expect=1)
    same([info.id for info in await store.list(owner=owner)], [also], "once one was given away")


@law()
async def deletes_a_session(store: SessionStore) -> None:
    """Deleting removes one session wholly; its id can be used again."""
    name, beside = new_id(), new_id()
    same(await store.delete(name), False, "deleting what is not there")
    await store.append(name, [said("one")], expect=0)
    await store.append(beside, [said("other")], expect=0)
    same(await store.delete(name), True, "deleting what is there")
    same(list(await store.read(name)), [], "records of a deleted session")
    same([info for info in await store.list() if info.id == name], [], "the list after deleting")
    same(len(await store.read(beside)), 1, "records of another session")
    same(await store.append(name, [said("anew")], expect=0), 1, "the length of a session begun anew")


@law()
async def keeps_branches_with_their_session(store: SessionStore) -> None:
    """The logs of a session's sub-agents are listed with it alone, and go with it, in a sweep too.

    Those of its images and files are never listed, and go with it too.
    """
    owner, gone, swept = new_id(), new_id(), new_id()
    for name in (gone, swept, f"{gone}x"):
        ttl = 1.0 if name == swept else None
        await store.append(name, [Described(owner=owner, ttl_seconds=ttl, time=2.0)], expect=0)
        for at, branch in enumerate(("scout.1", "scout.1.inner.2", "a")):
            log = [Described(owner=owner, time=3.0 - at)]
            await store.append(branch_id(name, branch), log, expect=0)
        await store.append(media_log(name, "0f"), [MediaRecord(url="data:image/png;base64,")], expect=0)
    same({info.id for info in await store.list(owner=owner)}, {gone, swept, f"{gone}x"}, "the list")
    branches = [f"{gone}~scout.1", f"{gone}~scout.1.inner.2", f"{gone}~a"]
    same([info.id for info in await store.list(branches_of=gone)], branches, "the logs of its sub-agents")
    same(await store.delete(gone), True, "deleting what has branches")
    same([info.id for info in await store.sweep(owner=owner, now=7.0)], [swept], "sweeping what has branches")
    for name, left in ((gone, 0), (swept, 0), (f"{gone}x", 3)):
        same(len(await store.list(branches_of=name)), left, "branches that are left")
    same(len(await store.read(f"{gone}x~scout.1")), 1, "records of another session's branch")
    kept = [len(await store.read(media_log(name, "0f"))) for name in (gone, swept, f"{gone}x")]
    same(kept, [0, 0, 1], "images of the sessions")


@law()
async def refuses_bad_ids(store: SessionStore) -> None:
    """A session id that is no plain name raises UsageError in every call; two cases are two sessions."""
    for bad in BAD_IDS:
        for call in _calls_with(store, bad):
            with refused(f"the session id {bad[:20]!r}"):
                await call()
    longest = "x" * 96 + new_id()
    await store.append(longest, [said("lower")], expect=0)
    same(list(await store.read(longest.upper())), [], "records of the id in other case")


@law()
async def closes_more_than_once(store: SessionStore) -> None:
    """Closing again is harmless."""
    await store.append(new_id(), [said("one")], expect=0)
    await store.close()
    await store.close()


@law()
async def opens_again_after_it_was_closed(store: SessionStore) -> None:
    """Who is used after `close` opens again, and has what was written before."""
    name = new_id()
    await store.close()
    same(await store.append(name, [said("one")], expect=0), 1, "the length, appended to a store just closed")
    await store.close()
    same(len(await store.read(name)), 1, "records read from a store that was closed")
    await store.close()
    same(await store.append(name, [said("two")], expect=1), 2, "the length once it was closed again")


def _line(info: SessionInfo) -> tuple[str, str | None, str | None, float, float, int]:
    return info.id, info.title, info.folder, info.created, info.updated, info.length


def _calls_with(store: SessionStore, name: str) -> list[Callable[[], Awaitable[object]]]:
    """Every call of this store that takes a session id, with this one."""
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: store.append(name, [said("x")], expect=0),
        lambda: store.read(name),
        lambda: store.info(name),
        lambda: store.delete(name),
    ]
    if isinstance(store, FindsWords):
        calls.append(partial(store.search, "x", session_id=name))
    if isinstance(store, KeepsCheckpoints):
        kept = Checkpoint(seq=1, event_id="e", body="{}")
        calls += [partial(store.checkpoint, name), partial(store.keep_checkpoint, name, kept)]
        calls.append(partial(store.drop_checkpoint, name))
    if isinstance(store, GrantsLeases):
        lease = Lease(holder="h", place="p", pid=1, started="s", since=1.0)
        calls += [partial(store.take_lease, name, lease, seconds=1.0), partial(store.free_lease, name, "h")]
    if isinstance(store, TellsLeases):
        calls.append(partial(store.lease, name))
    return calls


@law()
async def counts_the_time_to_live_from_the_newest_record(store: SessionStore) -> None:
    """A session expires so long after its newest record; 0 takes the time to live off."""
    name = new_id()
    for at, event, expires in (
        (0, said("one", time=10.0), None),
        (1, Described(ttl_seconds=60.0, time=20.0), 80.0),
        (2, said("two", time=50.0), 110.0),
        (3, Described(title="T", time=51.0), 111.0),
        (4, Described(ttl_seconds=0.0, time=52.0), None),
        (5, said("three", time=53.0), None),
    ):
        await store.append(name, [event], expect=at)
        info = await store.info(name)
        same(info and info.expires, expires, f"when it expires, after record {at + 1}")


@law()
async def sweeps_what_has_expired(store: SessionStore) -> None:
    """A sweep deletes the sessions whose time to live is over, all of them and no other, and returns them."""
    over, just, later, never = (new_id() for _ in range(4))
    for name, ttl in ((over, 1.0), (just, 5.0), (later, 5.5), (never, None)):
        await store.append(
            name, [Described(owner=name, ttl_seconds=ttl, time=2.0), said(name, time=2.0)], expect=0
        )
    before = {name: await store.info(name) for name in (over, just, later, never)}
    swept = {info.id: info for info in await store.sweep(now=7.0) if info.id in before}
    same(swept, {name: before[name] for name in (over, just)}, "what a sweep returns")
    for name, left in ((over, 0), (just, 0), (later, 2), (never, 2)):
        same(len(await store.read(name)), left, "records left by the sweep")
        same(len(await store.list(owner=name)), 1 if left else 0, "lines left by the sweep")
    again = [info.id for info in await store.sweep(now=7.0) if info.id in before]
    same(again, [], "what a second sweep returns")


@law()
async def sweeps_an_owners_sessions(store: SessionStore) -> None:
    """With an owner, a sweep deletes and returns what has expired of theirs, and leaves everybody else's."""
    owner, theirs, given, others, nobodys = (new_id() for _ in range(5))
    for name, of in ((theirs, owner), (given, owner), (others, f"{owner}2"), (nobodys, None)):
        await store.append(name, [Described(owner=of, ttl_seconds=1.0, time=2.0)], expect=0)
    await store.append(given, [Described(owner=f"{owner}2", time=2.0)], expect=1)
    same([info.id for info in await store.sweep(owner=owner, now=7.0)], [theirs], "what is swept of an owner")
    for name, left in ((theirs, 0), (given, 2), (others, 1), (nobodys, 1)):
        same(len(await store.read(name)), left, "records left by the sweep of an owner's sessions")
    with refused("a sweep of a bad owner's sessions"):
        await store.sweep(owner="", now=7.0)


@law()
async def sweeps_at_no_time_that_is_none(store: SessionStore) -> None:
    """A sweep at what is no finite number of seconds raises UsageError, and deletes nothing."""
    name = await begin(store, Described(ttl_seconds=1.0, time=2.0))
    for bad in (math.nan, math.inf, -math.inf, 10**400):
        with refused(f"a sweep at the time {str(bad)[:20]}"):
            await store.sweep(now=bad)
    same(len(await store.read(name)), 1, "records left by sweeps that were refused")


@law()
async def sweeps_by_the_clock(store: SessionStore) -> None:
    """A sweep that is given no time deletes what has expired by now, and nothing that expires later."""
    over, later, now = new_id(), new_id(), time.time()
    for name, ttl in ((over, 10.0), (later, 3_600.0)):
        await store.append(name, [Described(owner=over, ttl_seconds=ttl, time=now - 60.0)], expect=0)
    same([info.id for info in await store.sweep(owner=over)], [over], "what is swept now")
    same([info.id for info in await store.list(owner=over)], [later], "what is left now")


@law()
async def takes_a_time_to_live_off(store: SessionStore) -> None:
    """What is no number above 0 takes the time to live off, so that no sweep deletes the session."""
    for none in (0, -1.0, -1e308):
        name, told = new_id(), f"once it was said to be {none}"
        await store.append(name, [Described(owner=name, ttl_seconds=5.0, time=1.0)], expect=0)
        await store.append(name, [Described(ttl_seconds=none, time=1.0)], expect=1)
        info = await store.info(name)
        same(info and info.ttl_seconds, None, f"the time to live {told}")
        same(list(await store.sweep(owner=name, now=1e300)), [], f"what is swept {told}")


@law(ChecksItself)
async def finds_nothing_wrong_in_whole_logs(store: _Store) -> None:
    """Logs that were appended, described, deleted and begun anew are in order, whatever stands in them."""
    before = set(await store.check())
    name, gone, long = new_id(), new_id(), new_id()
    odd = Described(title="T\ud800", folder="/\0é", time=1)
    await store.append(name, [said("one\0\ud800", time=3.5), odd], expect=0)
    await store.append(name, [Described(owner="me", ttl_seconds=5.0, time=-1.0)], expect=2)
    await store.append(name, [Described(owner="you", ttl_seconds=0, time=2.0), said("late")], expect=3)
    await store.append(long, [Noted(source="p", data={"n": number}) for number in range(1_500)], expect=0)
    await store.append(gone, [said("one"), said("two")], expect=0)
    await store.delete(gone)
    await store.append(gone, [said("anew")], expect=0)
    same(set(await store.check()) - before, set(), "what is wrong with logs that are in order")
    lengths = [len(await store.read(each)) for each in (name, gone, long)]
    same(lengths, [5, 1, 1_500], "records after the check")


@law(FindsWords)
async def finds_words_and_phrases(store: _Store) -> None:
    """All words must occur, in any order and case; what stands in double quotes as it stands."""
    name, word = new_id(), new_id()
    said_so = ("Alpha beta GAMMA", "gamma beta", "alpha, beta!", "alphabet")
    await store.append(name, [said(f"{word} {text}") for text in said_so], expect=0)
    for query, seqs in (
        ("", [4, 3, 2, 1]),
        ("beta ALPHA", [3, 1]),
        ('"alpha beta"', [3, 1]),
        ('"beta gamma"', [1]),
        ('gamma "beta', [2, 1]),
        ('"gamma alpha"', []),
        ("alph", []),
        ("alpha beta gamma delta", []),
    ):
        same(await _found(store, f"{word} {query}"), [(name, seq) for seq in seqs], f"found by {query!r}")


@law(FindsWords)
async def finds_what_records_say(store: _Store) -> None:
    """Results, calls with their arguments, summaries, titles and notes are found, hidden or not."""
    name, word = new_id(), new_id()
    call = ToolCall(id="c", name="read_file", arguments=f'{{"path": "a\\n{word}/b.py"}}')
    events: list[Event] = [
        said(f"the task {word}"),
        MessageRecord(message=Message.assistant(None, [call]), tokens=1),
        MessageRecord(message=Message.tool("c", f"{word} result"), tokens=1),
        Compacted(covers=((2, 3),), replacement=f"summary {word}", at=4, tokens=1, answer="understood"),
        Described(title=f"Title {word}"),
        Noted(source="p", data={"k": [f"noted {word}"]}),
        ModelCalled(purpose="agent", model=word),
    ]
    await store.append(name, events, expect=0)
    found = await store.search(word)
    kinds = ["noted", "described", "compacted", *["message_added"] * 3]
    same([kind_name(type(each.record.event)) for each in found], kinds, "the kinds of what is found")
    wanted = [Found(session_id=name, record=each) for each in reversed(await store.read(name, most=6))]
    same(list(found), wanted, "found, each with its whole record")
    same(await _found(store, f"{word} result"), [(name, 3)], "found of what a compaction hides")
    same(await _found(store, f"read_file {word}"), [(name, 2)], "found of a call")


@law(FindsWords)
async def finds_newest_first_in_bounds(store: _Store) -> None:
    """The newest sessions first, in each the newest record; at most so many; of one owner."""
    word, owner, old, new, others = (new_id() for _ in range(5))
    await store.append(new, [Described(owner=owner, time=1.0), said(word, time=9.0)], expect=0)
    await store.append(
        old, [Described(owner=owner, time=2.0), said(word, time=3.0), said(word, time=4.0)], expect=0
    )
    await store.append(others, [Described(owner=f"{owner}2", time=6.0), said(word, time=6.0)], expect=0)
    every = [(new, 2), (others, 2), (old, 3), (old, 2)]
    same(await _found(store, word), every, "found in all sessions")
    for most in (1, 3, 2**70):
        same(_places(await store.search(word, most=most)), every[:most], f"found, at most {most}")
    mine = _places(await store.search(word, owner=owner))
    same(mine, [(new, 2), (old, 3), (old, 2)], "found in an owner's sessions")


@law(FindsWords)
async def finds_only_where_all_bounds_hold(store: _Store) -> None:
    """Session, folder and owner bound a search together: who names another's session finds nothing in it."""
    word, owner, folder, mine, others = (new_id() for _ in range(5))
    ours = Described(owner=owner, folder=folder)
    theirs = Described(owner=f"{owner}2", folder=f"{folder}/\udcff")
    await store.append(mine, [ours, said(word)], expect=0)
    await store.append(others, [theirs, said(word)], expect=0)
    for session_id, of_folder, of, names in (
        (mine, None, None, [mine]),
        (mine, folder, owner, [mine]),
        (mine, theirs.folder, owner, []),
        (mine, folder, theirs.owner, []),
        (others, None, owner, []),
        (others, theirs.folder, owner, []),
        (None, folder, None, [mine]),
        (None, theirs.folder, None, [others]),
        (None, theirs.folder, owner, []),
        (None, "", None, []),
        (new_id(), None, None, []),
    ):
        found = await store.search(word, session_id=session_id, folder=of_folder, owner=of)
        asked = f"session {session_id}, folder {of_folder!r}, owner {of}"
        same([each.session_id for each in found], names, f"found with {asked}")


@law(FindsWords)
async def finds_nothing_in_what_was_given_away(store: _Store) -> None:
    """Who had a session before finds nothing in it any more, what stood in it then included."""
    name, word, before, now = (new_id() for _ in range(4))
    await store.append(name, [Described(owner=before), said(word)], expect=0)
    same(_places(await store.search(word, session_id=name, owner=before)), [(name, 2)], "found before")
    await store.append(name, [Described(owner=now)], expect=2)
    for session_id in (name, None):
        same(_places(await store.search(word, session_id=session_id, owner=before)), [], "found by the old")
        same(_places(await store.search(word, session_id=session_id, owner=now)), [(name, 2)], "by the new")


@law(FindsWords)
async def finds_what_was_appended_since(store: _Store) -> None:
    """What is appended after a search is found by the next; a new owner's search finds what was there."""
    name, word, owner = new_id(), new_id(), new_id()
    await store.append(name, [said(word)], expect=0)
    same(await _found(store, word), [(name, 1)], "found at first")
    await store.append(name, [said(f"{word} again"), Described(owner=owner)], expect=1)
    same(await _found(store, word), [(name, 2), (name, 1)], "found after a later append")
    mine = _places(await store.search(word, owner=owner))
    same(mine, [(name, 2), (name, 1)], "found by the owner it was given to")


@law(FindsWords)
async def finds_nothing_that_is_gone(store: _Store) -> None:
    """What was deleted or swept is found no more, also where the id is used again."""
    name, swept, word = new_id(), new_id(), new_id()
    await store.append(name, [said(word), said(word)], expect=0)
    await store.append(swept, [Described(ttl_seconds=1.0, time=2.0), said(word, time=2.0)], expect=0)
    same(len(await store.search(word)), 3, "found before")
    await store.delete(name)
    await store.sweep(now=4.0)
    same(await _found(store, word), [], "found once they are gone")
    await store.append(name, [said("nothing like it"), said(f"anew {word}")], expect=0)
    same(await _found(store, word), [(name, 2)], "found in the session begun anew")


@law(FindsWords)
async def finds_odd_texts(store: _Store) -> None:
    """No sign means anything but double quotes; any script is found; odd characters part words."""
    name, word, long = new_id(), new_id(), "x" * 1_000_000
    texts = (
        "AND OR NOT NEAR",
        "東京都に行く",
        "a\0b\ud800c",
        "naïve İstanbul ΣΑΣ",
        "f(x) = {y*: 'z'}",
        long,
        "회의록을",
    )
    await store.append(name, [said(f"{word} {text}") for text in texts], expect=0)
    for query, seqs in (
        ("AND NOT", [1]),
        ("NEAR(and not)", []),
        ('"京都"', [2]),
        ("東京", [2]),
        ("a\0b c", [3]),
        ("NAI\u0308VE σας", [4]),
        ("f* -x ^y text:z", []),
        ("f* -x ^y :z'; --", [5]),
        (long, [6]),
        (long[:-1], []),
        ("회의록", [7]),
    ):
        shown = f"found by {query[:20]!r}"
        same(await _found(store, f"{word} {query}"), [(name, seq) for seq in seqs], shown)


@law(FindsWords)
async def refuses_a_bad_search(store: _Store) -> None:
    """No word, a number of records below 1, and an owner or a session that is none, raise UsageError."""
    for text in WORDLESS:
        with refused(f"a search for {text!r}"):
            await store.search(text)
    for asked in ({"most": 0}, {"most": -1}, {"owner": ""}, {"owner": "a\n"}, {"session_id": ".."}):
        bad: dict[str, Any] = dict(asked)
        with refused(f"a search with {asked}"):
            await store.search(new_id(), **bad)


async def _found(store: _Store, text: str) -> list[tuple[str, int]]:
    return _places(await store.search(text))


def _places(found: Sequence[Found]) -> list[tuple[str, int]]:
    return [(each.session_id, each.record.seq) for each in found]


@law(KeepsCheckpoints)
async def keeps_the_newest_checkpoint(store: _Store) -> None:
    """A checkpoint comes back as it was; a newer one, or another of that place, takes its place."""
    name = await begin(store, said("one"), said("two"), said("three"))
    same(await store.checkpoint(name), None, "the checkpoint of a session without one")
    first, second, third = (
        Checkpoint(seq=seq, event_id=f"e{seq}", body=f'{{"n":{seq},"t":"\0é🙂"}}') for seq in (1, 2, 3)
    )
    again = Checkpoint(seq=2, event_id="e2", body="made anew")
    for kept, wanted in ((second, second), (first, second), (again, again), (third, third)):
        await store.keep_checkpoint(name, kept)
        same(await store.checkpoint(name), wanted, f"the checkpoint once {kept.seq} was kept")


@law(KeepsCheckpoints)
async def keeps_a_large_checkpoint(store: _Store) -> None:
    """A body of megabytes comes back whole."""
    name, body = new_id(), "long text " * 200_000
    await store.append(name, [said("one")], expect=0)
    await store.keep_checkpoint(name, Checkpoint(seq=1, event_id="e", body=body))
    kept = await store.checkpoint(name)
    same(kept is not None and kept.body == body, True, "whether a large checkpoint comes back whole")


@law(KeepsCheckpoints)
async def keeps_no_checkpoint_without_a_log(store: _Store) -> None:
    """Keeping one for a session that does not exist does nothing."""
    name = new_id()
    await store.keep_checkpoint(name, Checkpoint(seq=1, event_id="e", body="{}"))
    same(await store.checkpoint(name), None, "the checkpoint of no session")
    same(await store.info(name), None, "the session made by a checkpoint")


@law(KeepsCheckpoints)
async def drops_a_checkpoint(store: _Store) -> None:
    """A dropped checkpoint is gone, and an older one can be kept after it; dropping none is harmless."""
    name = new_id()
    await store.drop_checkpoint(name)
    await store.append(name, [said("one"), said("two")], expect=0)
    await store.keep_checkpoint(name, Checkpoint(seq=2, event_id="e2", body="{}"))
    await store.drop_checkpoint(name)
    same(await store.checkpoint(name), None, "a dropped checkpoint")
    older = Checkpoint(seq=1, event_id="e1", body="[]")
    await store.keep_checkpoint(name, older)
    same(await store.checkpoint(name), older, "a checkpoint kept after one was dropped")


@law(KeepsCheckpoints)
async def deletes_the_checkpoint_with_its_session(store: _Store) -> None:
    """A session begun anew has no checkpoint of the one before, whether that was deleted or swept."""
    deleted, swept = new_id(), new_id()
    for name in (deleted, swept):
        await store.append(name, [Described(owner=swept, ttl_seconds=1.0, time=2.0)], expect=0)
        await store.keep_checkpoint(name, Checkpoint(seq=1, event_id="e", body="{}"))
    await store.delete(deleted)
    await store.sweep(owner=swept, now=7.0)
    for name, how in ((deleted, "deleted"), (swept, "swept")):
        await store.append(name, [said("anew")], expect=0)
        same(await store.checkpoint(name), None, f"the checkpoint of a session begun anew once it was {how}")


@law(GrantsLeases)
async def grants_a_free_session(store: _Store) -> None:
    """Who asks first holds the session, also before its log begins; who asks then is told who does."""
    name = new_id()
    same(await store.take_lease(name, MINE, seconds=LONG), MINE, "the lease of a free session")
    same(await store.take_lease(name, THEIRS, seconds=LONG), MINE, "the lease of a session held by another")
    same(await store.append(name, [said("one")], expect=0), 1, "an append needs no lease; its length")
    same(await store.take_lease(new_id(), THEIRS, seconds=LONG), THEIRS, "the lease of another session")


@law(GrantsLeases)
async def renews_a_lease(store: _Store) -> None:
    """A lease taken again by its holder runs out so long after that."""
    name = new_id()
    await store.take_lease(name, MINE, seconds=SHORT)
    same(await store.take_lease(name, MINE, seconds=LONG), MINE, "a lease taken again")
    await _run_out(store, new_id(), THEIRS)
    same(await store.take_lease(name, THEIRS, seconds=LONG), MINE, "a lease that was renewed")


@law(GrantsLeases)
async def renews_what_a_lease_says(store: _Store) -> None:
    """A lease taken again by its holder says from then on what it says now."""
    name = new_id()
    await store.take_lease(name, MINE, seconds=LONG)
    moved = replace(MINE, place="there", pid=4712, started="3", since=2.5)
    same(await store.take_lease(name, moved, seconds=LONG), moved, "a lease taken again from elsewhere")
    told = await store.take_lease(name, THEIRS, seconds=LONG)
    same(told, moved, "a lease that was renewed, told to another")


@law(GrantsLeases)
async def grants_what_has_run_out(store: _Store) -> None:
    """A lease that was not renewed in time is another's for the asking."""
    name = new_id()
    await _run_out(store, name, THEIRS)
    same(await store.take_lease(name, MINE, seconds=LONG), THEIRS, "a lease lost, asked for again")


@law(GrantsLeases)
async def puts_out_the_holder_named(store: _Store) -> None:
    """`over` puts out that holder and no other."""
    name, first, second, third = new_id(), *map(_lease, ("first", "second", "third"))
    await store.take_lease(name, first, seconds=LONG)
    taken = await store.take_lease(name, second, seconds=LONG, over="first")
    same(taken, second, "a lease taken over")
    late = await store.take_lease(name, third, seconds=LONG, over="first")
    same(late, second, "a lease taken over from who holds it no more")


@law(GrantsLeases)
async def frees_a_lease(store: _Store) -> None:
    """A freed session is anybody's; freeing what another or nobody holds is harmless."""
    name = new_id()
    await store.free_lease(name, "mine")
    await store.take_lease(name, MINE, seconds=LONG)
    await store.free_lease(name, "theirs")
    same(await store.take_lease(name, THEIRS, seconds=LONG), MINE, "a lease freed by another")
    await store.free_lease(name, "mine")
    same(await store.take_lease(name, THEIRS, seconds=LONG), THEIRS, "a lease freed by its holder")


@law(GrantsLeases)
async def holds_the_id_of_a_deleted_session(store: _Store) -> None:
    """Who holds a session that is deleted holds its id until they let go, with a log and without."""
    for name, events in ((new_id(), [said("one")]), (new_id(), [])):
        await store.append(name, events, expect=0)
        await store.take_lease(name, MINE, seconds=LONG)
        same(await store.delete(name), bool(events), "deleting a session that is held")
        same(await store.take_lease(name, THEIRS, seconds=LONG), MINE, "the lease of a deleted session")
        await store.free_lease(name, "mine")
        same(await store.take_lease(name, THEIRS, seconds=LONG), THEIRS, "the lease let go of then")


@law(GrantsLeases)
async def frees_the_branches_of_a_deleted_session(store: _Store) -> None:
    """The leases of its sub-agents go with a session, also where one had no log yet; no other does."""
    gone, kept = new_id(), new_id()
    names = [branch_id(name, branch) for name in (gone, kept) for branch in ("scout.1", "scout.2")]
    for name in (gone, names[0]):
        await store.append(name, [said("one")], expect=0)
    for name in names:
        await store.take_lease(name, MINE, seconds=LONG)
    same(await store.delete(gone), True, "deleting a session whose branches are held")
    told = [await store.take_lease(name, THEIRS, seconds=LONG) for name in names]
    same(told, [THEIRS, THEIRS, MINE, MINE], "the leases of branches of a deleted session, and of another")


@law(GrantsLeases)
async def sweeps_no_session_that_is_held(store: _Store) -> None:
    """A sweep passes over a session that somebody holds, and deletes it once they let go."""
    held, free = new_id(), new_id()
    for name in (held, free):
        await store.append(name, [Described(owner=held, ttl_seconds=1.0, time=2.0)], expect=0)
    await store.take_lease(held, MINE, seconds=LONG)
    same([info.id for info in await store.sweep(owner=held, now=7.0)], [free], "what is swept beside it")
    same(len(await store.read(held)), 1, "records of a session that is held")
    await store.free_lease(held, "mine")
    same([info.id for info in await store.sweep(owner=held, now=7.0)], [held], "what is swept then")


@law(GrantsLeases)
async def grants_a_session_to_one(store: _Store) -> None:
    """Of many who ask at once one gets it, and all are told who."""
    name, asked = new_id(), [_lease(f"holder {number}") for number in range(8)]
    told = await asyncio.gather(*(store.take_lease(name, lease, seconds=LONG) for lease in asked))
    same({lease.holder for lease in told} <= {lease.holder for lease in asked}, True, "whether one of them")
    same(len({lease.holder for lease in told}), 1, "how many hold the session")


@law(GrantsLeases, TellsLeases)
async def tells_who_holds_a_session(store: _Store) -> None:
    """Who holds a session now is told as long as they do, with a log and without; else nobody is."""
    name = new_id()
    same(await store.lease(name), None, "who holds a session that nobody asked for")
    await store.take_lease(name, MINE, seconds=LONG)
    same(await store.lease(name), MINE, "who holds a session without a log")
    await store.append(name, [said("one")], expect=0)
    same(await store.lease(new_id()), None, "who holds another session")
    await store.take_lease(name, THEIRS, seconds=LONG, over="mine")
    same(await store.lease(name), THEIRS, "who holds a session that was taken over")
    await store.delete(name)
    same(await store.lease(name), THEIRS, "who holds a session that was deleted")
    await store.free_lease(name, "theirs")
    same(await store.lease(name), None, "who holds a session that was let go of")


@law(GrantsLeases, TellsLeases)
async def tells_of_no_lease_that_has_run_out(store: _Store) -> None:
    """A lease that was not renewed in time is told of no more, though nobody else has asked for it."""
    name = new_id()
    await store.take_lease(name, MINE, seconds=SHORT)
    await _run_out(store, new_id(), THEIRS)
    same(await store.lease(name), None, "who holds a session whose lease has run out")


@law(GrantsLeases, TellsLeases)
async def tells_without_asking(store: _Store) -> None:
    """Who is told who holds a session has not asked for it: a free one stays free, a lease is not renewed."""
    name = new_id()
    await store.lease(name)
    same(await store.take_lease(name, MINE, seconds=LONG), MINE, "the lease of a session just told of")
    await store.lease(name)
    again = await store.take_lease(name, THEIRS, seconds=LONG)
    same(again, MINE, "the lease of a held session just told of")


async def _run_out(store: _Store, name: str, taker: Lease) -> None:
    """Wait until a short lease of another has run out, which the taker gets then."""
    held = await store.take_lease(name, _lease("shortly"), seconds=SHORT)
    async with asyncio.timeout(60):
        while held != taker:
            await asyncio.sleep(SHORT / 5)
            held = await store.take_lease(name, taker, seconds=LONG)


def _lease(holder: str) -> Lease:
    return Lease(holder=holder, place="here", pid=4711, started="2.5 é", since=1.5)


MINE, THEIRS = _lease("mine"), _lease("theirs")


@contextmanager
def refused(what: str) -> Iterator[None]:
    """Raise AssertionError unless the block raises UsageError."""
    try:
        yield
    except UsageError:
        return
    raise AssertionError(f"{what} must raise UsageError")


async def conflicts(
    store: SessionStore, name: str, events: Sequence[Event], *, expect: int, actual: int
) -> None:
    """Raise AssertionError unless the append is refused and the log stays as it was."""
    before = texts_of(await store.read(name))
    try:
        await store.append(name, events, expect=expect)
    except ConflictError as error:
        same((error.session_id, error.expected, error.actual), (name, expect, actual), "what it says")
    else:
        raise AssertionError(f"an append at {expect} to a log of {actual} records must raise ConflictError")
    same(texts_of(await store.read(name)), before, "the log after a conflict")


def same(found: object, wanted: object, what: str) -> None:
    """Raise AssertionError, with both values, where they differ."""
    if found != wanted:
        raise AssertionError(f"{what}: wanted {wanted!r}, found {found!r}")


def said(text: str, *, time: float = 1.5) -> MessageRecord:
    """What a user said at this time."""
    return MessageRecord(message=Message.user(text), tokens=1, time=time)


async def begin(store: SessionStore, *events: Event) -> str:
    """The id of a new session with these records."""
    name = new_id()
    await store.append(name, events, expect=0)
    return name


def new_id() -> str:
    """A session id, or a word, that nobody else has."""
    return uuid.uuid4().hex


def texts_of(records: Sequence[Record]) -> list[str]:
    """The records as they are stored."""
    return [encode(record.event) for record in records]


def text_of(record: Record) -> str:
    """What the record says, where it is a message."""
    return record.event.message.text if isinstance(record.event, MessageRecord) else ""


CHECKS: tuple[Check, ...] = tuple(_laws)
"""Every law, in the order of this file."""
