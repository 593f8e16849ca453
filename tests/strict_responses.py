"""The Responses API side of the strict provider: what it remembers, refuses, and has in common with chat.

R0 to R4 and R6 are those of `strict_responses_rules`. R5: reasoning stands before what came after it, as it
was sent, and what came after it never without it. V10 as for chat.
"""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.strict_bodies import Body, size_of
from tests.strict_replies import Reply
from tests.strict_responses_rules import order_violations, shape_violations
from tests.strict_rules import prompt_tokens

RESPONSES_PATH = "/v1/responses"
_CHAT_KINDS = frozenset(
    {"message", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"}
)


@dataclass(frozen=True, kw_only=True)
class Output(Reply):
    """An answer of exactly these items of output, ids included."""

    items: tuple[Body, ...] = ()


class ResponsesSide:
    """What the server remembers of what it has sent, and what it refuses because of it."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._reasoning: dict[str, Body] = {}
        self._after: dict[str, str] = {}

    def output(self, reply: Reply) -> list[Body]:
        """The items of a reply; each call of this function gives them ids of their own."""
        items = list(reply.items) if isinstance(reply, Output) else list(self._items(reply))
        for item, after in itertools.pairwise(items):
            if item["type"] == "reasoning":
                self._reasoning[item["id"]] = item
                self._after[_name(after)] = item["id"]
        return items

    def violations(self, body: object, *, window: int | None, factor: float) -> list[str]:
        """Every rule the body breaks, as lines that begin with the rule's name; none for a valid body."""
        if not isinstance(body, dict) or not isinstance(body.get("input"), list) or not body["input"]:
            return ["R0 the body is no object with a list of input that is not empty"]
        items = [item for item in body["input"] if isinstance(item, dict)]
        found = [] if len(items) == len(body["input"]) else ["R0 an item is no object"]
        found += shape_violations(body, items)
        if not found:
            found += [*order_violations(body, items), *self._pairs(items)]
        if window is not None and not found:
            tokens, answer = tokens_of(body, factor), body.get("max_output_tokens") or 0
            if tokens + answer > window:
                found.append(f"V10 {tokens} tokens and {answer} for the answer, over the window of {window}")
        return found

    def _items(self, reply: Reply) -> Iterator[Body]:
        if reply.reasoning is not None:
            number = next(self._numbers)
            summary = [{"type": "summary_text", "text": reply.reasoning}] if reply.reasoning else []
            sealed = f"sealed-{number:06d}=="
            yield {
                "id": f"rs_{number:06d}",
                "type": "reasoning",
                "summary": summary,
                "encrypted_content": sealed,
            }
        if reply.text:
            part = {"type": "output_text", "annotations": [], "logprobs": [], "text": reply.text}
            yield {"id": f"msg_{next(self._numbers):06d}", "type": "message", "status": "completed"} | {
                "content": [part],
                "role": "assistant",
            }
        for call in reply.calls:
            yield {
                "id": f"fc_{next(self._numbers):06d}",
                "type": "function_call",
                "status": "incomplete" if reply.finish == "length" else "completed",
                "arguments": call.arguments,
                "call_id": call.id,
                "name": call.name,
            }

    def _pairs(self, items: Sequence[Body]) -> Iterator[str]:
        present = {item.get("id") for item in items if item["type"] == "reasoning"}
        for at, item in enumerate(items):
            needed = self._after.get(str(item.get("id")))
            if needed is not None and needed not in present:
                yield f"R5 item {at} {item['id']!r} was provided without its required reasoning {needed!r}"
            if item["type"] != "reasoning":
                continue
            following = items[at + 1] if at + 1 < len(items) else {}
            sent = self._reasoning.get(str(item.get("id")))
            if sent is not None and sent != item:
                yield f"R5 item {at} is not the reasoning that was sent"
            follows = self._after.get(_name(following)) if following else None
            if sent is not None and follows != item["id"] and following.get("type") != "reasoning":
                yield f"R5 item {at} {item['id']!r} was provided without its required following item"
            if sent is None and following.get("type") in (None, "function_call_output"):
                yield f"R5 item {at} of type reasoning stands without a following item"


def is_for_responses(body: object) -> bool:
    """Whether the body is one for the Responses API and not for chat completions."""
    return isinstance(body, Mapping) and "input" in body


def written_out(body: Body) -> Body:
    """The body, its easy input messages (a role and a text, of no type) as items of the type `message`."""
    items = body["input"]
    return {**body, "input": list(map(_written_out, items))} if isinstance(items, list) else body


def _written_out(item: Any) -> Any:
    if not isinstance(item, dict) or item.get("type", "message") != "message" or "role" not in item:
        return item
    content = item.get("content")
    if "type" in item and not isinstance(content, str):
        return item
    kind = "output_text" if item["role"] == "assistant" else "input_text"
    parts = [{"type": kind, "text": content}] if content and isinstance(content, str) else content
    return {"type": "message", **item, "content": parts}


def tokens_of(body: Body, factor: float = 1.0) -> int:
    """The server's own count: as for chat, and the bytes of all items that chat has not, by four."""
    others = [item for item in body["input"] if item["type"] not in _CHAT_KINDS]
    return prompt_tokens(as_chat(body), factor) + size_of(others) // 4


def as_chat(body: Body) -> Body:
    """The same request as chat completions would have it, for brains."""
    messages: list[Body] = []
    if body.get("instructions"):
        messages.append({"role": "system", "content": body["instructions"]})
    for item in body["input"]:
        match item["type"]:
            case "message":
                messages.append({"role": item["role"], "content": _chat_content(item["content"])})
            case "function_call" | "custom_tool_call":
                _add_call(messages, item)
            case "function_call_output" | "custom_tool_call_output":
                output = item["output"]
                content = output if isinstance(output, str) else _chat_content(output)
                messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": content})
    tools = [
        {"type": "function", "function": {key: value for key, value in tool.items() if key != "type"}}
        for tool in body.get("tools", ())
        if tool["type"] == "function"
    ]
    limit = {"max_tokens": body["max_output_tokens"]} if body.get("max_output_tokens") else {}
    return {"model": body.get("model"), "messages": messages, **({"tools": tools} if tools else {}), **limit}


def _name(item: Body) -> str:
    return str(item.get("id") or item.get("call_id"))


def _chat_content(parts: Sequence[Body]) -> Any:
    texts = [part.get("text") or part.get("refusal") or "" for part in parts]
    if all("text" in part or "refusal" in part for part in parts):
        return "".join(texts)
    return [{"type": "text", "text": text} if text else part for part, text in zip(parts, texts, strict=True)]


def _add_call(messages: list[Body], item: Body) -> None:
    arguments = item.get("arguments") or json.dumps({"input": item.get("input")})
    function = {"name": item["name"], "arguments": arguments}
    call = {"id": item["call_id"], "type": "function", "function": function}
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": None})
    messages[-1].setdefault("tool_calls", []).append(call)
