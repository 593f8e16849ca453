"""One run at a time works on a session: the second is refused, waits or takes over."""

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from agentloop._plumbing.processes import this_process
from agentloop.cli.app import exit_status
from agentloop.errors import SessionBusyError, StoreError, TakenOverError, UsageError
from agentloop.events import MessageRecord, Record, RunEndRecord, RunStartRecord
from agentloop.results import status_of
from agentloop.run import Agent
from agentloop.sessions import Leases, WhenBusy
from agentloop.stores import InMemoryStore
from agentloop.stores.base import Lease
from agentloop.stream import RunEnded
from agentloop.sync import SyncRunner
from agentloop.testing import ScriptedModel, calls
from tests.kit import assert_valid, until, watched
from tests.leases_kit import AtWork, Gate, log, runner_for
from tests.store_kit import LogAlone


class Asked(InMemoryStore):
    """A store that tells how often it was asked for a lease."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Semaphore(0)

    async def take_lease(
        self, session_id: str, lease: Lease, *, seconds: float, over: str | None = None
    ) -> Lease:
        self.asked.release()
        return await super().take_lease(session_id, lease, seconds=seconds, over=over)

    async def asked_again(self, times: int) -> None:
        for _ in range(times):
            await asyncio.wait_for(self.asked.acquire(), timeout=120)


def lease_of(name: str, **fields: Any) -> Lease:
    process = this_process()
    return Lease(
        **{
            "holder": name,
            "place": process.place,
            "pid": process.pid,
            "started": process.started,
            "since": 0.0,
            **fields,
        }
    )


async def test_a_second_run_is_refused_and_leaves_no_trace() -> None:
    store = InMemoryStore()
    async with AtWork(store) as first:
        before = await log(store)
        second = runner_for(["second"], store=store)
        with pytest.raises(
            SessionBusyError, match=f"'s' is busy: process {os.getpid()} on .* since 20"
        ) as busy:
            await second.run("Me too", session_id="s")
        assert "\n" not in str(busy.value)
        assert (status_of(busy.value), exit_status(status_of(busy.value))) == ("try_later", 75)
        with pytest.raises(SessionBusyError):
            await second.resume("s")
        with pytest.raises(SessionBusyError):
            await watched(second, "And me")
        assert await log(store) == before
        assert second.agent.model.requests == []  # type: ignore[attr-defined]
        first.gate.go_on.set()
        assert (await first.task).output == "first"
    assert (await second.run("Now", session_id="s")).output == "second"


async def test_a_run_that_waits_sees_all_that_the_other_wrote() -> None:
    store, told = InMemoryStore(), asyncio.Queue[Lease]()
    async with AtWork(store) as first:
        leases = Leases(when_busy="wait", waits=told.put_nowait)
        second = runner_for(["second"], store=store, when_busy=leases)
        task = asyncio.create_task(second.run("Me too", session_id="s"))
        assert (await told.get()).pid == os.getpid()
        assert not task.done()
        first.gate.go_on.set()
        assert (await first.task).output == "first"
        result = await task
    texts = [message.text for message in result.messages]
    assert texts == ["Go", "", "waited", "first", "Me too", "second"]
    assert told.empty()


async def test_twenty_runs_of_one_session_wait_for_each_other() -> None:
    store = InMemoryStore()
    runners = [runner_for([f"answer {n}"], store=store, when_busy="wait") for n in range(20)]
    await asyncio.gather(*(each.run(f"question {n}", session_id="s") for n, each in enumerate(runners)))
    events = await log(store)
    edges = [type(event) for event in events if isinstance(event, RunStartRecord | RunEndRecord)]
    assert edges == [RunStartRecord, RunEndRecord] * 20
    said = [event.message.text for event in events if isinstance(event, MessageRecord)]
    pairs = list(zip(said[::2], said[1::2], strict=True))
    assert sorted(pairs) == sorted((f"question {n}", f"answer {n}") for n in range(20))


async def test_who_takes_over_goes_on_and_the_other_stops_at_its_next_renewal() -> None:
    store = InMemoryStore()
    async with AtWork(store, when_busy=Leases(seconds=0.3)) as first:
        second = runner_for(["second"], store=store, when_busy="take_over")
        assert (await second.run("Me too", session_id="s")).output == "second"
        after = await log(store)
        with pytest.raises(TakenOverError, match="taken over by another run") as error:
            await first.task
        assert first.gate.cancelled
        assert first.task.cancelling() == 0
        assert status_of(error.value) == "interrupted"
    assert await log(store) == after
    assert [event.run_id for event in after if isinstance(event, RunEndRecord)] == [after[-1].run_id]
    assert_valid(second.agent.model.requests)  # type: ignore[attr-defined]


async def test_the_stream_of_a_run_that_was_put_out_says_so() -> None:
    store, gate = InMemoryStore(), Gate()
    first = runner_for([calls(wait={})], gate.wait, store=store, when_busy=Leases(seconds=0.3))
    shown: list[Any] = []

    async def shows() -> None:
        async for event in first.stream("Go", session_id="s"):
            shown.append(event)

    task = asyncio.create_task(shows())
    await until(gate.inside)
    await runner_for(["second"], store=store, when_busy="take_over").run("Me too", session_id="s")
    with pytest.raises(TakenOverError):
        await task
    assert isinstance(shown[-1], RunEnded)
    assert shown[-1].status == "interrupted"
    assert "taken over by another run" in (shown[-1].error or "")


async def test_the_other_stops_at_its_next_append_where_that_comes_first() -> None:
    store = InMemoryStore()
    async with AtWork(store) as first:
        second = runner_for(["second"], store=store, when_busy="take_over")
        await second.run("Me too", session_id="s")
        after = await log(store)
        first.gate.go_on.set()
        with pytest.raises(TakenOverError):
            await first.task
    assert await log(store) == after


async def test_a_cancelled_run_that_was_put_out_stores_no_end_over_the_new_run() -> None:
    store = InMemoryStore()
    async with AtWork(store) as first:
        await runner_for(["second"], store=store, when_busy="take_over").run("Me too", session_id="s")
        after = await log(store)
        first.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first.task
    assert await log(store) == after


async def test_who_was_put_out_before_it_began_cannot_keep_the_other_from_beginning() -> None:
    class Late(InMemoryStore):
        """What the first run writes at its very beginning lands between another's look and its beginning."""

        crossing: Any = None

        async def append(self, session_id: str, events: Any, *, expect: int) -> int:
            if self.crossing is not None:
                crossing, self.crossing = self.crossing, None
                await super().append(session_id, [crossing], expect=expect)
            return await super().append(session_id, events, expect=expect)

    store = Late()
    await runner_for(["one"], store=store).run("1", session_id="s")
    store.crossing = RunStartRecord(run_id="put out", model="m")
    assert (await runner_for(["two"], store=store).run("2", session_id="s")).output == "two"
    assert [type(event) for event in (await log(store))[-6:-4]] == [RunStartRecord, RunStartRecord]


async def test_a_lease_is_renewed_for_as_long_as_the_run_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    class Timed(Asked):
        """A store by whose clock each time that it is asked comes a third of a lease after the last."""

        now = 0.0

        async def take_lease(self, session_id: str, lease: Lease, **options: Any) -> Lease:
            self.now += 0.05
            return await super().take_lease(session_id, lease, **options)

    store = Timed()
    monkeypatch.setattr("agentloop.stores.memory.time", SimpleNamespace(monotonic=lambda: store.now))
    async with AtWork(store, when_busy=Leases(seconds=0.15)) as first:
        await store.asked_again(6)
        with pytest.raises(SessionBusyError):
            await runner_for(["second"], store=store).run("Me too", session_id="s")
        first.gate.go_on.set()
        assert (await first.task).output == "first"
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("how", ["answered", "failed", "cancelled", "usage"])
async def test_however_a_run_ends_it_lets_go_and_leaves_no_task(how: str) -> None:
    store = InMemoryStore()
    if how == "cancelled":
        async with AtWork(store) as first:
            first.task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first.task
    else:
        answers = {"answered": ["one"], "failed": [RuntimeError("broken")], "usage": [UsageError("no")]}[how]
        with suppress(RuntimeError, UsageError):
            await runner_for(answers, store=store).run("1", session_id="s")
    assert len(asyncio.all_tasks()) == 1
    assert (await runner_for(["two"], store=store).run("2", session_id="s")).output == "two"


async def test_a_run_is_free_to_follow_as_soon_as_the_end_is_told() -> None:
    store = InMemoryStore()
    first, second = (runner_for([text], store=store) for text in ("one", "two"))
    async for event in first.stream("1", session_id="s"):
        if isinstance(event, RunEnded):
            assert (await second.run("2", session_id="s")).output == "two"


def test_a_run_thrown_away_with_its_event_loop_holds_nothing() -> None:
    store, loop = InMemoryStore(), asyncio.new_event_loop()
    held = Leases().held("s", store)
    loop.run_until_complete(held.__aenter__())
    with pytest.raises(SessionBusyError):
        asyncio.run(runner_for(["never"], store=store).run("1", session_id="s"))
    (renewing,) = asyncio.all_tasks(loop)
    renewing.cancel()
    loop.run_until_complete(asyncio.wait({renewing}))
    loop.close()
    assert asyncio.run(runner_for(["two"], store=store).run("2", session_id="s")).output == "two"


async def test_cancelled_while_it_waits_it_holds_nothing() -> None:
    store = InMemoryStore()
    async with AtWork(store) as first:
        told = asyncio.Queue[Lease]()
        leases = Leases(when_busy="wait", waits=told.put_nowait)
        waiting = runner_for(["never"], store=store, when_busy=leases)
        task = asyncio.create_task(waiting.run("Me too", session_id="s"))
        await told.get()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        first.gate.go_on.set()
        await first.task
    assert (await runner_for(["two"], store=store).run("2", session_id="s")).output == "two"
    assert not waiting.agent.model.requests  # type: ignore[attr-defined]


async def test_cancelled_while_the_store_takes_the_lease_it_gives_it_back() -> None:
    class Slow(InMemoryStore):
        def __init__(self) -> None:
            super().__init__()
            self.asked, self.go_on = asyncio.Event(), asyncio.Event()

        async def take_lease(
            self, session_id: str, lease: Lease, *, seconds: float, over: str | None = None
        ) -> Lease:
            self.asked.set()
            await until(self.go_on)
            return await super().take_lease(session_id, lease, seconds=seconds, over=over)

    store = Slow()
    task = asyncio.create_task(runner_for(["never"], store=store).run("1", session_id="s"))
    await until(store.asked)
    task.cancel()
    store.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    other = lease_of("other")
    assert await store.take_lease("s", other, seconds=9) == other
    assert await log(store) == []


async def test_a_store_that_cannot_be_asked_ends_the_run_and_one_that_fails_later_does_not() -> None:
    class Failing(Asked):
        failing = True

        async def take_lease(
            self, session_id: str, lease: Lease, *, seconds: float, over: str | None = None
        ) -> Lease:
            if self.failing:
                self.asked.release()
                raise StoreError("the disc is full")
            return await super().take_lease(session_id, lease, seconds=seconds, over=over)

        async def free_lease(self, session_id: str, holder: str) -> None:
            raise StoreError("the disc is full")

    store = Failing()
    with pytest.raises(StoreError, match="the disc is full"):
        await runner_for(["never"], store=store).run("1", session_id="s")
    assert await log(store) == []
    store.failing = False
    async with AtWork(store, when_busy=Leases(seconds=0.06)) as first:
        store.failing = True
        await store.asked_again(4)
        first.gate.go_on.set()
        assert (await first.task).output == "first"


async def test_a_store_that_fails_in_place_of_being_cancelled_keeps_no_run_from_its_end() -> None:
    class Failing(InMemoryStore):
        def __init__(self) -> None:
            super().__init__()
            self.hangs, self.is_read = False, asyncio.Event()

        async def read(self, session_id: str, *, after: int = 0, most: int | None = None) -> Sequence[Record]:
            if self.hangs:
                self.is_read.set()
                with suppress(asyncio.CancelledError):
                    await asyncio.Event().wait()
                raise StoreError("the connection is lost")
            return await super().read(session_id, after=after, most=most)

    store = Failing()
    async with AtWork(store, when_busy=Leases(seconds=0.06)) as first:
        store.hangs = True
        await until(store.is_read)
        store.hangs = False
        first.gate.go_on.set()
        assert (await asyncio.wait({first.task}, timeout=120))[0]
    assert (await first.task).output == "first"


@pytest.mark.parametrize("rule", get_args(WhenBusy))
async def test_a_run_that_its_own_tool_begins_on_its_session_is_refused(rule: WhenBusy) -> None:
    store = InMemoryStore()
    inner = runner_for(["never"], store=store, when_busy=rule)

    async def again() -> str:
        """Run again."""
        return (await inner.run("Again", session_id="s")).output

    outer = runner_for([calls(again={}), "done"], again, store=store)
    assert (await outer.run("Go", session_id="s")).output == "done"
    answers = [
        event.message.text
        for event in await log(store)
        if isinstance(event, MessageRecord) and event.message.role == "tool"
    ]
    assert len(answers) == 1
    assert "held by the very run that asks for it" in answers[0]


def test_a_plain_tool_that_runs_its_own_session_is_refused_too() -> None:
    store = InMemoryStore()
    with SyncRunner(
        Agent(ScriptedModel(["never"])), store=store, transcripts=None, when_busy="wait"
    ) as inner:

        def again() -> str:
            """Run again."""
            return inner.run("Again", session_id="s").output

        model = ScriptedModel([calls(again={}), "done"])
        with SyncRunner(Agent(model, tools=[again]), store=store, transcripts=None) as outer:
            assert outer.run("Go", session_id="s").output == "done"
    assert "held by the very run" in str(model.requests[-1].messages)


async def test_a_store_without_leases_lets_both_in_and_the_log_tells_them_apart() -> None:
    store = LogAlone()
    async with AtWork(store) as first:
        assert (await runner_for(["second"], store=store).run("Me too", session_id="s")).output == "second"
        first.gate.go_on.set()
        with pytest.raises(TakenOverError):
            await first.task


@pytest.mark.parametrize("bad", ["Wait", "", None, True, "take-over"])
def test_a_rule_that_is_none_is_refused(bad: Any) -> None:
    with pytest.raises(UsageError, match="when_busy must be one of refuse, wait, take_over"):
        runner_for([], store=InMemoryStore(), when_busy=bad)


def test_a_lease_that_no_crash_would_end_is_refused() -> None:
    with pytest.raises(UsageError, match="seconds must be a finite number above 0"):
        Leases(seconds=float("inf"))
