"""Agents as tools: logs of their own, one usage, limits and ends in order, nothing done twice."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agentloop import Agent, Callbacks, Limits, Message, Runner, Secrets, SyncRunner, Usage
from agentloop.durable.held_run import WorkPlace
from agentloop.durable.orders import Order
from agentloop.durable.workflow import Workflow
from agentloop.errors import ModelRefusedError, StoreError, ToolDefinitionError, UsageError
from agentloop.events import Event, MessageRecord, ModelCalled, RunEndRecord
from agentloop.runner import config_of
from agentloop.stores import InMemoryStore, SessionStore, SQLiteStore
from agentloop.stream import AnyStreamEvent, RunEnded, ToolEnded, ToolProgress
from agentloop.testing import FailingModel, Reply, ScriptedModel, calls
from tests.cli_kit import agentloop
from tests.kit import assert_valid, until, watched

QUESTION = {"task": "Which colour has the door?"}


def agent(*answers: Reply, tools: Sequence[Any] = (), usage: bool = True, **options: Any) -> Agent:
    return Agent(ScriptedModel(answers, usage=usage), tools=tools, compaction=None, **options)


def scout(*answers: Reply, **options: Any) -> Any:
    return agent(*answers, **options).as_tool("scout", "Finds out one thing.")


def results(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages if message.role == "tool"]


async def log_of(store: SessionStore, session_id: str) -> list[Event]:
    return [record.event for record in await store.read(session_id)]


async def used_in(store: SessionStore, *session_ids: str) -> Usage:
    """What the requests that these logs tell of used."""
    logs = [await log_of(store, name) for name in session_ids]
    asked = [event for log in logs for event in log if isinstance(event, ModelCalled)]
    return sum((event.usage or Usage() for event in asked), Usage())


def requests_of(tool: Any) -> Sequence[Any]:
    """What the model of the sub-agent behind the tool was sent."""
    requests: Sequence[Any] = tool.function.agent.model.requests
    return requests


async def test_its_answer_is_the_result_and_its_log_is_its_own() -> None:
    below = scout("The door is green.", instructions="Find out one thing.")
    store = InMemoryStore()
    lead = agent(calls(scout=QUESTION), "Green.", tools=[below])
    async with Runner(lead, store=store, transcripts=None, owner="ann", ttl_seconds=60) as runner:
        result = await runner.run("Ask the scout.", session_id="s")
        (branch,) = await runner.branches("s")
        assert [line.id for line in await store.list()] == ["s"]
        log = [record.event for record in await runner.events(branch.id)]
    assert (result.output, results(result.messages)) == ("Green.", ["The door is green."])
    assert branch.id.startswith("s~scout.")
    assert (branch.owner, branch.ttl_seconds, branch.title) == ("ann", None, QUESTION["task"])
    said = [event.message.text for event in log if isinstance(event, MessageRecord)]
    assert said == [QUESTION["task"], "The door is green."]
    assert_valid(requests_of(below))
    assert result.usage == await used_in(store, "s", branch.id)
    end = (await log_of(store, "s"))[-1]
    assert isinstance(end, RunEndRecord)
    assert end.usage == result.usage


async def test_calls_side_by_side_and_sub_agents_of_sub_agents_have_logs_each() -> None:
    inner = agent("deep one", "deep two").as_tool("inner", "Digs.")
    below = agent(
        lambda _: calls(inner={"task": "dig"}),
        lambda _: calls(inner={"task": "dig"}),
        "one",
        "two",
        tools=[inner],
    ).as_tool("scout", "Finds out.")
    store = InMemoryStore()
    asked = calls(("scout", {"task": "a"}), ("scout", {"task": "b"}))
    async with Runner(agent(asked, "done", tools=[below]), store=store, transcripts=None) as runner:
        result = await runner.run("Ask twice.", session_id="s")
        names = sorted(line.id for line in await runner.branches("s"))
    assert sorted(results(result.messages)) == ["one", "two"]
    tops = [name for name in names if ".inner." not in name]
    assert len(tops) == 2
    assert [name.rpartition(".inner.")[0] for name in names if ".inner." in name] == tops
    assert result.usage == await used_in(store, "s", *names)
    await store.delete("s")
    assert [await log_of(store, name) for name in names] == [[], [], [], []]


@pytest.mark.parametrize("task", ["", " ", "ok"])
async def test_one_that_fails_is_a_failed_call_and_the_run_goes_on(task: str) -> None:
    failing = Agent(
        FailingModel(ModelRefusedError("no such key sk-" + "a1B2c3D4" * 5, status=401)), compaction=None
    )
    lead = agent(calls(scout={"task": task}), "I do it myself.", tools=[failing.as_tool("scout", "Finds.")])
    async with Runner(lead, transcripts=None, redact=Secrets()) as runner:
        events = await watched(runner, "Ask.")
        log = [record.event for record in await runner.events("s")]
    ended = [event.status for event in events if isinstance(event, ToolEnded)]
    assert ended == ["error"]
    assert isinstance(events[-1], RunEnded)
    assert events[-1].output == "I do it myself."
    (text,) = results([event.message for event in log if isinstance(event, MessageRecord)])
    assert text.startswith("scout failed: ")
    assert "a1B2" not in text


async def test_at_a_limit_of_its_own_it_gives_what_it_has() -> None:
    def look() -> str:
        """Look around."""
        return "nothing"

    half = Message.assistant("Half of it.", calls(look={}))
    below = agent(half, half, half, tools=[look]).as_tool("scout", "Finds.", limits=Limits(steps=2))
    lead = agent(calls(scout=QUESTION), "done", tools=[below])
    async with Runner(lead, transcripts=None) as runner:
        result = await runner.run("Ask.")
    assert result.status == "answered"
    (text,) = results(result.messages)
    assert text.startswith("It ended before it was done: the limit of 2 model calls is reached.")
    assert text.endswith("Half of it.")


@pytest.mark.parametrize("usage", [True, False])
async def test_what_it_uses_is_held_against_the_limits_of_the_run(usage: bool) -> None:
    def look() -> str:
        """Look around."""
        return "word " * 400

    below = scout(*[calls(look={})] * 50, tools=[look], usage=usage)
    lead = agent(calls(scout=QUESTION), "done", tools=[below], usage=usage)
    async with Runner(lead, transcripts=None) as runner:
        result = await runner.run("Ask.", limits=Limits(tokens=5_000, steps=2))
    assert (result.status, len(requests_of(below)) < 10) == ("limit", True)
    assert "the limit of 5,000 tokens is reached" in str(result.reason)
    (text,) = results(result.messages)
    assert "the limit of 5,000 tokens is reached" in text


async def test_the_steps_of_the_run_are_not_those_of_its_sub_agents() -> None:
    def look() -> str:
        """Look around."""
        return "nothing"

    below = scout(*[calls(look={})] * 3, "green", tools=[look])
    async with Runner(agent(calls(scout=QUESTION), "done", tools=[below]), transcripts=None) as runner:
        result = await runner.run("Ask.", limits=Limits(steps=2))
    assert (result.status, results(result.messages)) == ("answered", ["green"])


async def test_a_limit_on_cost_wants_the_price_of_all_that_may_be_asked() -> None:
    class Unpriced(ScriptedModel):
        def price(self, usage: Usage) -> float | None:
            return None

    below = Agent(Unpriced([]), compaction=None).as_tool("scout", "Finds.")
    async with Runner(agent(tools=[below]), transcripts=None) as runner:
        with pytest.raises(UsageError, match="the price of 'scripted' is not known"):
            await runner.run("Ask.", limits=Limits(cost=1.0))


async def test_what_it_costs_is_a_part_of_what_the_run_costs() -> None:
    class Priced(ScriptedModel):
        def price(self, usage: Usage) -> float | None:
            return 0.75

    below = Agent(Priced(["green", "green"]), compaction=None).as_tool("scout", "Finds.")
    model = Priced([calls(scout=QUESTION), "never said"])
    async with Runner(Agent(model, tools=[below], compaction=None), transcripts=None) as runner:
        result = await runner.run("Ask.", limits=Limits(cost=1.5))
    assert result.status == "limit"
    assert "$1.5000 are spent" in str(result.reason)


async def test_cancelled_with_its_run_it_ends_in_order_and_goes_on_where_it_stood() -> None:
    began, looked = asyncio.Event(), 0

    async def look() -> str:
        """Look around."""
        nonlocal looked
        looked += 1
        return "seen"

    async def wait() -> str:
        """Wait."""
        began.set()
        await asyncio.Event().wait()
        return "never"

    below = scout(calls(look={}), calls(wait={}), "green", tools=[look, wait])
    store = InMemoryStore()
    lead = agent(calls(scout=QUESTION), "done", tools=[below])
    async with Runner(lead, store=store, transcripts=None) as runner:
        task = asyncio.create_task(runner.run("Ask.", session_id="s"))
        await until(began)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        (branch,) = await runner.branches("s")
        for name in ("s", branch.id):
            end = (await log_of(store, name))[-1]
            assert isinstance(end, RunEndRecord)
            assert end.status == "interrupted"
        result = await runner.resume("s")
        assert [line.id for line in await runner.branches("s")] == [branch.id]
    assert (result.output, results(result.messages), looked) == ("done", ["green"], 1)


class LosesAResult(InMemoryStore):
    """A store that is away when the first result of a tool of the session itself is to be stored."""

    is_away = True

    async def append(self, session_id: str, events: Sequence[Event], *, expect: int) -> int:
        results = [each for each in events if isinstance(each, MessageRecord) and each.message.role == "tool"]
        if results and self.is_away and "~" not in session_id:
            raise StoreError("the disc is full")
        return await super().append(session_id, events, expect=expect)


async def test_one_that_had_answered_before_a_crash_is_not_asked_again() -> None:
    below, store = scout("green"), LosesAResult()
    async with Runner(
        agent(calls(scout=QUESTION), "done", tools=[below]), store=store, transcripts=None
    ) as runner:
        with pytest.raises(StoreError):
            await runner.run("Ask.", session_id="s")
        store.is_away = False
        result = await runner.resume("s")
    assert (result.output, results(result.messages)) == ("done", ["green"])
    assert len(requests_of(below)) == 1


async def test_a_worker_runs_it_in_the_session_of_its_order() -> None:
    below, store, told = scout("green"), InMemoryStore(), list[AnyStreamEvent]()
    lead = agent(calls(scout=QUESTION), "done", tools=[below])
    config = config_of(Runner(lead, store=store, transcripts=None))
    place = WorkPlace(config=config, limits=Limits(steps=9), sink=told.append)
    order = Order(session_id="s", prompt=Message.user("Ask."), submitted=0.0)
    text = order.to_text()
    await Workflow(place_of=lambda _: place, record=lambda _, work: work()).run("r", text)  # type: ignore[arg-type, return-value]
    assert isinstance(told[-1], RunEnded)
    assert (told[-1].status, told[-1].output) == ("answered", "done")
    (branch,) = await store.list(branches_of="s")
    assert told[-1].usage == await used_in(store, "s", branch.id)


async def test_who_watches_sees_its_tools_and_callbacks_hear_its_run() -> None:
    class Hears(Callbacks):
        def __init__(self) -> None:
            self.ended: list[str] = []

        async def on_event(self, event: AnyStreamEvent) -> None:
            if isinstance(event, RunEnded):
                self.ended.append(event.session_id)

    def look() -> str:
        """Look around."""
        return "nothing"

    inner = agent(calls(look={}), "in", tools=[look]).as_tool("inner", "Digs.")
    below, hears = scout(calls(inner=QUESTION), "green", tools=[inner]), Hears()
    lead = agent(calls(scout=QUESTION), "done", tools=[below])
    async with Runner(lead, transcripts=None, callbacks=[hears]) as runner:
        events = await watched(runner, "Ask.")
    assert {event.session_id for event in events} == {"s"}
    told = [event.text for event in events if isinstance(event, ToolProgress)]
    assert told == ["scout: inner", "scout: inner: look"]
    deepest, middle, top = hears.ended
    assert (top, deepest.startswith(f"{middle}.inner."), middle.startswith("s~scout.")) == ("s", True, True)


async def test_secrets_are_taken_out_of_its_log_and_deps_are_the_run_s() -> None:
    secret = "sk-" + "a1B2c3D4" * 5
    below, store = scout(f"It is {secret}."), InMemoryStore()
    lead = agent(calls(scout=QUESTION), "done", tools=[below])
    async with Runner(lead, store=store, transcripts=None, redact=Secrets()) as runner:
        await runner.run("Ask.", session_id="s")
        (branch,) = await runner.branches("s")
    assert secret not in str(await log_of(store, branch.id)) + str(await log_of(store, "s"))


async def test_nobody_else_begins_or_goes_on_with_such_a_log() -> None:
    async with Runner(agent("hi"), transcripts=None) as runner:
        for call in (runner.run("hello", session_id="s~scout.1"), runner.resume("s~scout.1")):
            with pytest.raises(UsageError, match=r"'s~scout\.1' is the log of a sub-agent"):
                await call


def test_the_same_without_await() -> None:
    with SyncRunner(agent(calls(scout=QUESTION), "done", tools=[scout("green")]), transcripts=None) as runner:
        assert results(runner.run("Ask.", session_id="s").messages) == ["green"]
        assert len(runner.branches("s")) == 1


def test_bad_names_and_limits_are_refused() -> None:
    for name, description in (("no name", "Finds."), ("scout", None)):
        with pytest.raises(ToolDefinitionError):
            agent().as_tool(name, description)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"limits must be a Limits\(…\) or None"):
        agent().as_tool("scout", "Finds.", limits=5)  # type: ignore[arg-type]


def test_an_agent_is_no_tool_before_it_is_made_one() -> None:
    way = r"cannot become a tool: give what its as_tool\(name, description\) makes of it"
    with pytest.raises(ToolDefinitionError, match=way) as caught:
        agent(tools=[agent()])
    assert len(str(caught.value)) < 160


async def test_sub_agents_stand_twelve_deep_and_no_deeper() -> None:
    name = "n" * 64
    deepest = agent("the answer")
    for _ in range(12):
        deepest = agent(calls(**{name: {"task": "go"}}), "done", tools=[deepest.as_tool(name, "Goes.")])
    async with Runner(deepest, transcripts=None) as runner:
        assert (await runner.run("Go.", session_id="s" * 128)).output == "done"
        logs = await runner.branches("s" * 128)
        assert len(logs) == 12
        records = await log_of(runner.store, max((log.id for log in logs), key=len))
    assert "the answer" in [each.message.text for each in records if isinstance(each, MessageRecord)]
    with pytest.raises(
        ToolDefinitionError, match="sub-agents stand 13 deep in it: at most 12 levels are run"
    ):
        agent(tools=[deepest.as_tool(name, "Goes.")])


async def test_the_command_line_shows_exports_and_deletes_the_logs_of_sub_agents(tmp_path: Path) -> None:
    below = agent("The door is green.", "x " * 30_000).as_tool("scout", "Finds.")
    asked = [calls(scout={"task": "door"}), calls(scout={"task": "long"})]
    lead = agent(*asked, "done", tools=[below])
    store = SQLiteStore(tmp_path / "agentloop" / "sessions.db")
    async with Runner(
        lead, store=store, transcripts=tmp_path / ".transcripts", folder=str(tmp_path)
    ) as runner:
        await runner.run("Ask.", session_id="s")
        first, second = (line.id for line in await runner.branches("s"))

    def sessions(*arguments: str) -> tuple[int, str, str]:
        done = agentloop("sessions", *arguments, cwd=tmp_path)
        return done.status, done.out, done.err

    status, out, err = sessions("show", "s")
    assert (status, "door is green" in out, first in err) == (0, True, True)
    assert first not in sessions("list", "--all")[1]
    status, out, _ = sessions("show", "s", "--branch", "scout", "--tail", "5")
    assert (status, first in out, second in out, "The door is green." in out) == (0, True, True, True)
    records = json.loads(sessions("show", "s", "--branch", first.partition("~")[2], "--json")[1])
    assert records == json.loads(sessions("show", first, "--json")[1])
    assert f"may be any of {first}, {second}: export one" in sessions("export", "s", "--branch", "scout")[2]
    messages = json.loads(sessions("export", first)[1])
    assert [each["content"] for each in messages] == ["door", "The door is green."]
    assert messages == json.loads(sessions("export", "s", "--branch", first.partition("~")[2])[1])
    assert "no 'nobody'" in sessions("export", "s", "--branch", "nobody")[2]
    assert "name its session instead" in sessions("delete", first, "--yes")[2]
    status, _, err = sessions("delete", "s", "--yes")
    assert (status, err.count("deleted: ")) == (0, 1)
    reopened = SQLiteStore(tmp_path / "agentloop" / "sessions.db")
    assert [len(await log_of(reopened, name)) for name in ("s", first, second)] == [0, 0, 0]
    await reopened.close()
