"""Windows that servers name themselves: asked for once, read from any shape, and never a reason to fail."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import Compaction
from agentloop._plumbing.amounts import MOST_TOKENS
from agentloop.context import DEFAULT_WINDOW
from agentloop.models import AsksWindow, Priced
from agentloop.providers.openai import OpenAIChat
from agentloop.providers.openai.server import is_loopback, is_openai
from agentloop.providers.openai.window import listed_window, props_window
from agentloop.run import Agent
from agentloop.runner import Runner
from agentloop.testing import ScriptedModel
from tests.strict_provider import StrictProvider
from tests.strict_replies import Fault, Hang

MODELS, PROPS, LOADED, OLLAMA = "/v1/models", "/props", "/api/v0/models", "/api/ps"


def listing(**fields: Any) -> dict[str, Any]:
    return {"object": "list", "data": [{"id": "m", "object": "model"} | fields]}


def model_at(server: StrictProvider, **options: Any) -> OpenAIChat:
    return OpenAIChat("m", base_url=server.url, **({"api_key": "sk-test"} | options))


def paths(server: StrictProvider) -> list[str]:
    return [path for path, _ in server.asked]


SHAPES: list[tuple[str, object, int | None]] = [
    ("vLLM, SGLang", listing(owned_by="vllm", max_model_len=32_768, root="m"), 32_768),
    ("llama.cpp", listing(owned_by="llamacpp", meta={"n_ctx": 2_048, "n_ctx_train": 8_192}), 2_048),
    ("an older llama.cpp", listing(owned_by="llamacpp", meta={"n_ctx_train": 8_192}), None),
    ("OpenRouter", listing(context_length=200_000, top_provider={"context_length": 131_072}), 131_072),
    ("OpenRouter, no top", listing(context_length=200_000, top_provider={"context_length": None}), 200_000),
    ("Groq", listing(active=True, context_window=131_072, max_completion_tokens=8_192), 131_072),
    ("LM Studio", listing(state="loaded", max_context_length=131_072, loaded_context_length=4_096), 4_096),
    ("Mistral", listing(max_context_length=32_000), 32_000),
    ("Together: a bare list", [{"id": "m", "context_length": 8_192}], 8_192),
    ("under models", {"models": [{"name": "m", "context_length": 4_096}]}, 4_096),
    ("text", listing(max_model_len="16384"), 16_384),
    ("a float", listing(max_model_len=16_384.0), 16_384),
    ("served under another name", {"data": [{"id": "/models/x.gguf", "max_model_len": 512}]}, 512),
    ("an alias", {"data": [{"id": "a"}, {"id": "b", "aliases": ["m"], "meta": {"n_ctx": 777}}]}, 777),
    (
        "one of two",
        {"data": [{"id": "x", "max_model_len": 1_000}, {"id": "m", "max_model_len": 2_000}]},
        2_000,
    ),
    (
        "not among two",
        {"data": [{"id": "x", "max_model_len": 1_000}, {"id": "y", "max_model_len": 2_000}]},
        None,
    ),
    ("one is broken", listing(max_model_len=0, context_length=9_000), 9_000),
    ("OpenAI", listing(owned_by="openai", created=1), None),
]


@pytest.mark.parametrize(("listed", "window"), [shape[1:] for shape in SHAPES], ids=[s[0] for s in SHAPES])
def test_what_servers_list(listed: object, window: int | None) -> None:
    assert listed_window(listed, "m") == window


@pytest.mark.parametrize(
    "figure",
    [
        0,
        -1,
        MOST_TOKENS + 1,
        10**400,
        float("nan"),
        float("inf"),
        True,
        None,
        "",
        "many",
        "nan",
        "1e99",
        [5],
        {},
    ],
)
def test_figures_that_make_no_sense_are_passed_over(figure: object) -> None:
    assert listed_window(listing(max_model_len=figure), "m") is None
    assert props_window({"default_generation_settings": {"n_ctx": figure}}) is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["data", "models", "id", "meta", "n_ctx", "aliases"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(json_values)
def test_any_json_names_a_plausible_window_or_none(listed: object) -> None:
    for window in (listed_window(listed, "m"), props_window(listed)):
        assert window is None or 1 <= window <= MOST_TOKENS


async def test_a_server_is_asked_once_and_its_window_holds(tmp_path: Path) -> None:
    with StrictProvider(lambda _: "ok", pages={MODELS: listing(max_model_len=5_000)}) as server:
        model = model_at(server)
        assert model.window is None
        runner = Runner(Agent(model), transcripts=tmp_path)
        for _ in range(3):
            await runner.run("hello", session_id="s")
        assert (await runner.status("s")).window == model.window == 5_000
        other = Runner(Agent(model), store=runner.store, transcripts=tmp_path)
        assert (await other.status("s")).window == 5_000
    assert paths(server) == [MODELS]
    assert server.asked[0][1]["authorization"] == "Bearer sk-test"
    assert server.connections == 1
    assert server.refusals == []


async def test_runs_at_the_same_time_ask_once_and_all_know(tmp_path: Path) -> None:
    with StrictProvider(lambda _: "ok", pages={MODELS: listing(max_model_len=5_000)}) as server:
        runner = Runner(Agent(model_at(server)), transcripts=tmp_path)
        await asyncio.gather(*(runner.run("hello", session_id=f"s{at}") for at in range(4)))
        assert (await runner.status("s0")).window == 5_000
    assert paths(server) == [MODELS]


async def test_what_is_given_or_published_is_not_asked_for(tmp_path: Path) -> None:
    with StrictProvider(lambda _: "ok", pages={MODELS: listing(max_model_len=5_000)}) as server:
        given = model_at(server, window="7k")
        await Runner(Agent(given), transcripts=tmp_path).run("hello")
        known = OpenAIChat("gpt-4o", base_url=server.url)
        await Runner(Agent(known), transcripts=tmp_path).run("hello")
        assert await given.ask_window() == 7_000
        assert await known.ask_window() == 128_000
    assert server.asked == []


async def test_a_model_that_anybody_serves_has_the_window_that_its_server_names(tmp_path: Path) -> None:
    for pages, window in (({MODELS: listing(max_model_len=8_192)}, 8_192), ({}, 128_000)):
        with StrictProvider(lambda _: "ok", pages=pages) as server:
            model = OpenAIChat("llama3.3:70b", base_url=server.url, api_key="sk-test")
            async with Runner(Agent(model), transcripts=tmp_path) as runner:
                await runner.run("hi", session_id="s")
                assert (await runner.status("s")).window == window


async def test_openai_itself_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with StrictProvider() as server:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{server.port}")
        assert await OpenAIChat("no-such-model", api_key="sk-test").ask_window() is None
        assert server.connections == 0


async def test_who_writes_summaries_is_asked_too(tmp_path: Path) -> None:
    with StrictProvider(lambda _: "ok", pages={MODELS: listing(max_model_len=3_000)}) as server:
        writer = model_at(server)
        runner = Runner(
            Agent(ScriptedModel(["ok"]), compaction=Compaction(model=writer)), transcripts=tmp_path
        )
        await runner.run("hello")
    assert writer.window == 3_000


LLAMA = listing(owned_by="llamacpp", meta={"n_ctx": 8_192, "n_ctx_train": 131_072})
TOLD = {"default_generation_settings": {"n_ctx": 2_048}}


@pytest.mark.parametrize(
    ("pages", "window", "asked"),
    [
        ({MODELS: LLAMA, PROPS: TOLD}, 2_048, [MODELS, PROPS]),
        ({MODELS: LLAMA}, 8_192, [MODELS, PROPS]),
        ({MODELS: listing(owned_by="llamacpp"), PROPS: TOLD}, 2_048, [MODELS, PROPS]),
        ({PROPS: TOLD}, 2_048, [MODELS, PROPS]),
        ({MODELS: listing(), LOADED: listing(loaded_context_length=4_096)}, 4_096, [MODELS, PROPS, LOADED]),
        ({MODELS: listing()}, None, [MODELS, PROPS, LOADED, OLLAMA]),
    ],
)
async def test_llama_cpp_and_lm_studio_tell_more_beside_their_list(
    pages: Mapping[str, object], window: int | None, asked: list[str]
) -> None:
    with StrictProvider(pages=pages) as server:
        assert await model_at(server).ask_window() == window
    assert [path.partition("?")[0] for path in paths(server)] == asked
    assert all("autoload=false" in path for path in paths(server) if path.startswith(PROPS))


WRONG: Mapping[str, object] = {
    "no such path": Fault(status=404, body="<html>"),
    "refused": Fault(status=401, body={"error": {"message": "who?"}}),
    "down": Fault(status=503, headers={"retry-after": "1"}),
    "moved": Fault(status=302, headers={"location": "/v1/elsewhere"}),
    "no JSON": "<html>models</html>",
    "nothing": "",
    "nested": b"[" * 200_000,
    "huge": b" " * 10_000_001 + json.dumps(listing(max_model_len=5)).encode(),
    "null": None,
    "a number": 5,
    "no list": {"data": {"m": 1}},
}


@pytest.mark.parametrize("page", WRONG.values(), ids=WRONG)
async def test_a_wrong_answer_leaves_the_window_unknown(page: object, tmp_path: Path) -> None:
    elsewhere = {"/v1/elsewhere": listing(max_model_len=5)}
    with StrictProvider(["ok"], pages={MODELS: page, **elsewhere}) as server:
        model = model_at(server)
        runner = Runner(Agent(model), transcripts=tmp_path)
        assert (await runner.run("hello", session_id="s")).output == "ok"
        assert (await runner.status("s")).window == DEFAULT_WINDOW
        assert model.window is None
        assert await model.ask_window() is None
    assert paths(server).count(MODELS) == 1
    assert "/v1/elsewhere" not in paths(server)


async def test_a_slow_server_is_not_waited_for() -> None:
    with StrictProvider(pages={MODELS: Hang()}) as server:
        model = model_at(server, timeout_seconds=1)
        assert await model.ask_window() is None
        assert await model.ask_window() is None
        assert paths(server) == [MODELS]


@pytest.mark.deep
async def test_what_the_list_said_holds_where_the_rest_is_slow() -> None:
    with StrictProvider(pages={MODELS: LLAMA, PROPS: Hang()}) as server:
        assert await model_at(server, timeout_seconds=3).ask_window() == 8_192


async def test_who_is_interrupted_while_asking_asks_again() -> None:
    with StrictProvider(pages={MODELS: Hang()}) as server:
        model = model_at(server)
        asking = asyncio.create_task(model.ask_window())
        await asyncio.to_thread(server.hanging.wait, 120)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        server.pages = {MODELS: listing(max_model_len=5_000)}
        assert await model.ask_window() == 5_000


async def test_a_server_that_is_not_there_or_not_named_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await OpenAIChat("m", base_url="http://127.0.0.1:1/v1").ask_window() is None
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert await OpenAIChat("m").ask_window() is None


def test_several_event_loops_may_ask() -> None:
    with StrictProvider(pages={MODELS: listing(max_model_len=5_000)}) as server:
        model = model_at(server)
        assert [asyncio.run(model.ask_window()) for _ in range(2)] == [5_000, 5_000]
    assert paths(server) == [MODELS]


async def test_a_window_that_was_told_too_large_is_narrowed_by_an_overflow(tmp_path: Path) -> None:
    with StrictProvider(lambda _: "ok", window=4_000, pages={MODELS: listing(max_model_len=9_000)}) as server:
        runner = Runner(Agent(model_at(server)), transcripts=tmp_path)
        for at in range(4):
            await runner.run(f"{at} " + "word " * 1_200, session_id="s")
        assert (await runner.status("s")).window == 4_000
    assert paths(server) == [MODELS]


def test_the_model_offers_what_the_protocols_ask() -> None:
    assert isinstance(OpenAIChat("m", api_key="k"), AsksWindow)
    assert isinstance(OpenAIChat("m", api_key="k"), Priced)
    assert not isinstance(ScriptedModel([]), AsksWindow | Priced)


@pytest.mark.parametrize(
    ("url", "ours", "theirs"),
    [
        ("https://api.openai.com/v1", False, True),
        ("https://API.openai.com:443/v1", False, True),
        ("http://api.openai.com/v1", False, False),
        ("https://api.openai.com:9/v1", False, False),
        ("https://api.openai.com.evil.com/v1", False, False),
        ("http://localhost:1/v1", True, False),
        ("http://127.0.0.9/v1", True, False),
        ("http://[::1]:1/v1", True, False),
        ("http://127.evil.com/v1", False, False),
        ("http://127.0.0.1@evil.com/v1", False, False),
        ("http://localhost.evil.com/v1", False, False),
    ],
)
def test_an_address_is_this_machines_or_openais_only_where_it_is_whole(
    url: str, ours: bool, theirs: bool
) -> None:
    assert (is_loopback(url), is_openai(url)) == (ours, theirs)
