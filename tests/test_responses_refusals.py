"""What a Responses API refuses, fails in, or says that is no answer; and damaged answers."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop.codec import decode, encode
from agentloop.context import count_message
from agentloop.errors import (
    BadAnswerError,
    ContextTooLongError,
    ModelError,
    ModelRefusedError,
    ModelUnavailableError,
)
from agentloop.events import MessageRecord
from agentloop.messages import Usage
from agentloop.models import Answer, Retry, RetryPolicy
from agentloop.providers.openai.items import inputs_of
from agentloop.providers.openai.responses import GrowingResponse
from agentloop.providers.openai.sse import ServerSaidError, streamed
from tests.responses_kit import (
    OUTPUTS,
    call_item,
    delta,
    following,
    responses,
    results_for,
    told,
    whole_of,
)
from tests.server_kit import Waits, answer_of, error_of, parts_of, pieces_of
from tests.strict_bodies import Body
from tests.strict_provider import StrictProvider
from tests.strict_replies import Answered, Fault, Reply, events
from tests.strict_responses import ResponsesSide
from tests.strict_responses_replies import failed, response, response_events


def error_object(code: str | None, message: str, **fields: Any) -> Body:
    return {"code": code, "message": message, **fields}


@pytest.mark.parametrize(
    ("code", "message", "kind"),
    [
        ("rate_limit_exceeded", "Slow down.", ModelUnavailableError),
        ("server_error", "Something broke.", ModelUnavailableError),
        (
            "context_length_exceeded",
            "Your input exceeds the context window of this model.",
            ContextTooLongError,
        ),
        ("invalid_prompt", "Not like this.", BadAnswerError),
        ("image_too_large", "Use a smaller one.", BadAnswerError),
    ],
)
async def test_failures_in_place_of_an_answer(code: str, message: str, kind: type[ModelError]) -> None:
    whole_body = Fault(status=200, body={"object": "response", "status": "failed", "output": []} | {
        "error": error_object(code, message)
    })  # fmt: skip
    shapes: list[Answered] = [
        failed(code, message),
        told(
            delta("half"), {"type": "error", "sequence_number": 3, **error_object(code, message, param=None)}
        ),
        told({"type": "response.error", "error": error_object(code, message)}),
        told({"type": "error", "error": error_object(code, message, type="x")}),
        whole_body,
    ]
    for shape in shapes:
        with StrictProvider(lambda _, shape=shape: shape) as server:
            error = await error_of(responses(server, retry=RetryPolicy(attempts=2, sleep=Waits())))
            assert type(error) is kind
            assert message.rstrip(".") in str(error)
            assert len(server.requests) == (2 if kind is ModelUnavailableError else 1)


async def test_a_failure_with_no_reason_may_pass() -> None:
    gone = {"type": "response.failed", "response": {"status": "failed", "error": None}}
    with StrictProvider(
        [told(gone), Fault(status=200, body={"status": "cancelled", "output": []}), "ok"]
    ) as server:
        parts = await parts_of(responses(server))
    assert [isinstance(part, Retry) for part in parts[:2]] == [True, True]


@pytest.mark.parametrize("name", ["include", "store", "temperature", "max_output_tokens", "reasoning"])
async def test_a_field_that_a_server_does_not_know_is_found_out_once(name: str, stream: bool) -> None:
    options = {"temperature": 0.5, "max_output_tokens": 99, "extra_body": {"reasoning": {"effort": "low"}}}
    with StrictProvider(lambda _: "ok", refuses=[name]) as server:
        model = responses(server, stream=stream, **options)
        for _ in range(2):
            assert (await answer_of(model)).message.text == "ok"
    assert [name in body for body in server.bodies] == [True, False, False]
    assert server.bodies[0].keys() - server.bodies[1].keys() == {name}


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "Encrypted content is not supported with this model.", "param": "include"}},
        {"error": {"message": "Unrecognized request argument supplied: include"}},
        {"error": {"message": "`include` is not allowed here"}},
        {"detail": [{"type": "extra_forbidden", "loc": ["body", "include"], "msg": "not permitted"}]},
    ],
)
async def test_so_it_is_in_other_words(body: Body) -> None:
    with StrictProvider([Fault(status=400, body=body), "ok"]) as server:
        await answer_of(responses(server))
    assert ["include" in body for body in server.bodies] == [True, False]


@pytest.mark.parametrize(
    "message",
    [
        "Invalid 'max_output_tokens': integer below minimum value.",
        "Invalid value: 'huge'. Supported values are: 'low', 'medium', and 'high' for 'reasoning.effort'.",
        "The input must include a user message; others are not supported.",
    ],
)
async def test_l17_what_is_wrong_with_a_value_is_sent_once(message: str) -> None:
    with StrictProvider(lambda _: Fault(status=400, body={"error": {"message": message}})) as server:
        await error_of(responses(server, max_output_tokens=3, extra_body={"reasoning": {"effort": "huge"}}))
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (
            400,
            {"code": "invalid_encrypted_content", "message": "The encrypted content could not be verified."},
        ),
        (
            400,
            {"message": "Item 'rs_1' of type 'reasoning' was provided without its required following item."},
        ),
        (400, {"message": "Item 'fc_1' was provided without its required 'reasoning' item: 'rs_1'."}),
        (404, {"message": "Item with id 'rs_1' not found. Items are not persisted when `store` is false."}),
    ],
)
async def test_reasoning_that_a_server_does_not_take_back_is_left_out(status: int, error: Body) -> None:
    message = whole_of(OUTPUTS["reasoning and a call"]).message
    request = following(message, *results_for(message))
    with StrictProvider([Fault(status=status, body={"error": error}), "ok", "ok"]) as server:
        model = responses(server)
        for _ in range(2):
            assert (await answer_of(model, request)).message.text == "ok"
    kinds = [[item["type"] for item in body["input"]] for body in server.bodies]
    assert kinds[0] == ["message", "reasoning", "function_call", "function_call_output"]
    assert kinds[1] == kinds[2] == ["message", "function_call", "function_call_output"]
    assert "id" not in server.bodies[1]["input"][1]


@pytest.mark.parametrize("status", [400, 403, 404, 422])
async def test_l17_a_refusal_is_sent_once(status: int, stream: bool) -> None:
    with StrictProvider([Fault(status=status, body={"error": {"message": "not like this"}})]) as server:
        error = await error_of(responses(server, stream=stream))
    assert isinstance(error, ModelRefusedError)
    assert error.status == status
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"choices": [{"message": {"role": "assistant", "content": "a chat"}}]},
        {"status": "completed", "output": None},
        {"status": "queued", "output": []},
        {"status": "in_progress", "output": []},
        "<html>no API</html>",
        json.dumps(
            {"status": "completed", "output": [{"type": "x", "deep": json.loads("[" * 200 + "]" * 200)}]}
        ),
    ],
)
async def test_what_is_no_answer(body: object) -> None:
    with StrictProvider(lambda _: Fault(status=200, body=body)) as server:
        assert isinstance(await error_of(responses(server, stream=False)), BadAnswerError)
    foreign = events({"choices": [{"delta": {"content": "a chat"}, "finish_reason": "stop"}]})
    with StrictProvider(lambda _: foreign) as server:
        assert isinstance(await error_of(responses(server)), BadAnswerError)


odd_values = st.sampled_from(
    [None, 0, -3, 1.5, True, "", "odd", [], {}, [1], [[]], {"type": []}, {"a": {"b": 1}}]
)


@st.composite
def damaged(draw: st.DrawFn, value: Any) -> Any:
    """The value, some of what is in it replaced."""
    if draw(st.integers(0, 19)) == 0:
        return draw(odd_values)
    if isinstance(value, dict):
        return {key: draw(damaged(each)) for key, each in value.items()}
    return [draw(damaged(each)) for each in value] if isinstance(value, list) else value


async def told_or_refused(data: bytes) -> Answer | None:
    try:
        answer = [part async for part in streamed(GrowingResponse(), pieces_of(data, []))][-1]
    except (ModelError, ServerSaidError):
        return None
    assert isinstance(answer, Answer)
    return answer


@given(st.sampled_from([*OUTPUTS]), st.data())
@pytest.mark.many(60)
async def test_damaged_answers_are_refused_or_can_be_kept_and_sent_again(
    name: str, data: st.DataObject
) -> None:
    usage = {"input_tokens": 1, "input_tokens_details": {"cached_tokens": 1}, "output_tokens": 1}
    body = data.draw(damaged(response({}, Reply(), OUTPUTS[name], None) | {"usage": usage}))
    events_told = [data.draw(damaged(json.loads(piece.partition(b"data: ")[2]))) for piece in
                   response_events({}, Reply(), OUTPUTS[name], None)]  # fmt: skip
    answers = [
        await told_or_refused(
            b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events_told)
        )
    ]
    with suppress(ModelError, ServerSaidError):
        answers.append(GrowingResponse.whole(json.dumps(body).encode()))
    for answer in answers:
        if answer is None:
            continue
        message = decode(encode(MessageRecord(message=answer.message, tokens=1))).message
        count_message(message, len)
        items = inputs_of(following(message, *results_for(message)).messages, with_reasoning=True)
        broken = ResponsesSide().violations({"input": items, "store": False}, window=None, factor=1.0)
        assert [line for line in broken if line[:2] in ("R1", "R2", "R3", "R5", "R6", "V6")] == []


async def test_shapes_of_other_servers() -> None:
    plain = {"type": "message", "role": "assistant", "content": "bare"}
    parts = {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "typed"}, "odd"]}
    objects = call_item(1, {"path": 1})  # type: ignore[arg-type]
    answer = whole_of([plain, parts, objects, "no item"], usage={"prompt_tokens": 3, "completion_tokens": 1})
    assert answer.message.text == "bare\n\ntyped"
    assert answer.message.tool_calls[0].arguments == '{"path": 1}'
    assert answer.usage == Usage(input_tokens=3, output_tokens=1)
