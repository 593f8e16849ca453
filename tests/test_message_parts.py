"""What a message is made of, however its maker gives it: parts and calls as lists, or what is neither."""

import asyncio
from typing import Any

import pytest

from agentloop import Agent, Message, Runner, ToolCall, UsageError
from agentloop.testing import ScriptedModel

PART = {"type": "text", "text": "What is this?"}
CALL = ToolCall(id="c", name="look")


def test_parts_in_a_list_are_parts() -> None:
    given: Any = [PART, "plain"]
    message = Message(role="user", content=given)
    given.clear()
    assert message == Message(role="user", content=(PART, {"type": "text", "text": "plain"}))
    assert message == Message(role="user", content=(PART, "plain"))  # type: ignore[arg-type]
    assert message.text == "What is this?\nplain"
    assert Message.from_openai(message.to_openai()) == message


def test_calls_in_a_list_are_calls() -> None:
    given: Any = [CALL]
    assert Message(role="assistant", tool_calls=given) == Message.assistant(tool_calls=(CALL,))


def test_a_run_takes_parts_in_a_list() -> None:
    model, given = ScriptedModel(["A door."]), Message(role="user", content=[PART])  # type: ignore[arg-type]
    result = asyncio.run(Runner(Agent(model), transcripts=None).run(given))
    assert result.output == "A door."
    assert model.requests[0].messages[-1]["content"] == [PART]


@pytest.mark.parametrize("content", [5, b"bytes", {"type": "text"}, {PART["text"]}, object()])
def test_what_is_no_content_is_one_clear_error(content: Any) -> None:
    with pytest.raises(UsageError, match=r"^the content of a message must be text, a list of parts, or None"):
        Message(role="user", content=content)


@pytest.mark.parametrize("calls", ["look", None, [{"id": "c"}], CALL])
def test_what_are_no_calls_is_one_clear_error(calls: Any) -> None:
    with pytest.raises(UsageError, match=r"^the calls of a message must be a list of ToolCalls"):
        Message(role="assistant", tool_calls=calls)
