"""Which tool results a later result of the same thing replaces."""

import json
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentloop._plumbing.truncate import failure_in
from agentloop.context import Entry, answers
from agentloop.messages import ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Newer:
    """The result that replaces another: its position, and the tool that both are results of."""

    seq: int
    name: str


_FILE_NAME = re.compile(
    r"(?:file|path)_?(?:name|path)?|(?:file|full|abs(?:olute)?|rel(?:ative)?|src)_?path", re.I
)
_PATH = re.compile(r"[^\s/\\]*[/\\]\S*|[^\s.]+(?:\.[^\s.]+)*\.[A-Za-z]\w{0,7}")


def superseded(entries: Sequence[Entry]) -> frozenset[int]:
    """The positions of the tool results that a later result of the same call replaces.

    The rule is that of `newer_results`.
    """
    return frozenset(newer_results(entries))


def newer_results(entries: Sequence[Entry]) -> Mapping[int, Newer]:
    """For the position of each superseded result the newest result that replaces it.

    A result is replaced by that of a later call of the same tool whose decoded arguments are equal, where
    they name a file or the two results are the same: a tool that is asked for what comes next, or for how
    things stand, answers anew each time. Another range of a file is another call. A result to be kept is
    never replaced; a call without a result or without readable arguments replaces nothing, and neither does
    a result that says anywhere in its head or tail that something went wrong: where that is in doubt, the
    older result stays. Linear in the text.
    """
    return _replaced(entries, _key)


def asked_again(entries: Sequence[Entry]) -> frozenset[int]:
    """The positions of the results whose call was made again with the same arguments, and went well.

    Whether the later result replaces the earlier one is not said: `newer_results` says that.
    """
    return frozenset(_replaced(entries, lambda call, _: _key(call, "") if call.decoded() else None))


def _replaced(
    entries: Sequence[Entry], key_of: Callable[[ToolCall, str], tuple[str, str, str] | None]
) -> Mapping[int, Newer]:
    newest: dict[tuple[str, str, str], Newer] = {}
    found: dict[int, Newer] = {}
    for call, result in reversed(list(_answered(entries))):
        key = key_of(call, result.original.text)
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


def _key(call: ToolCall, result: str) -> tuple[str, str, str] | None:
    """What a later call must be equal in, its result too where the arguments name no file."""
    arguments = call.decoded()
    if arguments is None:
        return None
    same = "" if any(_names_a_file(name, value) for name, value in arguments.items()) else result
    given = {name: value for name, value in arguments.items() if value is not None}
    if len(given) == 1:
        given = {name: _normal(value) for name, value in given.items()}
    try:
        return call.name, json.dumps(given, sort_keys=True), same
    except RecursionError:
        return None


def _names_a_file(name: str, value: Any) -> bool:
    """Whether an argument is a path: by its name, or one word that has a separator or a suffix."""
    if not isinstance(value, str) or not value or "://" in value:
        return False
    return bool(_FILE_NAME.fullmatch(name)) or bool(_PATH.fullmatch(value))


def _normal(value: Any) -> Any:
    """The value, a path without what only spells it differently."""
    if isinstance(value, str) and ("/" in value or "\\" in value) and "://" not in value:
        return posixpath.normpath(value.replace("\\", "/"))
    return value
