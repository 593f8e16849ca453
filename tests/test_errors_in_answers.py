"""Errors in place of an answer and in the middle of one: what may pass is tried again, what cannot is not."""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import OpenAIChat, OpenAIResponses
from agentloop.errors import (
    BadAnswerError,
    ContextTooLongError,
    ModelError,
    ModelRefusedError,
    ModelUnavailableError,
)
from agentloop.providers.openai.errors import http_status_of
from tests.server_kit import answer_of, at_once, error_of, saying
from tests.strict_bodies import Body
from tests.strict_provider import StrictProvider
from tests.strict_replies import Answered, Fault, Raw, Reply, events

MAY_PASS: dict[str, Body] = {
    "a text": {"error": "upstream overloaded"},
    "a name of gRPC": {"error": {"message": "The model is away", "status": "UNAVAILABLE"}},
    "exhausted": {"error": {"message": "quota", "status": "RESOURCE_EXHAUSTED"}},
    "too late": {"error": {"message": "x", "status": "DEADLINE_EXCEEDED"}},
    "a status": {"error": {"message": "x", "status": 503}},
    "a status as text": {"error": {"message": "x", "status_code": "502"}},
    "a status beside the words": {"message": "Service down", "status": 503},
    "a class": {"error": {"message": "boom", "type": "InternalServerError"}},
    "a provider": {"error": {"message": "Provider gone", "code": "provider_error"}},
    "too many requests": {"error": {"message": "slow down", "type": "too_many_requests"}},
    "tgi": {"error": "Request failed during generation: Server error: CUDA", "error_type": "generation"},
    "tgi, overloaded": {"error": "Model is away", "error_type": "overloaded"},
    "busy": {"message": "Service busy"},
    "a hint": {"error": {"message": "An error occurred. You can retry your request.", "code": None}},
    "a timeout": {"error": "the upstream timed out"},
    "anthropic": {"type": "error", "error": {"type": "api_error", "message": "oops"}},
    "an odd response": {"error": {"message": "odd", "type": "server_error", "code": "invalid_response"}},
    "busy in Chinese": {"error": {"code": "1234", "message": "服务繁忙"}},
    "later in Chinese": {"error": {"message": "网络错误，请稍后重试"}},
    "a rate in Chinese": {"error": {"code": "1302", "message": "您的账户已达到速率限制"}},
    "minimax": {"choices": None, "base_resp": {"status_code": 1002, "status_msg": "rate limit"}},
    "a nested one": {"error": {"error": {"message": "x", "code": "rate_limit_exceeded"}}},
}
UNNAMED: dict[str, Body] = {
    "odd": {"error": {"message": "odd", "code": "odd"}},
    "odd, a text": {"error": "odd"},
    "cuda": {"error": {"message": "CUDA error: device-side assert triggered", "type": None}},
    "a word that is no fault here": {"error": "invalid chunk from a peer"},
}
FINAL: dict[str, Body] = {
    "a form": {"error": {"message": "Try again without it", "type": "invalid_request_error"}},
    "an argument": {"error": {"message": "timeout is unknown", "status": "INVALID_ARGUMENT"}},
    "a key": {"error": {"message": "Service unavailable to you", "code": "invalid_api_key"}},
    "a right": {"error": {"message": "busy", "type": "permission_error"}},
    "a number": {"error": {"message": "busy", "code": 400}},
    "a filter": {"error": {"message": "try again", "code": "content_filter"}},
    "a bill": {"error": {"message": "rate limit", "type": "insufficient_quota"}},
    "a bill in words": {"error": {"message": "Your credit balance is too low, then try again"}},
    "a bill half way": {"error": "Insufficient balance: try again later"},
    "a content": {"error": {"message": "busy", "code": "data_inspection_failed"}},
    "a content in words": {"error": "stopped by our content policy: try again later"},
    "a filter in words": {"error": {"message": "Output blocked by content filtering policy"}},
    "safety": {"error": {"message": "The response was flagged by our safety system"}},
    "no credits": {"error": {"message": "You have no credits left"}},
    "a balance": {"error": {"message": "Busy? Please top up your balance"}},
    "no right": {"error": {"message": "Unauthorized"}},
    "a place": {"error": {"message": "The model is unavailable in your region"}},
    "a bill, of a server": {"error": {"message": "Insufficient balance", "type": "api_error"}},
    "minimax": {"choices": None, "base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}},
    "qwen": {"error": {"message": "busy", "code": "InternalError.Algo.InvalidParameter"}},
}
BEGUN: Body = {"choices": [{"index": 0, "delta": {"content": "Half"}}]}
HALF_A_CALL = {"index": 0, "id": "c", "function": {"name": "look", "arguments": '{"at":'}}
BEGUN_CALL: Body = {"choices": [{"index": 0, "delta": {"tool_calls": [HALF_A_CALL]}}]}


PLACES: dict[str, Callable[[Body], Answered]] = {
    "first": lambda error: events(error, done=False),
    "named": lambda error: Raw(pieces=(b"event: error\ndata: " + json.dumps(error).encode() + b"\n\n",)),
    "in the text": lambda error: events(BEGUN, error, done=False),
    "in a call": lambda error: events(BEGUN_CALL, error),
}
SHAPES = PLACES | {"in one piece": lambda error: Fault(status=200, body=error)}


async def tries(errors: dict[str, Body], shape: Callable[[Body], Answered]) -> dict[str, int | type]:
    """How often each is asked that comes first, with a whole answer behind it, or what it ends in."""
    asked: Counter[str] = Counter()

    def answer(body: Body) -> Answered | str:
        name = body["messages"][-1]["content"]
        asked[name] += 1
        return shape(errors[name]) if asked[name] == 1 else "whole"

    async def ended(name: str) -> int | type:
        try:
            whole = await answer_of(model, saying(name))
        except ModelError as error:
            assert asked[name] == 1
            return type(error)
        assert whole.message.text == "whole"
        return asked[name]

    with StrictProvider(answer) as server:
        model = OpenAIChat("strict", base_url=server.url, retry=at_once())
        return {name: await ended(name) for name in errors}


@pytest.mark.deep
@pytest.mark.parametrize("shape", [*PLACES, "in one piece"])
async def test_what_may_pass_is_tried_again_wherever_it_comes(shape: str) -> None:
    assert await tries(MAY_PASS, SHAPES[shape]) == dict.fromkeys(MAY_PASS, 2)


@pytest.mark.parametrize("shape", ["in the text", "in a call"])
async def test_any_other_error_in_the_middle_is_a_broken_stream(shape: str) -> None:
    assert await tries(UNNAMED, SHAPES[shape]) == dict.fromkeys(UNNAMED, 2)


@pytest.mark.parametrize("shape", ["first", "named", "in one piece"])
async def test_in_place_of_an_answer_it_is_final(shape: str) -> None:
    assert await tries(UNNAMED, SHAPES[shape]) == dict.fromkeys(UNNAMED, BadAnswerError)


@pytest.mark.parametrize("shape", [*PLACES, "in one piece"])
async def test_l17_a_fault_of_the_request_a_key_or_a_bill_is_never_tried_again(shape: str) -> None:
    ended = await tries(FINAL, SHAPES[shape])
    assert set(ended.values()) == {BadAnswerError, ModelRefusedError}


USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
ALL_WELL: dict[str, Body] = {
    "baidu": {"choices": [], "error_msg": "success", "error_code": 0, "usage": USAGE},
    "a code": {"code": 0, "message": "done", "choices": [], "usage": USAGE},
    "a status": {"status": 200, "msg": "请求成功", "choices": []},
    "a code as text": {"code": "Success", "msg": "all of it", "choices": []},
    "minimax": {"choices": None, "base_resp": {"status_code": 0, "status_msg": "success"}},
    "minimax, a text": {"choices": [], "base_resp": {"status_code": "0", "status_msg": ""}},
    "minimax, of another type": {"choices": [], "base_resp": "all is well"},
    "a word": {"message": "OK", "choices": []},
    "words beside usage": {"message": "generated by ours", "choices": [], "usage": USAGE},
}
FINISHED: Body = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


@pytest.mark.parametrize("name", ALL_WELL)
async def test_what_says_that_all_is_well_is_no_error(name: str) -> None:
    with StrictProvider([events(BEGUN, ALL_WELL[name], FINISHED, ALL_WELL[name])]) as server:
        model = OpenAIChat("strict", base_url=server.url, retry=at_once())
        assert (await answer_of(model)).message.text == "Half"
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    "code",
    [{"code": 1302}, {"error_code": 18, "usage": USAGE}, {"status": "failed"}, {"status": 200, "code": 5}],
)
async def test_a_code_that_is_none_of_success_makes_it_one(code: Body) -> None:
    with StrictProvider([events(BEGUN, {"choices": [], "message": "rate limit", **code}), "whole"]) as server:
        model = OpenAIChat("strict", base_url=server.url, retry=at_once())
        assert (await answer_of(model)).message.text == "whole"
        assert len(server.requests) == 2


@pytest.mark.parametrize("shape", ["first", "named", "in one piece"])
async def test_a_context_that_is_too_long_is_heard_in_the_words_of_minimax(shape: str) -> None:
    why = {"status_code": 2013, "status_msg": "invalid params, context window exceeds limit (2013)"}
    with StrictProvider(lambda _: SHAPES[shape]({"choices": None, "base_resp": why})) as server:
        error = await error_of(OpenAIChat("strict", base_url=server.url, retry=at_once()))
        assert isinstance(error, ContextTooLongError)
        assert len(server.requests) == 1


async def test_tries_are_bounded_however_often_a_stream_breaks() -> None:
    with StrictProvider(lambda _: SHAPES["in a call"](UNNAMED["odd"])) as server:
        error = await error_of(OpenAIChat("strict", base_url=server.url, retry=at_once(3)))
        assert isinstance(error, ModelUnavailableError)
        assert "odd" in str(error)
        assert len(server.requests) == 3


def of_responses(*said: Body) -> Answered:
    """A stream of the Responses API of these events."""
    return Raw(pieces=tuple(f"data: {json.dumps(each)}\n\n".encode() for each in said))


ADDED = {
    "type": "response.output_item.added",
    "output_index": 0,
    "item": {"type": "message", "id": "m", "role": "assistant", "content": []},
}
HINT = "An error occurred while processing your request. You can retry your request."
FAILED: dict[str, Any] = {
    "an event": {"type": "error", "code": None, "message": HINT, "param": None},
    "an object": {"type": "error", "error": {"type": "x", "message": HINT}},
    "failed": {
        "type": "response.failed",
        "response": {"status": "failed", "error": {"code": None, "message": HINT}},
    },
    "failed, a text": {"type": "response.failed", "response": {"status": "failed", "error": HINT}},
    "failed, no reason": {"type": "response.failed", "response": {"status": "failed"}},
}


@pytest.mark.parametrize("begun", [(), (ADDED,)], ids=["first", "in the middle"])
@pytest.mark.parametrize("name", FAILED)
async def test_so_it_is_in_the_responses_api(name: str, begun: tuple[Body, ...]) -> None:
    with StrictProvider([of_responses(*begun, FAILED[name]), Reply(text="whole")]) as server:
        model = OpenAIResponses("strict", base_url=server.url, retry=at_once())
        assert (await answer_of(model)).message.text == "whole"
        assert len(server.requests) == 2


async def test_an_odd_error_ends_a_response_only_before_it_has_begun() -> None:
    odd = {"type": "error", "code": "odd", "message": "odd"}
    with StrictProvider([of_responses(odd), of_responses(ADDED, odd), Reply(text="whole")]) as server:
        model = OpenAIResponses("strict", base_url=server.url, retry=at_once())
        assert isinstance(await error_of(model), BadAnswerError)
        assert (await answer_of(model)).message.text == "whole"
        assert len(server.requests) == 3


@pytest.mark.parametrize("body", [None, "", [], {}, {"code": True}, {"type": ["x"]}, {"status": 200}, 5])
def test_what_says_nothing_stands_for_nothing(body: object) -> None:
    assert http_status_of(body, begun=False) == 200
    assert http_status_of(body, begun=True) == 500


FIELDS = st.sampled_from(["error", "errors", "detail", "message", "code", "status", "type", "error_type"])
WORDS = st.sampled_from(["busy", "rate_limit", "INVALID_ARGUMENT", "503", "insufficient_quota", "odd", ""])
ERRORS = st.recursive(
    WORDS | st.none() | st.booleans() | st.integers(-9, 999) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=4),
    max_leaves=8,
)


@given(ERRORS)
def test_any_error_stands_for_a_status_and_what_is_final_in_the_middle_is_so_before(body: object) -> None:
    before, behind = http_status_of(body, begun=False), http_status_of(body, begun=True)
    assert before == 200 or 400 <= before <= 599
    assert behind in (before, 500)
    assert behind != 200 or before == 200
