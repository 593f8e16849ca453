"""Which tool results a later result of the same thing replaces."""

import json
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentloop.entries import Entry
from agentloop.failures_in import failure_in
from agentloop.messages import ToolCall
from agentloop.pairing import answers


@dataclass(frozen=True, slots=True, kw_only=True)
class Newer:
    """The result that replaces another: its position, and the tool that both are results of."""

    seq: int
    name: str


def superseded(entries: Sequence[Entry]) -> frozenset[int]:
    """The positions of the tool results that a later result of the same call replaces.

    The rule is that of `newer_results`.
    """
    return frozenset(newer_results(entries))


def newer_results(entries: Sequence[Entry]) -> Mapping[int, Newer]:
    """For the position of each superseded result the newest result that replaces it.

    A result is replaced by that of a later call of the same tool whose decoded arguments are equal, or name
    the same file and nothing else. Another range of a file is another call. A result to be kept is never
    replaced; a call without a result or without readable arguments replaces nothing, and neither does a
    result that says anywhere in its head or tail that something went wrong: where that is in doubt, the
    older result stays. Linear in the text.
    """
    newest: dict[tuple[str, str], Newer] = {}
    found: dict[int, Newer] = {}
    for call, result in reversed(list(_answered(entries))):
        key = _key(call)
        if key is None:
            continue
        if key not in newest:
            if failure_in(result.original.text) is None:
                newest[key] = Newer(seq=result.seq, name=call.name)
        elif not result.keep:
            found[result.seq] = newest[key]
    return found


def _answered(entries: Sequence[Entry]) -> Iterator[tuple[ToolCall, Entry]]:
    """Each call that has a result, with it, in the order of the results."""
    said = [entry for entry in entries if entry.kind == "said"]
    pairs = (
        (place, call)
        for at, places in answers([entry.original for entry in said]).items()
        for call, place in zip(said[at].original.tool_calls, places, strict=True)
        if place is not None
    )
    return ((call, said[place]) for place, call in sorted(pairs, key=lambda pair: pair[0]))


def _key(call: ToolCall) -> tuple[str, str] | None:
    arguments = call.decoded()
    if arguments is None:
        return None
    given = {name: value for name, value in arguments.items() if value is not None}
    if len(given) == 1:
        given = {name: _normal(value) for name, value in given.items()}
    try:
        return call.name, json.dumps(given, sort_keys=True)
    except RecursionError:
        return None


def _normal(value: Any) -> Any:
    """The value, a path without what only spells it differently."""
    if isinstance(value, str) and ("/" in value or "\\" in value) and "://" not in value:
        return posixpath.normpath(value.replace("\\", "/"))
    return value
