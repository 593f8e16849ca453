"""Limits of a run: it ends in order, says which limit, and what was used is what the provider reported."""

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import Compaction
from agentloop.context import AskModel, next_step
from agentloop.errors import UsageError
from agentloop.events import MessageRecord
from agentloop.events import RunEndRecord as RunEndedStored
from agentloop.messages import Message, Usage
from agentloop.models import Answer, ChatModel, Price
from agentloop.prompts import REPEATED
from agentloop.providers.offline import OfflineModel
from agentloop.providers.openai import OpenAIChat
from agentloop.run import Agent
from agentloop.run.limits import Limits, Spent, check_priced
from agentloop.runner import Runner
from agentloop.stream import CallRepeated, RunEnded
from agentloop.sync import SyncRunner
from agentloop.testing import ScriptedModel, calls
from agentloop.triggers import WindowFraction
from tests.kit import assert_valid, read, reading
from tests.strict_provider import StrictProvider
from tests.strict_replies import Reply, calling

USED = Usage(input_tokens=900, output_tokens=100)


def work() -> str:
    """Work."""
    return "ok"


def steps(count: int, *, usage: Usage | None = USED, cost: float | None = None) -> list[Answer]:
    """Answers that call `work` and say which step it is, then an answer that ends."""
    said = [Message.assistant(f"step {at}", calls(("work", {}))) for at in range(1, count)]
    return [Answer(message=each, usage=usage, cost=cost) for each in (*said, Message.assistant("done"))]


def said_in(count: int) -> str:
    """What there is of an answer after so many steps."""
    return "\n\n".join(f"step {at}" for at in range(1, count + 1))


def runner_for(model: ChatModel, folder: Path, **options: Any) -> Runner:
    return Runner(Agent(model, tools=[work, read], **options), transcripts=folder)


class Clock:
    """A clock that shows these readings one after the other, and then stands still."""

    def __init__(self, *readings: float) -> None:
        self._readings: Iterator[float] = iter(readings)
        self._last = 0.0

    def __call__(self) -> float:
        self._last = next(self._readings, self._last)
        return self._last


async def stored_end(runner: Runner) -> RunEndedStored:
    last = (await runner.store.read("s"))[-1].event
    assert isinstance(last, RunEndedStored)
    return last


@pytest.mark.parametrize(
    ("limits", "requests", "reason"),
    [
        (Limits(steps=1), 1, "the limit of 1 model call is reached"),
        (Limits(steps=3), 3, "the limit of 3 model calls is reached"),
        (Limits(tokens=1), 1, "the limit of 1 tokens is reached: 1,000 are used"),
        (Limits(tokens=1_000), 1, "the limit of 1,000 tokens is reached: 1,000 are used"),
        (Limits(tokens=1_001), 2, "the limit of 1,001 tokens is reached: 2,000 are used"),
        (Limits(cost=0.5), 2, "the limit of $0.5 is reached: $0.5000 are spent"),
        (Limits(cost=0.6), 3, "the limit of $0.6 is reached: $0.7500 are spent"),
        (Limits(cost=0.6, tokens=1_500), 2, "the limit of 1,500 tokens is reached: 2,000 are used"),
    ],
)
async def test_a_run_ends_in_order_at_its_limit(
    limits: Limits, requests: int, reason: str, tmp_path: Path
) -> None:
    model = ScriptedModel(steps(6, cost=0.25))
    runner = runner_for(model, tmp_path)
    events = [event async for event in runner.stream("Go", session_id="s", limits=limits)]
    ended = events[-1]
    assert isinstance(ended, RunEnded)
    assert (ended.status, ended.output, ended.error) == ("limit", said_in(requests), reason)
    assert ended.limit is not None
    assert getattr(limits, ended.limit) is not None
    assert len(model.requests) == requests
    stored = await stored_end(runner)
    assert (stored.status, stored.reason) == ("limit", reason)
    assert_valid(model.requests)
    assert (
        next_step(
            [
                record.event.message
                for record in await runner.store.read("s")
                if isinstance(record.event, MessageRecord)
            ]
        )
        == AskModel()
    )


async def test_the_result_names_the_limit_and_going_on_counts_anew(tmp_path: Path) -> None:
    model = ScriptedModel(steps(4))
    runner = runner_for(model, tmp_path)
    result = await runner.run("Go", session_id="s", limits=Limits(tokens=2_000))
    assert (result.status, result.output) == ("limit", "step 1\n\nstep 2")
    assert (result.limit, result.reason) == ("tokens", "the limit of 2,000 tokens is reached: 2,000 are used")
    again = await runner.resume("s", limits=Limits(tokens=2_000))
    assert (again.status, again.output, again.limit, again.reason) == ("answered", "done", None, None)
    assert_valid(model.requests)


async def test_an_answer_at_the_limit_is_an_answer(tmp_path: Path) -> None:
    runner = runner_for(ScriptedModel(steps(2, cost=1.0)), tmp_path)
    result = await runner.run("Go", session_id="s", limits=Limits(steps=2, tokens=2_000, cost=2))
    assert (result.status, result.output, result.reason) == ("answered", "done", None)


async def test_steps_are_those_of_the_agent_unless_the_limits_say_otherwise(tmp_path: Path) -> None:
    runner = runner_for(ScriptedModel(steps(9)), tmp_path, max_steps=2)
    assert (await runner.run("Go", limits=Limits(tokens=50_000))).output == said_in(2)
    more = await runner_for(ScriptedModel(steps(9)), tmp_path, max_steps=2).run("Go", limits=Limits(steps=4))
    assert more.output == said_in(4)


async def test_seconds_are_measured_from_the_start_of_the_call(tmp_path: Path) -> None:
    model = ScriptedModel(steps(5))
    runner = runner_for(model, tmp_path)
    # The start, then twice before each step: before room is made and after.
    limits = Limits(seconds=60, clock=Clock(1_000, 1_010, 1_010, 1_059.9, 1_060.5))
    result = await runner.run("Go", session_id="s", limits=limits)
    assert (result.limit, result.reason) == ("seconds", "the limit of 60 seconds is reached: 60.5 are over")
    assert len(model.requests) == 1
    resumed = await runner.resume("s", limits=Limits(seconds=60, clock=Clock(9_000)))
    assert (resumed.status, resumed.output) == ("answered", "done")


async def test_what_an_earlier_run_said_is_no_partial_answer(tmp_path: Path) -> None:
    model = ScriptedModel(["an answer to something else"])
    runner = runner_for(model, tmp_path)
    await runner.run("First", session_id="s")
    result = await runner.run("Second", session_id="s", limits=Limits(seconds=1, clock=Clock(0, 5)))
    assert (result.status, result.output) == ("limit", "")
    assert len(model.requests) == 1
    assert result.messages[-1] == Message.user("Second")


async def test_the_clock_stands_still_where_nobody_limits_seconds(tmp_path: Path) -> None:
    result = await runner_for(ScriptedModel(steps(3)), tmp_path).run("Go", limits=Limits(clock=Clock(0, 1e9)))
    assert result.status == "answered"


async def test_requests_for_summaries_count(tmp_path: Path) -> None:
    summary = Answer(message=Message.assistant("Facts so far: none."), usage=Usage(input_tokens=50_000))
    model = ScriptedModel(reading(30), summary=summary, window=8_000)
    policy = Compaction(micro=None, trigger=WindowFraction(0.5))
    runner = runner_for(model, tmp_path, compaction=policy)
    result = await runner.run("Read", session_id="s", limits=Limits(tokens=50_000))
    assert result.status == "limit"
    assert result.usage.input_tokens >= 50_000
    assert [request.purpose for request in model.requests].count("summary") == 1
    # What the summary used is seen before the request that it made room for.
    assert model.requests[-1].purpose == "summary"


async def test_where_nothing_is_reported_our_own_count_is_used(tmp_path: Path) -> None:
    model = ScriptedModel(steps(30, usage=None), usage=False)
    runner = runner_for(model, tmp_path)
    result = await runner.run("word " * 1_000, session_id="s", limits=Limits(tokens=5_000))
    assert result.status == "limit"
    assert 4 <= len(model.requests) <= 5
    assert result.usage == Usage()


async def test_a_report_of_zeros_is_none(tmp_path: Path) -> None:
    model = ScriptedModel(steps(30, usage=Usage()))
    limits = Limits(tokens=5_000)
    assert (await runner_for(model, tmp_path).run("word " * 1_000, limits=limits)).status == "limit"


async def test_unreported_summaries_are_counted_too(tmp_path: Path) -> None:
    model = ScriptedModel(reading(30), usage=False, window=8_000)
    runner = runner_for(model, tmp_path, compaction=Compaction(micro=None))
    result = await runner.run("Read", session_id="s")
    asked = [request.purpose for request in model.requests].count("summary")
    unreported = sum((outcome.unreported for outcome in result.compactions), Usage())
    assert asked > 0
    assert unreported.input_tokens > asked * 1_000
    assert result.usage == Usage()


class PricedScript(ScriptedModel):
    """A scripted model that costs a dollar for a thousand tokens, or does not know what it costs."""

    def __init__(self, answers: Sequence[Any], *, known: bool, **options: Any) -> None:
        super().__init__(answers, **options)
        self._price = Price(input=1_000, output=1_000) if known else None

    def price(self, usage: Usage, /) -> float | None:
        return self._price.of(usage) if self._price else None


async def test_a_cost_that_answers_do_not_name_is_reckoned_by_the_models_price(tmp_path: Path) -> None:
    model = PricedScript(steps(9), known=True)
    result = await runner_for(model, tmp_path).run("Go", limits=Limits(cost=2.5))
    assert (result.output, result.reason) == (said_in(3), "the limit of $2.5 is reached: $3.0000 are spent")


async def test_the_cost_of_summaries_counts_by_the_price_of_who_wrote_them(tmp_path: Path) -> None:
    told = Answer(message=Message.assistant("Facts so far: none."), usage=Usage(input_tokens=90_000))
    writer = PricedScript([], known=True, summary=told)
    model = ScriptedModel([Answer(message=each, cost=0.0) for each in _read_messages()], window=8_000)
    policy = Compaction(micro=None, trigger=WindowFraction(0.5), model=writer)
    result = await runner_for(model, tmp_path, compaction=policy).run("Read", limits=Limits(cost=50))
    assert (result.limit, result.reason) == ("cost", "the limit of $50 is reached: $90.0000 are spent")


def _read_messages() -> Iterable[Message]:
    for batch in reading(30):
        yield Message.assistant(batch) if isinstance(batch, str) else Message.assistant(None, batch)


async def test_a_cost_that_cannot_be_told_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    model = PricedScript(steps(3), known=False)
    runner = runner_for(model, tmp_path)
    with pytest.raises(UsageError, match="the price of 'scripted' is not known") as caught:
        await runner.run("Go", session_id="s", limits=Limits(cost=1))
    assert "\n" not in str(caught.value)
    assert model.requests == []
    assert list(await runner.store.read("s")) == []
    policy = Compaction(model=model)
    with pytest.raises(UsageError, match="is not known"):
        await runner_for(ScriptedModel([]), tmp_path, compaction=policy).run("Go", limits=Limits(cost=1))


async def test_a_model_that_says_nothing_of_prices_is_held_to_its_answers(tmp_path: Path) -> None:
    result = await runner_for(ScriptedModel(steps(3)), tmp_path).run("Go", limits=Limits(cost=1))
    assert (result.status, result.output) == ("limit", "step 1")
    assert result.reason == "the limit of $1 cannot be held: the model does not say what it cost"


async def test_the_offline_model_costs_nothing(tmp_path: Path) -> None:
    result = await runner_for(OfflineModel(), tmp_path).run("hello", limits=Limits(cost=0.000_001))
    assert result.status == "answered"


def test_only_a_price_that_nobody_knows_is_refused() -> None:
    unknown = OpenAIChat("my-own", base_url="http://127.0.0.1:9/v1")
    priced = OpenAIChat("my-own", base_url="http://127.0.0.1:9/v1", price=Price(input=1, output=2))
    check_priced(Limits(tokens=5), unknown)
    check_priced(Limits(cost=1), priced, OpenAIChat("gpt-4o", api_key="k"), OfflineModel(), ScriptedModel([]))
    with pytest.raises(UsageError, match="'my-own'"):
        check_priced(Limits(cost=1), priced, unknown)


async def test_a_given_price_holds_over_the_wire(tmp_path: Path) -> None:
    with StrictProvider(lambda _: Reply(text="on", calls=(calling("work"),))) as server:
        model = OpenAIChat("m", base_url=server.url, window="32k", price=Price(input=1_000, output=0))
        result = await runner_for(model, tmp_path).run("Go", session_id="s", limits=Limits(cost=0.15))
    assert (result.status, result.output) == ("limit", "on")
    assert result.cost == pytest.approx(result.usage.input_tokens / 1_000)
    assert server.refusals == []


def test_the_sync_runner_takes_limits(tmp_path: Path) -> None:
    def runner() -> SyncRunner:
        return SyncRunner(Agent(ScriptedModel(steps(9)), tools=[work]), transcripts=tmp_path)

    with runner() as sync:
        assert sync.run("Go", session_id="s", limits=Limits(steps=2)).output == said_in(2)
        assert sync.resume("s", limits=Limits(steps=2)).output == said_in(4)
        *_, ended = sync.stream(None, session_id="s", limits=Limits(steps=1))
    assert isinstance(ended, RunEnded)
    assert ended.output == said_in(5)


@pytest.mark.parametrize("name", ["steps", "tokens", "seconds", "cost"])
@pytest.mark.parametrize("value", [0, -1, True, float("nan"), float("inf"), -0.5, "9", Decimal(3)])
def test_a_limit_that_makes_no_sense_is_refused(name: str, value: object) -> None:
    with pytest.raises(UsageError, match=rf"^{name} must be a .*number"):
        Limits(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["steps", "tokens"])
def test_there_is_no_half_a_step(name: str) -> None:
    with pytest.raises(UsageError, match="whole number of at least 1"):
        Limits(**{name: 1.5})  # type: ignore[arg-type]


async def test_limits_of_another_kind_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="limits must be a Limits"):
        await runner_for(ScriptedModel([]), tmp_path).run("Go", limits=5)  # type: ignore[arg-type]


amounts = st.integers(1, 10**9)


@given(
    limits=st.builds(Limits, steps=st.none() | amounts, tokens=st.none() | amounts, cost=st.none() | amounts),
    spent=st.builds(Spent, steps=amounts, tokens=amounts, cost=amounts),
)
def test_a_limit_is_reached_just_where_one_figure_is_at_or_above_it(limits: Limits, spent: Spent) -> None:
    pairs = [(limits.steps, spent.steps), (limits.tokens, spent.tokens), (limits.cost, spent.cost)]
    expected = any(limit is not None and used is not None and used >= limit for limit, used in pairs)
    reached = limits.reached(spent)
    assert (reached is not None) == expected
    if reached:
        assert reached.words.startswith("the limit of ")
        assert getattr(spent, reached.name) >= getattr(limits, reached.name)


def test_nothing_spent_reaches_nothing() -> None:
    assert Limits(steps=1, tokens=1, seconds=1, cost=1).reached(Spent()) is None


def again(count: int, *, name: str = "work") -> list[Message | str]:
    """Answers that make the same call so often, then one that ends."""
    return [*(Message.assistant(None, calls((name, {}))) for _ in range(count)), "done"]


async def test_a_call_that_gives_the_same_result_again_is_told_from_the_third_on(tmp_path: Path) -> None:
    runner = runner_for(ScriptedModel([*again(4), "more"]), tmp_path)
    events = [event async for event in runner.stream("Go", session_id="s")]
    told = [(event.name, event.times) for event in events if isinstance(event, CallRepeated)]
    assert told == [("work", 3), ("work", 4)]
    shown = [message.text for message in (await runner.run("And?", session_id="s")).messages]
    assert [text for text in shown if text.startswith("ok")] == [
        "ok",
        "ok",
        "ok" + REPEATED.format(times=3),
        "ok" + REPEATED.format(times=4),
    ]


async def test_another_result_or_other_arguments_are_no_repeat(tmp_path: Path) -> None:
    numbers = iter(range(99))

    def look(name: str = "") -> str:
        """Look."""
        return name or str(next(numbers))

    said = [Message.assistant(None, calls(("look", {"name": str(at)} if at % 2 else {}))) for at in range(8)]
    runner = Runner(Agent(ScriptedModel([*said, "done"]), tools=[look]), transcripts=tmp_path)
    events = [event async for event in runner.stream("Go", session_id="s")]
    assert not [event for event in events if isinstance(event, CallRepeated)]


@pytest.mark.parametrize("most", [2, 9])
async def test_a_run_that_goes_round_in_circles_ends_in_order_also_over_compactions(
    tmp_path: Path, most: int
) -> None:
    model = ScriptedModel(
        [Message.assistant(None, calls(read={"name": "a", "words": 400}))] * 40, window=4_000
    )
    runner = runner_for(model, tmp_path, compaction=Compaction(micro=None))
    result = await runner.run("Read it.", session_id="s", limits=Limits(repeats=most))
    assert result.status == "limit"
    assert result.limit == "repeats"
    assert result.reason == (f"the limit of {most} repeats is reached: read gave the same again")
    assert bool(result.compactions) == (most == 9)
    assert len([message for message in result.messages if message.role == "tool"]) <= most
    assert len([request for request in model.requests if request.purpose == "agent"]) == most
    assert_valid(model.requests)
    with pytest.raises(UsageError, match="repeats"):
        Limits(repeats=1)
