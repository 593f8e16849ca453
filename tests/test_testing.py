"""The public test doubles: what a scripted model says, keeps and refuses."""

from collections.abc import Callable

import pytest

from agentloop.errors import ContextTooLongError, ModelUnavailableError, UsageError
from agentloop.messages import Message, Usage
from agentloop.models import Answer, ChatModel, ModelPart, ModelRequest, TextPart
from agentloop.stores import InMemoryStore
from agentloop.testing import FailingModel, Reply, ScriptedModel, ScriptUsedUpError, calls, store_contract


def asking(text: str, purpose: str = "agent") -> ModelRequest:
    message = {"role": "user", "content": text}
    return ModelRequest(messages=(message,), purpose=purpose)  # type: ignore[arg-type]


async def parts_of(model: ChatModel, request: ModelRequest) -> list[ModelPart]:
    return [part async for part in model.stream(request)]


async def message_of(model: ChatModel, request: ModelRequest) -> Message:
    answer = (await parts_of(model, request))[-1]
    assert isinstance(answer, Answer)
    return answer.message


async def test_replies_come_in_order_and_requests_are_kept() -> None:
    model = ScriptedModel(["one", "two"])
    assert (await message_of(model, asking("a"))).text == "one"
    assert (await message_of(model, asking("b"))).text == "two"
    assert [request.messages[0]["content"] for request in model.requests] == ["a", "b"]


async def test_text_streams_in_pieces_that_join_to_the_answer() -> None:
    text = "  Two words,\nand a line. \n"
    *pieces, answer = await parts_of(ScriptedModel([text]), asking("?"))
    assert len(pieces) > 3
    assert "".join(piece.text for piece in pieces if isinstance(piece, TextPart)) == text
    assert isinstance(answer, Answer)
    assert answer.message == Message.assistant(text)
    assert answer.finish == "stop"


def a_function(request: ModelRequest) -> Reply:
    return f"you said {request.messages[-1]['content']}"


async def a_coroutine(request: ModelRequest) -> Reply:
    return a_function


@pytest.mark.parametrize("reply", [a_function, a_coroutine])
async def test_a_function_of_the_request_may_answer(reply: Callable[[ModelRequest], Reply]) -> None:
    assert (await message_of(ScriptedModel([reply]), asking("hello"))).text == "you said hello"


async def test_calls_get_fresh_ids_and_finish_as_tool_calls() -> None:
    first, second = calls(("read_file", {"path": "é"}), add={"a": 2})
    assert first.id != second.id
    assert (first.name, first.arguments) == ("read_file", '{"path": "é"}')
    assert (second.name, second.arguments) == ("add", '{"a": 2}')
    (answer,) = await parts_of(ScriptedModel([[first, second]]), asking("go"))
    assert isinstance(answer, Answer)
    assert answer.message.tool_calls == (first, second)
    assert answer.finish == "tool_calls"


async def test_a_whole_answer_is_given_as_it_is() -> None:
    given = Answer(message=Message.assistant("cut o"), usage=Usage(input_tokens=7), finish="length")
    assert (await parts_of(ScriptedModel([given], usage=False), asking("?")))[-1] == given


async def test_usage_is_reported_or_not() -> None:
    *_, told = await parts_of(ScriptedModel(["ok"]), asking("hello " * 50))
    *_, silent = await parts_of(ScriptedModel(["ok"], usage=False), asking("hello"))
    assert isinstance(told, Answer)
    assert told.usage is not None
    assert 50 < told.usage.input_tokens < 70
    assert isinstance(silent, Answer)
    assert silent.usage is None


async def test_a_request_above_the_window_is_refused_and_uses_up_no_reply() -> None:
    model = ScriptedModel(["fits"], window=100)
    with pytest.raises(ContextTooLongError, match="the window is 100") as refused:
        await parts_of(model, asking("hello " * 200))
    assert refused.value.window == 100
    assert refused.value.tokens is not None
    assert refused.value.tokens > 200
    assert (await message_of(model, asking("hello"))).text == "fits"


async def test_the_wanted_output_counts_into_the_window() -> None:
    request = ModelRequest(messages=({"role": "user", "content": "hi"},), max_output_tokens=100)
    with pytest.raises(ContextTooLongError):
        await parts_of(ScriptedModel(["x"], window=100), request)


async def test_errors_are_raised_and_the_script_goes_on() -> None:
    model = ScriptedModel([ModelUnavailableError("busy"), "back"])
    with pytest.raises(ModelUnavailableError, match="busy"):
        await parts_of(model, asking("a"))
    assert (await message_of(model, asking("a"))).text == "back"


async def test_summaries_and_memories_do_not_use_up_the_script() -> None:
    model = ScriptedModel(["one"])
    first = (await message_of(model, asking("s", "summary"))).text
    second = (await message_of(model, asking("s", "summary"))).text
    assert first
    assert first != second
    assert (await message_of(model, asking("m", "memory"))).text == ""
    assert (await message_of(model, asking("a"))).text == "one"


async def test_a_summary_of_ones_own() -> None:
    model = ScriptedModel([], summary=a_function, memory="Ada")
    assert (await message_of(model, asking("all", "summary"))).text == "you said all"
    assert (await message_of(model, asking("all", "memory"))).text == "Ada"


async def test_a_used_up_script_says_so() -> None:
    with pytest.raises(ScriptUsedUpError, match=r"had 0 answers and was asked for one more.*hello"):
        await parts_of(ScriptedModel([]), asking("hello"))


@pytest.mark.parametrize("reply", [7, [], ["text"], None])
async def test_a_reply_of_no_known_kind_is_refused(reply: object) -> None:
    with pytest.raises(UsageError, match="a scripted answer must be"):
        await parts_of(ScriptedModel([reply]), asking("a"))  # type: ignore[list-item]


async def test_a_failing_model_fails_for_good() -> None:
    model = FailingModel(ModelUnavailableError("down"))
    for _ in range(3):
        with pytest.raises(ModelUnavailableError):
            await parts_of(model, asking("a"))
    assert len(model.requests) == 3


async def test_a_failing_model_recovers_after_its_failures() -> None:
    model = FailingModel(ModelUnavailableError("down"), times=1, then=ScriptedModel(["up"], window=4096))
    assert (model.name, model.window) == ("scripted", 4096)
    with pytest.raises(ModelUnavailableError):
        await parts_of(model, asking("a"))
    assert (await message_of(model, asking("a"))).text == "up"


def test_a_failing_model_that_stops_failing_needs_a_successor() -> None:
    with pytest.raises(UsageError, match="needs both"):
        FailingModel(ModelUnavailableError("down"), times=1)


async def test_the_contract_of_stores_is_part_of_it() -> None:
    await store_contract(InMemoryStore)
