"""Servers that take other forms of a request: found out once, remembered, and nothing lost by it."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.testing import LogCapture

from agentloop.compaction import Compaction
from agentloop.models import ModelRequest
from agentloop.providers.openai.schemas import without_keys, without_words
from agentloop.run import Agent
from agentloop.runner import Runner
from agentloop.strategies import MicroCompact
from agentloop.stream import MessageAdded
from tests.kit import read
from tests.server_kit import answer_of, chat, parts_of, saying
from tests.strict_bodies import Body
from tests.strict_dialects import WORDINGS
from tests.strict_provider import StrictProvider
from tests.strict_replies import Answered, ExtractiveSummariser, Fault, Reply, calling

EVERY_MODE = ("V8", "V9", "V11", "content-never-null")
LOOK = {
    "type": "function",
    "function": {
        "name": "look",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"default": {"type": "string", "default": "x", "title": "Default"}},
            "additionalProperties": False,
            "required": ["default"],
        },
    },
}


def request_of(*messages: Body, **options: Any) -> ModelRequest:
    return ModelRequest(messages=messages, **options)


def thinker(batches: int, width: int = 2) -> ExtractiveSummariser:
    """Thinks oddly, reads `width` files in each of `batches`, then answers; summaries are extracted."""
    turns = iter(range(batches))

    def answer(_: Body) -> Answered:
        at = next(turns, None)
        if at is None:
            return Reply(text="all read", reasoning="done\u2028 \x7f")
        return Reply(
            text="" if at % 2 else "I read.",
            calls=tuple(calling("read", name=f"file_{at}_{n}", words=400) for n in range(width)),
            reasoning=f"  {at}\n\t\u202e\U0001f642\u0301 </think> \x00\u2028",
        )

    return ExtractiveSummariser(answer)


@pytest.mark.deep
@pytest.mark.parametrize("micro", [None, MicroCompact(min_gain_tokens=0)], ids=["compacted", "cleared"])
async def test_l1_every_mode_at_once_holds_in_a_run_after_resume_and_for_the_summariser(
    tmp_path: Path, stream: bool, micro: MicroCompact | None
) -> None:
    brain = thinker(24)
    with StrictProvider(brain, window=9_000, modes=EVERY_MODE) as server:
        model = chat(server, stream=stream, window=9_000)
        agent = Agent(model, tools=[read], instructions="Be brief.", compaction=Compaction(micro=micro))
        store = f"sqlite:///{tmp_path}/s.db"
        async with Runner(agent, store=store, transcripts=tmp_path) as runner:
            watching = runner.stream("Read all of it.", session_id="s")
            said = 0
            async for event in watching:
                said += isinstance(event, MessageAdded) and event.message.role == "assistant"
                if said == 5:
                    break
            await watching.aclose()
        async with Runner(agent, store=store, transcripts=tmp_path) as runner:
            assert (await runner.resume("s")).output == "all read"
            await runner.compact("s")
            assert (await runner.run("And now?", session_id="s")).output == "all read"
        assert [line for line in server.refusals if not line.startswith("V10")] == []
        assert brain.asked
    with_calls = [body for body in server.bodies if any(each.get("tool_calls") for each in body["messages"])]
    assert len(with_calls) > 20


PROVIDER_FIELDS = (
    {"role": "user", "content": "Look", "name": "ann"},
    {
        "role": "assistant",
        "content": "",
        "reasoning_content": "hm",
        "annotations": [{"type": "url"}],
        "tool_calls": [
            {
                "id": "a",
                "type": "function",
                "function": {"name": "look", "arguments": "{}", "thought": "s"},
                "extra_content": {"google": {"thought_signature": "s"}},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "a", "content": "seen"},
)


@pytest.mark.parametrize("wording", sorted(WORDINGS))
async def test_fields_of_messages_that_a_server_refuses_are_left_out_there(wording: str) -> None:
    with StrictProvider(lambda _: "ok", modes=["no-message-fields"], wording=wording) as server:
        model = chat(server)
        for _ in range(2):
            await parts_of(model, request_of(*PROVIDER_FIELDS, tools=(LOOK,)))
        other = chat(server)
        await parts_of(other, saying("Hello"))
    sent = server.bodies[-2]["messages"]
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    assert sent[0] == {"role": "user", "content": "Look"}
    assert sent[1] == {"role": "assistant", "content": "", "tool_calls": [call]}
    assert server.bodies[-2] == server.bodies[-3]
    assert server.bodies[-2]["tools"] == [LOOK]


@pytest.mark.parametrize("wording", ["openai", "pydantic", "google", "vllm", "anthropic"])
async def test_words_of_schemas_that_a_server_refuses_are_left_out(wording: str) -> None:
    with StrictProvider(lambda _: "ok", modes=["plain-schemas"], wording=wording) as server:
        await parts_of(chat(server), saying("Hello", tools=(LOOK,)))
    function = server.bodies[-1]["tools"][0]["function"]
    assert function == {
        "name": "look",
        "parameters": {
            "type": "object",
            "properties": {"default": {"type": "string"}},
            "required": ["default"],
        },
    }


NODE = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "anyOf": {"type": "string"}}}
TREE = {
    "type": "object",
    "properties": {
        "node": {"description": "the first", "$ref": "#/$defs/node"},
        "size": {"oneOf": [{"type": "integer"}, {"type": "null"}], "description": "in bytes"},
        "either": {"allOf": [{"type": "string"}, {"minLength": 1}]},
    },
    "$defs": {"node": NODE},
}
GROW = {"type": "function", "function": {"name": "grow", "parameters": TREE}}
PLAIN_NODE = {
    "type": "object",
    "properties": {"next": {"type": "object"}, "anyOf": {"type": "string"}},
    "description": "the first",
}
PLAIN_TREE = {
    "type": "object",
    "properties": {
        "node": PLAIN_NODE,
        "size": {"type": "integer", "description": "in bytes"},
        "either": {"minLength": 1, "type": "string"},
    },
}


@pytest.mark.parametrize("wording", ["openai", "pydantic", "google", "vllm", "anthropic"])
async def test_references_and_choices_that_a_server_refuses_are_said_otherwise(wording: str) -> None:
    with StrictProvider(lambda _: "ok", modes=["plain-schemas"], wording=wording) as server:
        model = chat(server)
        for _ in range(2):
            await parts_of(model, saying("Hello", tools=(GROW,)))
    plain = without_keys(PLAIN_TREE, frozenset({"minLength"}))
    assert server.bodies[-1]["tools"][0]["function"]["parameters"] == plain
    assert server.bodies[-1] == server.bodies[-2]


def test_choices_among_several_are_told_in_words() -> None:
    either = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
    tool = {"name": "f", "parameters": {"type": "object", "properties": {"x": either}}}
    (said,) = without_words([tool], {"anyOf"})
    told = 'One of: [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]'
    assert said["parameters"]["properties"] == {"x": {"description": told}}


@pytest.mark.parametrize("word", ["properties", "anyOf"])
def test_l11_schemas_that_each_hold_two_of_the_next_stay_small(word: str) -> None:
    levels = {
        f"s{level}": {
            "type": "object",
            "properties": {side: {"$ref": f"#/$defs/s{level + 1}"} for side in ("left", "right")},
        }
        if word == "properties"
        else {"anyOf": [{"type": "string"}, {"$ref": f"#/$defs/s{level + 1}"}]}
        for level in range(13)
    }
    defs = {**levels, "s13": {"type": "object", "description": "the end", "required": ["x"]}}
    tool = {"name": "f", "parameters": {"type": "object", "properties": {"x": {"$ref": "#/$defs/s0"}}}}
    tool["parameters"] |= {"$defs": defs}  # type: ignore[operator]
    sent = json.dumps(without_words([tool], {"$ref", "$defs", "anyOf"}))
    assert "$" not in sent
    assert len(sent) < 100_000


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "System role not supported"),
        (500, "Jinja Exception: System role not supported at row 1, column 40"),
        (400, "Developer instruction is not enabled for models/gemma-3-27b-it"),
        (400, "Unsupported value: 'messages[0].role' does not support 'system' with this model."),
        (400, "Conversation roles must alternate user/assistant/user/assistant/..."),
    ],
)
async def test_a_model_that_knows_no_system_messages_gets_them_in_front(
    status: int, message: str, stream: bool
) -> None:
    def answer(body: Body) -> Answered | str:
        if any(each["role"] == "system" for each in body["messages"]):
            return Fault(status=status, body={"error": {"message": message, "code": status}})
        return "ok"

    system = {"role": "system", "content": "Be brief."}
    parts = [
        {"type": "text", "text": "Look"},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
    ]
    with StrictProvider(answer) as server:
        model = chat(server, stream=stream)
        await parts_of(model, request_of(system, {"role": "user", "content": "Hello"}))
        await parts_of(model, request_of(system, {"role": "user", "content": parts}))
    assert len(server.requests) == 3
    (said,), (shown,) = (body["messages"] for body in server.bodies[1:])
    assert said["role"] == shown["role"] == "user"
    assert "Be brief." in said["content"]
    assert said["content"].startswith("[")
    assert said["content"].endswith("\n\nHello")
    assert "Be brief." in shown["content"][0]["text"]
    assert shown["content"][1:] == parts


@pytest.mark.parametrize(
    "message", ["internal system error: not supported", "the system message was not read"]
)
async def test_l17_a_server_that_failed_is_asked_again_all_the_same(message: str) -> None:
    with StrictProvider([Fault(status=500, body={"error": {"message": message}}), "ok"]) as server:
        await parts_of(
            chat(server), request_of({"role": "system", "content": "x"}, {"role": "user", "content": "y"})
        )
    assert server.bodies[0] == server.bodies[1]


async def test_developer_messages_become_system_messages_first() -> None:
    refusal = {"error": {"message": "'developer' is not one of ['system', 'assistant', 'user', 'tool']"}}
    with StrictProvider([Fault(status=400, body=refusal), "ok"]) as server:
        await parts_of(
            chat(server), request_of({"role": "developer", "content": "x"}, {"role": "user", "content": "y"})
        )
    assert [body["messages"][0] for body in server.bodies] == [
        {"role": "developer", "content": "x"},
        {"role": "system", "content": "x"},
    ]


@pytest.mark.deep
async def test_a_run_without_system_messages_stays_valid_over_compactions(tmp_path: Path) -> None:
    brain = thinker(24)
    modes = (*EVERY_MODE, "no-system")
    with StrictProvider(brain, window=9_000, modes=modes) as server:
        agent = Agent(
            chat(server, window=9_000),
            tools=[read],
            instructions="Be brief.",
            compaction=Compaction(micro=None),
        )
        result = await Runner(agent, transcripts=tmp_path).run("Read all of it.", session_id="s")
        assert result.output == "all read"
        assert server.refusals == []
    assert brain.asked
    roles = [[message["role"] for message in body["messages"]] for body in server.bodies]
    assert ["system" in each for each in roles].count(True) == 1
    texts = [body["messages"][0]["content"] for body in server.bodies[1:] if body.get("tools")]
    assert all("Be brief." in text for text in texts)


async def test_a_server_that_does_not_stream_is_asked_without() -> None:
    with StrictProvider(lambda _: "ok", modes=["no-streams"]) as server:
        model = chat(server)
        for _ in range(2):
            assert (await answer_of(model)).message.text == "ok"
    assert [(body["stream"], "stream_options" in body) for body in server.bodies] == [
        (True, True),
        (False, False),
        (False, False),
    ]


async def test_a_server_that_does_nothing_but_stream_is_asked_to() -> None:
    with StrictProvider(lambda _: "ok", modes=["only-streams"]) as server:
        model = chat(server, stream=False)
        for _ in range(2):
            assert (await answer_of(model)).message.text == "ok"
    assert [body["stream"] for body in server.bodies] == [False, True, True]
    assert server.bodies[-1]["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    "message",
    [
        "Missing `reasoning_content` field in the assistant message at message index 1",
        "The `reasoning_content` in the thinking mode must be passed back to the API.",
        "thinking is enabled but reasoning_content is missing in assistant tool call message at index 1",
    ],
)
async def test_reasoning_that_a_server_misses_in_calls_of_another_is_sent_empty(message: str) -> None:
    bare = [
        {key: value for key, value in each.items() if key != "reasoning_content"} for each in PROVIDER_FIELDS
    ]
    with StrictProvider([Fault(status=400, body={"error": {"message": message}}), "ok"]) as server:
        await parts_of(chat(server), request_of(*bare, tools=(LOOK,)))
    assert server.bodies[1]["messages"][1]["reasoning_content"] == ""


async def test_reasoning_that_a_server_wants_removed_is_left_out() -> None:
    message = "The reasoning_content is for display only: please remove the reasoning_content."
    with StrictProvider([Fault(status=400, body={"error": {"message": message}}), "ok"]) as server:
        await parts_of(chat(server), request_of(*PROVIDER_FIELDS, tools=(LOOK,)))
    assert ["reasoning_content" in body["messages"][1] for body in server.bodies] == [True, False]


async def test_runs_beside_each_other_share_what_they_find_out() -> None:
    refuses = ["stream_options", "temperature", "seed"]
    with StrictProvider(lambda body: body["messages"][0]["content"], refuses=refuses) as server:
        model = chat(server, temperature=0.5, extra_body={"seed": 1})
        requests = [request_of({"role": "user", "content": f"request {at}"}) for at in range(8)]
        answers = await asyncio.gather(*(answer_of(model, request) for request in requests))
        assert [answer.message.text for answer in answers] == [f"request {at}" for at in range(8)]
        before = len(server.requests)
        await parts_of(model)
        assert len(server.requests) == before + 1
    assert before <= 8 * 4
    assert not set(refuses) & server.bodies[-1].keys()


async def test_what_is_found_out_is_logged_in_one_line() -> None:
    capture = LogCapture()
    structlog.configure(processors=[capture])
    with StrictProvider(lambda _: "ok", refuses=["temperature"]) as server:
        await parts_of(chat(server, temperature=0.5, api_key="sk-secret-and-long"))
        place = server.url
    assert capture.entries == [
        {
            "event": "dialect_changed",
            "log_level": "warning",
            "model": "strict",
            "server": place,
            "without": ["temperature"],
        }
    ]
