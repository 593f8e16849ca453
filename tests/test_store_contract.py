"""The contract of stores finds a store that breaks a promise, and passes one that keeps them."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from agentloop.events import Event, MessageRecord, Record
from agentloop.stores import InMemoryStore, SessionInfo, SessionStore, checked_session_id
from agentloop.stores.base import Checkpoint, Found, GrantsLeases, Lease, TellsLeases
from agentloop.testing import CHECKS, store_contract
from tests.store_kit import CheckpointingStore, CountingStore, LogAlone


class Careless(InMemoryStore):
    """A store that looks at no length and so lets the last writer win."""

    async def append(self, session_id: str, events: Sequence[Event], *, expect: int) -> int:
        return await super().append(session_id, events, expect=len(await self.read(session_id)))


class Forgetful(InMemoryStore):
    """A store that never knows a repeated append again."""

    async def append(self, session_id: str, events: Sequence[Event], *, expect: int) -> int:
        return await super().append(session_id, [*map(_again, events)], expect=expect)


def _again(event: Event) -> Event:
    return MessageRecord(message=event.message, tokens=1) if isinstance(event, MessageRecord) else event


class SharesItsRecords(InMemoryStore):
    """A store that hands out the very objects that it keeps."""

    async def read(self, session_id: str, *, after: int = 0, most: int | None = None) -> Sequence[Record]:
        found = await super().read(session_id, after=after, most=most)
        log = self._logs.get(session_id)
        return [log.records[record.seq - 1] for record in found] if log else found


class StandsStill(InMemoryStore):
    """A store whose sweeps go by no clock."""

    async def sweep(self, *, owner: str | None = None, now: float | None = None) -> Sequence[SessionInfo]:
        return await super().sweep(owner=owner, now=0.0 if now is None else now)


class Hasty(InMemoryStore):
    """A store whose sweeps take every time to live for over, unless they are given a time."""

    async def sweep(self, *, owner: str | None = None, now: float | None = None) -> Sequence[SessionInfo]:
        return await super().sweep(owner=owner, now=1e300 if now is None else now)


class KeepsForTheNext(CheckpointingStore):
    """A store that leaves a checkpoint to whoever begins a swept session anew."""

    async def sweep(self, *, owner: str | None = None, now: float | None = None) -> Sequence[SessionInfo]:
        return await InMemoryStore.sweep(self, owner=owner, now=now)


class KeepsTheFirst(CheckpointingStore):
    """A store that takes no other checkpoint of a place."""

    async def keep_checkpoint(self, session_id: str, checkpoint: Checkpoint) -> None:
        kept = await self.checkpoint(session_id)
        if kept is None or kept.seq != checkpoint.seq:
            await super().keep_checkpoint(session_id, checkpoint)


class Stale(InMemoryStore):
    """A store whose leases say for ever what they said first."""

    def __init__(self) -> None:
        super().__init__()
        self._first: dict[tuple[str, str], Lease] = {}

    async def take_lease(
        self, session_id: str, lease: Lease, *, seconds: float, over: str | None = None
    ) -> Lease:
        first = self._first.setdefault((session_id, lease.holder), lease)
        return await super().take_lease(session_id, first, seconds=seconds, over=over)


class TellsForEver(InMemoryStore):
    """A store that tells of leases that have run out."""

    async def lease(self, session_id: str) -> Lease | None:
        held = self._leases.get(checked_session_id(session_id))
        return held and held.lease


class TellsByAsking(InMemoryStore):
    """A store that takes a free session to learn who holds it."""

    async def lease(self, session_id: str) -> Lease | None:
        asking = Lease(holder="asking", place="here", pid=1, started="", since=1.0)
        told = await self.take_lease(session_id, asking, seconds=60.0)
        return None if told == asking else told


class AsksForNothing(InMemoryStore):
    """A store that takes a search of at most no records for one."""

    async def search(self, text: str, **bounds: Any) -> Sequence[Found]:
        return await super().search(text, **bounds) if bounds.get("most", 1) else ()


@pytest.mark.deep
@pytest.mark.parametrize(
    ("store", "says"),
    [
        (Careless, "refuses_another_length: an append at 1 to a log of 0 records must raise ConflictError"),
        (Forgetful, "keeps_every_record_in_order: what is read is what was written: wanted"),
        (SharesItsRecords, "hands_out_nothing_that_changes_the_log: records once what was appended was"),
        (StandsStill, "sweeps_by_the_clock: what is swept now"),
        (Hasty, "sweeps_by_the_clock: what is swept now"),
        (KeepsForTheNext, "deletes_the_checkpoint_with_its_session: .* begun anew once it was swept"),
        (KeepsTheFirst, "keeps_the_newest_checkpoint: the checkpoint once 2 was kept"),
        (Stale, "renews_what_a_lease_says: a lease taken again from elsewhere"),
        (TellsForEver, "tells_of_no_lease_that_has_run_out: who holds a session whose lease has run out"),
        (TellsByAsking, "tells_without_asking: the lease of a session just told of"),
        (
            AsksForNothing,
            "refuses_a_bad_search: a search with {'most': 0} must raise UsageError",
        ),
    ],
)
async def test_the_contract_finds_a_bad_store(store: type[InMemoryStore], says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        await store_contract(store)


class Failing(InMemoryStore):
    """A store that cannot list, nor tell whose a session is."""

    async def list(self, *, folder: str | None = None, owner: str | None = None) -> Sequence[SessionInfo]:
        raise KeyError("folder")

    async def sweep(self, *, owner: str | None = None, now: float | None = None) -> Sequence[SessionInfo]:
        return ()


async def test_the_contract_names_all_that_a_store_breaks_each_in_one_line() -> None:
    with pytest.raises(AssertionError) as failed:
        await store_contract(Failing)
    lines = str(failed.value).splitlines()
    names = [line.partition(":")[0] for line in lines]
    assert set(names) <= {check.__name__ for check in CHECKS}
    assert len(set(names)) == len(names)
    assert "lists_sessions: it raised KeyError: 'folder'" in lines
    assert "sweeps_by_the_clock" in names


class Grants(LogAlone):
    """A store that grants leases, and tells of them only who asks for one."""

    def __init__(self) -> None:
        super().__init__()
        store = InMemoryStore()
        self.append, self.read, self.info, self.list = store.append, store.read, store.info, store.list
        self.delete, self.sweep, self.close = store.delete, store.sweep, store.close
        self.take_lease, self.free_lease = store.take_lease, store.free_lease


def test_a_store_need_not_tell_of_the_leases_that_it_grants() -> None:
    assert isinstance(Grants(), GrantsLeases)
    assert not isinstance(Grants(), TellsLeases)


@pytest.mark.deep
@pytest.mark.parametrize("store", [LogAlone, Grants, CheckpointingStore, CountingStore])
async def test_the_stores_of_our_own_tests_keep_the_contract(store: Callable[[], SessionStore]) -> None:
    await store_contract(store)


class Blind(InMemoryStore):
    """A store whose searches find nothing."""

    async def search(
        self,
        text: str,
        *,
        session_id: str | None = None,
        folder: str | None = None,
        owner: str | None = None,
        most: int = 50,
    ) -> Sequence[Found]:
        await super().search(text, session_id=session_id, owner=owner, most=most)
        return ()


async def test_what_a_store_has_beside_the_log_is_checked() -> None:
    with pytest.raises(AssertionError, match="finds_words_and_phrases: found by ''"):
        await store_contract(Blind)
