"""A server that cannot read what its own model said: no fault of the request, and asked for again."""

import itertools
import json
from collections.abc import Callable

import pytest

from agentloop.errors import SpoiltAnswerError
from agentloop.providers.openai import place_of
from agentloop.stream import Retrying
from tests.counted_tool_kit import ran, runner_of, watched_texts
from tests.kit import watched
from tests.server_kit import answer_of, chat, error_of
from tests.strict_bodies import Body
from tests.strict_provider import StrictProvider
from tests.strict_replies import Answered, Call, Fault, Reply, events, invalid

NO_CALL = "Failed to call a function. Please adjust your prompt. See 'failed_generation' for more details."
NO_SCHEMA = "tool call validation failed: parameters for tool look did not match schema: errors: "
QUOTED = {"code": "tool_use_failed", "failed_generation": '<function=look>{"at": "a"}</function>'}
BEGUN: Body = {"choices": [{"index": 0, "delta": {"content": "Half a"}}]}


FROM_BEHIND = json.dumps(
    {"error": {"message": f"{NO_SCHEMA}['stream' not allowed]", "code": "tool_use_failed"}}
)
"""What a gateway hands on of the server behind it."""
AT_A_GATEWAY: Body = {"message": "Provider returned error", "code": 400, "metadata": {"raw": FROM_BEHIND}}


SPOILT: dict[str, Answered] = {
    "no call": invalid(400, NO_CALL, **QUOTED),
    "a wrong type": invalid(400, f"{NO_SCHEMA}[`/at`: expected string, but got number]", **QUOTED),
    "one argument more": invalid(400, f"{NO_SCHEMA}[additionalProperties 'limit' not allowed]", **QUOTED),
    "a field's name": invalid(400, f"{NO_SCHEMA}[additionalProperties 'stream' not allowed]", **QUOTED),
    "an unknown tool": invalid(400, "attempted to call tool 'x' which was not in request.tools", **QUOTED),
    "another code": invalid(400, "Parsing failed.", code="output_parse_failed", failed_generation=""),
    "no code": invalid(400, NO_CALL, failed_generation="prompt is too long: 9000 tokens > 8192 maximum"),
    "the code alone": invalid(400, "Unknown parameter: 'temperature'", code="tool_use_failed"),
    "a gateway": Fault(status=400, body={"error": AT_A_GATEWAY}),
    "an event": events({"error": {"message": NO_CALL, "type": "invalid_request_error"} | QUOTED}, done=False),
    "half way": events(BEGUN, {"error": {"message": NO_CALL, "status_code": 400} | QUOTED}, done=False),
}

SAID = {
    "no call": NO_CALL,
    "a wrong type": f"{NO_SCHEMA}[`/at`: expected string, but got number]",
    "one argument more": f"{NO_SCHEMA}[additionalProperties 'limit' not allowed]",
    "a field's name": f"{NO_SCHEMA}[additionalProperties 'stream' not allowed]",
    "an unknown tool": "attempted to call tool 'x' which was not in request.tools",
    "another code": "Parsing failed.",
    "no code": NO_CALL,
    "the code alone": "Unknown parameter: 'temperature'",
    "a gateway": f"Provider returned error {FROM_BEHIND}",
    "an event": NO_CALL,
    "half way": NO_CALL,
}
"""The words of the server in each."""


def spoiling(spoilt: Answered, times: int) -> Callable[[Body], Answered | str]:
    """A brain whose first answers are spoilt; then it looks once, and is done."""
    said = [*[spoilt] * times, Reply(calls=(Call(name="look", arguments='{"path": "a"}'),))]
    answers = itertools.chain(said, itertools.repeat("done"))
    return lambda _: next(answers)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", SPOILT)
async def test_a_spoilt_answer_is_asked_for_again_as_it_was(name: str, stream: bool) -> None:
    with StrictProvider(spoiling(SPOILT[name], times=2)) as server:
        seen = await watched(runner_of(server, stream=stream), "go")
        first, second, third, _ = server.bodies
        assert first == second == third
    assert ran == {"a": 1}
    assert [event.attempt for event in seen if isinstance(event, Retrying)] == [1, 2]
    assert watched_texts(seen)[-1] == "done"


@pytest.mark.parametrize("name", SPOILT)
async def test_three_in_a_row_end_the_run_in_the_words_of_the_server(name: str) -> None:
    with StrictProvider(lambda _: SPOILT[name]) as server:
        with pytest.raises(SpoiltAnswerError) as caught:
            await runner_of(server).run("go")
        assert len(server.requests) == 3
        assert str(caught.value) == f"{place_of(server.url)} cannot read what its model said: {SAID[name]}"


async def test_spoilt_answers_and_empty_ones_have_one_bound() -> None:
    said = itertools.cycle(["", SPOILT["no call"]])
    with StrictProvider(lambda _: next(said)) as server:
        with pytest.raises(Exception, match="answers in a row were empty"):
            await runner_of(server).run("go")
        assert len(server.requests) == 3


@pytest.mark.parametrize("name", SPOILT)
async def test_no_dialect_is_learnt_from_a_spoilt_answer(name: str) -> None:
    said = iter([SPOILT[name]])
    with StrictProvider(lambda _: next(said, "ok")) as server:
        model = chat(server, temperature=0.5, extra_body={"seed": 1})
        assert isinstance(await error_of(model), SpoiltAnswerError)
        await answer_of(model)
        assert server.bodies[0] == server.bodies[1]
