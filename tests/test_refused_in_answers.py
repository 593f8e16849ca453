"""What a server refuses with status 200, in place of an answer, is learnt as it is from a 400."""

import json
from collections.abc import Callable

import pytest

from agentloop import OpenAIChat, OpenAIResponses
from agentloop.errors import BadAnswerError
from agentloop.models import ModelRequest
from tests.refusing_kit import Refusing, error
from tests.server_kit import LOOK, answer_of, at_once, error_of, parts_of
from tests.strict_bodies import Body
from tests.strict_replies import Answered, Fault, Raw, events
from tests.strict_responses_replies import failed

ASKED = ModelRequest(
    messages=(
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi", "reasoning_content": "hm"},
        {"role": "user", "content": "And?"},
    ),
    tools=({"type": "function", "function": {**LOOK["function"], "strict": True}},),
)


def raw_event(said: Body) -> Answered:
    return Raw(pieces=(b"event: error\ndata: " + json.dumps(said).encode() + b"\n\n",))


SHAPES: dict[str, Callable[[str], Answered]] = {
    "an event": lambda message: events(error(message), done=False),
    "a named event": lambda message: raw_event({"error": {"message": message}}),
    "a bare one": lambda message: raw_event({"message": message, "type": "invalid_request_error"}),
    "one piece": lambda message: Fault(status=200, body=error(message)),
    "a text": lambda message: Fault(status=200, body={"error": message}),
    "the detail": lambda message: Fault(status=200, body={"detail": message}),
}
FORMS: dict[str, tuple[Callable[[Body], bool], str]] = {
    "stream_options": (lambda body: "stream_options" in body, "Unknown parameter: 'stream_options'"),
    "limit": (lambda body: "max_tokens" in body, "Unsupported parameter: 'max_tokens' is not supported"),
    "temperature": (lambda body: "temperature" in body, "'temperature' is not supported with this model"),
    "system": (
        lambda body: body["messages"][0]["role"] == "system",
        'Error rendering prompt with jinja template: "System role not supported".',
    ),
    "stream": (lambda body: body["stream"], "Streaming is not supported"),
    "a field of a message": (
        lambda body: any("reasoning_content" in message for message in body["messages"]),
        "property 'messages.2.reasoning_content' is unsupported",
    ),
    "a key of a schema": (
        lambda body: "strict" in body["tools"][0]["function"],
        "Unknown name \"strict\" at 'tools[0].function': Cannot find field.",
    ),
}


async def is_learnt_once(form: str, shape: str) -> None:
    refuses, message = FORMS[form]
    with Refusing(refuses, SHAPES[shape](message)) as server:
        model = OpenAIChat(
            "strict", base_url=server.url, retry=at_once(), temperature=0.5, max_output_tokens=9
        )
        for _ in range(2):
            assert (await answer_of(model, ASKED)).message.text == "ok"
    assert list(map(refuses, server.bodies)) == [True, False, False]


@pytest.mark.parametrize("shape", ["a named event", "one piece"])
@pytest.mark.parametrize("form", FORMS)
async def test_a_refusal_in_place_of_an_answer_is_learnt_once(form: str, shape: str) -> None:
    await is_learnt_once(form, shape)


@pytest.mark.parametrize("shape", SHAPES)
async def test_so_it_is_in_whatever_shape_it_comes(shape: str) -> None:
    await is_learnt_once("temperature", shape)


INCLUDE = "Unknown parameter: 'include'."
OF_RESPONSES: dict[str, Answered] = {
    "an event": events({"type": "error", "code": "invalid_request_error", "message": INCLUDE}, done=False),
    "failed": failed("invalid_prompt", INCLUDE),
    "one piece": Fault(status=200, body=error(INCLUDE, "include")),
    "one piece, failed": Fault(
        status=200,
        body={"status": "failed", "output": [], "error": {"code": "invalid_prompt", "message": INCLUDE}},
    ),
}


@pytest.mark.parametrize("shape", OF_RESPONSES)
async def test_so_it_is_in_the_responses_api(shape: str) -> None:
    with Refusing(lambda body: "include" in body, OF_RESPONSES[shape]) as server:
        model = OpenAIResponses("strict", base_url=server.url, retry=at_once())
        for _ in range(2):
            assert (await answer_of(model)).message.text == "ok"
    assert ["include" in body for body in server.bodies] == [True, False, False]


@pytest.mark.parametrize("message", ["The prompt was flagged.", "temperature must be between 0 and 2"])
async def test_l17_an_error_that_teaches_nothing_is_asked_for_once_and_raised_as_it_is(message: str) -> None:
    with Refusing(lambda _: True, SHAPES["one piece"](message)) as server:
        model = OpenAIChat("strict", base_url=server.url, retry=at_once(), temperature=3)
        said = await error_of(model, ASKED)
        assert type(said) is BadAnswerError
        assert message in str(said)
        assert len(server.requests) == 1


async def test_an_error_in_the_middle_of_an_answer_teaches_nothing() -> None:
    begun = {"choices": [{"index": 0, "delta": {"reasoning_content": "hm"}}]}
    invalid = {"message": "Unknown parameter: 'temperature'", "type": "invalid_request_error"}
    with Refusing(lambda _: True, events(begun, {"error": invalid}, done=False)) as server:
        model = OpenAIChat("strict", base_url=server.url, retry=at_once(2), temperature=0.5)
        with pytest.raises(BadAnswerError):
            await parts_of(model, ASKED)
    assert ["temperature" in body for body in server.bodies] == [True] * len(server.bodies)
