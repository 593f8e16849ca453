"""What merely sounds like a request that is too long: refused with the server's words, or tried again."""

from pathlib import Path
from typing import Any

import pytest

from agentloop import OpenAIChat, OpenAIResponses
from agentloop.errors import (
    ContextOverflowError,
    ContextTooLongError,
    ModelRefusedError,
    ModelUnavailableError,
)
from agentloop.models import ModelRequest
from agentloop.run import Agent
from agentloop.runner import Runner
from tests.kit import read
from tests.no_overflow_words import NO_OVERFLOWS, Other
from tests.server_kit import answer_of, at_once, chat, error_of, saying
from tests.strict_bodies import Body
from tests.strict_provider import StrictProvider
from tests.strict_replies import Answered, ExtractiveSummariser, Fault, Reply, asks_for_summary, calling

REFUSED = [other for other in NO_OVERFLOWS if other.status == 400]
PASSING = [other for other in NO_OVERFLOWS if other.status == 500]


def fault(other: Other) -> Fault:
    text, status = other
    return Fault(status=status, body=text if text.startswith("<") else {"error": {"message": text}})


def words(text: str) -> str:
    """The words that a person can be shown."""
    return "" if text.startswith("<") else text


@pytest.mark.parametrize("kind", [OpenAIChat, OpenAIResponses])
async def test_what_is_no_overflow_is_refused_with_the_servers_words(kind: type[Any], stream: bool) -> None:
    with StrictProvider([fault(other) for other in REFUSED]) as server:
        model = kind("strict", base_url=server.url, retry=at_once(), stream=stream)
        errors = [await error_of(model) for _ in REFUSED]
        assert len(server.requests) == len(REFUSED)
    odd = [other.text for other, error in zip(REFUSED, errors, strict=True) if not _is_refused(error, other)]
    assert odd == []


def _is_refused(error: Exception, other: Other) -> bool:
    return type(error) is ModelRefusedError and words(other.text) in str(error)


@pytest.mark.deep
@pytest.mark.parametrize("kind", [OpenAIChat, OpenAIResponses])
async def test_a_fault_that_may_pass_is_tried_again(kind: type[Any], stream: bool) -> None:
    answers: list[Answered | str] = []
    for other in PASSING:
        answers += [fault(other), "ok"]
    with StrictProvider(answers) as server:
        model = kind("strict", base_url=server.url, retry=at_once(2), stream=stream)
        assert [(await answer_of(model)).message.text for _ in PASSING] == ["ok"] * len(PASSING)
        assert len(server.requests) == 2 * len(PASSING)


HELLO: tuple[Body, ...] = (
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hi."},
    {"role": "user", "content": "How are you?"},
)
FITTING = {"the first": saying("x" * 10_000), "a short one": ModelRequest(messages=HELLO)}


@pytest.mark.parametrize("name", FITTING)
async def test_a_500_without_a_word_to_what_surely_fits_is_an_outage(name: str) -> None:
    with StrictProvider([Fault(status=500)] * 5) as server:
        assert isinstance(await error_of(chat(server, retry=at_once()), FITTING[name]), ModelUnavailableError)
        assert len(server.requests) == 5


ROWS = ["9" * 20_000, "9," * 10_000, "9_" * 10_000, "999 " * 5_000, "1 + " * 5_000, "9 bytes " * 2_500]


@pytest.mark.parametrize("row", ROWS, ids=[row[:4] for row in ROWS])
@pytest.mark.deep
async def test_a_long_row_of_digits_is_looked_through_in_no_time(row: str) -> None:
    """Each would take minutes where every digit is taken for the first one of a number."""
    said = [fault(Other(text + row)) for text in ("bad field: ", "the prompt is too long: ")]
    with StrictProvider(said) as server:
        model = chat(server, retry=at_once())
        assert [type(await error_of(model)) for _ in said] == [ModelRefusedError, ContextTooLongError]


BEYOND = [
    "max_tokens={asked} cannot be greater than max_model_len={window}. Please request fewer output tokens.",
    "BadRequestError: max_tokens={asked} cannot be greater than max_model_len=max_total_tokens={window}",
    "max_completion_tokens={asked} cannot be greater than max_model_len: {window}",
    "max_tokens: tokens {asked} exceeds limit {window} for output",
    "max_completion_tokens exceeds the model token limit of output {window}",
    "Requested output tokens exceed the maximum of {window}",
]


@pytest.mark.parametrize("window", [None, "128k"])
@pytest.mark.parametrize("said", BEYOND)
async def test_an_answer_longer_than_the_window_is_asked_for_shorter(
    said: str, window: str | None, tmp_path: Path
) -> None:
    def answer(body: Body) -> Answered | str:
        asked = body["max_tokens"]
        return "ok" if asked <= 8_192 else fault(Other(said.format(asked=asked, window=8_192)))

    with StrictProvider(answer) as server:
        model = chat(server, window=window, max_output_tokens=16_384)
        async with Runner(Agent(model, tools=[read]), transcripts=tmp_path) as runner:
            results = [await runner.run("hi there " * 100, session_id="s") for _ in range(3)]
    assert [result.output for result in results] == ["ok"] * 3
    assert [result.compactions for result in results] == [()] * 3
    asked = [body["max_tokens"] for body in server.bodies]
    assert [limit for limit in asked if limit > 8_192] == [16_384]
    assert min(asked[1:]) > 6_000


async def test_where_no_window_is_named_beside_the_answer_nothing_is_compacted(tmp_path: Path) -> None:
    said = fault(Other("max_tokens=16384 cannot be greater than max_model_len"))
    answers: list[Answered | str] = ["ok", "ok", "ok", said]
    with StrictProvider(answers) as server:
        runner = Runner(Agent(chat(server, max_output_tokens=16_384)), transcripts=tmp_path)
        for _ in range(3):
            await runner.run("hi there " * 100, session_id="s")
        with pytest.raises(ModelRefusedError, match="cannot be greater than max_model_len"):
            await runner.run("and now?", session_id="s")
        assert len(server.requests) == 4


UNTOLD = fault(Other("the prompt is too long"))


async def test_an_overflow_without_a_size_is_no_reason_to_compact_what_is_short(tmp_path: Path) -> None:
    with StrictProvider(ExtractiveSummariser(_third_is_refused(UNTOLD, words=20))) as server:
        runner = Runner(Agent(chat(server), tools=[read]), transcripts=tmp_path)
        with pytest.raises(ContextOverflowError, match="the prompt is too long"):
            await runner.run("Read.", session_id="s")
        assert [body for body in server.bodies if asks_for_summary(body)] == []
        status = await runner.status("s")
        assert status.window == 128_000
        assert (await runner.run("Go on.", session_id="s")).output == "done"


@pytest.mark.parametrize("window", [None, "128k"])
async def test_of_a_long_request_it_teaches_a_window_though_a_larger_one_was_given(
    window: str | None, tmp_path: Path
) -> None:
    with StrictProvider(ExtractiveSummariser(_third_is_refused(UNTOLD, words=2_000))) as server:
        runner = Runner(Agent(chat(server, window=window), tools=[read]), transcripts=tmp_path)
        assert (await runner.run("Read.", session_id="s")).output == "done"
        assert (await runner.status("s")).window < 128_000


def _third_is_refused(refusal: Fault, words: int) -> Any:
    turns = iter([1, 2, 3, 4])

    def answer(_: Body) -> Answered | str:
        match next(turns, 5):
            case 1 | 2 as at:
                return Reply(calls=(calling("read", name=f"file_{at}", words=words),))
            case 3:
                return refusal
        return "done"

    return answer
