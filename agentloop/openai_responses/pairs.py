"""What the API wants to stand together: a reasoning item and what it led to.

It refuses a reasoning item whose following item is missing, and an item known by its id without the
reasoning that it came from. With `store` false it finds reasoning only in the item itself, so one that
carries nothing cannot go back; what it led to then goes back without its id, as something merely said.
"""

from collections.abc import Iterable, Iterator

from agentloop.openai_responses.sent_calls import MOST_ID_CHARS
from agentloop.openai_responses.to_items import Item

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

    def of(self, items: Iterable[Item | None]) -> Iterator[Item]:
        """The items of one answer that can be sent; None stands for one that cannot."""
        thoughts: list[Item] = []
        known = True
        for item in items:
            if item is not None and item.get("type") == "reasoning":
                thoughts.append(item)
                continue
            if thoughts:
                known = _is_led_to(item) and all(map(self._goes_back, thoughts))
                yield from (self._sent(thought) for thought in thoughts if known)
                thoughts = []
            if item is not None:
                yield self._sent(item if known else _without_id(item))

    def _goes_back(self, thought: Item) -> bool:
        sealed, content = thought.get("encrypted_content"), thought.get("content")
        says = (isinstance(sealed, str) and sealed) or (isinstance(content, list) and content)
        return bool(self._with_reasoning and says and str(thought.get("id")) not in self._ids)

    def _sent(self, item: Item) -> Item:
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


def _is_led_to(item: Item | None) -> bool:
    """Whether it can be what reasoning led to: what a call gave never is."""
    return item is not None and not str(item.get("type")).endswith("_output")


def _without_id(item: Item) -> Item:
    return {key: value for key, value in item.items() if key != "id"}
