"""Streamed calls however places, ids, names and order are mixed: each runs as it was meant, or not at all."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop.errors import ModelUnavailableError
from tests.strict_bodies import Body
from tests.strict_replies import events
from tests.test_streams import choice, fragment, understood

Said = tuple[str, str, str]
"""Id, name and arguments of a call."""

NAMES = st.sampled_from(["look", "read_file"])
OBJECTS = st.sampled_from(
    ["{}", '{"n": 1}', '{"path": "a.py"}', '{"a": {"b": [{}]}, "c": "}{"}', '{"{": "\\"{\\""}']
)
Fragment = dict[str, Any]


@dataclass(frozen=True)
class Mixture:
    """How a server words calls: what stands on each fragment, and in what order they come."""

    index: str
    ids: str
    names: str
    arguments: str
    begins: str
    interleaved: bool

    @property
    def ties(self) -> bool:
        """Whether a fragment of one call cannot look like one of another, as all do that say nothing."""
        if self.index == "right" or self.ids == "each":
            return True
        return not (self.interleaved or (self.index == "each_delta" and self.names == "each"))

    @property
    def tells_apart(self) -> bool:
        """Whether each fragment says enough of the call it belongs to, in a way that a server has."""
        if self.ids == "each":
            return True
        if self.arguments == "doubled" and (self.names == "each" or self.ids == "new_each"):
            return False
        if self.ids == "new_each":
            return self.index == "right" and self.names == "first"
        return self.index == "right" or (self.index in ("zero", "absent") and not self.interleaved)


MIXTURES = st.builds(
    Mixture,
    index=st.sampled_from(["right", "zero", "absent", "each_delta"]),
    ids=st.sampled_from(["first", "each", "new_each", "none"]),
    names=st.sampled_from(["first", "each"]),
    arguments=st.sampled_from(["pieces", "all_so_far", "doubled"]),
    begins=st.sampled_from(["with_arguments", "without"]),
    interleaved=st.booleans(),
)


def cut(arguments: str, size: int, mixture: Mixture) -> list[str]:
    ends = [*range(size, len(arguments), size), len(arguments)]
    if mixture.arguments == "all_so_far":
        pieces = [arguments[:end] for end in ends]
    else:
        pieces = [arguments[end - size if end % size == 0 else end - end % size : end] for end in ends]
        assert "".join(pieces) == arguments
    again = [arguments] if mixture.arguments == "doubled" else []
    return [*([""] if mixture.begins == "without" else []), *pieces, *again]


def worded(call: Said, number: int, size: int, mixture: Mixture) -> Iterator[Fragment]:
    its_id, name, arguments = call
    for at, piece in enumerate(cut(arguments, size, mixture)):
        said: Fragment = {}
        if at == 0 or mixture.names == "each":
            said["name"] = name
        if mixture.ids != "none" and (at == 0 or mixture.ids != "first"):
            said["id"] = f"{its_id}-{at}" if mixture.ids == "new_each" and at else its_id
        if mixture.index in ("right", "zero"):
            said["index"] = number if mixture.index == "right" else 0
        yield {"arguments": piece} | said


def in_order(
    groups: Sequence[list[dict[str, Any]]], mixture: Mixture, draw: st.DrawFn
) -> list[dict[str, Any]]:
    """The fragments of all calls, mixed where they come so; those of one call stay in order."""
    waiting, mixed = [list(group) for group in groups], []
    while open_groups := [group for group in waiting if group]:
        group = draw(st.sampled_from(open_groups)) if mixture.interleaved else open_groups[0]
        mixed.append(group.pop(0))
    if mixture.index == "each_delta":
        return [{**each, "index": at} for at, each in enumerate(mixed)]
    return mixed


@st.composite
def streams(draw: st.DrawFn) -> tuple[Mixture, list[Said], list[Body], bool]:
    """A mixture, the calls that are meant, the chunks that say them, and whether DONE ends them."""
    mixture = draw(MIXTURES)
    said = draw(st.lists(st.tuples(NAMES, OBJECTS), min_size=1, max_size=3))
    calls = [(f"call_{number}", name, arguments) for number, (name, arguments) in enumerate(said)]
    size = draw(st.integers(1, 12))
    groups = [list(worded(call, number, size, mixture)) for number, call in enumerate(calls)]
    chunks = [fragment(**each) for each in in_order(groups, mixture, draw)]
    finish, done = draw(st.sampled_from(["own", "last", "each", "none"])), draw(st.booleans())
    for chunk in {"each": chunks, "last": chunks[-1:]}.get(finish, []):
        chunk["choices"][0]["finish_reason"] = "tool_calls"
    if finish == "own":
        chunks.append(choice({}, finish_reason="tool_calls"))
    return mixture, calls, chunks, done or finish == "none"


def runs(name: str, arguments: str) -> bool:
    """Whether a call runs: blank arguments are the tool's defaults."""
    try:
        return bool(name) and (not arguments.strip() or isinstance(json.loads(arguments), dict))
    except ValueError:
        return False


@given(streams())
@pytest.mark.many(500, 40)
async def test_a_call_runs_as_it_was_meant_or_not_at_all(
    stream: tuple[Mixture, list[Said], list[Body], bool],
) -> None:
    mixture, calls, chunks, done = stream
    pieces = events(*chunks).pieces
    try:
        _, answer = await understood(pieces if done else pieces[:-1])
    except ModelUnavailableError:
        assert not (done and mixture.tells_apart)
        return
    got = sorted((call.id, call.name, call.arguments) for call in answer.message.tool_calls)
    if mixture.ties:
        assert {each[1:] for each in got if runs(*each[1:])} <= {each[1:] for each in calls}
    if mixture.tells_apart:
        has_ids = mixture.ids != "none"
        assert got == sorted(call if has_ids else ("", *call[1:]) for call in calls)
