"""Servers that cut prompts in silence: found out by their reports of growing requests, or by asking."""

import itertools
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentloop import Agent, Compaction, Runner
from agentloop.context.reports import PromptCuts
from agentloop.providers.openai import OpenAIChat
from agentloop.providers.openai.window import loaded_window, shown_window
from agentloop.stream import AnyStreamEvent, ContextWarning
from tests.strict_bodies import Body
from tests.strict_provider import StrictProvider
from tests.strict_replies import Fault
from tests.strict_rules import prompt_tokens
from tests.strict_usage import CUT_TO, usage_report
from tests.test_usage_lies import LIES, TRUE, look, looking

MODELS, PS, SHOW = "/v1/models", "/api/ps", "/api/show"


def warnings_of(events: list[AnyStreamEvent]) -> list[ContextWarning]:
    """Those that say that prompts are cut."""
    return [each for each in events if isinstance(each, ContextWarning) and "cut" in (each.text or "")]


@pytest.mark.parametrize("usage", ["halved", "trimmed"])
async def test_the_largest_report_is_the_window_and_it_is_said_once(
    tmp_path: Path, usage: str, stream: bool
) -> None:
    with StrictProvider(looking(14), usage=usage) as server:
        model = OpenAIChat("m", base_url=server.url, stream=stream)
        agent = Agent(model, tools=[look], instructions="Look.", compaction=Compaction(micro=None))
        runner = Runner(agent, transcripts=tmp_path)
        seen = [event async for event in runner.stream("Look around.", session_id="s")]
        found = (await runner.status("s")).window
        assert CUT_TO - 1_000 < found <= CUT_TO
        assert [each.window for each in warnings_of(seen)] == [found]
        assert f"at most {found:,} tokens" in (warnings_of(seen)[0].text or "")
        sizes = [prompt_tokens(body) for body in server.bodies]
        cut = [size > CUT_TO for size in sizes]
        assert 2 <= cut.count(True) <= 3
        assert max(sizes[cut.index(True) + cut.count(True) :]) < CUT_TO
        server.brain = looking(3)
        again = [event async for event in runner.stream("Look again.", session_id="s")]
        assert warnings_of(again) == []
        assert max(prompt_tokens(body) for body in server.bodies[-4:]) < CUT_TO
        assert server.refusals == []


def found(usage: str, counted: list[int], factor: float = 1.0) -> int | None:
    """The window that the reports of these requests tell of; the server counts so much more than we do."""
    report, cuts = usage_report(usage), PromptCuts()
    for at, ours in enumerate(counted, 1):
        told = report(int(ours * factor), 9, at)
        measured = told.get("prompt_tokens", 0) if isinstance(told, dict) else 0
        cuts = cuts.after(ours, measured if isinstance(measured, int) and 0 < measured < 10**8 else 0)
    return cuts.window


grown = st.lists(st.integers(1, 4_000), min_size=1, max_size=12)
compacted = st.lists(grown, min_size=1, max_size=4).map(
    lambda rounds: [900 + each for steps in rounds for each in itertools.accumulate(steps)]
)
"""The sizes of requests that grow and are compacted, again and again."""


@given(compacted, st.floats(0.7, 1.7), st.sampled_from([*TRUE, *LIES]))
@example([901, 902, 1387, 1387, 1733, 1810], 1.0, "standing")
@example([901, 902, 903, 904, 1099, 901, 942, 943, 984], 1.0, "stale")
@example([901, 903, 904, 1133, 901, 950, 1332], 0.8125, "stale")
@pytest.mark.many(300)
def test_no_other_report_is_taken_for_a_cut(counted: list[int], factor: float, usage: str) -> None:
    assert found(usage, counted, factor) is None


@given(
    st.lists(st.integers(400, 900), min_size=20, max_size=40),
    st.floats(0.8, 1.5),
    st.sampled_from(["halved", "trimmed"]),
)
@pytest.mark.many(200)
def test_a_cut_is_found_and_never_too_large(steps: list[int], factor: float, usage: str) -> None:
    window = found(usage, [600 + each for each in itertools.accumulate(steps)], factor)
    assert window is not None
    assert CUT_TO // 2 <= window <= CUT_TO


def test_so_is_one_of_the_first_request_already() -> None:
    assert found("halved", [8_000, 8_300, 9_000]) == CUT_TO // 2 + 2
    assert found("halved", [8_000, 8_300]) is None


@pytest.mark.parametrize("small", [0, 100])
def test_a_count_without_room_is_no_window(small: int) -> None:
    cuts = PromptCuts()
    for counted in (8_000, 8_400, 9_000, 9_900):
        cuts = cuts.after(counted, small)
    assert cuts.window is None


def listing() -> Body:
    return {"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "library"}, {"id": "n"}]}


def loaded(**fields: object) -> Body:
    return {"models": [{"name": "other:7b", "context_length": 9_000}, {"name": "m:latest"} | fields]}


def shown(parameters: object) -> Body:
    return {"parameters": parameters, "model_info": {"llama.context_length": 131_072}}


async def test_ollama_is_asked_once_more_when_it_has_loaded_the_model(tmp_path: Path, stream: bool) -> None:
    pages: dict[str, object] = {MODELS: listing(), PS: {"models": []}, SHOW: shown('stop "x"')}

    def answer(_: Body) -> str:
        pages[PS] = loaded(context_length=CUT_TO)
        return "ok"

    with StrictProvider(answer, pages=pages) as server:
        model = OpenAIChat("m", base_url=server.url, stream=stream)
        runner = Runner(Agent(model), transcripts=tmp_path)
        for _ in range(3):
            await runner.run("hello", session_id="s")
        assert (await runner.status("s")).window == model.window == CUT_TO
        asked = [path.partition("?")[0] for path, _ in server.asked]
    assert asked.count(PS) == 2
    assert asked.count(SHOW) == 1


@pytest.mark.parametrize(
    ("pages", "window"),
    [
        ({PS: loaded(context_length=2_048)}, 2_048),
        ({PS: loaded(), SHOW: shown('num_keep   24\nnum_ctx    8192\nstop "<|end|>"')}, 8_192),
        ({PS: {"models": []}, SHOW: shown("num_ctx 32768")}, 32_768),
        ({PS: {"models": []}, SHOW: shown(None)}, None),
        ({PS: {"models": []}, SHOW: shown("num_ctx many")}, None),
        ({PS: {"models": []}}, None),
        ({PS: {"models": None}, SHOW: shown("num_ctx 32768")}, None),
        ({PS: Fault(status=500)}, None),
    ],
)
async def test_what_ollama_tells(pages: Body, window: int | None) -> None:
    with StrictProvider(pages={MODELS: listing()} | pages) as server:
        model = OpenAIChat("m", base_url=server.url, api_key="k")
        assert [await model.ask_window() for _ in range(3)] == [window] * 3


@given(
    st.recursive(st.none() | st.integers() | st.text(max_size=4), lambda inner: st.lists(inner, max_size=3))
)
def test_whatever_it_tells_is_a_window_or_none(value: object) -> None:
    assert loaded_window({"models": value}, "m") is None
    assert shown_window({"parameters": value}) is None
