"""Compaction of a plain list of messages: no runner, no session, no store."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentloop import compact_messages, compact_messages_async, strategies, triggers
from agentloop.compaction import Callbacks, CompactionRequest, Veto
from agentloop.errors import ContextOverflowError, UsageError
from agentloop.messages import Message
from agentloop.strategies import Digest, SlidingWindow, Strategy, replaced_by
from agentloop.testing import ScriptedModel
from tests.kit import every_fact, histories, orderly
from tests.strict_rules import violations

EVERY: list[Strategy] = [
    strategies.SlidingWindow(6),
    strategies.TurnWindow(2),
    strategies.TokenWindow(600),
    strategies.RecursiveSummary(keep=4, overlap=1),
    strategies.KeepUserMessages(300),
    strategies.KeepRecentFraction(0.3),
    strategies.KeepRecentTurns(1),
    strategies.Blocks(keep_first_turns=1, keep_recent_turns=1),
    strategies.Tiered(),
    strategies.Reduce(),
    strategies.ClearResults(keep_tokens=100, least_tokens=50),
    strategies.then(strategies.ClearResults(keep_tokens=0, least_tokens=1), strategies.TurnWindow(1)),
    strategies.first_of(strategies.TurnWindow(3), strategies.SlidingWindow(8)),
    replaced_by(strategies.SlidingWindow(6), Digest()),
]
NAMES = [strategies.strategy_name(strategy) for strategy in EVERY]


def chat(turns: int = 12, words: int = 40) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}]
    for turn in range(turns):
        call = {
            "id": f"call_{turn}",
            "type": "function",
            "function": {"name": "read", "arguments": json.dumps({"path": f"src/file_{turn}.py"})},
        }
        said += [
            {"role": "user", "content": f"Request {turn}: read src/file_{turn}.py. FACT-{turn:06x}"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{turn}", "content": f"line {turn} " + "word " * words},
            {"role": "assistant", "content": f"Answer {turn}."},
        ]
    return said


def body(messages: list[Any]) -> dict[str, Any]:
    return {"model": "m", "messages": messages, "tools": [{"type": "function", "function": {"name": "read"}}]}


@pytest.mark.parametrize("strategy", EVERY, ids=NAMES)
def test_each_strategy_works_on_a_plain_list(strategy: Strategy) -> None:
    said = chat()
    before = json.dumps(said)
    short = compact_messages(said, strategy, window="16k")
    assert violations(body(short)) == []
    assert short[0] == {"role": "system", "content": "Be brief."}
    users = [message["content"] for message in short if message["role"] == "user"]
    assert users[-1] == said[-4]["content"]
    assert short[-1] == said[-1]
    assert any(result.status == "done" for result in short.results)
    assert sum(result.tokens_saved for result in short.results) > 0
    assert json.dumps(said) == before


@pytest.mark.parametrize("strategy", EVERY, ids=NAMES)
async def test_the_same_awaited_with_a_model(strategy: Strategy) -> None:
    model = ScriptedModel([], window=16_000, summary=every_fact)
    short = await compact_messages_async(chat(), strategy, window=16_000, model=model)
    assert violations(body(short)) == []
    assert all(request.purpose == "summary" for request in model.requests)
    assert {result.tier for result in short.results if result.summary.count("FACT-")} <= {1, 2, 3}


@pytest.mark.parametrize("strategy", EVERY, ids=NAMES)
@settings(max_examples=200, suppress_health_check=list(HealthCheck))
@given(history=st.one_of(histories, orderly()))
def test_l2_whatever_the_list_holds_what_comes_out_is_valid_and_fits(
    strategy: Strategy, history: list[Message]
) -> None:
    said = [message.to_openai() for message in history]
    try:
        short = compact_messages(said, strategy, window=3_000)
    except ContextOverflowError:
        return
    assert violations(body(short)) == []


def test_within_a_running_loop_the_plain_function_works_too() -> None:
    async def inside() -> list[Any]:
        return compact_messages(chat(), SlidingWindow(6), window="16k")

    assert asyncio.run(inside()) == compact_messages(chat(), SlidingWindow(6), window="16k")


def test_what_the_strategy_leaves_too_large_is_made_to_fit() -> None:
    short = compact_messages(chat(60, words=200), SlidingWindow(200), window="4k")
    assert violations(body(short)) == []
    assert len(json.dumps(short)) < 4_000 * 5
    assert short.results[-1].tokens_after <= 4_000


def test_a_list_too_large_for_any_rung_is_a_typed_error() -> None:
    with pytest.raises(ContextOverflowError, match="the prompt has"):
        compact_messages([{"role": "user", "content": "word " * 9_000}], SlidingWindow(2), window="4k")


def test_a_trigger_decides_whether_anything_is_done() -> None:
    quiet = compact_messages(chat(), SlidingWindow(4), window="64k", trigger=triggers.WindowFraction(0.8))
    assert quiet.results == ()
    assert [message["content"] for message in quiet if message["role"] == "user"] == [
        message["content"] for message in chat() if message["role"] == "user"
    ]
    loud = compact_messages(chat(), SlidingWindow(4), window="64k", trigger=triggers.TurnCount(5))
    assert loud.results[0].status == "done"


def test_results_say_what_was_done() -> None:
    (result,) = compact_messages(chat(), SlidingWindow(6), window="16k").results
    assert (result.status, result.tier, result.strategy) == ("done", 3, "SlidingWindow")
    assert result.events_removed == result.messages_before - result.messages_after > 0
    assert result.compacted == len(result.unread) > 0
    assert result.level == "none"
    assert "src/file_1.py" in result.lost


def test_a_callback_may_forbid_it() -> None:
    class Keep(Callbacks):
        def before_compaction(self, request: CompactionRequest) -> Veto:
            return Veto(f"{len(request.messages)} messages are dear to me")

    short = compact_messages(chat(), SlidingWindow(6), window="16k", callbacks=[Keep()])
    assert [result.status for result in short.results] == ["vetoed"]
    assert len(short) == len(chat())


@pytest.mark.parametrize("window", [0, -1, "", "many", 1.5, True])
def test_a_bad_window_is_named(window: Any) -> None:
    with pytest.raises(UsageError, match="tokens"):
        compact_messages(chat(), SlidingWindow(6), window=window)


def test_what_is_no_message_is_named() -> None:
    with pytest.raises(UsageError, match="role"):
        compact_messages([{"content": "nobody says this"}], SlidingWindow(6), window="8k")
