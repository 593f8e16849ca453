"""The ids of calls in one request: each names one call, and none is longer than the API takes."""

import hashlib
from collections.abc import Set as AbstractSet

from agentloop.messages import ToolCall
from agentloop.openai_responses.from_items import INPUT_FIELDS
from agentloop.openai_responses.to_items import Item

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

    def of_item(self, item: Item, ours: AbstractSet[str]) -> Item | None:
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

    def of_output(self, name: str, output: object) -> Item:
        """The item of a result."""
        kind = "custom_tool_call_output" if name in self._custom else "function_call_output"
        return {"type": kind, "call_id": self._ours.get(name, name), "output": output}

    def _of_ours(self, item: Item, name: str) -> Item:
        given = name if len(name) <= MOST_ID_CHARS else _short(name)
        while given in self._taken:
            given = _short(name + given)
        self._taken.add(given)
        self._ours[name] = given
        if item["type"] == "custom_tool_call":
            self._custom.add(name)
        return {**item, "call_id": given}


def _is_whole(item: Item) -> bool:
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
