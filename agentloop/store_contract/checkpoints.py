"""Checks of a store that keeps checkpoints."""

from typing import Protocol

from agentloop.events import Described
from agentloop.store_contract.asserting import new_id, said, same
from agentloop.stores.base import Checkpoint, KeepsCheckpoints, SessionStore


class _Keeps(SessionStore, KeepsCheckpoints, Protocol):
    """A store that keeps checkpoints."""


async def keeps_the_newest_checkpoint(store: _Keeps) -> None:
    """A checkpoint comes back as it was; a newer one, or another of that place, takes its place."""
    name = new_id()
    await store.append(name, [said("one"), said("two"), said("three")], expect=0)
    same(await store.checkpoint(name), None, "the checkpoint of a session without one")
    first, second, third = (
        Checkpoint(seq=seq, event_id=f"e{seq}", body=f'{{"n":{seq},"t":"\0é🙂"}}') for seq in (1, 2, 3)
    )
    again = Checkpoint(seq=2, event_id="e2", body="made anew")
    for kept, wanted in ((second, second), (first, second), (again, again), (third, third)):
        await store.keep_checkpoint(name, kept)
        same(await store.checkpoint(name), wanted, f"the checkpoint once {kept.seq} was kept")


async def keeps_a_large_checkpoint(store: _Keeps) -> None:
    """A body of megabytes comes back whole."""
    name, body = new_id(), "long text " * 200_000
    await store.append(name, [said("one")], expect=0)
    await store.keep_checkpoint(name, Checkpoint(seq=1, event_id="e", body=body))
    kept = await store.checkpoint(name)
    same(kept is not None and kept.body == body, True, "whether a large checkpoint comes back whole")


async def keeps_no_checkpoint_without_a_log(store: _Keeps) -> None:
    """Keeping one for a session that does not exist does nothing."""
    name = new_id()
    await store.keep_checkpoint(name, Checkpoint(seq=1, event_id="e", body="{}"))
    same(await store.checkpoint(name), None, "the checkpoint of no session")
    same(await store.info(name), None, "the session made by a checkpoint")


async def drops_a_checkpoint(store: _Keeps) -> None:
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


async def deletes_the_checkpoint_with_its_session(store: _Keeps) -> None:
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


CHECKS = (
    keeps_the_newest_checkpoint,
    keeps_a_large_checkpoint,
    keeps_no_checkpoint_without_a_log,
    drops_a_checkpoint,
    deletes_the_checkpoint_with_its_session,
)
