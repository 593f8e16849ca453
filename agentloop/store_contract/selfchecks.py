"""Checks of a store that can look through all that it keeps."""

from typing import Protocol

from agentloop.events import Described, Noted
from agentloop.store_contract.asserting import new_id, said, same
from agentloop.stores.base import ChecksItself, SessionStore


class _Checks(SessionStore, ChecksItself, Protocol):
    """A store that can look through all that it keeps."""


async def finds_nothing_wrong_in_whole_logs(store: _Checks) -> None:
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


CHECKS = (finds_nothing_wrong_in_whole_logs,)
