"""A response that grows: the items of its output, as far as the events of a stream have brought them."""

from collections.abc import Mapping, Sequence

from agentloop.messages import Json
from agentloop.openai_responses.from_items import INPUT_FIELDS, TEXT_FIELDS


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

    def end(self, item: Json) -> None:
        """Take the whole item."""
        self._item, self.done = item, True

    def add_part(self, index: int, part: Json) -> None:
        """Take a part of a message; what it holds of its text stands in place of what came so far."""
        text = part.get(TEXT_FIELDS.get(str(part.get("type")), ""))
        self._parts[index] = part, [text] if isinstance(text, str) and text else []

    def add_text(self, index: int, kind: str, text: str) -> None:
        """Take a piece of a part's text."""
        empty: Json = {"type": kind, "annotations": []} if kind == "output_text" else {"type": kind}
        self._parts.setdefault(index, (empty, []))[1].append(text)

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

    def calls_left_out_of(self, output: Sequence[object]) -> list[Json]:
        """The calls that came whole and that this output lacks, where it has fewer calls than came."""
        came = [each.item() for each in self._items if each.is_whole and _is_call(each.item())]
        named = [item.get("call_id") for item in output if isinstance(item, Mapping) and _is_call(item)]
        if len(named) >= len(came):
            return []
        return [item for item in came if item.get("call_id") not in named]

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
