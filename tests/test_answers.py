"""Odd answers of real servers, streamed and in one piece: what runs, what is stored, sent again and told."""

import json
from typing import Any

import pytest

from agentloop.errors import BadAnswerError, ContextTooLongError, ModelUnavailableError
from agentloop.models import Answer, TextPart
from agentloop.prompts import NOT_RUN
from agentloop.stores import InMemoryStore
from agentloop.stream import Retrying
from tests.counted_tool_kit import ran, runner_of, watched_texts
from tests.kit import watched
from tests.server_kit import chat, error_of, parts_of
from tests.strict_bodies import Body
from tests.strict_provider import StrictProvider
from tests.strict_replies import Answered, Call, Fault, Raw, Reply, calling, events


def one(said: Body, finish: str | None = "stop", *, stream: bool, **fields: Any) -> Answered:
    """A completion whose one choice says this, in a stream in one delta."""
    name = "delta" if stream else "message"
    return several({"index": 0, name: said, "finish_reason": finish}, stream=stream, **fields)


def several(*choices: Body, stream: bool, **fields: Any) -> Answered:
    body = {"choices": list(choices)} | fields
    return events(body) if stream else Fault(status=200, body=body)


def call(arguments: object = "{}", its_id: object = "a", name: str = "look") -> Body:
    return {"id": its_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def results(body: Body) -> list[str]:
    return [message["content"] for message in body["messages"] if message["role"] == "tool"]


def last_calls(body: Body) -> list[Body]:
    calling_message = [message for message in body["messages"] if message.get("tool_calls")][-1]
    return list(calling_message["tool_calls"])


ONE = (calling("look", path="one"),)


@pytest.mark.parametrize("finish", ["stop", "tool_calls", "function_call", "eos", "tool_use", "whatever"])
async def test_calls_run_whatever_the_reason_says_that_cuts_nothing_off(finish: str, stream: bool) -> None:
    with StrictProvider([Reply(calls=ONE, finish=finish), "done"]) as server:
        result = await runner_of(server, stream=stream).run("go")
    assert ran == {"one": 1}
    assert result.output == "done"
    assert server.refusals == []


CUT_OFF = {
    "length": ["length", "max_tokens", "MAX_TOKENS", "model_length", "model_context_window_exceeded"],
    "content_filter": ["content_filter", "sensitive", "SAFETY", "RECITATION", "guardrail_intervened"],
}
CUT = [(word, reason) for reason, words in CUT_OFF.items() for word in words]


@pytest.mark.parametrize(("word", "reason"), CUT)
@pytest.mark.parametrize("arguments", ['{"path": "o', '{"path": "one"}'])
async def test_calls_of_an_answer_that_was_cut_off_do_not_run(
    word: str, reason: str, arguments: str, stream: bool
) -> None:
    cut = Reply(text="I look.", calls=(Call(name="look", arguments=arguments), *ONE), finish=word)
    with StrictProvider([cut, "done"]) as server:
        result = await runner_of(server, stream=stream).run("go")
    assert not ran
    assert results(server.bodies[1]) == [NOT_RUN[reason]] * 2
    assert result.output == "done"
    assert server.refusals == []


async def test_tool_calls_with_none_is_an_answer(stream: bool) -> None:
    with StrictProvider([Reply(text="That is all.", finish="tool_calls")]) as server:
        assert (await runner_of(server, stream=stream).run("go")).output == "That is all."


async def test_calls_that_say_nothing_are_none(stream: bool) -> None:
    empty = [{"id": "", "function": {"name": "", "arguments": ""}}, {}]
    said = {"content": "That is all.", "tool_calls": empty}
    with StrictProvider([one(said, "tool_calls", stream=stream)]) as server:
        assert (await runner_of(server, stream=stream).run("go")).output == "That is all."


@pytest.mark.parametrize("word", ["error", "insufficient_system_resource", "network_error", "abort"])
async def test_a_server_that_gave_up_is_asked_again(word: str, stream: bool) -> None:
    half = Reply(text="I lo", calls=ONE, finish=word)
    with StrictProvider([half, half, Reply(text="I look.", calls=ONE), "done"]) as server:
        seen = await watched(runner_of(server, stream=stream), "go")
    assert ran == {"one": 1}
    assert watched_texts(seen) == ["I look.", "done"]
    assert [word in event.error for event in seen if isinstance(event, Retrying)] == [True, True]
    with StrictProvider([half]) as server, pytest.raises(ModelUnavailableError):
        await runner_of(server, stream=stream, attempts=1).run("go")
    assert not ran


async def test_an_answer_that_ended_before_it_began_is_an_overflow(stream: bool) -> None:
    full = one({"content": ""}, "model_context_window_exceeded", stream=stream)
    with StrictProvider([full]) as server:
        assert isinstance(await error_of(chat(server, stream=stream)), ContextTooLongError)


async def test_of_two_choices_the_first_counts_wherever_it_stands(stream: bool) -> None:
    name = "delta" if stream else "message"
    said = [{"content": "other", "tool_calls": [call('{"path": "other"}')]}, {"content": "first"}]
    choices = [{"index": 1 - at, name: each, "finish_reason": "stop"} for at, each in enumerate(said)]
    with StrictProvider([several(*choices, stream=stream)]) as server:
        result = await runner_of(server, stream=stream).run("go")
    assert result.output == "first"
    assert not ran


async def test_choices_that_are_counted_from_one() -> None:
    choices = [{"index": at, "message": {"content": f"choice {at}"}} for at in (2, 1)]
    with StrictProvider([several(*choices, stream=False)]) as server:
        assert (await runner_of(server, stream=False).run("go")).output == "choice 1"


CONTENTS: list[tuple[Any, str]] = [
    ([{"type": "text", "text": "Yes, "}, {"type": "text", "text": "it is."}], "Yes, it is."),
    ([{"text": "Yes, "}, "it is."], "Yes, it is."),
    ({"type": "text", "text": "Yes."}, "Yes."),
    ([{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"text": "Yes."}], "Yes."),
    ([{"type": "refusal", "refusal": "I won't."}], "I won't."),
    (
        [{"type": "text", "text": "Yes, but:"}, {"type": "refusal", "refusal": "I won't."}],
        "Yes, but:\nI won't.",
    ),
    ([None, 5, {"type": "text", "text": None}, {"type": "text", "text": "Yes."}], "Yes."),
]


@pytest.mark.parametrize(("content", "text"), CONTENTS)
async def test_content_in_parts(content: object, text: str, stream: bool) -> None:
    with StrictProvider([one({"content": content}, stream=stream), "done"]) as server:
        runner = runner_of(server, stream=stream)
        seen = await watched(runner, "go")
        assert watched_texts(seen) == [text]
        await runner.run("on", session_id="s")
    assert text.splitlines()[0] in json.dumps(server.bodies[1]["messages"][-2], ensure_ascii=False)
    assert server.refusals == []


async def test_reasoning_and_nothing_else_is_asked_for_again(stream: bool) -> None:
    thought = one({"content": None, "reasoning_content": "hm"}, stream=stream)
    with StrictProvider([thought, "done"]) as server:
        assert (await runner_of(server, stream=stream).run("go")).output == "done"
    assert server.refusals == []


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({"content": None, "refusal": "I won't."}, "I won't."),
        ({"content": "", "refusal": "I won't."}, "I won't."),
        ({"content": "Well.", "refusal": "I won't."}, "Well.\nI won't."),
    ],
)
async def test_a_refusal_reaches_the_user_and_goes_back_once(said: Body, text: str, stream: bool) -> None:
    with StrictProvider([one(said, stream=stream), "done"]) as server:
        runner = runner_of(server, stream=stream)
        seen = await watched(runner, "go")
        result = await runner.run("on", session_id="s")
    assert watched_texts(seen) == [text]
    assert result.messages[1].text == text
    assert server.bodies[1]["messages"][-2] == {"role": "assistant", "content": text}
    assert server.refusals == []


async def test_a_refusal_in_pieces() -> None:
    pieces = [{"choices": [{"delta": {"refusal": piece}}]} for piece in ("I ", "won't \ud83d", "\ude42.")]
    with StrictProvider([events(*pieces, {"choices": [{"finish_reason": "stop"}]})]) as server:
        *texts, answer = await parts_of(chat(server))
    assert isinstance(answer, Answer)
    assert "".join(part.text for part in texts if isinstance(part, TextPart)) == answer.message.text
    assert answer.message.to_openai() == {"role": "assistant", "content": None, "refusal": "I won't 🙂."}


ERRORS: list[tuple[Body, str]] = [
    ({"error": "the model is odd"}, "the model is odd"),
    ({"error": {"message": "the model is odd"}}, "the model is odd"),
    ({"error": {"message": "the model is odd"}, "choices": []}, "the model is odd"),
    ({"error": "the model is odd", "choices": None}, "the model is odd"),
    ({"error": {"message": "odd"}, "choices": [{"message": {"content": "half"}}]}, "odd"),
    ({"object": "error", "message": "the model is odd", "code": 40}, "the model is odd"),
    ({"object": "error"}, "with no reason"),
    ({"detail": "the model is odd"}, "the model is odd"),
    ({"detail": [{"loc": ["body", "model"], "msg": "is odd"}]}, "body model is odd"),
    ({"message": "the model is odd", "code": "odd"}, "the model is odd"),
    ({"choices": None, "base_resp": {"status_code": 1000, "status_msg": "it is odd"}}, "it is odd"),
    ({"choices": None, "base_resp": {"status_code": 1008}}, "1008"),
    ({"code": 20015, "msg": "the model is odd", "data": None}, "the model is odd"),
    ({"success": False, "errors": [{"code": 7, "message": "is odd"}], "result": None}, "is odd"),
]


def erring(body: Body, form: str) -> Answered:
    text = json.dumps(body).encode()
    match form:
        case "whole":
            return Fault(status=200, body=body)
        case "chunk":
            return events(body)
        case "event":
            return Raw(pieces=(b"event: error\ndata: " + text + b"\n\n",))
        case "field":
            return Raw(pieces=(b"error: " + text + b"\n\n",))
        case "list":
            return Fault(status=200, body=[body])
        case _:
            return Raw(pieces=(json.dumps(body, indent=2).encode(),))


@pytest.mark.parametrize("form", ["whole", "chunk", "event", "field", "list", "called a stream"])
@pytest.mark.parametrize(("body", "words"), ERRORS)
async def test_an_error_with_status_200_is_no_answer(body: Body, words: str, form: str) -> None:
    store = InMemoryStore()
    with StrictProvider([erring(body, form), "done"]) as server:
        runner = runner_of(server, store=store)
        with pytest.raises(BadAnswerError) as caught:
            await runner.run("go", session_id="s")
        assert words in str(caught.value)
        result = await runner.run("again", session_id="s")
    assert result.output == "done"
    assert words not in json.dumps(server.bodies[1])
    assert server.refusals == []


ARGUMENTS: list[tuple[object, str | None, object, str]] = [
    ("", "nowhere", "{}", "seen nowhere"),
    (" \n", "nowhere", "{}", "seen nowhere"),
    (None, "nowhere", "{}", "seen nowhere"),
    ("null", "nowhere", "{}", "seen nowhere"),
    ({"path": "é"}, "é", '{"path": "é"}', "seen é"),
    ({}, "nowhere", "{}", "seen nowhere"),
    ('{"path": "a"}{"path": "a"}', "a", '{"path": "a"}', "seen a"),
    ('{"path": "a"}\n{ "path":"a"} ', "a", '{"path": "a"}', "seen a"),
    ('{"path": "a"}{"path": "b"}', None, '{"path": "a"}{"path": "b"}', "not valid JSON"),
    ('{"path": "a', None, '{"path": "a', "not valid JSON"),
    ('{"path": "a"}}', None, '{"path": "a"}}', "not valid JSON"),
    ("[]", None, "[]", "a JSON list"),
    ([{"path": "a"}], None, '[{"path": "a"}]', "a JSON list"),
    (5, None, "5", "a JSON number"),
    (True, None, "true", "a JSON number or truth value"),
    ('"text"', None, '"text"', "a JSON string"),
    ('{"path": NaN}', None, '{"path": NaN}', "not valid JSON"),
    ('{"path": -1e999}', None, '{"path": -1e999}', "not valid JSON (-1e999 is no number that"),
    ("[" * 90_000, None, "[[[", "not valid JSON"),
    ('{"path": "a\ud800"}', "a\ufffd", '{"path": "a\ufffd"}', "seen a\ufffd"),
]


@pytest.mark.parametrize(("arguments", "path", "sent", "told"), ARGUMENTS, ids=range(len(ARGUMENTS)))
async def test_odd_arguments_are_sent_again_as_an_object(
    arguments: object, path: str | None, sent: str, told: str, stream: bool
) -> None:
    odd = one({"content": None, "tool_calls": [call(arguments)]}, "tool_calls", stream=stream)
    with StrictProvider([odd, "done", "on"]) as server:
        runner = runner_of(server, stream=stream)
        result = await runner.run("go", session_id="s")
        await runner.run("on", session_id="s")
    assert ran == ({} if path is None else {path: 1})
    assert server.refusals == []
    assert told in results(server.bodies[1])[0]
    again = json.loads(last_calls(server.bodies[1])[0]["function"]["arguments"])
    if path is None:
        assert again["unreadable_arguments"].startswith(sent)
    else:
        assert again == json.loads(sent)
    json.dumps([message.to_openai() for message in result.messages], ensure_ascii=False).encode()


TWICE: list[tuple[list[Body], dict[str, int]]] = [
    ([call('{"path": "one"}')] * 2, {"one": 1}),
    ([call('{"path": "one"}'), call('{"path": "two"}')], {"one": 1, "two": 1}),
    ([call('{"path": "one"}', its_id=its_id) for its_id in ("a", "b")], {"one": 2}),
    ([call('{"path": "one"}', its_id=its_id) for its_id in ("", "")], {"one": 2}),
    ([call('{"path": "one"}'), call('{"path": "two"}'), call('{"path": "one"}')], {"one": 2, "two": 1}),
]


@pytest.mark.parametrize(("calls", "times"), TWICE, ids=range(len(TWICE)))
async def test_a_call_said_twice_by_its_id_runs_once(
    calls: list[Body], times: dict[str, int], stream: bool
) -> None:
    calls = [each | {"index": at} for at, each in enumerate(calls)] if stream else calls
    said = one({"content": None, "tool_calls": calls}, "tool_calls", stream=stream)
    with StrictProvider([said, "done"]) as server:
        assert (await runner_of(server, stream=stream).run("go")).output == "done"
    assert ran == times
    assert server.refusals == []


ODD_IDS: list[list[list[object]]] = [
    [["", ""], [""]],
    [[None, None], [None]],
    [["a", "a", "a"], ["a", "a"]],
    [["call_2", ""], ["", "call_2"]],
    [[0, 1], [0, 1]],
    [["\ud800", "\ud800"], ["\ufffd"]],
    [["x" * 500, "x" * 500], ["x" * 500]],
]


@pytest.mark.parametrize("batches", ODD_IDS, ids=range(len(ODD_IDS)))
async def test_odd_ids_each_call_runs_once_and_gets_its_own_result(
    batches: list[list[object]], stream: bool
) -> None:
    script: list[Answered | str] = []
    for turn, ids in enumerate(batches):
        calls = [
            call(json.dumps({"path": f"{turn}.{at}"}), its_id) | {"index": at}
            for at, its_id in enumerate(ids)
        ]
        script += [one({"content": None, "tool_calls": calls}, "tool_calls", stream=stream), f"turn {turn}"]
    store = InMemoryStore()
    with StrictProvider(script) as server:
        for turn, ids in enumerate(batches):
            await runner_of(server, stream=stream, store=store).run("go", session_id="s")
            assert ran == {f"{turn}.{at}": 1 for at in range(len(ids))}
    assert server.refusals == []
    assert told_by_path(server.bodies[-1]) == {
        f"{turn}.{at}": f"seen {turn}.{at}" for turn, ids in enumerate(batches) for at in range(len(ids))
    }


def told_by_path(body: Body) -> dict[str, str]:
    """What the calls of a request were told, by the path that each asks for."""
    told = {m["tool_call_id"]: m["content"] for m in body["messages"] if m["role"] == "tool"}
    asked = [call for message in body["messages"] for call in message.get("tool_calls", ())]
    return {json.loads(call["function"]["arguments"])["path"]: told[call["id"]] for call in asked}
