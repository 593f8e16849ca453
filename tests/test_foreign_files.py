"""Conversations in the files of other programs are imported whole, and go on at a strict server."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentloop.context import for_chat_completions, wire_messages
from agentloop.errors import UsageError
from agentloop.events import MessageRecord
from agentloop.messages import Message
from agentloop.sessions.foreign import FORMS, messages_in
from agentloop.sessions.importing import parse
from tests.cli_kit import agentloop
from tests.strict_rules import violations

ASKED, LOOKED, SEEN, SAID = "user: Look.", "assistant: I look. ?look", "tool: A tree.", "assistant: A tree."
TALK = [ASKED, LOOKED, SEEN, SAID]

USE = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "x"}}
CALL = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"at":"x"}'}
CHAT_CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at":"x"}'}}
CHAT = [
    {"role": "user", "content": "Look."},
    {"role": "assistant", "content": "I look.", "tool_calls": [CHAT_CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "A tree."},
    {"role": "assistant", "content": "A tree."},
]


def claude(role: str, content: Any, **fields: Any) -> dict[str, Any]:
    """A line of Claude Code's."""
    message = {"role": role, "content": content} | ({"id": fields.pop("id")} if "id" in fields else {})
    around = {"parentUuid": None, "sessionId": "s", "version": "2.0.0", "timestamp": "2026-01-01T00:00:00Z"}
    return {"type": role, "message": message, "uuid": "u", "isSidechain": False, **around, **fields}


def codex(kind: str, **payload: Any) -> dict[str, Any]:
    """A line of codex's."""
    return {"timestamp": "2026-01-01T00:00:00Z", "type": kind, "payload": payload}


def item(role: str, text: str) -> dict[str, Any]:
    """A message item of the Responses API."""
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


CLAUDE_CODE = [
    {"type": "summary", "summary": "Looking", "leafUuid": "u"},
    {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}},
    claude("user", "Look."),
    claude("assistant", [{"type": "thinking", "thinking": "Hm.", "signature": "x"}], id="msg_1"),
    claude("assistant", [{"type": "text", "text": "I look."}], id="msg_1"),
    claude("assistant", [USE], id="msg_1"),
    claude("user", "a sub-agent's", isSidechain=True),
    claude(
        "user",
        [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "A tree."}]}],
        toolUseResult={"stdout": "A tree."},
    ),
    {"type": "system", "subtype": "turn_duration", "durationMs": 5},
    claude("assistant", [{"type": "text", "text": "A tree."}], id="msg_2"),
]
CODEX = [
    codex("session_meta", id="i", cwd="/", cli_version="0.65.0", instructions=None),
    codex("response_item", **item("user", "Look.")),
    codex("event_msg", type="user_message", message="Look."),
    codex("turn_context", model="m"),
    codex("response_item", type="reasoning", summary=[], encrypted_content="x"),
    codex("response_item", **item("assistant", "I look.")),
    codex("response_item", **CALL),
    codex("response_item", type="function_call_output", call_id="c1", output="A tree."),
    codex("response_item", **item("assistant", "A tree.")),
    codex("event_msg", type="token_count", info=None),
]
SHAREGPT = [
    {"from": "human", "value": "Look."},
    {"from": "function_call", "value": '{"name": "look", "arguments": {"at": "x"}}'},
    {"from": "observation", "value": "A tree."},
    {"from": "gpt", "value": "A tree."},
]
LOOK = {"name": "look", "args": {"at": "x"}}
GEMINI = [
    {"role": "user", "parts": [{"text": "Look."}]},
    {
        "role": "model",
        "parts": [{"text": "I look."}, {"functionCall": {"name": "look", "args": {"at": "x"}}}],
    },
    {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"seen": "A tree."}}}]},
    {"role": "model", "parts": [{"text": "Hm.", "thought": True}, {"text": "A tree."}]},
]
TRAJECTORY = {
    "info": {"exit_status": "Submitted", "submission": "", "mini_version": "2.0.0"},
    "messages": [
        {"role": "system", "content": "Be brief."},
        *({**message, "extra": {"timestamp": 1.5}} for message in CHAT),
        {"role": "exit", "content": "the patch", "extra": {"exit_status": "Submitted"}},
    ],
    "trajectory_format": "mini-swe-agent-1.1",
}


def jsonl(values: list[Any]) -> str:
    """A value a line."""
    return "".join(json.dumps(value) + "\n" for value in values)


FILES: dict[str, tuple[str, list[str]]] = {
    "Claude Code": (jsonl(CLAUDE_CODE), TALK),
    "codex": (jsonl(CODEX), TALK),
    "older codex": (
        jsonl([{"id": "i", "timestamp": "t", "instructions": None}, *(v["payload"] for v in CODEX[1:2])]),
        [ASKED],
    ),
    "mini-swe": (json.dumps(TRAJECTORY, indent=2), ["system: Be brief.", *TALK, "user: the patch"]),
    "messages": (jsonl([{"messages": CHAT}]), TALK),
    "two conversations": (jsonl([{"messages": CHAT[:1]}, {"messages": CHAT[-1:]}]), [ASKED, SAID]),
    "a request to Anthropic": (
        json.dumps({"system": "Be brief.", "messages": [{"role": "user", "content": "Look."}]}),
        ["system: Be brief.", ASKED],
    ),
    "ShareGPT": (
        json.dumps([{"id": "1", "conversations": SHAREGPT}], indent=1),
        [ASKED, "assistant:  ?look", SEEN, SAID],
    ),
    "ShareGPT lines": (
        jsonl([{"system": "Be brief.", "conversations": SHAREGPT[:1]}]),
        ["system: Be brief.", ASKED],
    ),
    "Gemini": (json.dumps(GEMINI), [ASKED, LOOKED, 'tool: {"seen": "A tree."}', SAID]),
    "a request to Gemini": (
        json.dumps(
            {"system_instruction": {"parts": [{"text": "Be brief."}]}, "contents": GEMINI[:1]}, indent=4
        ),
        ["system: Be brief.", ASKED],
    ),
    "items": (json.dumps([item("user", "Look."), CALL]), [ASKED, "assistant:  ?look"]),
    "a pretty list": (json.dumps(CHAT, indent=2), TALK),
    "pretty objects": ("\r\n".join(json.dumps(message, indent=2) for message in CHAT), TALK),
    "Anthropic's messages": (
        json.dumps(
            [
                CHAT[0],
                {"role": "assistant", "content": [{"type": "text", "text": "I look."}, USE]},
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "A tree."}],
                },
            ]
        ),
        TALK[:3],
    ),
}


def imported(text: str) -> list[Message]:
    """The messages of the session that the file becomes."""
    events = parse(text, count=lambda message: len(message.text))
    return [event.message for event in events if isinstance(event, MessageRecord)]


def shown(message: Message) -> str:
    """A message in a line."""
    calls = [f" ?{call.name}" for call in message.tool_calls]
    return f"{message.role}: {message.text}{''.join(calls)}"


@pytest.mark.whole
@pytest.mark.parametrize("name", FILES)
def test_a_conversation_of_another_program_is_imported(name: str) -> None:
    text, expected = FILES[name]
    said = imported(text)
    assert list(map(shown, said)) == expected
    calls = [call.decoded() for message in said for call in message.tool_calls]
    assert all(arguments == {"at": "x"} for arguments in calls)
    sent = json.loads(json.dumps(for_chat_completions(wire_messages(said))))
    assert violations({"messages": sent, "tools": [{}]}, modes=("V8",)) == []


def test_results_belong_to_their_calls_where_no_ids_are_written() -> None:
    for name in ("ShareGPT", "Gemini"):
        said = imported(FILES[name][0])
        assert [said[1].tool_calls[0].id] == [said[2].tool_call_id] == ["call_1"]


@pytest.mark.parametrize("text", ['{"a": 1}', '[{"a": 1}]', '{\n "a": 1\n}\n', '{"type": "x"}\n{"b": 2}\n'])
def test_an_unknown_form_is_refused_with_those_that_are_known(text: str) -> None:
    with pytest.raises(UsageError) as error:
        imported(text)
    assert "of no known form" in str(error.value)
    assert all(form.name in str(error.value) for form in FORMS)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{\n  "role": "user",\n  "content" 1\n}', "line 3 column 13"),
        ('{"role": "user", "content": "a"', "no JSON"),
        (
            '{\n "role": "user", "content": "a"}\n{\n "role": "user", "role": "user"}',
            "item 2: the key 'role'",
        ),
        (
            jsonl([{"messages": [{"role": "user", "content": "a"}, {"content": "b"}]}]),
            "message 2: a message must",
        ),
        *(
            (jsonl([{field: first}, {field: other}]), f"line 2: {field!r} must be a list of objects")
            for field, first in [("messages", CHAT), ("conversations", SHAREGPT), ("contents", GEMINI)]
            for other in (5, None, "a", True, {"a": 1}, [5], [CHAT[0], None])
        ),
        (json.dumps([{"contents": GEMINI}, {"contents": 5}]), "item 2: 'contents' must be a list"),
        (jsonl([{"messages": [{"role": "narrator", "content": "a"}]}]), "message 1: 'narrator' is no role"),
    ],
)
def test_a_fault_is_named_by_its_place(text: str, fault: str) -> None:
    with pytest.raises(UsageError) as error:
        imported(text)
    assert fault in str(error.value)


class Watched(str):
    """A file's text that counts the characters which are copied out of it."""

    copied = 0

    def removeprefix(self, prefix: str, /) -> "Watched":
        return self

    def __getitem__(self, key: Any, /) -> str:
        piece = super().__getitem__(key)
        self.copied += len(piece)
        return piece


def test_l11_objects_over_several_lines_are_looked_at_and_copied_out_once() -> None:
    text = Watched("\n".join(json.dumps({"role": "user", "content": "Look."}, indent=1) for _ in range(200)))
    assert len(parse(text, count=lambda message: len(message.text))) == 200
    assert text.copied <= 2 * len(text)


class Compared(str):
    """An id or a name that counts how often it is compared with others."""

    count = 0

    def __eq__(self, other: object) -> bool:
        Compared.count += 1
        return super().__eq__(other)

    __hash__ = str.__hash__


@pytest.mark.parametrize("key", ["id", "name"])
def test_l11_a_result_is_not_compared_with_every_call_that_waits(key: str) -> None:
    calls = [{"role": "model", "parts": [{"functionCall": {"name": "look"}}]}] * 200
    results = [{"parts": [{"functionResponse": {key: Compared("none"), "response": "A tree."}}]}] * 200
    Compared.count = 0
    found = messages_in([("line 1", {"contents": [*calls, *results]})])
    assert found is not None
    assert [message["role"] for message in found] == ["assistant"] * 200 + ["assistant", "tool"] * 200
    assert Compared.count <= 400


def test_results_take_the_oldest_call_of_their_id_or_name_or_any() -> None:
    calls = [{"name": "a", "id": "x"}, {"name": "b", "id": "x"}, {"name": "b"}, {"name": "a", "id": "y"}]
    results = [{"id": "x"}, {"name": "b"}, {}, {"name": "b"}, {"id": ["y"]}, {"name": {}}, {"id": "y"}]
    parts = [{"functionCall": call} for call in calls]
    answers = [{"functionResponse": {"response": "A tree.", **result}} for result in results]
    found = messages_in([("line 1", {"contents": [{"parts": parts}, {"parts": answers}]})])
    assert found is not None
    answered = [message.get("tool_call_id") for message in found[1:]]
    assert answered == ["x", "x", "call_3", None, "call_5", None, "call_6", None, "call_7", "y"]


def test_the_blocks_of_an_answer_are_one_message() -> None:
    texts = [str(number) for number in range(300)]
    blocks = [claude("assistant", [{"type": "text", "text": text}], id="msg_1") for text in texts]
    first = blocks[0]["message"]["content"]
    (said,) = messages_in([("line 1", block) for block in blocks]) or []
    assert [part["text"] for part in said["content"]] == texts
    assert first == [{"type": "text", "text": "0"}]


def test_the_command_line_imports_them(tmp_path: Path) -> None:
    (tmp_path / "rollout.jsonl").write_text(FILES["codex"][0])
    done = agentloop("sessions", "import", "rollout.jsonl", "--session", "copy", cwd=tmp_path)
    assert done.status == 0, done.err
    exported = json.loads(agentloop("sessions", "export", "copy", cwd=tmp_path).out)
    assert [message["role"] for message in exported] == ["user", "assistant", "tool", "assistant"]
