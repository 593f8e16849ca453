"""What a typed value keeps of the JSON object that it came from, so that it can be given back as it was.

`plain` is what its typed fields alone make; `extra` holds the fields of the original that are others, and
`omits` names those that it left out.
"""

import copy
from collections.abc import Mapping
from typing import Any, TypedDict


class Kept(TypedDict):
    """The two fields that a typed value keeps for it."""

    extra: Mapping[str, Any]
    omits: tuple[str, ...]


def difference(data: Mapping[str, Any], plain: Mapping[str, Any]) -> Kept:
    """What of the original the plain form does not say."""
    extra = {key: copy.deepcopy(value) for key, value in data.items() if plain.get(key, _NOTHING) != value}
    return Kept(extra=extra, omits=tuple(key for key in plain if key not in data))


def merged(plain: dict[str, Any], extra: Mapping[str, Any], omits: tuple[str, ...]) -> dict[str, Any]:
    """The original again, out of its plain form, which is used up."""
    for key in omits:
        plain.pop(key, None)
    return plain | copy.deepcopy(dict(extra)) if extra else plain


def said_anew(extra: Mapping[str, Any], omits: tuple[str, ...], *keys: str) -> Kept:
    """What is kept where the typed fields say other things behind these keys than the original did."""
    return Kept(
        extra={key: value for key, value in extra.items() if key not in keys},
        omits=tuple(key for key in omits if key not in keys),
    )


_NOTHING = object()
