"""A response that grows: the items of its output, as far as the events of a stream have brought them."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentloop.messages import Json
from agentloop.openai_responses.from_items import INPUT_FIELDS, TEXT_FIELDS
from agentloop.openai_responses.left_out import completed, filled


class _GrowingItem:
    """One item of the output; `done` says that it has come whole."""

    def __init__(self, item: Json, index: object) -> None:
        self.id = item.get("id")
        self.index = index
        self.done = False
        self._item = item
        self._parts: dict[int, tuple[Json, list[str]]] = {}
        self._arguments: list[str] = []
        self._arguments_done = False

    @property
    def is_whole(self) -> bool:
        """Whether it has come whole, or is a call of which the arguments have."""
        return self.done or (self._arguments_done and _is_call(self._item))

    @property
    def counts(self) -> bool:
        """Whether it was said, though the end of all says nothing of it: it is whole, or is shown text."""
        return self.is_whole or bool(self._parts)

    def end(self, item: Json) -> None:
        """Take the whole item; what it leaves empty is what came before it."""
        self._item, self.done = filled(item, {**self.item(), "type": item.get("type")}), True

    def add_part(self, index: int, part: Json) -> None:
        """Take a part of a message; what it holds of its text stands in place of what came so far."""
        text = part.get(TEXT_FIELDS.get(str(part.get("type")), ""))
        _, texts = self._parts.get(index, (part, []))
        self._parts[index] = part, [text] if isinstance(text, str) and text else texts

    def add_text(self, index: int, kind: str, text: str) -> None:
        """Take a piece of a part's text."""
        self._part(index, kind)[1].append(text)

    def end_text(self, index: int, kind: str, text: str) -> None:
        """Take a part's whole text; where the end does not say it, it is what came before it."""
        if text:
            self._part(index, kind)[1][:] = [text]

    def add_arguments(self, text: str) -> None:
        """Take a piece of a call's arguments."""
        self._arguments.append(text)

    def end_arguments(self, text: object) -> None:
        """Take a call's whole arguments; where the end does not say them, they are what came before it."""
        self._arguments_done = True
        if isinstance(text, str) and text:
            self._arguments = [text]

    def item(self) -> Json:
        """The item, as far as it has come."""
        if self.done:
            return self._item
        if self._arguments:
            field = INPUT_FIELDS.get(str(self._item.get("type")), "arguments")
            return {**self._item, field: "".join(self._arguments)}
        if not self._parts:
            return self._item
        pieces = (self._parts[index] for index in sorted(self._parts))
        parts = [_holding(part, "".join(texts)) for part, texts in pieces]
        return {**self._item, "content": parts}

    def _part(self, index: int, kind: str) -> tuple[Json, list[str]]:
        empty: Json = {"type": kind, "annotations": []} if kind == "output_text" else {"type": kind}
        return self._parts.setdefault(index, (empty, []))


class GrowingItems:
    """All items of the output."""

    def __init__(self) -> None:
        self._items: list[_GrowingItem] = []

    def begin(self, event: Json) -> None:
        """Take an item that begins."""
        item = event.get("item")
        self._items.append(_GrowingItem(item if isinstance(item, Mapping) else {}, event.get("output_index")))

    def end(self, event: Json) -> None:
        """Take an item that is whole, in its own place."""
        item = event.get("item")
        if not isinstance(item, Mapping):
            return
        open_items = [each for each in self._items if not each.done]
        named = [each for each in self._items if each.id is not None and each.id == item.get("id")]
        index = event.get("output_index")
        placed = [each for each in open_items if index is not None and each.index == index]
        found = named or placed
        if not found:
            self.begin(event)
        (found or self._items)[-1].end(item)

    def of(self, event: Json) -> _GrowingItem:
        """The item that an event goes on with; one that nobody has announced begins here."""
        name, index = event.get("item_id"), event.get("output_index")
        named = [each for each in self._items if name is not None and each.id == name]
        placed = [each for each in self._items if index is None or each.index == index]
        if not (found := named or placed):
            found = [_GrowingItem({"type": "message", "id": name, "role": "assistant"}, index)]
            self._items += found
        return found[-1]

    def are_whole(self) -> bool:
        """Whether there is an item, and every item is whole."""
        return bool(self._items) and all(item.is_whole for item in self._items)

    def __bool__(self) -> bool:
        return bool(self._items)

    def completing(self, output: Sequence[object]) -> list[Any]:
        """The items of the whole output that ends a stream, with what came and it leaves out or empty."""
        return completed(output, self.output(), [each.counts for each in self._items])

    def has_a_bare_call(self) -> bool:
        """Whether a call has begun of whose arguments nothing came, nor that it is whole."""
        return any(not each.is_whole and _is_bare(each.item()) for each in self._items)

    def output(self) -> list[Json]:
        """The items, in the order in which they began."""
        return [item.item() for item in self._items]


def _is_bare(item: Json) -> bool:
    return _is_call(item) and not item.get(INPUT_FIELDS[str(item["type"])])


def _is_call(item: Json) -> bool:
    return str(item.get("type")) in INPUT_FIELDS


def _holding(part: Json, text: str) -> Json:
    field = TEXT_FIELDS.get(str(part.get("type")))
    return {**part, field: text} if field else part
