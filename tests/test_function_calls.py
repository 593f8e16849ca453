"""Calls in the form before tool calls: of servers and of imports, kept as they came, sent as tool calls."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from agentloop import Agent, Answer, Message, ModelRequest, OpenAIChat, RetryPolicy, Runner
from agentloop.codec import decode, encode
from agentloop.context import wire_messages
from agentloop.events import MessageRecord, Record
from agentloop.messages import CallIds
from agentloop.sessions import to_openai
from agentloop.sessions.export import to_blocks
from agentloop.sessions.importing import parse
from agentloop.testing import ScriptedModel
from tests.kit import assert_valid, imported
from tests.strict_bodies import Body
from tests.strict_provider import StrictProvider
from tests.strict_replies import Raw, Reply, events

ONCE = RetryPolicy(attempts=1)
FUNCTION = {"name": "look", "arguments": '{"x": "1"}'}
CALL = {"index": 0, "id": "c1", "type": "function", "function": FUNCTION}


def look(x: str = "") -> str:
    """Look."""
    return f"saw {x}"


def len_of(message: Message) -> int:
    return len(message.text)


def choice(finish: str | None = None, **said: Any) -> Body:
    return {"choices": [{"index": 0, "finish_reason": finish, **said}]}


def in_pieces(text: str | None) -> Raw:
    pieces = [{"name": "look", "arguments": ""}, {"arguments": '{"x": '}, {"arguments": '"1"}'}]
    deltas = [{"role": "assistant", "content": text}, *({"function_call": piece} for piece in pieces)]
    return events(*(choice(delta=delta) for delta in deltas), choice("function_call", delta={}))


def in_one(text: str | None, **more: Any) -> Raw:
    message = {"role": "assistant", "content": text, "function_call": FUNCTION, **more}
    return Raw(
        pieces=[json.dumps(choice("function_call", message=message)).encode()],
        content_type="application/json",
    )


def mirrored(text: str | None) -> Raw:
    delta = {"content": text, "tool_calls": [CALL], "function_call": FUNCTION}
    return events(choice(delta=delta), choice("tool_calls", delta={"function_call": None}))


def mirrored_in_one(text: str | None) -> Raw:
    return in_one(text, tool_calls=[CALL])


def mirrored_behind(text: str | None) -> Raw:
    return mirrored_apart(text, {"tool_calls": [CALL]}, {"function_call": FUNCTION})


def mirrored_before(text: str | None) -> Raw:
    return mirrored_apart(text, {"function_call": FUNCTION}, {"tool_calls": [CALL]})


def mirrored_in_pieces(text: str | None) -> Raw:
    empty = {"name": "look", "arguments": ""}
    rest = {"arguments": FUNCTION["arguments"]}
    return mirrored_apart(
        text,
        {"tool_calls": [{**CALL, "function": empty}]},
        {"function_call": empty},
        {"tool_calls": [{"index": 0, "function": rest}]},
        {"function_call": rest},
    )


def mirrored_apart(text: str | None, *deltas: Body) -> Raw:
    said = [{"role": "assistant", "content": text}, *deltas]
    return events(*(choice(delta=delta) for delta in said), choice("tool_calls", delta={}))


MIRRORED = [mirrored, mirrored_in_one, mirrored_behind, mirrored_before, mirrored_in_pieces]


@pytest.mark.parametrize("text", [None, "Let me look."])
@pytest.mark.parametrize("answered", [in_pieces, in_one, *MIRRORED])
def test_a_function_call_of_a_server_is_run_and_sent_back_as_a_tool_call(
    answered: Any, text: str | None
) -> None:
    async def run(url: str) -> str:
        stream = answered not in (in_one, mirrored_in_one)
        model = OpenAIChat("m", base_url=url, api_key="sk-x", retry=ONCE, window="32k", stream=stream)
        result = await Runner(Agent(model, tools=[look]), transcripts=None).run("hi")
        await model.close()
        return result.output

    with StrictProvider([answered(text), Reply(text="done")]) as provider:
        assert asyncio.run(run(provider.url)) == "done"
    assert provider.refusals == []
    _, asked, result = provider.bodies[1]["messages"][-3:]
    assert asked["content"] == (text or "")
    (call,) = asked["tool_calls"]
    assert call["function"] == FUNCTION
    assert "function_call" not in asked
    assert (result["tool_call_id"], result["content"]) == (call["id"], "saw 1")


LEGACY: list[dict[str, Any]] = [
    {"role": "user", "content": "Look twice."},
    {"role": "assistant", "content": None, "function_call": FUNCTION},
    {"role": "function", "name": "look", "content": "saw 1"},
    {"role": "assistant", "content": "Again.", "function_call": {"name": "look", "arguments": {"x": "2"}}},
    {"role": "function", "name": "look", "content": "saw 2"},
    {"role": "assistant", "content": "Done."},
]


def test_a_history_with_function_calls_is_kept_as_it_is_and_sent_as_calls_with_their_results() -> None:
    messages = [Message.from_openai(data) for data in LEGACY]
    assert [message.to_openai() for message in messages] == LEGACY
    back = [
        decode(encode(MessageRecord(id="i", time=1.0, run_id="r", message=each, tokens=1)))
        for each in messages
    ]
    assert [event.message for event in back if isinstance(event, MessageRecord)] == messages
    sent = wire_messages(messages)
    assert_valid([ModelRequest(messages=sent)])
    results = {each["tool_call_id"]: each["content"] for each in sent if each["role"] == "tool"}
    calls = [call for each in sent for call in each.get("tool_calls") or ()]
    assert [results[call["id"]] for call in calls] == ["saw 1", "saw 2"]
    assert [json.loads(call["function"]["arguments"]) for call in calls] == [{"x": "1"}, {"x": "2"}]
    assert [each["role"] for each in sent].count("user") == 1, "none is shown as text"


def test_a_function_call_without_a_result_is_answered_as_interrupted() -> None:
    sent = wire_messages([Message.from_openai(data) for data in (*LEGACY[:2], *LEGACY[3:])])
    assert_valid([ModelRequest(messages=sent)])
    assert [each["content"] for each in sent if each["role"] == "tool"][1] == "saw 2"


@pytest.mark.parametrize(
    "said",
    [
        {"function_call": FUNCTION},
        {"tool_calls": [{"type": "function", "function": FUNCTION}]},
        {"tool_calls": [{"id": 5, "type": "function", "function": FUNCTION}]},
        {"tool_calls": {"id": None, "type": "function", "function": FUNCTION}},
    ],
)
def test_a_call_whose_id_is_ours_is_read_back_with_it(tmp_path: Path, said: dict[str, Any]) -> None:
    """A model of the user's own may answer with any dict; another process goes on with the session."""
    data = {"role": "assistant", "content": None, **said}
    asking = Answer(message=Message.from_openai(data), usage=None, finish="stop")
    model = ScriptedModel([asking, asking, "fin", "fin"])

    async def go(prompt: str) -> None:
        runner = Runner(Agent(model, tools=[look]), store=f"sqlite:///{tmp_path}/s.db", transcripts=None)
        await runner.run(prompt, session_id="s")

    asyncio.run(go("hi"))
    asyncio.run(go("again"))
    results = [each["content"] for each in model.requests[-1].messages if each["role"] == "tool"]
    assert results == ["saw 1", "saw 1"]
    assert_valid(model.requests)


@given(imported)
def test_whatever_ids_are_given_are_read_back(message: Message) -> None:
    known = CallIds(["", "a", "call_0", "call_1"])
    given_ids = known.of_message(message)
    back = Message.from_openai(json.loads(json.dumps(given_ids.to_openai())))
    assert [call.id for call in back.tool_calls] == [call.id for call in given_ids.tool_calls]
    assert all(call.id not in ("", "a", "call_0", "call_1") for call in back.tool_calls)
    answered = message.answering("other")
    assert Message.from_openai(answered.to_openai()).tool_call_id == "other"


def test_an_import_of_them_is_exported_as_it_was() -> None:
    events = parse(json.dumps(LEGACY), count=len_of)
    records = [Record(seq=seq, event=event) for seq, event in enumerate(events, 1)]
    assert to_openai(records) == LEGACY
    assert len(records) == len(LEGACY)
    text = "\n\n".join(to_blocks(records))
    assert "Calls `look`:" in text
    assert "Tool: result of `look`" in text
