"""Values that come in fragments, joined to one."""

from collections.abc import Iterable, Mapping, Set
from typing import Any

from agentloop.messages import Json
from agentloop.openai_api.thoughts import SEALED_PARTS, SEALS, TOLD_PARTS

_SAID_ONCE = frozenset({"id", "type", "role", "name", "format", "index", "status", "channel"})
_SIGNATURES = SEALS | {"encrypted_content"}
_GROWING = TOLD_PARTS - {"reasoning"}
"""Items of lists that come in pieces, with no word of what belongs together."""

_TEXTS = frozenset({"text"})
_SAYS_TEXT = ("thinking", "text", "summary")
_HOLD_TEXTS = frozenset({"thinking", "reasoning"})


class GrowingFields:
    """The fields of an object that comes in fragments, those aside that somebody else joins."""

    def __init__(self) -> None:
        self._values: dict[str, list[Any]] = {}

    def add(self, key: str, value: object) -> bool:
        """Take one more value of a field in; returns whether it says anything."""
        if value is None or value == [] or value == {}:
            return False
        self._values.setdefault(key, []).append(value)
        return value != ""

    def joined(self) -> dict[str, Any]:
        """Every field with what its fragments say together."""
        return {key: _joined(key, values) for key, values in self._values.items()}


def _joined(key: str, values: list[Any]) -> Any:
    """One value from its fragments: texts end to end, items of lists by their `index`, else the last.

    A signature that is said whole with each fragment is said once.
    """
    if len(values) == 1 or key in _SAID_ONCE:
        return values[-1]
    if key in _SIGNATURES:
        values = _once(values)
    if all(isinstance(value, str) for value in values):
        return "".join(values)
    if all(isinstance(value, list) for value in values):
        growing = _GROWING | _TEXTS if key in _HOLD_TEXTS else _GROWING
        return _joined_items((item for value in values for item in value), growing)
    if all(isinstance(value, Mapping) for value in values):
        return _joined_mapping(values)
    return values[-1]


def _joined_items(items: Iterable[Any], growing: Set[str]) -> list[Any]:
    found: list[GrowingItem] = []
    newest: dict[object, GrowingItem] = {}
    for item in items:
        index = item.get("index") if isinstance(item, Mapping) else None
        known = newest.get(index) if isinstance(index, int | None) else None
        if known is None or not known.goes_on_with(item):
            found.append(known := GrowingItem(growing))
            newest[index if isinstance(index, int) else None] = known
        known.add(item)
    return [item.joined() for item in found]


class GrowingItem:
    """The fragments of one item of a list, as far as they have come.

    Without an index only items of the types that are `growing` have several.
    """

    def __init__(self, growing: Set[str]) -> None:
        self._growing = growing
        self._fragments: list[Any] = []
        self._said: dict[str, Any] = {}
        self._has_text = False

    def goes_on_with(self, item: Any) -> bool:
        """Whether it is a further fragment of this item: no other type or id stands against it.

        Without an index it goes on up to its signature, and on with that where it has a text: a block that
        is a signature alone is whole.
        """
        if not isinstance(item, Mapping) or any(
            item.get(key) not in (None, self._said.get(key, item.get(key))) for key in ("type", "id")
        ):
            return False
        if isinstance(item.get("index"), int):
            return True
        kind = item.get("type")
        is_open = not self._said.get("signature") or (self._has_text and not _says_text(item))
        return isinstance(kind, str) and kind in self._growing and is_open

    def add(self, item: Any) -> None:
        """Take one fragment in."""
        self._fragments.append(item)
        self._has_text = self._has_text or _says_text(item)
        if isinstance(item, Mapping):
            self._said.update({key: item[key] for key in ("type", "id", "signature") if item.get(key)})

    def joined(self) -> Any:
        """What the fragments say together."""
        return _joined("", self._fragments)


def _joined_mapping(mappings: Iterable[Json]) -> dict[str, Any]:
    fields: dict[str, list[Any]] = {}
    for mapping in mappings:
        for key, value in mapping.items():
            fields.setdefault(key, []).append(value)
    if not SEALED_PARTS.isdisjoint(map(str, fields.get("type", ()))):
        fields["data"] = _once(fields.get("data", []))
    return {
        key: _joined(key, [v for v in values if v is not None] or [None]) for key, values in fields.items()
    }


def _once(values: list[Any]) -> list[Any]:
    """One value where all that say something are the same, else all: equal pieces among others are pieces."""
    said = [value for value in values if value]
    return said[:1] if said and all(value == said[0] for value in said) else values


def _says_text(fragment: Any) -> bool:
    return isinstance(fragment, Mapping) and any(fragment.get(key) for key in _SAYS_TEXT)
