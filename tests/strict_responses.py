"""The Responses API side of the strict provider: what it refuses, and how it says a reply.

R1: each call has exactly one output behind it, and no output stands without its call. R2: ids are unique,
not too long, and begin as their kind does. R3: arguments decode to a JSON object. R4: only known fields and
kinds, no empty content. R5: reasoning stands before what came after it, as it was sent, and what came after
it never without it. R6: nothing is stored, so reasoning must be in the item itself. V6 and V10 as for chat.
"""

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.strict_replies import Answered, Body, Overflowing, Reply, events
from tests.strict_rules import prompt_tokens

MOST_ID_CHARS = 64
_FIELDS = frozenset(
    {"model", "input", "instructions", "tools", "include", "store", "stream", "max_output_tokens"}
    | {"temperature", "reasoning", "text", "parallel_tool_calls", "tool_choice", "top_p", "metadata"}
    | {"previous_response_id", "truncation", "user", "service_tier"}
)
_ITEM_FIELDS: Mapping[str, frozenset[str]] = {
    "message": frozenset({"type", "role", "content", "id", "status", "phase"}),
    "function_call": frozenset({"type", "call_id", "name", "arguments", "id", "status", "namespace"}),
    "function_call_output": frozenset({"type", "call_id", "output", "id", "status"}),
    "custom_tool_call": frozenset({"type", "call_id", "name", "input", "id", "status"}),
    "custom_tool_call_output": frozenset({"type", "call_id", "output", "id", "status"}),
    "reasoning": frozenset({"type", "id", "summary", "content", "encrypted_content"}),
    "web_search_call": frozenset({"type", "id", "status", "action"}),
    "code_interpreter_call": frozenset({"type", "id", "status", "code", "container_id", "outputs"}),
    "mcp_call": frozenset({"type", "id", "name", "arguments", "output", "server_label", "error", "status"}),
    "computer_call": frozenset({"type", "id", "call_id", "action", "pending_safety_checks", "status"}),
}
_PREFIXES = {"message": "msg_", "function_call": "fc_", "reasoning": "rs_", "custom_tool_call": "ctc_"}
_INPUT_PARTS = {
    "input_text": frozenset({"type", "text"}),
    "input_image": frozenset({"type", "image_url", "file_id", "detail"}),
    "input_file": frozenset({"type", "file_data", "file_id", "file_url", "filename", "detail"}),
}
_OUTPUT_PARTS = {
    "output_text": frozenset({"type", "text", "annotations", "logprobs"}),
    "refusal": frozenset({"type", "refusal"}),
}
_PLACES = {"call": frozenset({"function_call", "custom_tool_call", "computer_call"})}


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
        if not isinstance(body, Mapping) or not isinstance(body.get("input"), list) or not body["input"]:
            return ["R0 the body is no object with a list of input that is not empty"]
        items = [item for item in body["input"] if isinstance(item, Mapping)]
        found = [] if len(items) == len(body["input"]) else ["R0 an item is no object"]
        found += [f"R0 unknown parameter {name!r}" for name in body if name not in _FIELDS]
        found += [*_tools(body), *_shapes(items)]
        if not found:
            found += [*_pairing(items), *_ids(items), *_arguments(items), *self._pairs(items)]
            found += [*_stored(body, items), *_encoding(body)]
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


def tokens_of(body: Body, factor: float = 1.0) -> int:
    """The server's own count: as for chat, and the bytes of all items that chat has not, by four."""
    others = [item for item in body["input"] if item["type"] not in _CHAT_KINDS]
    return prompt_tokens(as_chat(body), factor) + _json_bytes(others) // 4


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


def response(body: Body, reply: Reply, output: Sequence[Body], usage: Body | None) -> Body:
    """The whole response."""
    cut = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(reply.finish or "")
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "incomplete" if cut else "completed",
        "error": None,
        "incomplete_details": {"reason": cut} if cut else None,
        "model": body.get("model"),
        "output": list(output),
        "usage": None if usage is None else _usage(usage),
    }


def response_events(body: Body, reply: Reply, output: Sequence[Body], usage: Body | None) -> list[bytes]:
    """The response as the events of a stream."""
    end = response(body, reply, output, usage)
    begun = end | {"status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    told: list[Body] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    for index, item in enumerate(output):
        told += ({**event, "output_index": index} for event in _item_events(item, reply.piece_chars))
    told.append({"type": f"response.{end['status']}", "response": end})
    return [sse(event | {"sequence_number": number}) for number, event in enumerate(told)]


def sse(event: Body) -> bytes:
    """One event as it is sent."""
    data = json.dumps(event, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return f"event: {event['type']}\ndata: ".encode() + data + b"\n\n"


PATH = "/v1/responses"


def failed(code: str, message: str) -> Answered:
    """A stream that begins in order and ends with a failure."""
    error = {"code": code, "message": message}
    begun = {"type": "response.created", "response": {"status": "in_progress", "output": []}}
    end = {"type": "response.failed", "response": {"status": "failed", "error": error, "output": []}}
    return events(begun, end, done=False)


RESPONSES_OVERFLOWS: dict[str, Overflowing] = {
    "responses-failed": lambda window, prompt, answer: failed(
        "context_length_exceeded",
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
    ),
    "responses-error": lambda window, prompt, answer: events(
        {
            "type": "error",
            "code": "context_length_exceeded",
            "message": f"This model's maximum context length is {window} tokens; you sent {prompt} tokens.",
            "param": "input",
        },
        done=False,
    ),
}


def _item_events(item: Body, piece_chars: int) -> Iterator[Body]:
    named = {"item_id": item.get("id")}
    empty = {"content": [], "arguments": "", "input": "", "status": "in_progress", "encrypted_content": ""}
    yield {"type": "response.output_item.added", "item": item | {k: v for k, v in empty.items() if k in item}}
    match item["type"]:
        case "message":
            for at, part in enumerate(item["content"]):
                yield from (
                    {**event, **named, "content_index": at} for event in _part_events(part, piece_chars)
                )
        case "function_call":
            for piece in _pieces(item["arguments"], piece_chars):
                yield {"type": "response.function_call_arguments.delta", "delta": piece, **named}
            yield {"type": "response.function_call_arguments.done", "arguments": item["arguments"], **named}
        case "reasoning":
            for at, part in enumerate(item["summary"]):
                place = {"summary_index": at, **named}
                yield {"type": "response.reasoning_summary_part.added", "part": part | {"text": ""}, **place}
                for piece in _pieces(part["text"], piece_chars):
                    yield {"type": "response.reasoning_summary_text.delta", "delta": piece, **place}
                yield {"type": "response.reasoning_summary_part.done", "part": part, **place}
        case kind:
            yield {"type": f"response.{kind}.in_progress", **named}
    yield {"type": "response.output_item.done", "item": item}


def _part_events(part: Body, piece_chars: int) -> Iterator[Body]:
    kind, field = ("refusal", "refusal") if part["type"] == "refusal" else ("output_text", "text")
    yield {"type": "response.content_part.added", "part": part | {field: ""}}
    for piece in _pieces(part[field], piece_chars):
        yield {"type": f"response.{kind}.delta", "delta": piece}
    yield {"type": f"response.{kind}.done", field: part[field]}
    yield {"type": "response.content_part.done", "part": part}


def _tools(body: Body) -> Iterator[str]:
    for tool in body.get("tools", ()):
        if tool.get("type") == "function" and (not tool.get("name") or "function" in tool):
            yield "R4 a tool has no name of its own"
        if tool.get("type") == "function" and not isinstance(tool.get("strict"), bool):
            yield "R4 a tool does not say whether it is strict"
    if not isinstance(body.get("instructions", ""), str):
        yield "R4 instructions are no text"


def _shapes(items: Sequence[Body]) -> Iterator[str]:
    for at, item in enumerate(items):
        kind = item.get("type")
        if kind not in _ITEM_FIELDS:
            yield f"R4 item {at} has the unknown type {kind!r}"
            continue
        yield from (
            f"R4 item {at} has unknown field {name!r}" for name in item if name not in _ITEM_FIELDS[kind]
        )
        yield from (f"R4 item {at} has {name!r} null" for name, value in item.items() if value is None)
        if kind == "message":
            yield from _content(at, item)
        if kind.endswith("_output") and not isinstance(item.get("output"), str):
            yield from _parts(at, item.get("output"), _INPUT_PARTS)
        if kind == "reasoning" and not isinstance(item.get("summary"), list):
            yield f"R4 item {at} misses the required summary"


def _content(at: int, item: Body) -> Iterator[str]:
    role, content = item.get("role"), item.get("content")
    if role not in ("user", "assistant"):
        yield f"R4 item {at} has the role {role!r}"
    yield from _parts(at, content, _OUTPUT_PARTS if role == "assistant" else _INPUT_PARTS)


def _parts(at: int, parts: object, known: Mapping[str, frozenset[str]]) -> Iterator[str]:
    if not isinstance(parts, list) or not parts:
        yield f"R4 item {at} has empty content"
        return
    for part in parts:
        if not isinstance(part, Mapping) or str(part.get("type")) not in known:
            yield f"R4 item {at} has a part of unknown kind: {part}"
        elif not part.keys() <= known[part["type"]]:
            yield f"R4 item {at} has a part of unknown shape: {part}"


def _pairing(items: Sequence[Body]) -> Iterator[str]:
    waiting: dict[str, str] = {}
    for at, item in enumerate(items):
        kind, call_id = item["type"], str(item.get("call_id"))
        if kind in _PLACES["call"]:
            waiting[call_id] = f"{kind}_output"
        elif kind.endswith("_output") and waiting.pop(call_id, None) != kind:
            yield f"R1 no tool call found for output {at} with call_id {call_id!r}"
        elif kind == "message" and item["role"] == "user" and waiting:
            yield f"R1 message {at} stands where outputs of {list(waiting)} are wanted"
    yield from (f"R1 no tool output found for call {call_id!r}" for call_id in waiting)


def _ids(items: Sequence[Body]) -> Iterator[str]:
    seen: set[tuple[str, str]] = set()
    for at, item in enumerate(items):
        names = [("id", item["id"])] if "id" in item else []
        if item["type"] in _PLACES["call"]:
            names.append(("call_id", item.get("call_id", "")))
        for field, name in names:
            if not isinstance(name, str) or not 0 < len(name) <= MOST_ID_CHARS:
                yield f"R2 item {at} has a bad {field} {name!r}"
            if (field, name) in seen:
                yield f"R2 item {at} uses the {field} {name!r} again"
            seen.add((field, name))
        if "id" in item and not str(item["id"]).startswith(_PREFIXES.get(item["type"], "")):
            yield f"R2 item {at} has an id that does not begin with {_PREFIXES[item['type']]!r}"


def _arguments(items: Sequence[Body]) -> Iterator[str]:
    for at, item in enumerate(items):
        if item["type"] == "function_call" and not (item.get("name") and _is_object(item.get("arguments"))):
            yield f"R3 item {at} names no function, or has arguments that are no text of a JSON object"
        if item["type"] == "custom_tool_call" and not (
            item.get("name") and isinstance(item.get("input"), str)
        ):
            yield f"R3 item {at} names no tool, or has an input that is no text"


def _stored(body: Body, items: Iterable[Body]) -> Iterator[str]:
    if body.get("store") is not False:
        return
    if body.get("previous_response_id"):
        yield "R6 previous_response_id: nothing is stored"
    for item in items:
        if item["type"] == "reasoning" and not (item.get("encrypted_content") or item.get("content")):
            yield f"R6 item with id {item.get('id')!r} not found: items are not persisted"


def _encoding(body: Body) -> Iterator[str]:
    try:
        json.dumps(body, allow_nan=False, ensure_ascii=False).encode()
    except ValueError:
        yield "V6 the body is no strict JSON in UTF-8"


def _is_object(arguments: object) -> bool:
    try:
        return isinstance(arguments, str) and isinstance(json.loads(arguments), dict)
    except ValueError:
        return False


def _json_bytes(value: object) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode()) if value else 0


def _name(item: Body) -> str:
    return str(item.get("id") or item.get("call_id"))


def _pieces(text: str, size: int) -> Iterator[str]:
    return (text[at : at + size] for at in range(0, len(text), size))


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


def _usage(report: Body) -> Body:
    used: Body = {}
    if "prompt_tokens" in report:
        cached = report.get("prompt_tokens_details", {}).get("cached_tokens", 0)
        used |= {
            "input_tokens": report["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        }
    answer = report["completion_tokens"]
    used |= {"output_tokens": answer, "output_tokens_details": {"reasoning_tokens": answer // 2}}
    return used | {"total_tokens": report.get("prompt_tokens", 0) + answer}


_CHAT_KINDS = frozenset(
    {"message", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"}
)
