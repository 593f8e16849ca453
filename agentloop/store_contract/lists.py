"""Checks of the list of sessions, of deletions, and of names."""

from collections.abc import Awaitable, Callable
from functools import partial

from agentloop.errors import UsageError
from agentloop.events import Described
from agentloop.store_contract.asserting import Check, new_id, said, same
from agentloop.stores.base import (
    Checkpoint,
    FindsWords,
    GrantsLeases,
    KeepsCheckpoints,
    Lease,
    SessionInfo,
    SessionStore,
    TellsLeases,
)

BAD_IDS = ("", ".", "..", ".hidden", "../../x", "/etc/x", "a/b", "a\\b", "a\0b", "a\n", "é", "a" * 129)


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


async def refuses_bad_ids(store: SessionStore) -> None:
    """A session id that is no plain name raises UsageError in every call; two cases are two sessions."""
    for bad in BAD_IDS:
        for call in _calls_with(store, bad):
            try:
                await call()
            except UsageError:
                continue
            raise AssertionError(f"the session id {bad[:20]!r} must raise UsageError")
    longest = "x" * 96 + new_id()
    await store.append(longest, [said("lower")], expect=0)
    same(list(await store.read(longest.upper())), [], "records of the id in other case")


async def closes_more_than_once(store: SessionStore) -> None:
    """Closing again is harmless."""
    await store.append(new_id(), [said("one")], expect=0)
    await store.close()
    await store.close()


async def opens_again_after_it_was_closed(store: SessionStore) -> None:
    """Who is used after `close` opens again, and has what was written before."""
    name = new_id()
    await store.close()
    same(await store.append(name, [said("one")], expect=0), 1, "the length, appended to a store just closed")
    await store.close()
    same(len(await store.read(name)), 1, "records read from a store that was closed")
    await store.close()
    same(await store.append(name, [said("two")], expect=1), 2, "the length once it was closed again")


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


def _line(info: SessionInfo) -> tuple[str, str | None, str | None, float, float, int]:
    return info.id, info.title, info.folder, info.created, info.updated, info.length


CHECKS: tuple[Check, ...] = (
    lists_sessions,
    knows_one_session,
    keeps_the_latest_time,
    lists_an_owners_sessions,
    deletes_a_session,
    refuses_bad_ids,
    closes_more_than_once,
    opens_again_after_it_was_closed,
)
