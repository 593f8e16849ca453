"""The streams of a Responses API: of every making, cut anywhere, dropped, and how they end."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop.codec import encode
from agentloop.errors import BadAnswerError
from agentloop.events import MessageRecord
from agentloop.messages import Message, Usage
from agentloop.models import Answer, Retry, RetryPolicy, TextPart
from agentloop.providers.openai.responses import GrowingResponse
from agentloop.providers.openai.sse import streamed
from tests.responses_kit import (
    OUTPUTS,
    SEARCH,
    begun,
    call_item,
    delta,
    ended,
    finished,
    message_item,
    responses,
    sent_back,
    text_part,
    thought,
    told,
    whole_of,
)
from tests.server_kit import answer_of, bytewise, error_of, parts_of, pieces_of, saying, shown_in
from tests.strict_bodies import Body
from tests.strict_provider import StrictProvider
from tests.strict_replies import Call, Drop, Raw, Reply, calling, events
from tests.strict_responses import ResponsesSide
from tests.strict_responses_replies import response, response_events

single = st.one_of(
    st.builds(lambda text, n: message_item(n, text_part(text)), st.text(max_size=9), st.integers(0, 10**6)),
    st.builds(lambda n: thought(n, "t"), st.integers(0, 10**6)),
    st.builds(lambda n: call_item(n), st.integers(0, 10**6)),
    st.builds(lambda n: SEARCH | {"id": f"ws_{n}"}, st.integers(0, 10**6)),
)


@given(st.lists(single, max_size=8, unique_by=lambda item: item["id"]), st.integers(1, 5), st.data())
@pytest.mark.many(60)
async def test_any_output_is_the_same_whole_and_in_pieces_split_anywhere(
    items: list[Body], size: int, data: st.DataObject
) -> None:
    told = response_events({}, Reply(piece_chars=size), items, {"completion_tokens": 1})
    body = b"".join(told)
    cuts = data.draw(st.lists(st.integers(0, len(body)), max_size=8))
    parts = [part async for part in streamed(GrowingResponse(), pieces_of(body, cuts))]
    assert parts[-1] == whole_of(items, usage={"output_tokens": 1})
    assert isinstance(parts[-1], Answer)
    assert shown_in(parts) == parts[-1].message.text
    again = [item for item in sent_back(parts[-1].message) if "output" not in item]
    while items and items[-1]["type"] == "reasoning":
        items.pop()
    assert again == (items if any(map(says_something, items)) else [])


def says_something(item: Body) -> bool:
    """Whether the item is a call or a text: an answer of other items alone is not sent again."""
    return item["type"] == "function_call" or any(part["text"].strip() for part in item.get("content", ()))


EMPTY = message_item(1)
CALL_TOLD = [
    begun(call_item(1, "")),
    {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "output_index": 0, "delta": '{"pa'},
    {
        "type": "response.function_call_arguments.delta",
        "item_id": "fc_1",
        "output_index": 0,
        "delta": 'th": 1}',
    },
]


def arguments_done(**said: str) -> Body:
    return {"type": "response.function_call_arguments.done", "item_id": "fc_1", "output_index": 0, **said}


@pytest.mark.parametrize(
    ("raw", "items"),
    [
        pytest.param(
            told(begun(EMPTY), delta("a"), delta("b"), ended()),
            [message_item(1, {"type": "output_text", "annotations": [], "text": "ab"})],
            id="deltas alone",
        ),
        pytest.param(
            told(delta("a"), delta("b"), ended()),
            [
                {
                    "type": "message",
                    "id": "msg_1",
                    "role": "assistant",
                    "content": [{"type": "output_text", "annotations": [], "text": "ab"}],
                }
            ],
            id="deltas that nothing announces",
        ),
        pytest.param(told(*CALL_TOLD, ended()), [call_item(1, '{"path": 1}')], id="a call without its end"),
        pytest.param(
            told(*CALL_TOLD, {"type": "response.function_call_arguments.done", "arguments": "{}"}, ended()),
            [call_item(1, "{}")],
            id="the last word on arguments",
        ),
        pytest.param(
            told(begun(call_item(1, "")), arguments_done(arguments=""), ended(output=[])),
            [call_item(1, "")],
            id="the word that there are no arguments",
        ),
        pytest.param(
            told(*CALL_TOLD, arguments_done(arguments=""), ended()),
            [call_item(1, '{"path": 1}')],
            id="a last word without the arguments that came",
        ),
        pytest.param(
            told(begun(call_item(1, "")), arguments_done(arguments="{}"), ended(output=[thought(1, "a")])),
            [call_item(1, "{}")],
            id="whole arguments of a call that the end leaves out",
        ),
        pytest.param(
            Raw(pieces=(*told(*CALL_TOLD, arguments_done()).pieces, b"data: [DONE]\n\n")),
            [call_item(1, '{"path": 1}')],
            id="whole arguments and only DONE",
        ),
        pytest.param(
            told(*CALL_TOLD, finished(call_item(1, '{"x": 2}')), ended()),
            [call_item(1, '{"x": 2}')],
            id="the last word on an item",
        ),
        pytest.param(
            told(finished(thought(1, "a")), finished(call_item(1), 1), ended()),
            [thought(1, "a"), call_item(1)],
            id="items that come whole",
        ),
        pytest.param(
            told(
                begun(call_item(1, "")), begun(call_item(2, "")),
                finished(call_item(2)), finished(call_item(1)), ended(),
            ),
            [call_item(1), call_item(2)],
            id="all at place 0",
        ),
        pytest.param(
            told(
                begun(call_item(1, "", id="fc_a")), begun(call_item(2, "", id="fc_b"), 1),
                finished(call_item(1, id="fc_c")), finished(call_item(2, id="fc_d"), 1), ended(),
            ),
            [call_item(1, id="fc_c"), call_item(2, id="fc_d")],
            id="ids that change",
        ),
        pytest.param(
            told(*CALL_TOLD, ended(output=[call_item(7)])), [call_item(7)], id="the end's own output wins"
        ),
        pytest.param(
            Raw(pieces=(*told(finished(call_item(1))).pieces, b"data: [DONE]\n\n")),
            [call_item(1)],
            id="only DONE",
        ),
        pytest.param(
            told(
                {"type": "response.queued"},
                {"type": "keepalive"},
                {"type": "response.future_thing.delta", "delta": {"deep": []}},
                finished(call_item(1)),
                {"type": "response.output_item.added", "item": None},
                {"type": "response.output_item.done"},
                {"type": "response.output_text.delta", "item_id": "x", "delta": None},
                ended(output=[call_item(1)]),
            ),
            [call_item(1)],
            id="unknown and odd events",
        ),
    ],
)  # fmt: skip
async def test_streams_of_every_making(raw: Raw, items: list[Body]) -> None:
    with StrictProvider([raw]) as server:
        parts = await parts_of(responses(server, retry=RetryPolicy(attempts=1)))
    assert isinstance(parts[-1], Answer)
    assert parts[-1].message == whole_of(items).message
    assert shown_in(parts) == parts[-1].message.text


async def test_text_that_only_the_end_holds_is_shown() -> None:
    end = ended(output=[message_item(1, text_part("whole text"))])
    with StrictProvider([told(end), told(delta("whole"), end)]) as server:
        model = responses(server)
        for _ in range(2):
            assert shown_in(await parts_of(model)) == "whole text"


HALVES = (
    b"\xef\xbb\xbf: a comment\r\n\r\n"
    b'id: 1\r\nevent: response.output_text.delta\r\ndata: {"delta": "a\xc3\xa4"}\r\n\r\n'
    b"retry: 5\n\n"
    b'event: response.output_text.delta\ndata: {"delta":\ndata: "\xf0\x9f\x99\x82"}\n\n'
    b'data:{"type": "response.output_text.delta", "delta": "\\ud83d"}\r\r'
    b'data:{"type": "response.output_text.delta", "delta": "\\ude42!"}\n\n'
    b'data: {"type": "response.completed", "response": {"usage": {"input_tokens": 1}}}\n\n'
)


@given(st.lists(st.integers(0, len(HALVES))))
@pytest.mark.many(60)
async def test_bytes_may_be_split_anywhere(cuts: list[int]) -> None:
    parts = [part async for part in streamed(GrowingResponse(), pieces_of(HALVES, cuts))]
    answer = parts[-1]
    assert isinstance(answer, Answer)
    assert shown_in(parts) == answer.message.text == "aä🙂🙂!"
    assert (answer.finish, answer.usage) == ("stop", Usage(input_tokens=1))


async def test_one_byte_at_a_time_over_the_wire() -> None:
    with StrictProvider([bytewise(HALVES)]) as server:
        assert (await answer_of(responses(server))).message.text == "aä🙂🙂!"


async def test_what_is_no_text_never_poisons_the_answer() -> None:
    lone = message_item(1, text_part("a\ud83d"), odd="\udc00")
    raw = events(begun(EMPTY), delta("a\ud83d"), finished(lone), ended(output=[lone]), done=False)
    with StrictProvider([raw]) as server:
        parts = await parts_of(responses(server))
    assert isinstance(parts[-1], Answer)
    assert shown_in(parts) == parts[-1].message.text == "a\ufffd"
    encode(MessageRecord(message=parts[-1].message, tokens=1))
    json.dumps(parts[-1].message.to_openai(), ensure_ascii=False).encode()


CALLING = Reply(
    text="I look. ",
    reasoning="why",
    calls=(calling("look", "a", path="one"), calling("look", "b", path="two")),
)


EVENTS_TOLD = len(response_events({}, CALLING, ResponsesSide().output(CALLING), None))


@pytest.mark.parametrize("kept", range(EVENTS_TOLD))
async def test_a_dropped_stream_never_gives_half_a_call(kept: int) -> None:
    with StrictProvider([Drop(reply=CALLING, events=kept), CALLING]) as server:
        parts = await parts_of(responses(server))
    retried = [at for at, part in enumerate(parts) if isinstance(part, Retry)]
    assert isinstance(parts[-1], Answer)
    assert parts[-1].message.to_openai().items() >= {"content": "I look. "}.items()
    assert [call.id for call in parts[-1].message.tool_calls] == ["a", "b"]
    assert len(retried) == 1
    assert shown_in(parts[retried[0] :]) == "I look. "


async def test_a_stream_that_ends_without_its_end_is_tried_again() -> None:
    half = told(*CALL_TOLD)
    unended = told(finished(call_item(1)))
    open_at_done = Raw(pieces=(*half.pieces, b"data: [DONE]\n\n"))
    with StrictProvider([half, unended, open_at_done, "whole"]) as server:
        parts = await parts_of(responses(server))
    assert [part.attempt for part in parts if isinstance(part, Retry)] == [1, 2, 3]
    assert isinstance(parts[-1], Answer)
    assert parts[-1].message.text == "whole"


async def test_a_stream_left_open_after_its_end_holds_nobody_up() -> None:
    raw = told(delta("all"), ended())
    with StrictProvider([Raw(pieces=raw.pieces, left_open=True)]) as server:
        assert (await answer_of(responses(server))).message.text == "all"


@pytest.mark.parametrize(
    ("fields", "finish"),
    [
        ({}, "tool_calls"),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "content_filter"),
        ({"status": "incomplete", "incomplete_details": None}, "length"),
        ({"status": None}, "tool_calls"),
    ],
)
async def test_how_an_answer_ended(fields: Body, finish: str) -> None:
    assert whole_of([call_item(1)], **fields).finish == finish
    kind = "response.incomplete" if fields.get("status") else "response.completed"
    raw = told(finished(call_item(1)), {"type": kind, "response": fields})
    with StrictProvider([raw]) as server:
        assert (await answer_of(responses(server))).finish == finish


async def test_cut_off_replies_come_through(stream: bool) -> None:
    replies = [
        Reply(text="half", calls=(Call(name="look", arguments='{"path": "', id="a"),), finish="length"),
        Reply(finish="content_filter"),
    ]
    with StrictProvider(replies) as server:
        model = responses(server, stream=stream)
        cut = await answer_of(model)
        filtered = await answer_of(model)
    assert (cut.finish, cut.message.tool_calls[0].arguments) == ("length", '{"path": "')
    assert (filtered.finish, filtered.message) == ("content_filter", Message.assistant(""))


@pytest.mark.parametrize("name", ["right", "unasked", "absent", "zeros", "output-only", "double"])
async def test_usage_as_reported(name: str, stream: bool) -> None:
    expected = {
        "absent": None,
        "zeros": Usage(),
        "output-only": Usage(output_tokens=5),
        "double": Usage(input_tokens=208, output_tokens=10, cached_tokens=104),
    }
    with StrictProvider(lambda _: "word", usage=name) as server:
        usage = (await answer_of(responses(server, stream=stream), saying("x" * 400))).usage
    assert usage == expected.get(name, Usage(input_tokens=104, output_tokens=5, cached_tokens=52))


async def test_one_piece_where_a_stream_was_announced() -> None:
    body = json.dumps(response({}, Reply(), OUTPUTS["reasoning, text and calls"], None), indent=1).encode()
    with StrictProvider(
        [Raw(pieces=(body,)), Raw(pieces=(b'{"error": {"message": "no such thing"}}',))]
    ) as server:
        model = responses(server)
        parts = await parts_of(model)
        assert isinstance(await error_of(model), BadAnswerError)
    assert parts == [TextPart(text="I look."), whole_of(OUTPUTS["reasoning, text and calls"])]


async def test_words_of_a_gateway_in_the_middle_of_an_answer_are_tried_again() -> None:
    broken = Raw(pieces=(*told(begun(EMPTY), delta("ha")).pieces, b"data: upstream went away\n\n"))
    plain = Raw(pieces=(b"event: error\ndata: no such model\n\n",))
    with StrictProvider([broken, "whole", plain]) as server:
        model = responses(server)
        _, retry, *_, answer = await parts_of(model)
        assert "no such model" in str(await error_of(model))
    assert isinstance(retry, Retry)
    assert "upstream went away" in retry.error
    assert isinstance(answer, Answer)
    assert answer.message.text == "whole"
