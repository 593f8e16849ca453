"""Parameters that a server does not know or finds too large: left out or lowered, and remembered."""

import pytest

from agentloop.errors import ModelRefusedError
from tests.server_kit import LOOK, chat, parts_of, saying
from tests.strict_bodies import Body
from tests.strict_dialects import WORDINGS
from tests.strict_provider import StrictProvider
from tests.strict_replies import Answered, Fault, events


@pytest.mark.parametrize("wording", sorted(WORDINGS))
@pytest.mark.parametrize("only", ["max_tokens", "max_completion_tokens"])
async def test_either_name_of_the_limit_is_found(wording: str, only: str, stream: bool) -> None:
    other = {"max_tokens": "max_completion_tokens"}.get(only, "max_tokens")
    with StrictProvider(lambda _: "ok", refuses=[other], wording=wording) as server:
        model = chat(server, stream=stream, max_output_tokens=9)
        for _ in range(2):
            await parts_of(model)
    names = [[name for name in (only, other) if name in body] for body in server.bodies]
    assert names == ([[only]] * 2 if only == "max_tokens" else [[other], [only], [only]])
    assert [body[only] for body in server.bodies[-2:]] == [9, 9]


PARAMETERS = {"stream_options", "temperature", "parallel_tool_calls", "store", "seed", "user", "top_k"}


@pytest.mark.parametrize("wording", sorted(WORDINGS))
@pytest.mark.parametrize("name", sorted(PARAMETERS))
async def test_a_parameter_that_a_server_does_not_know_is_left_out(wording: str, name: str) -> None:
    extra = {"parallel_tool_calls": True, "store": False, "seed": 1, "user": "u", "top_k": 3}
    with StrictProvider(lambda _: "ok", refuses=[name], wording=wording, usage="unasked") as server:
        model = chat(server, temperature=0.5, extra_body=extra)
        for _ in range(2):
            await parts_of(model, saying("Hello", tools=(LOOK,)))
    assert [name in body for body in server.bodies] == [True, False, False]
    assert server.bodies[0].keys() - server.bodies[1].keys() == {name}


@pytest.mark.parametrize("wording", sorted(WORDINGS))
async def test_a_server_that_knows_none_of_them_is_asked_a_handful_of_times(wording: str) -> None:
    extra = {"parallel_tool_calls": True, "store": False, "seed": 1}
    refuses = ["stream_options", "temperature", "max_tokens", *extra]
    with StrictProvider(lambda _: "ok", refuses=refuses, wording=wording) as server:
        model = chat(server, temperature=0.5, extra_body=extra, max_output_tokens=7)
        await parts_of(model)
        assert len(server.requests) <= 1 + len(refuses)
        await parts_of(model)
    assert server.bodies[-1] == {
        "model": "strict",
        "stream": True,
        "messages": [{"role": "user", "content": "Hello"}],
        "max_completion_tokens": 7,
    }
    assert server.bodies[-1] == server.bodies[-2]


REFUSALS = [
    {"error": {"message": "no", "code": "unsupported_parameter", "param": "temperature"}},
    {"error": {"message": "temperature is deprecated for this model.", "type": "invalid_request_error"}},
    {"error": {"message": "Unsupported value: 'temperature' does not support 0.5 with this model."}},
    {"error": {"message": "This model does not support the temperature parameter"}},
    {"error": "`temperature` isn't supported here"},
    {"detail": [{"loc": ["body", "temperature"], "msg": "Extra inputs are not permitted"}]},
    {"message": {"detail": [{"loc": ["body", "temperature"], "type": "extra_forbidden"}]}},
    {"error": {"message": "Additional properties are not allowed ('temperature' was unexpected)"}},
    {"error": {"details": [{"fieldViolations": [{"field": "temperature"}]}], "message": "Unknown name"}},
    {
        "message": "litellm.UnsupportedParamsError: m does not support parameters: ['temperature']",
        "code": "400",
    },
]


@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize("body", REFUSALS)
async def test_however_the_parameter_is_named(body: Body, status: int) -> None:
    with StrictProvider([Fault(status=status, body=body), "ok"]) as server:
        await parts_of(chat(server, temperature=0.5))
    assert ["temperature" in sent for sent in server.bodies] == [True, False]


async def test_so_it_is_where_the_refusal_comes_as_an_event() -> None:
    refusal = events({"error": {"message": "Unknown field: 'temperature'", "code": 400}}, done=False)
    with StrictProvider([refusal, "ok"]) as server:
        await parts_of(chat(server, temperature=0.5))
    assert ["temperature" in sent for sent in server.bodies] == [True, False]


@pytest.mark.parametrize(
    "message",
    [
        "temperature must be between 0 and 2",
        "Invalid 'messages[1].name': string does not match pattern",
        "Unknown parameter: 'context_window'.",
        "tools is not supported by this model",
        "'messages' is not supported",
        "Invalid value: 'auto'. Supported values are 'none' and 'required' for 'tool_choice'.",
        "max_tokens must be at least 16",
        "registry.example/gemma:2b does not support tools",
        "An assistant message with 'tool_calls' must be followed by tool messages",
        "the seed of an unknown tree",
    ],
)
async def test_l17_what_names_nothing_that_could_be_left_out_is_sent_once(message: str) -> None:
    with StrictProvider(lambda _: Fault(status=400, body={"error": {"message": message}})) as server:
        model = chat(
            server, temperature=3, max_output_tokens=9, extra_body={"seed": 1, "tool_choice": "auto"}
        )
        with pytest.raises(ModelRefusedError):
            await parts_of(model, saying("Hello", tools=(LOOK,)))
        assert len(server.requests) == 1


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_l17_these_are_sent_once_whatever_they_name(status: int) -> None:
    body = {"error": {"message": "Unsupported parameter: 'temperature'", "param": "temperature"}}
    with StrictProvider(lambda _: Fault(status=status, body=body)) as server:
        with pytest.raises(ModelRefusedError):
            await parts_of(chat(server, temperature=0.5))
        assert len(server.requests) == 1


async def test_a_server_that_refuses_whatever_it_gets_is_left_after_a_handful() -> None:
    def answer(body: Body) -> Answered:
        name = next((name for name in body if name not in ("model", "messages", "stream")), "model")
        return Fault(status=400, body={"error": {"message": f"Unknown parameter: '{name}'", "param": name}})

    with StrictProvider(answer) as server:
        with pytest.raises(ModelRefusedError):
            await parts_of(chat(server, extra_body={f"x_{at}": 1 for at in range(30)}))
        assert len(server.requests) == 9


TOO_HIGH = [
    "max_tokens is too large: 100000. It supports at most 8192 completion tokens, whereas you wanted 100000.",
    "max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens for x-3-5-y-20241022",
    "`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than the "
    "`context_window` for this model",
    "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]",
    "Range of max_tokens should be [1, 8192]",
    "a maxOutputTokens value of 100000 but the supported range is from 1 (inclusive) to 8193 (exclusive).",
    "The maximum tokens you requested exceeds the model limit of 8192. Try a value lower than 8192.",
    "max_tokens must be <= 8192",
    "max_completion_tokens: Input should be less than or equal to 8,192",
]


@pytest.mark.parametrize("message", TOO_HIGH)
@pytest.mark.parametrize("status", [400, 422])
async def test_a_limit_above_the_models_own_is_lowered_to_it(message: str, status: int) -> None:
    fault = Fault(status=status, body={"error": {"message": message}})
    with StrictProvider([fault, "ok", "ok", "ok"]) as server:
        model = chat(server, max_output_tokens=100_000)
        await parts_of(model)
        await parts_of(model)
        await parts_of(model, saying("Hello", max_output_tokens=50))
    assert [body["max_tokens"] for body in server.bodies] == [100_000, 8_192, 8_192, 50]


async def test_a_model_whose_longest_answer_is_short_is_asked_for_that(stream: bool) -> None:
    refuses = ["max_tokens"]
    with StrictProvider(lambda _: "ok", most_output=4_096, refuses=refuses, wording="pydantic") as server:
        await parts_of(chat(server, stream=stream, max_output_tokens="32k"))
    sent = [(body.get("max_tokens"), body.get("max_completion_tokens")) for body in server.bodies]
    assert sent == [(32_000, None), (None, 32_000), (None, 4_096)]
