"""What came in the stream of a response counts, whatever its end leaves out, leaves empty or says twice."""

from typing import Any

import pytest

from agentloop.stream import Retrying
from tests.counted_tool_kit import looking, ran, watched_texts
from tests.kit import watched
from tests.responses_kit import (
    begun,
    call_item,
    delta,
    ended,
    finished,
    message_item,
    responses,
    text_part,
    thought,
    told,
    whole_of,
)
from tests.server_kit import answer_of, parts_of, shown_in
from tests.strict_bodies import Body
from tests.strict_provider import StrictProvider
from tests.strict_responses import Output

HELLO = message_item(1, text_part("hello"))
EMPTY = message_item(1, text_part(""))
HOLLOW = message_item(1)
PATH = '{"path": "one"}'
CALL = call_item(1, PATH)
BARE = call_item(1, "")
THOUGHT = thought(1, "hm")


def arguments_delta(text: str = PATH) -> Body:
    return {
        "type": "response.function_call_arguments.delta",
        "item_id": "fc_1",
        "output_index": 0,
        "delta": text,
    }


def text_done(text: str) -> Body:
    return {"type": "response.output_text.done", "item_id": "msg_1", "output_index": 0, "text": text}


def items_told(*items: Body) -> list[Body]:
    return [finished(item, at) for at, item in enumerate(items)]


ENDS: dict[str, tuple[list[Body], list[Body]]] = {
    "a message left out": ([*items_told(THOUGHT, HELLO), ended(output=[THOUGHT])], [THOUGHT, HELLO]),
    "a hollow message": ([*items_told(THOUGHT, HELLO), ended(output=[THOUGHT, HOLLOW])], [THOUGHT, HELLO]),
    "a message without its text": ([*items_told(HELLO), ended(output=[EMPTY])], [HELLO]),
    "its id is another one": (
        [*items_told(HELLO), ended(output=[EMPTY | {"id": "msg_9"}])],
        [HELLO | {"id": "msg_9"}],
    ),
    "all but the call": ([*items_told(THOUGHT, HELLO, CALL), ended(output=[CALL])], [THOUGHT, HELLO, CALL]),
    "reasoning left out between two": (
        [*items_told(HELLO, THOUGHT, CALL), ended(output=[HELLO, CALL])],
        [HELLO, THOUGHT, CALL],
    ),
    "a call without its arguments": ([begun(BARE), arguments_delta(), ended(output=[BARE])], [CALL]),
    "the item's own end without them": ([begun(BARE), arguments_delta(), finished(BARE), ended()], [CALL]),
    "and nothing announced it": ([arguments_delta(), finished(BARE), ended()], [CALL]),
    "the item's own end without its text": (
        [begun(HOLLOW), delta("hello"), finished(HOLLOW), ended()],
        [HELLO],
    ),
    "a part's own end without its text": (
        [
            begun(HOLLOW),
            {"type": "response.content_part.added", "item_id": "msg_1", "part": text_part("")},
            delta("hel"),
            delta("lo"),
            text_done(""),
            {"type": "response.content_part.done", "item_id": "msg_1", "part": text_part("")},
            ended(),
        ],
        [HELLO],
    ),
    "the whole text and no piece of it": ([begun(HOLLOW), text_done("hello"), ended()], [HELLO]),
    "fewer arguments": ([*items_told(CALL), ended(output=[call_item(1, "{}")])], [CALL]),
    "more than came": ([begun(HOLLOW), delta("hel"), ended(output=[HELLO, CALL])], [HELLO, CALL]),
}  # fmt: skip


def plain(message: Any) -> list[Any]:
    """What a message says, and the types of its items."""
    calls = [(call.id, call.name, call.arguments) for call in message.tool_calls]
    return [message.text, calls, [item["type"] for item in message.extra["response_items"]]]


@pytest.mark.parametrize("name", ENDS)
async def test_what_came_counts_whatever_the_end_leaves_out_or_empty(name: str) -> None:
    happened, items = ENDS[name]
    with StrictProvider([told(*happened)]) as server:
        parts = await parts_of(responses(server))
    answer = parts[-1]
    assert plain(answer.message) == plain(whole_of(items).message)  # type: ignore[union-attr]
    if "hel" in shown_in(parts):
        assert shown_in(parts) == answer.message.text  # type: ignore[union-attr]


async def test_a_text_that_only_the_end_lacks_is_told_once_and_the_model_is_not_asked_again() -> None:
    raw = told(begun(HOLLOW), delta("hello"), finished(HELLO), ended(output=[EMPTY]))
    with StrictProvider([raw]) as server:
        seen = await watched(looking(responses(server)), "go")
    assert watched_texts(seen) == ["hello"]
    assert not [event for event in seen if isinstance(event, Retrying)]
    assert len(server.requests) == 1


async def test_a_call_whose_end_lacks_the_arguments_runs_with_them() -> None:
    raw = told(begun(BARE), arguments_delta(), finished(BARE), ended(output=[THOUGHT, BARE]))
    with StrictProvider([raw, "done"]) as server:
        assert (await looking(responses(server)).run("go")).output == "done"
    assert ran == {"one": 1}
    assert server.refusals == []


TWICE: list[tuple[list[Body], dict[str, int]]] = [
    ([CALL, CALL], {"one": 1}),
    ([CALL, CALL | {"arguments": '{"path": "two"}'}], {"one": 1, "two": 1}),
    ([CALL, CALL | {"arguments": '{"path": "two"}'}, CALL], {"one": 2, "two": 1}),
    ([CALL, call_item(2, PATH)], {"one": 2}),
    ([CALL | {"call_id": ""}] * 2, {"one": 2}),
]


@pytest.mark.parametrize(("items", "times"), TWICE, ids=range(len(TWICE)))
async def test_a_call_said_twice_by_its_ids_runs_once(
    items: list[Body], times: dict[str, int], stream: bool
) -> None:
    said: Any = told(ended(output=items)) if stream else Output(items=tuple(items))
    with StrictProvider([said, "done"]) as server:
        assert (await looking(responses(server, stream=stream)).run("go")).output == "done"
    assert ran == times
    assert server.refusals == []


ARGUMENTS: list[tuple[object, str, str]] = [
    ("null", "nowhere", "{}"),
    (None, "nowhere", "{}"),
    ("", "nowhere", "{}"),
    ({}, "nowhere", "{}"),
    ({"path": "one"}, "one", PATH),
    (PATH * 2, "one", PATH),
    (f"{{}}{PATH}", "one", PATH),
    (f"{{}} {PATH}\n{PATH}", "one", PATH),
]


@pytest.mark.parametrize(("arguments", "path", "sent"), ARGUMENTS, ids=range(len(ARGUMENTS)))
async def test_arguments_are_taken_as_chat_completions_take_them(
    arguments: Any, path: str, sent: str, stream: bool
) -> None:
    item = call_item(1, arguments)
    said: Any = told(finished(item), ended()) if stream else Output(items=(item,))
    with StrictProvider([said, "done"]) as server:
        assert (await looking(responses(server, stream=stream)).run("go")).output == "done"
    assert ran == {path: 1}
    assert [item["arguments"] for item in server.bodies[1]["input"] if "arguments" in item] == [sent]
    assert server.refusals == []


@pytest.mark.parametrize("arguments", [[], 0, False])
async def test_arguments_that_are_no_object_run_nothing(arguments: Any) -> None:
    with StrictProvider([told(finished(call_item(1, arguments)), ended()), "done"]) as server:
        assert (await looking(responses(server)).run("go")).output == "done"
    assert not ran
    assert server.refusals == []


async def test_a_call_in_pieces_that_say_all_twice() -> None:
    raw = told(begun(BARE), arguments_delta(), arguments_delta(), ended())
    with StrictProvider([raw]) as server:
        assert (await answer_of(responses(server))).message.tool_calls[0].arguments == PATH
