"""What the end of a stream leaves out or leaves empty though it came: texts, arguments, whole items."""

from collections import deque
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, TypeAlias

from agentloop.messages import Json
from agentloop.openai_responses.from_items import INPUT_FIELDS, TEXT_FIELDS

Places: TypeAlias = Mapping[int, int]
"""Where items of the end stand, and where the same items stand among those that came."""

_TEXT_FIELDS = {**TEXT_FIELDS, "text": "text"}


def filled(item: Json, before: Json) -> Json:
    """The item, with the text or the arguments that came `before` where it has none."""
    kind = str(item.get("type"))
    if kind in INPUT_FIELDS:
        field = INPUT_FIELDS[kind]
        return item if item.get(field) or not before.get(field) else {**item, field: before[field]}
    parts = before.get("content")
    if kind != "message" or not (isinstance(parts, list) and parts):
        return item
    return {**item, "content": _filled_parts(item.get("content"), parts)}


def completed(output: Sequence[Any], came: Sequence[Json], whole: Sequence[bool]) -> list[Any]:
    """The items of the end, filled, and in their order among them the `whole` ones that it leaves out.

    Items of one type are told apart by their ids, calls by those of the call. Where the end has others than
    came they are the same ones in their order if there are as many, and else nothing of that type is added.
    """
    known = _known(output, came)
    unknown = {_kind(item) for at, item in enumerate(output) if at not in known}
    same = set(known.values())
    missing = deque(
        at for at, item in enumerate(came) if at not in same and whole[at] and _kind(item) not in unknown
    )
    items: list[Any] = []
    for at, item in enumerate(output):
        while at in known and missing and missing[0] < known[at]:
            items.append(came[missing.popleft()])
        items.append(filled(item, came[known[at]]) if at in known else item)
    return [*items, *(came[at] for at in missing)]


def _known(output: Sequence[Any], came: Sequence[Json]) -> Places:
    named: dict[tuple[str, str], deque[int]] = {}
    for at, item in enumerate(came):
        named.setdefault((_kind(item), _name(item)), deque()).append(at)
    known: dict[int, int] = {}
    for at, item in enumerate(output):
        same = named.get((_kind(item), _name(item)))
        if same and _name(item):
            known[at] = same.popleft()
    return known | _in_order(_others(output, known.keys()), _others(came, set(known.values())))


def _others(items: Sequence[Any], known: AbstractSet[int]) -> dict[str, list[int]]:
    """Where the items stand that are not known, by their types."""
    others: dict[str, list[int]] = {}
    for at, item in enumerate(items):
        if at not in known:
            others.setdefault(_kind(item), []).append(at)
    return others


def _in_order(ours: Mapping[str, list[int]], theirs: Mapping[str, list[int]]) -> dict[int, int]:
    """The places of a type, where there are as many here and there."""
    return {
        here: there
        for kind, places in ours.items()
        if len(places) == len(theirs.get(kind, ()))
        for here, there in zip(places, theirs[kind], strict=True)
    }


def _filled_parts(content: object, before: Sequence[Any]) -> object:
    if not content:
        return before
    if not isinstance(content, list):
        return content
    earlier = [*before, *([None] * len(content))]
    return [_filled_part(part, old) for part, old in zip(content, earlier, strict=False)]


def _filled_part(part: Any, before: Any) -> Any:
    field = _text_field(part)
    if field is None or part.get(field) or field != _text_field(before):
        return part
    return {**part, field: before.get(field)}


def _text_field(part: object) -> str | None:
    return _TEXT_FIELDS.get(str(part.get("type"))) if isinstance(part, Mapping) else None


def _kind(item: object) -> str:
    return str(item.get("type")) if isinstance(item, Mapping) else ""


def _name(item: object) -> str:
    """The id by which an item is known."""
    if not isinstance(item, Mapping):
        return ""
    name = (_kind(item) in INPUT_FIELDS and item.get("call_id")) or item.get("id")
    return name if isinstance(name, str) else ""
