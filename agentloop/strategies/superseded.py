"""Superseded results: a later call of the same tool, asked for the same, was answered anew."""

import json
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentloop._plumbing.patterns import pattern
from agentloop._plumbing.remembered import Remembered
from agentloop._plumbing.truncate import failure_in
from agentloop.context import Context, Entry, TokenCounter, answers
from agentloop.events import ClearedItem
from agentloop.messages import ToolCall, decoded
from agentloop.prompts import SUPERSEDED, first_given
from agentloop.strategies.clearing import first_unread, shown_with


@dataclass(frozen=True, slots=True, kw_only=True)
class Newer:
    """The result that replaces another: its position, and the tool that both are results of."""

    seq: int
    name: str


_FILE_NAME = pattern(
    r"(?:file|path)_?(?:name|path)?|(?:file|full|abs(?:olute)?|rel(?:ative)?|src)_?path", re.I
)
_PATH = pattern(r"[^\s/\\]*[/\\]\S*|[^\s.]+(?:\.[^\s.]+)*\.[A-Za-z]\w{0,7}")


def newer_results(entries: Sequence[Entry]) -> Mapping[int, Newer]:
    """For the position of each superseded result the newest result that replaces it.

    A result is replaced by that of a later call of the same tool whose decoded arguments are equal, where
    they name a file or the two results are the same: a tool that is asked for what comes next, or for how
    things stand, answers anew each time. Another range of a file is another call. A result to be kept is
    never replaced; a call without a result or without readable arguments replaces nothing, and neither does
    a result that says anywhere in its head or tail that something went wrong: where that is in doubt, the
    older result stays. Linear in the text.
    """
    newest: dict[tuple[str, str, str], Newer] = {}
    found: dict[int, Newer] = {}
    for call, result in reversed(list(_answered(entries))):
        key = _key(call, result.original.text)
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
    names_a_file, given = given_in(call.arguments)
    if given is None:
        return None
    return call.name, given, "" if names_a_file else first_given(result)


@Remembered
def given_in(text: str) -> tuple[bool, str | None]:
    """Whether these arguments name a file, and what equal ones have in common; None for none to be read."""
    arguments = decoded(text)
    if not arguments:
        return False, None if arguments is None else ""
    given = {name: value for name, value in arguments.items() if value is not None}
    if len(given) == 1:
        given = {name: _normal(value) for name, value in given.items()}
    try:
        same = json.dumps(given, sort_keys=True)
    except RecursionError:
        return False, None
    return any(_names_a_file(name, value) for name, value in arguments.items()), same


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


MOST_NAME_CHARS = 64


def superseded_items(context: Context, counter: TokenCounter) -> tuple[ClearedItem, ...]:
    """How the superseded results in sight are shown, each as one line, where that saves tokens.

    A result gives way only to one that stands in sight as the log holds it. Results that the model has not
    read yet, those to be kept and those already shown shortened are left alone. A tool message keeps its role
    and the id of its call. Linear in the text.
    """
    return tuple(_superseded(context, counter))


def _superseded(context: Context, counter: TokenCounter) -> Iterator[ClearedItem]:
    whole = {entry.seq for entry in context.visible if not entry.cleared}
    newer = newer_results(context.visible)
    for entry in context.visible[: first_unread(context)]:
        by = newer.get(entry.seq)
        if by and by.seq in whole and entry.seq in whole:
            line = SUPERSEDED.format(name=by.name[:MOST_NAME_CHARS])
            if item := shown_with(entry, line, counter):
                yield item
