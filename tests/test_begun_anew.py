"""A session deleted and begun anew by others, as long as it was: who knew the old one leaves theirs alone.

A run stands still for longer than its lease lasts; nothing but a lease keeps others from its session's id.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from agentloop.compaction import Compaction, MicroCompact
from agentloop.errors import BegunAnewError, ConflictError, StoreError, TakenOverError
from agentloop.events import Compacted, Described, Event, MessageRecord, Record, RunEndRecord, RunStartRecord
from agentloop.run import Agent
from agentloop.runner import Runner
from agentloop.sessions import Leases, new_lease
from agentloop.stores import InMemoryStore, SessionStore
from agentloop.stores.base import Lease
from agentloop.testing import ScriptedModel, calls
from tests.kit import every_fact, read, reading, until

BRIEF = Leases(seconds=0.3)


async def log(store: SessionStore) -> list[Any]:
    return [record.event for record in await store.read("s")]


class Parted:
    """A store as one process sees it, that can be cut off from it as by a suspension."""

    def __init__(self, store: InMemoryStore) -> None:
        self.is_parted, self._store = False, store
        self.append, self.info, self.list = store.append, store.info, store.list
        self.delete, self.sweep, self.close = store.delete, store.sweep, store.close
        self.free_lease = store.free_lease

    async def read(self, session_id: str, *, after: int = 0, most: int | None = None) -> Sequence[Record]:
        self._check()
        return await self._store.read(session_id, after=after, most=most)

    async def take_lease(
        self, session_id: str, lease: Lease, *, seconds: float, over: str | None = None
    ) -> Lease:
        self._check()
        return await self._store.take_lease(session_id, lease, seconds=seconds, over=over)

    def _check(self) -> None:
        if self.is_parted:
            raise StoreError("out of reach")


class Ann:
    """Ann's run, in its tool `long` after its tool `quick` has answered."""

    def __init__(self, store: SessionStore, **options: Any) -> None:
        self.inside, self.go_on = asyncio.Event(), asyncio.Event()
        model = ScriptedModel([calls(("quick", {}), ("long", {})), "Ann's answer"])
        agent = Agent(model, tools=[self.quick, self.long])
        runner = Runner(agent, store=store, transcripts=None, owner="ann", **options)
        self.store = store
        self.task = asyncio.create_task(runner.run("Ann asks", session_id="s"))

    async def quick(self) -> str:
        """Answer at once."""
        return "quick"

    async def long(self) -> str:
        """Wait."""
        self.inside.set()
        await until(self.go_on)
        return "Ann's result"

    async def at_work(self) -> int:
        """How long the log is when both tools are entered and one has answered."""
        await until(self.inside)
        async with asyncio.timeout(120):
            while len(await self.store.read("s")) < 6:  # noqa: ASYNC110 — the log tells
                await asyncio.sleep(0)
        return len(await self.store.read("s"))


async def taken_by_another(store: InMemoryStore) -> Lease:
    """The lease of who has come by the session, once that of the run had run out."""
    other = replace(new_lease(), holder="another")
    async with asyncio.timeout(120):
        while (await store.take_lease("s", other, seconds=9)) != other:  # noqa: ASYNC110 — the store tells
            await asyncio.sleep(0.01)
    return other


def bobs(store: SessionStore, model: ScriptedModel) -> Runner:
    return Runner(Agent(model), store=store, transcripts=None, owner="bob", when_busy="wait")


@pytest.mark.deep
@pytest.mark.parametrize("first", ["the result", "the renewal", "the cancellation"])
async def test_a_run_whose_lease_ran_out_writes_nothing_to_a_log_begun_anew(first: str) -> None:
    store, model = InMemoryStore(), ScriptedModel(["Bob's answer", "and another"])
    anns = Parted(store)
    ann = Ann(anns, when_busy=BRIEF)
    length = await ann.at_work()
    anns.is_parted = True
    await store.delete("s")
    await bobs(store, model).run("Bob asks", session_id="s")
    theirs = await log(store)
    assert len(theirs) == length
    anns.is_parted = False
    if first == "the result":
        ann.go_on.set()
    elif first == "the cancellation":
        ann.task.cancel()
    with pytest.raises(asyncio.CancelledError if first == "the cancellation" else BegunAnewError):
        await asyncio.wait_for(ann.task, timeout=120)
    assert await log(store) == theirs
    await bobs(store, model).run("What now?", session_id="s")
    assert "Ann" not in str(model.requests[-1].messages)


async def test_a_run_whose_session_is_deleted_is_told_so_at_its_next_renewal() -> None:
    store = InMemoryStore()
    ann = Ann(store, when_busy=BRIEF)
    await ann.at_work()
    await store.delete("s")
    with pytest.raises(ConflictError, match="it was deleted meanwhile"):
        await asyncio.wait_for(ann.task, timeout=120)
    assert await log(store) == []


async def test_a_run_whose_lease_ran_out_goes_on_where_nobody_came() -> None:
    store = InMemoryStore()
    anns = Parted(store)
    ann = Ann(anns, when_busy=BRIEF)
    await ann.at_work()
    anns.is_parted = True
    other = await taken_by_another(store)
    await store.free_lease("s", other.holder)
    anns.is_parted = False
    ann.go_on.set()
    assert (await ann.task).output == "Ann's answer"
    assert isinstance((await log(store))[-1], RunEndRecord)


async def test_a_run_whose_lease_ran_out_stops_where_somebody_has_the_session() -> None:
    store = InMemoryStore()
    anns = Parted(store)
    ann = Ann(anns, when_busy=BRIEF)
    length = await ann.at_work()
    anns.is_parted = True
    await taken_by_another(store)
    anns.is_parted = False
    ann.go_on.set()
    with pytest.raises(TakenOverError):
        await ann.task
    assert len(await log(store)) == length


class Swapping(InMemoryStore):
    """A store that, right after what `when` says of its events is written or read, holds another's log."""

    def __init__(self, when: Callable[[Sequence[Event]], bool], *, reads: bool) -> None:
        super().__init__()
        self.theirs: list[Event] = []
        self.is_armed = False
        self._when, self._reads = when, reads

    async def append(self, session_id: str, events: Sequence[Event], *, expect: int) -> int:
        length = await super().append(session_id, events, expect=expect)
        if not self._reads:
            await self._swap(session_id, events)
        return length

    async def read(self, session_id: str, *, after: int = 0, most: int | None = None) -> Sequence[Record]:
        records = await super().read(session_id, after=after, most=most)
        if self._reads:
            await self._swap(session_id, [record.event for record in records])
        return records

    async def _swap(self, session_id: str, events: Sequence[Event]) -> None:
        if self.is_armed and not self.theirs and self._when(events):
            records = await super().read(session_id)
            self.theirs = [replace(record.event, id=f"their-{record.seq}") for record in records]
            await self.delete(session_id)
            await super().append(session_id, self.theirs, expect=0)


async def test_undo_takes_back_no_compaction_of_a_log_begun_anew() -> None:
    store = Swapping(lambda events: any(isinstance(event, Compacted) for event in events), reads=True)
    model = ScriptedModel(reading(6), window=8_000, summary=every_fact)
    runner = Runner(Agent(model, tools=[read]), store=store, transcripts=None)
    await runner.run("Read it all", session_id="s")
    await runner.compact("s")
    store.is_armed = True
    with pytest.raises(BegunAnewError):
        await runner.undo("s")
    assert store.theirs
    assert await log(store) == store.theirs


async def test_no_result_of_a_log_begun_anew_is_shortened() -> None:
    results = count()

    def fourth_result(events: Sequence[Event]) -> bool:
        is_result = any(isinstance(each, MessageRecord) and each.message.role == "tool" for each in events)
        return is_result and next(results) == 3

    store = Swapping(fourth_result, reads=False)
    store.is_armed = True
    policy = Compaction(micro=MicroCompact(keep_messages=2, min_gain_tokens=0))
    model = ScriptedModel(reading(6), window=200_000)
    runner = Runner(Agent(model, tools=[read], compaction=policy), store=store, transcripts=None)
    with pytest.raises(BegunAnewError):
        await runner.run("Read it all", session_id="s")
    assert store.theirs
    assert await log(store) == store.theirs


class Late(InMemoryStore):
    """A store whose first append is done some time before who asked for it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.is_written, self.tell = asyncio.Event(), asyncio.Event()

    async def append(self, session_id: str, events: Sequence[Event], *, expect: int) -> int:
        length = await super().append(session_id, events, expect=expect)
        self.is_written.set()
        await until(self.tell)
        return length


async def test_a_run_cancelled_while_its_beginning_is_stored_has_an_end_in_the_log() -> None:
    store = Late()
    runner = Runner(Agent(ScriptedModel(["never"])), store=store, transcripts=None)
    task = asyncio.create_task(runner.run("Hello", session_id="s"))
    await until(store.is_written)
    task.cancel()
    await asyncio.sleep(0)
    store.tell.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    events = await log(store)
    assert [type(event) for event in events] == [RunStartRecord, Described, MessageRecord, RunEndRecord]
    assert (events[-1].run_id, events[-1].status) == (events[0].run_id, "interrupted")
