"""The strict Responses API refuses what the real one refuses: each rule is broken once."""

from typing import Any

import pytest

from tests.strict_bodies import Body
from tests.strict_replies import Reply, calling
from tests.strict_responses import ResponsesSide, as_chat

HELLO: Body = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]}
CALL: Body = {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"}
OUTPUT: Body = {"type": "function_call_output", "call_id": "a", "output": "seen"}
THOUGHT: Body = {"type": "reasoning", "id": "rs_9", "summary": [], "encrypted_content": "x"}


def broken(*items: Any, side: ResponsesSide | None = None, **fields: Any) -> set[str]:
    body = {"model": "m", "input": list(items), "store": False, **fields}
    lines = (side or ResponsesSide()).violations(body, window=None, factor=1.0)
    return {line.split()[0] for line in lines}


def said(**fields: Any) -> Body:
    item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "yes"}]}
    return item | fields


@pytest.mark.parametrize(
    "items",
    [
        (HELLO,),
        (HELLO, CALL, OUTPUT),
        (HELLO, said(), CALL, OUTPUT, HELLO),
        (HELLO, THOUGHT, CALL, CALL | {"call_id": "b"}, OUTPUT | {"call_id": "b"}, OUTPUT),
        (HELLO, CALL, said(), OUTPUT),
    ],
)
def test_what_is_in_order_is_taken(items: tuple[Body, ...]) -> None:
    assert broken(*items) == set()


@pytest.mark.parametrize(
    ("rule", "items", "fields"),
    [
        ("R0", (), {}),
        ("R0", ("text",), {}),
        ("R0", (HELLO,), {"messages": []}),
        ("R0", (HELLO,), {"max_tokens": 5}),
        ("R1", (HELLO, OUTPUT), {}),
        ("R1", (HELLO, CALL), {}),
        ("R1", (HELLO, CALL, OUTPUT, OUTPUT), {}),
        ("R1", (HELLO, CALL, HELLO, OUTPUT), {}),
        ("R1", (HELLO, CALL, OUTPUT | {"type": "custom_tool_call_output"}), {}),
        ("R2", (HELLO, CALL, OUTPUT, CALL, OUTPUT), {}),
        ("R2", (HELLO, CALL | {"call_id": "x" * 65}, OUTPUT | {"call_id": "x" * 65}), {}),
        ("R2", (HELLO, CALL | {"id": "call_1"}, OUTPUT), {}),
        ("R2", (HELLO, said(id="fc_1")), {}),
        ("R2", (HELLO, said(id="msg_1"), said(id="msg_1")), {}),
        ("R3", (HELLO, CALL | {"arguments": '{"a'}, OUTPUT), {}),
        ("R3", (HELLO, CALL | {"arguments": {}}, OUTPUT), {}),
        ("R3", (HELLO, CALL | {"name": ""}, OUTPUT), {}),
        ("R4", (HELLO, said(reasoning_content="hm")), {}),
        ("R4", (HELLO, said(response_items=[])), {}),
        ("R4", (HELLO, said(content=[])), {}),
        ("R4", (HELLO, said(content="text of chat")), {}),
        ("R4", (HELLO, said(content=[{"type": "text", "text": "x"}])), {}),
        ("R4", (HELLO, said(role="user")), {}),
        ("R4", (HELLO, said(status=None)), {}),
        ("R4", ({"role": "user", "content": "x"},), {}),
        ("R4", (HELLO, {"type": "tool", "call_id": "a"}), {}),
        ("R4", (HELLO, HELLO | {"role": "system"}), {}),
        ("R4", (HELLO, {"type": "reasoning", "id": "rs_1", "encrypted_content": "x"}, said()), {}),
        ("R4", (HELLO,), {"tools": [{"type": "function", "function": {"name": "look"}}]}),
        ("R4", (HELLO,), {"tools": [{"type": "function", "name": "look"}]}),
        ("R4", (HELLO,), {"instructions": ["x"]}),
        ("R5", (HELLO, THOUGHT), {}),
        ("R5", (HELLO, CALL, THOUGHT, OUTPUT), {}),
        ("R6", (HELLO, THOUGHT | {"encrypted_content": ""}, said()), {}),
        ("R6", (HELLO,), {"previous_response_id": "resp_1"}),
        ("V6", (HELLO, said(content=[{"type": "output_text", "text": "\ud800"}])), {}),
    ],
)
def test_each_rule_can_be_broken(rule: str, items: tuple[Any, ...], fields: Body) -> None:
    assert rule in broken(*items, **fields)


def test_reasoning_that_was_sent_must_come_back_as_it_was_and_where_it_was() -> None:
    side = ResponsesSide()
    thought, call = side.output(Reply(reasoning="why", calls=(calling("look", "a"),)))
    call = call | {"arguments": "{}"}
    assert broken(HELLO, thought, call, OUTPUT, side=side) == set()
    assert broken(HELLO, call, OUTPUT, side=side) == {"R5"}
    assert broken(HELLO, thought, said(), call, OUTPUT, side=side) == {"R5"}
    assert broken(HELLO, thought | {"encrypted_content": "forged"}, call, OUTPUT, side=side) == {"R5"}
    assert broken(HELLO, thought | {"summary": []}, call, OUTPUT, side=side) == {"R5"}
    bare = {key: value for key, value in call.items() if key != "id"}
    assert broken(HELLO, bare, OUTPUT, side=side) == set()


def test_a_window_is_held_by_the_servers_own_count() -> None:
    body = {"input": [HELLO, THOUGHT | {"encrypted_content": "x" * 4_000}, said()], "store": False}
    side = ResponsesSide()
    assert side.violations(body, window=2_000, factor=1.0) == []
    assert [line.split()[0] for line in side.violations(body, window=1_000, factor=1.0)] == ["V10"]
    assert side.violations(body | {"max_output_tokens": 1_000}, window=2_000, factor=1.0) != []


def test_brains_see_the_request_as_chat_completions_have_it() -> None:
    tool = {"type": "function", "name": "look", "strict": False}
    body = {
        "model": "m",
        "instructions": "Be.",
        "input": [HELLO, THOUGHT, said(), CALL, OUTPUT],
        "tools": [tool],
    }
    assert as_chat(body | {"max_output_tokens": 7}) == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be."},
            {"role": "user", "content": "Hello"},
            {
                "role": "assistant",
                "content": "yes",
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
                ],
            },
            {"role": "tool", "tool_call_id": "a", "content": "seen"},
        ],
        "tools": [{"type": "function", "function": {"name": "look", "strict": False}}],
        "max_tokens": 7,
    }
