"""The items of an answer as they go back to the server: those it came as, with what the message says now.

Where the items and the message disagree, since it was shortened or changed, the message wins: its text
stands once, in the first message item, without the annotations that point into the old text.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from agentloop._plumbing.strict_json import STRICT_JSON
from agentloop.context import RESPONSE_ITEMS
from agentloop.messages import Json, text_of
from agentloop.openai_responses.from_items import (
    BETWEEN_MESSAGES,
    INPUT_FIELDS,
    TEXT_FIELDS,
    our_calls,
    texts_of,
)

Item: TypeAlias = dict[str, Any]


def items_of(message: Json) -> list[Item | None]:
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


def _said_item(text: str) -> Item:
    """A message item of this text."""
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "role": "assistant", "content": [part]}


def _with_text(items: Sequence[Json], text: str) -> list[Item | None]:
    """The items with this text in their messages; in the first one where it is no longer what they held."""
    places = [at for at, item in enumerate(items) if texts_of(item)]
    said: list[Item | None] = [dict(item) for item in items]
    texts = _cut(text, [items[at] for at in places])
    if texts is not None:
        for at, pieces in zip(places, texts, strict=True):
            content = list(_refilled(items[at]["content"], iter(pieces)))
            said[at] = {**items[at], "role": "assistant", "content": content}
        return said
    for at in places:
        said[at] = None
    if places and text.strip():
        said[places[0]] = {**items[places[0]], **_said_item(text)}
    return said


def _cut(text: str, messages: Sequence[Json]) -> list[list[str]] | None:
    """The texts of the parts of each message; None where the text is none that they could have had."""
    texts: list[list[str]] = []
    start = 0
    for message in messages:
        lengths = [_length(part) for part in texts_of(message)]
        if start and sum(lengths):
            if not text.startswith(BETWEEN_MESSAGES, start):
                return None
            start += len(BETWEEN_MESSAGES)
        texts.append([])
        for length in lengths:
            texts[-1].append(text[start : start + length])
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


def _called(item: Json, call: Json) -> Item:
    """The item of a call in wire form."""
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
    """Whether it is a message that holds nothing."""
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
