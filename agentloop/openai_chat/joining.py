"""Values that come in fragments, joined to one."""

from collections.abc import Iterable, Mapping
from typing import Any

from agentloop.messages import Json

_SAID_ONCE = frozenset({"id", "type", "role", "name", "format", "index", "status"})
_SIGNATURES = frozenset({"signature", "thought_signature", "thoughtSignature", "encrypted_content"})
_SEALED = frozenset({"reasoning.encrypted", "redacted_thinking"})
_GROWING = frozenset({"thinking", "reasoning.text", "reasoning.summary"})


class GrowingFields:
    """The fields of an object that comes in fragments, those aside that somebody else joins."""

    def __init__(self) -> None:
        self._values: dict[str, list[Any]] = {}

    def add(self, key: str, value: object) -> None:
        """Take one more value of a field in; one that says nothing is passed over."""
        if not (value is None or value == [] or value == {}):
            self._values.setdefault(key, []).append(value)

    def joined(self) -> dict[str, Any]:
        """Every field with what its fragments say together."""
        return {key: _joined(key, values) for key, values in self._values.items()}


def _joined(key: str, values: list[Any]) -> Any:
    """One value from its fragments: texts end to end, items of lists by their `index`, else the last.

    A signature that is said with each fragment is said once.
    """
    if len(values) == 1 or key in _SAID_ONCE:
        return values[-1]
    if key in _SIGNATURES:
        values = _each_once(values)
    if all(isinstance(value, str) for value in values):
        return "".join(values)
    if all(isinstance(value, list) for value in values):
        return _joined_items(item for value in values for item in value)
    if all(isinstance(value, Mapping) for value in values):
        return _joined_mapping(values)
    return values[-1]


def _joined_items(items: Iterable[Any]) -> list[Any]:
    groups: list[_Group] = []
    newest: dict[object, _Group] = {}
    for item in items:
        index = item.get("index") if isinstance(item, Mapping) else None
        group = newest.get(index) if isinstance(index, int | None) else None
        if group is None or not group.goes_on_with(item):
            groups.append(group := _Group())
            newest[index if isinstance(index, int) else None] = group
        group.add(item)
    return [_joined("", group.items) for group in groups]


class _Group:
    """The fragments of one item of a list, as far as they have come."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._said: dict[str, Any] = {}

    def goes_on_with(self, item: Any) -> bool:
        """Whether it is a further fragment of this item: no other type or id stands against it.

        Without an index only text that is thought goes on, up to its signature.
        """
        if not isinstance(item, Mapping) or any(
            item.get(key) not in (None, self._said.get(key, item.get(key))) for key in ("type", "id")
        ):
            return False
        if isinstance(item.get("index"), int):
            return True
        return item.get("type") in _GROWING and not self._said.get("signature")

    def add(self, item: Any) -> None:
        """Take one fragment in."""
        self.items.append(item)
        if isinstance(item, Mapping):
            self._said.update({key: item[key] for key in ("type", "id", "signature") if item.get(key)})


def _joined_mapping(mappings: Iterable[Json]) -> dict[str, Any]:
    fields: dict[str, list[Any]] = {}
    for mapping in mappings:
        for key, value in mapping.items():
            fields.setdefault(key, []).append(value)
    if not _SEALED.isdisjoint(map(str, fields.get("type", ()))):
        fields["data"] = _each_once(fields.get("data", []))
    return {
        key: _joined(key, [v for v in values if v is not None] or [None]) for key, values in fields.items()
    }


def _each_once(values: list[Any]) -> list[Any]:
    return [value for at, value in enumerate(values) if value not in values[:at]]
