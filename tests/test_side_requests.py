"""What is set for the agent's requests reaches no other, and what others are refused is not the agent's."""

from collections.abc import Mapping
from typing import Any

import pytest

from agentloop.context import wire_messages
from agentloop.messages import Message, ToolCall
from agentloop.models import ModelRequest, Purpose
from agentloop.providers.openai.fields import fields_for
from tests.server_kit import LOOK, answer_of, chat
from tests.strict_bodies import Body
from tests.strict_provider import StrictProvider
from tests.strict_replies import Answered, invalid

SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
SET = {"tool_choice": "required", "parallel_tool_calls": False, "response_format": SCHEMA, "top_p": 0.5}
CALL = Message.assistant(tool_calls=[ToolCall(id="c", name="look")])
RESULT = Message.tool("c", "seen")


def asked(*said: Message, tools: bool = True, purpose: Purpose = "agent") -> ModelRequest:
    return ModelRequest(messages=wire_messages(said), tools=(LOOK,) if tools else (), purpose=purpose)


def sent(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: body[name] for name in SET if name in body}


async def test_what_is_set_for_answers_and_calls_goes_with_the_agents_requests_alone() -> None:
    user = Message.user("go")
    with StrictProvider(["one", "two", "three", "four"]) as server:
        model = chat(server, extra_body=SET)
        await answer_of(model, asked(user))
        await answer_of(model, asked(user, CALL, RESULT))
        await answer_of(model, asked(user, tools=False, purpose="summary"))
        await answer_of(model, asked(user, CALL, RESULT, Message.assistant("done"), user))
    lets_go = {name: SET[name] for name in SET if name != "tool_choice"}
    assert list(map(sent, server.bodies)) == [SET, lets_go, {"top_p": 0.5}, SET]


@pytest.mark.parametrize(
    ("choice", "stays"),
    [
        ("auto", True),
        ("none", True),
        ("required", False),
        ({"type": "function", "function": {"name": "look"}}, False),
        ({"type": "allowed_tools", "mode": "auto", "tools": []}, True),
    ],
)
@pytest.mark.whole
def test_a_forced_call_lets_go_after_the_first(choice: object, stays: bool) -> None:
    request = asked(Message.user("go"), CALL, RESULT)
    assert ("tool_choice" in fields_for({"tool_choice": choice}, request)) is stays


@pytest.mark.parametrize("given", [{}, {"tool_choice": "required"}, SET])
def test_another_request_that_offers_tools_has_none_called(given: dict[str, Any]) -> None:
    fields = fields_for(given, asked(Message.user("go"), purpose="summary"))
    assert fields == {name: given[name] for name in given.keys() & {"top_p"}} | {"tool_choice": "none"}


def test_of_responses_the_format_alone_stays_behind() -> None:
    text = {"format": {"type": "json_object"}, "verbosity": "low"}
    side = fields_for(
        {"text": text, "tools": [{"type": "web_search"}]}, asked(tools=False, purpose="summary")
    )
    assert side == {"text": {"verbosity": "low"}}


async def test_what_a_side_request_is_refused_changes_nothing_for_the_agent(stream: bool) -> None:
    def brain(body: Body) -> Answered | str:
        is_summary = body["messages"][0]["content"] == "summary"
        return invalid(400, "Unknown parameter: 'top_p'.") if is_summary and "top_p" in body else "ok"

    with StrictProvider(brain) as server:
        model = chat(server, extra_body={"top_p": 0.5}, stream=stream)
        for text, purpose in (("summary", "summary"), ("go", "agent"), ("summary", "summary")):
            await answer_of(model, asked(Message.user(text), tools=False, purpose=purpose))  # type: ignore[arg-type]
    assert ["top_p" in body for body in server.bodies] == [True, False, True, False]


async def test_what_the_agent_is_refused_is_known_to_side_requests() -> None:
    def brain(body: Body) -> Answered | str:
        return invalid(400, "Unknown parameter: 'top_p'.") if "top_p" in body else "ok"

    with StrictProvider(brain) as server:
        model = chat(server, extra_body={"top_p": 0.5})
        await answer_of(model, asked(Message.user("go")))
        await answer_of(model, asked(Message.user("sum"), tools=False, purpose="summary"))
    assert ["top_p" in body for body in server.bodies] == [True, False, False]
