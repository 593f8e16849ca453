"""Messages to and from the items of the Responses API, without loss.

A message's typed fields hold what was said and called; its field `response_items` holds the items in order,
without what the typed fields hold: a text there is its length, and a call has neither its id, name nor
arguments. So nothing is stored twice, and what is shown shortened or renamed later is so everywhere.

An answer goes back as the items that it came as, with what the message says now. Where the two disagree,
since it was shortened or changed, the message wins: its text stands once, in the first message item, without
the annotations that point into the old text.

Some items must stand together. The API refuses a reasoning item whose following item is missing, and an item
known by its id without the reasoning that it came from. With `store` false it finds reasoning only in the
item itself, so one that carries nothing cannot go back; what it led to then goes back without its id, as
something merely said.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, TypeAlias

from agentloop._plumbing.strict_json import STRICT_JSON
from agentloop.context import RESPONSE_ITEMS, SYSTEM_ROLES, stub
from agentloop.messages import Json, Message, ToolCall, text_of
from agentloop.providers.openai.chat_parts import dedupe_arguments

BETWEEN_MESSAGES = "\n\n"
"""Stands in the text of a message between what came as messages of their own."""

TEXT_FIELDS: Json = {"output_text": "text", "refusal": "refusal"}
"""The parts of a message item that are text, and the field that holds it."""

INPUT_FIELDS: Json = {"function_call": "arguments", "custom_tool_call": "input"}
"""The items that are calls for us to answer, and the field that holds what is given to them."""


def message_of(items: Sequence[Json]) -> Message:
    """The items as one assistant message.

    Raises:
        UsageError: they are nested too deep.
    """
    ours = our_calls(items)
    text = text_of_items(items)
    data: dict[str, Any] = {"role": "assistant", "content": text or (None if ours else "")}
    if ours:
        data["tool_calls"] = [_tool_call(items[at]) for at in ours]
    if items:
        data[RESPONSE_ITEMS] = [
            _without_call(item) if at in ours else _without_texts(item) for at, item in enumerate(items)
        ]
    return Message.from_openai(data)


def text_of_items(items: Iterable[Json]) -> str:
    texts = ("".join(map(_text_in, texts_of(item))) for item in items)
    return BETWEEN_MESSAGES.join(text for text in texts if text)


def texts_of(item: Json) -> list[Json]:
    """The parts of a message item that are text; none of any other item."""
    content = item.get("content") if item.get("type") == "message" else None
    return [part for part in content if _is_text(part)] if isinstance(content, list) else []


def _text_in(part: Json) -> str:
    text = part.get(TEXT_FIELDS[part["type"]])
    return text if isinstance(text, str) else ""


def our_calls(items: Sequence[Json]) -> list[int]:
    """Where the calls stand that wait for our answer; others have their output behind them."""
    ours: list[int] = []
    answered: set[tuple[str, str]] = set()
    for at in reversed(range(len(items))):
        kind, call_id = str(items[at].get("type")), str(items[at].get("call_id"))
        if kind in INPUT_FIELDS and (f"{kind}_output", call_id) not in answered:
            ours.append(at)
        answered.add((kind, call_id))
    return ours[::-1]


def _is_text(part: object) -> bool:
    return isinstance(part, Mapping) and str(part.get("type")) in TEXT_FIELDS


def _tool_call(item: Json) -> Json:
    given = item.get(INPUT_FIELDS[item["type"]])
    if item["type"] == "custom_tool_call":
        given = {"input": given}
    arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    function = {"name": str(item.get("name") or ""), "arguments": dedupe_arguments(arguments)}
    return {"id": str(item.get("call_id") or ""), "type": "function", "function": function}


def _without_call(item: Json) -> Json:
    held = ("call_id", "name", INPUT_FIELDS[item["type"]])
    return {key: value for key, value in item.items() if key not in held}


def _without_texts(item: Json) -> Json:
    if not texts_of(item):
        return item
    return {**item, "content": [_without_text(part) for part in item["content"]]}


def _without_text(part: Any) -> Any:
    return {**part, TEXT_FIELDS[part["type"]]: len(_text_in(part))} if _is_text(part) else part


ResponseItem: TypeAlias = dict[str, Any]


def items_of(message: Json) -> list[ResponseItem | None]:
    """The items of an assistant message in wire form; None in the place of one that cannot go back.

    A message that came from elsewhere gets the items that say the same.
    """
    kept = message.get(RESPONSE_ITEMS)
    items = [item for item in kept if _is_item(item)] if isinstance(kept, list) else []
    calls, text = list(message.get("tool_calls") or ()), text_of(message.get("content"))
    places = our_calls(items)
    said = _with_text(items, text)
    ours = [call["id"] for call in calls]
    for place, item in enumerate(items):
        if _is_hollow(item) or _waits_for_another(items, place) or item.get("call_id") in ours:
            said[place] = None
    for place, call in zip(places, calls, strict=False):
        said[place] = _called(items[place], call)
    for place in places[len(calls) :]:
        said[place] = None
    before = [_said_item(text)] if text.strip() and not any(map(texts_of, items)) else []
    return [*before, *said, *(_called({"type": "function_call"}, call) for call in calls[len(places) :])]


def _said_item(text: str) -> ResponseItem:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "role": "assistant", "content": [part]}


def _with_text(items: Sequence[Json], text: str) -> list[ResponseItem | None]:
    """The items with this text in their messages; in the first one where it is no longer what they held."""
    places = [at for at, item in enumerate(items) if texts_of(item)]
    said: list[ResponseItem | None] = [dict(item) for item in items]
    texts = _cut(text, [items[at] for at in places])
    if texts is not None:
        pieces = iter(texts)
        for at in places:
            content = list(_refilled(items[at]["content"], pieces))
            said[at] = {**items[at], "role": "assistant", "content": content}
        return said
    for at in places:
        said[at] = None
    if places and text.strip():
        said[places[0]] = {**items[places[0]], **_said_item(text)}
    return said


def _cut(text: str, messages: Sequence[Json]) -> list[str] | None:
    """The texts of the parts of the messages; None where the text is none that they could have had."""
    texts: list[str] = []
    start = 0
    for message in messages:
        lengths = [_length(part) for part in texts_of(message)]
        if start and sum(lengths):
            if not text.startswith(BETWEEN_MESSAGES, start):
                return None
            start += len(BETWEEN_MESSAGES)
        for length in lengths:
            texts.append(text[start : start + length])
            start += length
    return texts if start == len(text) else None


def _length(part: Json) -> int:
    held = part.get(TEXT_FIELDS[part["type"]])
    return len(held) if isinstance(held, str) else max(0, held) if isinstance(held, int) else 0


def _refilled(content: Sequence[Any], texts: Iterator[str]) -> Iterator[Any]:
    for part in content:
        if isinstance(part, Mapping):
            is_text = str(part.get("type")) in TEXT_FIELDS
            yield {**part, TEXT_FIELDS[part["type"]]: next(texts)} if is_text else part


def _called(item: Json, call: Json) -> ResponseItem:
    function = call["function"]
    given = function["arguments"]
    if item["type"] == "custom_tool_call":
        given = _input(given)
    named = {"call_id": call["id"], "name": function["name"], INPUT_FIELDS[item["type"]]: given}
    return {**item, **named}


def _input(arguments: str) -> str:
    """What stood in a custom call, out of the arguments that stand for it."""
    given = STRICT_JSON.decode(arguments)
    return given["input"] if given.keys() == {"input"} and isinstance(given["input"], str) else arguments


def _is_hollow(item: Json) -> bool:
    content = item.get("content")
    return item["type"] == "message" and not (isinstance(content, list | tuple) and content)


def _waits_for_another(items: Sequence[Json], place: int) -> bool:
    """Whether there is a call of another kind that nobody has answered, which the API would refuse."""
    kind, call_id = str(items[place]["type"]), items[place].get("call_id")
    if not kind.endswith("_call") or not call_id or kind in INPUT_FIELDS:
        return False
    answers = (other for other in items[place + 1 :] if other["type"] == f"{kind}_output")
    return all(call_id not in (other.get("call_id"), other.get("id")) for other in answers)


def _is_item(value: object) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("type"), str)


MOST_ID_CHARS = 64
"""OpenAI refuses longer ids of calls, and of items: \"Expected a string with maximum length 64\"."""

_HASH_CHARS = 16


class SentCalls:
    """Knows the ids that the calls of one request have taken so far."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._ours: dict[str, str] = {}
        self._custom: set[str] = set()
        self._by_server: set[str] = set()

    def of_item(self, item: ResponseItem, ours: AbstractSet[str]) -> ResponseItem | None:
        """The item of an answer with an id for its call; None where another call has taken the id.

        `ours` are the ids of the calls in that answer that wait for our output.
        """
        name, kind = item.get("call_id"), item["type"]
        if not isinstance(name, str):
            return item if name is None else None
        if kind in INPUT_FIELDS and name in ours:
            return self._of_ours(item, name)
        if kind.endswith("_output"):
            known = name in self._by_server
            self._by_server.discard(name)
            return item if known else None
        if name in self._taken or not _is_whole(item):
            return None
        self._taken.add(name)
        self._by_server.add(name)
        return item

    def of_output(self, name: str, output: object) -> ResponseItem:
        kind = "custom_tool_call_output" if name in self._custom else "function_call_output"
        return {"type": kind, "call_id": self._ours.get(name, name), "output": output}

    def _of_ours(self, item: ResponseItem, name: str) -> ResponseItem:
        given = name if len(name) <= MOST_ID_CHARS else _short(name)
        while given in self._taken:
            given = _short(name + given)
        self._taken.add(given)
        self._ours[name] = given
        if item["type"] == "custom_tool_call":
            self._custom.add(name)
        return {**item, "call_id": given}


def _is_whole(item: ResponseItem) -> bool:
    """Whether a call that the server has answered itself has all that a call must have."""
    if (field := INPUT_FIELDS.get(item["type"])) is None:
        return True
    name, given = item.get("name"), item.get(field)
    if not (name and isinstance(name, str) and isinstance(given, str)):
        return False
    return field != "arguments" or ToolCall(id="", name=name, arguments=given or "?").decoded() is not None


def _short(name: str) -> str:
    ending = hashlib.sha256(name.encode()).hexdigest()[:_HASH_CHARS]
    return f"{name[: MOST_ID_CHARS - _HASH_CHARS - 1]}_{ending}"


_PREFIXES = {"reasoning": "rs_", "message": "msg_", "function_call": "fc_", "custom_tool_call": "ctc_"}
"""OpenAI refuses others: \"Expected an ID that begins with 'fc'\", and so for each."""

_NEVER_NULL = frozenset(_PREFIXES)


class Pairs:
    """Makes the items of one request after the other answer's fit to be sent.

    `with_reasoning` says whether this server takes reasoning back.
    """

    def __init__(self, *, with_reasoning: bool) -> None:
        self._with_reasoning = with_reasoning
        self._ids: set[str] = set()

    def of(self, items: Iterable[ResponseItem | None]) -> Iterator[ResponseItem]:
        """The items of one answer that can be sent; None stands for one that cannot."""
        thoughts: list[ResponseItem] = []
        known = True
        for item in items:
            if item is not None and item.get("type") == "reasoning":
                thoughts.append(item)
                continue
            if thoughts:
                # What a call gave is never what reasoning led to.
                is_led_to = item is not None and not str(item.get("type")).endswith("_output")
                known = is_led_to and all(map(self._goes_back, thoughts))
                yield from (self._sent(thought) for thought in thoughts if known)
                thoughts = []
            if item is not None:
                yield self._sent(item if known else _without_id(item))

    def _goes_back(self, thought: ResponseItem) -> bool:
        sealed, content = thought.get("encrypted_content"), thought.get("content")
        says = (isinstance(sealed, str) and sealed) or (isinstance(content, list) and content)
        return bool(self._with_reasoning and says and str(thought.get("id")) not in self._ids)

    def _sent(self, item: ResponseItem) -> ResponseItem:
        kind = str(item.get("type"))
        if kind in _NEVER_NULL:
            item = {key: value for key, value in item.items() if value is not None}
        name, prefix = item.get("id"), _PREFIXES.get(kind, "")
        if kind == "reasoning" and "summary" not in item:
            item = {**item, "summary": []}
        if name is None:
            return item
        fits = isinstance(name, str) and name.startswith(prefix) and 0 < len(name) <= MOST_ID_CHARS
        if not fits or name in self._ids:
            return _without_id(item)
        self._ids.add(name)
        return item


def _without_id(item: ResponseItem) -> ResponseItem:
    return {key: value for key, value in item.items() if key != "id"}


_INPUT_FIELDS: Mapping[str, frozenset[str]] = {
    "input_image": frozenset({"image_url", "file_id"}),
    "input_file": frozenset({"file_data", "file_id", "file_url", "filename"}),
}
"""The parts that this API takes beside texts, and which texts they hold."""


def instructions_of(messages: Sequence[Json]) -> str | None:
    """The text of the system message that begins the request; None where there is none."""
    if not messages or messages[0].get("role") not in SYSTEM_ROLES:
        return None
    return text_of(messages[0].get("content"))


def inputs_of(messages: Sequence[Json], *, with_reasoning: bool) -> list[ResponseItem]:
    """The items that the messages stand for, the system message that begins them left out.

    The same messages give the same items, and more messages the same ones first.
    """
    rest = messages if instructions_of(messages) is None else messages[1:]
    pairs, calls = Pairs(with_reasoning=with_reasoning), SentCalls()
    items: list[ResponseItem] = []
    for message in rest:
        match message.get("role"):
            case "assistant":
                ours = {call["id"] for call in message.get("tool_calls") or ()}
                items += pairs.of(item and calls.of_item(item, ours) for item in items_of(message))
            case "tool":
                content = message["content"]
                output = content if isinstance(content, str) else _content(message)
                items.append(calls.of_output(message["tool_call_id"], output))
            case role:
                items.append({"type": "message", "role": role, "content": _content(message)})
    return items


def _content(message: Json) -> list[ResponseItem]:
    content = message.get("content")
    if isinstance(content, list):
        return [_part(part) for part in content]
    return [{"type": "input_text", "text": content or ""}]


def _part(part: Json) -> ResponseItem:
    """A part of what a user said or a tool gave; one of a kind that this API lacks as a text that says so."""
    match part:
        case {"type": "text", "text": str(text)}:
            return {"type": "input_text", "text": text}
        case {"type": "image_url", "image_url": {"url": str(url), **rest}}:
            return {"type": "input_image", "image_url": url, "detail": rest.get("detail") or "auto"}
        case {"type": "file", "file": Mapping() as file}:
            return _part({**file, "type": "input_file"})
        case {"type": str(kind)} if known := _INPUT_FIELDS.get(kind):
            held = {key: value for key, value in part.items() if key in known and isinstance(value, str)}
            if held:
                return {"type": kind, **held}
    return {"type": "input_text", "text": stub(part)["text"]}
