"""What the Responses API refuses of one request, whatever was said before.

R1: each call has exactly one output behind it, and no output stands without its call. R2: ids are unique,
not too long, and begin as their kind does. R3: arguments decode to a JSON object. R4: only known fields and
kinds, no empty content. R6: nothing is stored, so reasoning must be in the item itself. V6 as for chat.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tests.strict_bodies import Body, is_object, misencoded

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
_CALLS = frozenset({"function_call", "custom_tool_call", "computer_call"})


def shape_violations(body: Body, items: Sequence[Body]) -> list[str]:
    """Fields, kinds and contents that the API does not know, as lines that begin with R0 or R4."""
    found = [f"R0 unknown parameter {name!r}" for name in body if name not in _FIELDS]
    return [*found, *_tools(body), *_shapes(items)]


def order_violations(body: Body, items: Sequence[Body]) -> list[str]:
    """What R1, R2, R3, R6 and V6 find in items of known shape."""
    found = [*_pairing(items), *_ids(items), *_arguments(items)]
    return [*found, *_stored(body, items), *misencoded(body)]


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
        kind = str(item.get("type"))
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
        if kind in _CALLS:
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
        if item["type"] in _CALLS:
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
        if item["type"] == "function_call" and not (item.get("name") and is_object(item.get("arguments"))):
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
