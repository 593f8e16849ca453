"""A session that goes on with another model: what the first one thought is refused once, then left out."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentloop import Agent, OpenAIChat, OpenAIResponses, Runner
from tests.kit import read
from tests.refusing_kit import Refusing, error
from tests.responses_kit import OUTPUTS, following, responses, results_for, thought, whole_of
from tests.server_kit import answer_of, at_once
from tests.strict_bodies import Body
from tests.strict_replies import Answered, Fault, calling
from tests.strict_responses import Output


def has_reasoning(body: Body) -> bool:
    return any(item["type"] == "reasoning" for item in body.get("input", ()))


OF_ITEMS: list[Body] = [
    error(
        "Reasoning input items can only be provided to a reasoning or computer use model. Remove reasoning "
        "items from your input and try again.",
        "input",
    ),
    error(
        "Invalid value: 'reasoning'. Supported values are: 'message' and 'function_call'.", "input[1].type"
    ),
    error("Unsupported item type: reasoning"),
    error("Unknown input item type 'reasoning'"),
    error("reasoning items are not supported"),
    error("Reasoning input is not enabled for this model"),
    error("Items of type `reasoning` cannot be used with this model"),
    error("The encrypted reasoning was not accepted"),
    error("Encrypted content is not supported here", "input[1].encrypted_content"),
    error("Unknown parameter: 'input[1].encrypted_content'.", "input[1].encrypted_content"),
    error("Unknown parameter: 'input[1].summary'.", "input[1].summary"),
    error("1 validation error: input.1.type Input should be 'message' or 'function_call'"),
    error("Bad item", "input[1]"),
    error("[{'type': 'missing', 'loc': ('body', 'input', 'list', 1, 'Message', 'role'), 'msg': 'Required'}]"),
    {
        "detail": [
            {"type": "missing", "loc": ["body", "input", 1, "Message", "role"], "msg": "Field required"}
        ]
    },
]


@pytest.mark.parametrize("said", OF_ITEMS, ids=range(len(OF_ITEMS)))
async def test_reasoning_items_are_left_out_after_one_refusal(said: Body) -> None:
    message = whole_of(OUTPUTS["reasoning and a call"]).message
    request = following(message, *results_for(message))
    with Refusing(has_reasoning, Fault(status=400, body=said)) as server:
        model = responses(server)
        for _ in range(2):
            assert (await answer_of(model, request)).message.text == "ok"
    assert list(map(has_reasoning, server.bodies)) == [True, False, False]
    assert "id" not in server.bodies[1]["input"][1]


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (400, error("Unknown parameter: 'input[1].id'.", "input[1].id")),
        (400, error("Invalid 'input[2].id': 'fc_1'. Expected an ID that begins with 'xx'.", "input[2].id")),
        (404, error("Item with id 'fc_1' not found. Items are not persisted when `store` is false.")),
        (
            400,
            error("Item 'fc_1' of type 'function_call' was provided without its required 'reasoning' item"),
        ),
    ],
)
async def test_items_go_back_without_ids_that_a_server_refuses(status: int, said: Body) -> None:
    message = whole_of([item for item in OUTPUTS["reasoning and a call"] if item["type"] != "reasoning"])
    request = following(message.message, *results_for(message.message))
    with Refusing(
        lambda body: any("id" in item for item in body["input"]), Fault(status=status, body=said)
    ) as server:
        model = responses(server)
        for _ in range(2):
            await answer_of(model, request)
    assert len(server.bodies) == 3
    assert [item["type"] for item in server.bodies[2]["input"]] == [
        "message",
        "function_call",
        "function_call_output",
    ]


THINKER: Body = {
    "role": "assistant",
    "content": [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "I look."},
    ],
    "thinking_blocks": [{"type": "thinking", "thinking": "hm", "signature": "s"}],
}


def has_thoughts(body: Body) -> bool:
    return any(isinstance(message["content"], list) for message in body["messages"])


def is_sealed(body: Body) -> bool:
    return any("thinking_blocks" in message for message in body["messages"])


def thinking(body: Body) -> Answered | str:
    """Calls a tool in its first answer, with its reasoning; says ok in the next."""
    if len(body["messages"]) > 1:
        return "ok"
    call = calling("read", "call_1", name="a", words=1)
    if body["model"] == "reasoner":
        item = {"id": "fc_1", "type": "function_call", "status": "completed", "call_id": call.id}
        return Output(items=(thought(1), item | {"name": call.name, "arguments": call.arguments}))
    return Fault(status=200, body=json_answer(call.arguments))


def json_answer(arguments: str) -> Body:
    function = {"name": "read", "arguments": arguments}
    call = {"id": "call_1", "type": "function", "function": function}
    return {
        "choices": [{"index": 0, "finish_reason": "tool_calls", "message": THINKER | {"tool_calls": [call]}}]
    }


MOVES: dict[str, tuple[Any, str, Callable[[Body], bool], Body]] = {
    "responses": (OpenAIResponses, "reasoner", has_reasoning, OF_ITEMS[0]),
    "parts": (OpenAIChat, "thinker", has_thoughts, error("Unknown part type: thinking")),
    "seals": (OpenAIChat, "thinker", is_sealed, error("Invalid `signature` in `thinking` block")),
}


@pytest.mark.parametrize("move", MOVES)
async def test_a_stored_session_goes_on_with_a_model_that_refuses_what_another_thought(
    tmp_path: Path, move: str
) -> None:
    kind, first, refuses, said = MOVES[move]
    with Refusing(
        lambda body: body["model"] == "plain" and refuses(body), Fault(status=400, body=said), thinking
    ) as server:
        for name in (first, "plain", "plain", first):
            model = kind(name, base_url=server.url, retry=at_once(), stream=False)
            async with Runner(Agent(model, tools=[read]), store=f"sqlite:///{tmp_path}/s.db") as runner:
                assert (await runner.run("Look", session_id="s")).output == "ok"
    told = [(body["model"], refuses(body)) for body in server.bodies]
    refused_once = [("plain", True), ("plain", False)]
    assert told == [(first, False), (first, True), *refused_once, *refused_once, (first, True)]
