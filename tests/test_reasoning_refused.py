"""Reasoning of another server in chat completions: refused once, then left out, and nothing else with it."""

import pytest

from agentloop.context import wire_messages
from agentloop.errors import ModelRefusedError
from agentloop.messages import Message
from agentloop.models import ModelRequest
from tests.refusing_kit import Refusing, error, refusal
from tests.server_kit import answer_of, chat, error_of
from tests.strict_bodies import Body
from tests.strict_replies import Fault

THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
THINKER: Body = {
    "role": "assistant",
    "content": [THOUGHT, {"type": "text", "text": "I look."}],
    "reasoning_content": "hm",
    "reasoning_details": [{"type": "reasoning.text", "text": "hm", "signature": "s"}],
    "thinking_blocks": [{"type": "thinking", "thinking": "hm", "signature": "s"}],
    "tool_calls": [{"id": "a", "type": "function", "function": {"name": "read", "arguments": "{}"}}],
}


def said_by(answer: Body) -> ModelRequest:
    messages = [Message.user("Hello"), Message.from_openai(answer), Message.tool("a", "seen")]
    return ModelRequest(messages=wire_messages(messages))


def has_thoughts(body: Body) -> bool:
    return any(isinstance(message["content"], list) for message in body["messages"])


def is_sealed(body: Body) -> bool:
    return any({"thinking_blocks", "reasoning_details"} & message.keys() for message in body["messages"])


OF_PARTS: list[Body] = [
    error(
        "Invalid value: 'thinking'. Supported values are: 'text' and 'refusal'.",
        "messages[1].content[0].type",
    ),
    error("Unknown part type: thinking"),
    error("unsupported content[].type"),
    error("messages[1]: unknown variant `thinking`, expected `text`"),
    error("messages[1]: invalid type: sequence, expected a string at line 1 column 9"),
    error("messages[1].content must be a string"),
    error("content should be a valid string"),
    error("only text parts are supported by this model"),
    error("Unrecognized content part: {'type': 'thinking'}"),
    error("messages.1.content.0.thinking: each thinking item must contain thinking"),
    error("Reasoning input is not enabled for this model"),
    error("Bad part", "messages[1].content[0]"),
    {
        "detail": [
            {"loc": ["body", "messages", 1, "assistant", "content", 0, "thinking"], "type": "extra_forbidden"}
        ]
    },
    {
        "detail": [
            {"loc": ["body", "messages", 1, "assistant", "content"], "msg": "Input should be a valid string"}
        ]
    },
    {
        "detail": [
            {
                "type": "union_tag_invalid",
                "loc": ["body", "messages", 1, "content", 0],
                "msg": "Input tag 'thinking' found using 'type' does not match any of the expected tags",
            }
        ]
    },
]


@pytest.mark.parametrize("said", OF_PARTS, ids=range(len(OF_PARTS)))
async def test_thoughts_in_the_content_are_left_out_after_one_refusal(said: Body) -> None:
    with Refusing(has_thoughts, Fault(status=422, body=said)) as server:
        model = chat(server)
        for _ in range(2):
            assert (await answer_of(model, said_by(THINKER))).message.text == "ok"
    assert list(map(has_thoughts, server.bodies)) == [True, False, False]
    assert server.bodies[1]["messages"][1] == THINKER | {"content": "I look."}
    assert server.bodies[1] == server.bodies[2]


OF_SEALS: list[Body] = [
    error("messages.1.content.0: Invalid `signature` in `thinking` block"),
    error("Invalid signature in thinking block"),
    error("The thinking blocks in the latest assistant message cannot be modified."),
    error("Thought signature is not valid."),
    error("Corrupted thought signature."),
    error("reasoning parts are not supported"),
]


@pytest.mark.parametrize("said", OF_SEALS, ids=range(len(OF_SEALS)))
async def test_sealed_thoughts_are_left_out_after_one_refusal(said: Body) -> None:
    with Refusing(is_sealed, Fault(status=400, body=said)) as server:
        model = chat(server)
        for _ in range(2):
            assert (await answer_of(model, said_by(THINKER | {"content": "I look."}))).message.text == "ok"
    assert list(map(is_sealed, server.bodies)) == [True, False, False]
    assert server.bodies[1]["messages"][1] == {
        name: THINKER[name] for name in ("role", "tool_calls")
    } | {"content": "I look."}  # fmt: skip


@pytest.mark.parametrize(
    "message",
    [
        "messages.1.thinking_blocks.0.signature: Extra inputs are not permitted",
        "Invalid field thinking_blocks",
    ],
)
async def test_a_field_of_thoughts_that_is_refused_by_its_name_goes_and_nothing_else(message: str) -> None:
    with Refusing(lambda body: "thinking_blocks" in body["messages"][1], refusal(message)) as server:
        await answer_of(chat(server), said_by(THINKER))
    left = {name: value for name, value in THINKER.items() if name != "thinking_blocks"}
    assert server.bodies[1]["messages"][1] == left


async def test_so_are_signatures_of_thoughts_in_calls() -> None:
    seal = {"extra_content": {"google": {"thought_signature": "s"}}, "index": 0}
    call = {"id": "a", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    said = {"role": "assistant", "content": "I look.", "tool_calls": [call | seal]}
    with Refusing(
        lambda body: "extra_content" in body["messages"][1]["tool_calls"][0],
        refusal("Thought signature is not valid."),
    ) as server:
        await answer_of(chat(server), said_by(said))
    assert server.bodies[1]["messages"][1] == said | {"tool_calls": [call | {"index": 0}]}


async def test_so_they_are_where_a_server_fails_to_read_them() -> None:
    said = error("Failed to parse messages: unsupported content part type: thinking; messages = […]")
    with Refusing(has_thoughts, Fault(status=500, body=said)) as server:
        await answer_of(chat(server), said_by(THINKER))
    assert list(map(has_thoughts, server.bodies)) == [True, False]


async def test_an_answer_that_was_all_thought_keeps_its_turn() -> None:
    only = {"role": "assistant", "content": [THOUGHT]}
    messages = [Message.user("Hello"), Message.from_openai(only), Message.user("And?")]
    with Refusing(has_thoughts, refusal("Unknown part type: thinking")) as server:
        await answer_of(chat(server), ModelRequest(messages=wire_messages(messages)))
    (body,) = server.bodies
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    assert body["messages"][1]["content"].strip()


OTHERS = [
    "Expected `thinking` or `redacted_thinking`, but found `text`. A final assistant message must start with "
    "a thinking block.",
    "Function call is missing a thought_signature in functionCall parts.",
    "Unsupported value: 'reasoning' does not support 'low' with this model.",
    "The model is thinking of something else, which is not supported.",
    "Invalid image in messages[0].content[0]",
]


@pytest.mark.parametrize("message", OTHERS)
async def test_reasoning_is_kept_where_a_refusal_is_of_something_else(message: str) -> None:
    with Refusing(lambda _: True, refusal(message)) as server:
        model = chat(server)
        assert isinstance(await error_of(model, said_by(THINKER)), ModelRefusedError)
    assert [body["messages"][1] for body in server.bodies] == [THINKER]


async def test_reasoning_goes_back_again_where_leaving_it_out_did_not_help() -> None:
    with Refusing(lambda _: True, refusal("Unknown part type: thinking")) as server:
        model = chat(server)
        for _ in range(2):
            assert isinstance(await error_of(model, said_by(THINKER)), ModelRefusedError)
    assert server.bodies[0]["messages"][1] == THINKER
    again = next(at for at, body in enumerate(server.bodies[1:], 1) if body == server.bodies[0])
    assert again == len(server.bodies) // 2
