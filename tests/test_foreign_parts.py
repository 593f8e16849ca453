"""Parts and items of other APIs become calls, results and text; what goes out is valid for its API (L20)."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import Agent, Message, OpenAIChat, OpenAIResponses, Runner
from agentloop.compaction import compact_messages
from agentloop.context import chat_messages, for_chat_completions, wire_messages
from agentloop.messages import Json
from agentloop.providers.openai.items import inputs_of
from agentloop.stores import InMemoryStore
from tests.kit import added
from tests.server_kit import at_once
from tests.strict_provider import StrictProvider
from tests.strict_responses_rules import order_violations, shape_violations
from tests.strict_rules import violations

PIXEL = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
LOOK = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "x"}}
THOUGHT = {"type": "thinking", "thinking": "Where is it?", "signature": "c2ln"}


def seen(content: Any = "A tree.", **fields: Any) -> Json:
    """An Anthropic result."""
    return {"type": "tool_result", "tool_use_id": "toolu_1", "content": content, **fields}


def sent_of(said: Sequence[Json], instructions: str | None = None) -> list[dict[str, Any]]:
    """The chat-completions request of a log with these messages as they came, read as a server reads it."""
    wire = wire_messages([Message.from_openai(message) for message in said], instructions=instructions)
    return list(json.loads(json.dumps(for_chat_completions(wire))))


def test_anthropics_blocks_are_calls_results_reasoning_and_text() -> None:
    said = chat_messages(
        [
            {"role": "user", "content": [{"type": "text", "text": "Look."}]},
            {"role": "assistant", "content": [THOUGHT, {"type": "text", "text": "I look."}, LOOK]},
            {"role": "user", "content": [seen(), {"type": "text", "text": "And?"}]},
        ]
    )
    call = {"id": "toolu_1", "type": "function", "function": {"name": "look", "arguments": '{"at": "x"}'}}
    assert said == [
        {"role": "user", "content": [{"type": "text", "text": "Look."}]},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [call],
            "reasoning_content": "Where is it?",
        },
        {"role": "tool", "tool_call_id": "toolu_1", "content": "A tree."},
        {"role": "user", "content": "And?"},
    ]


def test_items_of_the_responses_api_are_one_message_for_each_answer() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}", "id": "fc_1"}
    said = chat_messages(
        [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Look."}]},
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]},
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "I look.", "annotations": []}],
            },
            call,
            {**call, "call_id": "c2", "id": "fc_2"},
            {"type": "function_call_output", "call_id": "c1", "output": "A tree."},
            {
                "type": "function_call_output",
                "call_id": "c2",
                "output": [{"type": "input_text", "text": "Two."}],
            },
        ]
    )
    assert [message["role"] for message in said] == ["user", "assistant", "tool", "tool"]
    assert [call["id"] for call in said[1]["tool_calls"]] == ["c1", "c2"]
    assert said[1]["content"] == "I look."
    assert said[1]["reasoning_content"] == "Hm."
    assert [message["content"] for message in said[2:]] == ["A tree.", "Two."]
    assert not said[1].keys() & {"id", "type", "status"}


class Compared(dict[str, Any]):
    """A part that counts how often it is compared with others."""

    count = 0

    def __ne__(self, other: object) -> bool:
        Compared.count += 1
        return super().__ne__(other)

    __hash__ = None  # type: ignore[assignment]


def test_l11_a_row_of_items_is_joined_once() -> None:
    texts = [Compared(type="text", text=str(number), annotations=[]) for number in range(200)]
    calls = [{"type": "function_call", "call_id": text["text"], "name": "look"} for text in texts]
    says = [{"type": "message", "role": "assistant", "content": [text]} for text in texts]
    Compared.count = 0
    (said,) = chat_messages([item for pair in zip(says, calls, strict=True) for item in pair])
    assert said["content"] == texts
    assert [call["id"] for call in said["tool_calls"]] == [text["text"] for text in texts]
    assert 0 < Compared.count <= 600


def test_a_result_that_failed_says_so() -> None:
    (said,) = chat_messages([{"role": "user", "content": [seen("no such place", is_error=True)]}])
    assert Message.from_openai(said).text == "error\nno such place"


@pytest.mark.parametrize("field", ["tool_calls", "reasoning_content"])
@pytest.mark.parametrize("odd", [5, True, "x", {"y": 1}, [5], None])
def test_l20_fields_beside_the_parts_may_hold_anything(field: str, odd: object) -> None:
    said = {"type": "message", "role": "assistant", "content": [LOOK], field: odd}
    item = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}
    for around in ([said], [said, item, thought], [item, thought, said]):
        (message,) = chat_messages(around)
        calls = [call for call in message["tool_calls"] if call != 5]
        assert [call["function"]["name"] for call in calls] == ["look"] * (1 + (item in around))


def test_an_image_in_a_result_goes_to_responses_and_follows_the_results_in_chat_completions() -> None:
    said = chat_messages(
        [
            {"role": "assistant", "content": [LOOK]},
            {"role": "user", "content": [seen([{"type": "image", "source": PIXEL}])]},
        ]
    )
    wire = wire_messages([Message.from_openai(message) for message in said])
    (output,) = [item for item in inputs_of(wire, with_reasoning=True) if "output" in item]
    url = "data:image/png;base64,iVBORw0KGgo="
    assert output["output"] == [{"type": "input_image", "image_url": url, "detail": "auto"}]
    *_, result, between, below = for_chat_completions(wire)
    assert result["content"] == [{"type": "text", "text": "[image: shown below, behind the results]"}]
    assert (between["role"], below["role"]) == ("assistant", "user")
    assert below["content"][-1] == {"type": "image_url", "image_url": {"url": url}}


def test_a_developer_speaks_as_the_system() -> None:
    sent = sent_of([{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi."}])
    assert [message["role"] for message in sent] == ["system", "user"]


def test_what_is_chat_completions_already_stays_to_the_byte() -> None:
    said = [
        {"role": "user", "content": [{"type": "text", "text": "a"}], "weight": 1},
        {"role": "assistant", "content": None, "function_call": {"name": "old", "arguments": "{}"}},
        {"role": "critic", "content": [{"type": "video", "video": "x"}]},
    ]
    assert json.dumps(chat_messages(said)) == json.dumps(said)


texts = st.sampled_from(["", " ", "Look.", "\ud800"])
ids = st.sampled_from(["", "a", "b", "c" * 70])
odd = st.sampled_from([None, 5, "", "x", [], ["y"], {}, {"z": 1}])
media = st.sampled_from(
    [
        {"type": "image", "source": PIXEL},
        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
        {"type": "image"},
        {"type": "document", "source": {"type": "text", "data": "words", "media_type": "text/plain"}},
        {"type": "document", "source": {**PIXEL, "media_type": "application/pdf"}, "title": "a.pdf"},
        {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}},
        {"type": "input_image", "image_url": "https://example.com/a.png", "detail": "low"},
        {"type": "input_image", "file_id": "file_1"},
        {"type": "input_file", "file_url": "https://example.com/a.pdf"},
        {"type": "input_file", "file_data": "data:text/plain;base64,eA==", "filename": "a.txt"},
        {"type": "image_url", "image_url": "https://example.com/a.png"},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"type": "image_url"},
        {"type": "file", "file": {"file_id": "file_1"}},
        {"type": "file", "file": {}},
        {"type": "input_audio", "input_audio": {"data": "eA==", "format": "wav"}},
    ]
)
strangers = st.builds(lambda kind, held: {"type": kind, "held": held}, st.text(max_size=5) | odd, odd)
plain = texts.map(lambda text: {"type": "text", "text": text}) | texts.map(
    lambda text: {"type": "output_text", "text": text, "annotations": []}
)
uses = st.builds(
    lambda name, given, kind: {"type": kind, "id": name, "name": "look", "input": given},
    ids,
    odd,
    st.sampled_from(["tool_use", "server_tool_use"]),
)
results = st.builds(
    lambda name, content, failed: {
        "type": "tool_result",
        "tool_use_id": name,
        "content": content,
        **failed,
    },
    ids,
    odd | st.lists(plain | media, max_size=2),
    st.sampled_from([{}, {"is_error": True}]),
)
thoughts = st.sampled_from([THOUGHT, {"type": "redacted_thinking", "data": "eA=="}, {"type": "thinking"}])
parts = st.lists(plain | media | strangers | uses | results | thoughts | odd, max_size=4)
messages = st.builds(
    lambda role, content, others: {"role": role, "content": content, **others},
    st.sampled_from(["user", "assistant", "system", "developer", "tool", "model"]),
    parts | texts | odd,
    st.sampled_from([{}, {"type": "message", "id": "msg_1"}, {"tool_call_id": "a"}]),
)
items = st.builds(
    lambda kind, name, given: {"type": kind, "call_id": name, "name": "look", **given},
    st.sampled_from(
        ["function_call", "function_call_output", "custom_tool_call", "reasoning", "web_search_call"]
    ),
    ids,
    st.fixed_dictionaries(
        {}, optional={"arguments": odd, "output": odd | parts, "input": odd, "summary": odd}
    ),
)
foreign = st.lists(messages | items, max_size=6)


def assert_valid(said: Sequence[Json]) -> None:
    """A request with these messages passes a strict provider, by either API."""
    wire = wire_messages([Message.from_openai(message) for message in said], instructions="Be brief.")
    body: dict[str, Any] = json.loads(
        json.dumps({"messages": for_chat_completions(wire), "tools": [{"type": "function"}]})
    )
    assert violations(body, modes=("V8", "content-never-null")) == []
    sent = json.loads(json.dumps(inputs_of(wire, with_reasoning=True)))
    assert shape_violations({}, sent) == []
    assert order_violations({"store": False}, sent) == []


@pytest.mark.many(200)
@given(foreign)
def test_l20_whatever_comes_in_goes_out_valid(said: list[dict[str, Any]]) -> None:
    assert_valid(chat_messages(said))
    assert_valid([message for message in said if "role" in message])


@pytest.mark.many(120)
@given(foreign)
def test_l20_compact_messages_gives_valid_messages(said: list[dict[str, Any]]) -> None:
    given_back = compact_messages(said, window="8k")
    if given_back:
        assert violations({"messages": json.loads(json.dumps(given_back))}, modes=("V8",)) == []


@pytest.mark.parametrize("api", [OpenAIChat, OpenAIResponses])
async def test_l20_a_log_of_foreign_parts_goes_on_at_a_strict_server(api: Any) -> None:
    blocks = [
        {"role": "user", "content": [{"type": "text", "text": "Look."}, {"type": "image", "source": PIXEL}]},
        {"role": "assistant", "content": [THOUGHT, LOOK]},
        {"role": "user", "content": [seen([{"type": "image", "source": PIXEL}]), {"type": "what"}]},
        {"role": "assistant", "content": [{"type": "video", "held": 1}]},
    ]
    for said in (blocks, chat_messages(blocks)):
        store = InMemoryStore()
        await store.append("s", [added(Message.from_openai(message)) for message in said], expect=0)
        with StrictProvider(lambda _: "ok", modes=("V8",)) as server:
            model = api("strict", base_url=server.url, api_key="k", window="32k", retry=at_once())
            result = await Runner(Agent(model), store=store, transcripts=None).run("And?", session_id="s")
        assert result.output == "ok"
        assert server.refusals == []
