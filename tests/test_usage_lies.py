"""Usage that lies: what a server reports moves no line unless it can be true, and never reaches a total."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop.compaction import Compaction
from agentloop.context import Context
from agentloop.events import MessageRecord, ModelCalled, Record
from agentloop.messages import MOST_REPORTED_TOKENS, Message, Usage
from agentloop.providers.openai import OpenAIChat
from agentloop.results import RunResult
from agentloop.run import Agent, Limits
from agentloop.runner import Runner
from tests.kit import records_of
from tests.strict_bodies import Body
from tests.strict_provider import StrictProvider
from tests.strict_replies import ExtractiveSummariser, Reply, calling
from tests.strict_shapes import Shape
from tests.strict_usage import usage_report

WINDOW = 16_000
TEXT = "and so on " * 4 + "Whatever fails before the append leaves the log exactly as it was. "
"""Text of which this server counts about as many tokens as we do."""

LIES = (
    "absent", "zeros", "output-only", "first-only", "half", "double", "cumulative", "unasked", "stale",
    "standing", "uncached", "negative", "huge", "strings", "nulls", "true", "a list", "no object",
)  # fmt: skip
TRUE = ("right", "floats", "overcached")
PLACES = ("own_chunk", "with_finish", "before_finish", "each_chunk", "no_choices_first", "in_choice")


def look(at: int) -> str:
    """Look somewhere."""
    return f"FACT-{at:06x} " + TEXT * 28


def looking(rounds: int) -> ExtractiveSummariser:
    """A model that looks so many times, one after the other, and is done."""
    asked = iter(range(rounds))

    def answer(body: Body) -> Reply:
        at = next(asked, None)
        return Reply(text="done") if at is None else Reply(calls=(calling("look", at=at),))

    return ExtractiveSummariser(answer)


async def looked(
    server: StrictProvider, folder: Path, *, stream: bool = True, limits: Limits | None = None
) -> tuple[RunResult, Sequence[Record]]:
    """One run, and the log behind it."""
    model = OpenAIChat("m", base_url=server.url, window=WINDOW, stream=stream)
    agent = Agent(model, tools=[look], instructions="Look.", compaction=Compaction(micro=None))
    runner = Runner(agent, transcripts=folder)
    result = await runner.run("Look around.", session_id="s", limits=limits)
    return result, await runner.store.read("s")


@pytest.mark.deep
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("usage", [*TRUE, *LIES])
async def test_l9_one_compaction_where_one_is_needed_whatever_usage_says(
    tmp_path: Path, usage: str, stream: bool
) -> None:
    with StrictProvider(looking(19), window=WINDOW, usage=usage) as server:
        result, records = await looked(server, tmp_path, stream=stream)
        assert server.refusals == []
    assert [outcome.status for outcome in result.compactions] == ["done"]
    assert Context.of(records) == Context().add(*records[:9]).add(*records[9:])
    used = (result.usage.input_tokens, result.usage.output_tokens, result.usage.cached_tokens)
    assert all(0 <= number < 1_000_000 for number in used)


@pytest.mark.deep
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("usage", ["right", "cumulative", "nulls"])
async def test_l9_so_it_is_wherever_a_stream_has_its_report(tmp_path: Path, usage: str, place: str) -> None:
    shape = Shape(usage=place if (usage, place) != ("nulls", "each_chunk") else "with_finish")  # type: ignore[arg-type]
    with StrictProvider(looking(19), window=WINDOW, usage=usage, shape=shape) as server:
        result, _ = await looked(server, tmp_path)
        assert server.refusals == []
    assert len(result.compactions) == 1


async def test_a_report_that_is_no_number_counts_as_none_for_a_limit(tmp_path: Path) -> None:
    asked = {}
    for usage in ("absent", "negative", "huge", "strings", "nulls", "no object"):
        with StrictProvider(looking(19), window=WINDOW, usage=usage) as server:
            result, _ = await looked(server, tmp_path, limits=Limits(tokens=20_000))
        assert result.status == "limit"
        asked[usage] = len(server.requests)
    assert set(asked.values()) == {asked["absent"]}
    assert 5 < asked["absent"] < 10


@pytest.mark.parametrize(
    ("data", "usage"),
    [
        ({"prompt_tokens": -5, "completion_tokens": 7}, Usage(output_tokens=7)),
        ({"prompt_tokens": MOST_REPORTED_TOKENS + 1, "completion_tokens": 10**12}, Usage()),
        ({"prompt_tokens": MOST_REPORTED_TOKENS}, Usage(input_tokens=MOST_REPORTED_TOKENS)),
        ({"prompt_tokens": "12", "completion_tokens": [3]}, Usage()),
        ({"prompt_tokens": 12.0, "completion_tokens": float("nan")}, Usage(input_tokens=12)),
        ({"prompt_tokens": float("inf"), "completion_tokens": True}, Usage()),
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 10}}, Usage(input_tokens=9)),
        (
            {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 9}},
            Usage(input_tokens=9, cached_tokens=9),
        ),
        ({"prompt_tokens": 9, "prompt_tokens_details": [9]}, Usage(input_tokens=9)),
    ],
)
def test_no_absurd_number_is_usage(data: Body, usage: Usage) -> None:
    assert Usage.from_openai(data) == usage


def trusted(measured: Sequence[int], counted: Sequence[int]) -> list[bool]:
    """For each request whether sizes rest on its report."""
    context, found = Context(), []
    for told, ours in zip(measured, counted, strict=True):
        usage = Usage(input_tokens=told) if told else None
        called = ModelCalled(purpose="agent", model="m", counted=ours, usage=usage)
        context = context.add(Record(seq=context.length + 1, event=called))
        anchor = context.anchor("m")
        found.append(anchor is not None and anchor.seq == context.length)
    return found


def reported(usage: str, counted: Sequence[int], factor: float = 1.0) -> list[int]:
    """What a server reports of these requests, which counts so much more than we do."""
    report = usage_report(usage)
    told = (report(int(ours * factor), 9, at) or {} for at, ours in enumerate(counted, 1))
    return [each.get("prompt_tokens", 0) for each in told]


grown = st.lists(st.integers(0, 4_000), min_size=1, max_size=20).map(
    lambda steps: [1_000 + sum(steps[: at + 1]) for at in range(len(steps))]
)


@given(grown, st.floats(0.7, 1.7))
def test_an_honest_report_is_always_rested_on(counted: list[int], factor: float) -> None:
    assert all(trusted(reported("right", counted, factor), counted))


@given(
    st.lists(st.integers(400, 4_000), min_size=4, max_size=20),
    st.floats(0.7, 1.7),
    st.sampled_from(["stale", "cumulative", "standing", "zeros", "output-only"]),
)
def test_no_lie_is_rested_on_where_it_is_far_off(steps: list[int], factor: float, usage: str) -> None:
    """Where requests grow by a like share each, the report of the one before is like one of fewer tokens."""
    steps.sort(reverse=True)
    counted = [1_000 + sum(steps[: at + 1]) for at in range(len(steps))]
    told = reported(usage, counted, factor)
    for at, believed in enumerate(trusted(told, counted)):
        off = abs(told[at] / (counted[at] * factor) - 1)
        assert not believed or off < 0.25, (told, counted, at)


def test_the_first_report_after_silence_is_not_rested_on_yet() -> None:
    assert trusted([0, 900, 1_000], [1_000, 1_000, 1_100]) == [False, False, True]


@given(grown, st.data())
def test_l13_reports_heard_one_by_one_are_those_heard_at_once(
    counted: list[int], data: st.DataObject
) -> None:
    events = [
        event
        for ours in counted
        for event in (
            ModelCalled(
                purpose=data.draw(st.sampled_from(["agent", "agent", "summary"])),
                model=data.draw(st.sampled_from(["m", "m", "n"])),
                counted=ours,
                usage=data.draw(st.none() | st.integers(0, 2 * ours).map(lambda n: Usage(input_tokens=n))),
            ),
            MessageRecord(message=Message.user("x"), tokens=9),
        )
    ]
    records, one_by_one = records_of(events), Context()
    for record in records:
        one_by_one = one_by_one.add(record)
    assert one_by_one == Context.of(records)
