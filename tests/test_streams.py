"""Streams as servers word them: in each shape the reply is the same, and of a broken one nothing runs."""

import json
import random
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agentloop.errors import BadAnswerError, ModelUnavailableError
from agentloop.messages import Message
from agentloop.models import Answer, ModelPart, TextPart
from agentloop.providers.openai.chat import GrowingCompletion
from agentloop.providers.openai.sse import streamed
from agentloop.stream import MessageAdded, Retrying
from tests.counted_tool_kit import ran, runner_of, watched_texts
from tests.kit import watched
from tests.strict_bodies import Body
from tests.strict_provider import StrictProvider
from tests.strict_replies import Answered, Brain, Call, Drop, Raw, Reply, calling, events
from tests.strict_shapes import CHOICES, PLAIN, Shape
from tests.strict_streams import chunk_of, shaped

BODY = {"model": "strict", "stream": True}
USAGE = {"prompt_tokens": 90, "completion_tokens": 40, "prompt_tokens_details": {"cached_tokens": 30}}

ODD_TEXT = st.text(max_size=40) | st.sampled_from(
    ["", "🙂🙃", 'a\\n"b"\\\\', "nul\x00\u2028\x85\r\n\t", "half \ud83d", "\udc00 half", "e\u0301👩‍👩‍👧"]
)
OBJECTS = st.dictionaries(st.sampled_from(["path", "{", '"', "é🙂"]), ODD_TEXT | st.integers(), max_size=2)
ARGUMENTS = st.builds(json.dumps, OBJECTS, ensure_ascii=st.booleans(), indent=st.sampled_from([None, 1]))
BROKEN_ARGUMENTS = st.sampled_from(["", " ", '{"path": "', "[]", "5", '{"a": 1}{"b": 2}', '{"x": "}'])
SAME_IDS = st.sampled_from(["", "call_0", "look", "a"])


@st.composite
def replies(draw: st.DrawFn) -> Reply:
    arguments = ARGUMENTS if draw(st.booleans()) else ARGUMENTS | BROKEN_ARGUMENTS
    one = st.builds(Call, name=st.sampled_from(["look", "read_file", "f"]), arguments=arguments)
    two = st.builds(Call, name=st.just("look"), arguments=ARGUMENTS, id=SAME_IDS)
    calls = draw(st.lists(one | two, max_size=4, unique_by=lambda call: (call.id, call.arguments.strip())))
    return Reply(
        text=draw(ODD_TEXT),
        calls=tuple(calls),
        reasoning=draw(ODD_TEXT) or None,
        finish=draw(st.sampled_from([None, None, "stop", "length"])),
        extra={"signature": "s=="} if draw(st.booleans()) else {},
        piece_chars=draw(st.integers(1, 9)),
    )


async def pieces_of(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def understood(pieces: Iterable[bytes]) -> tuple[str, Answer]:
    """The texts of the deltas end to end, and the answer."""
    parts: list[ModelPart] = [part async for part in streamed(GrowingCompletion(), pieces_of(pieces))]
    *texts, answer = parts
    assert isinstance(answer, Answer)
    return "".join(part.text for part in texts if isinstance(part, TextPart)), answer


def in_one_piece(reply: Reply, usage: Body | None) -> Answer:
    choice = {"index": 0, "message": reply.message(), "finish_reason": reply.finish_reason}
    body = chunk_of(BODY, choices=[choice]) | ({} if usage is None else {"usage": usage})
    return GrowingCompletion.whole(json.dumps(body).encode())


def seen(message: Message, reply: Reply, shape: Shape) -> dict[str, Any]:
    """The message as it must look in this shape, from what it looks like in one piece."""
    data = message.to_openai()
    for number, call in enumerate(data.get("tool_calls", ())):
        call["id"] = shape.for_reply(reply).id_seen(reply, number)
    return data


@given(replies(), st.integers(0, 2**32), st.sampled_from([USAGE, None]))
@pytest.mark.many(120)
async def test_every_shape_says_the_same(reply: Reply, seed: int, usage: Body | None) -> None:
    chance = random.Random(seed)
    shape = Shape.drawn(chance)
    ids = [shape.for_reply(reply).id_seen(reply, number) for number in range(len(reply.calls))]
    said = {(id_, call.arguments.strip()) for id_, call in zip(ids, reply.calls, strict=True)}
    assume(len(said) == len(ids))  # a call that is said again under its id is one call
    text, answer = await understood(shaped(BODY, reply, usage, shape, chance))
    plain = in_one_piece(reply, usage)
    assert answer.message.to_openai() == seen(plain.message, reply, shape)
    assert text == answer.message.text
    assert answer.usage == plain.usage
    json.dumps(answer.message.to_openai(), ensure_ascii=False).encode()


def each_alone() -> Iterable[Shape]:
    """OpenAI's own way with one thing otherwise, for each thing."""
    for field, values in CHOICES.items():
        for value in values:
            if value != getattr(PLAIN, field):
                yield replace(PLAIN, **{field: value})


def named(shape: Shape) -> str:
    return next(
        f"{name}={getattr(shape, name)}" for name in CHOICES if getattr(shape, name) != getattr(PLAIN, name)
    )


def batches(texts: Sequence[str]) -> list[Answered | str]:
    """Two batches of calls, one of them of two that are alike in all but one character, then an answer."""
    return [
        Reply(text=texts[0], calls=(calling("look", path="1\n🙂"), calling("look", path="1\n🙃"))),
        Reply(calls=(calling("look", path='"{}\\'),), reasoning="so 🙂"),
        Reply(text=texts[1], piece_chars=3),
    ]


PATHS = {"1\n🙂": 1, "1\n🙃": 1, '"{}\\': 1}


@pytest.mark.parametrize("shape", list(each_alone()), ids=named)
async def test_a_run_on_a_server_of_that_shape(shape: Shape) -> None:
    with StrictProvider(batches(["I look. ", "Both 🙂 seen."]), shape=shape) as server:
        seen_events = await watched(runner_of(server), "go")
    assert ran == PATHS
    assert watched_texts(seen_events) == ["I look. ", "", "Both 🙂 seen."]
    assert server.refusals == []
    assert len(server.requests) == 3


@given(st.integers(0, 2**32))
@pytest.mark.many(15)
async def test_a_run_on_a_server_that_words_each_answer_otherwise(seed: int) -> None:
    chance = random.Random(seed)
    shapes = [Shape.drawn(chance) for _ in range(3)]
    with StrictProvider(batches(["I look. ", "Seen."]), shape=lambda number: shapes[number - 1]) as server:
        seen_events = await watched(runner_of(server), "go")
    assert ran == PATHS
    assert watched_texts(seen_events) == ["I look. ", "", "Seen."]
    assert server.refusals == []


CALLING = Reply(text="I look. ", calls=(calling("look", path="one"), calling("look", path="two")))
DROPPED = [
    PLAIN,
    Shape(interleaved=True, empty_chunks=True, comments=True),
    Shape(index="absent", ids="missing", unfinished="empty", usage="before_finish"),
    Shape(index="zero", arguments="chars", names="repeated", finish="absent", lines="crlf"),
    Shape(one_delta=True, finish="stop_for_calls", usage="each_chunk"),
    Shape(arguments="doubled", bytes_="random_cuts", multi_line=True),
    Shape(finish="each", usage="in_choice"),
]


def dropping(waiting: list[Drop]) -> Brain:
    """Asks for the calls, dropped as often as there are drops, and answers their results."""

    def answer(body: Body) -> Answered | str:
        if body["messages"][-1]["role"] == "tool":
            return "done"
        return waiting.pop(0) if waiting else CALLING

    return answer


@pytest.mark.deep
@pytest.mark.parametrize("shape", DROPPED, ids=range(len(DROPPED)))
@pytest.mark.parametrize("reset", [False, True], ids=["cut", "reset"])
async def test_a_drop_at_any_place_runs_each_call_once_and_shows_the_text_once(
    shape: Shape, reset: bool
) -> None:
    length = len(shaped(BODY, CALLING, USAGE, shape, random.Random(1)))
    for kept in range(0, length + 1, 1 + length // 10):
        dropped = [Drop(reply=CALLING, events=kept, reset=reset)]
        with StrictProvider(dropping(dropped), shape=shape) as server:
            seen_events = await watched(runner_of(server), "go")
        result = [event.message for event in seen_events if isinstance(event, MessageAdded)]
        assert ran == {"one": 1, "two": 1}, f"after {kept} of {length}"
        assert [message.role for message in result] == ["user", "assistant", "tool", "tool", "assistant"]
        assert watched_texts(seen_events) == ["I look. ", "done"]
        assert server.refusals == []


def choice(delta: object = None, **fields: object) -> Body:
    return {"choices": [{"index": 0} | ({} if delta is None else {"delta": delta}) | fields]}


def fragment(arguments: str = "", **fields: Any) -> Body:
    function = {"arguments": arguments} | ({"name": fields.pop("name")} if "name" in fields else {})
    return choice({"tool_calls": [fields | {"function": function}]})


BEGUN = (choice({"content": "I lo"}), fragment('{"path": "one"}', index=0, id="a", name="look"))


async def test_without_finish_and_done_nothing_runs() -> None:
    open_ended = events(*BEGUN, done=False)
    with StrictProvider([open_ended] * 3) as server:
        runner = runner_of(server, attempts=3)
        with pytest.raises(ModelUnavailableError, match="broke off"):
            await runner.run("go", session_id="s")
    assert not ran
    with StrictProvider(["fine"]) as server:
        result = await runner_of(server).run("again", session_id="s")
    assert result.output == "fine"


@pytest.mark.parametrize("word", [None, "", "null", "none", 5])
async def test_a_word_for_no_reason_yet_ends_no_answer(word: object) -> None:
    begun = events(
        *({"choices": [{**chunk["choices"][0], "finish_reason": word}]} for chunk in BEGUN), done=False
    )
    with StrictProvider([begun, "whole"]) as server:
        assert (await runner_of(server).run("go")).output == "whole"
    assert not ran


HALF_WAY: list[tuple[str, list[bytes]]] = [
    ("in a chunk", [b'data: {"error": {"message": "odd", "type": "server_error"}}\n\n']),
    ("in a choice", [b'data: {"choices": [{"index": 0, "error": {"code": 502, "message": "gone"}}]}\n\n']),
    ("finish reason error", [b'data: {"choices": [{"delta": {}, "finish_reason": "error"}]}\n\n']),
    ("an event", [b'event: error\ndata: {"message": "busy", "type": "overloaded_error"}\n\n']),
    ("an event of plain text", [b"event: error\ndata: upstream is gone\n\n"]),
    ("plain text", [b"data: upstream connect error\n\n"]),
    ("a field", [b'error: {"code": 503, "message": "Loading"}\n\n']),
    ("an event without words", [b'event: error\ndata: {"code": 503}\n\n']),
    ("a chunk without choices", [b'data: {"code": 500, "message": "gone", "data": null}\n\n']),
]


@pytest.mark.parametrize("error", [error for _, error in HALF_WAY], ids=[name for name, _ in HALF_WAY])
async def test_an_error_half_way_doubles_nothing(error: list[bytes]) -> None:
    broken = Raw(pieces=(*events(*BEGUN, done=False).pieces, *error, b"data: [DONE]\n\n"))
    with StrictProvider([broken, broken, CALLING, "done"]) as server:
        seen_events = await watched(runner_of(server), "go")
    assert ran == {"one": 1, "two": 1}
    assert watched_texts(seen_events) == ["I look. ", "done"]
    assert [event.attempt for event in seen_events if isinstance(event, Retrying)] == [1, 2]
    assert server.refusals == []


MERGED: list[tuple[str, list[Body], list[tuple[str, str, str]]]] = [
    (
        "a name repeated behind closed arguments is no further call",
        [fragment('{"x": 1}', name="f", index=0), fragment("", name="f", index=0)],
        [("", "f", '{"x": 1}')],
    ),
    (
        "but it is one where arguments follow",
        [fragment("{}", name="f"), fragment("", name="f"), fragment('{"x"'), fragment(": 2}")],
        [("", "f", "{}"), ("", "f", '{"x": 2}')],
    ),
    (
        "another name behind closed arguments is one, also without arguments",
        [fragment("{}", name="f"), fragment("", name="now")],
        [("", "f", "{}"), ("", "now", "")],
    ),
    (
        "another name behind arguments that were cut off is another call",
        [fragment('{"x": "', name="f", index=0), fragment("{}", name="g", index=0)],
        [("", "f", '{"x": "'), ("", "g", "{}")],
    ),
    (
        "a call in one delta with its like is another one",
        [choice({"tool_calls": [{"function": {"name": "f", "arguments": ""}}] * 2})],
        [("", "f", ""), ("", "f", "")],
    ),
    (
        "an id for each fragment, at one place",
        [
            fragment("", id="a", name="f", index=0),
            fragment("{", id="b", index=0),
            fragment("}", id="c", index=0),
        ],
        [("a", "f", "{}")],
    ),
    (
        "a number as an id, and a fragment that says nothing",
        [fragment("{}", id=7, name="f", index=0), fragment("", index=1)],
        [("7", "f", "{}")],
    ),
    (
        "by id where all stand at place 0",
        [
            fragment("", id="a", name="f", index=0),
            fragment("", id="b", name="f", index=0),
            fragment('{"x": 1}', id="a", index=0),
            fragment("{}", id="b", index=0),
        ],
        [("a", "f", '{"x": 1}'), ("b", "f", "{}")],
    ),
    (
        "by id where all stand at place 0, with a name on each, mixed",
        [
            fragment(arguments, id=its_id, name=name, index=0)
            for its_id, name, arguments in (
                *(("a", "look", '{"x"'), ("b", "find", '{"y"'), ("a", "look", ": 1"), ("b", "find", ": 2")),
                *(("a", "look", "}"), ("b", "find", "}"), ("a", "look", ""), ("b", "find", "")),
            )
        ],
        [("a", "look", '{"x": 1}'), ("b", "find", '{"y": 2}')],
    ),
    (
        "all arguments so far in each",
        [
            fragment(so_far, id="a", name="look", index=0)
            for so_far in ("", "{", '{"', '{"x": {}', '{"x": {}}', '{"x": {}}')
        ],
        [("a", "look", '{"x": {}}')],
    ),
    (
        "a name without arguments before its call with some is no call",
        [fragment("", id="a", name="f", index=0), fragment('{"x": 1}', id="b", name="f", index=0)],
        [("b", "f", '{"x": 1}')],
    ),
    (
        "nor is one beside torn calls, where places tell nothing",
        [
            fragment("", name="now"),
            fragment("", name="f"),
            fragment('{"x": 1}'),
            fragment("{}"),
        ],
        [("", "f", '{"x": 1}{}')],
    ),
    (
        "once more as an object in the last chunk",
        [fragment('{"x": {"y": 1}}', name="f", index=0), fragment('{ "x": {"y": 1}}\n', index=0)],
        [("", "f", '{"x": {"y": 1}}')],
    ),
    (
        "a name behind the arguments, by the id",
        [fragment('{"x": 1}', id="a", index=0), fragment("", id="a", name="f", index=0)],
        [("a", "f", '{"x": 1}')],
    ),
    (
        "a name behind the arguments, and the arguments again",
        [fragment('{"x": 1}', id="a", index=0), fragment('{"x": 1}', id="a", name="f", index=0)],
        [("a", "f", '{"x": 1}')],
    ),
    (
        "a name behind the arguments, alone",
        [fragment('{"x": 1}', index=0), fragment("", name="f", index=0)],
        [("", "f", '{"x": 1}')],
    ),
    (
        "a name and arguments behind those of a call without a name are another call",
        [fragment('{"x": 1}', index=0), fragment("{}", name="f", index=0)],
        [("", "", '{"x": 1}'), ("", "f", "{}")],
    ),
    (
        "a name that comes in pieces",
        [fragment("", name="fi", id="a", index=0), fragment("", name="nd", index=0), fragment("{}", index=0)],
        [("a", "find", "{}")],
    ),
    (
        "a name that grows",
        [
            *(fragment("", name=name, id="a", index=0) for name in ("f", "fi", "find", "find")),
            fragment("{}", index=0),
        ],
        [("a", "find", "{}")],
    ),
    (
        "a call said twice, by its id",
        [fragment('{"x": 1}', id="a", name="f", index=0)] * 2,
        [("a", "f", '{"x": 1}')],
    ),
    (
        "a call in pieces, and whole again",
        [
            fragment("", id="a", name="f", index=0),
            fragment('{"x"', index=0),
            fragment(": 1}", index=0),
            fragment('{"x": 1}', id="a", name="f", index=0),
            fragment("{}", id="b", name="f", index=1),
        ],
        [("a", "f", '{"x": 1}'), ("b", "f", "{}")],
    ),
    (
        "calls that are alike, without ids",
        [fragment("{}", name="f", index=0), fragment("{}", name="f", index=1)],
        [("", "f", "{}")] * 2,
    ),
    (
        "calls that are alike, by ids of their own",
        [fragment("{}", id="a", name="f", index=0), fragment("{}", id="b", name="f", index=1)],
        [("a", "f", "{}"), ("b", "f", "{}")],
    ),
    (
        "one id for calls that differ, two of them alike",
        [fragment(each, id="a", name="f", index=at) for at, each in enumerate(('{"x": 1}', "{}", "{}"))],
        [("a", "f", '{"x": 1}'), ("a", "f", "{}"), ("a", "f", "{}")],
    ),
    ("a name alone is no call where it says nothing", [fragment("", name="", index=0)], []),
]


@pytest.mark.parametrize(("chunks", "expected"), [row[1:] for row in MERGED], ids=[row[0] for row in MERGED])
async def test_what_belongs_to_which_call(chunks: list[Body], expected: list[tuple[str, str, str]]) -> None:
    _, answer = await understood(events(*chunks, choice({}, finish_reason="tool_calls")).pieces)
    calls = answer.message.tool_calls
    assert [(call.id, call.name, call.arguments) for call in calls] == expected


async def test_raw_control_characters_in_arguments_run_and_go_back_as_strict_json(stream: bool) -> None:
    call = Call(name="look", arguments='{"path": "one\n\ttwo"}')
    with StrictProvider([Reply(calls=(call,)), Reply(text="done")]) as server:
        assert (await runner_of(server, stream=stream).run("go")).output == "done"
    assert ran == {"one\n\ttwo": 1}
    (sent,) = server.bodies[1]["messages"][-2]["tool_calls"]
    assert sent["function"]["arguments"] == '{"path": "one\\n\\ttwo"}'
    assert server.refusals == []


async def test_the_whole_message_behind_its_deltas_says_nothing_more() -> None:
    again = {"role": "assistant", "content": "yes", "tool_calls": [{"id": "a", "function": {"name": "f"}}]}
    chunks = [choice({"content": "yes"}), fragment("{}", id="a", name="f", index=0)]
    text, answer = await understood(events(*chunks, choice(message=again, finish_reason="stop")).pieces)
    assert text == answer.message.text == "yes"
    assert len(answer.message.tool_calls) == 1


async def test_a_stream_of_one_message() -> None:
    said = {"role": "assistant", "content": "yes", "tool_calls": [{"function": {"name": "f"}}] * 2}
    text, answer = await understood(events(choice(message=said, delta={}, finish_reason="stop")).pieces)
    assert text == answer.message.text == "yes"
    assert len(answer.message.tool_calls) == 2


BYTES: list[tuple[bytes, str]] = [
    (b"half \xed\xa0\xbd", "half \ufffd"),
    (b"pair \xed\xa0\xbd\xed\xb9\x82", "pair 🙂"),
    (b"no text \xff", "no text \ufffd"),
    (b"control \x00\x1f\t", "control \x00\x1f\t"),
    (b"line ends \xe2\x80\xa8\xc2\x85\x0b\x0c", "line ends \u2028\x85\x0b\x0c"),
    (b"half at the end \\ud83d", "half at the end \ufffd"),
]


@pytest.mark.parametrize(("sent", "expected"), BYTES)
async def test_bytes_that_are_no_strict_json(sent: bytes, expected: str) -> None:
    line = b'data: {"choices": [{"delta": {"content": "%s"}, "finish_reason": "stop"}]}\n\n' % sent
    text, answer = await understood([line])
    assert text == answer.message.text == expected


async def test_an_empty_piece_between_the_two_bytes_of_a_line_end() -> None:
    rest = b'\ndata: [{"delta": {"content": "yes"}, "finish_reason": "stop"}]}\r\n\r\n'
    text, _ = await understood([b'data: {"choices":\r', b"", rest])
    assert text == "yes"


async def test_other_events_are_passed_over() -> None:
    other = [b"event: ping\ndata: still there\n\n", b'event: ping\ndata: {"type": "ping"}\n\n']
    pieces = events(choice({"content": "yes"}, finish_reason="stop")).pieces
    text, _ = await understood([*other, *pieces[:1], *other, *pieces[1:]])
    assert text == "yes"


async def test_what_is_nested_too_deep_to_be_kept_is_no_answer() -> None:
    deep: object = 1
    for _ in range(200):
        deep = [deep]
    with pytest.raises(BadAnswerError, match="nested"):
        await understood(events(choice({"content": "yes", "odd": deep}, finish_reason="stop")).pieces)


async def test_usage_that_is_no_object_is_none() -> None:
    _, answer = await understood(
        events(choice({"content": "yes"}, finish_reason="stop") | {"usage": 5}).pieces
    )
    assert answer.usage is None


async def test_one_piece_that_is_called_a_stream() -> None:
    body = json.dumps({"choices": [{"message": {"content": "yes"}}]}, indent=1).encode()
    for sent in (body, b"\xef\xbb\xbf" + body):
        text, answer = await understood([sent])
        assert text == answer.message.text == "yes"
