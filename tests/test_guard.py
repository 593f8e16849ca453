"""The guard, term by term: what it allows after which outcomes."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest

from agentloop.compaction import Compaction, Digest, Summary
from agentloop.context import Context, count_message, count_request, counter_for
from agentloop.context.guard import (
    COOLDOWN_STEPS,
    GROWTH,
    REFILL_STEPS,
    REGROWTH,
    RELEASE,
    RETRY_STEPS,
    STRIKES,
    Guard,
)
from agentloop.errors import ContextTooLongError
from agentloop.events import Compacted, NotCompacted
from agentloop.messages import Message, Usage
from agentloop.models import Answer, ModelRequest
from agentloop.run import Agent
from agentloop.runner import Runner
from agentloop.strategies import KeepRecentFraction, replaced_by
from agentloop.stream import CompactionEnded, CompactionResult, CompactionSkipped, ContextWarning
from agentloop.testing import ScriptedModel
from agentloop.triggers import Fired, On, WindowFraction
from tests.kit import assert_valid, every_fact, read, reading, watched

LIMIT = 1_000
LONG_AGO = 100


def judged(guard: Guard, *, helped: bool, size: int = 500, after: int = LONG_AGO) -> Guard:
    return waited(guard, after).judged(helped=helped, size=size)


def waited(guard: Guard, steps: int) -> Guard:
    for _ in range(steps):
        guard = guard.stepped()
    return guard


def test_the_first_compaction_is_allowed() -> None:
    assert Guard().allows(size=1, limit=LIMIT)


def test_after_one_that_helped_the_next_waits_for_growth() -> None:
    guard = waited(judged(Guard(), helped=True), LONG_AGO)
    assert not guard.allows(size=500 + int(GROWTH * LIMIT) - 1, limit=LIMIT)
    assert guard.allows(size=500 + int(GROWTH * LIMIT), limit=LIMIT)


def test_in_a_small_context_half_of_its_size_is_growth_enough() -> None:
    guard = waited(judged(Guard(), helped=True, size=40), LONG_AGO)
    assert not guard.allows(size=40 + int(REGROWTH * 40) - 1, limit=LIMIT)
    assert guard.allows(size=40 + int(REGROWTH * 40), limit=LIMIT)


@pytest.mark.parametrize("strikes", range(1, STRIKES))
def test_each_strike_doubles_the_wait(strikes: int) -> None:
    guard = Guard()
    for _ in range(strikes):
        guard = judged(guard, helped=False)
    guard = waited(guard, COOLDOWN_STEPS * 2 ** (strikes - 1) - 1)
    assert guard.refusal(size=501, limit=LIMIT) == "the last one did not help; 1 more model calls to wait"
    assert guard.stepped().allows(size=501, limit=LIMIT)


def test_three_strikes_pause_until_the_context_has_grown() -> None:
    guard = Guard()
    for _ in range(STRIKES):
        guard = judged(guard, helped=False)
    guard = waited(guard, 10_000)
    assert not guard.allows(size=500 + int(RELEASE * LIMIT) - 1, limit=LIMIT)
    assert guard.allows(size=500 + int(RELEASE * LIMIT), limit=LIMIT)


def test_one_that_helped_wipes_the_strikes_out() -> None:
    guard = judged(judged(Guard(), helped=False), helped=True)
    assert guard.strikes == 0
    assert guard.allows(size=500 + int(GROWTH * LIMIT), limit=LIMIT)


def test_a_context_that_refills_at_once_is_a_strike_although_each_compaction_helped() -> None:
    guard = judged(Guard(), helped=True)
    guard = judged(guard, helped=True, after=REFILL_STEPS - 1)
    assert guard.strikes == 1
    assert judged(guard, helped=True, after=REFILL_STEPS).strikes == 0


def test_what_is_asked_for_by_what_happens_waits_for_nothing_while_it_helps() -> None:
    guard = judged(Guard(), helped=True)
    for _ in range(10):
        assert guard.allows(size=501, limit=LIMIT, eager=True)
        assert not guard.allows(size=501, limit=LIMIT)
        guard = guard.stepped().judged(helped=True, size=500, eager=True)
    assert guard.strikes == 0
    assert not guard.judged(helped=False, size=501, eager=True).allows(size=501, limit=LIMIT, eager=True)


def test_the_steps_of_one_attempt_are_judged_together() -> None:
    guard = Guard().judged(helped=False, size=500, attempt="a").judged(helped=True, size=300, attempt="a")
    assert (guard.strikes, guard.last_size) == (1, 300)
    guard = waited(guard, LONG_AGO).judged(helped=True, size=500, attempt="b")
    assert guard.strikes == 0
    assert guard.judged(helped=False, size=500, attempt="b").strikes == 2


def test_a_compaction_that_was_asked_for_lets_go_of_a_pause() -> None:
    guard = Guard()
    for _ in range(STRIKES):
        guard = judged(guard, helped=False)
    assert guard.released().allows(size=1, limit=LIMIT)


def test_a_proved_overflow_passes_once_through_a_pause() -> None:
    guard = Guard()
    for _ in range(STRIKES):
        guard = judged(guard, helped=False)
    assert guard.may_bypass()
    guard = guard.judged(helped=False, size=500, overflow=True)
    assert not guard.may_bypass()
    assert judged(guard, helped=True).may_bypass()


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
    assert {each.tier for each in result.compactions if each.status == "done"} == {4}
    assert all("refused" in str(each.error) for each in result.compactions if each.status == "done")


async def tries_in_runs(runs: int, calls_each: int, folder: Path) -> list[NotCompacted]:
    """What the log says of a summariser that always fails, in so many runs on one session."""
    said = ["answer " + "so " * 60] * (calls_each - 1)
    always = Compaction(micro=None, trigger=lambda context, budget: Fired(why="always"))
    runner = None
    for at in range(runs):
        model = ScriptedModel([*reading(calls_each)[: len(said)], "done"], window=64_000, summary="")
        store = runner.store if runner else "memory:"
        agent = Agent(model, tools=[read], compaction=always)
        runner = Runner(agent, store=store, transcripts=folder)
        await runner.run(f"question {at} " + "please " * 60, session_id="s")
    assert runner is not None
    events = [record.event for record in await runner.events("s")]
    return [each for each in events if isinstance(each, NotCompacted)]


async def test_the_guard_outlives_a_run(tmp_path: Path) -> None:
    many = await tries_in_runs(30, 1, tmp_path / "many")
    one = await tries_in_runs(1, 30, tmp_path / "one")
    failed = [sum(each.status == "failed" for each in tries) for tries in (many, one)]
    assert 1 <= failed[0] <= STRIKES
    assert failed[0] <= failed[1] + 1
    assert any(each.status == "skipped" and "paused" in each.error for each in many)


async def test_on_result_compacts_as_often_as_it_was_asked_to_while_that_helps(tmp_path: Path) -> None:
    number = count(1)
    model = ScriptedModel(
        reading(20, words=200), window=64_000, summary=lambda _: f"They read on, {next(number)} times."
    )
    policy = Compaction(micro=None, trigger=On("result"), strategy=KeepRecentFraction(0.1))
    result = await runner_for(model, tmp_path, policy).run("Read", session_id="s")
    assert outcomes(result.compactions) == ["done"] * len(result.compactions)
    assert len(result.compactions) >= 15


async def test_what_held_a_compaction_back_stands_in_the_log_once_for_each_wait(tmp_path: Path) -> None:
    model = ScriptedModel(reading(40, words=60), window=64_000, summary=lambda _: "")
    always = Compaction(micro=None, trigger=lambda context, budget: Fired(why="always"))
    runner = runner_for(model, tmp_path, always)
    events = await watched(runner, "Read")
    noted = [each.event for each in await runner.events("s") if isinstance(each.event, NotCompacted)]
    failed, vain, skipped = (
        [each for each in noted if each.status == status] for status in ("failed", "ineffective", "skipped")
    )
    assert len([*failed, *vain]) == len(skipped) == STRIKES
    assert all(each.why == "always" and "refused" in each.error for each in failed)
    shown = [event for event in events if isinstance(event, CompactionSkipped)]
    assert [each.error for each in shown] == [each.error for each in noted if each not in failed]
    ended = [event for event in events if isinstance(event, CompactionEnded)]
    assert [each.compaction_id for each in ended] == [each.id for each in failed]


@pytest.mark.deep
async def test_l10_a_trigger_that_always_fires_costs_no_more_than_one_summary_a_call(tmp_path: Path) -> None:
    model = ScriptedModel(reading(60, words=100), window=16_000, summary=every_fact)
    policy = Compaction(micro=None, trigger=On("message"))
    result = await runner_for(model, tmp_path, policy).run("Read", session_id="s")
    assert_valid(model.requests)
    assert 1 <= sum(request.purpose == "summary" for request in model.requests) <= 60
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


def test_a_model_whose_summaries_fail_is_asked_again_after_a_while() -> None:
    unsaved = NotCompacted(status="failed", reason="threshold", why="", strategy="s", error="disc", before=9)
    failed = replace(unsaved, fault="down")
    guard = Guard()
    for failures, steps in ((1, 0), (2, RETRY_STEPS), (3, 2 * RETRY_STEPS), (4, 4 * RETRY_STEPS)):
        guard = guard.after(failed)
        guard = guard.after(unsaved)
        assert guard.failures == failures
        assert guard.trusts_summaries == (steps == 0)
        assert not steps or not waited(guard, steps - 1).trusts_summaries
        assert waited(guard, steps).trusts_summaries
    done = Compacted(covers=((1, 2),), replacement="r", at=3, tokens=1, reason="threshold", group="g")
    assert guard.after(done).failures == 0
    assert guard.after(replace(done, made="digest")).failures == 4
    assert guard.after(replace(done, made="digest", fault="down")).failures == 5


@pytest.mark.deep
@pytest.mark.parametrize("words", [5, 60, 400, 1_500])
async def test_l10_near_the_threshold_a_summary_is_no_matter_of_each_turn(words: int, tmp_path: Path) -> None:
    def summary(request: ModelRequest) -> str:
        return f"{len(model.requests)} said please. " + "please " * words

    model = ScriptedModel([f"so {at}" for at in range(100)], window=4_000, summary=summary)
    runner = Runner(Agent(model, compaction=Compaction(micro=None)), transcripts=None)
    for number in range(100):
        await runner.run(f"{number} " + "please " * 60, session_id="s")
    assert sum(request.purpose == "summary" for request in model.requests) <= 13
