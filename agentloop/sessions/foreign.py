"""Conversations in the files of other programs, as messages of chat completions.

`FORMS` is the table: a form tells its own values (lines of the file, items of its list, or the one object
that it is), and makes messages of all of them. What is no message there is passed over. Where they stand:

- Claude Code: `~/.claude/projects/*/*.jsonl`, a line for each block of an answer
- codex: `~/.codex/sessions/**/rollout-*.jsonl` (https://github.com/openai/codex, `protocol.rs`: RolloutItem)
- mini-swe-agent: https://mini-swe-agent.com/latest/usage/output_files/
- Gemini: https://ai.google.dev/api/caching#Content
- ShareGPT: https://github.com/hiyouga/LLaMA-Factory/blob/main/data/README.md
"""

import json
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentloop._plumbing.strict_json import lenient_value
from agentloop.context import chat_messages, stub
from agentloop.errors import UsageError
from agentloop.messages import Json, text_of


@dataclass(frozen=True, slots=True, kw_only=True)
class FileForm:
    """One form of files: `tells` knows a value of it, `messages` are those that all values hold.

    They may stand in a `field`, as a list of objects.
    """

    name: str
    tells: Callable[[Json], bool]
    messages: Callable[[Sequence[Json]], Iterable[Json]]
    field: str = ""


def messages_in(values: Iterable[tuple[str, object]]) -> list[Json] | None:
    """The messages of a file of a known form, which has these values, each with its place; None: of none.

    Raises:
        UsageError: where a list of messages is to stand, there is something else.
    """
    found = [(where, value) for where, value in values if isinstance(value, Mapping)]
    form = next((form for form in FORMS if any(form.tells(value) for _, value in found)), None)
    if form is None:
        return None
    for where, value in found if form.field else ():
        held = value.get(form.field, [])
        if not (isinstance(held, list) and all(isinstance(each, Mapping) for each in held)):
            raise UsageError(f"nothing imported: {where}: {form.field!r} must be a list of objects")
    return chat_messages(form.messages([value for _, value in found]))


def _is_claude_code(value: Json) -> bool:
    return value.get("type") in ("user", "assistant") and isinstance(value.get("message"), Mapping)


def _of_claude_code(values: Sequence[Json]) -> Iterator[Json]:
    """Blocks of one answer are one message; those of sub-agents are left out where others are there."""
    lines = [value for value in values if _is_claude_code(value)]
    lines = [line for line in lines if not line.get("isSidechain")] or lines
    held: list[Json] = []
    for line in lines:
        name = line["message"].get("id")
        if held and not (name and name == held[0]["message"].get("id")):
            yield _one_answer(held)
            held = []
        held.append(line)
    if held:
        yield _one_answer(held)


def _one_answer(lines: Sequence[Json]) -> Json:
    message = lines[0]["message"]
    content = message.get("content")
    if len(lines) > 1:
        content = [block for line in lines for block in _listed(line["message"].get("content"))]
    return {"role": message.get("role") or lines[0]["type"], "content": content}


def _listed(content: object) -> list[Any]:
    return content if isinstance(content, list) else [{"type": "text", "text": str(content or "")}]


def _is_codex(value: Json) -> bool:
    return value.get("type") == "response_item" and isinstance(value.get("payload"), Mapping)


def _of_codex(values: Sequence[Json]) -> Iterator[Json]:
    return (value["payload"] for value in values if _is_codex(value) and _is_said(value["payload"]))


def _is_items(value: Json) -> bool:
    """Whether it is an item of the Responses API, also as older codex wrote it."""
    kind = value.get("type")
    return kind in ("function_call", "function_call_output", "reasoning") or (
        kind == "message" and "role" in value
    )


def _is_said(item: Json) -> bool:
    kind = str(item.get("type"))
    return _is_items(item) or kind.endswith(("_call", "_call_output"))


def _of_conversations(values: Sequence[Json]) -> Iterator[Json]:
    for value in values:
        if value.get("system"):
            yield {"role": "system", "content": value["system"]}
        for message in value.get("messages", ()):
            yield _of_trajectory(message) if "trajectory_format" in value else message


def _of_trajectory(message: Json) -> Json:
    """A message of mini-swe-agent without what it notes of it; how it ended is said to the model."""
    kept = {key: value for key, value in message.items() if key not in ("extra", "timestamp")}
    return {**kept, "role": "user"} if kept.get("role") == "exit" else kept


_SPEAKERS = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "assistant": "assistant",
    "model": "assistant",
    "system": "system",
}


def _is_sharegpt(value: Json) -> bool:
    return isinstance(value.get("conversations"), list) or value.keys() >= {"from", "value"}


def _of_sharegpt(values: Sequence[Json]) -> Iterator[Json]:
    calls = _Calls()
    for value in values:
        if isinstance(value.get("system"), str) and value["system"]:
            yield {"role": "system", "content": value["system"]}
        for said in value.get("conversations") or [value]:
            match said:
                case {"from": "function_call" | "tool_call", "value": call}:
                    yield from _sharegpt_call(call, calls)
                case {"from": "observation" | "tool" | "function_response", "value": result}:
                    yield from calls.result(None, _as_text(result))
                case {"from": str(speaker), "value": text}:
                    yield {"role": _SPEAKERS.get(speaker, speaker), "content": _as_text(text)}
                case {"role": str(), "content": _}:
                    yield said


def _sharegpt_call(value: object, calls: "_Calls") -> Iterator[Json]:
    call = lenient_value(value) if isinstance(value, str) else value
    wanted: list[Any] = call if isinstance(call, list) else [call]
    if not all(isinstance(each, Mapping) and isinstance(each.get("name"), str) for each in wanted):
        yield {"role": "assistant", "content": _as_text(value)}
        return
    made = [calls.call(each["name"], each.get("arguments", {}), None) for each in wanted]
    yield {"role": "assistant", "content": None, "tool_calls": made}


def _is_gemini(value: Json) -> bool:
    return isinstance(value.get("contents"), list) or isinstance(value.get("parts"), list)


def _of_gemini(values: Sequence[Json]) -> Iterator[Json]:
    calls = _Calls()
    for value in values:
        system = _either(value, "systemInstruction", "system_instruction")
        if isinstance(system, Mapping):
            yield {"role": "system", "content": _gemini_text(system)}
        for content in value.get("contents") or [value]:
            if isinstance(content, Mapping) and isinstance(content.get("parts"), list):
                yield from _gemini_messages(content, calls)


def _gemini_text(content: Json) -> str:
    parts = content.get("parts")
    return text_of([parts] if isinstance(parts, Mapping) else parts)


def _gemini_messages(content: Json, calls: "_Calls") -> Iterator[Json]:
    parts, made = [], []
    for part in content["parts"]:
        match part:
            case {"functionCall": Mapping() as call} | {"function_call": Mapping() as call}:
                made.append(calls.call(str(call.get("name")), call.get("args") or {}, call.get("id")))
            case {"functionResponse": Mapping() as given} | {"function_response": Mapping() as given}:
                yield from calls.result(given.get("id"), _as_text(given.get("response")), given.get("name"))
            case Mapping():
                parts.append(_gemini_part(part))
    role = "assistant" if content.get("role") == "model" else "user"
    if made:
        yield {"role": role, "content": parts or None, "tool_calls": made}
    elif parts:
        yield {"role": role, "content": parts}


def _gemini_part(part: Json) -> Json:
    blob = _either(part, "inlineData", "inline_data")
    match part, blob:
        case {"text": str(text), "thought": True}, _:
            return {"type": "thinking", "thinking": text}
        case {"text": str(text)}, _:
            return {"type": "output_text", "text": text}
        case _, {"data": str(data)}:
            medium = str(_either(blob, "mimeType", "mime_type"))
            kind = "image" if medium.startswith("image/") else "document"
            return {"type": kind, "source": {"type": "base64", "media_type": medium, "data": data}}
    return stub(part)


def _either(value: Any, *names: str) -> Any:
    return next((value[name] for name in names if name in value), None)


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class _Calls:
    """Gives calls without ids their ids, and their results the id of the oldest that waits."""

    def __init__(self) -> None:
        self._waiting: dict[int, str] = {}
        self._asked: defaultdict[tuple[str, object], deque[int]] = defaultdict(deque)
        self._count = 0

    def call(self, name: str, arguments: object, call_id: object) -> Json:
        self._count += 1
        given = call_id if isinstance(call_id, str) and call_id else f"call_{self._count}"
        self._waiting[self._count] = given
        for key in (("id", given), ("name", name), ("name", None)):
            self._asked[key].append(self._count)
        function = {"name": name, "arguments": _as_text(arguments)}
        return {"id": given, "type": "function", "function": function}

    def result(self, call_id: object, text: str, name: object = None) -> Iterator[Json]:
        """The result as a message, behind a call of its own where none waits for it: no user said it."""
        wanted = call_id if call_id is not None else name
        key = ("name" if call_id is None else "id", wanted)
        asked = self._asked.get(key) if wanted is None or isinstance(wanted, str) else None
        while asked:
            if (given := self._waiting.pop(asked.popleft(), None)) is not None:
                yield {"role": "tool", "tool_call_id": given, "content": text}
                return
        call = self.call(name if isinstance(name, str) and name else "unknown", {}, call_id)
        del self._waiting[self._count]
        yield {"role": "assistant", "content": None, "tool_calls": [call]}
        yield {"role": "tool", "tool_call_id": call["id"], "content": text}


FORMS = (
    FileForm(name="a session of Claude Code", tells=_is_claude_code, messages=_of_claude_code),
    FileForm(name="a session of codex", tells=_is_codex, messages=_of_codex),
    FileForm(
        name='{"messages": […]}, with a trajectory of mini-swe-agent among them',
        tells=lambda value: isinstance(value.get("messages"), list),
        messages=_of_conversations,
        field="messages",
    ),
    FileForm(name="ShareGPT conversations", tells=_is_sharegpt, messages=_of_sharegpt, field="conversations"),
    FileForm(name="Gemini contents", tells=_is_gemini, messages=_of_gemini, field="contents"),
    FileForm(
        name="items of the Responses API",
        tells=_is_items,
        messages=lambda values: filter(_is_said, values),
    ),
)
"""Every form that is known beside our own, in the order in which they are tried."""

KNOWN = ", ".join(["an export of agentloop", "chat-completions messages", *(form.name for form in FORMS)])
"""The forms of files that can be imported."""
