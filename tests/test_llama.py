"""Against a real server: llama.cpp's, with a small real model. Run with `pytest -m llama`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentloop.agent import Agent
from agentloop.compaction import Compaction
from agentloop.errors import ContextTooLongError
from agentloop.models import Answer, ModelPart, ModelRequest, TextPart
from agentloop.openai_chat import OpenAIChat
from agentloop.runner import Runner
from agentloop.stream import CompactionEnded, RunEnded, StreamEvent, TextDelta
from tests.llama_server import WINDOW, llama_server

pytestmark = pytest.mark.llama

OUTPUT = 16


@pytest.fixture(scope="session")
def llama_url() -> Iterator[str]:
    with llama_server() as url:
        yield url


async def parts_of(model: OpenAIChat, *texts: str) -> list[ModelPart]:
    roles = ("user", "assistant")
    messages = tuple({"role": roles[at % 2], "content": text} for at, text in enumerate(texts))
    return [part async for part in model.stream(ModelRequest(messages=messages))]


async def test_it_streams_and_reports_usage_and_what_came_from_the_cache(llama_url: str) -> None:
    model = OpenAIChat("smollm2", base_url=llama_url, max_output_tokens=OUTPUT, temperature=0.0)
    long_ago = "In spring the river rises. " * 20
    *texts, first = await parts_of(model, long_ago)
    assert isinstance(first, Answer)
    assert len(texts) > 1
    assert "".join(part.text for part in texts if isinstance(part, TextPart)) == first.message.text != ""
    assert first.usage is not None
    assert first.usage.input_tokens > 100
    assert 0 < first.usage.output_tokens <= OUTPUT
    *_, second = await parts_of(model, long_ago, first.message.text, "And then?")
    assert isinstance(second, Answer)
    assert second.usage is not None
    assert second.usage.input_tokens > first.usage.input_tokens
    assert second.usage.cached_tokens > 100


async def test_it_answers_in_one_piece(llama_url: str) -> None:
    model = OpenAIChat("smollm2", base_url=llama_url, max_output_tokens=OUTPUT, stream=False)
    text, answer = await parts_of(model, "Say hello.")
    assert isinstance(answer, Answer)
    assert text == TextPart(text=answer.message.text)
    assert answer.usage is not None
    assert answer.usage.output_tokens <= OUTPUT
    assert answer.finish in ("stop", "length")


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_a_real_overflow(llama_url: str, stream: bool) -> None:
    model = OpenAIChat("smollm2", base_url=llama_url, max_output_tokens=OUTPUT, stream=stream)
    with pytest.raises(ContextTooLongError) as caught:
        await parts_of(model, "one two three four " * 1_000)
    assert caught.value.window == WINDOW
    assert caught.value.tokens is not None
    assert caught.value.tokens > 3_000


STORY = "The river rises in spring and the bridge at kilometre {turn} is closed. " * 22


async def chat(runner: Runner, turns: int) -> list[StreamEvent]:
    """Turn upon turn of one session, until far more was said than the window holds."""
    events: list[StreamEvent] = []
    for turn in range(turns):
        async for event in runner.stream(STORY.format(turn=turn), session_id="s"):
            events.append(event)
    return events


@pytest.mark.parametrize(("window", "turns"), [(WINDOW, 6), (None, 6)], ids=["known", "learnt"])
async def test_a_chat_outgrows_the_window_and_goes_on(
    llama_url: str, tmp_path: Path, window: int | None, turns: int
) -> None:
    model = OpenAIChat(
        "smollm2", base_url=llama_url, window=window, max_output_tokens=OUTPUT, temperature=0.0
    )
    policy = Compaction(summary_share=0.05)
    runner = Runner(Agent(model, instructions="Be brief.", compaction=policy), transcripts=tmp_path)
    events = await chat(runner, turns)
    ended = [event for event in events if isinstance(event, RunEnded)]
    assert [event.status for event in ended] == ["answered"] * turns
    assert all(event.usage.input_tokens <= 3 * WINDOW for event in ended)
    compactions = [event for event in events if isinstance(event, CompactionEnded)]
    assert any(event.status == "done" for event in compactions)
    assert len(list(tmp_path.glob("transcript_*.jsonl"))) >= sum(e.status == "done" for e in compactions)
    assert sum(isinstance(event, TextDelta) for event in events) > turns


async def test_its_window_is_found_before_anything_is_sent(llama_url: str, tmp_path: Path) -> None:
    model = OpenAIChat("smollm2", base_url=llama_url, max_output_tokens=OUTPUT)
    runner = Runner(Agent(model), transcripts=tmp_path)
    assert (await runner.status("s")).window == model.window == WINDOW
