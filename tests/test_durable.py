"""Durable runs with one worker in this process: how a run goes, in the log and in DBOS's steps."""

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from agentloop import Agent, Approve, Compaction, Limits, Reject, Runner, UsageError, tool
from agentloop.durable import RunQueue
from agentloop.errors import ModelUnavailableError
from agentloop.events import Compacted, Described, ModelCalled, RunEndRecord, RunSetup, RunStartRecord
from agentloop.messages import Message, ToolCall
from agentloop.models import ModelRequest
from agentloop.prompts import INTERRUPTED
from agentloop.stores import SessionStore
from agentloop.stream import AnyStreamEvent, RunEnded, RunStarted
from agentloop.testing import FailingModel, Reply, ScriptedModel, calls
from agentloop.triggers import WindowFraction
from tests import durable_work_kit
from tests.durable_work_kit import (
    Gate,
    Heard,
    answers,
    at_work,
    echo,
    looked_at,
    messages,
    over,
    said,
)
from tests.kit import assert_valid, read, until
from tests.test_approvals import Disc

url, queue, store = durable_work_kit.url, durable_work_kit.queue, durable_work_kit.store
no_run_is_left = durable_work_kit.no_run_is_left
in_a_folder_of_its_own = durable_work_kit.in_a_folder_of_its_own


def steps_of(url: str, run_id: str) -> list[str]:
    """The names of the steps that DBOS holds of a run."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT function_name FROM dbos.operation_outputs WHERE workflow_uuid = %s ORDER BY function_id",
            [run_id],
        )
        return [name for (name,) in rows]


async def test_each_model_and_tool_call_is_a_step_and_the_log_is_that_of_any_run(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    model = ScriptedModel([calls(("echo", {"text": "a"}), ("echo", {"text": "b"})), "both heard"])
    run_id = await queue.submit("Say a and b.", session_id="first")
    async with at_work(Agent(model, tools=[echo]), url):
        run = await over(queue, run_id)
    assert (run.state, run.tries, run.session_id, run.error) == ("answered", 1, "first", None)
    assert run.usage is not None
    assert await queue.answer(run_id) == "both heard"
    first, second = (call.id for call in messages(await store.read("first"))[1].message.tool_calls)
    wanted = ["begin", "ask", f"tool {first}", f"tool {second}", "ask", "end"]
    assert steps_of(url, run_id) == wanted
    assert (await queue.run(run_id)).doing == "end"
    lines = await said(store, "first")
    assert lines[0] == ("user", "Say a and b.")
    assert sorted(lines[2:4]) == [("tool", "heard a"), ("tool", "heard b")]
    assert lines[4] == ("assistant", "both heard")
    edges = [r.event for r in await store.read("first") if isinstance(r.event, RunStartRecord | RunEndRecord)]
    assert edges == [
        RunStartRecord(run_id=run_id, model="scripted", setup=RunSetup(compact_at=0.8)),
        RunEndRecord(run_id=run_id, status="answered", usage=run.usage),
    ]
    assert_valid(model.requests)


async def test_tools_that_ask_for_it_share_one_thread_for_as_long_as_the_run_is_here(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    seen: list[threading.Thread] = []

    @tool(thread="own")
    def look() -> str:
        """Look."""
        seen.append(threading.current_thread())
        return "seen"

    model = ScriptedModel([calls(("look", {}), ("look", {})), calls(look={}), "done"])
    run_id = await queue.submit("Look.", session_id="threads")
    async with at_work(Agent(model, tools=[look]), url):
        assert (await over(queue, run_id)).state == "answered"
    assert (len(seen), len(set(seen))) == (3, 1)
    await asyncio.to_thread(seen[0].join)


@pytest.mark.deep
async def test_runs_of_a_session_are_done_one_after_the_other_in_the_order_submitted(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    ids = [await queue.submit(f"question {n}", session_id="line") for n in range(4)]
    async with at_work(Agent(ScriptedModel(answers(4))), url):
        assert {(await over(queue, run_id)).state for run_id in ids} == {"answered"}
    assert [text for role, text in await said(store, "line") if role == "user"] == [
        f"question {n}" for n in range(4)
    ]
    edges = [
        type(r.event) for r in await store.read("line") if isinstance(r.event, RunStartRecord | RunEndRecord)
    ]
    assert edges == [RunStartRecord, RunEndRecord] * 4


@pytest.mark.deep
async def test_a_run_cancelled_in_a_tool_goes_on_when_resumed_and_the_tool_is_told_as_interrupted(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    gate = Gate()
    model = ScriptedModel([calls(("wait", {})), "it may have happened"])
    run_id = await queue.submit("Go through.", session_id="cancelled")
    cancelled = Heard(RunEnded)
    async with at_work(Agent(model, tools=[gate.wait]), url, on_event=cancelled):
        await until(gate.entered)
        assert (await queue.cancel(run_id)).state == "cancelled"
        await until(cancelled.is_heard)
        await queue.resume(run_id)
        run = await over(queue, run_id)
    assert (run.state, run.error, gate.times) == ("answered", None, 1)
    assert ("tool", INTERRUPTED) in await said(store, "cancelled")
    ends = [r.event.status for r in await store.read("cancelled") if isinstance(r.event, RunEndRecord)]
    assert ends == ["interrupted", "answered"]
    assert_valid(model.requests)


@pytest.mark.deep
async def test_limits_hold_across_executions_and_there_is_what_there_is_of_an_answer(
    url: str, queue: RunQueue
) -> None:
    gate, ends, cancelled = Gate(), list[RunEnded](), asyncio.Event()

    def heard(event: AnyStreamEvent) -> None:
        if isinstance(event, RunEnded):
            ends.append(event)
            cancelled.set()

    half = Message.assistant("Half of it: A.", calls(("wait", {})))
    model = ScriptedModel([calls(echo={"text": "1"}), half, calls(echo={"text": "2"})])
    run_id = await queue.submit("Never end.", session_id="limited")
    agent = Agent(model, tools=[gate.wait, echo])
    async with at_work(agent, url, limits=Limits(steps=3), on_event=heard):
        await until(gate.entered)
        await queue.cancel(run_id)
        await until(cancelled)
        await queue.resume(run_id)
        run = await over(queue, run_id)
    assert (run.state, run.error) == ("limit", "the limit of 3 model calls is reached")
    assert len(model.requests) == 3
    assert await queue.answer(run_id) == ends[-1].output == "Half of it: A."


async def test_a_step_whose_server_is_away_is_tried_again(url: str, queue: RunQueue) -> None:
    away = ModelUnavailableError("no connection")
    model = FailingModel(away, times=2, then=ScriptedModel(["back"]))
    run_id = await queue.submit("Are you there?")
    async with at_work(Agent(model), url, retry_seconds=0.01):
        assert (await over(queue, run_id)).state == "answered"
    assert len(model.requests) == 3


@pytest.mark.deep
async def test_a_compaction_is_a_step_of_its_own(url: str, queue: RunQueue, store: SessionStore) -> None:
    reads = [calls(("read", {"name": f"file_{n}", "words": 300})) for n in range(6)]
    model = ScriptedModel([*reads, "all read"], window=4000)
    agent = Agent(model, tools=[read], compaction=Compaction(trigger=WindowFraction(0.5), micro=None))
    run_id = await queue.submit("Read all files.", session_id="long")
    async with at_work(agent, url):
        run = await over(queue, run_id)
    assert run.state == "answered"
    assert "make_room" in steps_of(url, run_id)
    assert any(isinstance(r.event, Compacted) for r in await store.read("long"))
    assert_valid(model.requests)


class Renames:
    """Answers as it is given, once somebody has given the session another title meanwhile."""

    def __init__(self, store: SessionStore, session_id: str) -> None:
        self._store, self._session_id = store, session_id
        self.times = 0

    def then(self, reply: Reply) -> Reply:
        """The reply, which comes when the rename stands in the log."""

        async def renamed(_: ModelRequest) -> Reply:
            self.times += 1
            length = len(await self._store.read(self._session_id))
            await self._store.append(self._session_id, [Described(title="Another")], expect=length)
            return reply

        return renamed


@pytest.mark.deep
async def test_a_rename_while_the_model_answers_throws_no_answer_away(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    renames = Renames(store, "renamed")
    model = ScriptedModel([renames.then(calls(echo={"text": "a"})), renames.then("done")])
    run_id = await queue.submit("Say a.", session_id="renamed")
    async with at_work(Agent(model, tools=[echo]), url):
        assert (await over(queue, run_id)).state == "answered"
    records = await store.read("renamed")
    called = [record for record in records if isinstance(record.event, ModelCalled)]
    assert (len(model.requests), len(called), renames.times) == (2, 2, 2)
    assert [text for _, text in await said(store, "renamed")] == ["Say a.", "", "heard a", "done"]


@pytest.mark.deep
async def test_a_rename_while_a_summary_is_written_throws_none_away(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    renames = Renames(store, "summed-up")
    reads = [calls(("read", {"name": f"file_{n}", "words": 300})) for n in range(6)]
    summary = renames.then("In short: all files were read, and each holds what it should.")
    model = ScriptedModel([*reads, "all read"], window=4000, summary=summary)
    agent = Agent(model, tools=[read], compaction=Compaction(trigger=WindowFraction(0.5), micro=None))
    run_id = await queue.submit("Read all files.", session_id="summed-up")
    async with at_work(agent, url):
        assert (await over(queue, run_id)).state == "answered"
    records = await store.read("summed-up")
    summaries = [r for r in records if isinstance(r.event, ModelCalled) and r.event.purpose != "agent"]
    compacted = [r for r in records if isinstance(r.event, Compacted)]
    assert renames.times == len(summaries) == len(compacted) > 0


@pytest.mark.deep
async def test_the_compact_tool_is_answered_after_the_others(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    model = ScriptedModel([calls(("compact", {"focus": "all"}), ("echo", {"text": "a"})), "done"])
    run_id = await queue.submit("Compact.", session_id="compacting")
    async with at_work(Agent(model, tools=[echo]), url):
        assert (await over(queue, run_id)).state == "answered"
    assert [name.split()[0] for name in steps_of(url, run_id)] == [
        "begin",
        "ask",
        "tool",
        "compact",
        "ask",
        "end",
    ]
    results = [text for role, text in await said(store, "compacting") if role == "tool"]
    assert results[0] == "heard a"
    assert len(results) == 2


@pytest.mark.deep
async def test_a_run_waits_for_a_session_that_somebody_else_works_on(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    gate = Gate()
    theirs = Runner(Agent(ScriptedModel([calls(("wait", {})), "theirs"]), tools=[gate.wait]), store=store)
    working = asyncio.create_task(theirs.run("First.", session_id="shared"))
    await until(gate.entered)
    run_id = await queue.submit("Second.", session_id="shared")
    begun = Heard(RunStarted)
    async with at_work(Agent(ScriptedModel(["ours"])), url, on_event=begun):
        for _ in range(2):
            await looked_at(url, "shared")
        assert not begun.is_heard.is_set()
        gate.leave.set()
        assert (await working).output == "theirs"
        assert (await over(queue, run_id)).state == "answered"
    assert [text for _, text in await said(store, "shared")] == [
        "First.",
        "",
        "through",
        "theirs",
        "Second.",
        "ours",
    ]


@pytest.mark.deep
async def test_a_long_session_is_found_to_have_begun_from_its_end(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    model = ScriptedModel(answered_by_number())
    for number in range(3):
        run_id = await queue.submit(f"question {number}", session_id="again")
        async with at_work(Agent(model), url):
            assert (await over(queue, run_id)).state == "answered"
        assert await queue.answer(run_id) == f"answer {number}"
    assert [run.session_id for run in await queue.runs(session_id="again")] == ["again"] * 3


def answered_by_number() -> Iterator[Any]:
    """Each request is answered by the number of its newest question."""

    def reply(request: ModelRequest) -> str:
        return str(request.messages[-1]["content"]).replace("question", "answer")

    while True:
        yield reply


async def test_a_call_waits_without_a_worker_and_its_answer_goes_on_in_another(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    disc = Disc()
    both = calls(("echo", {"text": "a"}), ("delete", {"path": "a"}), ("delete", {"path": "b"}))
    run_id = await queue.submit("Delete a and b.", session_id="waits")
    async with at_work(Agent(ScriptedModel([both]), tools=[echo, *disc.tools]), url):
        asked = await over(queue, run_id)
    assert (asked.state, disc.gone) == ("needs_approval", [])
    async with Runner(Agent(ScriptedModel([])), store=url, transcripts=None) as runner:
        first, second = await runner.pending("waits")
    with pytest.raises(UsageError, match="no call 'nope' waits"):
        await queue.approve(run_id, {"nope": Approve()})
    again = await queue.approve(run_id, {first.call_id: Approve(by="ann"), second.call_id: Reject("keep it")})
    async with at_work(Agent(ScriptedModel(["one is gone"]), tools=[echo, *disc.tools]), url):
        done = await over(queue, again)
    assert (done.state, await queue.answer(again), disc.gone) == ("answered", "one is gone", ["a"])
    with pytest.raises(UsageError, match="waits for an answer"):
        await queue.approve(run_id, {first.call_id: Approve()})


async def test_an_answer_that_is_queued_reaches_no_call_of_a_session_begun_anew(
    url: str, queue: RunQueue, store: SessionStore
) -> None:
    disc = Disc()

    async def asked(path: str) -> str:
        run_id = await queue.submit(f"Delete {path}.", session_id="anew")
        call = ToolCall(id="c", name="delete", arguments=json.dumps({"path": path}))
        async with at_work(Agent(ScriptedModel([[call]]), tools=disc.tools), url):
            assert (await over(queue, run_id)).state == "needs_approval"
        return run_id

    answered = await queue.approve(await asked("a"), {"c": Approve()}, queue="later")
    await store.delete("anew")
    await asked("b")
    async with at_work(Agent(ScriptedModel([]), tools=disc.tools), url, queues="later"):
        done = await over(queue, answered)
    assert (done.state, disc.gone) == ("usage", [])
    assert "was given to another one" in str(done.error)
