"""Answers under a wrong label, with nothing in them, cut off, in parts, or with capitals and half truths."""

import json
from typing import Any

import pytest

from agentloop import ModelError, OpenAIChat, OpenAIResponses, RetryPolicy
from agentloop.errors import BadAnswerError
from agentloop.prompts import NOT_RUN
from agentloop.providers.openai import errors
from agentloop.stream import Retrying
from tests.counted_tool_kit import looking, ran, runner_of, watched_texts
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
)
from tests.server_kit import Waits, answer_of, bytewise, chat, error_of, parts_of, shown_in
from tests.strict_bodies import Body
from tests.strict_provider import StrictProvider
from tests.strict_replies import Answered, Call, Fault, Raw, Reply, calling, events

JSON = "application/json"
APIS: dict[str, Any] = {"chat": chat, "responses": responses}
LABELS = (JSON, "application/x-ndjson", "text/plain; charset=utf-8", "text/event-stream")
SAID = [message_item(1, text_part("fine"))]
EVENTS: dict[str, Raw] = {
    "chat": events({"choices": [{"delta": {"content": "fine"}, "finish_reason": "stop"}]}),
    "responses": told(delta("fine"), ended(output=SAID)),
}
OBJECTS: dict[str, Body] = {
    "chat": {"choices": [{"message": {"content": "fine"}, "finish_reason": "stop"}]},
    "responses": {"object": "response", "status": "completed", "output": SAID},
}
BEFORE = (b"", b": a comment\n\n", b"\r\n\r\n", b"\xef\xbb\xbf", b"event: message\n", b"id: 1\n")


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("label", LABELS)
async def test_events_are_understood_whatever_they_are_called(label: str, api: str, stream: bool) -> None:
    pieces = EVENTS[api].pieces
    replies = [Raw(pieces=(before, *pieces), content_type=label) for before in BEFORE if before]
    replies.append(bytewise(b"".join(pieces), label))
    with StrictProvider(replies) as server:
        model = APIS[api](server, stream=stream)
        for _ in replies:
            parts = await parts_of(model)
            assert shown_in(parts) == parts[-1].message.text == "fine"  # type: ignore[union-attr]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("label", LABELS)
async def test_one_piece_is_understood_whatever_it_is_called(label: str, api: str, stream: bool) -> None:
    body = json.dumps(OBJECTS[api], indent=1).encode()
    replies = [
        Raw(pieces=(before, body), content_type=label) for before in (b"\n", b" \r\n\t", b"\xef\xbb\xbf")
    ]
    with StrictProvider(replies) as server:
        model = APIS[api](server, stream=stream)
        for _ in replies:
            assert shown_in(await parts_of(model)) == "fine"


@pytest.mark.parametrize("api", APIS)
async def test_line_ends_that_stand_bare_in_one_piece_are_kept(api: str, stream: bool) -> None:
    text = "a\n\n\nb\r\n\r\nc\rd\n"
    body = json.dumps(OBJECTS[api]).encode().replace(b"fine", text.encode())
    with StrictProvider([Raw(pieces=(body,), content_type=JSON), bytewise(body, JSON)]) as server:
        model = APIS[api](server, stream=stream)
        assert shown_in(await parts_of(model)) == text
        assert shown_in(await parts_of(model)).count("\n\n") == 1


def cut_off(body: Body) -> list[bytes]:
    text = json.dumps(body).encode()
    return [b"", b"\n\n", *(text[:at] for at in range(1, len(text)))]


@pytest.mark.deep
@pytest.mark.parametrize("api", APIS)
async def test_an_answer_in_one_piece_that_is_cut_off_is_asked_for_again(api: str) -> None:
    torn = cut_off(OBJECTS[api])
    replies = [Raw(pieces=(body,) if body else (), content_type=JSON) for body in torn]
    with StrictProvider([*replies, "whole"]) as server:
        model = APIS[api](server, stream=False, retry=RetryPolicy(sleep=Waits(), attempts=len(torn) + 1))
        seen = await watched(looking(model), "go")
    assert watched_texts(seen) == ["whole"]
    assert ["broke off" in each.error for each in seen if isinstance(each, Retrying)] == [True] * len(torn)


async def test_an_event_that_is_cut_off_is_asked_for_again() -> None:
    for api, make in APIS.items():
        torn = Raw(pieces=(b'data: {"choices": [{"del\n\n', b"data: [DONE]\n\n"))
        with StrictProvider([torn, "whole"]) as server:
            assert (await looking(make(server)).run("go")).output == "whole", api


USAGE = {"prompt_tokens": 3}
NOTHING: dict[str, list[Answered]] = {
    "chat": [
        events(),
        events({"choices": []}),
        events({"choices": None, "usage": USAGE}),
        events({"object": "chat.completion.chunk", "usage": USAGE}),
        Fault(status=200, body={"id": "x", "choices": [], "usage": USAGE}),
        Fault(status=200, body={"id": "x", "choices": None}),
        Fault(status=200, body={"id": "x", "object": "chat.completion"}),
    ],
    "responses": [
        events(),
        told(ended()),
        Fault(status=200, body={"object": "response", "status": "completed", "output": []}),
        Fault(status=200, body={"object": "response", "status": "completed", "output": None}),
    ],
}


@pytest.mark.deep
@pytest.mark.parametrize("api", APIS)
async def test_an_answer_with_nothing_in_it_is_asked_for_again(api: str) -> None:
    for nothing in NOTHING[api]:
        with StrictProvider([nothing, nothing, "whole"]) as server:
            assert (await looking(APIS[api](server)).run("go")).output == "whole"
        assert len(server.requests) == 3
        with (
            StrictProvider([nothing] * 3) as server,
            pytest.raises(BadAnswerError, match="3 answers in a row"),
        ):
            await looking(APIS[api](server)).run("go")


async def test_a_response_that_had_begun_and_is_only_done_broke_off() -> None:
    half = Raw(pieces=(*told({"type": "response.created"}).pieces, b"data: [DONE]\n\n"))
    with StrictProvider([half, "whole"]) as server:
        seen = await watched(looking(responses(server)), "go")
    assert watched_texts(seen) == ["whole"]
    assert len([each for each in seen if isinstance(each, Retrying)]) == 1


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    "body", [b"<html>Hello</html>", b'{"object": "list", "data": []}', b"null", b'{"a": 1} b']
)
async def test_what_is_another_servers_answer_is_asked_for_once(body: bytes, api: str, stream: bool) -> None:
    with StrictProvider([Raw(pieces=(body,), content_type=JSON)]) as server:
        assert isinstance(await error_of(APIS[api](server, stream=stream)), BadAnswerError)
    assert len(server.requests) == 1


def thinking(text: str) -> Body:
    return {"type": "thinking", "thinking": [{"type": "text", "text": text}]}


def contents(*contents: object, finish: str = "stop") -> Raw:
    chunks = [{"choices": [{"index": 0, "delta": {"content": each}}]} for each in contents]
    return events(*chunks, {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})


async def test_a_thought_in_pieces_is_one_part_as_it_is_where_it_comes_whole() -> None:
    words = [f"w{number} " for number in range(3_000)]
    with StrictProvider([contents(*([thinking(word)] for word in words), "So. "), "done"]) as server:
        runner = runner_of(server)
        await runner.run("go", session_id="s")
        await runner.run("on", session_id="s")
    assert server.bodies[1]["messages"][1]["content"] == [
        thinking("".join(words)),
        {"type": "text", "text": "So. "},
    ]


IMAGE: Body = {"type": "image_url", "image_url": {"url": "data:,"}}
JOINED: dict[str, tuple[list[Any], list[Body]]] = {
    "text in its place": (
        [[thinking("a")], [thinking("b")], "one ", "and ", [thinking("c")], "two", [IMAGE]],
        [
            thinking("ab"),
            {"type": "text", "text": "one and "},
            thinking("c"),
            {"type": "text", "text": "two"},
            IMAGE,
        ],
    ),
    "what is no thought is not joined": ([[IMAGE], [IMAGE]], [IMAGE, IMAGE]),
    "nor are two thoughts of one chunk": (
        [[thinking("a"), thinking("b")], [thinking("c")]],
        [thinking("a"), thinking("bc")],
    ),
    "a signature ends a thought": (
        [
            [{"type": "thinking", "thinking": "a"}],
            [{"type": "thinking", "thinking": "b", "signature": "s=="}],
            [{"type": "thinking", "thinking": "c"}],
        ],
        [{"type": "thinking", "thinking": "ab", "signature": "s=="}, {"type": "thinking", "thinking": "c"}],
    ),
    "inner parts that are no text stay": (
        [[thinking("a")], [{"type": "thinking", "thinking": [{"type": "reference", "reference_ids": [1]}]}]],
        [
            {
                "type": "thinking",
                "thinking": [{"type": "text", "text": "a"}, {"type": "reference", "reference_ids": [1]}],
            }
        ],
    ),
    "reasoning": (
        [[{"type": "reasoning", "text": "a"}], [{"type": "reasoning", "text": "b"}]],
        [{"type": "reasoning", "text": "ab"}],
    ),
}


@pytest.mark.parametrize("name", JOINED)
async def test_content_in_pieces(name: str) -> None:
    pieces, parts = JOINED[name]
    with StrictProvider([contents(*pieces)]) as server:
        *_, answer = told_parts = await parts_of(chat(server))
    assert answer.message.to_openai()["content"] == parts  # type: ignore[union-attr]
    if "reasoning" not in name:
        assert shown_in(told_parts) == answer.message.text  # type: ignore[union-attr]


async def test_halves_of_a_character_about_a_part() -> None:
    with StrictProvider([contents("a\ud83d", [IMAGE], "\ude42", "b \ud83d", "\ude42")]) as server:
        *_, answer = told_parts = await parts_of(chat(server))
    assert shown_in(told_parts) == "a\ufffd\n\ufffdb 🙂"
    assert answer.message.text == "a\ufffd\n[image]\n\ufffdb 🙂"  # type: ignore[union-attr]


CUT = [
    ("LENGTH", "length"),
    ("Length", "length"),
    ("CONTENT_FILTER", "content_filter"),
    ("Max_Tokens", "length"),
]


@pytest.mark.parametrize(("word", "reason"), CUT)
async def test_a_call_of_an_answer_cut_off_does_not_run_in_whatever_letters(
    word: str, reason: str, stream: bool
) -> None:
    with StrictProvider([Reply(calls=(calling("look", path="one"),), finish=word), "done"]) as server:
        assert (await runner_of(server, stream=stream).run("go")).output == "done"
    assert not ran
    assert server.bodies[1]["messages"][-1]["content"] == NOT_RUN[reason]


@pytest.mark.parametrize("word", ["ERROR", "Network_Error", "CANCELLED"])
async def test_a_server_that_gives_up_in_whatever_letters(word: str, stream: bool) -> None:
    with StrictProvider([Reply(calls=(calling("look", path="one"),), finish=word), "done"]) as server:
        assert (await runner_of(server, stream=stream).run("go")).output == "done"
    assert not ran


@pytest.mark.parametrize(("word", "ours"), [("STOP", "stop"), ("Tool_Calls", "tool_calls"), ("Odd", "Odd")])
async def test_words_of_the_end_are_those_of_openai(word: str, ours: str, stream: bool) -> None:
    with StrictProvider([Reply(text="yes", finish=word)]) as server:
        assert (await answer_of(chat(server, stream=stream))).finish == ours


@pytest.mark.parametrize(
    ("sent", "taken"),
    [
        ('{}{"path": "one"}', '{"path": "one"}'),
        ('{} {}\n{"path": "one"}', '{"path": "one"}'),
        ('{}{"path": "one"}{"path": "one"}', '{"path": "one"}'),
        ("{}{}", "{}"),
        ('{"path": "one"}{}', '{"path": "one"}{}'),
        ('{}{"path": "one', '{}{"path": "one'),
    ],
)
async def test_an_empty_object_before_the_arguments_counts_for_nothing(sent: str, taken: str) -> None:
    with StrictProvider([Reply(calls=(Call(name="look", arguments=sent),), piece_chars=2)]) as server:
        calls = (await answer_of(chat(server))).message.tool_calls
    assert [call.arguments for call in calls] == [taken]


LEFT_OUT: dict[str, tuple[list[Body], list[str]]] = {
    "a call": ([message_item(1, text_part("I look."))], ["call_2"]),
    "one of two": ([call_item(2)], ["call_2", "call_3"]),
}


@pytest.mark.parametrize("name", LEFT_OUT)
async def test_a_call_that_came_whole_is_run_where_the_end_leaves_it_out(name: str) -> None:
    output, calls = LEFT_OUT[name]
    items = [thought(1), message_item(1, text_part("I look.")), *(call_item(int(each[-1])) for each in calls)]
    raw = told(*(finished(item, at) for at, item in enumerate(items)), ended(output=output))
    with StrictProvider([raw]) as server:
        found = (await answer_of(responses(server))).message.tool_calls
    assert [call.id for call in found] == calls


@pytest.mark.parametrize("whole", [True, False])
async def test_a_call_that_says_it_is_not_whole_does_not_run(whole: bool) -> None:
    call = call_item(1, '{"path": "one"}', status="incomplete")
    raw = told(ended(output=[call])) if whole else told(begun(call), finished(call), ended())
    done = told(ended(output=SAID))
    with StrictProvider([raw, done]) as server:
        assert (await looking(responses(server)).run("go")).output == "fine"
    assert not ran


async def test_a_call_of_which_nothing_came_but_its_name_does_not_run() -> None:
    bare = told(begun(call_item(1, "")), ended())
    with StrictProvider([bare, told(ended(output=SAID))]) as server:
        assert (await looking(responses(server)).run("go")).output == "fine"
    assert not ran


@pytest.mark.parametrize("kind", [OpenAIChat, OpenAIResponses])
@pytest.mark.parametrize(
    ("name", "status"), [("parsed", 422), ("trimmed", 422), ("said", 422), ("redact_error", 200)]
)
async def test_what_fails_where_an_error_is_told_leaves_no_request_behind(
    name: str, status: int, kind: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise OverflowError("odd")

    monkeypatch.setattr(errors, name, failing)
    with StrictProvider([Fault(status=status, body="odd")]) as server, pytest.raises(ModelError) as caught:
        await looking(kind("m", base_url=server.url, api_key="sk-SECRETKEY123456")).run("go")
    each: BaseException | None = caught.value
    while each is not None:
        assert type(each).__module__.startswith("agentloop.")
        assert "SECRET" not in str(each)
        each = each.__cause__ or each.__context__
