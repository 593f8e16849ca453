"""Strategies that count by a counter of their own."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given

from agentloop import Agent, Compaction, Runner
from agentloop.context import count_message, recounted
from agentloop.errors import UsageError
from agentloop.events import Compacted, Record
from agentloop.messages import Message
from agentloop.strategies import (
    Blocks,
    Chain,
    ClearResults,
    KeepRecentFraction,
    KeepRecentTurns,
    KeepUserMessages,
    RecursiveSummary,
    Reduce,
    Scope,
    SlidingWindow,
    Strategy,
    Tiered,
    TokenWindow,
    TurnWindow,
)
from agentloop.testing import ScriptedModel
from tests.kit import BUDGET, COUNTER, context_of, orderly, read, reading
from tests.turns_kit import ROOM, said, turn

Make = Callable[..., Strategy]

EVERY: dict[str, Make] = {
    "keep-recent-fraction": KeepRecentFraction,
    "keep-recent-turns": lambda **options: KeepRecentTurns(1, **options),
    "keep-user-messages": lambda **options: KeepUserMessages(30, **options),
    "sliding-window": lambda **options: SlidingWindow(2, **options),
    "turn-window": lambda **options: TurnWindow(1, **options),
    "token-window": lambda **options: TokenWindow(60, **options),
    "recursive-summary": lambda **options: RecursiveSummary(2, 1, **options),
    "blocks": lambda **options: Blocks(0, 1, scope=Scope.token_budget(40), **options),
    "reduce": lambda **options: Reduce(keep_turns=1, **options),
    "tiered": lambda **options: Tiered(keep=1, **options),
    "clear-results": lambda **options: ClearResults(10, 1, **options),
}


def four_a_token(text: str) -> int:
    """Four for each token of ours, and for its overhead too where it counts a whole message."""
    return 4 * COUNTER(text)


def steps(strategy: Strategy) -> tuple[Strategy, ...]:
    return strategy.steps if isinstance(strategy, Chain) else (strategy,)


@pytest.mark.parametrize("name", EVERY)
def test_every_strategy_takes_a_counter_and_refuses_what_cannot_count(name: str) -> None:
    with pytest.raises(UsageError, match="counter must be a function that gives the tokens of a text"):
        EVERY[name](counter=4)
    assert all(step.counter is len for step in steps(EVERY[name](counter=len)))  # type: ignore[attr-defined]


@pytest.mark.many(40)
@given(orderly(most_turns=4))
def test_by_the_agents_own_counter_a_strategy_does_what_it_does_without_one(messages: list[Message]) -> None:
    context, budget = context_of(messages), replace(BUDGET, counter=COUNTER)
    for make in EVERY.values():
        for own, plain in zip(steps(make(counter=COUNTER)), steps(make()), strict=True):
            assert own(context, budget) == plain(context, budget)


def test_what_a_strategy_measures_is_by_its_counter() -> None:
    context = context_of(said(*(turn(number) for number in range(6))))
    newest = sum(count_message(entry.message, four_a_token) for entry in context.visible[-3:])
    task = count_message(context.visible[0].message, four_a_token)
    by_ours = TokenWindow(newest + task)(context, ROOM)
    by_its_own = TokenWindow(newest + task, counter=four_a_token)(context, ROOM)
    assert by_ours is not None
    assert by_its_own is not None
    assert (by_ours.covers, by_its_own.covers) == (((2, 6),), ((2, 10),))


def test_the_target_is_by_the_counter_too() -> None:
    context = context_of(said(*(turn(number) for number in range(40))))
    budget = replace(BUDGET, window=450, fixed=0, counter=COUNTER)
    cuts = [KeepRecentFraction(0.9, counter=counter)(context, budget) for counter in (None, four_a_token)]
    assert [cut and cut.covers for cut in cuts] == [((2, 58),)] * 2


def test_what_is_not_in_sight_is_taken_to_differ_as_much_as_what_is() -> None:
    context = context_of([Message.user("word " * 500), Message.assistant("word " * 500)])
    event = Compacted(covers=((2, 2),), replacement="word " * 500, at=3, tokens=505)
    context = context.add(Record(seq=3, event=event))
    by_it, budget = recounted(context, ROOM, four_a_token)
    assert 3.9 < by_it.tokens / context.tokens < 4.0
    assert 3.9 < by_it.said[1].tokens / context.said[1].tokens < 4.0
    assert 3.9 < budget.fixed / ROOM.fixed <= 4.0
    assert budget.own(1_000, by_it) == pytest.approx(4_000, rel=0.03)


async def test_the_log_holds_what_is_shown_shortened_by_the_agents_counter(tmp_path: Path) -> None:
    model = ScriptedModel([*reading(3), "done"], window=16_000)
    strategy = ClearResults(keep_tokens=500, least_tokens=100, counter=four_a_token)
    agent = Agent(model, tools=[read], compaction=Compaction(micro=None, strategy=strategy))
    runner = Runner(agent, transcripts=tmp_path)
    await runner.run("Read", session_id="s")
    assert (await runner.compact("s")).status == "done"
    (done,) = [each.event for each in await runner.store.read("s") if isinstance(each.event, Compacted)]
    assert len(done.cleared) == 3
    assert [item.tokens for item in done.cleared] == [
        count_message(item.message, COUNTER) for item in done.cleared
    ]


@pytest.mark.parametrize("count", [None, -1, "5", 1.5, float("nan"), True], ids=str)
@pytest.mark.parametrize("make", EVERY.values(), ids=EVERY.keys())
def test_what_is_no_count_is_named(make: Make, count: object) -> None:
    def mine(text: str) -> object:
        return count

    first, *_ = steps(make(counter=mine))
    with pytest.raises(
        UsageError, match=f"the counter mine gave {count!r}: it must give a whole number of at"
    ):
        first(context_of(said(turn(1), turn(2))), BUDGET)
