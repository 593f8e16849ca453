"""Fields of servers' own in an answer: kept, sent back as they came, and gone with what is folded."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentloop.compaction import Compaction
from agentloop.providers.openai import OpenAIChat
from agentloop.providers.openai.chat import GrowingCompletion
from agentloop.providers.openai.sse import ServerEvent
from agentloop.run import Agent
from agentloop.runner import Runner
from tests.kit import read
from tests.strict_bodies import Body
from tests.strict_provider import StrictProvider
from tests.strict_replies import Answered, ExtractiveSummariser, Raw, Reply, asks_for_summary, events

ODD = '  \u202e\U0001f642\u0301\n\t"\\u00e9\\" </think> \x00\x7f\u2028 é'

FIELDS: dict[str, Body] = {
    "deepseek": {"reasoning_content": ODD},
    "groq": {"reasoning": ODD},
    "both": {"reasoning": "short", "reasoning_content": ODD},
    "openrouter": {
        "reasoning": ODD,
        "reasoning_details": [
            {"type": "reasoning.text", "text": ODD, "signature": "sig==", "format": "a-v1", "index": 0},
            {"type": "reasoning.encrypted", "data": "b64==", "id": "r_1", "format": "a-v1", "index": 1},
        ],
    },
    "litellm": {
        "reasoning_content": ODD,
        "thinking_blocks": [
            {"type": "thinking", "thinking": ODD, "signature": "sig=="},
            {"type": "redacted_thinking", "data": "sealed=="},
        ],
        "provider_specific_fields": {"z": 1, "a": [{"k": None, "j": 1.5}], "citations": []},
    },
    "openai": {
        "annotations": [
            {"type": "url_citation", "url_citation": {"url": "u", "start_index": 0, "end_index": 4}}
        ],
        "audio": {"id": "audio_1", "expires_at": 1_800_000_000, "data": "UklGRg==", "transcript": "yes"},
    },
    "anything": {"x_state": {"b": [True, None, {"deep": [0.1, "\u00e9"]}], "a": "\ufeff"}},
}


def calls_of(at: int) -> list[Body]:
    """Calls with the thought signatures of Gemini, in them and inside their functions."""
    signature = {"google": {"thought_signature": f"Sig+/{at}=="}}
    arguments = json.dumps({"name": f"file_{at}", "words": 600})
    function = {"name": "read", "arguments": arguments, "thought_signature": f"in/{at}=="}
    return [{"id": f"call_{at}", "type": "function", "function": function, "extra_content": signature}]


def message_of(at: int, fields: Body) -> Body:
    return {"role": "assistant", "content": None, "tool_calls": calls_of(at)} | fields


def as_answer(message: Body) -> Raw:
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    return Raw(pieces=(json.dumps({"choices": [choice]}).encode(),), content_type="application/json")


def as_stream(message: Body) -> Raw:
    """The message in deltas of its fields; calls whole."""
    deltas: list[Body] = [{"role": "assistant", "content": ""}]
    for name, value in message.items():
        if name == "tool_calls":
            deltas += [{name: [{"index": at} | call]} for at, call in enumerate(value)]
        elif isinstance(value, str) and name != "role":
            deltas += [{name: value[at : at + 3]} for at in range(0, len(value), 3)]
        elif name not in ("role", "content"):
            deltas.append({name: value})
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    return events(*chunks, {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})


def sent_back(bodies: list[Body], at: int) -> list[Body]:
    """The message of that call in each request that has it."""
    messages = (message for body in bodies for message in body["messages"])
    return [each for each in messages if f'"call_{at}"' in json.dumps(each.get("tool_calls"))]


def own(message: Body) -> dict[str, str]:
    """All of it but content, each value as JSON, whose text tells the order of keys."""
    return {key: json.dumps(value) for key, value in message.items() if key not in ("role", "content")}


@pytest.mark.deep
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("name", sorted(FIELDS))
async def test_they_come_back_as_they_came_and_go_with_what_is_folded(
    name: str, stream: bool, tmp_path: Path
) -> None:
    turns = iter(range(14))
    came: dict[int, Body] = {}

    def answer(_: Body) -> Answered:
        if (at := next(turns, None)) is None:
            return Reply(text="done")
        came[at] = message_of(at, FIELDS[name])
        return as_stream(came[at]) if stream else as_answer(came[at])

    with StrictProvider(ExtractiveSummariser(answer), window=9_000, modes=["V8", "V9", "V11"]) as server:
        model = OpenAIChat("m", base_url=server.url, window=9_000, stream=stream)
        agent = Agent(model, tools=[read], compaction=Compaction(micro=None))
        store = f"sqlite:///{tmp_path}/s.db"
        async with Runner(agent, store=store, transcripts=tmp_path) as runner:
            result = await runner.run("Read.", session_id="s")
        assert result.output == "done"
        assert result.compactions
        at_end = len(server.bodies)
        async with Runner(agent, store=store, transcripts=tmp_path) as runner:
            await runner.run("And?", session_id="s")
        assert [line for line in server.refusals if not line.startswith("V10")] == []
    asked = [body for body in server.bodies if not asks_for_summary(body)]
    for at, message in came.items():
        for back in sent_back(asked, at):
            assert own(back) == own(message)
    newest, oldest = max(came), min(came)
    assert sent_back(server.bodies[at_end:], newest), "kept across a new process"
    assert not sent_back(server.bodies[at_end:], oldest)
    assert f"Sig+/{oldest}==" not in json.dumps(server.bodies[-1])


async def test_nothing_of_them_is_text_for_people(tmp_path: Path) -> None:
    message = {"role": "assistant", "content": "Yes.", **FIELDS["litellm"], **FIELDS["openai"]}
    with StrictProvider([as_answer(message), "and"]) as server:
        runner = Runner(Agent(OpenAIChat("m", base_url=server.url)), transcripts=tmp_path)
        assert (await runner.run("Is it?", session_id="s")).output == "Yes."
        await runner.run("So?", session_id="s")
    assert own(server.bodies[1]["messages"][1]) == own(message)


def merged(field: str, *values: Any) -> Any:
    growing = GrowingCompletion()
    deltas = ({"index": 0, "delta": {field: value}} for value in values)
    for choice in (*deltas, {"index": 0, "delta": {"content": "x"}, "finish_reason": "stop"}):
        growing.add(ServerEvent("", json.dumps({"choices": [choice]}).encode()))
    return growing.answer().message.to_openai().get(field)


def test_details_of_reasoning_are_merged_by_index_type_and_id() -> None:
    text = {"type": "reasoning.text", "format": "a-v1", "index": 0}
    sealed = {"type": "reasoning.encrypted", "format": "a-v1", "index": 0}
    found = merged(
        "reasoning_details",
        [text | {"text": "I "}],
        [{"text": "see", "index": 0}],
        [text | {"signature": "sig=="}],
        [sealed | {"data": "one==", "id": "call_1"}],
        [sealed | {"data": "two==", "id": "call_2"}],
        [sealed | {"data": "two==", "id": "call_2"}],
    )
    assert found == [
        text | {"text": "I see", "signature": "sig=="},
        sealed | {"data": "one==", "id": "call_1"},
        sealed | {"data": "two==", "id": "call_2"},
    ]


@pytest.mark.parametrize("place", ["thinking_blocks", "provider_specific_fields"])
def test_blocks_of_thinking_end_with_their_signature(place: str) -> None:
    thinking = {"type": "thinking"}
    deltas: list[list[Body]] = [
        [thinking | {"thinking": "I ", "signature": ""}],
        [thinking | {"thinking": "see", "signature": None}],
        [thinking | {"thinking": "", "signature": "one=="}],
        [{"type": "redacted_thinking", "data": "sealed=="}],
        [thinking | {"thinking": "so"}],
        [thinking | {"thinking": "", "signature": "two=="}],
    ]
    if place == "thinking_blocks":
        found = merged(place, *deltas)
    else:
        found = merged(place, *({"thinking_blocks": delta} for delta in deltas))["thinking_blocks"]
    assert found == [
        {"type": "thinking", "thinking": "I see", "signature": "one=="},
        {"type": "redacted_thinking", "data": "sealed=="},
        {"type": "thinking", "thinking": "so", "signature": "two=="},
    ]


def test_a_signature_said_with_each_fragment_is_said_once() -> None:
    sealed = {"google": {"thought_signature": "Sig=="}}
    assert merged("extra_content", sealed, sealed, sealed) == sealed


def test_the_channel_of_reasoning_said_with_each_fragment_is_said_once() -> None:
    assert merged("channel", *["analysis"] * 300) == "analysis"


PIECES = [["AAAA", "BBBB", "AAAA", "CCCC=="], ["AAAA", "AAAA", "B=="], ["", "A" * 9, "", "A" * 9, "=="]]


@pytest.mark.parametrize("pieces", PIECES, ids=range(len(PIECES)))
def test_signatures_in_pieces_come_together_byte_for_byte(pieces: list[str]) -> None:
    whole = "".join(pieces)
    assert merged("signature", *pieces) == whole
    google = merged("extra_content", *({"google": {"thought_signature": piece}} for piece in pieces))
    assert google == {"google": {"thought_signature": whole}}
    text = {"type": "reasoning.text", "index": 0}
    sealed = {"type": "reasoning.encrypted", "index": 1, "id": "e"}
    details = [[text | {"text": "hm"}], *([text | {"signature": piece}] for piece in pieces)]
    details += [[sealed | {"data": piece}] for piece in pieces]
    assert merged("reasoning_details", *details) == [
        text | {"text": "hm", "signature": whole},
        sealed | {"data": whole},
    ]


@pytest.mark.parametrize("pieces", PIECES, ids=range(len(PIECES)))
def test_a_block_without_an_index_has_one_signature_in_pieces(pieces: list[str]) -> None:
    thinking = {"type": "thinking"}
    blocks = [
        [thinking | {"thinking": "a"}],
        *([thinking | {"thinking": "", "signature": p}] for p in pieces),
    ]
    assert merged("thinking_blocks", *blocks, [thinking | {"thinking": "b"}]) == [
        thinking | {"thinking": "a", "signature": "".join(pieces)},
        thinking | {"thinking": "b"},
    ]


def test_blocks_that_are_a_signature_alone_stay_blocks() -> None:
    blocks = [{"type": "thinking", "thinking": "", "signature": each} for each in ("one==", "two==")]
    assert merged("thinking_blocks", *([block] for block in blocks)) == blocks


def test_audio_is_joined_also_where_pieces_are_the_same() -> None:
    found = merged(
        "audio",
        {"id": "audio_1", "transcript": "ha"},
        {"id": "audio_1", "transcript": "ha", "data": "AAAA"},
        {"id": "audio_1", "data": "AAAA", "expires_at": 1},
    )
    assert found == {"id": "audio_1", "transcript": "haha", "data": "AAAAAAAA", "expires_at": 1}


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_a_whole_answer_keeps_each_value_and_the_order_of_keys(name: str) -> None:
    message = message_of(1, FIELDS[name])
    body = json.dumps({"choices": [{"message": message, "finish_reason": "tool_calls"}]}).encode()
    assert own(GrowingCompletion.whole(body).message.to_openai()) == own(message)
