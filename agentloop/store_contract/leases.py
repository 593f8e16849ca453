"""Checks of a store that grants leases."""

import asyncio
from dataclasses import replace
from typing import Protocol

from agentloop.events import Described
from agentloop.store_contract.asserting import new_id, said, same
from agentloop.stores.base import GrantsLeases, Lease, SessionStore, TellsLeases

LONG, SHORT = 600.0, 0.05


class _Grants(SessionStore, GrantsLeases, Protocol):
    """A store that grants leases."""


class _Tells(_Grants, TellsLeases, Protocol):
    """A store that also tells who holds them."""


async def grants_a_free_session(store: _Grants) -> None:
    """Who asks first holds the session, also before its log begins; who asks then is told who does."""
    name, mine, theirs = new_id(), _lease("mine"), _lease("theirs")
    same(await store.take_lease(name, mine, seconds=LONG), mine, "the lease of a free session")
    same(await store.take_lease(name, theirs, seconds=LONG), mine, "the lease of a session held by another")
    same(await store.append(name, [said("one")], expect=0), 1, "an append needs no lease; its length")
    same(await store.take_lease(new_id(), theirs, seconds=LONG), theirs, "the lease of another session")


async def renews_a_lease(store: _Grants) -> None:
    """A lease taken again by its holder runs out so long after that."""
    name, mine, theirs = new_id(), _lease("mine"), _lease("theirs")
    await store.take_lease(name, mine, seconds=SHORT)
    same(await store.take_lease(name, mine, seconds=LONG), mine, "a lease taken again")
    await _run_out(store, new_id(), theirs)
    same(await store.take_lease(name, theirs, seconds=LONG), mine, "a lease that was renewed")


async def renews_what_a_lease_says(store: _Grants) -> None:
    """A lease taken again by its holder says from then on what it says now."""
    name, mine = new_id(), _lease("mine")
    await store.take_lease(name, mine, seconds=LONG)
    moved = replace(mine, place="there", pid=4712, started="3", since=2.5)
    same(await store.take_lease(name, moved, seconds=LONG), moved, "a lease taken again from elsewhere")
    told = await store.take_lease(name, _lease("theirs"), seconds=LONG)
    same(told, moved, "a lease that was renewed, told to another")


async def grants_what_has_run_out(store: _Grants) -> None:
    """A lease that was not renewed in time is another's for the asking."""
    name, mine, theirs = new_id(), _lease("mine"), _lease("theirs")
    await _run_out(store, name, theirs)
    same(await store.take_lease(name, mine, seconds=LONG), theirs, "a lease lost, asked for again")


async def puts_out_the_holder_named(store: _Grants) -> None:
    """`over` puts out that holder and no other."""
    name, first, second, third = new_id(), *map(_lease, ("first", "second", "third"))
    await store.take_lease(name, first, seconds=LONG)
    taken = await store.take_lease(name, second, seconds=LONG, over="first")
    same(taken, second, "a lease taken over")
    late = await store.take_lease(name, third, seconds=LONG, over="first")
    same(late, second, "a lease taken over from who holds it no more")


async def frees_a_lease(store: _Grants) -> None:
    """A freed session is anybody's; freeing what another or nobody holds is harmless."""
    name, mine, theirs = new_id(), _lease("mine"), _lease("theirs")
    await store.free_lease(name, "mine")
    await store.take_lease(name, mine, seconds=LONG)
    await store.free_lease(name, "theirs")
    same(await store.take_lease(name, theirs, seconds=LONG), mine, "a lease freed by another")
    await store.free_lease(name, "mine")
    same(await store.take_lease(name, theirs, seconds=LONG), theirs, "a lease freed by its holder")


async def holds_the_id_of_a_deleted_session(store: _Grants) -> None:
    """Who holds a session that is deleted holds its id until they let go, with a log and without."""
    mine, theirs = _lease("mine"), _lease("theirs")
    for name, events in ((new_id(), [said("one")]), (new_id(), [])):
        await store.append(name, events, expect=0)
        await store.take_lease(name, mine, seconds=LONG)
        same(await store.delete(name), bool(events), "deleting a session that is held")
        same(await store.take_lease(name, theirs, seconds=LONG), mine, "the lease of a deleted session")
        await store.free_lease(name, "mine")
        same(await store.take_lease(name, theirs, seconds=LONG), theirs, "the lease let go of then")


async def sweeps_no_session_that_is_held(store: _Grants) -> None:
    """A sweep passes over a session that somebody holds, and deletes it once they let go."""
    held, free = new_id(), new_id()
    for name in (held, free):
        await store.append(name, [Described(owner=held, ttl_seconds=1.0, time=2.0)], expect=0)
    await store.take_lease(held, _lease("mine"), seconds=LONG)
    same([info.id for info in await store.sweep(owner=held, now=7.0)], [free], "what is swept beside it")
    same(len(await store.read(held)), 1, "records of a session that is held")
    await store.free_lease(held, "mine")
    same([info.id for info in await store.sweep(owner=held, now=7.0)], [held], "what is swept then")


async def grants_a_session_to_one(store: _Grants) -> None:
    """Of many who ask at once one gets it, and all are told who."""
    name, asked = new_id(), [_lease(f"holder {number}") for number in range(8)]
    told = await asyncio.gather(*(store.take_lease(name, lease, seconds=LONG) for lease in asked))
    same({lease.holder for lease in told} <= {lease.holder for lease in asked}, True, "whether one of them")
    same(len({lease.holder for lease in told}), 1, "how many hold the session")


async def tells_who_holds_a_session(store: _Tells) -> None:
    """Who holds a session now is told as long as they do, with a log and without; else nobody is."""
    name, mine, theirs = new_id(), _lease("mine"), _lease("theirs")
    same(await store.lease(name), None, "who holds a session that nobody asked for")
    await store.take_lease(name, mine, seconds=LONG)
    same(await store.lease(name), mine, "who holds a session without a log")
    await store.append(name, [said("one")], expect=0)
    same(await store.lease(new_id()), None, "who holds another session")
    await store.take_lease(name, theirs, seconds=LONG, over="mine")
    same(await store.lease(name), theirs, "who holds a session that was taken over")
    await store.delete(name)
    same(await store.lease(name), theirs, "who holds a session that was deleted")
    await store.free_lease(name, "theirs")
    same(await store.lease(name), None, "who holds a session that was let go of")


async def tells_of_no_lease_that_has_run_out(store: _Tells) -> None:
    """A lease that was not renewed in time is told of no more, though nobody else has asked for it."""
    name = new_id()
    await store.take_lease(name, _lease("mine"), seconds=SHORT)
    await _run_out(store, new_id(), _lease("theirs"))
    same(await store.lease(name), None, "who holds a session whose lease has run out")


async def tells_without_asking(store: _Tells) -> None:
    """Who is told who holds a session has not asked for it: a free one stays free, a lease is not renewed."""
    name, mine = new_id(), _lease("mine")
    await store.lease(name)
    same(await store.take_lease(name, mine, seconds=LONG), mine, "the lease of a session just told of")
    await store.lease(name)
    again = await store.take_lease(name, _lease("theirs"), seconds=LONG)
    same(again, mine, "the lease of a held session just told of")


async def _run_out(store: _Grants, name: str, taker: Lease) -> None:
    """Wait until a short lease of another has run out, which the taker gets then."""
    held = await store.take_lease(name, _lease("shortly"), seconds=SHORT)
    async with asyncio.timeout(60):
        while held != taker:
            await asyncio.sleep(SHORT / 5)
            held = await store.take_lease(name, taker, seconds=LONG)


def _lease(holder: str) -> Lease:
    return Lease(holder=holder, place="here", pid=4711, started="2.5 é", since=1.5)


CHECKS = (
    grants_a_free_session,
    renews_a_lease,
    renews_what_a_lease_says,
    grants_what_has_run_out,
    puts_out_the_holder_named,
    frees_a_lease,
    holds_the_id_of_a_deleted_session,
    sweeps_no_session_that_is_held,
    grants_a_session_to_one,
)
TELLING_CHECKS = (
    tells_who_holds_a_session,
    tells_of_no_lease_that_has_run_out,
    tells_without_asking,
)
