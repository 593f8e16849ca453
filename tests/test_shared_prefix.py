"""A summary asked for behind the agent's own messages: what goes out, and when it does not."""

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from agentloop import Agent, Compaction, OfflineModel, OpenAIChat, OpenAIResponses, Runner, compact_messages
from agentloop.context import count_request
from agentloop.errors import BadAnswerError, UsageError
from agentloop.events import Cleared
from agentloop.models import ModelRequest
from agentloop.strategies import Digest, KeepRecentFraction, MicroCompact, Summary, replaced_by
from agentloop.stream import CompactionEnded
from agentloop.testing import ScriptedModel, calls
from agentloop.triggers import WindowFraction
from tests.kit import COUNTER, FACT, assert_valid, every_fact, read, reading, watched
from tests.strict_bodies import Body
from tests.strict_provider import StrictProvider
from tests.strict_replies import Answered, Reply, calling, invalid
from tests.strict_rules import text_of

ASKED = "Leave your task for now"
TEXT = "It was asked to read, and FACT-abc123 was found in what was read so far."


def shared(**options: Any) -> Compaction:
    strategy = replaced_by(KeepRecentFraction(0.3), Summary(prefix="shared", **options))
    return Compaction(micro=None, strategy=strategy)


def is_shared(body: Body) -> bool:
    return ASKED in text_of(body["messages"][-1])


def reader(turns: int) -> Callable[[Body], Answered | str]:
    """Reads so many files, one after the other; writes a summary where it is asked for one."""
    left, numbers = iter(range(turns)), count()

    def answer(body: Body) -> Answered | str:
        if is_shared(body):
            return f"{TEXT} {next(numbers)}"
        number = next(left, None)
        return "all read" if number is None else Reply(calls=(calling("read", name=f"file_{number}"),))

    return answer


def runner_for(model: Any, folder: Path, policy: Compaction) -> Runner:
    agent = Agent(model, tools=[read], instructions="Be brief.", compaction=policy)
    return Runner(agent, transcripts=folder)


async def test_its_messages_begin_byte_for_byte_with_those_of_the_last_request(tmp_path: Path) -> None:
    with StrictProvider(reader(16), window=8_000) as server:
        model = OpenAIChat("strict", base_url=server.url, api_key="sk", window=8_000)
        result = await runner_for(model, tmp_path, shared()).run("Read it all.", session_id="s")
    assert result.output == "all read"
    bodies = server.bodies
    places = [at for at, body in enumerate(bodies) if is_shared(body)]
    assert len(places) == len(result.compactions) >= 1
    for at in places:
        summary, last = bodies[at], bodies[at - 1]
        assert json.dumps(summary["messages"][: len(last["messages"])]) == json.dumps(last["messages"])
        assert json.dumps(summary["tools"]) == json.dumps(last["tools"])
        assert (summary["tool_choice"], "tool_choice" in last) == ("none", False)
        assert summary["messages"][-1]["role"] == "user"
        assert "Write the record now" in text_of(summary["messages"][-1])
    assert all("FACT-abc123" in done.summary for done in result.compactions)


async def test_so_do_the_items_of_the_responses_api(tmp_path: Path) -> None:
    def answer(body: Body) -> Answered | str:
        return f"{TEXT} {next(numbers)}" if is_shared(body) else "word " * 600

    numbers = count()

    with StrictProvider(answer, window=8_000) as server:
        model = OpenAIResponses("strict", base_url=server.url, api_key="sk", window=8_000)
        runner = runner_for(model, tmp_path, replace(shared(), trigger=WindowFraction(0.5)))
        for number in range(12):
            await runner.run(f"Question {number}", session_id="s")
    inputs = [body["input"] for body in server.bodies]
    places = [at for at, given in enumerate(inputs) if ASKED in json.dumps(given[-1])]
    assert places
    for at in places:
        assert inputs[at][: len(inputs[at - 1])] == inputs[at - 1]
        assert server.bodies[at]["tool_choice"] == "none"


async def test_pairs_are_whole_where_the_model_asked_for_it(tmp_path: Path) -> None:
    script = [*reading(6)[:-1], calls(compact={"focus": "FACT-000001"}), "done"]
    model = ScriptedModel(script, window=16_000, summary=every_fact)
    result = await runner_for(model, tmp_path, shared()).run("Read it all.", session_id="s")
    assert [done.status for done in result.compactions] == ["done"]
    (asked,) = [request for request in model.requests if request.purpose == "summary"]
    assert_valid(model.requests)
    assert asked.tools == model.requests[0].tools
    assert "Give special care to: FACT-000001" in str(asked.messages[-1]["content"])


@pytest.mark.parametrize("answer", [calls(read={"name": "more"}), "", "I'm sorry, I cannot do that."])
async def test_a_call_or_an_empty_answer_is_refused_like_any_other(answer: Any, tmp_path: Path) -> None:
    model = ScriptedModel([*reading(6), "done"], window=16_000, summary=answer)
    runner = runner_for(model, tmp_path, shared(on_failure=Digest()))
    await runner.run("Read it all.", session_id="s")
    result = await runner.compact("s")
    assert (result.status, result.tier) == ("done", 4)
    assert "the summary was refused" in str(result.error)
    first, second = [request for request in model.requests if request.purpose == "summary"]
    assert first.messages[:-1] == second.messages[:-1]
    assert "Your last text could not be used" in str(second.messages[-1]["content"])


async def test_another_model_is_asked_in_the_ordinary_way(tmp_path: Path) -> None:
    writer = ScriptedModel([], window=16_000, summary=every_fact)
    model = ScriptedModel([*reading(6), "done"], window=16_000)
    strategy = shared().strategy
    policy = Compaction(micro=None, model=writer, strategy=strategy)
    runner = runner_for(model, tmp_path, policy)
    await runner.run("Read it all.", session_id="s")
    assert (await runner.compact("s")).status == "done"
    assert ["<conversation " in str(request.messages[-1]) for request in writer.requests] == [True]
    assert writer.requests[0].tools == ()


async def test_what_would_not_fit_is_asked_in_the_ordinary_way(tmp_path: Path) -> None:
    model = ScriptedModel(["ok"] * 9, window=4_000, summary=every_fact)
    policy = Compaction(micro=None, trigger=None, strategy=shared().strategy)
    runner = runner_for(model, tmp_path, policy)
    for number in range(9):
        await runner.run(f"FACT-{number:06x} " + "please " * 450, session_id="s")
    asked = [request for request in model.requests if request.purpose == "summary"]
    assert asked
    assert all("<conversation " in str(request.messages[-1]) for request in asked)
    assert max(count_request(request, COUNTER) for request in model.requests) <= 4_000


async def test_a_server_that_refuses_it_is_asked_in_the_ordinary_way(tmp_path: Path) -> None:
    read_all = reader(16)

    def answer(body: Body) -> Answered | str:
        if is_shared(body):
            return invalid(400, "You may not ask this.")
        return TEXT if not body.get("tools") else read_all(body)

    with StrictProvider(answer, window=8_000) as server:
        model = OpenAIChat("strict", base_url=server.url, api_key="sk", window=8_000)
        events = await watched(runner_for(model, tmp_path, shared()), "Read it all.")
    ended = [event for event in events if isinstance(event, CompactionEnded)]
    assert {event.status for event in ended} == {"done"}
    assert [is_shared(body) for body in server.bodies if is_shared(body) or not body.get("tools")] == [
        True,
        False,
    ] * len(ended)


async def test_the_offline_model_reads_what_stands_before_the_question(tmp_path: Path) -> None:
    runner = runner_for(OfflineModel(window=16_000), tmp_path, shared())
    for number in range(8):
        talk = "The corridor behind it is long and dark, and nobody has been there. " * 8
        await runner.run(f"Remember that door {number} opens with FACT-{number:06x}. {talk}", session_id="s")
    result = await runner.compact("s")
    assert result.status == "done", result.error
    assert set(FACT.findall(result.summary)) >= {f"FACT-{number:06x}" for number in range(1, 4)}


async def test_l4_results_that_the_agent_sees_shortened_are_said_to_be_unread(tmp_path: Path) -> None:
    model = ScriptedModel([*reading(8, words=900), "done"], window=16_000, summary=every_fact)
    micro = MicroCompact(keep_messages=8, min_gain_tokens=0)
    policy = Compaction(micro=micro, trigger=None, strategy=shared().strategy)
    runner = runner_for(model, tmp_path, policy)
    await runner.run("Read it all.", session_id="s")
    events = [record.event for record in await runner.store.read("s")]
    shortened = {item.seq for event in events if isinstance(event, Cleared) for item in event.items}
    result = await runner.compact("s")
    assert result.status == "done"
    (asked,) = [request for request in model.requests if request.purpose == "summary"]
    assert ASKED in str(asked.messages[-1]["content"])
    assert set(result.unread) == shortened & set(result.archived) != set()


def test_in_a_plain_list_no_agent_is_known() -> None:
    asked: list[ModelRequest] = []

    def summary(request: ModelRequest) -> str:
        asked.append(request)
        return every_fact(request)

    chat = [{"role": "user", "content": f"FACT-{number:06x} " + "please " * 90} for number in range(30)]
    model = ScriptedModel([], window=16_000, summary=summary)
    short = compact_messages(chat, shared().strategy, window="16k", model=model)
    assert [result.status for result in short.results] == ["done"]
    assert all("<conversation " in str(request.messages[-1]) for request in asked)


def test_a_prefix_of_another_kind_is_refused() -> None:
    for bad in ("agent", None, True):
        with pytest.raises(UsageError, match="prefix must be 'own' or 'shared'"):
            Summary(prefix=bad)  # type: ignore[arg-type]


async def test_a_model_that_is_down_is_asked_no_second_time(tmp_path: Path) -> None:
    model = ScriptedModel([*reading(6), "done"], window=16_000, summary=BadAnswerError("down"))
    runner = runner_for(model, tmp_path, shared())
    await runner.run("Read it all.", session_id="s")
    assert (await runner.compact("s")).error == "down"
    assert [request.purpose for request in model.requests].count("summary") == 1
