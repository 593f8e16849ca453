"""What others write to a session during a run: a run goes on over what begins, says and ends nothing."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop.callbacks import Callbacks
from agentloop.compaction import Compaction, MicroCompact
from agentloop.errors import ConflictError, StoreError, TakenOverError
from agentloop.events import (
    Cleared,
    Compacted,
    Described,
    Event,
    MessageRecord,
    ModelCalled,
    NotCompacted,
    Noted,
    Restored,
    RunEndRecord,
    RunStartRecord,
)
from agentloop.messages import Message
from agentloop.models import ModelRequest
from agentloop.run import Agent
from agentloop.runner import Runner
from agentloop.stores import InMemoryStore, SessionStore
from agentloop.stream import CompactionEnded, ResultsCleared, StreamEvent
from agentloop.testing import ScriptedModel, calls
from tests.kit import added, assert_valid, every_fact, read, reading, until
from tests.store_kit import LogAlone

WINDOW = 8_000


def runner_for(model: ScriptedModel, store: SessionStore, *callbacks: Callbacks, **policy: Any) -> Runner:
    agent = Agent(model, tools=[read], compaction=Compaction(**policy))
    return Runner(agent, store=store, transcripts=None, callbacks=callbacks)


async def log(store: SessionStore) -> list[Any]:
    return [record.event for record in await store.read("s")]


async def written(store: SessionStore, event: Event) -> None:
    """Write the event at the log's end, wherever that is, as a host's own code would."""
    while True:
        length = len(await store.read("s"))
        try:
            await store.append("s", [event], expect=length)
        except ConflictError:
            continue
        return


class At(Callbacks):
    """Does something at the n-th thing that a run shows."""

    def __init__(self, acts: dict[int, Callable[[], Awaitable[object]]]) -> None:
        self.acts, self.seen = acts, 0

    async def on_event(self, event: StreamEvent) -> None:
        self.seen += 1
        if act := self.acts.pop(self.seen, None):
            await act()


def check_log(events: Sequence[Any], *, results: int) -> None:
    """Every message stands in the log once, and the run has one beginning and one end."""
    said = [event.message for event in events if isinstance(event, MessageRecord) and event.branch is None]
    assert [message.text for message in said if message.role == "user"] == ["Read it all"]
    answered = Counter(message.tool_call_id for message in said if message.role == "tool")
    called = [call.id for message in said for call in message.tool_calls]
    assert Counter(called) == answered
    assert len(answered) == results
    assert said[-1].text == "all read"
    assert [type(event) for event in events if isinstance(event, RunStartRecord | RunEndRecord)] == [
        RunStartRecord,
        RunEndRecord,
    ]


ACTS = ("compact", "undo", "rename", "note", "branch", "own compact")


@pytest.mark.many(30)
@given(
    acts=st.dictionaries(st.integers(1, 60), st.sampled_from(ACTS), max_size=8),
    window=st.sampled_from([3_000, 128_000]),
    gain=st.sampled_from([0, None]),
)
async def test_l3_l15_whatever_others_do_beside_a_run_it_ends_and_every_message_is_there_once(
    acts: dict[int, str], window: int, gain: int | None
) -> None:
    store = InMemoryStore()
    other = runner_for(ScriptedModel([], window=2_500, summary=every_fact), store)
    model = ScriptedModel(reading(6, 2, 150), window=window, summary=every_fact)
    do: dict[str, Callable[[], Awaitable[object]]] = {
        "compact": lambda: other.compact("s"),
        "own compact": lambda: runner.compact("s"),
        "undo": lambda: other.undo("s"),
        "rename": lambda: written(store, Described(title="another")),
        "note": lambda: written(store, Noted(source="host")),
        "branch": lambda: written(store, MessageRecord(message=Message.user("aside"), tokens=1, branch="b")),
    }
    at = At({number: do[name] for number, name in acts.items()})
    runner = runner_for(model, store, at, micro=MicroCompact(min_gain_tokens=gain))
    result = await runner.run("Read it all", session_id="s")
    assert (result.output, result.status) == ("all read", "answered")
    assert_valid(model.requests)
    check_log(await log(store), results=12)
    assert (await runner.resume("s")).output == "all read"


async def test_a_run_in_its_tool_goes_on_from_what_another_compacted(tmp_path: Path) -> None:
    store = InMemoryStore()
    other = runner_for(ScriptedModel([], window=2_500, summary="In short: all was read."), store)

    async def compacts() -> str:
        """Compact."""
        result = await other.compact("s")
        return result.status if result else "nothing"

    model = ScriptedModel([*reading(4)[:-1], calls(compacts={}), "done"])
    runner = Runner(Agent(model, tools=[read, compacts]), store=store, transcripts=None)
    assert (await runner.run("Read it all", session_id="s")).output == "done"
    assert "In short: all was read." not in str(model.requests[-2].messages)
    assert "In short: all was read." in str(model.requests[-1].messages)
    assert model.requests[-1].messages[-1]["content"] == "done"
    assert_valid(model.requests)


async def test_a_callback_that_compacts_its_own_session_does_not_end_the_run() -> None:
    store = InMemoryStore()

    class Compacting(Callbacks):
        done = 0

        async def on_event(self, event: StreamEvent) -> None:
            if not self.done and len(model.requests) == 4:
                self.done += 1
                result = await runner.compact("s")
                assert result
                assert result.status == "done"

    compacting = Compacting()
    model = ScriptedModel(reading(6), window=WINDOW, summary=every_fact)
    runner = runner_for(model, store, compacting, micro=None)
    assert (await runner.run("Read it all", session_id="s")).output == "all read"
    assert compacting.done
    assert_valid(model.requests)


async def test_a_summary_that_lost_the_race_is_dropped_and_the_run_goes_on_from_the_other() -> None:
    store = InMemoryStore()
    other = runner_for(ScriptedModel([], window=WINDOW, summary="The other's summary."), store)
    asked = 0

    async def summary(request: ModelRequest) -> str:
        nonlocal asked
        asked += 1
        if asked == 1:
            result = await other.compact("s")
            assert result
            assert result.status == "done"
        return every_fact(request)

    model = ScriptedModel(reading(9), window=5_000, summary=summary)
    result = await runner_for(model, store, micro=None).run("Read it all", session_id="s")
    first = result.compactions[0]
    assert (first.status, first.error) == ("conflict", "another writer compacted the session first")
    assert result.output == "all read"
    after = next(at for at, request in enumerate(model.requests) if request.purpose == "summary")
    assert model.requests[after + 1].purpose == "agent", "no second summary is asked for"
    assert "The other's summary." in str(model.requests[after + 1].messages)
    assert_valid(model.requests)
    assert [event.replacement for event in await log(store) if isinstance(event, Compacted)]


async def test_clearing_that_lost_the_race_is_done_before_a_later_request() -> None:
    store, noted = InMemoryStore(), 0

    class Crossing(InMemoryStore):
        async def append(self, session_id: str, events: Any, *, expect: int) -> int:
            nonlocal noted
            if isinstance(events[0], Cleared) and not noted:
                noted += 1
                await super().append(session_id, [Noted(source="host")], expect=expect)
            return await super().append(session_id, events, expect=expect)

    store = Crossing()
    model = ScriptedModel(reading(10), summary=every_fact)
    runner = runner_for(model, store, micro=MicroCompact(min_gain_tokens=0))
    shown = [event async for event in runner.stream("Read it all", session_id="s")]
    assert noted
    assert [event for event in shown if isinstance(event, ResultsCleared)]
    check_log(await log(store), results=10)
    assert_valid(model.requests)


async def test_a_run_that_meets_another_in_its_summary_stops_and_stores_nothing() -> None:
    store = LogAlone()
    second = ScriptedModel(["second"])

    async def summary(request: ModelRequest) -> str:
        await runner_for(second, store).run("Me too", session_id="s")
        return every_fact(request)

    model = ScriptedModel(reading(9), window=5_000, summary=summary)
    shown = []
    with pytest.raises(TakenOverError):
        async for event in runner_for(model, store, micro=None).stream("Read it all", session_id="s"):
            shown.append(event)
    ended = [event.status for event in shown if isinstance(event, CompactionEnded)]
    assert ended == ["conflict"]
    assert [request.purpose for request in model.requests].count("summary") == 1
    events = await log(store)
    assert isinstance(events[-1], RunEndRecord)
    assert not any(isinstance(event, Compacted) for event in events)
    assert events[-1].status == "answered"
    assert_valid([*model.requests, *second.requests])


async def test_a_message_said_by_somebody_else_ends_the_run() -> None:
    store = InMemoryStore()

    async def says(request: ModelRequest) -> str:
        await written(store, added(Message.user("me too")))
        return "answer"

    with pytest.raises(ConflictError, match="somebody else wrote to it; open it again"):
        await runner_for(ScriptedModel([says]), store).run("Go", session_id="s")
    texts = [event.message.text for event in await log(store) if isinstance(event, MessageRecord)]
    assert texts == ["Go", "me too"]


@pytest.mark.parametrize("writers", [2, 7])
async def test_l15_of_runs_that_race_without_leases_each_is_whole_or_stopped(writers: int) -> None:
    store = LogAlone()
    models = [ScriptedModel([calls(read={"name": f"f{n}"}), f"answer {n}"]) for n in range(writers)]
    runs = [runner_for(model, store).run(f"question {n}", session_id="s") for n, model in enumerate(models)]
    ends = await asyncio.gather(*runs, return_exceptions=True)
    whole = [n for n, end in enumerate(ends) if not isinstance(end, BaseException)]
    assert all(isinstance(end, StoreError) for n, end in enumerate(ends) if n not in whole)
    events = await log(store)
    said = Counter(event.message.text for event in events if isinstance(event, MessageRecord))
    for n in range(writers):
        assert said[f"answer {n}"] == (n in whole)
        assert said[f"question {n}"] <= 1
    last = ScriptedModel(["last"])
    assert (await runner_for(last, store).run("And?", session_id="s")).output == "last"
    assert_valid([request for model in (*models, last) for request in model.requests])


async def test_l15_of_compactions_that_race_one_is_stored_and_each_asked_once() -> None:
    store = InMemoryStore()
    await runner_for(ScriptedModel(reading(6)), store).run("Read it all", session_id="s")
    together = asyncio.Barrier(5)

    async def summary(request: ModelRequest) -> str:
        await together.wait()
        return every_fact(request)

    models = [ScriptedModel([], window=WINDOW, summary=summary) for _ in range(5)]
    results = await asyncio.gather(*(runner_for(model, store).compact("s") for model in models))
    assert sorted(each.status for each in results if each) == ["conflict"] * 4 + ["done"]
    assert [len(model.requests) for model in models] == [1] * 5
    events = await log(store)
    assert [type(event) for event in events[-10:]] == [ModelCalled, Compacted] + 4 * [
        ModelCalled,
        NotCompacted,
    ]
    assert sum(isinstance(event, Compacted) for event in events) == 1


async def test_undo_takes_back_what_is_the_newest_when_it_is_written() -> None:
    class Crossing(InMemoryStore):
        crossing: Callable[[], Awaitable[object]] | None = None

        async def append(self, session_id: str, events: Any, *, expect: int) -> int:
            if isinstance(events[0], Restored) and self.crossing:
                crossing, self.crossing = self.crossing, None
                await crossing()
            return await super().append(session_id, events, expect=expect)

    store = Crossing()
    model = ScriptedModel([*reading(6), *reading(6)], window=128_000, summary=every_fact)
    runner = runner_for(model, store, micro=None)
    await runner.run("Read it all", session_id="s")
    first = await runner.compact("s")
    await runner.run("Read it again", session_id="s")
    store.crossing = lambda: runner.compact("s")
    taken_back = await runner.undo("s")
    events = await log(store)
    assert first
    assert taken_back != first.seq
    assert isinstance(events[-2], Compacted)
    assert events[-1] == Restored(seq=len(events) - 1)


WHERE = ("tool", "answer", "summary")


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("how", ["goes on", "cancelled"])
async def test_a_session_deleted_during_its_run_stays_deleted(where: str, how: str) -> None:
    store, deleted = InMemoryStore(), asyncio.Event()

    async def gone(at: str) -> None:
        if at == where and not deleted.is_set():
            await store.delete("s")
            deleted.set()
            if how == "cancelled":
                await asyncio.Event().wait()

    async def look() -> str:
        """Look."""
        await gone("tool")
        return "seen " + "word " * 900

    async def answer(request: ModelRequest) -> Any:
        await gone("answer")
        return calls(look={})

    async def summary(request: ModelRequest) -> str:
        await gone("summary")
        return every_fact(request)

    script = [calls(look={}), answer, *([calls(look={})] * 12), "done"]
    model = ScriptedModel(script, window=WINDOW, summary=summary)
    agent = Agent(model, tools=[look], compaction=Compaction(micro=None))
    runner = Runner(agent, store=store, transcripts=None)
    task = asyncio.create_task(runner.run("Go", session_id="s"))
    await until(deleted)
    if how == "cancelled":
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        with pytest.raises(ConflictError, match="it was deleted meanwhile; nothing more is stored") as error:
            await task
        assert "\n" not in str(error.value)
    assert await log(store) == []
    assert await store.info("s") is None


@pytest.mark.parametrize("more", [-2, 0, 3])
async def test_a_compaction_of_a_deleted_session_is_not_written_to_the_next_of_its_id(more: int) -> None:
    store = InMemoryStore()
    await runner_for(ScriptedModel(reading(6)), store).run("Read it all", session_id="s")
    others = [Noted(source="another", data={"at": at}) for at in range(len(await log(store)) + more)]

    async def begun_anew(request: ModelRequest) -> str:
        await store.delete("s")
        await store.append("s", others, expect=0)
        return every_fact(request)

    runner = runner_for(ScriptedModel([], window=WINDOW, summary=begun_anew), store)
    with pytest.raises(ConflictError, match=r"begun anew|deleted meanwhile"):
        await runner.compact("s")
    assert await log(store) == others


async def test_a_session_deleted_during_a_compaction_from_outside_is_told_in_one_line() -> None:
    store = InMemoryStore()
    await runner_for(ScriptedModel(reading(6)), store).run("Read it all", session_id="s")

    async def summary(request: ModelRequest) -> str:
        await store.delete("s")
        return every_fact(request)

    runner = runner_for(ScriptedModel([], window=WINDOW, summary=summary), store)
    with pytest.raises(ConflictError, match="it was deleted meanwhile"):
        await runner.compact("s")
    assert await log(store) == []
