"""The main job on real input: the standard library's email package, read through a small window."""

from pathlib import Path

import pytest

from agentloop.compaction import Compaction
from agentloop.errors import ContextOverflowError
from agentloop.events import Compacted
from agentloop.providers.offline import OfflineModel
from agentloop.providers.openai import OpenAIChat
from agentloop.run import Agent
from agentloop.runner import Runner
from agentloop.sessions import load, transcripts_in
from agentloop.strategies import MicroCompact
from agentloop.stream import CompactionEnded, ResultsCleared, RunEnded, TextDelta
from agentloop.workspace import workspace_tools
from tests.facts_kit import assert_all_known, looking, run_looking, said
from tests.kit import watched
from tests.reading_kit import FOLDER, TASK, file_names, reader
from tests.strict_overflows import OVERFLOWS
from tests.strict_provider import StrictProvider
from tests.strict_replies import (
    ExtractiveSummariser,
    script,
)


@pytest.mark.deep
@pytest.mark.parametrize("window", [4_000, 8_000, 16_000])
async def test_the_offline_model_names_every_file(tmp_path: Path, window: int) -> None:
    agent = Agent(OfflineModel(window=window), tools=workspace_tools(FOLDER), instructions="Be brief.")
    runner = Runner(agent, transcripts=tmp_path)
    events = await watched(runner, TASK)
    ended = events[-1]
    assert isinstance(ended, RunEnded)
    assert [name for name in file_names() if f"{name}: " not in ended.output] == []
    done = [event for event in events if isinstance(event, CompactionEnded)]
    assert all(event.status == "done" for event in done)
    assert len(done) >= 3 or any(isinstance(event, ResultsCleared) for event in events)
    assert len(done) >= 3 or window > 8_000
    history = await said(runner)
    for path in transcripts_in(tmp_path):
        saved = load(path).messages
        assert list(saved) == history[: len(saved)]
    assert len(transcripts_in(tmp_path)) == bool(done)


@pytest.mark.deep
@pytest.mark.parametrize("micro", [None, MicroCompact(min_gain_tokens=0)], ids=["auto", "all layers"])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_so_does_a_strict_provider_with_a_window_of_16k(
    tmp_path: Path, stream: bool, micro: MicroCompact | None
) -> None:
    with StrictProvider(reader, window=16_000, modes=["V8", "V9"]) as server:
        model = OpenAIChat("m", base_url=server.url, window="16k", stream=stream)
        tools = workspace_tools(FOLDER)
        agent = Agent(model, tools=tools, instructions="Be brief.", compaction=Compaction(micro=micro))
        runner = Runner(agent, transcripts=tmp_path, store=f"sqlite:///{tmp_path}/s.db")
        events = await watched(runner, TASK)
        await runner.close()
        assert server.refusals == []
    ended = events[-1]
    assert isinstance(ended, RunEnded)
    assert [name for name in file_names() if f"{name}: " not in ended.output] == []
    wanted = CompactionEnded if micro is None else ResultsCleared
    assert any(isinstance(event, wanted) for event in events)
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert text.endswith(ended.output)


@pytest.mark.parametrize(
    "usage",
    ["right", "absent", "zeros", "output-only", "first-only", "half", "double", "cumulative"],
)
@pytest.mark.deep
async def test_no_request_is_invalid_and_nothing_is_lost_whatever_usage_says(
    tmp_path: Path, usage: str
) -> None:
    with StrictProvider(looking(30), window=16_000, usage=usage, modes=["V8", "V9"]) as server:
        result, history = await run_looking(tmp_path, server, window=16_000)
        assert server.refusals == []
    assert_all_known(result.output, history)
    assert 2 <= len(result.compactions) <= 11


@pytest.mark.parametrize("dialect", sorted(OVERFLOWS))
async def test_a_window_that_is_not_known_is_learnt_from_the_overflow(
    tmp_path: Path, dialect: str, first_seed: int
) -> None:
    factor = (1.3, 1.7)[(first_seed + sorted(OVERFLOWS).index(dialect)) % 2]
    with StrictProvider(looking(20), window=12_000, overflow=dialect, factor=factor) as server:
        result, history = await run_looking(tmp_path, server)
        refused = [line for line in server.refusals if not line.startswith("V10")]
        assert refused == []
        assert len(server.refusals) <= (10 if dialect == "bare-500" else 4)
    assert_all_known(result.output, history)
    assert result.compactions


async def test_a_window_that_is_known_is_never_exceeded_by_the_servers_count(tmp_path: Path) -> None:
    with StrictProvider(looking(40), window=12_000, factor=1.3) as server:
        result, _ = await run_looking(tmp_path, server, window=12_000, max_output_tokens=1_000)
        assert server.refusals == []
    assert result.compactions


async def test_a_prompt_that_the_server_finds_too_long_ends_in_a_typed_error(tmp_path: Path) -> None:
    with StrictProvider(ExtractiveSummariser(script(["here"])), window=2_000) as server:
        model = OpenAIChat("m", base_url=server.url)
        runner = Runner(Agent(model), transcripts=tmp_path)
        with pytest.raises(ContextOverflowError):
            await runner.run("word " * 9_000, session_id="s")
        assert len(server.requests) <= 2
        assert (await runner.run("short", session_id="s")).output == "here"
    records = [record.event for record in await runner.store.read("s")]
    assert any(isinstance(event, Compacted) for event in records)
