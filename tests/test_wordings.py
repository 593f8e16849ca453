"""Refusals of one kind in the words of many servers: what they name is left out, what sounds so stays."""

import pytest

from agentloop.providers.openai.dialect import Dialect
from agentloop.providers.openai.fields import FieldPath
from agentloop.providers.openai.refusals import Refusal
from tests.refusing_kit import Refusing, error, refusal
from tests.server_kit import answer_of, chat
from tests.strict_bodies import Body

SENT: Body = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi", "reasoning_content": "hm"},
        {"role": "user", "content": "And?", "name": "ann"},
    ],
    "stream": True,
    "temperature": 0.5,
    "max_tokens": 9,
    "seed": 1,
}
WHOLE: Body = SENT | {"stream": False}


def after(message: str | Body, sent: Body = SENT) -> Dialect:
    """What is learnt from a 400 with these words."""
    return Dialect().after(Refusal.of(400, error(message) if isinstance(message, str) else message), sent)


FIELDS: dict[str, str] = {
    "temperature may only be 1 for reasoning models": "temperature",
    "temperature can only be set to 1": "temperature",
    "temperature=0.5 is not supported": "temperature",
    "temperature: 0.5 is not available here": "temperature",
    "This model only accepts temperature 1": "temperature",
    "temperature is fixed at 1 for this model": "temperature",
    "temperature cannot be changed for this model": "temperature",
    "temperature must not be set with this model": "temperature",
    "`temperature` must be omitted": "temperature",
    "Parameter not allowed: temperature": "temperature",
    "this model does not take temperature": "temperature",
    "The temperature parameter is incompatible with this model": "temperature",
    "'temperature' is not a recognized parameter": "temperature",
    "this model requires max_completion_tokens rather than max_tokens": "max_tokens",
    "Use 'max_completion_tokens' instead of 'max_tokens'": "max_tokens",
    "max_tokens was renamed to max_completion_tokens": "max_tokens",
    "max_tokens has been replaced by max_completion_tokens": "max_tokens",
    "please omit `seed`": "seed",
    "`seed` must not be provided": "seed",
    "disallowed field: seed": "seed",
}


@pytest.mark.parametrize("message", FIELDS)
def test_a_field_that_is_named_and_refused_is_left_out_in_whatever_words(message: str) -> None:
    assert after(message) == Dialect(without=frozenset({(FIELDS[message],)}))


@pytest.mark.parametrize(
    "message",
    [
        "Invalid field reasoning_content in assistant message",
        "messages[2] has an illegal key: reasoning_content",
        "bad assistant message: 'reasoning_content'",
        "Unrecognized key(s) in object: 'reasoning_content'",
    ],
)
def test_a_field_that_a_server_put_into_its_answer_goes_where_it_is_called_invalid(message: str) -> None:
    path: FieldPath = ("messages", "reasoning_content")
    assert after(message) == Dialect(without=frozenset({path}))


SYSTEM: list[str | Body] = [
    "'messages' must not contain system role",
    "Invalid role: system",
    "unknown role 'system'",
    "role 'system' is not allowed",
    "Role system is not valid for this model",
    "system messages are not permitted",
    "Please remove the system message",
    "This model cannot take system prompts",
    "messages[0].role: Input should be 'user' or 'assistant'",
    "Invalid value: 'system'. Supported values are: 'user' and 'assistant'.",
    {"detail": [{"loc": ["body", "messages", 0, "role"], "msg": "Input should be 'user' or 'assistant'"}]},
]


@pytest.mark.parametrize("message", SYSTEM, ids=range(len(SYSTEM)))
def test_the_system_role_is_understood_in_whatever_words(message: str | Body) -> None:
    assert after(message) == Dialect(instructions="in front")


@pytest.mark.parametrize(
    "message",
    [
        "stream=true is not supported by this server",
        "'stream': true is unsupported",
        "'stream' must be false",
        "This endpoint cannot stream",
        "Streaming responses are disabled",
        "Streamed answers are not available",
        "Only non-streaming requests are served",
        "Please disable streaming",
    ],
)
def test_that_a_server_does_not_stream_is_understood(message: str) -> None:
    assert after(message).streams is False
    assert after(message, WHOLE).streams is None


@pytest.mark.parametrize(
    "message",
    [
        "Non-streaming is not supported",
        "non-streamed requests are disabled",
        "stream=false is not supported",
        "Unsupported value: 'stream' does not support false with this model.",
        "Responses must be streamed",
        "Please set stream=true",
        "only streaming is supported",
        "streaming is mandatory",
    ],
)
def test_that_a_server_does_nothing_else_is_understood(message: str) -> None:
    assert after(message, WHOLE).streams is True


@pytest.mark.parametrize("sent", [SENT, WHOLE], ids=["streamed", "whole"])
@pytest.mark.parametrize(
    "message",
    [
        "temperature must be between 0 and 2",
        "temperature may only be between 0 and 1",
        "temperature can only be 0 to 2",
        "temperature may only be 0 or more",
        "invalid temperature: 3",
        "The temperature of the place is unknown",
        "Invalid type for 'seed': got a string instead of an integer",
        "seed: expected a number rather than a string",
        "'seed' was set but its pair was not provided",
        "Invalid 'messages[3].name': string does not match pattern",
        "System message must be at the beginning.",
        "The system message must not be empty",
        "The system prompt is not valid UTF-8",
        "messages must not contain more than one system message",
        "Only one system message is allowed",
        "Could not read the input stream: not JSON",
        "The reasoning behind this is that your plan is not enabled for it",
    ],
)
def test_l17_what_only_sounds_like_it_changes_nothing(message: str, sent: Body) -> None:
    assert after(message, sent) == Dialect()


def test_a_stream_field_that_is_unknown_either_way_ends_in_the_refusal() -> None:
    unknown = Refusal.of(400, error("Unknown parameter: 'stream'"))
    learnt = Dialect().after(unknown, SENT)
    assert learnt.streams is False
    assert learnt.after(unknown, WHOLE) == learnt


async def test_a_refusal_in_other_words_is_met_once_and_kept() -> None:
    said = refusal("temperature may only be 1 for reasoning models")
    with Refusing(lambda body: "temperature" in body, said) as server:
        model = chat(server, temperature=0.5)
        for _ in range(2):
            assert (await answer_of(model)).message.text == "ok"
    assert ["temperature" in body for body in server.bodies] == [True, False, False]


@pytest.mark.deep
@pytest.mark.parametrize("letter", ["a", "_", "a.", "1.", "("])
def test_l11_one_long_word_is_read_and_teaches_nothing(letter: str) -> None:
    assert after(letter * 20_000) == Dialect()
