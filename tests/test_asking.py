"""One answer of a model: what is stored of it, and when the model is asked again."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from agentloop import Agent, Message, Runner, ToolCall
from agentloop.errors import BadAnswerError, ContextTooLongError
from agentloop.models import Answer, ModelPart, ModelRequest, TextPart
from agentloop.prompts import NOT_RUN
from agentloop.stores import InMemoryStore
from agentloop.stream import MessageAdded, Retrying, TextDelta
from agentloop.testing import ScriptedModel, calls
from tests.counted_tool_kit import look, looking, ran
from tests.kit import assert_valid, watched


def call_of(path: str, call_id: str) -> ToolCall:
    return ToolCall(id=call_id, name="look", arguments=f'{{"path": "{path}"}}')


BLANKS = [
    Message.assistant(None),
    Message.assistant(" \n"),
    Message(role="assistant", content=None, extra={"reasoning_content": "Let me think."}),
]


@pytest.mark.parametrize("blank", BLANKS)
async def test_an_answer_with_neither_text_nor_call_is_asked_for_again(blank: Message) -> None:
    model = ScriptedModel(
        [Answer(message=blank, finish="stop"), calls(("look", {"path": "a"})), blank, "done"]
    )
    result = await looking(model).run("go")
    assert result.output == "done"
    assert len(model.requests) == 4
    assert model.requests[0].messages == model.requests[1].messages
    assert_valid(model.requests)


@pytest.mark.parametrize(
    ("finish", "why"),
    [("stop", "were empty"), ("length", "raise max_output_tokens"), ("content_filter", "withheld")],
)
async def test_three_empty_answers_in_a_row_end_the_run(finish: str, why: str) -> None:
    blank = Answer(message=Message.assistant(""), finish=finish)
    model = ScriptedModel([calls(("look", {"path": "a"})), blank, blank, blank])
    runner = looking(model)
    with pytest.raises(BadAnswerError, match=f"3 answers in a row .*{why}"):
        await runner.run("go", session_id="s")
    again = ScriptedModel(["at last"])
    result = await Runner(Agent(again, tools=[look]), store=runner.store, transcripts=None).resume("s")
    assert result.output == "at last"
    assert ran == {"a": 1}


@pytest.mark.parametrize("finish", ["length", "content_filter"])
async def test_calls_in_an_answer_that_was_cut_short_do_not_run(finish: str) -> None:
    cut = Message.assistant("", [call_of("a", "1"), call_of("b", "2")])
    model = ScriptedModel([Answer(message=cut, finish=finish), "done"])
    runner = looking(model)
    events = await watched(runner, "go")
    assert not ran
    assert [m["content"] for m in model.requests[1].messages if m["role"] == "tool"] == [NOT_RUN[finish]] * 2
    shown = [event.finish for event in events if isinstance(event, MessageAdded)]
    assert shown == [None, finish, None, None, "stop"]


IDS: list[tuple[list[list[str]], list[list[str]]]] = [
    ([["", ""], [""]], [["call_2", "call_3"], ["call_4"]]),
    ([["a", "a"], ["a", "b"]], [["a", "a_2"], ["a_3", "b"]]),
    ([["0"], ["0"], ["0_2"]], [["0"], ["0_2"], ["0_2_2"]]),
]


@pytest.mark.parametrize(("given", "stored"), IDS)
async def test_calls_get_ids_of_their_own_when_they_are_stored(
    given: list[list[str]], stored: list[list[str]]
) -> None:
    batches = [
        Message.assistant("", [call_of(f"{at}.{place}", name) for place, name in enumerate(batch)])
        for at, batch in enumerate(given)
    ]
    model = ScriptedModel([*batches[:-1], "first", batches[-1], "done"])
    runner = looking(model)
    await runner.run("go", session_id="s")
    result = await runner.run("on", session_id="s")
    assert all(count == 1 for count in ran.values())
    assert [[call.id for call in m.tool_calls] for m in result.messages if m.tool_calls] == stored
    assert_valid(model.requests)
    for message in model.requests[-1].messages:
        for call in message.get("tool_calls", ()):
            assert _result_of(model.requests[-1].messages, call["id"]) == _told(call)


async def test_an_id_used_before_a_restart_is_not_used_again() -> None:
    store = InMemoryStore()
    first = ScriptedModel([Message.assistant("", [call_of("a", "0")]), "done"])
    await looking(first, store).run("go", session_id="s")
    second = ScriptedModel([Message.assistant("", [call_of("b", "0")]), "done"])
    result = await looking(second, store).run("on", session_id="s")
    assert [call.id for m in result.messages for call in m.tool_calls] == ["0", "0_2"]
    assert second.requests[1].messages[-1] == {"role": "tool", "content": "seen b", "tool_call_id": "0_2"}


def _result_of(messages: tuple[Any, ...], call_id: str) -> Any:
    return next(m["content"] for m in messages if m.get("tool_call_id") == call_id)


def _told(call: Any) -> str:
    return f"seen {call['function']['arguments'].split(chr(34))[3]}"


class TooLongHalfWay(ScriptedModel):
    """Says that its second request is too long after it had begun to answer."""

    async def stream(self, request: ModelRequest, /) -> AsyncGenerator[ModelPart, None]:
        if len(self.requests) == 1:
            self.requests.append(request)
            yield TextPart(text="half of ")
            raise ContextTooLongError("too long", window=8_000, tokens=9_000)
        async with aclosing(super().stream(request)) as parts:
            async for part in parts:
                yield part


async def test_text_before_an_overflow_is_told_to_be_void() -> None:
    runner = looking(TooLongHalfWay(["noted", "the whole"]))
    await runner.run("word " * 6_000, session_id="s")
    events = await watched(runner, "and now?")
    shown = [event for event in events if isinstance(event, TextDelta | Retrying)]
    assert isinstance(shown[0], TextDelta)
    assert isinstance(shown[1], Retrying)
    assert "too long" in shown[1].error
    assert "".join(event.text for event in shown[2:] if isinstance(event, TextDelta)) == "the whole"
