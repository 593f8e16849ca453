"""Requests that are too long, in the words of many servers; those that are something else; what is learnt."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from agentloop import OpenAIChat, OpenAIResponses
from agentloop.compaction import Compaction
from agentloop.context import Budget, with_shorter_answer
from agentloop.errors import ContextOverflowError, ContextTooLongError, ModelRefusedError
from agentloop.models import ChatModel
from agentloop.run import Agent
from agentloop.runner import Runner
from tests.kit import context_of, read
from tests.overflow_words import MOST, SOMETHING_ELSE, SURELY_TOO_LONG, TOO_LONG, TooLong
from tests.server_kit import at_once, chat, error_of, saying
from tests.strict_bodies import Body
from tests.strict_overflows import OVERFLOWS
from tests.strict_provider import StrictProvider
from tests.strict_replies import (
    Answered,
    Brain,
    ExtractiveSummariser,
    Fault,
    Reply,
    asks_for_summary,
    calling,
    events,
)

Sizes: TypeAlias = tuple[int | None, int | None, int | None]
FORMS: dict[str, Callable[[TooLong], Answered]] = {
    "wrapped": lambda case: Fault(status=case.status, body=as_sent(case.body)),
    "bare": lambda case: Fault(status=case.status, body=case.body),
    "in place of an answer": lambda case: Fault(status=200, body=as_sent(case.body)),
    "an event": lambda case: events(as_sent(case.body), done=False),
    "in the middle of an answer": lambda case: events(
        {"choices": [{"delta": {"content": "a"}}]}, as_sent(case.body), done=False
    ),
}
BY_STATUS = {"an html page"}


def as_sent(body: object) -> object:
    """The body of an error as most servers send it."""
    return (
        {"error": body} if isinstance(body, str) or (isinstance(body, dict) and "message" in body) else body
    )


async def told(model: ChatModel, name: str) -> Sizes | str:
    """The window, the tokens and those of the answer that an error names, or what else the error is."""
    error = await error_of(model, saying(name))
    if not isinstance(error, ContextTooLongError):
        return repr(error)
    return error.window, error.tokens, error.output_tokens


@pytest.mark.parametrize("kind", [OpenAIChat, OpenAIResponses])
@pytest.mark.parametrize("form", ["wrapped", "bare"])
async def test_too_long_in_the_words_of_many_servers(form: str, kind: type[Any]) -> None:
    cases = {name: (case.window, case.tokens, case.output_tokens) for name, case in TOO_LONG.items()}
    with StrictProvider(lambda body: FORMS[form](TOO_LONG[body["messages"][-1]["content"]])) as server:
        model = kind("strict", base_url=server.url, retry=at_once())
        assert {name: await told(model, name) for name in cases} == cases
        assert len(server.requests) == len(cases)


@pytest.mark.deep
@pytest.mark.parametrize("form", ["in place of an answer", "an event", "in the middle of an answer"])
async def test_so_it_is_in_place_of_an_answer(form: str) -> None:
    cases = {
        name: (case.window, case.tokens, case.output_tokens)
        for name, case in TOO_LONG.items()
        if name not in BY_STATUS
    }
    with StrictProvider(lambda body: FORMS[form](TOO_LONG[body["messages"][-1]["content"]])) as server:
        model = chat(server, retry=at_once())
        assert {name: await told(model, name) for name in cases} == cases
        assert len(server.requests) == len(cases)


@pytest.mark.parametrize("status", [400, 500, 200])
@pytest.mark.parametrize("kind", [OpenAIChat, OpenAIResponses])
async def test_a_sure_sentence_says_it_with_every_status(kind: type[Any], status: int, stream: bool) -> None:
    said = [Fault(status=status, body=as_sent({"message": text})) for text in SURELY_TOO_LONG]
    with StrictProvider(said) as server:
        model = kind("strict", base_url=server.url, retry=at_once(), stream=stream)
        errors = [await error_of(model) for _ in said]
        assert len(server.requests) == len(said)
    told = zip(SURELY_TOO_LONG, errors, strict=True)
    assert [text for text, error in told if not isinstance(error, ContextTooLongError)] == []


@pytest.mark.parametrize("wrapped", [True, False], ids=["wrapped", "bare"])
async def test_something_else_in_the_words_of_many_servers(wrapped: bool) -> None:
    def answer(body: Body) -> Fault:
        status, said = SOMETHING_ELSE[body["messages"][-1]["content"]]
        return Fault(status=status, body=as_sent(said) if wrapped else said)

    with StrictProvider(answer) as server:
        model = chat(server, retry=at_once())
        refused = {name: type(await error_of(model, saying(name))) for name in SOMETHING_ELSE}
        assert refused == dict.fromkeys(SOMETHING_ELSE, ModelRefusedError)
        assert len(server.requests) == len(SOMETHING_ELSE)


@pytest.mark.parametrize("name", sorted(SOMETHING_ELSE))
async def test_l17_what_is_no_overflow_is_sent_once(name: str, tmp_path: Path) -> None:
    status, body = SOMETHING_ELSE[name]
    with StrictProvider(lambda _: Fault(status=status, body=as_sent(body))) as server:
        runner = Runner(Agent(chat(server), tools=[read]), transcripts=tmp_path)
        with pytest.raises(ModelRefusedError):
            await runner.run("word " * 5_000, session_id="s")
        assert len(server.requests) == 1


async def test_the_code_of_an_overflow_counts_beside_the_status_of_an_outage() -> None:
    body = as_sent({"message": "try later", "code": "context_length_exceeded", "status": 503})
    with StrictProvider([Fault(status=503, body=body), Fault(status=200, body=body)]) as server:
        model = chat(server, retry=at_once())
        assert [type(await error_of(model)) for _ in range(2)] == [ContextTooLongError] * 2
        assert len(server.requests) == 2


REPRESENTATIVE = [
    "openai",
    "vllm, at least",
    "sglang",
    "xai",
    "mistral",
    "lm studio",
    "in Chinese",
    "an html page",
]


@pytest.mark.parametrize("as_event", [False, True], ids=["status", "event"])
@pytest.mark.parametrize("name", REPRESENTATIVE)
async def test_l17_an_overflow_leads_to_two_smaller_tries_at_most(
    name: str, as_event: bool, stream: bool, tmp_path: Path
) -> None:
    body, status = TOO_LONG[name].body, TOO_LONG[name].status
    wrapped = as_sent(body)
    as_json = {"error": body if isinstance(body, dict) else {"code": 413, "message": "too large"}}
    fault: Answered = Fault(status=status, body=wrapped)
    if as_event:
        fault = events(as_json, done=False) if stream else Fault(status=200, body=as_json)
    with StrictProvider(ExtractiveSummariser(lambda _: fault)) as server:
        runner = Runner(Agent(chat(server, stream=stream), tools=[read]), transcripts=tmp_path)
        with pytest.raises(ContextOverflowError):
            await runner.run("word " * 30_000, session_id="s")
        asked = [body for body in server.bodies if not asks_for_summary(body)]
        assert 1 <= len(asked) <= 3
        sizes = [len(request.raw) for request in server.requests if request.body in asked]
        assert sizes == sorted(sizes, reverse=True)


SPLIT = ["openrouter", "vllm", "anthropic-sum", "vllm-remainder", "vllm-left", "sglang"]
MORE_OVERFLOWS = {
    "vllm-remainder": lambda window, prompt, answer: Fault(
        status=400,
        body={
            "message": f"'max_tokens' is too large: {answer}. {MOST} is {window} tokens and your request has "
            f"{prompt} input tokens ({answer} > {window} - {prompt}).",
            "code": 400,
        },
    ),
    "vllm-left": lambda window, prompt, answer: Fault(
        status=400,
        body={
            "message": f"You passed {prompt} input tokens and requested {answer} output tokens. However, the "
            f"model's context length is only {window} tokens, resulting in a maximum input length of "
            f"{max(0, window - answer)} tokens. Please reduce the length of the input prompt.",
            "param": "input_tokens",
            "code": 400,
        },
    ),
    "vllm-characters": lambda window, prompt, answer: Fault(
        status=400,
        body={
            "message": f"You passed {4 * prompt} input characters and requested {answer} output tokens. "
            f"However, the model's context length is only {window} tokens, resulting in a maximum input "
            f"length of {max(0, window - answer)} tokens.",
        },
    ),
    "sglang": lambda window, prompt, answer: Fault(
        status=400,
        body={
            "message": f"Requested token count exceeds the {MOST} of {window} tokens: a total of "
            f"{prompt + answer} tokens: {prompt} tokens from the input messages and {answer} tokens for the "
            "completion.",
        },
    ),
}


def reading(files: int, words: int = 500) -> Brain:
    """Reads so many files, one after the other, then answers."""
    turns = iter(range(files))

    def answer(_: Body) -> Answered:
        at = next(turns, None)
        if at is None:
            return Reply(text="all read")
        return Reply(calls=(calling("read", name=f"file_{at}", words=words),))

    return ExtractiveSummariser(answer)


def provider(brain: Brain, overflow: str, **options: Any) -> StrictProvider:
    server = StrictProvider(brain, overflow=overflow if overflow in OVERFLOWS else "openai", **options)
    server.overflow = (OVERFLOWS | MORE_OVERFLOWS)[overflow]
    return server


def limit_of(body: Body) -> int | None:
    limit = body.get("max_tokens")
    return limit if isinstance(limit, int) else None


@pytest.mark.parametrize("given", [12_000, None], ids=["given", "the server's own"])
@pytest.mark.parametrize("overflow", SPLIT)
async def test_a_sum_that_is_too_large_lowers_the_answer_first(
    overflow: str, given: int | None, stream: bool, tmp_path: Path
) -> None:
    brain = reading(6)
    with provider(brain, overflow, window=16_000, default_output=12_000) as server:
        model = chat(server, stream=stream, max_output_tokens=given)
        result = await Runner(Agent(model, tools=[read]), transcripts=tmp_path).run("Read.", session_id="s")
        assert result.output == "all read"
        assert result.compactions == ()
        refused = [at for at, request in enumerate(server.requests) if request.violations]
        assert len(refused) == 1
    at = refused[0]
    assert limit_of(server.bodies[at]) == given
    before, after = server.bodies[at], server.bodies[at + 1]
    assert before["messages"] == after["messages"]
    assert 4_000 < (limit_of(after) or 0) < 12_000
    later = [limit_of(body) or 99_999 for body in server.bodies[at + 1 :]]
    assert later == sorted(later, reverse=True), "each asks for what is left"


@pytest.mark.parametrize("asked", [16_000, 15_500, 14_000])
@pytest.mark.parametrize("overflow", ["vllm", "vllm-left", "vllm-characters"])
async def test_so_it_does_where_the_answer_asked_for_fills_the_window(
    overflow: str, asked: int, tmp_path: Path
) -> None:
    with provider(reading(6), overflow, window=16_000) as server:
        agent = Agent(chat(server, max_output_tokens=asked), tools=[read])
        result = await Runner(agent, transcripts=tmp_path).run("Read.", session_id="s")
        assert (result.output, result.compactions) == ("all read", ())
        assert len([request for request in server.requests if request.violations]) == 1
    assert (limit_of(server.bodies[-1]) or 0) > 9_000


async def test_it_is_remembered_for_later_runs(tmp_path: Path) -> None:
    with provider(reading(9), "vllm", window=16_000) as server:
        agent = Agent(chat(server, max_output_tokens=12_000), tools=[read], compaction=Compaction(micro=None))
        runner = Runner(agent, transcripts=tmp_path)
        await runner.run("Read.", session_id="s")
        await runner.run("And?", session_id="t")
        await runner.run("And?", session_id="s")
        assert len(server.refusals) == 1
    assert server.bodies[-2]["max_tokens"] == 12_000, "the whole is asked for where it fits"
    assert server.bodies[-1]["max_tokens"] < 12_000


async def test_without_compaction_the_answer_is_lowered_all_the_same(tmp_path: Path) -> None:
    with provider(reading(9), "vllm", window=16_000) as server:
        agent = Agent(chat(server, max_output_tokens=12_000), tools=[read], compaction=None)
        assert (await Runner(agent, transcripts=tmp_path).run("Read.", session_id="s")).output == "all read"
        assert len(server.refusals) == 1


@pytest.mark.deep
@pytest.mark.parametrize("overflow", SPLIT)
async def test_where_a_shorter_answer_is_not_enough_the_context_is_compacted(
    overflow: str, tmp_path: Path
) -> None:
    with provider(reading(40), overflow, window=12_000, factor=1.5) as server:
        agent = Agent(chat(server, max_output_tokens=2_000), tools=[read])
        result = await Runner(agent, transcripts=tmp_path).run("Read.", session_id="s")
        assert result.output == "all read"
        assert result.compactions
        assert len(server.refusals) <= 6


async def test_a_server_that_goes_on_refusing_gets_a_smaller_context_second(tmp_path: Path) -> None:
    vllm = OVERFLOWS["vllm"](16_000, 9_000, 12_000)
    refusals = iter([vllm, vllm])
    inner = reading(4)

    def answer(body: Body) -> Answered | str:
        if not asks_for_summary(body) and len(body["messages"]) > 8:
            return next(refusals, None) or inner(body)
        return inner(body)

    with StrictProvider(answer) as server:
        agent = Agent(chat(server, max_output_tokens=12_000), tools=[read])
        await Runner(agent, transcripts=tmp_path).run("Read.", session_id="s")
    asked = [body for body in server.bodies if not asks_for_summary(body)]
    at = next(at for at, body in enumerate(asked) if len(body["messages"]) > 8)
    assert asked[at]["messages"] == asked[at + 1]["messages"] != asked[at + 2]["messages"]
    assert len(str(asked[at + 2])) < len(str(asked[at + 1]))


@pytest.mark.parametrize(
    ("prompt", "answer", "window", "useful"),
    [
        (9_000, 8_000, 16_000, True),
        (14_900, 8_000, 16_000, True),
        (15_100, 8_000, 16_000, False),
        (900, 700, 1_024, False),
        (880, 700, 1_024, True),
        (15_000, 900, 16_000, False),
    ],
)
def test_what_is_left_must_be_useful(prompt: int, answer: int, window: int, useful: bool) -> None:
    told = ContextTooLongError("no", window=window, tokens=prompt + answer, output_tokens=answer)
    context = context_of([])
    budget = Budget(window=128_000, fixed=prompt, model="m", max_output_tokens=answer)
    lowered = with_shorter_answer(budget, context, told)
    assert (lowered is not None) == useful
    if lowered is not None:
        limit = lowered.longest_answer(context)
        assert limit is not None
        assert min(1_024, window // 8) * 0.8 <= limit < answer
        assert prompt + limit <= window
        assert lowered.fits(context)


@pytest.mark.parametrize("missing", ["window", "output_tokens"])
def test_what_is_not_named_lowers_nothing(missing: str) -> None:
    named: dict[str, int] = {"window": 16_000, "tokens": 17_000, "output_tokens": 8_000}
    del named[missing]
    budget = Budget(window=128_000, fixed=9_000, model="m", max_output_tokens=8_000)
    assert with_shorter_answer(budget, context_of([]), ContextTooLongError("no", **named)) is None
