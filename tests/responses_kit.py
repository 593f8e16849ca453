"""A model of the Responses API, the items and events of its answers, and what is sent back of them."""

import json
from collections.abc import Mapping
from typing import Any

from agentloop.context import wire_messages
from agentloop.messages import Message
from agentloop.models import Answer, ModelRequest, RetryPolicy
from agentloop.providers.openai import OpenAIResponses
from agentloop.providers.openai.items import inputs_of
from agentloop.providers.openai.responses import GrowingResponse
from tests.server_kit import LOOK, Waits
from tests.strict_bodies import Body
from tests.strict_provider import StrictProvider
from tests.strict_replies import Raw, Reply
from tests.strict_responses import ResponsesSide
from tests.strict_responses_replies import response, sse


def responses(server: StrictProvider, **options: Any) -> OpenAIResponses:
    """A model of the Responses API of this server; no wait is real."""
    fixed: dict[str, Any] = {
        "base_url": server.url,
        "api_key": "sk-test",
        "retry": RetryPolicy(sleep=Waits()),
    }
    return OpenAIResponses("strict", **(fixed | options))


def following(*messages: Message, tools: tuple[Any, ...] = (LOOK,)) -> ModelRequest:
    """The request in which these messages are what was said so far."""
    return ModelRequest(messages=wire_messages([Message.user("Hello"), *messages]), tools=tools)


def results_for(message: Message) -> list[Message]:
    """A result for each call of the message."""
    return [Message.tool(call.id, "seen") for call in message.tool_calls]


def text_part(text: str, **fields: Any) -> Body:
    """A text as a part of an answer's message."""
    return {"type": "output_text", "annotations": [], "logprobs": [], "text": text} | fields


def message_item(number: int, *parts: Body, **fields: Any) -> Body:
    """A message of an answer, with these parts."""
    item = {"id": f"msg_{number}", "type": "message", "status": "completed", "content": list(parts)}
    return item | {"role": "assistant"} | fields


def call_item(number: int, arguments: str = '{"path": "ä"}', **fields: Any) -> Body:
    """A call of an answer."""
    item = {"id": f"fc_{number}", "type": "function_call", "status": "completed", "arguments": arguments}
    return item | {"call_id": f"call_{number}", "name": "look"} | fields


def thought(number: int, *summary: str, **fields: Any) -> Body:
    """Reasoning of an answer, sealed, with this summary."""
    parts = [{"type": "summary_text", "text": text} for text in summary]
    sealed = f"gAAAA{number}=="
    return {"id": f"rs_{number}", "type": "reasoning", "summary": parts, "encrypted_content": sealed} | fields


CITATION = {"type": "url_citation", "start_index": 0, "end_index": 2, "url": "u", "title": "t"}
SEARCH: Body = {
    "id": "ws_1",
    "type": "web_search_call",
    "status": "completed",
    "action": {"type": "search", "query": "ä 🙂", "sources": [{"z": 1, "a": None}]},
}
OUTPUTS: dict[str, list[Body]] = {
    "text": [message_item(1, text_part("plain, ünïcödé 🙂"))],
    "refusal": [message_item(1, {"type": "refusal", "refusal": "I cannot."})],
    "text and refusal": [message_item(1, text_part("Well, "), {"type": "refusal", "refusal": "no."})],
    "citations": [message_item(1, text_part("as said", annotations=[CITATION]), phase="final_answer")],
    "two parts": [message_item(1, text_part("one "), text_part("two", annotations=[CITATION]))],
    "two messages": [
        message_item(1, text_part("First I look."), phase="commentary"),
        call_item(1),
        message_item(2, text_part("\n\nThen I say."), phase="final_answer"),
    ],
    "an empty message": [message_item(1, text_part("")), call_item(1)],
    "calls": [call_item(1), call_item(2, "{}", namespace="files")],
    "reasoning and a call": [thought(1, "First,\n  then 🙂."), call_item(1)],
    "reasoning, text and calls": [
        thought(1),
        message_item(1, text_part("I look.")),
        thought(2, "a", "b"),
        call_item(1),
        call_item(2),
    ],
    "two thoughts in a row": [thought(1, "a"), thought(2, "b"), message_item(1, text_part("so"))],
    "search": [thought(1), SEARCH, thought(2), message_item(1, text_part("found", annotations=[CITATION]))],
    "a custom call": [
        {
            "id": "ctc_1",
            "type": "custom_tool_call",
            "status": "completed",
            "call_id": "call_c",
            "name": "run",
            "input": 'print("ä")',
        }
    ],
    "a hosted function": [
        call_item(1),
        {"type": "function_call_output", "call_id": "call_1", "output": "by the server", "id": "fco_1"},
        message_item(1, text_part("done")),
    ],
}
HELLO = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]}


def whole_of(items: list[Body], **fields: Any) -> Answer:
    """The answer of these items, as it comes in one piece."""
    return GrowingResponse.whole(json.dumps(response({}, Reply(), items, None) | fields).encode())


def sent_back(*messages: Message) -> list[dict[str, Any]]:
    """The items behind the first user message."""
    items = inputs_of(following(*messages).messages, with_reasoning=True)[1:]
    body = {"input": [HELLO, *items], "store": False}
    broken = ResponsesSide().violations(body, window=None, factor=1.0)
    assert broken == []
    return items


def told(*happened: Mapping[str, Any]) -> Raw:
    """A stream of these events."""
    return Raw(pieces=tuple(sse(dict(event)) for event in happened))


def delta(text: str, **fields: Any) -> Body:
    """The event of a piece of text."""
    return {
        "type": "response.output_text.delta",
        "item_id": "msg_1",
        "output_index": 0,
        "delta": text,
    } | fields


def ended(status: str = "completed", **fields: Any) -> Body:
    """The event that ends a stream."""
    return {"type": f"response.{status}", "response": {"status": status, "output": []} | fields}


def begun(item: Body, at: int = 0) -> Body:
    """The event that begins an item."""
    return {"type": "response.output_item.added", "output_index": at, "item": item}


def finished(item: Body, at: int = 0) -> Body:
    """The event that ends an item."""
    return {"type": "response.output_item.done", "output_index": at, "item": item}
