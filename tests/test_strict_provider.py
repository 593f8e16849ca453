"""The instrument itself: each rule is refused when it is broken, and valid requests pass."""

import copy
import json
import urllib.error
import urllib.request
from typing import Any

import pytest

from tests.strict_overflows import OVERFLOWS
from tests.strict_process import provider_process
from tests.strict_provider import StrictProvider
from tests.strict_replies import Drop, ExtractiveSummariser, Fault, Reply, calling, script
from tests.strict_rules import MODES, output_limit, prompt_tokens, text_of, violations


def call(name: str, arguments: object = "{}") -> dict[str, Any]:
    return {"id": name, "type": "function", "function": {"name": "look", "arguments": arguments}}


def asking(*calls: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)} | fields


def result(name: str, text: str = "seen") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": name, "content": text}


SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Hello"}
SAID = {"role": "assistant", "content": "Hi"}
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]


def body(*messages: object, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages)} | fields


VALID = body(
    SYSTEM,
    USER,
    asking(call("a"), call("b", '{"path": "ä"}'), content="", reasoning_content="hm"),
    result("b"),
    result("a", ""),
    SAID,
    {"role": "user", "content": [{"type": "text", "text": "and"}, {"type": "image_url", "image_url": {}}]},
    tools=TOOLS,
    tool_choice="auto",
)


def test_a_valid_body_breaks_nothing_in_any_mode() -> None:
    before = copy.deepcopy(VALID)
    assert violations(VALID, modes=MODES, reasoning={("a", "b"): "hm"}, window=1_000) == []
    assert before == VALID


NO_OBJECTS: list[object] = ["", " ", "null", "[]", '{"a": ', "{}{}", {}, None]
BROKEN: list[tuple[str, dict[str, Any]]] = [
    ("V0", {}),
    ("V0", body()),
    ("V0", body(USER, "text")),
    ("V0", body({"role": "robot", "content": "x"})),
    ("V1", body(USER, asking(call("a"), call("b")), result("a"))),
    ("V1", body(USER, asking(call("a"), call("b")), result("a"), USER, result("b"))),
    ("V1", body(USER, asking(call("a")), result("a"), result("a"))),
    ("V1", body(USER, result("a"))),
    ("V1", body(USER, asking(call("a")), USER)),
    ("V1", body(USER, asking(call("a")), SAID, result("a"))),
    ("V1", body(USER, SAID | {"tool_calls": []})),
    ("V1", body(USER | {"tool_calls": [call("a")]})),
    ("V2", body(USER, asking(call("")), result(""))),
    ("V2", body(USER, asking(call("a"), call("a")), result("a"), result("a"))),
    ("V2", body(USER, asking(call("a")), result("a"), asking(call("a")), result("a"))),
    *(("V3", body(USER, asking(call("a", arguments)), result("a"))) for arguments in NO_OBJECTS),
    ("V3", body(USER, asking({"id": "a", "function": {"name": "f", "arguments": "{}"}}), result("a"))),
    ("V4", body(USER, {"role": "assistant", "content": ""})),
    ("V4", body(USER, {"role": "assistant", "content": None})),
    ("V4", body(USER, {"role": "assistant", "content": " \n"})),
    ("V4", body(USER, {"role": "assistant", "content": []})),
    ("V5", body({"role": "user"})),
    ("V5", body({"role": "user", "content": None})),
    ("V5", body(USER, {"role": "assistant", "tool_calls": [call("a")]}, result("a"))),
    ("V5", body({"role": "user", "content": 5})),
    ("V6", body({"role": "user", "content": "\ud83d"})),
    ("V6", body(USER, temperature=float("nan"))),
    ("V7", body(USER, SYSTEM)),
    ("V7", body(SYSTEM, SYSTEM, USER)),
    ("V7", body(SYSTEM, {"role": "developer", "content": "x"}, USER)),
]


@pytest.mark.parametrize(("rule", "broken"), BROKEN)
def test_each_rule(rule: str, broken: dict[str, Any]) -> None:
    assert {line.split()[0] for line in violations(broken)} >= {rule}


@pytest.mark.parametrize(
    ("mode", "broken"),
    [
        ("V8", body(USER, USER)),
        ("V8", body(USER, asking(call("a")), result("a"), USER, tools=TOOLS)),
        ("V8", body(USER, SAID, SAID)),
        ("V8", body(SYSTEM, SAID, USER)),
        ("V9", body(USER, asking(call("a")), result("a"))),
        ("V9", body(USER, asking(call("a")), result("a"), tools=[])),
        ("V9", body(USER, tool_choice="auto")),
        ("V11", body(USER, asking(call("a")), result("a"))),
        ("V11", body(USER, asking(call("a"), reasoning_content="other"), result("a"))),
        ("content-never-null", body(USER, asking(call("a")), result("a"))),
    ],
)
def test_rules_of_some(mode: str, broken: dict[str, Any]) -> None:
    assert violations(broken) == []
    lines = violations(broken, modes=[mode], reasoning={("a",): "hm"})
    assert {line.split()[0] for line in lines} == {mode}


def test_the_window_is_held_by_the_servers_own_count() -> None:
    short = body({"role": "user", "content": "ä" * 10}, max_tokens=11)
    assert prompt_tokens(short) == 9
    assert output_limit(short) == output_limit(body(USER, max_completion_tokens=11)) == 11
    assert violations(short, window=20) == []
    assert violations(short, window=19) == [
        "V10 9 tokens and 11 for the answer are more than the window of 19"
    ]
    assert violations(short, window=20, factor=1.2)


def test_everything_counts() -> None:
    plain = prompt_tokens(body(USER))
    assert prompt_tokens(body(USER, tools=TOOLS)) > plain + 15
    assert prompt_tokens(body(asking(call("a", "x" * 400)))) > plain + 95
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x" * 400}}]}
    assert prompt_tokens(body(image)) > plain + 95


def test_the_text_of_a_message() -> None:
    assert text_of(asking(call("a", '{"x": 1}'), content="I look")) == 'I look\n{"x": 1}'
    assert (
        text_of({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}) == "a\n"
    )


def post(url: str, data: bytes) -> tuple[int, bytes]:
    asked = urllib.request.Request(url + "/chat/completions", data, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(asked) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def send(server: StrictProvider, asked: dict[str, Any]) -> tuple[int, Any]:
    status, answer = post(server.url, json.dumps(asked).encode())
    return status, json.loads(answer)


def test_over_http_valid_passes_and_broken_is_refused_and_both_are_recorded() -> None:
    with StrictProvider(["Hi"]) as server:
        status, answer = send(server, VALID)
        assert status == 200
        assert answer["choices"] == [
            {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
        ]
        assert answer["usage"]["prompt_tokens"] == prompt_tokens(VALID)
        for _, broken in BROKEN:
            if "NaN" not in json.dumps(broken):
                assert send(server, broken)[0] == 400
    assert server.bodies[0] == VALID
    assert server.requests[0].violations == ()
    assert all(request.violations for request in server.requests[1:])
    assert len(server.refusals) >= len(BROKEN) - 1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b'{"messages": [{"role": "user", "content": "\xff"}]}',
        b'{"messages": [{"role": "user", "content": "a"}], "temperature": NaN}',
        b'{"messages": [{"role": "user", "content": "a", "content": "b"}]}',
    ],
)
def test_bytes_that_are_no_strict_json(data: bytes) -> None:
    with StrictProvider() as server:
        status, answer = post(server.url, data)
    assert status == 400
    assert b"V6" in answer
    assert (server.requests[0].body, server.requests[0].raw) == (None, data)


def test_v11_follows_what_the_server_sent() -> None:
    sent = Reply(calls=(calling("look", "a"),), reasoning="because")
    with StrictProvider([sent, "ok"], modes=["V11"]) as server:
        message = send(server, body(USER))[1]["choices"][0]["message"]
        assert send(server, body(USER, asking(call("a")), result("a")))[0] == 400
        assert send(server, body(USER, message, result("a")))[0] == 200


@pytest.mark.parametrize("dialect", sorted(OVERFLOWS))
def test_overflow_is_refused_in_a_dialect(dialect: str) -> None:
    with StrictProvider(window=100, overflow=dialect) as server:
        _, answer = post(server.url, json.dumps(body(USER | {"content": "x" * 800})).encode())
    assert server.refusals == ["V10 204 tokens and 0 for the answer are more than the window of 100"]
    assert answer


def test_streams_come_in_events_and_usage_where_it_is_asked_for() -> None:
    reply = Reply(text="a long enough text", calls=(calling("look", "a", path="x"),), reasoning="hm")
    options = {"include_usage": True}
    with StrictProvider([reply, reply]) as server:
        first = post(server.url, json.dumps(body(USER, stream=True, stream_options=options)).encode())[1]
        second = post(server.url, json.dumps(body(USER, stream=True)).encode())[1]
    lines = [line.removeprefix("data: ") for line in first.decode().split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    chunks = [json.loads(line) for line in lines]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["prompt_tokens"] == prompt_tokens(body(USER))
    assert b"usage" not in second


def test_summaries_are_extracted() -> None:
    brain = ExtractiveSummariser(script(["an answer"]))
    said = body(
        USER | {"content": "FACT-00000a and FACT-00000b"}, USER | {"content": "Summarise: FACT-00000a"}
    )
    with StrictProvider(brain) as server:
        assert send(server, said | {"tools": TOOLS})[1]["choices"][0]["message"]["content"] == "an answer"
        text = send(server, said)[1]["choices"][0]["message"]["content"]
    assert text == "Facts so far: FACT-00000a, FACT-00000b"
    assert brain.asked == [said]


def test_the_summariser_may_be_recognised_otherwise() -> None:
    brain = ExtractiveSummariser(script([]), is_summary=lambda asked: asked["model"] == "m")
    with StrictProvider(brain) as server:
        assert send(server, body(USER))[1]["choices"][0]["message"]["content"] == "Facts so far: none"


def test_a_brain_that_fails_fails_the_test() -> None:
    with pytest.raises(AssertionError, match="script of 0 replies is used up"), StrictProvider() as server:
        assert send(server, body(USER))[0] == 400


def test_faults_and_drops() -> None:
    with StrictProvider([Fault(status=503, headers={"retry-after": "1"}), Drop()]) as server:
        data = json.dumps(body(USER)).encode()
        assert post(server.url, data)[0] == 503
        with pytest.raises(ConnectionError):
            post(server.url, data)


def test_models_are_listed() -> None:
    with StrictProvider(window=4_096) as server, urllib.request.urlopen(server.url + "/models") as response:
        listed = json.loads(response.read())
    assert listed["data"] == [{"id": "strict", "object": "model"}]


def test_a_provider_in_a_process_of_its_own() -> None:
    with provider_process("--brain", "turn", "--pieces", "2") as url:
        status, answer = post(url, json.dumps(body(USER)).encode())
    assert status == 200
    assert json.loads(answer)["choices"][0]["message"]["tool_calls"]
