"""What a provider has sealed goes back as it came, though all else that looks like a secret is redacted."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from agentloop import Agent, Message, OpenAIChat, OpenAIResponses, Runner, Secrets, ToolCall
from agentloop.redaction import redacted, redacted_or_said_why
from tests.strict_provider import StrictProvider
from tests.strict_replies import Call, Reply
from tests.strict_responses import Output

SHAPED = "hf_" + "Ab3dE5gH1jK2mN4pQ6sT8vW0xY9zC7"
SEALED = f"gAAAAABo{'x7' * 40}-{SHAPED}-{'Y2' * 40}=="
OURS = "vault-of-mine-42"
FIELDS: list[dict[str, Any]] = [
    {"reasoning_details": [{"type": "reasoning.encrypted", "data": SEALED, "index": 0}]},
    {"reasoning_details": [{"type": "reasoning.text", "text": "Hm.", "signature": SEALED}]},
    {"thinking_blocks": [{"type": "redacted_thinking", "data": SEALED}]},
    {"extra_content": {"google": {"thought_signature": SEALED}}},
    {"provider_specific_fields": {"thoughtSignatures": [SEALED]}},
    {"reasoning_opaque": SEALED},
]


def look(x: str = "") -> str:
    """Look."""
    return "seen"


async def ran(model: OpenAIChat | OpenAIResponses, folder: Path, redact: Secrets) -> None:
    runner = Runner(
        Agent(model, tools=[look]), store=f"sqlite:///{folder}/s.db", transcripts=None, redact=redact
    )
    await runner.run("hi", session_id="s")
    await model.close()


@pytest.mark.parametrize("extra", FIELDS)
def test_sealed_fields_of_chat_completions_go_back_as_they_came(
    tmp_path: Path, extra: dict[str, Any]
) -> None:
    said = Reply(text=f"I see {SHAPED}.", calls=(Call(name="look", id="c1"),), extra=extra)
    with StrictProvider([said, "ok"]) as provider:
        model = OpenAIChat("m", base_url=provider.url, api_key="sk-x", window="32k")
        asyncio.run(ran(model, tmp_path, Secrets(values=[OURS])))
    asked = provider.bodies[1]["messages"][-2]
    assert {key: asked[key] for key in extra} == extra
    assert asked["content"] == "I see [redacted: Hugging Face token]."


def test_a_sealed_item_of_the_responses_api_goes_back_as_it_came(tmp_path: Path) -> None:
    thought = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": SEALED}
    call = {"id": "fc_1", "type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
    with StrictProvider([Output(items=(thought, call)), "ok"]) as provider:
        model = OpenAIResponses("m", base_url=provider.url, api_key="sk-x", window="32k")
        asyncio.run(ran(model, tmp_path, Secrets()))
    assert [item for item in provider.bodies[1]["input"] if item["type"] == "reasoning"] == [thought]


@pytest.mark.parametrize("through", [redacted, redacted_or_said_why])
@pytest.mark.parametrize("extra", FIELDS)
def test_known_values_are_taken_out_of_sealed_fields_all_the_same(
    extra: dict[str, Any], through: Any
) -> None:
    echoed = json.loads(json.dumps(extra).replace("gAAA", f"{OURS}+"))
    clean = through(Message(role="assistant", content="x", extra=echoed), Secrets(values=[OURS]))
    assert json.loads(json.dumps(clean.extra).replace("[redacted: known value]+", "gAAA")) == extra


def test_fields_of_the_same_names_that_no_provider_sent_are_free_text() -> None:
    call = ToolCall(id="c", name="sign", arguments=json.dumps({"signature": SHAPED, "data": SHAPED}))
    clean = redacted(Message.assistant(SHAPED, [call]), Secrets())
    assert SHAPED not in json.dumps(clean.to_openai())
    plain = Message(role="assistant", extra={"note": {"type": "text", "data": SHAPED}})
    assert SHAPED not in json.dumps(redacted(plain, Secrets()).to_openai())


@pytest.mark.parametrize(
    "held",
    [
        {"content": [{"type": "tool_use", "input": {"signature": SHAPED, "encrypted_content": SHAPED}}]},
        {"content": [{"type": "tool_use", "input": [{"type": "redacted_thinking", "data": SHAPED}]}]},
        {"content": [{"type": "text", "text": "x", "encrypted_note": SHAPED}]},
        {"content": "x", "calls": {"args": {"thoughtSignature": SHAPED}}},
        {"content": "x", "reasoning_opaque": {"note": SHAPED}},
        {"content": "x", "encrypted_password": SHAPED, "my_signature": SHAPED},
        {"content": "x", "note": {"type": "encrypted", "data": SHAPED}},
    ],
)
def test_what_is_nobodys_seal_is_free_text(held: dict[str, Any]) -> None:
    clean = redacted(Message.from_openai({"role": "assistant", **held}), Secrets())
    assert json.dumps(clean.to_openai()) == json.dumps({"role": "assistant", **held}).replace(
        SHAPED, "[redacted: Hugging Face token]"
    )


def test_a_redaction_that_knows_no_values_sees_sealed_fields_too() -> None:
    sealed = Message(role="assistant", content="x", extra={"signature": "abc"})
    assert redacted(sealed, str.upper).extra == {"signature": "ABC"}
