"""Two requests at once: what one of them leaves out in vain goes back, what the other one found stays."""

import pytest

from agentloop.context import wire_messages
from agentloop.errors import ModelRefusedError
from agentloop.messages import Message
from agentloop.models import ModelRequest, TextPart
from tests.server_kit import answer_of, chat, error_of
from tests.strict_bodies import Body
from tests.strict_provider import StrictProvider
from tests.strict_replies import Answered, events, invalid

THOUGHT = Message.from_openai({"role": "assistant", "content": "Hi", "reasoning_content": "hm"})
FLAGGED = invalid(400, "The prompt was flagged.")
UNKNOWN = invalid(400, "Reasoning input is not enabled for this model")


def asked(text: str) -> ModelRequest:
    return ModelRequest(messages=wire_messages([Message.user(text), THOUGHT, Message.user("And?")]))


def thinks(body: Body) -> bool:
    return any("reasoning_content" in message for message in body["messages"])


def returns(body: Body) -> tuple[str, bool]:
    return body["messages"][0]["content"], thinks(body)


async def test_a_refusal_for_another_reason_gives_up_nothing_that_was_found_beside_it() -> None:
    begun = {"choices": [{"index": 0, "delta": {"content": "Half"}}]}
    broken = events(begun, {"error": {"message": "It was flagged.", "code": 400}}, done=False)

    def brain(body: Body) -> Answered | str:
        if body["messages"][0]["content"] == "bad":
            return broken
        return UNKNOWN if thinks(body) else "ok"

    with StrictProvider(brain) as server:
        model = chat(server)
        bad = model.stream(asked("bad"))
        assert await anext(bad) == TextPart(text="Half")
        await answer_of(model, asked("beside"))
        with pytest.raises(ModelRefusedError, match="flagged"):
            await anext(bad)
        await answer_of(model, asked("later"))
    assert list(map(returns, server.bodies)) == [
        ("bad", True),
        ("beside", True),
        ("beside", False),
        ("later", False),
    ]


async def test_what_a_try_left_out_in_vain_is_sent_again_by_the_next() -> None:
    said = iter([UNKNOWN, FLAGGED])
    with StrictProvider(lambda _: next(said, "ok")) as server:
        model = chat(server)
        assert isinstance(await error_of(model, asked("bad")), ModelRefusedError)
        await answer_of(model, asked("later"))
    assert list(map(returns, server.bodies)) == [("bad", True), ("bad", False), ("later", True)]


async def test_what_was_left_out_before_a_spoilt_answer_stays_out() -> None:
    spoilt = invalid(400, "Failed to call a function.", code="tool_use_failed")
    said = iter([UNKNOWN, spoilt])
    with StrictProvider(lambda _: next(said, "ok")) as server:
        model = chat(server)
        await error_of(model, asked("bad"))
        await answer_of(model, asked("later"))
    assert list(map(returns, server.bodies)) == [("bad", True), ("bad", False), ("later", False)]
