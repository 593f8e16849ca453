"""The guard, term by term: what it allows after which outcomes."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from agentloop.compaction import Compaction, Digest, Summary
from agentloop.compaction.keeper import (
    COOLDOWN_STEPS,
    GROWTH,
    REFILL_STEPS,
    REGROWTH,
    RELEASE,
    STRIKES,
    Guard,
)
from agentloop.context import Context, count_message, count_request, counter_for
from agentloop.errors import ContextTooLongError
from agentloop.events import Compacted
from agentloop.messages import Message, Usage
from agentloop.models import Answer, ModelRequest
from agentloop.run import Agent
from agentloop.runner import Runner
from agentloop.strategies import KeepRecentFraction, replaced_by
from agentloop.stream import CompactionEnded, CompactionResult, ContextWarning
from agentloop.testing import ScriptedModel
from agentloop.triggers import Fired, On, WindowFraction
from tests.kit import assert_valid, every_fact, read, reading, watched

LIMIT = 1_000
LONG_AGO = 100


def judged(guard: Guard, *, helped: bool, size: int = 500, after: int = LONG_AGO) -> Guard:
    for _ in range(after):
        guard.step()
    guard.judge(helped=helped, size=size)
    return guard


def wait(guard: Guard, steps: int) -> None:
    for _ in range(steps):
        guard.step()


def test_the_first_compaction_is_allowed() -> None:
    assert Guard().allows(size=1, limit=LIMIT)


def test_after_one_that_helped_the_next_waits_for_growth() -> None:
    guard = judged(Guard(), helped=True)
    wait(guard, LONG_AGO)
    assert not guard.allows(size=500 + int(GROWTH * LIMIT) - 1, limit=LIMIT)
    assert guard.allows(size=500 + int(GROWTH * LIMIT), limit=LIMIT)


def test_in_a_small_context_half_of_its_size_is_growth_enough() -> None:
    guard = judged(Guard(), helped=True, size=40)
    wait(guard, LONG_AGO)
    assert not guard.allows(size=40 + int(REGROWTH * 40) - 1, limit=LIMIT)
    assert guard.allows(size=40 + int(REGROWTH * 40), limit=LIMIT)


@pytest.mark.parametrize("strikes", range(1, STRIKES))
def test_each_strike_doubles_the_wait(strikes: int) -> None:
    guard = Guard()
    for _ in range(strikes):
        judged(guard, helped=False)
    wait(guard, COOLDOWN_STEPS * 2 ** (strikes - 1) - 1)
    assert not guard.allows(size=501, limit=LIMIT)
    guard.step()
    assert guard.allows(size=501, limit=LIMIT)


def test_three_strikes_pause_until_the_context_has_grown() -> None:
    guard = Guard()
    for _ in range(STRIKES):
        judged(guard, helped=False)
    wait(guard, 10_000)
    assert not guard.allows(size=500 + int(RELEASE * LIMIT) - 1, limit=LIMIT)
    assert guard.allows(size=500 + int(RELEASE * LIMIT), limit=LIMIT)


def test_one_that_helped_wipes_the_strikes_out() -> None:
    guard = judged(judged(Guard(), helped=False), helped=True)
    assert guard.strikes == 0
    assert guard.allows(size=500 + int(GROWTH * LIMIT), limit=LIMIT)


def test_a_context_that_refills_at_once_is_a_strike_although_each_compaction_helped() -> None:
    guard = judged(Guard(), helped=True)
    judged(guard, helped=True, after=REFILL_STEPS - 1)
    assert guard.strikes == 1
    judged(guard, helped=True, after=REFILL_STEPS)
    assert guard.strikes == 0


def test_a_compaction_that_was_asked_for_lets_go_of_a_pause() -> None:
    guard = Guard()
    for _ in range(STRIKES):
        judged(guard, helped=False)
    guard.release()
    assert guard.allows(size=1, limit=LIMIT)


def test_a_proved_overflow_passes_once_through_a_pause() -> None:
    guard = Guard()
    for _ in range(STRIKES):
        judged(guard, helped=False)
    assert guard.use_bypass()
    assert not guard.use_bypass()
    judged(guard, helped=True)
    assert guard.use_bypass()


def runner_for(model: Any, tmp_path: Path, policy: Compaction, instructions: str = "Be brief.") -> Runner:
    agent = Agent(model, tools=[read], instructions=instructions, compaction=policy)
    return Runner(agent, transcripts=tmp_path)


def outcomes(results: tuple[CompactionResult, ...]) -> list[str]:
    return [result.status for result in results]


async def test_sizes_before_and_after_are_of_one_measure(tmp_path: Path) -> None:
    model = ScriptedModel(reading(30), window=8_000, summary=every_fact)
    result = await runner_for(model, tmp_path, Compaction(micro=None)).run("Read", session_id="s")
    done = [each for each in result.compactions if each.status == "done"]
    assert len(done) >= 2
    for each in done:
        assert each.tokens_saved == each.tokens_before - each.tokens_after > 0
        assert each.tokens_after < each.tokens_before <= each.window
    assert all(after.tokens_before > before.tokens_after for before, after in pairwise(done))


async def test_summaries_that_fail_are_tried_less_and_less(tmp_path: Path) -> None:
    model = ScriptedModel(reading(60, words=60), window=64_000, summary=lambda _: "")
    always = Compaction(micro=None, trigger=lambda context, budget: Fired(why="always"))
    result = await runner_for(model, tmp_path, always).run("Read", session_id="s")
    assert result.status == "answered"
    assert 1 <= len(result.compactions) <= STRIKES
    assert set(outcomes(result.compactions)) == {"failed"}


async def test_a_fallback_is_a_strike(tmp_path: Path) -> None:
    model = ScriptedModel(reading(60, words=60), window=64_000, summary=lambda _: "")
    strategy = replaced_by(KeepRecentFraction(0.3), Summary(on_failure=Digest()))
    policy = Compaction(micro=None, trigger=On("result"), strategy=strategy)
    result = await runner_for(model, tmp_path, policy).run("Read", session_id="s")
    assert 1 <= len(result.compactions) <= STRIKES
    assert {(each.status, each.tier) for each in result.compactions} == {("done", 3)}
    assert all(each.error and "refused" in each.error for each in result.compactions)


async def test_new_user_input_lets_go_of_a_pause(tmp_path: Path) -> None:
    answers = [*reading(30, words=60), *reading(30, words=60)]
    model = ScriptedModel(answers, window=64_000, summary=lambda _: "")
    runner = runner_for(model, tmp_path, Compaction(micro=None, trigger=On("result")))
    first = await runner.run("Read", session_id="s")
    second = await runner.run("Read more", session_id="s")
    assert 1 <= len(first.compactions) <= STRIKES
    assert 1 <= len(second.compactions) <= STRIKES


async def test_l10_a_trigger_that_always_fires_costs_a_fraction_of_the_calls(tmp_path: Path) -> None:
    model = ScriptedModel(reading(60, words=100), window=16_000, summary=every_fact)
    policy = Compaction(micro=None, trigger=On("message"))
    result = await runner_for(model, tmp_path, policy).run("Read", session_id="s")
    assert_valid(model.requests)
    assert 1 <= sum(request.purpose == "summary" for request in model.requests) <= 20
    assert result.output == "all read"


async def test_a_fixed_part_above_the_target_is_said_once_and_costs_no_summary_a_turn(tmp_path: Path) -> None:
    model = ScriptedModel(reading(20, words=20), window=8_000, summary=every_fact)
    policy = Compaction(micro=None, trigger=WindowFraction(0.3))
    runner = runner_for(model, tmp_path, policy, instructions="Be brief. " * 1_500)
    events = await watched(runner, "Read")
    said = [event for event in events if isinstance(event, ContextWarning) and event.text]
    assert len(said) == 1
    assert "instructions and tool schemas take" in str(said[0].text)
    assert sum(isinstance(event, CompactionEnded) for event in events) <= 5


async def test_the_target_lies_below_a_low_trigger(tmp_path: Path) -> None:
    model = ScriptedModel(reading(40, words=100), window=16_000, summary=every_fact)
    policy = Compaction(micro=None, trigger=WindowFraction(0.25))
    result = await runner_for(model, tmp_path, policy).run("Read", session_id="s")
    done = [each for each in result.compactions if each.status == "done"]
    assert len(done) >= 2
    threshold = 0.25 * (16_000 - 2_000)
    assert all(each.tokens_after < threshold for each in done)


def counted_dear(reply: Any) -> Callable[[ModelRequest], Answer]:
    """The reply of a provider that counts half as many tokens again as we do."""
    message = Message.assistant(reply) if isinstance(reply, str) else Message.assistant(None, reply)
    return lambda request: Answer(message=message, usage=Usage(input_tokens=int(1.5 * own_count(request))))


def own_count(request: ModelRequest) -> int:
    return count_request(request, counter_for("scripted"))


async def test_usage_from_before_a_rewrite_is_not_believed_after_it(tmp_path: Path) -> None:
    answers = [counted_dear(reply) for reply in (*reading(30), "done")]
    model = ScriptedModel(answers, window=8_000, summary=every_fact)
    runner = runner_for(model, tmp_path, Compaction(micro=None))
    await runner.run("Read", session_id="s")
    records = await runner.store.read("s")
    done = [at for at, record in enumerate(records) if isinstance(record.event, Compacted)]
    assert len(done) >= 2
    for at in done:
        assert Context.of(records[:at]).anchor("scripted") is not None
        assert Context.of(records[: at + 1]).anchor("scripted") is None

    before = await runner.status("s")
    assert (await runner.compact("s")).status == "done"
    after = await runner.status("s")
    await runner.run("Go on", session_id="s")
    said = count_message(Message.user("Go on"), counter_for("scripted"))
    assert before.measured
    assert not after.measured
    assert after.tokens < before.tokens
    assert after.tokens == pytest.approx(1.5 * (own_count(model.requests[-1]) - said), rel=0.02)


async def test_an_overflow_that_the_provider_proved_is_compacted_in_a_pause(tmp_path: Path) -> None:
    answers: list[Any] = [*reading(8, words=200)[:-1], ContextTooLongError("too long", window=4_000), "done"]
    model = ScriptedModel(answers, window=64_000, summary=every_fact)
    runner = runner_for(model, tmp_path, Compaction(micro=None, trigger=None))
    result = await runner.run("Read", session_id="s")
    assert result.output == "done"
    assert [each.reason for each in result.compactions][:1] == ["overflow"]
