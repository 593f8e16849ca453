"""What servers nest as deep as JSON can be is an error of ours, wherever it comes."""

import json
from typing import Any

import pytest

from agentloop.errors import BadAnswerError, ContextTooLongError, ModelError, ModelRefusedError
from agentloop.models import ModelRequest, RetryPolicy
from agentloop.providers.openai import OpenAIChat, OpenAIResponses
from agentloop.providers.openai.fields import MOST_NESTED, codes_in, locations_in, said, texts_in
from tests.strict_provider import StrictProvider
from tests.strict_replies import Answered, Fault, Raw

DEEP = 480


def nested(kind: str, depth: int) -> Any:
    """An error object in `depth` others, or in as many lists."""
    body: Any = {"message": "the innermost", "code": "innermost", "loc": ["innermost"]}
    for _ in range(depth):
        body = [body] if kind == "lists" else {kind: body}
    return body


def places(kind: str) -> dict[str, Answered]:
    error = {"error": nested(kind, DEEP)}
    return {
        "status": Fault(status=400, body=error),
        "whole": Fault(status=200, body=error),
        "event": Raw(pieces=(f"data: {json.dumps(error)}\n\n".encode(),)),
    }


@pytest.mark.parametrize("model", [OpenAIChat, OpenAIResponses])
@pytest.mark.parametrize("place", ["status", "whole", "event"])
@pytest.mark.parametrize("kind", ["error", "message", "detail", "metadata", "lists"])
async def test_an_error_nested_deep_is_an_error_of_ours(kind: str, place: str, model: type) -> None:
    wanted = ModelRefusedError if place == "status" else BadAnswerError
    with StrictProvider(lambda _: places(kind)[place]) as server, pytest.raises(ModelError) as raised:
        await answered(model("m", base_url=server.url, retry=RetryPolicy(attempts=1)))
    assert type(raised.value) is wanted


@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "whole"])
async def test_a_field_of_an_answer_nested_deep_is_an_error_of_ours(streams: bool) -> None:
    held = "delta" if streams else "message"
    said = {held: {"role": "assistant", "content": "Yes.", "audio": nested("inside", DEEP)}}
    choice = {"index": 0, "finish_reason": "stop", **said}
    text = json.dumps({"choices": [choice]})
    fault = (
        Raw(pieces=(f"data: {text}\n\n".encode(),)) if streams else Fault(status=200, body=json.loads(text))
    )
    with StrictProvider(lambda _: fault) as server, pytest.raises(BadAnswerError, match="nested"):
        await answered(OpenAIChat("m", base_url=server.url, stream=streams))


async def answered(model: OpenAIChat | OpenAIResponses) -> None:
    try:
        async for _ in model.stream(ModelRequest(messages=({"role": "user", "content": "Hello"},))):
            pass
    finally:
        await model.close()


REASONS: list[Any] = [
    {"errors": [{"message": "the reason", "code": 5006}], "success": False},
    {"errors": ["the reason"]},
    {"Message": "the reason"},
    {"message": "the reason", "__type": "ValidationException"},
    {"error": "Bad Request", "message": "the reason"},
    {"error_code": 1, "error_msg": "the reason"},
    {"title": "Bad Request", "detail": "the reason"},
    {"error": {"code": 1, "type": "x"}, "detail": [{"loc": ["body"], "msg": "the reason"}]},
    b'\xef\xbb\xbf {"error": {"message": "the\n reason"}}',
    b'{"error": {"message": "the reason \xff"}}',
    "the reason",
]


@pytest.mark.parametrize("model", [OpenAIChat, OpenAIResponses])
async def test_the_reason_of_a_refusal_is_told_wherever_it_stands(model: type) -> None:
    faults = [Fault(status=400, body=body) for body in REASONS]
    with StrictProvider(faults) as server:
        asked = model("m", base_url=server.url)
        for _ in REASONS:
            with pytest.raises(ModelRefusedError, match=r"\(400\): .*the reason"):
                await answered(asked)


def test_an_error_is_looked_into_as_deep_as_errors_in_use_are() -> None:
    near, far = nested("detail", MOST_NESTED - 2), nested("detail", MOST_NESTED + 1)
    assert (said(near), codes_in(near)) == ("the innermost innermost", {"innermost"})
    assert list(locations_in(near)) == [("innermost",)]
    assert (said(far), codes_in(far), list(texts_in(far)), list(locations_in(far))) == ("", set(), [], [])


def test_what_was_sent_and_is_quoted_is_not_looked_into() -> None:
    mine = {"message": "mine", "description": "mine", "loc": ["mine"]}
    quoted = {
        "input": mine,
        "request": {"tools": [mine]},
        "body": mine,
        "messages": [mine],
        "choices": [mine],
    }
    quoting = {"error": {"msg": "Extra inputs", **quoted}, **quoted}
    assert list(texts_in(quoting)) == [("msg", "Extra inputs")]
    assert list(locations_in(quoting)) == []
    assert said(quoting) == "Extra inputs"


TOO_LONG = {
    "message": "This model's maximum context length is 4000 tokens. However, your messages resulted in 9000."
}
ECHOES: dict[str, Any] = {
    "request": {"messages": [{"role": "user", "content": "word " * 12_000}]},
    "input": [{"at": at} for at in range(600)],
    "what_came": "word " * 12_000,
    "fields": {f"field_{at}": at for at in range(600)},
}


@pytest.mark.parametrize("status", [400, 200])
@pytest.mark.parametrize("name", ECHOES)
async def test_an_overflow_behind_an_echo_of_the_request_is_understood(name: str, status: int) -> None:
    echo = {name: ECHOES[name]}
    bodies = [{**echo, "error": TOO_LONG}, {"error": {**echo, **TOO_LONG}}]
    with StrictProvider([Fault(status=status, body=body) for body in bodies]) as server:
        for _ in bodies:
            with pytest.raises(ContextTooLongError) as raised:
                await answered(OpenAIChat("m", base_url=server.url, retry=RetryPolicy(attempts=1)))
            assert raised.value.window == 4000
