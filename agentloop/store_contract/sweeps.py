"""Checks of times to live, and of the sweep that deletes what has expired."""

import math
import time

from agentloop.errors import UsageError
from agentloop.events import Described
from agentloop.store_contract.asserting import Check, new_id, said, same
from agentloop.stores.base import SessionStore


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


async def sweeps_an_owners_sessions(store: SessionStore) -> None:
    """With an owner, a sweep deletes and returns what has expired of theirs, and leaves everybody else's."""
    owner, theirs, given, others, nobodys = (new_id() for _ in range(5))
    for name, of in ((theirs, owner), (given, owner), (others, f"{owner}2"), (nobodys, None)):
        await store.append(name, [Described(owner=of, ttl_seconds=1.0, time=2.0)], expect=0)
    await store.append(given, [Described(owner=f"{owner}2", time=2.0)], expect=1)
    same([info.id for info in await store.sweep(owner=owner, now=7.0)], [theirs], "what is swept of an owner")
    for name, left in ((theirs, 0), (given, 2), (others, 1), (nobodys, 1)):
        same(len(await store.read(name)), left, "records left by the sweep of an owner's sessions")
    try:
        await store.sweep(owner="", now=7.0)
    except UsageError:
        return
    raise AssertionError("a sweep of a bad owner's sessions must raise UsageError")


async def sweeps_at_no_time_that_is_none(store: SessionStore) -> None:
    """A sweep at what is no finite number of seconds raises UsageError, and deletes nothing."""
    name = new_id()
    await store.append(name, [Described(ttl_seconds=1.0, time=2.0)], expect=0)
    for bad in (math.nan, math.inf, -math.inf, 10**400):
        try:
            await store.sweep(now=bad)
        except UsageError:
            continue
        raise AssertionError(f"a sweep at the time {str(bad)[:20]} must raise UsageError")
    same(len(await store.read(name)), 1, "records left by sweeps that were refused")


async def sweeps_by_the_clock(store: SessionStore) -> None:
    """A sweep that is given no time deletes what has expired by now, and nothing that expires later."""
    over, later, now = new_id(), new_id(), time.time()
    for name, ttl in ((over, 10.0), (later, 3_600.0)):
        await store.append(name, [Described(owner=over, ttl_seconds=ttl, time=now - 60.0)], expect=0)
    same([info.id for info in await store.sweep(owner=over)], [over], "what is swept now")
    same([info.id for info in await store.list(owner=over)], [later], "what is left now")


async def takes_a_time_to_live_off(store: SessionStore) -> None:
    """What is no number above 0 takes the time to live off, so that no sweep deletes the session."""
    for none in (0, -1.0, -1e308):
        name, told = new_id(), f"once it was said to be {none}"
        await store.append(name, [Described(owner=name, ttl_seconds=5.0, time=1.0)], expect=0)
        await store.append(name, [Described(ttl_seconds=none, time=1.0)], expect=1)
        info = await store.info(name)
        same(info and info.ttl_seconds, None, f"the time to live {told}")
        same(list(await store.sweep(owner=name, now=1e300)), [], f"what is swept {told}")


CHECKS: tuple[Check, ...] = (
    counts_the_time_to_live_from_the_newest_record,
    sweeps_what_has_expired,
    sweeps_an_owners_sessions,
    sweeps_at_no_time_that_is_none,
    sweeps_by_the_clock,
    takes_a_time_to_live_off,
)
