"""Whole runs on a strict Responses API: the same scenarios as on chat completions, and sessions that move."""

import asyncio
import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from agentloop.compaction import Compaction
from agentloop.errors import ContextOverflowError
from agentloop.models import ChatModel
from agentloop.providers.openai import OpenAIChat, OpenAIResponses
from agentloop.run import Agent
from agentloop.runner import Runner
from agentloop.strategies import MicroCompact
from agentloop.stream import ResultsCleared, RunEnded, TextDelta
from agentloop.workspace import workspace_tools
from tests.cli_kit import agentloop
from tests.facts_kit import assert_all_known, look, looking, run_looking, said
from tests.kit import until, watched
from tests.reading_kit import FOLDER, TASK, file_names, reader
from tests.server_kit import at_once
from tests.strict_bodies import Body
from tests.strict_overflows import OVERFLOWS
from tests.strict_provider import StrictProvider
from tests.strict_replies import (
    MARKER,
    Answered,
    Call,
    Drop,
    ExtractiveSummariser,
    Hang,
    Reply,
    calling,
    script,
)
from tests.strict_responses import Output, is_for_responses
from tests.strict_responses_replies import RESPONSES_OVERFLOWS

Model = Callable[..., ChatModel]


@pytest.fixture(params=[OpenAIChat, OpenAIResponses])
def model_class(request: pytest.FixtureRequest) -> Model:
    kind: Model = request.param
    return kind


def thinking(rounds: int) -> ExtractiveSummariser:
    """A model that looks around, and tells its thoughts and sometimes a text beside its calls."""
    return looking(rounds, lambda at: {"text": "I look on." * (at % 2), "reasoning": f"thought {at}"})


@pytest.mark.deep
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("micro", [None, MicroCompact(min_gain_tokens=0)], ids=["auto", "all layers"])
async def test_every_file_is_read_in_a_window_of_16k(
    tmp_path: Path, stream: bool, micro: MicroCompact | None
) -> None:
    with StrictProvider(reader, window=16_000) as server:
        model = OpenAIResponses("m", base_url=server.url, window="16k", stream=stream)
        agent = Agent(
            model,
            tools=workspace_tools(FOLDER),
            instructions="Be brief.",
            compaction=Compaction(micro=micro),
        )
        runner = Runner(agent, transcripts=tmp_path, store=f"sqlite:///{tmp_path}/s.db")
        events = await watched(runner, TASK)
        await runner.close()
        assert server.refusals == []
    ended = events[-1]
    assert isinstance(ended, RunEnded)
    assert [name for name in file_names() if f"{name}: " not in ended.output] == []
    assert micro is None or any(isinstance(event, ResultsCleared) for event in events)
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert text.endswith(ended.output)


@pytest.mark.parametrize(
    "usage",
    [
        "right",
        "absent",
        *(pytest.param(each, marks=pytest.mark.deep) for each in ("half", "double", "output-only")),
    ],
)
async def test_nothing_is_lost_over_several_compactions(
    tmp_path: Path, usage: str, model_class: Model
) -> None:
    with StrictProvider(thinking(30), window=16_000, usage=usage) as server:
        result, history = await run_looking(tmp_path, server, model_class, window=16_000)
        assert server.refusals == []
    assert_all_known(result.output, history)
    assert 2 <= len(result.compactions) <= 11


@pytest.mark.parametrize(
    "dialect", [*sorted(RESPONSES_OVERFLOWS), "openai", "llamacpp-bare", "bare-500", "http-413"]
)
@pytest.mark.parametrize("factor", [1.7, pytest.param(1.0, marks=pytest.mark.deep)])
async def test_a_window_that_is_not_known_is_learnt_from_the_overflow(
    tmp_path: Path, dialect: str, factor: float
) -> None:
    assert dialect in OVERFLOWS | RESPONSES_OVERFLOWS
    with StrictProvider(thinking(16), window=12_000, overflow=dialect, factor=factor) as server:
        result, history = await run_looking(tmp_path, server, OpenAIResponses)
        assert [line for line in server.refusals if not line.startswith("V10")] == []
        assert len(server.refusals) <= (10 if dialect == "bare-500" else 4)
    assert_all_known(result.output, history)
    assert result.compactions


@pytest.mark.deep
async def test_a_window_that_is_known_is_never_exceeded(tmp_path: Path, model_class: Model) -> None:
    with StrictProvider(thinking(30), window=12_000, factor=1.3) as server:
        result, _ = await run_looking(tmp_path, server, model_class, window=12_000, max_output_tokens=1_000)
        assert server.refusals == []
    assert result.compactions


async def test_a_prompt_that_is_too_long_ends_in_a_typed_error(tmp_path: Path, model_class: Model) -> None:
    with StrictProvider(ExtractiveSummariser(script(["here"])), window=2_000) as server:
        runner = Runner(Agent(model_class("m", base_url=server.url)), transcripts=tmp_path)
        with pytest.raises(ContextOverflowError):
            await runner.run("word " * 9_000, session_id="s")
        assert len(server.requests) <= 2
        assert (await runner.run("short", session_id="s")).output == "here"


@pytest.mark.deep
async def test_streamed_or_not_the_run_is_the_same(model_class: Model) -> None:
    told = []  # without transcripts: two of one second have names of other lengths
    for stream in (True, False):
        with StrictProvider(thinking(20), window=12_000) as server:
            _, history = await run_looking(None, server, model_class, window=12_000, stream=stream)
            assert server.refusals == []
        told.append([(message.role, message.text, len(message.tool_calls)) for message in history])
    assert told[0] == told[1]


async def test_l12_each_request_begins_with_the_one_before(tmp_path: Path) -> None:
    with StrictProvider(thinking(12)) as server:
        await run_looking(tmp_path, server, OpenAIResponses, window="1m")
    sent = [json.dumps(body["input"], ensure_ascii=False)[:-1] for body in server.bodies]
    assert len(sent) == 13
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(sent))
    assert len({json.dumps([body["instructions"], body["tools"]]) for body in server.bodies}) == 1


async def test_what_the_output_limit_cut_off_is_not_run_and_the_run_goes_on() -> None:
    cut = Reply(
        reasoning="why",
        calls=(calling("look", at="1-0"), Call(name="look", arguments='{"at": "1')),
        finish="length",
    )
    with StrictProvider([cut, cut, "shorter now"]) as server:
        runner = Runner(Agent(OpenAIResponses("m", base_url=server.url), tools=[look]))
        result = await runner.run("Look.", session_id="s")
        assert server.refusals == []
    assert result.output == "shorter now"
    assert not any(MARKER.search(message.text) for message in await said(runner))


async def test_a_custom_call_is_run_and_answered_as_one() -> None:
    def run_code(input: str) -> str:
        """Run code."""
        return f"ran {input}"

    asked = {
        "type": "custom_tool_call",
        "id": "ctc_1",
        "call_id": "c",
        "name": "run_code",
        "input": "print('ä')",
    }
    custom = {"type": "custom", "name": "run_code"}
    with StrictProvider([Output(items=(asked,)), "done"]) as server:
        model = OpenAIResponses("m", base_url=server.url, extra_body={"tools": [custom]})
        await Runner(Agent(model, tools=[run_code])).run("Go.", session_id="s")
        assert server.refusals == []
    output = {"type": "custom_tool_call_output", "call_id": "c", "output": "ran print('ä')"}
    assert server.bodies[1]["input"][1:] == [asked, output]
    assert server.bodies[1]["tools"][0] == custom


@pytest.mark.parametrize("kept", [0, 4, 9, 14])
async def test_a_drop_half_way_doubles_neither_text_nor_calls(kept: int) -> None:
    ran = []

    def note(at: str) -> str:
        """Note it."""
        ran.append(at)
        return at

    reply = Reply(
        text="I note it.", reasoning="why", calls=(calling("note", at="a"), calling("note", at="b"))
    )
    with StrictProvider([Drop(reply=reply, events=kept), reply, "done"]) as server:
        runner = Runner(Agent(OpenAIResponses("m", base_url=server.url, retry=at_once()), tools=[note]))
        await runner.run("Go.", session_id="s")
        assert server.refusals == []
    assert sorted(ran) == ["a", "b"]
    texts = [message.text for message in await said(runner) if message.role == "assistant"]
    assert texts == ["I note it.", "done"]


@pytest.mark.deep
async def test_reasoning_goes_with_the_exchange_that_is_folded(tmp_path: Path) -> None:
    with StrictProvider(thinking(30), window=12_000) as server:
        await run_looking(tmp_path, server, OpenAIResponses, window=12_000)
        assert server.refusals == []
    kinds = [[item["type"] for item in body["input"]] for body in server.bodies if "tools" in body]
    assert any(kind.count("reasoning") > 3 for kind in kinds)
    assert all(kind.count("reasoning") <= kind.count("function_call") + 1 for kind in kinds)
    first_thought = server.bodies[1]["input"][1]
    assert first_thought["type"] == "reasoning"
    assert first_thought not in server.bodies[-1]["input"]


async def test_undo_gives_the_items_back(tmp_path: Path) -> None:
    with StrictProvider(thinking(6)) as server:
        model = OpenAIResponses("m", base_url=server.url, window="100k")
        runner = Runner(Agent(model, tools=[look]), transcripts=tmp_path)
        await runner.run("Look.", session_id="s")
        await runner.run("And?", session_id="s")
        before = server.bodies[-1]["input"]
        await runner.compact("s")
        await runner.run("And now?", session_id="s")
        folded = server.bodies[-1]["input"]
        await runner.undo("s")
        await runner.run("And then?", session_id="s")
        assert server.refusals == []
    assert folded[: len(before)] != before
    assert server.bodies[-1]["input"][: len(before)] == before


async def test_a_run_that_was_killed_goes_on(tmp_path: Path, model_class: Model) -> None:
    hung = asyncio.Event()
    replies = iter([Reply(reasoning="hm", calls=(calling("look", at="1-0"), calling("look", at="1-1")))])
    stuck = Hang()

    def brain(body: Body) -> Answered | str:
        if reply := next(replies, None):
            return reply
        loop.call_soon_threadsafe(hung.set)
        return stuck if len(server.requests) == 2 else "whole again"

    loop = asyncio.get_running_loop()
    url = f"sqlite:///{tmp_path}/s.db"
    with StrictProvider(brain) as server:
        runner = Runner(Agent(model_class("m", base_url=server.url), tools=[look]), store=url)
        task = asyncio.create_task(runner.run("Look.", session_id="s"))
        await until(hung)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await runner.close()
        again = Runner(Agent(model_class("m", base_url=server.url), tools=[look]), store=url)
        result = await again.resume("s")
        await again.close()
        assert server.refusals == []
    assert result.output == "whole again"
    key = "input" if "input" in server.bodies[0] else "messages"
    assert server.bodies[1][key] == server.bodies[2][key]


async def test_a_session_moves_between_both_classes_and_back(tmp_path: Path) -> None:
    number = iter(range(100))

    def brain(body: Body) -> Answered | str:
        at = next(number)
        if body["messages"][-1]["role"] == "tool":
            return Reply(text=f"done {at}", reasoning=f"so {at}")
        looks = (calling("look", "same", at=f"{at}-0"), calling("look", at=f"{at}-1"))
        return Reply(text="I look.", reasoning=f"why {at}", calls=looks)

    url = f"sqlite:///{tmp_path}/s.db"
    with StrictProvider(brain, modes=["V8", "V9", "V11"]) as server:
        for kind in [OpenAIChat, OpenAIResponses, OpenAIResponses, OpenAIChat] * 2:
            runner = Runner(
                Agent(kind("m", base_url=server.url), tools=[look], instructions="Be."), store=url
            )
            await runner.run("Look.", session_id="s")
            history = await said(runner)
            await runner.close()
        assert server.refusals == []
    chat = [body for body in server.bodies if not is_for_responses(body)]
    assert not any("response_items" in message for body in chat for message in body["messages"])
    assert "reasoning_content" in json.dumps(chat[-1])
    items = next(body["input"] for body in reversed(server.bodies) if is_for_responses(body))
    assert "reasoning_content" not in json.dumps(items)
    assert sum(item["type"] == "reasoning" for item in items) == 2 * 3 + 1
    own = [message.extra.keys() for message in history if message.role == "assistant"]
    kinds = ["reasoning_content", "response_items", "response_items", "reasoning_content"] * 2
    assert own == [{kind} for kind in kinds for _ in range(2)]


@pytest.mark.deep
async def test_a_session_that_moves_is_compacted_like_any_other(tmp_path: Path) -> None:
    with StrictProvider(thinking(40), window=12_000, modes=["V8", "V9"]) as server:
        store = f"sqlite:///{tmp_path}/s.db"
        for steps, kind in [(9, OpenAIChat), (9, OpenAIResponses)] * 2 + [(200, OpenAIChat)]:
            model = kind("m", base_url=server.url, window=12_000, retry=at_once())
            policy = Compaction(micro=None)
            agent = Agent(model, tools=[look], compaction=policy, max_steps=steps)
            runner = Runner(agent, store=store, transcripts=tmp_path)
            result = await runner.run("Look around. FACT-abcdef", session_id="s")
            history = await said(runner)
            await runner.close()
        assert server.refusals == []
    assert result.status == "answered"
    assert_all_known(result.output, history)


@pytest.mark.deep
def test_a_stored_chat_goes_on_in_a_new_process_by_the_other_api(tmp_path: Path) -> None:
    def brain(body: Body) -> Answered | str:
        if body["messages"][-1]["role"] == "tool":
            return Reply(text=f"listed {len(body['messages'])}", reasoning="so")
        return Reply(reasoning="why", calls=(calling("list_files"),))

    with StrictProvider(brain, modes=["V11"]) as server:
        call = ("-m", "m", "--base-url", server.url, "--session", "s", "-p", "list")
        for options, environment in [
            ((), {}),
            ((), {"AGENTLOOP_API": "responses"}),
            (("--api", "chat"), {"AGENTLOOP_API": "responses"}),
        ]:
            done = agentloop(*call, *options, cwd=tmp_path, env=environment)
            assert (done.status, done.out[:7]) == (0, "listed "), done.err
        assert server.refusals == []
    paths = [request.path.rpartition("/")[2] for request in server.requests]
    assert paths == ["completions"] * 2 + ["responses"] * 2 + ["completions"] * 2


def test_an_api_that_is_none_is_named(tmp_path: Path) -> None:
    call = ("-m", "m", "--base-url", "http://127.0.0.1:9/v1", "-p", "x")
    done = agentloop(*call, "--api", "grpc", cwd=tmp_path)
    assert done.status == 2
    assert "--api: 'grpc' is no API: use chat or responses" in done.err
    done = agentloop(*call, cwd=tmp_path, env={"AGENTLOOP_API": "none"})
    assert done.status == 2
    assert "AGENTLOOP_API" in done.err
