"""Against a real server: llama.cpp's, with a small real model. Run with `pytest -m llama`."""

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from itertools import count, groupby
from pathlib import Path
from typing import Any, Literal

import pytest

from agentloop.compaction import Compaction
from agentloop.errors import ContextTooLongError, ModelRefusedError
from agentloop.messages import Usage
from agentloop.models import Answer, ModelPart, ModelRequest, TextPart
from agentloop.providers.openai import OpenAIChat
from agentloop.run import Agent, Limits, Native
from agentloop.runner import Runner
from agentloop.strategies import Digest, KeepRecentFraction, Summary, SummaryPrefix, replaced_by
from agentloop.stream import CompactionEnded, RunEnded, StreamEvent, TextDelta
from lessons import l00_chat, l01_loop, l06_context_compaction
from tests.kit import body_of
from tests.llama_server import BRIEF, FORCED, WINDOW, llama_server
from tests.strict_rules import violations
from tests.test_output import City

pytestmark = pytest.mark.llama

OUTPUT = 16


@pytest.fixture(scope="session")
def llama_url() -> Iterator[str]:
    with llama_server() as url:
        yield url


async def test_without_tools_and_with_its_format_answers_are_of_their_type(llama_url: str) -> None:
    said = {"grammar": r'root ::= "{\"name\": \"Rome\", \"people\": 3}"'}
    with llama_server(tools=False) as url:
        typed = Agent(OpenAIChat("smollm2", base_url=url, extra_body=said), output=City)
        answers = [(await Runner(typed, transcripts=None).run("Which city?")).output for _ in range(2)]
        with pytest.raises(ModelRefusedError, match="take a model that calls tools"):
            await Runner(replace(typed, tools=[l01_loop.count_words]), transcripts=None).run("Which city?")
    assert answers == [City(name="Rome", people=3)] * 2
    native = Agent(OpenAIChat("smollm2", base_url=llama_url, max_output_tokens=200), output=Native(City))
    assert isinstance((await Runner(native, transcripts=None).run("Which city?")).output, City)


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


async def test_a_chat_outgrows_the_window_and_goes_on(llama_url: str, tmp_path: Path) -> None:
    turns, policy = 6, Compaction(strategy=replaced_by(KeepRecentFraction(0.3), Digest()))
    model = OpenAIChat(
        "smollm2", base_url=llama_url, window=WINDOW, max_output_tokens=OUTPUT, temperature=0.0
    )
    runner = Runner(Agent(model, instructions="Be brief.", compaction=policy), transcripts=tmp_path)
    events = await chat(runner, turns)
    ended = [event for event in events if isinstance(event, RunEnded)]
    assert [event.status for event in ended] == ["answered"] * turns
    assert all(event.usage.input_tokens <= 3 * WINDOW for event in ended)
    compactions = [event for event in events if isinstance(event, CompactionEnded)]
    assert any(event.status == "done" for event in compactions)
    assert len(list(tmp_path.glob("transcript_*.jsonl"))) == 1
    assert sum(isinstance(event, TextDelta) for event in events) > turns


async def test_its_window_is_found_before_anything_is_sent(llama_url: str) -> None:
    model = OpenAIChat("smollm2", base_url=llama_url, max_output_tokens=OUTPUT)
    assert await model.ask_window() == WINDOW
    assert model.window == WINDOW


class Recorded:
    """A real model, with what it was sent and what came of it: the usage, or None for an overflow."""

    def __init__(self, model: OpenAIChat) -> None:
        self.model = model
        self.requests: list[ModelRequest] = []
        self.usages: list[Usage | None] = []

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def window(self) -> int | None:
        return self.model.window

    @property
    def max_output_tokens(self) -> int | None:
        return self.model.max_output_tokens

    async def ask_window(self) -> int | None:
        return await self.model.ask_window()

    async def stream(self, request: ModelRequest, /) -> AsyncGenerator[ModelPart, None]:
        self.requests.append(request)
        try:
            async with aclosing(self.model.stream(request)) as parts:
                async for part in parts:
                    if isinstance(part, Answer):
                        assert part.usage is not None
                        self.usages.append(part.usage)
                    yield part
        except ContextTooLongError:
            self.usages.append(None)
            raise

    @property
    def answered(self) -> list[Usage]:
        return [usage for usage in self.usages if usage is not None]


TASK = "Look at the river and at the bridge, again and again, and say what changes."


def looker() -> Callable[..., str]:
    """A tool that says more each time."""
    looks = count(1)

    def look(at: Literal["river", "bridge", "tower", "market"]) -> str:
        """Look at a place."""
        number = next(looks)
        more = "the water stands one mark higher than before and " * (6 + number // 2)
        return f"Look {number}: at the {at} {more}"

    return look


@pytest.mark.parametrize(
    ("window", "turns"), [(None, 14), (2 * WINDOW, 14)], ids=["asked for", "learnt from overflows"]
)
async def test_calls_upon_calls_outgrow_the_window_again_and_again(
    llama_url: str, tmp_path: Path, window: int | None, turns: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """A turn each: a call that is forced is forced once a turn."""

    def real(fields: Mapping[str, Any], **options: Any) -> Recorded:
        seeded = {**fields, "seed": 7}
        return Recorded(
            OpenAIChat("smollm2", base_url=llama_url, window=window, extra_body=seeded, **options)
        )

    calling, writing = real(FORCED, max_output_tokens=4 * OUTPUT), real(BRIEF)
    policy = Compaction(model=writing, summary_share=0.05, tool=False)
    agent = Agent(calling, tools=[looker()], instructions="You look at places.", compaction=policy)
    runner = Runner(agent, transcripts=tmp_path)
    results = [await runner.run(TASK, session_id="s", limits=Limits(steps=1)) for _ in range(turns)]
    assert [result.status for result in results] == ["limit"] * turns
    assert len(calling.answered) == turns
    for request in (*calling.requests, *writing.requests):
        assert violations(body_of(request)) == []
    for request in calling.requests:
        assert [message["content"] for message in request.messages if message["role"] == "user"][-1] == TASK
    done = sum(compaction.status == "done" for result in results for compaction in result.compactions)
    assert done >= 1
    assert len(list(tmp_path.glob("transcript_*.jsonl"))) == 1
    for model in (calling, writing):
        assert all(usage.input_tokens + usage.output_tokens <= WINDOW for usage in model.answered)
        assert all(len(list(tries)) <= 2 for usage, tries in groupby(model.usages) if usage is None)
    assert (None in calling.usages) == (window is not None), "an overflow where the window is not known"
    sent = sum(usage.input_tokens for usage in calling.answered)
    cached = sum(usage.cached_tokens for usage in calling.answered)
    assert sent > 3 * WINDOW
    assert cached > 0
    with capsys.disabled():
        told = f"{cached:,} of {sent:,} input tokens came from the cache"
        print(f"\n{turns} calls, {done} compactions: {told}, {cached / sent:.0%}")


async def test_a_summary_behind_the_agents_own_messages_comes_from_the_cache(
    llama_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The model is too small to write one: what counts is its request."""
    shares: dict[SummaryPrefix, float] = {}
    prefixes: tuple[SummaryPrefix, ...] = ("own", "shared")
    for prefix in prefixes:
        model = Recorded(OpenAIChat("smollm2", base_url=llama_url, window=WINDOW, extra_body=BRIEF))
        strategy = replaced_by(KeepRecentFraction(0.3), Summary(prefix=prefix, on_failure=Digest()))
        policy = Compaction(micro=None, trigger=None, strategy=strategy, summary_share=0.05, tool=False)
        runner = Runner(Agent(model, instructions="Be brief.", compaction=policy), transcripts=tmp_path)
        for number in range(6):
            await runner.run(f"{prefix}, {number}. " + "In spring the river rises. " * 25, session_id=prefix)
        asked = len(model.answered)
        await runner.compact(prefix)
        usage = model.answered[asked]
        shares[prefix] = usage.cached_tokens / usage.input_tokens
    assert shares["shared"] > 0.5 > shares["own"]
    with capsys.disabled():
        told = ", ".join(f"{prefix} {share:.0%}" for prefix, share in shares.items())
        print(f"\nof a summary's request came from the cache: {told}")


def test_lessons_run_through_it(llama_url: str) -> None:
    """It is too small to call tools by itself: what counts is that the lessons come to their ends."""
    model = OpenAIChat("smollm2", base_url=llama_url, max_output_tokens=OUTPUT, temperature=0.0)
    talk = l00_chat.main(model=model)
    assert [message.role for message in talk.messages] == ["user", "assistant"] * 2
    loop = l01_loop.main(model=model)
    assert loop.by_hand[-1].role == loop.by_runner[-1].role == "assistant"
    files = l06_context_compaction.main("Which files are there?", model=model)
    assert [event.status for event in files.events if isinstance(event, RunEnded)] == ["answered"] * 2
